// On every page: how many decisions wait for this person, in the bar and in the tab's title; whether the site is halted;
// and the keys.

import { announce } from "./announce.js";
import { listen as listenToKeys } from "./keys.js";
import { Line } from "./line.js";
import { showPanel } from "./panels.js";
import { whenLetGo } from "./press.js";

const title = document.title.replace(/^\(\d+\) /, "");
let count = Number(document.querySelector("[data-inbox-count]")?.dataset.inboxCount ?? 0);

function show({ count: now, halt }) {
  showPanel("halted", halt);
  if (now > count) announce(now === 1 ? "One decision needs you." : `${now} decisions need you.`);
  count = now;
  document.title = now > 0 ? `(${now}) ${title}` : title;
  for (const badge of document.querySelectorAll("[data-inbox-count]")) {
    badge.dataset.inboxCount = String(now);
    badge.textContent = String(now);
  }
  document.dispatchEvent(new CustomEvent("inbox:count", { detail: now }));
}

const line = new Line("/ws/inbox/", {
  opened: () => {},
  heard: (message) => message.type === "inbox" && whenLetGo(() => show(message)),
  closed: () => {},
  tick: () => line.send({ type: "ping" }),
});

listenToKeys();
