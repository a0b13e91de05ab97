// A question that arrives while the page is open can't be decided at once: a click that was meant for what stood there
// before must not decide something that nobody has seen. What the browser painted first needs no shield.

import { whenLetGo } from "./press.js";

const SHIELD_MS = 800;
const SHIELDED = new Map();

// Which question is in there: interrupt and revision; empty where there is none.
export function questionIn(root) {
  const card = root.querySelector("[data-interrupt]");
  return card === null ? "" : questionOf(card);
}

// Which one a card asks; empty where it is no card.
export function questionOf({ dataset }) {
  return dataset.interrupt === undefined ? "" : `${dataset.interrupt} ${dataset.revision}`;
}

// To be called after every swap: `before` is the question that stood there.
export function shieldNews(root, before) {
  const now = questionIn(root);
  if (now !== "" && now !== before) {
    SHIELDED.set(now, performance.now() + SHIELD_MS);
    setTimeout(whenLetGo, SHIELD_MS, () => lift(now));
  }
  // A swap of the same question has put the buttons back as the site painted them.
  for (const card of root.querySelectorAll("[data-card]")) if (isShielded(card)) cover(card);
}

// Whether the card arrived just now.
export function isShielded(card) {
  return performance.now() < (SHIELDED.get(questionOf(card)) ?? -Infinity);
}

function cover(card) {
  card.dataset.arriving = "";
  for (const button of card.querySelectorAll("button[name=verdict]:not([disabled])")) {
    button.disabled = true;
    button.dataset.shielded = "";
  }
}

function lift(name) {
  SHIELDED.delete(name);
  for (const card of document.querySelectorAll("[data-card][data-arriving]")) {
    if (isShielded(card)) continue;
    delete card.dataset.arriving;
    for (const button of card.querySelectorAll("[data-shielded]")) {
      button.disabled = false;
      delete button.dataset.shielded;
    }
  }
}
