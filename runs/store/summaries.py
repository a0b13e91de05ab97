"""Whether what a log says of summaries fits together: ranges, asks, versions. A part of `verify`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runs.engine.effects import EFFECT, Compaction
from runs.engine.facts import RangeSummarised, Rewound, SummaryEdited, SummaryUndone
from runs.engine.machine import Machine
from runs.models import Run, Step

_NO_MOVE = ("note", "decision", "limit", "pause", "recovered")
"""Rows that people and the runtime add between a move and the next."""


def flaws(run: Run, machine: Machine, kinds: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Each row that does not fit, with the reason. `kinds` has the kind of every row."""
    summaries: dict[int, RangeSummarised] = {}
    changes: list[tuple[int, SummaryEdited | SummaryUndone]] = []
    rows = run.steps.filter(kind__in=(Step.Kind.COMPACTION, Step.Kind.NOTE, Step.Kind.REWIND))
    for seq, kind, text in rows.order_by("seq").values_list("seq", "kind", "facts_json"):
        made = False
        for fact in machine.facts.validate_json(text):
            match fact:
                case Rewound(to_seq=to):
                    summaries = {row: summary for row, summary in summaries.items() if row <= to}
                    changes = [(row, change) for row, change in changes if row <= to]
                case RangeSummarised():
                    made = True
                    if kind != Step.Kind.COMPACTION:
                        yield seq, "it summarises, and is no compaction"
                    if why := _range_flaw(seq, fact, summaries) or _ask_flaw(run, seq, fact, kinds):
                        yield seq, why
                    summaries[seq] = fact
                case SummaryEdited() | SummaryUndone():
                    if why := _change_flaw(fact, summaries, changes):
                        yield seq, why
                    changes.append((seq, fact))
        if kind == Step.Kind.COMPACTION and not made:
            yield seq, "it is a compaction, and summarises nothing"


def _range_flaw(seq: int, made: RangeSummarised, summaries: Mapping[int, RangeSummarised]) -> str:
    if not 1 <= made.first <= made.last < seq:
        return f"its summary is of rows {made.first} to {made.last}"
    if made.tokens_before < 1 or made.tokens_after < 1:
        return "its summary counts no tokens"
    if any(not made.first <= row <= made.last for row in made.kept):
        return "its summary leaves rows alone that are not in its range"
    earlier = summaries.get(made.updates)
    if made.updates and earlier is None:
        return f"its summary carries on row {made.updates}, which is no live compaction"
    if earlier is not None and not (made.first <= earlier.first and earlier.last <= made.last):
        return f"its summary does not reach over all that the one of row {made.updates} stands for"
    return ""


def _ask_flaw(run: Run, seq: int, made: RangeSummarised, kinds: Mapping[int, str]) -> str:
    """The move before it asked for just this summary."""
    before = next((row for row in range(seq - 1, 0, -1) if kinds.get(row) not in _NO_MOVE), 0)
    request = run.exchanges.filter(seq=before).values_list("request_json", flat=True).first()
    asked = EFFECT.validate_json(request) if request and kinds.get(before) == Step.Kind.ASK else None
    if not isinstance(asked, Compaction):
        return "the move before its summary did not ask for one"
    same = ("first", "last", "updates", "kept", "tokens_before")
    if any(getattr(asked, name) != getattr(made, name) for name in same):
        return f"its summary is not the one that row {before} asked for"
    return ""


def _change_flaw(
    change: SummaryEdited | SummaryUndone,
    summaries: Mapping[int, RangeSummarised],
    changes: list[tuple[int, SummaryEdited | SummaryUndone]],
) -> str:
    seq = change.summary
    if seq not in summaries:
        return f"it changes the summary of row {seq}, which is no live compaction"
    before = [one for _, one in changes if one.summary == seq]
    if any(isinstance(one, SummaryUndone) for one in before):
        return f"it changes the summary of row {seq}, which was taken back"
    if isinstance(change, SummaryEdited) and change.version != len(before) + 2:
        return f"its version of the summary of row {seq} is {change.version}, after {len(before) + 1}"
    return ""
