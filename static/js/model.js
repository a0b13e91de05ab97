// While a worker tests the model, look at the page again and again, and put the new state of the test in place.

import { whenLetGo } from "./press.js";

const EVERY_MS = 1500;

async function look() {
  const before = document.querySelector("[data-test][data-under-way]");
  if (!before) return;
  try {
    const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const after = page.querySelector("[data-test]");
    if (after && after.innerHTML !== before.innerHTML) whenLetGo(() => before.replaceWith(after));
  } catch {
    // the site is away for a moment: the next look tries again
  }
  setTimeout(look, EVERY_MS);
}

setTimeout(look, EVERY_MS);
