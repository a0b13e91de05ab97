"""What going on from an earlier row brings: told from what the run, and people, did after that row.

What is likely to be done and paid for again, what stays done outside, and what people did that counts no more.
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
    """A question that somebody answered after the row."""

    seq: int
    title: str
    verdict: str
    by: str
    channel: str

    @property
    def done(self) -> str:
        """What was answered, as it reads before "by"."""
        word = words.VERDICT_DONE.get(self.verdict)
        return word.text.lower() if word else words.spoken(self.verdict)


@dataclass(frozen=True)
class LostChange:
    """What somebody did after the row to the context before it, and counts no more from there."""

    seq: int
    line: Line
    """What was done, to which summary or row, by whom and why."""


@dataclass(frozen=True)
class Again:
    """What the live rows after a row did: what comes again, if the run goes the same way."""

    model_calls: int
    tokens: int
    cost_usd: float
    tool_calls: int
    outside_calls: int
    """How many of the tool calls changed something outside, or may have."""
    outside: tuple[OutsideEffect, ...]
    """All that stays done: by rows too that the run, or a child of it, has gone back over since."""
    answered: tuple[AnsweredQuestion, ...]
    """What a run that goes back can answer as before: not what nobody answered in time, nor what ended it."""
    lost: tuple[LostChange, ...]
    unknown: str
    """That the log of a restored run may lack side effects; empty where the run is not restored."""

    @property
    def stays_done(self) -> bool:
        """Whether something outside was changed, or may have been."""
        return bool(self.outside or self.unknown)

    @property
    def answered_by_people(self) -> list[AnsweredQuestion]:
        """What a new run can answer as before; the answers of its settings are given to it anyhow."""
        return [one for one in self.answered if one.channel in copying.PEOPLE]

    @property
    def sentence(self) -> str:
        """In one line."""
        calls, tools = _counted(self.model_calls, "model call"), _counted(self.tool_calls, "tool call")
        outside = f", {self.outside_calls} of them with effects outside" if self.outside_calls else ""
        return f"{calls} ({self.tokens:,} tokens, {words.money(self.cost_usd)}), {tools}{outside}."

    @property
    def likely(self) -> str:
        """What it comes to, for who is about to go back."""
        calls, tools = _counted(self.model_calls, "model call"), _counted(self.tool_calls, "tool call")
        return (
            f"Going on from there is likely to cost {words.money(self.cost_usd)} again: {calls}, "
            f"{_counted(self.tokens, 'token')}, {tools}, if it goes the same way."
        )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def again(run: Run, at: int) -> Again:
    """What the run and those that it called did after row `at`, by their own record."""
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
    """What live rows after row `at` asked and was answered, and so on in the child runs that they began.

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
    """Whether the row of these columns asked for something, and was not gone back over."""
    return Exists(Step.objects.filter(run=OuterRef(run), seq=OuterRef(seq), live=True, kind=Step.Kind.ASK))


# --- what people did to the context -------------------------------------------------------------------------------


def _lost_after(run: Run, at: int) -> list[LostChange]:
    """What people did after row `at` to summaries and rows up to it, and a wish that nothing has answered.

    What they did to later ones goes with these; a pin that was taken away again is no loss.
    """
    lost: dict[str, tuple[int, Data]] = {}
    for seq, fact in _notes_after(run, at):
        match fact:
            case {"kind": "conv.summary.edited" | "conv.summary.undone", "summary": about} if about <= at:
                lost[f"row {seq}"] = seq, fact
            case {"kind": "conv.pinned" | "conv.unpinned", "path": path} if _row_of(path) <= at:
                # They take turns, so that a second one leaves the path as it was at the row.
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


# --- what has to be confirmed -------------------------------------------------------------------------------------


def staying(interrupt: Interrupt, to: int | None) -> Again | None:
    """What came after row `to`, where answering with a rollback to it has to be confirmed.

    That is where it leaves something done outside, or undoes what people did to the context. None too where the
    question is closed, or the run can't go to that row: deciding says so.
    """
    if to is None or interrupt.status != Interrupt.Status.PENDING:
        return None
    if not interrupt.run.steps.filter(seq=to, live=True, kind=Step.Kind.TRANSITION).exists():
        return None
    found = again(interrupt.run, to)
    return found if found.stays_done or found.lost else None
