// The launch form: the script's field is there where a script is to be played, a machine's settings where it is chosen,
// and rows can be added.

const form = document.querySelector("[data-launch]");

function show() {
  const script = form.querySelector("[data-script]");
  script.dataset.closed = String(form.elements.model.value !== "script");
  const machine = form.elements.machine.value;
  for (const field of form.querySelectorAll("[data-machines]")) {
    field.hidden = machine !== "" && !field.dataset.machines.split(" ").includes(machine);
    for (const input of field.querySelectorAll("input, select, textarea")) input.disabled = field.hidden;
  }
}

// Another row is a copy of the last one, with nothing in it and a number of its own.
function addSet(button) {
  const sets = form.querySelector(`[data-sets="${button.dataset.addSet}"]`);
  const last = sets.lastElementChild;
  const number = sets.childElementCount;
  const copy = last.cloneNode(true);
  for (const element of copy.querySelectorAll("[name], [for], legend")) {
    for (const attribute of ["name", "id", "for"]) {
      const value = element.getAttribute(attribute);
      if (value) element.setAttribute(attribute, value.replace(/-\d+-/, `-${number}-`));
    }
    element.removeAttribute("aria-invalid");
    element.removeAttribute("aria-describedby");
    if (element instanceof HTMLInputElement) element.value = "";
    if (element instanceof HTMLSelectElement) element.selectedIndex = 0;
    if (element.nodeName === "LEGEND") element.textContent = element.textContent.replace(/\d+/, String(number + 1));
  }
  sets.append(copy);
  copy.querySelector("input")?.focus();
}

if (form !== null) {
  form.addEventListener("change", show);
  for (const button of form.querySelectorAll("[data-add-set]")) {
    button.hidden = false;
    button.addEventListener("click", () => addSet(button));
  }
  show();
}
