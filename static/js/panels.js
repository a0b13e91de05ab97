// Swapping the small panels of the run page. What is the same stays the same element, so that a menu stays open, the
// focus stays where it is, and what a person is typing is never lost.

import { questionIn, shieldNews } from "./shield.js";

const shown = new Map();
const kept = new Map();
const homeless = new Map();

export function showPanels(panels) {
  for (const [name, html] of Object.entries(panels)) showPanel(name, html);
}

export function showPanel(name, html) {
  const panel = document.querySelector(`[data-panel="${CSS.escape(name)}"]`);
  if (panel === null) homeless.set(name, html);
  if (panel === null || shown.get(name) === html) return;
  if (panel.dataset.held !== undefined) {
    kept.set(name, html);
    panel.dispatchEvent(new CustomEvent("panel:kept"));
    return;
  }
  shown.set(name, html);
  const wanted = document.createElement("template");
  wanted.innerHTML = html;
  const typing = isTyping(panel);
  const before = questionIn(panel);
  if (typing && before !== "" && before === questionIn(wanted.content)) return;
  const written = typing ? writtenIn(panel) : [];
  keepPlace(panel, () => swap(panel, wanted.content, written, before));
  shieldNews(panel, before);
}

function swap(panel, wanted, written, before) {
  delete panel.dataset.written;
  // What was written stays until it has been read, whatever news come after those that took its place.
  const keepsakes = [...panel.querySelectorAll(":scope > .kept")];
  for (const box of keepsakes) box.remove();
  const said = panel.querySelector(":scope > .outcome");
  said?.remove();
  if (written.length > 0) {
    panel.replaceChildren(wanted);
    keepsakes.push(keepsake(written));
  } else {
    morph(panel, wanted);
  }
  const above = keepsakes.filter((box) => box.dataset.conflict !== undefined);
  panel.append(...keepsakes.filter((box) => !above.includes(box)));
  panel.prepend(...above);
  if (said !== null && questionIn(panel) === before && before !== "") panel.prepend(said);
}

// Whatever of the panel goes, the keyboard's place stays there: else the next Tab would begin at the top of the page.
export function keepPlace(panel, change) {
  const here = panel.contains(document.activeElement);
  change();
  if (!here || document.activeElement !== document.body) return;
  panel.tabIndex = -1;
  panel.focus({ preventScroll: true });
}

// Rows have come: some panels have their place in one of them.
export function settlePanels() {
  for (const [name, html] of [...homeless]) {
    homeless.delete(name);
    showPanel(name, html);
  }
}

// A panel that tells how a decision fares is left alone until that has been read.
export function hold(panel) {
  panel.dataset.held = "";
}

export function release(panel) {
  const name = panel.dataset.panel;
  const html = kept.get(name);
  delete panel.dataset.held;
  kept.delete(name);
  if (html !== undefined) showPanel(name, html);
}

// The question that waits to be shown in a panel that is held; empty where there is none.
export function questionKept(panel) {
  const wanted = document.createElement("template");
  wanted.innerHTML = kept.get(panel.dataset.panel) ?? "";
  return questionIn(wanted.content);
}

// What stands in the panel's fields came back from the site with a fault: it is still being written.
export function keepWritten(panel) {
  panel.dataset.written = "";
  release(panel);
}

function fieldsOf(panel) {
  return [...panel.querySelectorAll("input:not([type=hidden]), textarea:not([readonly]), select")];
}

function isTyping(panel) {
  if (panel.dataset.written !== undefined) return true;
  return fieldsOf(panel).some((field) => field === document.activeElement || isChanged(field));
}

function isChanged(field) {
  if (field instanceof HTMLSelectElement) {
    return [...field.options].some((option) => option.selected !== option.defaultSelected) && field.selectedIndex > 0;
  }
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  return field.value !== field.defaultValue;
}

function writtenIn(panel) {
  const all = panel.dataset.written !== undefined;
  return fieldsOf(panel)
    .filter((field) => /^(text|textarea|number|email|url|search)$/.test(field.type) && (all || isChanged(field)))
    .map((field) => field.value)
    .filter((text) => text.trim() !== "");
}

// Whether something that a person has written is nowhere but in this page.
export function holdsWriting() {
  if (document.querySelector(".kept") !== null) return true;
  return [document.body, ...document.querySelectorAll("[data-panel]")].some((box) => writtenIn(box).length > 0);
}

// What was being written when somebody else decided: below the news, to copy.
function keepsake(texts) {
  const line = document.createElement("p");
  line.className = "kept__line";
  line.textContent = "This changed while you were typing. Your text:";
  const areas = texts.map((text) => {
    const area = document.createElement("textarea");
    area.className = "input kept__text";
    area.readOnly = true;
    area.value = area.textContent = text;
    area.setAttribute("aria-label", "What you typed");
    return area;
  });
  return readBox([line, ...areas]);
}

// A box that stays in its panel until a person has read it.
export function readBox(parts) {
  const box = document.createElement("section");
  box.className = "kept";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button button--small";
  button.textContent = "Dismiss";
  button.addEventListener("click", () => keepPlace(box.parentElement, () => box.remove()));
  box.append(...parts, button);
  return box;
}

// Make `from` look like `to` with as few new elements as possible.
function morph(from, to) {
  let here = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const match = findMatch(here, wanted);
    if (match === null) {
      from.insertBefore(wanted, here);
      continue;
    }
    while (here !== match) {
      const gone = here;
      here = here.nextSibling;
      gone.remove();
    }
    here = match.nextSibling;
    morphOne(match, wanted);
  }
  while (here !== null) {
    const gone = here;
    here = here.nextSibling;
    gone.remove();
  }
}

function findMatch(start, wanted) {
  const key = keyOf(wanted);
  for (let node = start; node !== null; node = node.nextSibling) {
    if (node.nodeType === wanted.nodeType && node.nodeName === wanted.nodeName && keyOf(node) === key) return node;
    if (key === "" && node.nodeType === Node.ELEMENT_NODE) return null;
  }
  return null;
}

function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  return node.id || node.dataset.key || node.dataset.interrupt || node.getAttribute("name") || node.getAttribute("action") || "";
}

function morphOne(node, wanted) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.nodeValue !== wanted.nodeValue) node.nodeValue = wanted.nodeValue;
    return;
  }
  if (node.isEqualNode(wanted)) return;
  if (node.nodeName === "TIME" && node.dateTime === wanted.dateTime) return; // a script tells it
  const open = node instanceof HTMLDetailsElement && node.open;
  for (const { name } of [...node.attributes]) {
    if (!wanted.hasAttribute(name) && !(name === "open" && open)) node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  if (!(node instanceof HTMLTextAreaElement) || !isChanged(node)) morph(node, wanted);
}
