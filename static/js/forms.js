// Decisions are sent without leaving the page: Sending, then Recorded, then Resumed at row N; three different truths.
// Without this script the same forms are sent by the browser.

import { announce } from "./announce.js";
import { NOT_THERE, RESTORED } from "./over.js";
import { hold, keepPlace, keepWritten, questionKept, readBox, release } from "./panels.js";
import { untilLetGo, whenLetGo } from "./press.js";
import { complain, SIGNED_OUT, token } from "./sending.js";
import { isShielded, questionIn, questionOf, shieldNews } from "./shield.js";

const RESUMED_FOR_MS = 4000;
const NEXT_AFTER_MS = 1000;
const NOTHING_NEW_MS = 15000;
let newest = 0;
let sent = { first: null };
let resumed = null;

// Listen to every form of the page; forms that come later need nothing.
export function listen() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || !form.matches("form[data-decision]")) return;
    event.preventDefault();
    const card = form.closest("[data-card]");
    if (card === null || !isShielded(card)) send(form, event.submitter);
  });
}

// A row of the run's own is there: whatever was recorded has taken effect.
export function rowArrived(seq, kind) {
  if (kind === "decision" || seq <= newest) return;
  newest = seq;
  sent.first ??= { seq, kind };
  resumed?.(sent.first);
}

async function send(form, button) {
  if (form.dataset.state === "sending") return;
  const panel = form.closest("[data-panel]");
  const body = new FormData(form, button);
  // The site reads this field before the header; a sign-in in another tab has made the page's own void.
  body.set("csrfmiddlewaretoken", token());
  // The rows may be here before the site's answer is: the first of them is the one that it went on with.
  const news = { first: null };
  sent = news;
  if (panel !== null) hold(panel);
  const undo = showSending(form, button);
  let response, answer;
  try {
    response = await fetch(form.action, {
      method: "POST",
      body,
      headers: { "X-Requested-With": "fetch" },
    });
    answer = await response.text();
  } catch {
    await untilLetGo();
    undo();
    if (panel !== null) release(panel);
    complain(form, "The site could not be reached; the decision may not be recorded. Send it again: that is safe.");
    return;
  }
  await untilLetGo();
  const signedOut = new URL(response.url).pathname.startsWith("/sign-in");
  if (response.ok && !signedOut) {
    recorded(panel, news, response.url);
  } else if (response.status === 422 || response.status === 409) {
    refused(form, panel, answer);
  } else {
    undo();
    if (panel !== null) release(panel);
    complain(form, whatWentWrong(response.status, answer, signedOut));
  }
}

// The button says that it is at work; the function that is returned puts everything back.
function showSending(form, button) {
  form.dataset.state = "sending";
  const status = form.querySelector("[data-sending]");
  const label = [...(button?.childNodes ?? [])];
  // Not every browser does this for a tap: it is where the keyboard's place is.
  if (document.activeElement === document.body) button?.focus({ preventScroll: true });
  button?.replaceChildren("Sending…");
  button?.setAttribute("aria-disabled", "true");
  if (status !== null) status.textContent = "Sending…";
  return () => {
    delete form.dataset.state;
    button?.replaceChildren(...label);
    button?.removeAttribute("aria-disabled");
    if (status !== null) status.textContent = "";
  };
}

function recorded(panel, news, where) {
  announce("Recorded.");
  if (panel === null) {
    location.assign(where);
    return;
  }
  const outcome = document.createElement("p");
  outcome.className = "outcome";
  outcome.setAttribute("role", "status");
  outcome.textContent = "Recorded.";
  const decided = questionIn(panel);
  keepPlace(panel, () => panel.replaceChildren(outcome));
  outcome.scrollIntoView({ block: "nearest" });
  let left = false;
  const leave = () => {
    left = true;
    panel.removeEventListener("panel:kept", next);
    outcome.remove();
    release(panel);
    // Above the next question it stands until that is answered too.
    if (questionIn(panel) !== "") panel.prepend(outcome);
  };
  let timer = setTimeout(whenLetGo, NOTHING_NEW_MS, leave);
  let nextWaits = false;
  const within = (wait) => {
    if (left) return;
    clearTimeout(timer);
    timer = setTimeout(whenLetGo, wait, leave);
  };
  const next = () => {
    const question = questionKept(panel);
    if (nextWaits || question === "" || question === decided) return;
    nextWaits = true;
    within(NEXT_AFTER_MS);
  };
  panel.addEventListener("panel:kept", next);
  resumed = ({ seq, kind }) => {
    resumed = null;
    outcome.textContent = kind === "stop" ? "Recorded. The run has ended." : `Recorded. Resumed at step ${seq}.`;
    if (!nextWaits) within(RESUMED_FOR_MS);
  };
  if (news.first !== null) resumed(news.first);
  next();
}

// The site's answer is the card again, with what was typed, and what is wrong beside it; or who decided first.
function refused(form, panel, html) {
  const answer = new DOMParser().parseFromString(html, "text/html");
  const card = answer.querySelector("[data-card]");
  const written = answer.querySelector(".kept");
  const here = form.closest("[data-card]") ?? form;
  const before = questionOf(here);
  const news = [card, written].filter((part) => part !== null).map((part) => document.adoptNode(part));
  const fault = card?.querySelector("[aria-invalid=true]") ?? card?.querySelector("[role=alert]");
  if (panel === null) {
    here.replaceWith(...news);
  } else {
    keepPlace(panel, () => here.replaceWith(...news));
    shieldNews(panel, before);
    if (card === null || card.matches(".card--pending")) keepWritten(panel);
    else keepConflict(panel, fault, written);
  }
  if (fault === null || fault === undefined) return;
  if (!fault.matches("input, textarea, select, button")) fault.tabIndex = -1;
  fault.focus();
}

// Who decided first, and what was typed, stay above the next question until they have been read.
function keepConflict(panel, fault, written) {
  const box = readBox([fault, written].filter((part) => part !== null));
  box.dataset.conflict = "";
  panel.prepend(box);
  release(panel);
}

function whatWentWrong(status, html, signedOut) {
  if (signedOut) return SIGNED_OUT;
  if (status === 404) return NOT_THERE;
  if (status === 412) return RESTORED;
  if (status !== 403) return `The site answered with an error (${status}). Send it again: that is safe.`;
  const page = new DOMParser().parseFromString(html, "text/html");
  if (page.querySelector("[data-token-refused]") !== null) {
    return "Request refused: this browser is not signed in. " +
      "Sign in in another tab, then send again. Your text stays here.";
  }
  const said = page.querySelector("main")?.textContent.trim().replace(/\s+/g, " ").slice(0, 300);
  return said || "You may not decide this.";
}
