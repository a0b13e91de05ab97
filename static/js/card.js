// The card while it is filled in: what was changed, told beside the field and on the button; and whether a text that is
// longer than its box was scrolled to its end, before the box that says so can be ticked. Cards that come later need
// nothing. Without this script the site asks once more, and shows the text whole.

const seen = new WeakSet();
const END_PX = 8;

document.addEventListener("input", (event) => {
  const card = event.target.closest("[data-card]");
  if (card !== null) count(card);
});
if (matchMedia("(width < 40rem)").matches) document.querySelector("#card-context")?.removeAttribute("open");
for (const card of document.querySelectorAll("[data-card]")) count(card);

document.addEventListener("scroll", ({ target }) => target instanceof Element && target.matches("[data-long]") && look(target), {
  capture: true,
  passive: true,
});
document.addEventListener("click", (event) => {
  const tick = event.target;
  if (!(tick instanceof Element) || !tick.matches("[data-after-the-end]") || !tick.checked) return;
  const boxes = [...tick.form.querySelectorAll("[data-long]")];
  const unread = boxes.find((box) => !look(box));
  const word = tick.form.querySelector("[data-not-yet]");
  if (word !== null) word.hidden = unread === undefined;
  if (unread === undefined) return;
  event.preventDefault();
  unread.focus({ preventScroll: true });
  unread.scrollIntoView({ block: "center" });
});

// Whether the end of a long text has been in sight.
function look(box) {
  if (box.scrollTop + box.clientHeight >= box.scrollHeight - END_PX && !seen.has(box)) {
    seen.add(box);
    const word = box.parentElement.querySelector(".longer");
    if (word !== null) word.dataset.seen = "";
  }
  return seen.has(box);
}

function count(card) {
  let changed = 0;
  for (const field of card.querySelectorAll("[data-argument]")) {
    const input = field.querySelector("[data-was]");
    if (input === null) continue;
    const differs = valueOf(input) !== input.dataset.was.replaceAll("\r\n", "\n");
    field.querySelector("[data-diff]").hidden = !differs;
    if (differs) changed += 1;
  }
  const word = card.querySelector("[data-approve-word]");
  if (word === null || changed + Number(word.dataset.changed ?? 0) === 0) return;
  word.dataset.plain ??= word.textContent;
  word.dataset.changed = String(changed);
  word.textContent = changed === 0 ? word.dataset.plain : `Approve with ${changed} change${changed === 1 ? "" : "s"}`;
}

function valueOf(input) {
  return input.type === "checkbox" ? String(input.checked) : input.value.replaceAll("\r\n", "\n");
}
