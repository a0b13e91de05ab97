// The launch form: the script's field is there where a script is to be played, a machine's settings where it is chosen.

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

if (form !== null) {
  form.addEventListener("change", show);
  show();
}
