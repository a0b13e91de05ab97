"""The consequences of going on from an earlier step, from the run's and people's actions after it.

Likely repeated work and costs, lasting side effects, and people's changes that no longer count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from django.db.models import Exists, OuterRef

from runs.models import Exchange, Interrupt, Run, Step
from runs.reading import words
from runs.reading.inspector import OutsideEffect, outside_effects_after
from runs.reading.phrases import Data, Line
from runs.reading.questions import titles_of
from runs.reading.restored import unknown_of
from runs.reading.speaking import FIRST
from runs.store import after_row, copying, loading


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question answered after the step."""

    seq: int
    title: str
    verdict: str
    by: str
    channel: str

    @property
    def done(self) -> str:
        """Return the answer, as it reads before "by"."""
        word = words.VERDICT_DONE.get(self.verdict)
        return word.text.lower() if word else words.spoken(self.verdict)


@dataclass(frozen=True)
class LostChange:
    """A person's change after the step to the context before it, which is lost."""

    seq: int
    line: Line
    """The change: by whom, to which summary or step, and why."""


@dataclass(frozen=True)
class Again:
    """The work of the live steps after a step: it is repeated if the run goes the same way."""

    model_calls: int
    tokens: int
    cost_usd: float
    tool_calls: int
    outside_calls: int
    """How many of the tool calls had side effects, or possible ones."""
    outside: tuple[OutsideEffect, ...]
    """All lasting side effects: by rolled-back steps too, of the run or its children."""
    answered: tuple[AnsweredQuestion, ...]
    """Answers to keep in a rollback: not expired questions, nor the answer that ended the run."""
    lost: tuple[LostChange, ...]
    unknown: str
    """The note that the log of a restored run may lack side effects; empty if the run is not restored."""

    @property
    def stays_done(self) -> bool:
        """Return True if there were side effects, or possible ones."""
        return bool(self.outside or self.unknown)

    @property
    def answered_by_people(self) -> list[AnsweredQuestion]:
        """Return the answers that a new run can keep; it gets those of its settings anyhow."""
        return [one for one in self.answered if one.channel in copying.PEOPLE]

    @property
    def sentence(self) -> str:
        """Return the consequences in one line."""
        calls, tools = _counted(self.model_calls, "model call"), _counted(self.tool_calls, "tool call")
        outside = f", {self.outside_calls} of them with side effects" if self.outside_calls else ""
        return f"{calls} ({self.tokens:,} tokens, {words.money(self.cost_usd)}), {tools}{outside}."

    @property
    def likely(self) -> str:
        """Return the likely cost, for a person about to roll back."""
        calls, tools = _counted(self.model_calls, "model call"), _counted(self.tool_calls, "tool call")
        return (
            f"Estimated to add: {words.money(self.cost_usd)} ({calls}, "
            f"{_counted(self.tokens, 'token')}, {tools}), if the run repeats its steps."
        )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def again(run: Run, at: int) -> Again:
    """Return the actions of the run and its descendants after step `at`, by their own record."""
    done = _live_asks_after(run, at)
    models = [one for one in done if one.kind in ("model_call", "compaction") and one.nth]
    calls = {(one.run_id, one.seq) for one in done if one.kind in ("tool_call", "child_run")}
    outside = outside_effects_after(run, at)
    given = list(
        after_row.answered_after(run, at, (*copying.PEOPLE, copying.SETTINGS)).select_related("interrupt")
    )
    titles = titles_of([one.interrupt for one in given])
    return Again(
        model_calls=len(models),
        tokens=sum(one.input_tokens + one.output_tokens for one in models),
        cost_usd=sum(one.cost_usd for one in models),
        tool_calls=len(calls),
        outside_calls=sum((one.run.pk, one.seq) in calls for one in outside),
        outside=tuple(outside),
        answered=tuple(
            AnsweredQuestion(
                one.interrupt.seq, titles[one.interrupt_id], one.verdict, one.by_name, one.channel
            )
            for one in given
        ),
        lost=tuple(_lost_after(run, at)),
        unknown=unknown_of(run),
    )


def _live_asks_after(run: Run, at: int) -> list[Exchange]:
    """Return the answered asks of live steps after step `at`, and so on in the child runs that they began.

    A generation at a time, however many there are.
    """
    live = after_row.live_asks(run, at)
    found = list(run.exchanges.filter(seq__in=live).exclude(status="asked"))
    seqs = set(live)
    called = [child for seq, child in after_row.called_after(run, at).items() if seq in seqs]
    while called:
        found += Exchange.objects.filter(_is_live("run", "seq"), run__in=called).exclude(status="asked")
        called = list(Run.objects.filter(_is_live("parent", "parent_seq"), parent__in=called))
    return found


def _is_live(run: str, seq: str) -> Exists:
    """Return the query condition that the step in these columns is an ask and was not rolled back."""
    return Exists(Step.objects.filter(run=OuterRef(run), seq=OuterRef(seq), live=True, kind=Step.Kind.ASK))


# --- people's changes to the context --------------------------------------------------------------------------------


def _lost_after(run: Run, at: int) -> list[LostChange]:
    """Return people's changes after step `at` to summaries and steps up to it, and an unanswered compaction request.

    Changes to later ones go with these; a removed pin is no loss.
    """
    lost: dict[str, tuple[int, Data]] = {}
    for seq, fact in _notes_after(run, at):
        match fact:
            case {"kind": "conv.summary.edited" | "conv.summary.undone", "summary": about} if about <= at:
                lost[f"row {seq}"] = seq, fact
            case {"kind": "conv.pinned" | "conv.unpinned", "path": path} if _row_of(path) <= at:
                # They take turns, so that a second one leaves the path as it was at the step.
                if lost.pop(path, None) is None:
                    lost[path] = seq, fact
            case {"kind": "conv.compaction.wanted"}:
                lost["wish"] = seq, fact
    if run.finished or not loading.compaction_wanted(run):
        lost.pop("wish", None)
    found = sorted(lost.values(), key=itemgetter(0))
    return [LostChange(seq, FIRST[fact["kind"]](fact)) for seq, fact in found]


def _notes_after(run: Run, at: int) -> Iterator[tuple[int, Data]]:
    notes = run.steps.filter(seq__gt=at, live=True, kind=Step.Kind.NOTE).order_by("seq")
    for seq, text in notes.values_list("seq", "facts_json"):
        for fact in json.loads(text):
            yield seq, fact


def _row_of(path: str) -> int:
    return int(path.partition(":")[2])


# --- confirmations --------------------------------------------------------------------------------------------------


def staying(interrupt: Interrupt, to: int | None) -> Again | None:
    """Return the actions after step `to`, if a rollback to it has to be confirmed.

    That is if it leaves side effects, or undoes people's changes to the context. None if the question is closed, or the
    run can't be rolled back to that step: deciding says so.
    """
    if to is None or interrupt.status != Interrupt.Status.PENDING:
        return None
    if not interrupt.run.steps.filter(seq=to, live=True, kind=Step.Kind.TRANSITION).exists():
        return None
    found = again(interrupt.run, to)
    return found if found.stays_done or found.lost else None
