// Two runs side by side: the keys go from one place that differs to the next, beyond the page's end to the next page.

const NEXT = ["n", "j"];
const BEFORE = ["p", "k"];

const places = () => [...document.querySelectorAll("[data-difference]")];

function here() {
  const chosen = document.activeElement?.closest("[data-difference]");
  return chosen === null || chosen === undefined ? -1 : places().indexOf(chosen);
}

function go(by) {
  const all = places();
  if (all.length === 0) return false;
  const at = here();
  const to = at < 0 ? nearest(all, by) : at + by;
  if (to < 0 || to >= all.length) return turn(to < 0 ? "prev" : "next");
  show(all[to]);
  return true;
}

// With none chosen: the first one that begins in view or below it; backwards the one above.
function nearest(all, by) {
  const below = all.findIndex((place) => place.getBoundingClientRect().top >= 0);
  if (by > 0) return below < 0 ? all.length - 1 : below;
  return below < 0 ? all.length - 1 : Math.max(0, below - 1);
}

function show(place) {
  place.focus({ preventScroll: true });
  place.scrollIntoView({ block: "start" });
}

function turn(way) {
  const link = document.querySelector(`#places a[rel=${way}]`);
  if (link !== null) location.assign(link.href);
  return true;
}

// In the capture phase, before the keys of every page: here n is the next difference.
document.addEventListener(
  "keydown",
  (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input, textarea, select, [contenteditable], dialog")) return;
    const by = NEXT.includes(event.key) ? 1 : BEFORE.includes(event.key) ? -1 : 0;
    if (by !== 0 && go(by)) event.preventDefault();
  },
  { capture: true },
);

document.querySelector("[data-first-difference]")?.addEventListener("click", (event) => {
  const [first] = places();
  if (first === undefined) return;
  event.preventDefault();
  show(first);
});
