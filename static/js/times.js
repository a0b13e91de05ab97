// Times as a reader counts them: "3 min ago", "12:41 left". The exact time stays as the title.

import { whenLetGo } from "./press.js";

const EVERY_MS = 1000;

function show() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[data-ago], time[data-countdown], time[data-since], time[data-clock]")) {
    const then = Date.parse(time.dateTime);
    if (Number.isNaN(then)) continue;
    if (time.title === "") time.title = new Date(then).toLocaleString();
    const text = told(time.dataset, then, now);
    if (time.textContent !== text) time.textContent = text;
  }
}

function told(how, then, now) {
  if (how.since !== undefined) return passed(now - then);
  if (how.clock !== undefined) return clock(then, { second: "2-digit" });
  return how.countdown === undefined ? ago(now - then) : `${clock(then)} (${left(then - now)})`;
}

// How long something takes already, to the second.
function passed(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  const two = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(s / 3600);
  return `${hours > 0 ? `${hours}:${two(Math.floor(s / 60) % 60)}` : Math.floor(s / 60)}:${two(s % 60)}`;
}

// The time of day; with the date where it is another day.
function clock(then, finer = {}) {
  const date = new Date(then);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...finer });
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.toLocaleDateString([], { day: "numeric", month: "short" })}, ${time}`;
}

function ago(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 10) return "just now";
  if (s < 60) return `${s - (s % 10)} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} days ago`;
}

function left(ms) {
  const s = Math.round(ms / 1000);
  if (s <= 0) return "no time left";
  if (s < 3600) return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")} left`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min left`;
  return `${Math.floor(s / 86400)} days left`;
}

show();
setInterval(() => document.hidden || whenLetGo(show), EVERY_MS);
document.addEventListener("visibilitychange", () => document.hidden || show());
