"""One row in words: a title, a sentence, a piece of code. Timeline, export and commands say the same.

A machine that brings new facts adds a line to `SPEAKING` (what the row is about) and, where wanted, a template in
templates/runs/_facts/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from runs.engine.timeline import NO_COMPACTION, WAITS
from runs.reading import words
from runs.reading.unseen import escaped

Level = Literal["turn", "step", "all"]
"""The coarsest detail at which a row is still shown."""

Data = dict[str, Any]
LONG = 400
"""Characters of a sentence that a row shows; the inspector has the whole."""
_BREAK = re.compile("\r\n?|[\u2028\u2029]")


@dataclass(frozen=True)
class Line:
    """What a row says. `code` is shown as code; `tag` is a small mark beside the title."""

    title: str
    text: str = ""
    code: str = ""
    icon: str = "dot"
    tone: str = "quiet"
    level: Level = "step"
    tag: str = ""

    @property
    def plain(self) -> str:
        """The row as one line of text."""
        said = " ".join(part for part in (self.text, self.code) if part)
        title = f"{self.title} ({self.tag})" if self.tag else self.title
        return " ".join((f"{title}: {said}" if said else title).split())


def line_of(kind: str, node: str, edge: str | None, facts: list[Data], asked: Data | None) -> Line:
    """The line of a row. `asked` is the effect of its exchange, for rows of kind `ask`."""
    match kind:
        case "ask" if asked is not None:
            return _asked(asked, facts)
        case "stop":
            return _stopped(facts)
    for fact in sorted(facts, key=_weight):
        speak = SPEAKING.get(fact["kind"])
        if speak is not None:
            return _marked(speak(fact), facts)
    return _plain(kind, node, edge)


def call_text(tool: str, args: Data) -> str:
    """A call as code: `write_file(name="a.txt", content="12")`."""
    return short(f"{tool}({_listed(args)})", 240)


def short(text: str, most: int = LONG) -> str:
    """`text` on one line, at most `most` characters."""
    if len(text) > most * 4:
        text = text[: most * 4]
    text = " ".join(escaped(_BREAK.sub("\n", text)).split())
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _listed(args: Data) -> str:
    return escaped(", ".join(f"{name}={_json(value)}" for name, value in args.items()))


def value_text(value: Any) -> str:
    """A tool's value as a reader sees it on one line."""
    return short(value if isinstance(value, str) else _json(value))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _weight(fact: Data) -> int:
    return _ORDER.get(fact["kind"], len(_ORDER))


def _marked(line: Line, facts: list[Data]) -> Line:
    """A line says as a tag what else the row concluded: an answer, the end."""
    kinds = {fact["kind"]: fact for fact in facts}
    code = str(kinds.get("react.notice", {}).get("code", ""))
    if code.startswith("protocol_violation.") and "react.decision" in kinds:
        line = _replace(line, tone="warn", tag=f"violation: {words.spoken(code.partition('.')[2])}")
    elif code == "decision_invalid_strategy":
        line = _replace(line, tone="warn", tag=f"violation: {words.spoken(code)}")
    elif "contract.wrapup.began" in kinds and line.title != "Wrap-up":
        line = _replace(line, tag="wrap-up begins")
    elif line.title != "Slot filled":
        line = _filling(line, facts)
    ended = kinds.get("react.exit")
    if ended is not None and line.level == "all":
        return _exited(ended)
    if ended is not None and line.title != "Ended":
        return _replace(
            line,
            tag=", ".join(filter(None, (line.tag, f"ends: {words.exit_words(ended['reason'])}"))),
            level="turn",
        )
    skipped = kinds.get("step.skipped")
    if skipped is not None and line.title != "Skipped":
        left = skipped["why"] == "plan_tool_mismatch"
        tag = "not the plan's tool" if left else f"skipped: {words.spoken(skipped['why'])}"
        return _replace(line, tag=tag, tone="warn")
    if "run.answer" in kinds and line.title in ("Rules passed", "Result"):
        return Line(
            "Final answer", short(kinds["run.answer"]["text"]), icon="flag", tone="good", level="turn"
        )
    return line


def _filling(line: Line, facts: list[Data]) -> Line:
    """A decision also says which slots it fills."""
    slots = [fact["slot"] for fact in facts if fact["kind"] == "contract.slot.mapped"]
    if not slots:
        return line
    return _replace(line, tag=", ".join(filter(None, (line.tag, f"fills {short(' and '.join(slots), 60)}"))))


def _replace(line: Line, **changes: Any) -> Line:
    return Line(**{**line.__dict__, **changes})


# --- asks -------------------------------------------------------------------------------------------------------


def _asked(asked: Data, facts: list[Data]) -> Line:
    match asked["kind"]:
        case "model_call":
            return _model_asked(asked, facts)
        case "tool_call":
            if decided := _told_with(facts, "react.decision"):
                return decided  # a call of the run's own record needs no row of its own before it
            code = call_text(asked["tool"], asked["args"])
            return _retried(Line("Calls", code=code, icon="tool", tone="call"), facts)
        case "child_run":
            return _retried(Line("Starts child", short(asked["goal"]), asked["name"], "child", "call"), facts)
        case "compaction":
            by = f"wanted by {asked['wanted_by']}" if asked.get("wanted_by") else ""
            rows = f"rows {asked['first']}–{asked['last']}"
            text = rows if by else f"{rows}, so that the prompt fits"
            return _retried(
                Line("Summarises", text, icon="compact", tone="think", level="turn", tag=by), facts
            )
        case "human_call":
            return _human_asked(asked)
    return Line("Asks", asked["kind"], level="all")


def _model_asked(asked: Data, facts: list[Data]) -> Line:
    for fact in facts:
        if fact["kind"] == "ruled.reply.unread":
            return Line("Reply unreadable", fact["message"], icon="alert", tone="warn", tag="asked again")
    codes = {fact["code"] for fact in facts if fact["kind"] == "react.notice"}
    if codes & {*NO_COMPACTION, WAITS} and (noted := _told_with(facts, "react.notice")):
        return noted
    if "coordinator_unusable" in codes and (noted := _told_with(facts, "react.notice")):
        return noted
    told = _told_with(facts, "contract.set", "react.plan", "contract.overdraft.granted")
    if told and not codes & {"retried", "context_overflow"}:
        return told
    role = "the model" if asked["role"] == "decision" else f"the model for a {words.spoken(asked['role'])}"
    return _retried(Line("Asks", role, icon="model", level="all"), facts)


def _told_with(facts: list[Data], *kinds: str) -> Line | None:
    """The line of the first fact of these kinds: what was concluded on the way to asking."""
    for fact in sorted(facts, key=_weight):
        if fact["kind"] in kinds:
            return _marked(SPEAKING[fact["kind"]](fact), facts)
    return None


def _retried(line: Line, facts: list[Data]) -> Line:
    for fact in facts:
        if fact["kind"] == "react.notice" and fact["code"] in ("retried", "context_overflow"):
            return _replace(line, text=fact["message"], tone="warn", tag="tried again", level="turn")
        if fact["kind"] == "react.tool.edited":
            return _replace(line, tag="changed by a person")
    return line


def _human_asked(asked: Data) -> Line:
    held = asked.get("holds") or {}
    code = call_text(held["tool"], held["args"]) if held.get("kind") == "tool_call" else ""
    title = words.INTERRUPT[asked["about"]].text
    text = asked["title"] if not code else asked["why"]
    return Line(title, text, code, "hand", "ask", "turn", "asks a person")


def _stopped(facts: list[Data]) -> Line:
    for fact in facts:
        if fact["kind"] == "react.exit":
            text = short(fact["message"])
            reason = fact["reason"]
            tone = {"aborted": "quiet", "fatal_error": "bad", "model_error": "bad", "tool_error": "bad"}.get(
                reason, "warn"
            )
            return Line("Ended", text, icon="stop", tone=tone, level="turn", tag=words.exit_words(reason))
    return Line("Ended", icon="stop", level="turn")


# --- facts ------------------------------------------------------------------------------------------------------


def _decision(fact: Data) -> Line:
    """A machine whose model thinks says `thought`; one whose model chooses an action says `action`."""
    if "thought" in fact:
        return _thought(fact)
    action = fact.get("action")
    if not action:
        return Line("Reply unreadable", icon="alert", tone="warn")
    call = fact.get("tool_call") or {}
    tool, args = fact.get("tool") or call.get("tool_id"), fact.get("args") or call.get("params")
    code = call_text(tool, args if isinstance(args, dict) else {}) if isinstance(tool, str) and tool else ""
    summary = fact.get("summary") or fact.get("completion_summary")
    said = summary or fact.get("notes") or " ".join(fact.get("questions") or ())
    tag = fact.get("strategy") or ""
    return Line(words.spoken(action).capitalize(), short(said), code, "thought", "think", "turn", tag)


def _planned(fact: Data) -> Line:
    """A plan is rows that name tools (`planned`), or texts (`checklist`)."""
    if "rows" in fact:
        calls = ", ".join(f"[{number}] {row['tool']}" for number, row in enumerate(fact["rows"], 1))
        tag = f"after {fact['why']}" if fact["why"] else ""
        text = short(fact["outline"] or ("" if calls else "no steps"))
        return Line("New plan" if tag else "Plan", text, short(calls), "list", "think", "turn", tag)
    if not fact["steps"]:
        return Line("No plan", short(fact["why"]), icon="list", tone="warn", level="turn")
    text = ", ".join(f"[{number}] {step}" for number, step in enumerate(fact["steps"], 1))
    return Line("Plan", short(text), icon="list", tone="think", level="turn")


def _acknowledged(fact: Data) -> Line:
    signs = {"done": "✓", "failed": "✗"}
    text = " ".join(f"{signs.get(mark['status'], '□')} [{mark['number']}]" for mark in fact["marks"])
    return Line("Plan", text, icon="list", tone="think")


def _thought(fact: Data) -> Line:
    code = call_text(fact["tool"], fact["args"]) if fact.get("tool") else ""
    tag = "from the cache" if fact.get("cached") else ""
    return Line("Thought", short(fact["thought"]), code, "thought", "think", "turn", tag)


def _reported(fact: Data) -> Line:
    if fact.get("error") is not None:
        tag = fact["tool"] if fact["ran"] else f"{fact['tool']}, not run"
        return Line("Error", short(fact["error"]), icon="cross", tone="bad", tag=tag)
    tag = fact["tool"] if fact["ran"] else f"{fact['tool']}, entered by a person"
    return Line("Result", value_text(fact["value"]), icon="result", tone="call", tag=tag)


def _decided(fact: Data) -> Line:
    word = words.VERDICT_DONE[fact["verdict"]]
    by = f"by {fact['by']}" if fact["by"] else ""
    how = words.CHANNEL.get(fact["channel"], fact["channel"])
    text = f"{by} {how}".strip()
    if fact.get("to_step") is not None:
        text += f", to row {fact['to_step']}"
    if fact["message"]:
        text += f" — “{short(fact['message'], 200)}”"
    code = ""
    if fact.get("args") is not None:
        code = short(_listed(fact["args"]), 240)
    return Line(word.text, text, code, word.icon, word.tone, "turn")


def _rewound(fact: Data) -> Line:
    by = f"by {fact['by']}" if fact["by"] else ""
    text = f"from row {fact['from_seq']} to row {fact['to_seq']} {by}".strip()
    if fact["message"]:
        text += f" — “{short(fact['message'], 200)}”"
    return Line("Went back", text, icon="back", tone="warn", level="turn")


def _forked(fact: Data) -> Line:
    place = f"row {fact['seq']}" if fact["seq"] else "the beginning"
    others = [*fact["changed"], *fact["state"]]
    changed = f", with another {short(', '.join(others), 120)}" if others else ""
    text = f"from {place} of #{fact['run']}, by {fact['by']}{changed}"
    if fact["message"]:
        text += f" — “{short(fact['message'], 200)}”"
    return Line("Begins as a copy", text, icon="branch", tone="warn", level="turn")


def _raised(fact: Data) -> Line:
    name = fact["name"]
    added, limit = _amount(name, fact["added"]), _amount(name, fact["limit"])
    by = f" by {fact['by']}" if fact["by"] else ""
    text = f"{words.LIMIT.get(str(name), str(name)).lower()} by {added} to {limit}{by}"
    return Line("Limit raised", text, icon="gauge", tone="good", level="turn")


def _amount(name: str, value: float) -> str:
    match name:
        case "cost_usd":
            return words.money(value)
        case "active_seconds":
            return words.seconds(value)
    return words.count(value)


def _by(title: str, icon: str) -> Callable[[Data], Line]:
    def line(fact: Data) -> Line:
        message = f" — “{short(fact['message'], 200)}”" if fact.get("message") else ""
        by = f"by {fact['by']}" if fact["by"] else ""
        return Line(title, f"{by}{message}".strip(), icon=icon, level="turn")

    return line


def _held_back(fact: Data) -> Line:
    since = datetime.fromisoformat(fact["since"])
    begins = f"{since.day} {since:%b, %H:%M}"
    reason = f" — “{short(fact['reason'], 200)}”" if fact["reason"] else ""
    if not fact["until"]:
        text = f"since {begins} UTC: {fact['by']} halted the site{reason}"
        return Line("Held back", text, icon="stop", tone="warn", level="turn")
    until = datetime.fromisoformat(fact["until"])
    ends = f"{until:%H:%M}" if until.date() == since.date() else f"{until.day} {until:%b, %H:%M}"
    text = f"from {begins} to {ends} UTC: {fact['by']} had halted the site{reason}"
    tag = f"for {words.seconds((until - since).total_seconds())}"
    return Line("Held back", text, icon="stop", tone="warn", level="turn", tag=tag)


def _exited(fact: Data) -> Line:
    tone = "good" if fact["reason"] in ("complete", "goal_achieved") else "quiet"
    return Line(
        "Ended",
        short(fact["message"]),
        icon="flag",
        tone=tone,
        level="turn",
        tag=words.exit_words(fact["reason"]),
    )


def _notice(fact: Data) -> Line:
    match fact["code"]:
        case "compaction_failed":
            return Line("Compaction failed", short(fact["message"]), "", "compact", "warn", "turn")
        case "nothing_to_compact":
            return Line("Nothing to compact", short(fact["message"]), "", "compact", "quiet", "turn")
        case "compaction_waits":
            return Line("Compaction waits", short(fact["message"]), "", "compact", "quiet", "turn")
    return Line("Note", short(fact["message"]), icon="alert", tone="warn")


def _compacted(fact: Data) -> Line:
    text = f"{fact['tokens_before']:,} → {fact['tokens_after']:,} tokens, rows {fact['first']}–{fact['last']}"
    tag = f"carries on row {fact['updates']}" if fact.get("updates") else ""
    return Line("Compacted", text, icon="compact", tone="think", level="turn", tag=tag)


def _mended(title: str, icon: str, what: Callable[[Data], str]) -> Callable[[Data], Line]:
    """What a person did to the context: who, to what, and why."""

    def line(fact: Data) -> Line:
        reason = f": “{short(fact['reason'], 200)}”" if fact.get("reason") else ""
        text = f"{what(fact)} by {short(fact['by'] or 'the operator', 60)}{reason}".strip()
        return Line(title, text, icon=icon, tone="warn", level="turn")

    return line


def _path_words(fact: Data) -> str:
    kind, _, number = fact["path"].partition(":")
    return f"the summary of row {number}" if kind == "su" else f"row {number}"


def _judged(title: str, tone: str) -> Callable[[Data], Line]:
    def line(fact: Data) -> Line:
        said = f" — “{short(fact['message'], 200)}”" if fact.get("message") else ""
        return Line(title, f"by {fact['by'] or 'a person'}{said}", icon="hand", tone=tone)

    return line


def _contract_set(fact: Data) -> Line:
    slots = ", ".join(f"{slot['id']} ({slot['type']})" for slot in fact["slots"])
    return Line("Contract", slots or "no slots", icon="list", tone="think", level="turn")


def _slot_mapped(fact: Data) -> Line:
    as_draft = " as a draft" if fact["draft"] else ""
    return Line("Slot filled", f"{fact['slot']} by {fact['artifact']}{as_draft}", icon="check", tone="good")


def _contract_judged(fact: Data) -> Line:
    filled, unfilled = fact["filled"], fact["unfilled"]
    if not filled and not unfilled:
        return Line("Ended", icon="flag", level="all")
    text = f"{len(filled)} of {len(filled) + len(unfilled)} slots filled"
    text += f"; open: {', '.join(unfilled)}" if unfilled else ""
    return Line("Contract", text, icon="flag", tone="warn" if unfilled else "good", level="turn")


def _because(fact: Data) -> str:
    return words.exit_words(fact["reason"])


SPEAKING: dict[str, Callable[[Data], Line]] = {
    "react.decision": _decision,
    "conv.range.summary": _compacted,
    "conv.summary.edited": _mended(
        "Summary corrected", "pen", lambda fact: f"that of row {fact['summary']}, version {fact['version']},"
    ),
    "conv.summary.undone": _mended(
        "Summary taken back", "back", lambda fact: f"that of row {fact['summary']}"
    ),
    "conv.pinned": _mended("Pinned for the model", "pin", _path_words),
    "conv.unpinned": _mended("Unpinned", "pin", _path_words),
    "conv.compaction.wanted": _mended("Compaction wanted", "compact", lambda fact: ""),
    "run.rewound": _rewound,
    "run.forked": _forked,
    "run.decided": _decided,
    "run.limit": _raised,
    "run.paused": _by("Paused", "pause"),
    "run.resumed": _by("Resumed", "play"),
    "run.recovered": lambda fact: Line("Recovered", fact["message"], icon="alert", tone="warn", level="turn"),
    "react.tool.result": _reported,
    "react.infra.result": lambda fact: _reported({**fact, "ran": True}),
    "run.held_back": _held_back,
    "ruled.rule.broken": lambda fact: Line(
        "Rule broken", fact["message"], icon="cross", tone="bad", level="turn"
    ),
    "ruled.draft.rejected": lambda fact: Line("Sent back", short(fact["reason"]), icon="back", tone="warn"),
    "ruled.draft.approved": _judged("Let pass", "good"),
    "ruled.draft.returned": _judged("Sent back", "warn"),
    "ruled.draft.passed": lambda fact: Line("Rules passed", icon="check", level="all"),
    "ruled.reply.unread": lambda fact: Line("Reply unreadable", fact["message"], icon="alert", tone="warn"),
    "ruled.step.committed": lambda fact: Line(f"Step {fact['number']} counts", icon="dot", level="all"),
    "ruled.step.observed": lambda fact: Line("Noted", fact["status"], level="all"),
    "react.exit": _exited,
    "react.plan": _planned,
    "react.plan.ack": _acknowledged,
    "planned.plan.unread": lambda fact: Line(
        "Plan unreadable", short(fact["message"]), icon="alert", tone="warn", level="turn"
    ),
    "planned.row.taken": _thought,
    "step.skipped": lambda fact: Line(
        "Skipped", short(fact["message"]), icon="down", tone="warn", tag=words.spoken(fact["why"])
    ),
    "planned.replan.began": lambda fact: Line(
        "Plans again", f"because of {fact['why']}", icon="list", tone="warn"
    ),
    "planned.attempt.began": lambda fact: Line(f"Attempt {fact['number']}", icon="dot", level="all"),
    "contract.decision.unread": lambda fact: Line(
        "Reply unreadable", short(fact["message"]), icon="alert", tone="warn", level="turn"
    ),
    "contract.set": _contract_set,
    "contract.wrapup.began": lambda fact: Line(
        "Wrap-up", f"one round to fill what is open; {_because(fact)}", icon="list", tone="warn", level="turn"
    ),
    "contract.overdraft.granted": lambda fact: Line(
        "Overdraft", f"round {fact['number']} of {fact['total']}", icon="gauge", tone="warn"
    ),
    "contract.slot.mapped": _slot_mapped,
    "contract.shown": lambda fact: Line(
        "Shows", ", ".join([*fact["artifacts"], *fact["skills"]]), icon="eye", level="step"
    ),
    "contract.artifact.made": lambda fact: Line(
        "Kept", f"{fact['name']} ({fact['artifact_kind']})", level="all"
    ),
    "contract.rerun.taken": lambda fact: Line("Decides again", level="all"),
    "contract.exit.intended": lambda fact: Line("Wants to end", _because(fact), level="all"),
    "contract.judged": _contract_judged,
    "run.answer": lambda fact: Line("Answer", short(fact["text"]), icon="flag", tone="good", level="turn"),
    "user.answer": lambda fact: Line("Told", short(fact["text"]), icon="hand", tone="good", level="turn"),
    "react.notice": _notice,
}
"""How a fact reads as a row. Of several facts in a row the first one in this order speaks."""

_ORDER = {kind: place for place, kind in enumerate(SPEAKING)}


def _plain(kind: str, node: str, edge: str | None) -> Line:
    """A row whose facts say nothing to a reader."""
    match kind:
        case "transition":
            return Line(words.spoken(node).capitalize(), words.spoken(edge or ""), level="all")
        case "recovered":
            return Line(
                "Recovered", "another worker took the run over", icon="alert", tone="warn", level="turn"
            )
        case "pause":
            return Line("Paused", icon="pause", level="turn")
    return Line(words.spoken(kind).capitalize(), icon="dot", level="step")
