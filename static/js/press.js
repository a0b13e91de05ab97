// What is pressed stays where it is until it is let go: news that came in between would move something else, or nothing,
// under the pointer, and the click would be lost.

const CLICK_COMES_WITHIN_MS = 100;
const LONGEST_MS = 5000; // a pointer that was let go outside the window is not heard of
const waiting = [];
let pressed = false;
let timer = 0;

export function listen() {
  addEventListener("pointerdown", press, { capture: true, passive: true });
  for (const end of ["pointerup", "pointercancel"]) {
    addEventListener(end, () => letGoAfter(CLICK_COMES_WITHIN_MS), { capture: true, passive: true });
  }
}

// Change the page now, or, while something is pressed, as soon as it is let go; in the order in which it was asked for.
export function whenLetGo(change) {
  if (pressed || waiting.length > 0) waiting.push(change);
  else change();
}

function press() {
  pressed = true;
  letGoAfter(LONGEST_MS);
}

function letGoAfter(wait) {
  clearTimeout(timer);
  timer = setTimeout(letGo, wait);
}

function letGo() {
  pressed = false;
  for (const change of waiting.splice(0)) change();
}
