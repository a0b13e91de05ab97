// On every page: how many decisions wait for this person, in the bar and in the tab's title; whether the site is halted;
// and the keys. Forms ask first whether they can be sent.

import { announce } from "./announce.js";
import { listen as listenToKeys } from "./keys.js";
import { Line, SIGNED_OUT } from "./line.js";
import { showPanel } from "./panels.js";
import { whenLetGo } from "./press.js";
import { listen as listenToSending } from "./sending.js";

const title = document.title.replace(/^\(\d+\) /, "");
let count = Number(document.querySelector("[data-inbox-count]")?.dataset.inboxCount ?? 0);

function show({ count: now, halt }) {
  showPanel("halted", halt);
  if (now > count) announce(now === 1 ? "1 decision is waiting for you." : `${now} decisions are waiting for you.`);
  count = now;
  document.title = now > 0 ? `(${now}) ${title}` : title;
  for (const badge of document.querySelectorAll("[data-inbox-count]")) {
    badge.dataset.inboxCount = String(now);
    badge.textContent = String(now);
  }
  document.dispatchEvent(new CustomEvent("inbox:count", { detail: now }));
}

const signedOut = document.querySelector("[data-signed-out]");
let asked = false;

function tellSignedOut(isSo) {
  whenLetGo(() => {
    if (signedOut === null || signedOut.hidden === !isSo) return;
    signedOut.hidden = !isSo;
    if (isSo) announce("You were signed out.");
  });
}

// The line of somebody who is signed out is not even opened: as soon as the site answers again, it is asked once.
async function askWhetherSignedOut() {
  if (signedOut === null || asked) return;
  try {
    const answer = await fetch(location.href, { redirect: "manual", signal: AbortSignal.timeout(10000) });
    asked = true;
    tellSignedOut(answer.type === "opaqueredirect");
  } catch {
    // the next try of the line asks again
  }
}

const line = new Line("/ws/inbox/", {
  opened: () => {
    asked = false;
    tellSignedOut(false);
  },
  heard: (message) => message.type === "inbox" && whenLetGo(() => show(message)),
  closed: (code) => (code === SIGNED_OUT ? tellSignedOut(true) : askWhetherSignedOut()),
  tick: () => line.send({ type: "ping" }),
});

listenToKeys();
listenToSending();
