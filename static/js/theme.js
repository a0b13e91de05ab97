// Light, dark, or as the system has it; kept in this browser. Runs before the first paint.

const KEY = "agentsite-theme";
const root = document.documentElement;

function kept() {
  try {
    return localStorage.getItem(KEY) ?? "system";
  } catch {
    return "system";
  }
}

function wear(theme) {
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  else delete root.dataset.theme;
}

root.dataset.scripted = "";
wear(kept());

addEventListener("DOMContentLoaded", () => {
  for (const choice of document.querySelectorAll("[data-theme-switch] input")) {
    choice.checked = choice.value === kept();
    choice.addEventListener("change", () => {
      wear(choice.value);
      try {
        localStorage.setItem(KEY, choice.value);
      } catch {
        // this page alone, then
      }
    });
  }
  // A click elsewhere, or Escape, closes an open menu.
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
});

// Another tab has changed it.
addEventListener("storage", (event) => event.key === KEY && wear(kept()));
