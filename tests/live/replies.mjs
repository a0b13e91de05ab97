// Every beginning of a reply must show a beginning of its thought (static/js/reply.js), never half an escape.

import { readFileSync } from "node:fs";

const source = readFileSync(new URL("../../static/js/reply.js", import.meta.url));
const { readable } = await import(`data:text/javascript;base64,${source.toString("base64")}`);

const thoughts = ["plain", 'He said "yes"\n\\ and \\n', "✓ \u0007 \ud83d\ude00 \u2028", "\\u00e9 \\\\"];
let wrong = 0;
for (const thought of thoughts) {
  for (const reply of [{ thought, action: null }, { action: { tool: "t", args: { a: "{" } }, thought }]) {
    const escaped = JSON.stringify(reply).replace(/[\u0080-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
    for (const text of [JSON.stringify(reply), escaped]) {
      for (let end = 0; end <= text.length; end += 1) if (!thought.startsWith(readable(text.slice(0, end)))) wrong += 1;
      if (readable(text) !== thought) wrong += 1;
    }
  }
}
if (readable("no JSON at all") !== "no JSON at all") wrong += 1;
console.log(wrong);
