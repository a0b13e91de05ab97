// Selecting a step: the inspector beside the timeline, the address (replaced, not pushed), the tab that was open.
// Where there is no room beside the timeline, a step is a page of its own.

import { untilLetGo } from "./press.js";

const ROWS = "[data-rows] > [data-seq]";
const CHOSEN = "[data-rows] > [data-selected=true]";
let wanted = "";

export function listen() {
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const more = event.target.closest("a[data-whole]");
    if (more !== null) {
      event.preventDefault();
      showWhole(more);
      return;
    }
    const link = event.target.closest("[data-rows] a[data-step], [data-inspector] a[data-step]");
    if (link === null) return;
    event.preventDefault();
    const row = document.getElementById(`step-${link.dataset.step}`);
    if (row !== null) choose(row);
    if (isBeside()) show(link.dataset.step);
    else location.assign(stepAddress(link.dataset.step));
  });
}

export function rows() {
  return [...document.querySelectorAll(ROWS)];
}

export function selected() {
  return document.querySelector(CHOSEN);
}

// By the keyboard: choose a row, and show it where there is room.
export function select(row) {
  choose(row);
  row.querySelector("a[data-step]")?.focus({ preventScroll: true });
  if (isBeside()) show(row.dataset.seq);
}

export function selectNone() {
  for (const row of document.querySelectorAll(CHOSEN)) mark(row, false);
  address(null);
}

export function open(row) {
  location.assign(stepAddress(row.dataset.seq));
}

function choose(row) {
  for (const other of document.querySelectorAll(CHOSEN)) mark(other, false);
  mark(row, true);
  row.scrollIntoView({ block: "nearest" });
}

function mark(row, on) {
  row.dataset.selected = String(on);
  const link = row.querySelector("a[data-step]");
  if (on) link?.setAttribute("aria-current", "true");
  else link?.removeAttribute("aria-current");
}

function address(seq) {
  const now = new URL(location.href);
  if (seq === null) now.searchParams.delete("step");
  else now.searchParams.set("step", seq);
  history.replaceState(history.state, "", now);
}

function inspector() {
  return document.querySelector("[data-inspector]");
}

// Whether the inspector stands beside the rows, not under them.
function isBeside() {
  const list = document.querySelector("[data-rows]");
  const place = inspector();
  if (list === null || place === null || !place.checkVisibility()) return false;
  return place.getBoundingClientRect().left >= list.getBoundingClientRect().right - 1;
}

function stepAddress(seq) {
  return `${location.pathname.replace(/^(\/runs\/\d+\/).*$/, "$1")}steps/${seq}/`;
}

async function show(seq) {
  const place = inspector();
  wanted = seq;
  address(seq);
  place.setAttribute("aria-busy", "true");
  const html = await load(stepAddress(seq));
  await untilLetGo();
  if (wanted !== seq) return;
  place.removeAttribute("aria-busy");
  if (html === null) {
    const line = document.createElement("p");
    line.className = "inspect__empty";
    line.setAttribute("role", "alert");
    line.textContent = `Step ${seq} could not be loaded. Choose it again.`;
    place.replaceChildren(line);
    return;
  }
  const tab = place.querySelector("[data-tab][aria-selected=true]")?.dataset.tab;
  place.innerHTML = html;
  place.scrollTop = 0;
  if (tab !== undefined) place.querySelector(`[data-tab="${CSS.escape(tab)}"]`)?.click();
}

// The whole of a text that is cut, in its place; without scripts, and where it can't be had, the link leads to it.
async function showWhole(link) {
  const text = await load(link.href);
  if (text === null) {
    location.assign(link.href);
    return;
  }
  const line = link.closest("p");
  line.previousElementSibling.textContent = text;
  line.previousElementSibling.focus();
  line.remove();
}

async function load(where) {
  try {
    const response = await fetch(where, { headers: { "X-Requested-With": "fetch" } });
    return response.ok && !response.redirected ? await response.text() : null;
  } catch {
    return null;
  }
}
