// The card while it is filled in: what was changed, told beside the field and on the button.

document.addEventListener("input", (event) => {
  const card = event.target.closest("[data-card]");
  if (card !== null) count(card);
});
if (matchMedia("(width < 40rem)").matches) document.querySelector("#card-context")?.removeAttribute("open");
for (const card of document.querySelectorAll("[data-card]")) count(card);

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
