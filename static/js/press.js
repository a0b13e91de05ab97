// What is pressed stays what and where it is until it is let go. Whatever changes the page by itself (news, answers of
// the site, timers, scrolling) asks here: else something other, or nothing, would be under the pointer at its release.

const CLICK_COMES_WITHIN_MS = 100;
const LONGEST_MS = 5000; // a pointer that was let go outside the window is not heard of
const waiting = [];
let pressed = false;
let timer = 0;

addEventListener("pointerdown", press, { capture: true, passive: true });
for (const end of ["pointerup", "pointercancel"]) {
  addEventListener(end, () => letGoAfter(CLICK_COMES_WITHIN_MS), { capture: true, passive: true });
}

// Change the page now, or, while something is pressed, as soon as it is let go; in the order in which it was asked for.
export function whenLetGo(change) {
  if (pressed || waiting.length > 0) waiting.push(change);
  else change();
}

// The same, to wait for.
export function untilLetGo() {
  return new Promise(whenLetGo);
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
