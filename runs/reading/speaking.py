"""How each kind of fact reads as a row.

A machine that brings new facts adds a line to `SPEAKING` (what the row is about) and, where wanted, a template in
templates/machines/<name>/facts/.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from runs.engine.settings import InterruptRule
from runs.engine.states import KEPT_BY_GATES
from runs.reading import words
from runs.reading.phrases import Data, Line, args_text, call_text, quoted, short, value_text


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
        tag = (
            f"after {fact['why']}" if fact["why"] else "changed by a person" if fact["by"] == "person" else ""
        )
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


def _merged(fact: Data) -> Line:
    if fact["error"] is not None:
        tag = fact["name"] if fact["ran"] else f"{fact['name']}, not run"
        return Line(
            "Subgraph failed",
            short(fact["error"]),
            icon="cross",
            tone="bad",
            tag=tag,
            not_run=not fact["ran"],
        )
    code = args_text(fact["metadata"])
    return Line("Subgraph merged", "", code, icon="child", tone="call", tag=fact["name"])


def _reported(fact: Data) -> Line:
    if fact.get("error") is not None:
        tag = fact["tool"] if fact["ran"] else f"{fact['tool']}, not run"
        error = " ".join(filter(None, (fact["error"], fact.get("stderr"))))
        return Line("Error", short(error), icon="cross", tone="bad", tag=tag, not_run=not fact["ran"])
    tag = fact["tool"] if fact["ran"] else f"{fact['tool']}, provided by a person"
    if fact.get("cached_from"):
        tag = f"{tag}, cached from step {fact['cached_from']}"
    if fact.get("exit_code") is not None:
        tag = f"{tag}, exit code {fact['exit_code']}"
    value = (
        short(fact["stderr"]) if fact["value"] is None and fact.get("stderr") else value_text(fact["value"])
    )
    return Line("Result", value, icon="result", tone="call", tag=tag)


def _decided(fact: Data) -> Line:
    word = words.VERDICT_DONE[fact["verdict"]]
    by = f"by {fact['by']}" if fact["by"] else ""
    text = f"{by} {words.channel(fact['channel'], by)}".strip()
    if fact.get("to_step") is not None:
        text += f", to step {fact['to_step']}"
    if fact.get("allow_host"):
        text += ", the host for the rest of this run"
    if fact["message"]:
        text += f" — {quoted(fact['message'], 200)}"
    code = ""
    if fact.get("args") is not None:
        code = short(args_text(fact["args"]), 240)
    return Line(word.text, text, code, word.icon, word.tone, "turn", goes_on=True)


def _rewound(fact: Data) -> Line:
    by = f"by {fact['by']}" if fact["by"] else ""
    text = f"from step {fact['from_seq']} to step {fact['to_seq']} {by}".strip()
    if fact["message"]:
        text += f" — {quoted(fact['message'], 200)}"
    return Line("Rolled back", text, icon="back", tone="warn", level="turn", goes_on=True)


def _forked(fact: Data) -> Line:
    place = f"step {fact['seq']}" if fact["seq"] else "the beginning"
    others = [*fact["changed"], *(name for name in fact["state"] if name not in KEPT_BY_GATES)]
    changed = f", with another {short(', '.join(others), 120)}" if others else ""
    text = f"from {place} of #{fact['run']}, by {fact['by']}{changed}"
    if fact["message"]:
        text += f" — {quoted(fact['message'], 200)}"
    return Line("Copied", text, icon="branch", tone="warn", level="turn", goes_on=True)


def _earlier_run(fact: Data) -> Line:
    text = f"#{fact['run']}: {short(fact['goal'], 160)}"
    return Line("Earlier run", text, icon="back", level="turn", tag=words.exit_words(fact["reason"]))


def _raised(fact: Data) -> Line:
    name = fact["name"]
    added, limit = words.amount(name, fact["added"]), words.amount(name, fact["limit"])
    by = f" by {fact['by']}" if fact["by"] else ""
    text = f"{words.LIMIT.get(str(name), str(name)).lower()} by {added} to {limit}{by}"
    return Line("Limit raised", text, icon="gauge", tone="good", level="turn")


def _by(title: str, icon: str) -> Callable[[Data], Line]:
    def line(fact: Data) -> Line:
        message = f" — {quoted(fact['message'])}" if fact.get("message") else ""
        by = f"by {fact['by']}" if fact["by"] else ""
        return Line(title, f"{by}{message}".strip(), icon=icon, level="turn", goes_on=True)

    return line


def _held_back(fact: Data) -> Line:
    since = datetime.fromisoformat(fact["since"])
    begins = f"{since.day} {since:%b, %H:%M}"
    reason = f" — {quoted(fact['reason'], 200)}" if fact["reason"] else ""
    if not fact["until"]:
        text = f"since {begins} UTC: {fact['by']} halted the site{reason}"
        return Line("Held back", text, icon="stop", tone="warn", level="turn", goes_on=True)
    until = datetime.fromisoformat(fact["until"])
    ends = f"{until:%H:%M}" if until.date() == since.date() else f"{until.day} {until:%b, %H:%M}"
    text = f"from {begins} to {ends} UTC: {fact['by']} had halted the site{reason}"
    tag = f"for {words.seconds((until - since).total_seconds())}"
    return Line("Held back", text, icon="stop", tone="warn", level="turn", tag=tag, goes_on=True)


def _site_rules(fact: Data) -> Line:
    rules = "; ".join(InterruptRule.model_validate(rule).words() for rule in fact["rules"])
    return Line("Site rules changed", short(rules or "none"), icon="hand", tone="warn", level="turn")


def _has_read(fact: Data) -> Line:
    what = {"private": "private data", "untrusted": "untrusted content"}[fact["what"]]
    source = f"{fact['tool']}, step {fact['step']}" if fact["tool"] else "through the run that started it"
    source = f"through run {fact['run']}, which it continues" if fact.get("run") else source
    return Line("Has read", f"{what} ({source})", icon="eye", tone="warn")


def _by_whom(fact: Data) -> str:
    return f", by {fact['by']}" if fact["by"] else ""


def exited(fact: Data) -> Line:
    """How the run ended."""
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
    text = (
        f"{fact['tokens_before']:,} → {fact['tokens_after']:,} tokens, steps {fact['first']}–{fact['last']}"
    )
    tag = f"continues step {fact['updates']}" if fact.get("updates") else ""
    return Line("Compacted", text, icon="compact", tone="think", level="turn", tag=tag)


def _mended(title: str, icon: str, what: Callable[[Data], str]) -> Callable[[Data], Line]:
    """What a person did to the context: who, to what, and why."""

    def line(fact: Data) -> Line:
        reason = f": {quoted(fact['reason'], 200)}" if fact.get("reason") else ""
        text = f"{what(fact)} by {short(fact['by'] or 'the operator', 60)}{reason}".strip()
        return Line(title, text, icon=icon, tone="warn", level="turn")

    return line


def _path_words(fact: Data) -> str:
    kind, _, number = fact["path"].partition(":")
    return f"the summary of step {number}" if kind == "su" else f"step {number}"


def _judged(title: str, tone: str) -> Callable[[Data], Line]:
    def line(fact: Data) -> Line:
        said = f" — {quoted(fact['message'], 200)}" if fact.get("message") else ""
        return Line(title, f"by {fact['by'] or 'a person'}{said}", icon="hand", tone=tone, goes_on=True)

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
        "Summary corrected", "pen", lambda fact: f"step {fact['summary']}, version {fact['version']},"
    ),
    "conv.summary.undone": _mended("Summary reverted", "back", lambda fact: f"step {fact['summary']}"),
    "conv.pinned": _mended("Pinned for the model", "pin", _path_words),
    "conv.unpinned": _mended("Unpinned", "pin", _path_words),
    "conv.compaction.wanted": _mended("Compaction requested", "compact", lambda fact: ""),
    "run.rewound": _rewound,
    "run.forked": _forked,
    "conv.run": _earlier_run,
    "run.decided": _decided,
    "run.limit": _raised,
    "run.paused": _by("Paused", "pause"),
    "run.resumed": _by("Resumed", "play"),
    "run.restored": lambda fact: Line(
        "Restored", "Each side effect needs approval.", icon="back", tone="warn", level="turn"
    ),
    "run.recovered": lambda fact: Line("Recovered", fact["message"], icon="alert", tone="warn", level="turn"),
    "react.tool.result": _reported,
    "ruled.subgraph.merged": _merged,
    "react.infra.result": lambda fact: _reported({**fact, "ran": True}),
    "run.held_back": _held_back,
    "run.site_rules": _site_rules,
    "ruled.rule.broken": lambda fact: Line(
        "Rule broken", fact["message"], icon="cross", tone="bad", level="turn"
    ),
    "ruled.draft.rejected": lambda fact: Line(
        "Draft rejected", short(fact["reason"]), icon="back", tone="warn"
    ),
    "ruled.draft.approved": _judged("Let pass", "good"),
    "ruled.draft.returned": _judged("Draft rejected", "warn"),
    "ruled.draft.passed": lambda fact: Line("Rules passed", icon="check", level="all"),
    "ruled.reply.unread": lambda fact: Line("Reply unreadable", fact["message"], icon="alert", tone="warn"),
    "ruled.step.committed": lambda fact: Line(f"Step {fact['number']} counts", icon="dot", level="all"),
    "run.summary": lambda fact: Line("Summary kept", short(fact["text"]), icon="compact", level="all"),
    "run.feedback": lambda fact: Line("Feedback kept", short(fact["text"]), icon="hand", level="all"),
    "ruled.step.observed": lambda fact: Line("Noted", fact["status"], level="all"),
    "react.exit": exited,
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
        "Replanning", f"because of {fact['why']}", icon="list", tone="warn"
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
    "run.host.allowed": lambda fact: Line(
        "Host allowed", f"{fact['host']} for the rest of this run{_by_whom(fact)}", "", "out", "warn", "turn"
    ),
    "run.read": _has_read,
}
"""How a fact reads as a row. Of several facts in a row the first one in this order speaks."""
