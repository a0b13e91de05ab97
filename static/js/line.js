// A socket that comes back: full jitter between tries, a ping every few seconds, and a probe when the page wakes.

const PING_MS = 5000;
const SILENCE_MS = 9000;
const SHORTEST_MS = 500;
const LONGEST_MS = 10000;
const PROBE_MS = 3000;

// Why the site closes a socket: runs/consumers/socket.py says it of each. All others are tried again soon.
export const SIGNED_OUT = 4403; // tried again: a sign-in in another tab lets it in
export const GONE = 4404; // the end
export const ANOTHER_LIFE = 4409; // the end
const TOO_MUCH = 4429; // tried again after the longest pause
const FAILED = 4500; // tried again after the longest pause

export class Line {
  // `watch` is told: opened(), heard(message), closed(code), tick() (every ping's time; it sends the ping itself).
  constructor(path, watch) {
    this.path = path;
    this.watch = watch;
    this.socket = null;
    this.tries = 0;
    this.askedAt = null; // when the oldest question was sent that has not been answered
    this.timer = 0;
    setInterval(() => this.tick(), PING_MS);
    for (const [target, event] of [
      [document, "visibilitychange"],
      [window, "pageshow"],
      [window, "online"],
    ]) {
      target.addEventListener(event, () => document.visibilityState === "visible" && this.probe());
    }
    this.connect();
  }

  get open() {
    return this.socket !== null && this.socket.readyState === WebSocket.OPEN;
  }

  connect() {
    clearTimeout(this.timer);
    const address = new URL(this.path, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onopen = () => {
      this.tries = 0;
      this.askedAt = null;
      this.watch.opened();
    };
    socket.onmessage = (event) => {
      this.askedAt = null;
      this.watch.heard(JSON.parse(event.data));
    };
    socket.onclose = (event) => {
      if (this.socket === socket) this.lost(event.code);
    };
  }

  send(message) {
    if (this.open) this.socket.send(JSON.stringify(message));
  }

  lost(code) {
    this.socket = null;
    this.watch.closed(code);
    if (code === GONE || code === ANOTHER_LIFE) return;
    const unwell = code === TOO_MUCH || code === FAILED;
    const longest = unwell ? LONGEST_MS : Math.min(LONGEST_MS, SHORTEST_MS * 2 ** this.tries);
    const shortest = unwell ? LONGEST_MS / 2 : SHORTEST_MS;
    this.tries += 1;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), shortest + Math.random() * (longest - shortest));
  }

  // The server says nothing any more, although the socket looks open: let go of it without waiting for its end.
  abandon() {
    const socket = this.socket;
    if (socket === null) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    this.lost(1006);
  }

  tick() {
    if (!this.open) return;
    if (this.askedAt !== null && performance.now() - this.askedAt > SILENCE_MS) this.abandon();
    else this.ask();
  }

  ask() {
    this.askedAt ??= performance.now();
    this.watch.tick();
  }

  // The page was asleep, or the network was away: an answer within three seconds, or a new socket.
  probe() {
    this.tries = 0;
    if (this.socket === null) {
      this.connect();
      return;
    }
    if (!this.open) return;
    this.askedAt = null;
    this.ask();
    const asked = this.askedAt;
    setTimeout(() => this.open && this.askedAt === asked && this.abandon(), PROBE_MS);
  }
}
