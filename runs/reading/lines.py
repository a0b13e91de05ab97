"""One row in words: a title, a sentence, a piece of code. Timeline, export and commands say the same."""

from __future__ import annotations

from typing import Any

from runs.engine.facts import FOUND_OUT, MADE_ANEW
from runs.engine.reply import ONE_ACTION
from runs.engine.timeline import NO_COMPACTION, WAITS
from runs.reading import words
from runs.reading.limits import as_asked
from runs.reading.phrases import Data, Line, call_text, short
from runs.reading.questions import whole_title
from runs.reading.speaking import SPEAKING, exited

ASKED_AGAIN = {"retried", "context_overflow", "reply_length", "reply_content_filter"}
"""Codes of the notice on a model call that is made again."""


def line_of(
    kind: str,
    node: str,
    edge: str | None,
    facts: list[Data],
    asked: Data | None,
    *,
    ends_replay: bool = False,
) -> Line:
    """The line of a row. `asked` is the effect of its exchange, for rows of kind `ask`; see `Run.ends_replay`."""
    match kind:
        case "ask" if asked is not None:
            return _asked(asked, facts)
        case "stop":
            return _stopped(facts, ends_replay=ends_replay)
    for fact in sorted(facts, key=_weight):
        speak = SPEAKING.get(fact["kind"])
        if speak is not None:
            return _marked(speak(fact), facts, fact)
    return _plain(kind, node, edge)


def _weight(fact: Data) -> int:
    return _ORDER.get(fact["kind"], len(_ORDER))


def _marked(line: Line, facts: list[Data], told: Data) -> Line:
    """Return the line of the fact `told`, with a tag for what else the row concluded: an answer, the end."""
    kinds = {fact["kind"]: fact for fact in facts}
    if earlier := [fact for fact in facts if fact["kind"] == "conv.run"]:
        return _continuing(earlier)
    code = str(kinds.get("react.notice", {}).get("code", ""))
    if code.startswith("protocol_violation.") and "react.decision" in kinds:
        line = _replace(line, tone="warn", tag=f"violation: {words.spoken(code.partition('.')[2])}")
    elif code == "decision_invalid_strategy":
        line = _replace(line, tone="warn", tag=f"violation: {words.spoken(code)}")
    elif code == FOUND_OUT:
        line = _replace(line, tag=", ".join(filter(None, (line.tag, "learned by asking the tool"))))
    elif "contract.wrapup.began" in kinds and told["kind"] != "contract.wrapup.began":
        line = _replace(line, tag="wrap-up begins")
    elif told["kind"] != "contract.slot.mapped":
        line = _filling(line, facts)
    if any(fact.get("code") == ONE_ACTION for fact in facts):
        line = _replace(line, tone="warn", tag=", ".join(filter(None, (line.tag, "rest ignored"))))
    if kinds.get("react.plan", {}).get("by") == "person" and not _is_of_plan(told):
        line = _replace(line, tag=", ".join(filter(None, (line.tag, "plan changed by a person"))))
    ended = kinds.get("react.exit")
    if ended is not None and line.level == "all":
        return exited(ended)
    if ended is not None and told["kind"] != "react.exit":
        return _replace(
            line,
            tag=", ".join(filter(None, (line.tag, f"ends: {words.exit_words(ended['reason'])}"))),
            level="turn",
        )
    skipped = kinds.get("step.skipped")
    if skipped is not None and told["kind"] != "step.skipped":
        left = skipped["why"] == "plan_tool_mismatch"
        tag = "not the plan's tool" if left else f"skipped: {words.spoken(skipped['why'])}"
        return _replace(line, tag=tag, tone="warn")
    if "run.answer" in kinds and (told["kind"] == "ruled.draft.passed" or _is_result(told)):
        return Line(
            "Final answer", short(kinds["run.answer"]["text"]), icon="flag", tone="good", level="turn"
        )
    return line


def _is_of_plan(told: Data) -> bool:
    """Return whether the line tells the plan's steps, or marks on them, already."""
    return told["kind"] == "react.plan.ack" or (told["kind"] == "react.plan" and bool(told.get("steps")))


def _is_result(told: Data) -> bool:
    return told["kind"] in ("react.tool.result", "react.infra.result") and told.get("error") is None


def _continuing(earlier: list[Data]) -> Line:
    """Return the line of the run directly before this one, with how many there are as its tag."""
    return _replace(
        SPEAKING["conv.run"](earlier[-1]), tag=f"{words.plural(len(earlier), 'run')} before this one"
    )


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
            by = f"requested by {asked['wanted_by']}" if asked.get("wanted_by") else ""
            rows = f"steps {asked['first']}–{asked['last']}"
            text = rows if by else f"{rows}, to fit the window"
            return _retried(
                Line("Summarises", text, icon="compact", tone="think", level="turn", tag=by), facts
            )
        case "human_call":
            return _human_asked(asked, facts)
    return Line("Asks", asked["kind"], level="all")


def _model_asked(asked: Data, facts: list[Data]) -> Line:
    for fact in facts:
        if fact["kind"] == "ruled.reply.unread":
            return Line("Reply unreadable", fact["message"], icon="alert", tone="warn", tag="retry")
    codes = {fact["code"] for fact in facts if fact["kind"] == "react.notice"}
    if codes & {*NO_COMPACTION, WAITS} and (noted := _told_with(facts, "react.notice")):
        return noted
    if "coordinator_unusable" in codes and (noted := _told_with(facts, "react.notice")):
        return noted
    told = _told_with(facts, "contract.set", "react.plan", "contract.overdraft.granted")
    if told and not codes & ASKED_AGAIN:
        return told
    role = "the model" if asked["role"] == "decision" else f"the model for a {words.spoken(asked['role'])}"
    return _retried(Line("Asks", role, icon="model", level="all"), facts)


def _told_with(facts: list[Data], *kinds: str) -> Line | None:
    """The line of the first fact of these kinds: what was concluded on the way to asking."""
    for fact in sorted(facts, key=_weight):
        if fact["kind"] in kinds:
            return _marked(SPEAKING[fact["kind"]](fact), facts, fact)
    return None


def _retried(line: Line, facts: list[Data]) -> Line:
    for fact in facts:
        if fact["kind"] == "react.notice" and fact["code"] in ASKED_AGAIN:
            return _replace(line, text=fact["message"], tone="warn", tag="retry", level="turn")
        if fact["kind"] == "react.notice" and fact["code"] == MADE_ANEW:
            return _replace(line, text=fact["message"], tone="warn", tag="retried", level="turn")
        if fact["kind"] == "react.tool.edited":
            return _replace(line, tag="changed by a person")
    return line


def _human_asked(asked: Data, facts: list[Data]) -> Line:
    anew = any(fact["kind"] == "run.approval.lapsed" for fact in facts)
    held = asked.get("holds") or {}
    code = call_text(held["tool"], held["args"]) if held.get("kind") == "tool_call" else ""
    title = words.INTERRUPT[asked["about"]].text
    text = (
        as_asked(asked["title"], asked.get("figures"))
        if asked["about"] == "limit"
        else asked["why"]
        if code or anew
        else whole_title(asked)
    )
    return Line(title, text, code, "hand", "ask", "turn", "asks a person again" if anew else "asks a person")


def _stopped(facts: list[Data], *, ends_replay: bool) -> Line:
    for fact in facts:
        if fact["kind"] == "react.exit":
            text = short(fact["message"])
            reason = fact["reason"]
            tone = {"aborted": "quiet", "fatal_error": "bad", "model_error": "bad", "tool_error": "bad"}.get(
                reason, "warn"
            )
            tag = words.REPLAYED if ends_replay else words.exit_words(reason)
            return Line("Ended", text, icon="stop", tone=tone, level="turn", tag=tag)
    return Line("Ended", icon="stop", level="turn")


_ORDER = {kind: place for place, kind in enumerate(SPEAKING)}


def _plain(kind: str, node: str, edge: str | None) -> Line:
    """A row whose facts say nothing to a reader."""
    match kind:
        case "transition":
            return Line(words.spoken(node).capitalize(), words.spoken(edge or ""), level="all")
        case "recovered":
            return Line(
                "Recovered", "another worker took over the run", icon="alert", tone="warn", level="turn"
            )
        case "pause":
            return Line("Paused", icon="pause", level="turn")
    return Line(words.spoken(kind).capitalize(), icon="dot", level="step")
