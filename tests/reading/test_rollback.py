"""What is told before a run goes back: what comes again, what stays done, and what of people's counts no more."""

from __future__ import annotations

import json

import pytest

from runs import actions
from runs.engine.timeline import folded
from runs.models import Run
from runs.reading.rollback import again
from runs.store import loading
from tests.compacting import RIGHT, bob, compacted_run, newest, read_on
from tests.running import decide, transitions

pytestmark = pytest.mark.usefixtures("every_run_verifies")


def changed_since(run: Run, at: int) -> set[str]:
    """The summaries and pins up to row `at` that are otherwise now than they were there, and a wish that came since."""
    blocks = loading.context_blocks(run)
    then, now = folded(block for block in blocks if block.seq <= at), folded(blocks)
    versions = {
        f"su:{seq} {what}"
        for seq, summary in then.summaries.items()
        for what in ("version", "undone")
        if getattr(summary, what) != getattr(now.summaries[seq], what)
    }
    pins = {path for path in {*then.pins} ^ {*now.pins} if int(path.partition(":")[2]) <= at}
    wished = now.wanted is not None and now.wanted != then.wanted
    return versions | pins | ({"wish"} if wished else set())


def told_since(run: Run, at: int) -> set[str]:
    """What is told of the same, by the facts of the rows that are named."""
    told = set()
    for change in again(run, at).lost:
        facts = json.loads(run.steps.get(seq=change.seq).facts_json)
        (fact,) = (fact for fact in facts if fact["kind"] != "run.summary")
        match fact["kind"]:
            case "conv.summary.edited":
                told.add(f"su:{fact['summary']} version")
            case "conv.summary.undone":
                told.add(f"su:{fact['summary']} undone")
            case "conv.pinned" | "conv.unpinned":
                told.add(fact["path"])
            case "conv.compaction.wanted":
                told.add("wish")
    return told


def lost_from_each_row(run: Run) -> list[set[str]]:
    """What is told before going back to each row; the same as what the two contexts differ in."""
    rows = [0, *transitions(run)]
    for at in rows:
        assert told_since(run, at) == changed_since(run, at), f"back to row {at}"
    return [told_since(run, at) for at in rows]


def test_what_is_told_to_count_no_more_is_what_the_context_there_lacks() -> None:
    run, reviewer = compacted_run(), bob()
    first = newest(run).seq
    summary, row = f"su:{first}", f"st:{transitions(run, 'executed')[-1]}"
    assert not any(lost_from_each_row(run)), "nobody did anything yet"
    actions.edit_summary(run, seq=first, version=1, text=RIGHT, reason="A digit.", by=reviewer)
    actions.pin(run, path=summary, by=reviewer)
    actions.pin(run, path=row, by=None)
    before, *_, last = lost_from_each_row(run)
    assert (before, last) == (set(), {f"{summary} version", summary, row})

    decide(run, "approve")
    read_on(run)
    actions.edit_summary(run, seq=first, version=2, text="Paid twice.", reason="Again.", by=None)
    actions.unpin(run, path=summary, by=reviewer)
    lost = lost_from_each_row(run)
    assert {f"{summary} version", row} in lost, "a pin that was taken away again is no loss"
    assert lost[-1] == {f"{summary} version", summary}, "from here it would be pinned again"

    actions.undo_summary(run, seq=newest(run).seq, reason="It is wrong.", by=reviewer)
    actions.compact_now(run, by=reviewer, reason="It is long.")
    assert {f"su:{newest(run).seq} undone", "wish"} <= lost_from_each_row(run)[-1]
    decide(run, "approve")
    read_on(run)
    lost_from_each_row(run)


def test_every_correction_is_told_with_who_made_it_and_why() -> None:
    run = compacted_run()
    seq, at, head = newest(run).seq, transitions(run)[-1], run.head
    actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=bob())
    actions.edit_summary(run, seq=seq, version=2, text="Paid twice.", reason="Again.", by=None)
    assert [(change.seq, change.line.plain) for change in again(run, at).lost] == [
        (head + 1, f"Summary corrected: step {seq}, version 2, by bob: “A digit.”"),
        (head + 2, f"Summary corrected: step {seq}, version 3, by the operator: “Again.”"),
    ]


def test_what_the_run_went_back_over_is_not_told_again() -> None:
    run = compacted_run()
    at = transitions(run)[-1]
    actions.edit_summary(run, seq=newest(run).seq, version=1, text=RIGHT, reason="A digit.", by=None)
    assert len(again(run, at).lost) == 1
    actions.rewind(run, to=at, by=None)
    assert again(run, at).lost == ()
