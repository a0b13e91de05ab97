// A form is sent only where the site still knows who sends it: else its page would be left, and what was typed with it.
// Whoever has signed out meanwhile is told so beside what was written. Without this script the sign-in page says it.

import { untilLetGo } from "./press.js";

export const SIGNED_OUT =
  "You were signed out. Sign in in another tab, then send again. Your text stays here.";
const NOT_REACHED = "The site could not be reached, so nothing was sent. Send it again.";
const known = new WeakSet();
const asking = new WeakSet();

// A sign-in in another tab has made the page's own token void; the cookie has the one that counts.
export function token() {
  const begins = `${document.documentElement.dataset.csrfCookie}=`;
  const cookie = document.cookie.split("; ").find((one) => one.startsWith(begins));
  return cookie?.slice(begins.length) ?? document.querySelector("input[name=csrfmiddlewaretoken]")?.value ?? "";
}

// Say in the form why it was not sent.
export function complain(form, sentence) {
  let line = form.querySelector("[data-complaint]");
  if (line === null) {
    line = document.createElement("p");
    line.className = "note note--error";
    line.dataset.complaint = "";
    line.setAttribute("role", "alert");
    form.prepend(line);
  }
  line.textContent = sentence;
  line.scrollIntoView({ block: "nearest" });
}

// Ask before every form of the page's main part that the browser sends itself; forms that come later need nothing.
export function listen() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || known.has(form) || !form.matches("main form[method=post]:not([data-decision])")) return;
    event.preventDefault();
    if (!asking.has(form)) send(form, event.submitter);
  });
}

async function send(form, button) {
  asking.add(form);
  const fault = await whyNot();
  await untilLetGo();
  asking.delete(form);
  if (fault !== "") {
    complain(form, fault);
    return;
  }
  form.querySelector("[data-complaint]")?.remove();
  for (const field of form.elements) if (field.name === "csrfmiddlewaretoken") field.value = token();
  known.add(form);
  form.requestSubmit(button?.form === form ? button : null);
  known.delete(form);
}

async function whyNot() {
  try {
    const answer = await fetch("/signed-in/", { redirect: "manual", signal: AbortSignal.timeout(10000) });
    return answer.type === "opaqueredirect" ? SIGNED_OUT : "";
  } catch {
    return NOT_REACHED;
  }
}
