// The run page beside its rows coming in: how much detail is shown, one state's rows only, older rows, the tabs of a step.

import { listen as listenToSelecting } from "./inspector.js";
import { untilLetGo, whenLetGo } from "./press.js";

const DETAIL = "agentsite-detail";
const list = document.querySelector("[data-rows]");

listenToSelecting();
if (list !== null) {
  chooseDetail();
  filterByNode();
  loadOlder();
  markAddressed();
}
tellHeight(document.querySelector(".top"));
summon(document.querySelector("[data-summons]"), document.querySelector("#needs"));
if (matchMedia("(width < 40rem)").matches) {
  for (const fold of document.querySelectorAll("#numbers, #context, #sources")) fold.removeAttribute("open");
}
document.addEventListener("click", (event) => {
  const tab = event.target.closest("[data-tab]");
  if (tab !== null) openTab(tab);
});
document.addEventListener("keydown", walkTabs);

// What sticks below the head must know how high it is; on a narrow page the head scrolls away.
function tellHeight(head) {
  if (head === null) return;
  new ResizeObserver(() => {
    const sticks = getComputedStyle(head).position === "sticky";
    document.documentElement.style.setProperty("--top", sticks ? `${head.offsetHeight}px` : "0px");
  }).observe(head);
}

// Wherever the page stands, an open question is in view or one press away.
function summon(link, panel) {
  if (link === null || panel === null) return;
  let inView = false;
  const look = () => whenLetGo(() => (link.hidden = inView || panel.querySelector(".card--pending") === null));
  new IntersectionObserver(([{ isIntersecting }]) => {
    inView = isIntersecting;
    look();
  }).observe(panel);
  new MutationObserver(look).observe(panel, { childList: true, subtree: true });
}

function chooseDetail() {
  const choices = [...document.querySelectorAll("[data-detail-switch] input")];
  const wear = (detail) => {
    list.dataset.detail = detail;
    for (const choice of choices) choice.checked = choice.value === detail;
  };
  try {
    const kept = localStorage.getItem(DETAIL);
    if (choices.some((choice) => choice.value === kept)) wear(kept);
  } catch {
    // the usual detail, then
  }
  for (const choice of choices) {
    choice.addEventListener("change", () => {
      wear(choice.value);
      try {
        localStorage.setItem(DETAIL, choice.value);
      } catch {
        // until the page is left
      }
    });
  }
}

// A click on a state shows its rows only; rows that come later obey too.
function filterByNode() {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const line = document.querySelector("[data-node-filter]");
  let only = "";
  const wear = (node) => {
    only = node;
    sheet.replaceSync(node === "" ? "" : `[data-rows] > .row:not([data-node="${CSS.escape(node)}"]) { display: none; }`);
    line.hidden = node === "";
    line.textContent = node === "" ? "" : `Only steps of “${node.replaceAll("_", " ")}”. `;
    if (node !== "") {
      const all = document.createElement("button");
      all.type = "button";
      all.className = "button button--small";
      all.textContent = "Show all";
      all.addEventListener("click", () => wear(""));
      line.append(all);
    }
    press();
  };
  const press = () => {
    for (const button of document.querySelectorAll("[data-filter-node]")) {
      button.setAttribute("aria-pressed", String(button.dataset.filterNode === only));
    }
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-filter-node]");
    if (button !== null) wear(button.dataset.filterNode === only ? "" : button.dataset.filterNode);
  });
  // The strip is swapped as the run goes on.
  const strip = document.querySelector('[data-panel="strip"]');
  new MutationObserver(() => only !== "" && press()).observe(strip, { childList: true, subtree: true });
}

function loadOlder() {
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("[data-older]");
    if (link === null) return;
    event.preventDefault();
    if (link.dataset.busy !== undefined) return;
    link.dataset.busy = "";
    link.textContent = "Loading…";
    const first = list.firstElementChild;
    const address = new URL(link.href);
    address.searchParams.set("before", first.dataset.seq);
    try {
      const response = await fetch(address, { headers: { "X-Requested-With": "fetch" } });
      if (!response.ok || response.redirected) throw new Error(String(response.status));
      const piece = document.createElement("template");
      piece.innerHTML = await response.text();
      await untilLetGo();
      const top = first.getBoundingClientRect().top;
      list.prepend(piece.content);
      scrollBy(0, first.getBoundingClientRect().top - top);
    } catch {
      link.textContent = "That failed. Try again";
      delete link.dataset.busy;
      return;
    }
    delete link.dataset.busy;
    offerOlder();
  });
  list.addEventListener("rows:trimmed", offerOlder);
}

function offerOlder() {
  const link = document.querySelector("[data-older]");
  if (link === null) return;
  const first = Number(list.firstElementChild?.dataset.seq ?? 1);
  link.closest("p").hidden = first <= 1;
  link.textContent = `Older steps (${first - 1})`;
}

function markAddressed() {
  const seq = new URLSearchParams(location.search).get("step");
  const row = seq === null ? null : document.getElementById(`step-${seq}`);
  if (row === null) return;
  row.dataset.selected = "true";
  row.scrollIntoView({ block: "center" });
}

function openTab(tab) {
  const inspector = tab.closest(".inspector");
  inspector.dataset.open = tab.dataset.tab;
  for (const other of inspector.querySelectorAll("[data-tab]")) {
    other.setAttribute("aria-selected", String(other === tab));
    other.tabIndex = other === tab ? 0 : -1;
  }
}

function walkTabs(event) {
  const tab = event.target.closest?.("[data-tab]");
  if (!tab || (event.key !== "ArrowLeft" && event.key !== "ArrowRight")) return;
  const tabs = [...tab.parentElement.querySelectorAll("[data-tab]")];
  const next = tabs.at((tabs.indexOf(tab) + (event.key === "ArrowRight" ? 1 : -1)) % tabs.length);
  openTab(next);
  next.focus();
  event.preventDefault();
}
