"""One step in words: a title, a sentence, a piece of code. Timeline, export and commands show the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runs.engine.facts import FOUND_OUT, MADE_ANEW
from runs.engine.presentation import Beside, Presentation, Reads
from runs.engine.reply import ONE_ACTION
from runs.engine.timeline import NO_COMPACTION, WAITS
from runs.machines import CATALOGUE
from runs.reading import words
from runs.reading.limits import as_asked
from runs.reading.phrases import Data, Line, call_text, short
from runs.reading.questions import whole_title
from runs.reading.speaking import FIRST, exited, places_of, speaking

ASKED_AGAIN = {"retried", "context_overflow", "reply_length", "reply_content_filter"}
"""Codes of the notice on a retried model call."""


BY_SCRIPT = "in a script"
"""Marks a call that a script makes, and its result."""

NOTHING_SPECIAL = Reads(None)


def line_of(
    kind: str,
    node: str,
    edge: str | None,
    facts: list[Data],
    asked: Data | None,
    *,
    machine: str,
    ends_replay: bool = False,
) -> Line:
    """Return the line of a step. `asked` is the effect of its exchange, for steps of kind `ask`; see
    `Run.ends_replay`."""
    row = _Row(machine, facts)
    match kind:
        case "ask" if asked is not None:
            return _asked(asked, row)
        case "stop":
            return _stopped(facts, ends_replay=ends_replay)
    return row.told() or _plain(kind, node, edge)


class _Row:
    """The facts of a step, in the words of its machine."""

    def __init__(self, machine: str, facts: list[Data]) -> None:
        self.facts = facts
        self.presentation = CATALOGUE[machine].presentation if machine in CATALOGUE else Presentation()
        self._speaking = speaking(machine)
        self._places = places_of(machine)

    def told(self, of: Callable[[Data], bool] = lambda fact: True) -> Line | None:
        """Return the line of the first fact that has one, of those accepted by `of`; None if there is none."""
        found = [fact for fact in self.facts if fact["kind"] in self._places and of(fact)]
        if not found:
            return None
        first = min(found, key=lambda fact: self._places[fact["kind"]])
        return _marked(self._speaking[first["kind"]](first), self, first)

    def reads(self, fact: Data) -> Reads:
        """Return the machine's declaration of how the fact reads; nothing special for a foreign fact."""
        return self.presentation.facts.get(fact["kind"], NOTHING_SPECIAL)

    def beside(self, told: Data) -> list[Beside]:
        """Return the marks left by the other facts."""
        groups: dict[str, list[Data]] = {}
        for fact in self.facts:
            if self.reads(fact).beside and fact["kind"] != told["kind"]:
                groups.setdefault(fact["kind"], []).append(fact)
        marks = [leave(facts) for facts in groups.values() if (leave := self.reads(facts[0]).beside)]
        return [mark for mark in marks if mark is not None]

    def violation(self) -> str:
        """Return the violation noted in the step, in words; empty if there is none."""
        codes = [str(fact.get("code", "")) for fact in self.facts if fact["kind"] == "react.notice"]
        return self.presentation.violation(codes[-1]) if codes else ""


def _marked(line: Line, row: _Row, told: Data) -> Line:
    """Return the line of the fact `told`, with a tag for the step's other facts: an answer, the end."""
    facts = row.facts
    kinds = {fact["kind"]: fact for fact in facts}
    if earlier := [fact for fact in facts if fact["kind"] == "conv.run"]:
        return _continuing(earlier)
    marks = row.beside(told)
    if violation := row.violation():
        line = _replace(line, tone="warn", tag=f"violation: {violation}")
    elif kinds.get("react.notice", {}).get("code") == FOUND_OUT:
        line = _tagged(line, "learned by asking the tool")
    else:
        line = _tagged(line, *(short(mark.tag, 66) for mark in marks if not mark.alone))
    if any(fact.get("code") == ONE_ACTION for fact in facts):
        line = _replace(_tagged(line, "rest ignored"), tone="warn")
    for mark in marks:
        if mark.alone:
            line = _replace(line, tag=mark.tag, tone=mark.tone or line.tone)
    ended = kinds.get("react.exit")
    if ended is not None and line.level == "all":
        return exited(ended)
    if ended is not None and told["kind"] != "react.exit":
        return _replace(_tagged(line, f"ends: {words.exit_words(ended['reason'])}"), level="turn")
    if (
        "run.answer" in kinds
        and told.get("error") is None
        and (told["kind"] == "react.tool.result" or row.reads(told).yields)
    ):
        return Line(
            "Final answer", short(kinds["run.answer"]["text"]), icon="flag", tone="good", level="turn"
        )
    return line


def _continuing(earlier: list[Data]) -> Line:
    """Return the line of the run directly before this one, with the number of earlier runs as its tag."""
    return _replace(
        FIRST["conv.run"](earlier[-1]), tag=f"{words.plural(len(earlier), 'run')} before this one"
    )


def _tagged(line: Line, *tags: str) -> Line:
    return _replace(line, tag=", ".join(filter(None, (line.tag, *tags))))


def _replace(line: Line, **changes: Any) -> Line:
    return Line(**{**line.__dict__, **changes})


# --- asks -------------------------------------------------------------------------------------------------------


def _asked(asked: Data, row: _Row) -> Line:
    facts = row.facts
    match asked["kind"]:
        case "model_call":
            return _model_asked(asked, row)
        case "tool_call":
            if decided := row.told(lambda fact: row.reads(fact).reply):
                return decided  # a call on the run's own record needs no line of its own before it
            if asked.get("resumes") and (heard := row.told(lambda fact: "script" in fact)):
                return _tagged(heard, BY_SCRIPT)
            code = call_text(asked["tool"], asked["args"])
            return _called(asked, Line("Calls", code=code, icon="tool", tone="call"), facts)
        case "child_run":
            line = Line("Starts child", short(asked["goal"]), asked["name"], "child", "call")
            return _called(asked, line, facts)
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


def _called(asked: Data, line: Line, facts: list[Data]) -> Line:
    """Return the line of a call, with a mark where a script makes it."""
    line = _retried(line, facts)
    return _tagged(line, BY_SCRIPT) if asked.get("script") else line


def _model_asked(asked: Data, row: _Row) -> Line:
    facts = row.facts
    if changed := row.told(lambda fact: fact["kind"] == "run.model"):
        return changed
    if again := row.told(lambda fact: row.reads(fact).at_ask == "again"):
        return _replace(again, tag="retry")
    codes = {fact["code"] for fact in facts if fact["kind"] == "react.notice"}
    speaking_codes = {*NO_COMPACTION, WAITS, *row.presentation.speaking_notices}
    if codes & speaking_codes and (noted := row.told(lambda fact: fact["kind"] == "react.notice")):
        return noted
    told = row.told(lambda fact: row.reads(fact).at_ask == "told")
    if told and not codes & ASKED_AGAIN:
        return told
    role = "the model" if asked["role"] == "decision" else f"the model for a {words.spoken(asked['role'])}"
    return _retried(Line("Asks", role, icon="model", level="all"), facts)


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
    decides = held.get("kind") == "tool_call" and asked["about"] != "question"
    code = call_text(held["tool"], held["args"]) if decides else ""
    title = words.INTERRUPT[asked["about"]].text
    text = (
        as_asked(asked["title"], asked.get("figures"))
        if asked["about"] == "limit"
        else asked["why"]
        if code or anew
        else whole_title(asked)
    )
    line = Line(title, text, code, "hand", "ask", "turn", "asks a person again" if anew else "asks a person")
    return _tagged(line, BY_SCRIPT) if held.get("script") else line


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


def _plain(kind: str, node: str, edge: str | None) -> Line:
    """Return the line of a step whose facts have no words."""
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
