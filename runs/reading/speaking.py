"""Each kind of fact as a line: the facts of every machine, and a machine's own by its declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache

from runs.engine.presentation import Reads, Said
from runs.engine.settings import InterruptRule
from runs.engine.states import KEPT_BY_GATES
from runs.machines import CATALOGUE
from runs.reading import words
from runs.reading.phrases import Data, Line, args_text, call_text, quoted, short, value_text


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


def _model_changed(fact: Data) -> Line:
    how = f"by {fact['by']}" if fact["by"] else "its fallback"
    why = f" — {short(fact['why'], 200)}" if fact.get("why") else ""
    text = f"from {short(fact['before'], 80)} to {short(fact['model'], 80)}, {how}{why}"
    return Line("Model changed", text, icon="model", tone="warn", level="turn", goes_on=True)


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
    """Return how the run ended."""
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
    """Return the line for a person's change to the context: who, to what, and why."""

    def line(fact: Data) -> Line:
        reason = f": {quoted(fact['reason'], 200)}" if fact.get("reason") else ""
        text = f"{what(fact)} by {short(fact['by'] or 'the operator', 60)}{reason}".strip()
        return Line(title, text, icon=icon, tone="warn", level="turn")

    return line


def _path_words(fact: Data) -> str:
    kind, _, number = fact["path"].partition(":")
    return f"the summary of step {number}" if kind == "su" else f"step {number}"


FIRST: dict[str, Callable[[Data], Line]] = {
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
    "run.model": _model_changed,
    "run.paused": _by("Paused", "pause"),
    "run.resumed": _by("Resumed", "play"),
    "run.restored": lambda fact: Line(
        "Restored", "Each side effect needs approval.", icon="back", tone="warn", level="turn"
    ),
    "run.recovered": lambda fact: Line("Recovered", fact["message"], icon="alert", tone="warn", level="turn"),
    "react.tool.result": _reported,
    "run.held_back": _held_back,
    "run.site_rules": _site_rules,
}
"""Facts of every machine with precedence over its own."""

ENDING: dict[str, Callable[[Data], Line]] = {
    "run.summary": lambda fact: Line("Summary kept", short(fact["text"]), icon="compact", level="all"),
    "run.feedback": lambda fact: Line("Feedback kept", short(fact["text"]), icon="hand", level="all"),
    "react.exit": exited,
}
"""Facts between those of a machine that have a line though the run ends, and its others."""

LAST: dict[str, Callable[[Data], Line]] = {
    "run.answer": lambda fact: Line("Answer", short(fact["text"]), icon="flag", tone="good", level="turn"),
    "user.answer": lambda fact: Line("Told", short(fact["text"]), icon="hand", tone="good", level="turn"),
    "react.notice": _notice,
    "run.host.allowed": lambda fact: Line(
        "Host allowed", f"{fact['host']} for the rest of this run{_by_whom(fact)}", "", "out", "warn", "turn"
    ),
    "run.read": _has_read,
}

COMMON = FIRST | ENDING | LAST


def reads_of(machine: str) -> Mapping[str, Reads]:
    """Return how a machine's own facts read, by kind; nothing for an unknown machine."""
    found = CATALOGUE.get(machine)
    return found.presentation.facts if found else {}


@cache
def speaking(machine: str) -> Mapping[str, Callable[[Data], Line]]:
    """Return how the facts of `machine` read as a line. The first one in this order gives the line."""
    own = {kind: reads for kind, reads in _whole(machine).items() if reads.line is not None}
    replies = {kind: _said(reads) for kind, reads in own.items() if reads.reply}
    early = {kind: _said(reads) for kind, reads in own.items() if reads.before_end}
    return replies | FIRST | early | ENDING | {kind: _said(reads) for kind, reads in own.items()} | LAST


@cache
def places_of(machine: str) -> Mapping[str, int]:
    """Return each kind's place in the order of precedence."""
    return {kind: place for place, kind in enumerate(speaking(machine))}


def _whole(machine: str) -> Mapping[str, Reads]:
    """Return how a machine's facts read, with a default for undeclared ones."""
    found, told = CATALOGUE.get(machine), reads_of(machine)
    kinds = [str(fact.model_fields["kind"].default) for fact in found.own_facts] if found else []
    return {**told, **{kind: Reads(_plain) for kind in kinds if kind not in {**COMMON, **told}}}


def _plain(fact: Data) -> Said:
    """Return a fact without a declaration: its name, and its values."""
    values = {name: value for name, value in fact.items() if name != "kind"}
    return Said(words.spoken(fact["kind"].rpartition(".")[2]).capitalize(), code=args_text(values))


def _said(reads: Reads) -> Callable[[Data], Line]:
    assert reads.line is not None
    line = reads.line
    return lambda fact: line_from(line(fact))


def line_from(said: Said) -> Line:
    """Return a machine's words as a line: cut to a line's length, with hidden characters visible."""
    text = value_text(said.value[0]) if said.value else short(said.text)
    if said.quote:
        text = f"{text} — {quoted(said.quote, 200)}"
    code = call_text(*said.call) if said.call else args_text(said.values) if said.values else short(said.code)
    return Line(
        said.title,
        text,
        code,
        said.icon,
        said.tone,
        said.level,
        said.tag,
        goes_on=said.goes_on,
        not_run=said.not_run,
    )
