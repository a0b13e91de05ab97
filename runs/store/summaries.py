"""Check that a log's account of summaries fits together: ranges, asks, versions. A part of `verify`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from runs.engine.effects import EFFECT, Compaction
from runs.engine.facts import Fact, RangeSummarised, Rewound, SummaryEdited, SummaryUndone
from runs.models import Exchange, Step

_NO_MOVE = ("note", "decision", "limit", "pause", "recovered")
"""Kinds of steps that people and the runtime add between two moves."""


ACTING = ("compaction", "note", "rewind")
"""Kinds of steps whose facts make, change or revert summaries."""


def flaws(
    rows: Iterable[tuple[int, tuple[Fact, ...]]], kinds: Mapping[int, str], exchanges: Mapping[int, Exchange]
) -> Iterator[tuple[int, str]]:
    """Yield each of the acting `rows` that does not fit, with the reason. `kinds` has the kind of every step."""
    summaries: dict[int, RangeSummarised] = {}
    changes: list[tuple[int, SummaryEdited | SummaryUndone]] = []
    for seq, facts in rows:
        kind, made = kinds[seq], False
        for fact in facts:
            match fact:
                case Rewound(to_seq=to):
                    summaries = {row: summary for row, summary in summaries.items() if row <= to}
                    changes = [(row, change) for row, change in changes if row <= to]
                case RangeSummarised():
                    made = True
                    if kind != Step.Kind.COMPACTION:
                        yield seq, "it summarises but is not a compaction"
                    if why := _range_flaw(seq, fact, summaries) or _ask_flaw(seq, fact, kinds, exchanges):
                        yield seq, why
                    summaries[seq] = fact
                case SummaryEdited() | SummaryUndone():
                    if why := _change_flaw(fact, summaries, changes):
                        yield seq, why
                    changes.append((seq, fact))
        if kind == Step.Kind.COMPACTION and not made:
            yield seq, "it is a compaction but summarises nothing"


def _range_flaw(seq: int, made: RangeSummarised, summaries: Mapping[int, RangeSummarised]) -> str:
    if not 1 <= made.first <= made.last < seq:
        return f"its summary is of steps {made.first} to {made.last}"
    if made.tokens_before < 1 or made.tokens_after < 1:
        return "its summary counts no tokens"
    if any(not made.first <= row <= made.last for row in made.kept):
        return "its summary keeps steps outside its range"
    earlier = summaries.get(made.updates)
    if made.updates and earlier is None:
        return f"its summary continues step {made.updates}, which is not a live compaction"
    if earlier is not None and not (made.first <= earlier.first and earlier.last <= made.last):
        return f"its summary does not cover the range of step {made.updates}"
    return ""


def _ask_flaw(
    seq: int, made: RangeSummarised, kinds: Mapping[int, str], exchanges: Mapping[int, Exchange]
) -> str:
    """Return why the move before it did not ask for just this summary; empty if it did."""
    before = next((row for row in range(seq - 1, 0, -1) if kinds.get(row) not in _NO_MOVE), 0)
    found = exchanges.get(before)
    asked = EFFECT.validate_json(found.request_json) if found and kinds.get(before) == Step.Kind.ASK else None
    if not isinstance(asked, Compaction):
        return "the move before did not ask for its summary"
    same = ("first", "last", "updates", "kept", "tokens_before")
    if any(getattr(asked, name) != getattr(made, name) for name in same):
        return f"its summary is not the one that step {before} asked for"
    return ""


def _change_flaw(
    change: SummaryEdited | SummaryUndone,
    summaries: Mapping[int, RangeSummarised],
    changes: list[tuple[int, SummaryEdited | SummaryUndone]],
) -> str:
    seq = change.summary
    if seq not in summaries:
        return f"it changes the summary of step {seq}, which is not a live compaction"
    before = [one for _, one in changes if one.summary == seq]
    if any(isinstance(one, SummaryUndone) for one in before):
        return f"it changes the summary of step {seq}, which was reverted"
    if isinstance(change, SummaryEdited) and change.version != len(before) + 2:
        return f"its version of the summary of step {seq} is {change.version}, after {len(before) + 1}"
    return ""
