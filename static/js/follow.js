// The lists of runs and of questions follow what happens: they are asked for anew every few seconds, and at once when the
// number of questions changes. What is the same stays the same element, and nothing moves under a pressed pointer.

import { showPanel } from "./panels.js";
import { whenLetGo } from "./press.js";

const EVERY_MS = 4000;
const LONGEST_MS = 10000;
let asking = false;

async function follow() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    const answer = await fetch(location.href, { redirect: "error", signal: AbortSignal.timeout(LONGEST_MS) });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const list = page.querySelector("[data-panel=list]");
    if (list !== null) whenLetGo(() => showPanel("list", list.innerHTML));
  } catch {
    // the site is away, or the person is signed out: the bar says so
  } finally {
    asking = false;
  }
}

setInterval(follow, EVERY_MS);
document.addEventListener("inbox:count", follow);
document.addEventListener("visibilitychange", follow);
