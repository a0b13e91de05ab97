// The keyboard. No single key decides anything: a, e and r only bring the focus to the control that does.

import { open, rows, select, selected, selectNone } from "./inspector.js";

const HELP = [
  ["j k", "next step, previous step"],
  ["Enter", "open the chosen step"],
  ["x", "choose none"],
  ["n", "to the next decision that needs me"],
  ["a e r", "to Approve, the arguments, Reject"],
  ["g q", "to everything that needs me"],
  ["g r", "to the runs"],
  ["/", "find"],
  ["?", "these keys"],
];
const COMPARING = [
  ["n j", "to the next difference"],
  ["p k", "to the difference before"],
  ...HELP.slice(-4),
];
const CARD = "[data-card]:not([data-arriving])"; // what has just arrived is to be seen first
const TOGETHER_MS = 1500;
let before = "";
let beforeAt = 0;

export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input, textarea, select, [contenteditable], dialog")) return;
    const key = performance.now() - beforeAt < TOGETHER_MS && before === "g" ? `g${event.key}` : event.key;
    before = event.key;
    beforeAt = performance.now();
    if (pressed(key, event)) event.preventDefault();
  });
}

function pressed(key, event) {
  switch (key) {
    case "j":
      return walk(1);
    case "k":
      return walk(-1);
    case "x":
      selectNone();
      return true;
    case "Enter":
      return event.target === document.body && openSelected();
    case "n":
      return nextThatNeedsMe();
    case "gq":
      location.assign("/needs-you/");
      return true;
    case "gr":
      location.assign("/runs/");
      return true;
    case "/":
      return focusOn("[data-find], input[type=search]");
    case "?":
      return help();
    case "a":
      return focusOn(`${CARD} button[value=approve]:not([disabled])`);
    case "e":
      return focusOn(`${CARD} [data-argument] :is(input:not([type=hidden]), textarea, select)`);
    case "r":
      return focusOn(`${CARD} [data-reason], ${CARD} button[value=reject]`);
  }
  return false;
}

function walk(by) {
  const all = rows().filter((row) => row.checkVisibility());
  if (all.length === 0) return false;
  const here = all.indexOf(selected());
  select(here < 0 ? all.at(-1) : all[Math.min(all.length - 1, Math.max(0, here + by))]);
  return true;
}

function openSelected() {
  const row = selected();
  if (row === null) return false;
  open(row);
  return true;
}

// To the card itself, not into one of its fields: there a, e and r would be letters.
function nextThatNeedsMe() {
  const card = document.querySelector("[data-card]:has(form)");
  if (card !== null && !card.contains(document.activeElement)) {
    card.tabIndex = -1;
    card.scrollIntoView({ block: "nearest" });
    card.focus({ preventScroll: true });
    return true;
  }
  const first = document.querySelector("[data-next-interrupt]");
  location.assign(first?.href ?? "/needs-you/");
  return true;
}

function focusOn(selector) {
  const place = [...document.querySelectorAll(selector)].find((found) => found.checkVisibility() || opened(found));
  if (place === undefined) return false;
  place.scrollIntoView({ block: "center" });
  place.focus();
  return true;
}

// What is folded away is unfolded first.
function opened(place) {
  const fold = place.closest("details:not([open])");
  if (fold === null) return false;
  fold.open = true;
  return place.checkVisibility();
}

function help() {
  let box = document.querySelector("dialog[data-keys]");
  if (box === null) {
    box = document.createElement("dialog");
    box.className = "keyhelp";
    box.dataset.keys = "";
    box.setAttribute("aria-label", "Keys");
    const list = document.createElement("dl");
    list.className = "keyhelp__list";
    for (const [keys, meaning] of document.body.dataset.page === "compare" ? COMPARING : HELP) {
      const line = document.createElement("div");
      const name = document.createElement("dt");
      for (const key of keys.split(" ")) {
        const cap = document.createElement("kbd");
        cap.textContent = key;
        name.append(cap, " ");
      }
      const what = document.createElement("dd");
      what.textContent = meaning;
      line.append(name, what);
      list.append(line);
    }
    const form = document.createElement("form");
    form.method = "dialog";
    const close = document.createElement("button");
    close.className = "button button--small";
    close.textContent = "Close";
    form.append(close);
    box.append(list, form);
    document.body.append(box);
    box.addEventListener("click", (event) => event.target === box && box.close());
  }
  box.showModal();
  return true;
}
