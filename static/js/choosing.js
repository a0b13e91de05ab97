// A form with boxes to tick: its button says how many are ticked.

for (const form of document.querySelectorAll("[data-choosing]")) {
  const place = form.querySelector("[data-chosen]");
  const count = () => {
    const ticked = form.querySelectorAll("input[type=checkbox]:checked").length;
    if (place !== null) place.textContent = ticked === 1 ? "this run" : `these ${ticked} runs`;
  };
  form.addEventListener("change", count);
  window.addEventListener("pageshow", count); // a browser may bring back what was ticked
  count();
}
