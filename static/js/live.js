// The run page, live: rows are appended as they are committed, the small panels are swapped, model text streams in.
//
// The page is complete without it. Hooks: main[data-run], [data-rows], [data-panel], [data-delta], [data-live-state],
// [data-new-rows]. The model of what the page has is timeline.js; the socket is line.js.

import { announce } from "./announce.js";
import { listen as listenToForms, rowArrived } from "./forms.js";
import { ANOTHER_LIFE, GONE, Line, SIGNED_OUT } from "./line.js";
import { closePage, NOT_THERE, reopenPage, RESTORED } from "./over.js";
import { holdsWriting, settlePanels, showPanels } from "./panels.js";
import { whenLetGo } from "./press.js";
import { readable } from "./reply.js";
import { Timeline } from "./timeline.js";

const POLL_AFTER_MS = 5000;
const POLL_EVERY_MS = 5000;
const FETCH_AGAIN_MS = 3000;
const ROWS_A_FRAME = 25;
const ROWS_KEPT = 600;
const ROWS_AT_MOST = 700;
const TAIL_PX = 80;
const DELTA_STALE_MS = 20000;
const HIDDEN_FRAME_MS = 250;
const ACK_MS = 200;
const ACK_MESSAGES = 8;
const FINISHED = ["succeeded", "stopped", "failed", "cancelled"];

const main = document.querySelector("main[data-run]");

function follow(run) {
  const list = document.querySelector("[data-rows]");
  const page = new Page(list, main.querySelector("[data-new-rows]"));
  let refused = "";
  let downSince = performance.now();
  let polling = false;
  let wanted = false;
  let polledAt = -Infinity;
  let heard = 0;
  let ackTimer = 0;

  const last = Number(list.lastElementChild?.dataset.seq ?? main.dataset.head ?? 0);
  const timeline = new Timeline(last, main.dataset.life, {
    send: (message) => line.send(message),
    paint: (news) =>
      whenLetGo(() => {
        if (news.rows) page.append(news.rows);
        if (news.panels) {
          showPanels(news.panels);
          page.look();
        }
        if (news.delta) page.write(news.delta);
        acknowledge(1);
      }),
  });
  page.painted = () => acknowledge(1);

  const line = new Line(`/ws/runs/${run}/`, {
    opened: () => {
      downSince = null;
      timeline.opened();
    },
    heard: (message) => {
      if (message.type === "fetch") fetchInstead();
      else timeline.heard(message);
      refused = "";
      whenLetGo(() => reopenPage(main));
      tell();
    },
    closed: (code) => {
      downSince ??= performance.now();
      if (code === SIGNED_OUT) refused = "signed out";
      if (code === GONE) refused = notThere();
      if (code === ANOTHER_LIFE) refused = begunAnew();
      tell();
    },
    tick: () => timeline.tick(),
  });

  listenToForms();
  setInterval(poll, POLL_EVERY_MS);
  tell();

  // The site sends a page that does not keep up less: tell it how far the page is, a few times a second.
  function acknowledge(messages) {
    heard += messages;
    if (heard < ACK_MESSAGES) {
      ackTimer ||= setTimeout(acknowledge, ACK_MS, ACK_MESSAGES);
      return;
    }
    clearTimeout(ackTimer);
    heard = ackTimer = 0;
    line.send({ type: "ack", seq: page.waiting.length > 0 ? page.waiting[0].seq - 1 : timeline.last });
  }

  // The same catch-up without a socket: for networks that let none through, and while the site restarts.
  async function poll() {
    if (downSince === null || performance.now() - downSince < POLL_AFTER_MS || polling || document.hidden) return;
    polling = true;
    try {
      await pollAll();
    } catch {
      // the next one, or the socket, will do
    } finally {
      polling = false;
      tell();
    }
  }

  // What is too large for a message is fetched.
  async function fetchInstead() {
    wanted = true;
    if (polling) return;
    polling = true;
    try {
      while (wanted && refused === "") {
        wanted = false;
        await pollAll();
      }
    } catch {
      wanted = false;
      setTimeout(() => line.open && fetchInstead(), FETCH_AGAIN_MS);
    } finally {
      polling = false;
      tell();
    }
  }

  async function pollAll() {
    do await pollOnce();
    while (timeline.behind > 0 && refused === "");
  }

  async function pollOnce() {
    const before = timeline.last;
    const response = await fetch(`/runs/${run}/rows/?${new URLSearchParams({ after: before, life: timeline.life })}`, {
      headers: { "X-Requested-With": "fetch" },
      signal: AbortSignal.timeout(10000),
    });
    if (response.redirected) refused = "signed out";
    if (response.status === 404) refused = notThere();
    if (response.status === 412) refused = begunAnew();
    if (refused !== "" || !response.ok) throw new Error(refused || String(response.status));
    const found = await response.json();
    timeline.heard({ ...found, type: "rows" });
    timeline.heard({ ...found, type: "panels" });
    polledAt = performance.now();
    if (timeline.behind > 0 && timeline.last === before) throw new Error("no row came");
  }

  // The truth about how live the page is.
  function tell() {
    const finished = FINISHED.includes(timeline.status);
    if (refused) indicate("off", refused);
    else if (!line.open && performance.now() - polledAt < 2 * POLL_EVERY_MS) indicate("reconnecting", "every few seconds");
    else if (!line.open) indicate("reconnecting", "reconnecting");
    else if (!timeline.greeted) indicate("reconnecting", "connecting");
    else if (timeline.behind > 0) indicate("catching-up", `catching up (${timeline.behind})`);
    else if (finished) indicate("ended", "ended");
    else indicate("live", "live");
    announceStatus(timeline.status);
  }
}

// The site was restored after this page was painted, which is then of another life: it is loaded again, without the row
// that was chosen, which may not be there. Where somebody has written in it, they are told to. What to say meanwhile.
function begunAnew() {
  whenLetGo(() => {
    if (!holdsWriting()) location.replace(location.pathname);
    else closePage(main, RESTORED);
  });
  return "from before a restore";
}

// The run was removed, or may not be seen any more. What to say meanwhile.
function notThere() {
  whenLetGo(() => closePage(main, NOT_THERE));
  return "no longer there";
}

function indicate(state, word) {
  const light = document.querySelector("[data-live-state]");
  if (light === null || (light.dataset.liveState === state && light.dataset.word === word)) return;
  light.dataset.liveState = state;
  light.dataset.word = word;
  light.querySelector("[data-live-word]").textContent = word;
}

let announcedStatus = "";

function announceStatus(status) {
  if (status === announcedStatus || status === "") return;
  const first = announcedStatus === "";
  announcedStatus = status;
  if (first) return;
  announce(status === "waiting" ? "The run is waiting for a decision." : `The run is ${status}.`);
}

// The list of rows, and where the reader is in it.
class Page {
  constructor(list, button) {
    this.list = list;
    this.button = button;
    this.waiting = [];
    this.frame = 0;
    this.timer = 0;
    this.unseen = 0;
    this.painted = () => {};
    this.deltaAt = 0;
    button?.addEventListener("click", () => this.toTail());
    addEventListener("scroll", () => whenLetGo(() => this.look()), { passive: true, capture: true });
    setInterval(whenLetGo, 5000, () => performance.now() - this.deltaAt > DELTA_STALE_MS && this.write({ text: "" }));
  }

  append(rows) {
    this.waiting.push(...rows);
    this.write({ text: "" });
    if (this.frame !== 0) return;
    // A page in the background gets no frames.
    this.frame = requestAnimationFrame(() => this.comeToPaint());
    this.timer = setTimeout(() => this.comeToPaint(), HIDDEN_FRAME_MS);
  }

  comeToPaint() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    whenLetGo(() => this.paint());
  }

  // At most so many rows a frame, so that the page answers while a long history comes in.
  paint() {
    this.frame = 0;
    const rows = this.waiting.splice(0, ROWS_A_FRAME);
    const follows = this.follows();
    const piece = document.createElement("template");
    piece.innerHTML = rows.map((row) => row.html).join("\n");
    const added = [...piece.content.children];
    this.list.append(piece.content);
    for (const row of added) if (row.dataset.rewindTo !== undefined) this.dim(Number(row.dataset.rewindTo), Number(row.dataset.seq));
    if (follows) {
      this.trim();
      if (this.scrollsToFollow()) this.toTail();
    } else {
      // Rows that this detail does not show are no news to scroll to.
      this.unseen += added.filter((row) => row.getClientRects().length > 0).length;
      this.tellUnseen();
      this.look();
    }
    for (const row of added) rowArrived(Number(row.dataset.seq), row.dataset.kind);
    announce(added.length === 1 ? `Step ${rows[0].seq}: ${titleOf(added[0])}` : `${added.length} new steps.`);
    settlePanels();
    if (this.waiting.length > 0) this.append([]);
    this.painted();
  }

  // The rows between a rewind and the row that it went back to are not part of the run's way any more.
  dim(to, seq) {
    for (const row of this.list.children) {
      if (to < Number(row.dataset.seq) && Number(row.dataset.seq) < seq) row.dataset.live = "false";
    }
  }

  // A page that is open for days keeps the newest rows; the older ones are a click away. They go many at a time: each
  // time all that stay have to be laid out anew.
  trim() {
    if (this.list.childElementCount <= ROWS_AT_MOST) return;
    while (this.list.childElementCount > ROWS_KEPT && this.list.firstElementChild.dataset.selected !== "true") {
      this.list.firstElementChild.remove();
    }
    this.list.dispatchEvent(new CustomEvent("rows:trimmed", { bubbles: true }));
  }

  // What the model has written so far. It is not kept: the row replaces it.
  write({ node, text }) {
    const box = document.querySelector("[data-delta]");
    if (box === null || (text === "" && box.hidden)) return;
    const follows = this.follows();
    box.hidden = text === "";
    box.querySelector("[data-delta-text]").textContent = readable(text);
    if (node) box.querySelector("[data-delta-node]").textContent = node;
    this.deltaAt = performance.now();
    if (text !== "" && follows && this.scrollsToFollow()) this.toTail();
  }

  scroller() {
    for (let box = this.list; box !== null && box !== document.body; box = box.parentElement) {
      if (/auto|scroll/.test(getComputedStyle(box).overflowY) && box.scrollHeight > box.clientHeight) return box;
    }
    return document.scrollingElement;
  }

  // A reader who is at the end is taken along, but not away from what was recorded of their own decision.
  follows() {
    const outcome = document.querySelector("[data-panel] > .outcome")?.getBoundingClientRect();
    const top = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop);
    return this.atTail() && !(outcome !== undefined && top < outcome.bottom && outcome.top < innerHeight);
  }

  // Whether the end of the rows is in view.
  atTail() {
    const box = this.scroller();
    const bottom = box === document.scrollingElement ? innerHeight : box.getBoundingClientRect().bottom;
    return this.end() - bottom < TAIL_PX;
  }

  end() {
    const below = document.querySelector("[data-delta]:not([hidden])") ?? document.querySelector("[data-panel=doing] > *");
    return (below ?? this.list).getBoundingClientRect().bottom;
  }

  // A page whose rows all fit needs no scrolling; nor is a reader at the very top of it taken away.
  scrollsToFollow() {
    const box = this.scroller();
    const bottom = box === document.scrollingElement ? innerHeight : box.getBoundingClientRect().bottom;
    return this.end() > bottom;
  }

  toTail() {
    const box = this.scroller();
    const bottom = box === document.scrollingElement ? innerHeight : box.getBoundingClientRect().bottom;
    box.scrollBy({ top: this.end() - bottom + 24, behavior: "instant" });
    this.seen();
  }

  // A card that went may have brought the end into view.
  look() {
    if (this.unseen > 0 && this.atTail()) this.seen();
  }

  seen() {
    this.unseen = 0;
    this.tellUnseen();
  }

  tellUnseen() {
    if (this.button === null) return;
    this.button.hidden = this.unseen === 0;
    this.button.textContent = this.unseen === 1 ? "1 new step" : `${this.unseen} new steps`;
  }
}

function titleOf(row) {
  return (row.querySelector(".row__what, a")?.textContent ?? "").trim().replace(/\s+/g, " ").slice(0, 120);
}

if (main !== null) follow(main.dataset.run);
