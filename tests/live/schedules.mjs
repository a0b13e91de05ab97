// Random schedules for the page's model (static/js/timeline.js): messages are lost, repeated, late and out of order,
// the line is cut, polling fails. When quiet returns, the page must have every row once and in order.
//
// node schedules.mjs SCHEDULES SEED [without-head]

import { readFileSync } from "node:fs";

// Read as a module whatever this version of node makes of a name that ends in .js.
const source = readFileSync(new URL("../../static/js/timeline.js", import.meta.url));
const { Timeline } = await import(`data:text/javascript;base64,${source.toString("base64")}`);

const [schedules, seed, mode] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const EVENTS = 200;
const PAGE = 7;

// mulberry32: small, and the same everywhere.
function dice(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

class World {
  constructor(chance) {
    this.chance = chance;
    this.rough = true;
    this.head = 0;
    this.sent = null; // what the server believes this page has; null until hello
    this.open = false;
    this.toPage = [];
    this.toServer = [];
    this.painted = [];
    this.timeline = new Timeline(0, "", {
      send: (message) => this.open && this.post(this.toServer, message),
      paint: ({ rows }) => rows && this.painted.push(...rows.map((row) => row.seq)),
    });
  }

  post(queue, message) {
    if (this.rough && this.chance() < 0.25) return;
    queue.push(message);
    if (this.rough && this.chance() < 0.1) queue.push(message);
  }

  take(queue) {
    if (queue.length === 0) return undefined;
    const index = this.rough && this.chance() < 0.3 ? Math.floor(this.chance() * queue.length) : 0;
    return queue.splice(index, 1)[0];
  }

  about(type) {
    return mode === "without-head" ? { type } : { type, head: this.head, status: "running" };
  }

  rows(after) {
    const rows = [];
    for (let seq = after + 1; seq <= this.head && rows.length < PAGE; seq += 1) rows.push({ seq, html: "" });
    return { ...this.about("rows"), rows };
  }

  connect() {
    this.open = true;
    this.sent = null;
    this.timeline.opened();
  }

  cut() {
    this.open = false;
    if (this.rough && this.chance() < 0.5) this.toPage.length = 0;
    this.toServer.length = 0;
  }

  serve() {
    const message = this.take(this.toServer);
    if (!this.open) return;
    if (message?.type === "hello") {
      this.sent = message.after;
      this.post(this.toPage, this.about("hello"));
    } else if (message?.type === "ping") {
      this.post(this.toPage, this.about("pong"));
    }
    if (this.sent !== null && this.sent < this.head) {
      const page = this.rows(this.sent);
      this.sent = page.rows.at(-1).seq;
      this.post(this.toPage, page);
    }
  }

  deliver() {
    const message = this.take(this.toPage);
    if (message !== undefined) this.timeline.heard(message);
  }

  poll() {
    if (this.chance() < 0.2) return;
    this.timeline.heard(this.rows(this.timeline.last));
  }

  event() {
    const what = this.chance();
    if (what < 0.3) this.head += 1 + Math.floor(this.chance() * 3);
    else if (what < 0.55) this.serve();
    else if (what < 0.8) this.deliver();
    else if (what < 0.88) this.open ? this.timeline.tick() : this.poll();
    else if (what < 0.94) this.open ? this.cut() : this.connect();
    else if (!this.open) this.connect();
  }

  settle() {
    this.rough = false;
    if (!this.open) this.connect();
    for (let round = 0; round < 20 + this.head; round += 1) {
      if (round % 10 === 0) this.timeline.tick();
      this.serve();
      this.deliver();
      this.deliver();
    }
    while (this.toPage.length > 0) this.deliver();
  }

  get right() {
    return this.painted.length === this.head && this.painted.every((seq, index) => seq === index + 1);
  }
}

let wrong = 0;
for (let number = 0; number < schedules; number += 1) {
  const world = new World(dice(seed * 100003 + number));
  for (let event = 0; event < EVENTS; event += 1) world.event();
  world.settle();
  if (!world.right) {
    wrong += 1;
    if (wrong === 1) {
      console.error(`schedule ${number} of seed ${seed}: head ${world.head}, painted ${world.painted.join(" ")}`);
    }
  }
}
console.log(wrong);
