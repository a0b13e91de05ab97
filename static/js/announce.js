// One polite live region for the whole page: at most one sentence every few seconds, the newest one.

const EVERY_MS = 4000;
let region = null;
let spokenAt = -Infinity;
let waiting = "";
let timer = 0;

export function announce(sentence) {
  waiting = sentence;
  clearTimeout(timer);
  timer = setTimeout(speak, Math.max(100, spokenAt + EVERY_MS - performance.now()));
}

function speak() {
  region ??= document.querySelector("[data-announce]");
  if (region === null) return;
  spokenAt = performance.now();
  region.textContent = waiting;
}
