// The model of a page that follows a run: which rows it has, and what it must ask for. No DOM, no clock, no network.
//
// Rows are painted in order and once, whatever is lost, repeated or reordered on the way: a row that is not the next
// one is kept aside, and the page says again what it has (`hello`). The head that every answer names tells it when
// the tail is missing.

const KEPT_ASIDE = 1000;

export class Timeline {
  // `last` is the newest row painted, in that `life` of the site: after a restore nothing that was painted may be true.
  // `send` puts a message on the line, `paint` shows rows and panels.
  constructor(last, life, { send, paint }) {
    this.last = last;
    this.life = life;
    this.head = last;
    this.status = "";
    this.aside = new Map();
    this.send = send;
    this.paint = paint;
    this.greeted = false;
    this.asked = false;
    this.stale = 0;
  }

  // How many rows are known to be missing.
  get behind() {
    return Math.max(0, this.head - this.last);
  }

  // The line is open: say what the page has.
  opened() {
    this.greeted = false;
    this.greet();
  }

  greet() {
    this.asked = true;
    this.stale = 0;
    this.send({ type: "hello", after: this.last, life: this.life });
  }

  // Called every few seconds: is the line alive, and is anything missing that should have come by now?
  tick() {
    if (!this.greeted || (this.behind > 0 && this.stale > 0)) {
      this.greet();
      return;
    }
    if (this.behind > 0) this.stale += 1;
    this.send({ type: "ping" });
  }

  // A message came over the line, or by polling.
  heard(message) {
    switch (message.type) {
      case "hello":
        this.greeted = true;
        this.learn(message);
        break;
      case "pong":
        this.learn(message);
        break;
      case "rows":
        this.learn(message);
        this.take(message.rows);
        break;
      case "panels":
        this.learn(message);
        this.paint({ panels: message.panels });
        break;
      case "delta":
        this.paint({ delta: message });
        break;
    }
  }

  learn({ head, status }) {
    if (Number.isInteger(head) && head > this.head) this.head = head;
    if (status) this.status = status;
  }

  take(rows) {
    for (const row of rows) {
      if (row.seq > this.last && this.aside.size < KEPT_ASIDE) this.aside.set(row.seq, row);
      if (row.seq > this.head) this.head = row.seq;
    }
    const next = [];
    while (this.aside.has(this.last + 1)) {
      this.last += 1;
      next.push(this.aside.get(this.last));
      this.aside.delete(this.last);
    }
    if (next.length > 0) {
      this.asked = false;
      this.stale = 0;
      this.paint({ rows: next });
    }
    if (this.aside.size > 0 && !this.asked) this.greet();
  }
}
