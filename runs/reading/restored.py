"""Runs that a restore paused: what each was about to do, or may have done, for somebody to look before it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.dateformat import format as date_text

from runs import driver, store
from runs.adapters.tools import TOOLS
from runs.engine.effects import EFFECT, LET_PASS, ChildRun, ToolCall, call_in, changes_something
from runs.models import Exchange, Interrupt, Run, Step
from runs.reading import words
from runs.reading.limits import as_asked
from runs.reading.phrases import call_text, short
from runs.reading.questions import whole_title
from runs.reading.unattended import may_change_something, unattended, with_kept_answers
from runs.reading.words import Word
from runs.rights import Person, may_steer
from runs.store import (
    MAY_HAVE_HAPPENED,
    doubted_by_restore,
    ended_life,
    paused_by_restore,
    pausers_before,
    urgent_first,
)

MAKES_IT = "it makes this call."

AT_ONCE = 100
"""Runs that a page shows, and lets go on, at a time."""


@dataclass(frozen=True)
class InFlight:
    """Where a run stands: what it is at, and what it does when it is resumed."""

    word: Word
    code: str
    """The call, where it is at one."""
    text: str
    """Else what it is at."""
    then: str
    effects: Word | None = None
    """What the call touches, where it touches anything."""
    acts: bool = False
    """It makes that call as soon as it is resumed, and a second one would be another deed."""


@dataclass(frozen=True)
class RestoredRun:
    """A run that the restore paused."""

    run: Run
    at: InFlight
    may_have_happened: bool
    """A call was begun that changes something, and no answer is known."""
    paused_before: str
    """Who had paused it before the restore; empty where nobody had."""
    unattended: tuple[str, ...]
    """Tools that it may call without asking, and whose calls since the backup it would make again."""
    mine: bool
    """Whether the reader may let it go on."""
    no_model: str = ""
    """Why its model can't be called from here, so that it would end at its next call; empty where it can."""

    @property
    def hold(self) -> str:
        """Why it is better looked at first; empty where it may go on with all others."""
        lost = f"{self.at.code} may have happened" if self.may_have_happened else ""
        paused = f"{self.paused_before} had paused it before" if self.paused_before else ""
        again = "" if lost or paused else self.again
        no_model = f"it would end as failed: {self.no_model.removesuffix('.')}" if self.no_model else ""
        return ", and ".join(filter(None, (lost, paused, again, no_model)))

    @property
    def again(self) -> str:
        """What it may do a second time without that anybody is asked; empty where nothing."""
        if self.at.acts:
            return f"it makes {self.at.code} next, and may have made that call since the backup"
        if not self.unattended:
            return ""
        return f"it may call {' or '.join(self.unattended)} unasked, and may have done so since the backup"


def restored_of(user: Person) -> QuerySet[Run]:
    """The runs that a restore paused and `user` may see, those first that may have done something."""
    found = urgent_first(paused_by_restore(Run.objects.all() if user is None else Run.objects.for_user(user)))
    return found.select_related("owner", "script").defer("answer")


def restored_views(runs: Sequence[Any], user: Person) -> list[RestoredRun]:
    """At most AT_ONCE of them, as they are shown."""
    waits = _waits_of(runs)
    numbers = [run.pk for run in runs]
    before, kept = pausers_before(numbers), with_kept_answers(numbers)
    no_model = driver.why_not(run.model for run in runs if not run.script_json)
    site = store.site_rules()
    return [
        RestoredRun(
            run=run,
            at=in_flight(run, waits.get(run.pk)),
            may_have_happened=run.urgency == MAY_HAVE_HAPPENED,
            paused_before=before.get(run.pk, ""),
            unattended=unattended(run, site, kept=run.pk in kept),
            mine=may_steer(user, run),
            no_model="" if run.script_json else no_model.get(run.model, ""),
        )
        for run in runs
    ]


def all_restored(user: Person) -> Iterator[RestoredRun]:
    """Every one of them."""
    runs = list(restored_of(user))
    for first in range(0, len(runs), AT_ONCE):
        yield from restored_views(runs[first : first + AT_ONCE], user)


def why_restored(run: Run) -> str:
    """What the restore that paused the run said; empty where the run is not paused by one."""
    if not paused_by_restore(Run.objects.filter(pk=run.pk)).exists():
        return ""
    facts = json.loads(run.steps.filter(kind=Step.Kind.PAUSE).latest("seq").facts_json)
    return str(facts[0]["message"])


def unknown_of(run: Run) -> str:
    """That the run may have done more than its log has, for a restore has ended a life of it; empty where none has.

    Empty too where it has no tool that changes something.
    """
    ended, made_at = ended_life(run)
    if not ended or not may_change_something(run):
        return ""
    since = f"{_backup_of(made_at)}. What was done between that and the restore is not in the log: calls that change "
    return f"{since}something may have happened, stay done, and may be made again."


def doubts_of(questions: Iterable[Interrupt]) -> dict[Any, str]:
    """Those that still wait, and may have been answered after the backup that the site comes from: the warning."""
    waiting = [one for one in questions if one.status == Interrupt.Status.PENDING]
    return {key: _doubt(made_at) for key, made_at in doubted_by_restore(waiting).items()}


def _doubt(made_at: datetime | None) -> str:
    since = "then" if made_at else "it was made"
    return f"{_backup_of(made_at)}. This may have been answered, and done, since {since}."


def _backup_of(made_at: datetime | None) -> str:
    which = f"the backup of {date_text(made_at, 'j M, H:i')} UTC" if made_at else "a backup"
    return f"This site was restored from {which}"


def _waits_of(runs: Iterable[Any]) -> dict[int, Exchange]:
    """The exchange of each one's last move, where that asked."""
    wanted = Q(pk__in=())
    for run in runs:
        wanted |= Q(run=run.pk, seq=run.move)
    return {exchange.run_id: exchange for exchange in Exchange.objects.filter(wanted)}


def in_flight(run: Run, exchange: Exchange | None) -> InFlight:
    """Where the run stands; `exchange` is what its last move asked of the world, where it asked."""
    if exchange is None:
        return InFlight(
            Word("Between steps", "dot"), "", f"at {words.spoken(run.node)}", "it goes on from there."
        )
    asked = json.loads(exchange.request_json)
    answer = json.loads(exchange.answer_json) if exchange.answer_json else None
    match exchange.kind:
        case "tool_call":
            return _called(run, asked, exchange.status)
        case "human_call":
            return _decided(asked, answer) if answer else _asking(asked)
    if answer is not None:
        return InFlight(Word("Answered", "check", "good"), "", _what(asked), "it goes on with the answer.")
    if exchange.kind == "child_run":
        return InFlight(Word("Waits for a child", "clock"), "", _what(asked), "it waits on.")
    return InFlight(Word("Next", "model"), "", _what(asked), "it asks, and pays, again.")


def _called(run: Run, asked: dict[str, Any], status: str) -> InFlight:
    code = call_text(asked["tool"], asked["args"])
    touches = _touches(asked["effects"])
    match status:
        case Exchange.Status.ANSWERED:
            return InFlight(
                Word("Answered", "check", "good"), code, "", "it goes on with the answer.", touches
            )
        case Exchange.Status.STARTED if asked.get("idempotent"):
            then = "it makes the call again under the same key, by which the other side can tell."
            return InFlight(words.INTERRUPT["may_have_happened"], code, "", then, touches)
        case Exchange.Status.STARTED:
            then = "a person is asked whether it happened: the tool has no way to tell."
            if _can_tell(run, asked["tool"]):
                then = "the tool is asked whether it happened; where it can’t tell, a person is."
            return InFlight(words.INTERRUPT["may_have_happened"], code, "", then, touches)
    acts = touches is not None and not asked.get("idempotent")
    return InFlight(Word("Next", "tool"), code, "", MAKES_IT, touches, acts)


def _can_tell(run: Run, name: str) -> bool:
    """Whether the tool is there and has a way to tell what became of a call, and no script plays it."""
    tool = TOOLS.get(name)
    if tool is None or tool.happened is None:
        return False
    script = run.script_json
    return not script or name not in (json.loads(script).get("tools") or {})


def _decided(asked: dict[str, Any], answer: dict[str, Any]) -> InFlight:
    """A person has answered, and what they said is still to be done."""
    code, text, touches = _held(asked)
    word = words.VERDICT_DONE.get(answer["verdict"], Word("Answered", "check", "good"))
    call = _call_in(asked)
    if call is None or answer["verdict"] not in (*LET_PASS, "top_up"):
        return InFlight(word, code, text, "it does what was answered.", touches)
    if answer["verdict"] == "edit" and answer.get("args") is not None:
        code = call_text(call.tool, answer["args"])
    acts = touches is not None and isinstance(call, ToolCall) and not call.idempotent
    return InFlight(word, code, text, MAKES_IT, touches, acts)


def _asking(asked: dict[str, Any]) -> InFlight:
    code, text, touches = _held(asked)
    then = "it waits for the answer. It may have been answered, and done, since the backup was made."
    return InFlight(words.INTERRUPT[asked["about"]], code, text, then, touches)


def _held(asked: dict[str, Any]) -> tuple[str, str, Word | None]:
    """The call that a question holds back, else what is asked."""
    call = _call_in(asked)
    code, touches = (call_text(call.tool, call.args), _touches(call.effects)) if call else ("", None)
    if asked["about"] == "limit":
        return code, as_asked(asked["title"], asked.get("figures")), touches
    return code, "" if code else short(whole_title(asked)), touches


def _call_in(asked: dict[str, Any]) -> ToolCall | ChildRun | None:
    """The call that a question holds back."""
    held = asked.get("holds")
    return call_in(EFFECT.validate_python(held)) if held else None


def _touches(effects: str) -> Word | None:
    return words.EFFECTS[effects] if changes_something(effects) else None


def _what(asked: dict[str, Any]) -> str:
    match asked["kind"]:
        case "child_run":
            return f"the child run {asked['name']}: {short(asked['goal'], 120)}"
        case "compaction":
            return f"a summary of steps {asked['first']}–{asked['last']}"
    return f"a call of the model for a {words.spoken(asked['role'])}"
