// What a half-written reply says. A model answers in JSON; a reader wants the thought in it as it grows.

// Ends before an escape that is not there as a whole yet.
const THOUGHT = /"thought"\s*:\s*"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)/;

export function readable(text) {
  if (!text.trimStart().startsWith("{")) return text;
  const found = THOUGHT.exec(text);
  if (found === null) return "";
  try {
    return JSON.parse(`"${found[1]}"`);
  } catch {
    return found[1];
  }
}
