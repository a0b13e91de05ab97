"""What people do to a run's context: correct, pin, take back, compact now; seen in the prompts that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from runs import actions, driver
from runs.engine.timeline import STUB
from runs.models import Exchange, Run, Step
from runs.reading.compactions import compaction_view, compactions, in_state
from runs.reading.exporting import export
from runs.reading.rows import row_views
from runs.signals import on_after_compaction
from runs.store import errors, loading, verifying
from tests.cast import bob, person, signed_in, stranger
from tests.compacting import HELD, RIGHT, WRONG, compacted_run, long_run, newest, read_on, searches
from tests.launching import FINAL
from tests.running import decide, transitions, work
from tests.workers import die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def next_prompt(run: Run) -> str:
    """The held call is let pass; the next prompt."""
    decide(run, "approve")
    return next(prompt for prompt in read_on(run) if "Summarise its earlier rounds" not in prompt)


def said(run: Run) -> list[str]:
    return [row.summary for row in row_views(run)]


def context_page(run: Run, owner: User) -> str:
    return str(signed_in(owner).get(f"/runs/{run.pk}/context/").content.decode())


# --- correcting ---------------------------------------------------------------------------------------------------


def test_a_correction_is_in_the_next_prompt_and_every_version_is_kept() -> None:
    run = compacted_run()
    seq = newest(run).seq
    reviewer = bob()
    before = newest(run).text
    assert actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=reviewer) == 2
    assert actions.edit_summary(run, seq=seq, version=2, text=f"{RIGHT} Twice.", reason="More.", by=None) == 3
    prompt = next_prompt(run)
    assert f"{RIGHT} Twice." in prompt
    assert before not in prompt
    found = compaction_view(run, seq)
    assert found is not None
    assert [(one.number, one.text, one.by, one.reason) for one in found.versions] == [
        (1, before, "the model", ""),
        (2, RIGHT, "bob", "A digit."),
        (3, f"{RIGHT} Twice.", "the operator", "More."),
    ]
    assert found.text == f"{RIGHT} Twice." and found.version == 3
    assert any("bob" in line and "A digit." in line for line in said(run)), (
        "the timeline says who changed what"
    )


def kept_summary(run: Run) -> str:
    """The newest active summary, as the state of a `ruled` run keeps it."""
    return str(export(Run.objects.get(pk=run.pk))["steps"][-1]["state"]["metadata"]["summary"])


def test_the_state_keeps_the_newest_summary_that_stands() -> None:
    """A correction, a later compaction, and what is taken back change it; a replay comes to the same."""
    run = compacted_run()
    first = newest(run)
    assert kept_summary(run) == WRONG
    actions.edit_summary(run, seq=first.seq, version=1, text=RIGHT, by=bob(), reason="as the invoice says")
    assert kept_summary(run) == RIGHT
    decide(run, "approve")
    read_on(run)
    second = newest(run)
    assert (kept_summary(run), second.carries_on) == ("Done: the second.", first.seq)
    actions.undo_summary(run, seq=second.seq, by=None, reason="it says too little")
    assert kept_summary(run) == RIGHT
    actions.undo_summary(run, seq=first.seq, by=None, reason="this one, too")
    assert kept_summary(run) == ""
    assert actions.replay(run, by=None)[1] is None


def test_a_correction_is_what_a_later_summary_carries_on() -> None:
    run = compacted_run()
    seq = newest(run).seq
    actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=None)
    decide(run, "approve")
    prompts = read_on(run)
    decide(run, "approve")
    prompts += read_on(run)
    summarised = [prompt for prompt in prompts if "Summarise its earlier rounds" in prompt]
    assert RIGHT in summarised[0]
    view = next(one for one in compactions(run) if one.carries_on == seq)
    later = compaction_view(run, view.seq)
    assert later is not None and RIGHT in later.originals[0].text
    assert (later.originals[0].path, later.originals[0].seq) == (f"su:{seq}", seq)


def test_a_rollback_past_a_correction_takes_it_back() -> None:
    run = compacted_run()
    seq, before = newest(run).seq, newest(run).text
    at = transitions(run)[-1]
    actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=None)
    actions.rewind(run, to=at, by=None)
    found = newest(run)
    assert (found.text, found.version, found.state) == (before, 1, "stands")
    assert [(one.number, one.live) for one in found.versions] == [(1, True), (2, False)]
    assert actions.edit_summary(run, seq=seq, version=1, text="Other.", reason="Again.", by=None) == 2
    assert [(one.number, one.live) for one in newest(run).versions] == [(1, True), (2, False), (2, True)]
    read_on(run)
    prompt = next_prompt(run)
    assert "Other." in prompt and RIGHT not in prompt


# --- taking back --------------------------------------------------------------------------------------------------


def test_what_is_taken_back_is_read_again_and_left_alone_while_it_fits() -> None:
    run = long_run(*searches(4), HELD, *searches(1), HELD, *searches(14), HELD, FINAL, limit=4000)
    read_on(run)
    actions.compact_now(run, by=None)
    assert WRONG in next_prompt(run)
    view = newest(run)
    whole = compaction_view(run, view.seq)
    assert whole is not None and len(whole.originals) > 2
    actions.undo_summary(run, seq=view.seq, reason="It is wrong.", by=bob())
    prompt = next_prompt(run)
    assert view.text not in prompt
    for one in whole.originals:
        assert one.text[:60] in prompt
    back = compaction_view(run, view.seq)
    assert back is not None and back.undone is not None
    assert (back.undone.by, back.undone.reason, back.state) == ("bob", "It is wrong.", "undone")
    later = [one for one in compactions(run) if one.seq > view.seq]
    assert later
    assert all(one.first > view.last for one in later), "as long as it fits it is left alone"
    assert any("bob" in line and "It is wrong." in line for line in said(run))


def test_taking_back_a_summary_brings_back_the_one_that_it_carried_on() -> None:
    run = long_run(
        *searches(9), HELD, FINAL, summaries=("Done: the first.", "Done: the second.", "Done: the third.")
    )
    read_on(run)
    views = compactions(run)
    assert len(views) > 1
    earlier, later = views[-2], views[-1]
    assert (earlier.carried_on_by, later.carries_on) == (later.seq, earlier.seq)
    with pytest.raises(actions.NotPossible, match=f"Step {later.seq} continues the summary"):
        actions.edit_summary(run, seq=earlier.seq, version=1, text="x", reason="y", by=None)
    actions.undo_summary(run, seq=later.seq, reason="Too short.", by=None)
    prompt = next_prompt(run)
    assert earlier.text in prompt
    assert later.text not in prompt
    assert compactions(run)[-2].stands or compactions(run)[-2].carried_on_by != later.seq


def test_a_summary_that_is_taken_back_while_the_next_one_is_written_is_not_carried_on() -> None:
    run = long_run(
        *searches(12),
        HELD,
        FINAL,
        summaries=("Done: the first.", "Done: the second.", "Done: the third.", "Done: the fourth."),
    )
    while len(compactions(run)) < 1:
        slice_of(run, driver.Slice(moves=1))
    first = compactions(run)[0]
    took_back: list[int] = []

    def take_back() -> None:
        if compactions(run) and not took_back:
            took_back.append(first.seq)
            actions.undo_summary(run, seq=first.seq, reason="Wrong.", by=None)

    with pytest.raises(errors.Fenced):
        slice_of(run, driver.Slice(moves=999, seconds=60), before=take_back, only="summary")
    run.refresh_from_db()
    work(run)
    assert took_back
    assert all(view.carries_on != first.seq for view in compactions(run))


# --- pinning ------------------------------------------------------------------------------------------------------


def test_a_pinned_row_stays_through_the_next_compactions() -> None:
    run = long_run(*searches(1), HELD, *searches(9), HELD, FINAL)
    read_on(run)
    result = next(
        seq for seq in transitions(run) if "result 0" in Step.objects.get(run=run, seq=seq).facts_json
    )
    actions.pin(run, path=f"st:{result}", by=bob(), reason="The first table.")
    decide(run, "approve")
    prompts = read_on(run)
    assert len(compactions(run)) > 1
    assert "result 0 of" in prompts[-1]
    assert result in newest(run).kept or result < newest(run).first
    assert any("bob" in line and "The first table." in line for line in said(run))
    with pytest.raises(actions.NotPossible, match="pinned already"):
        actions.pin(run, path=f"st:{result}", by=None)
    actions.unpin(run, path=f"st:{result}", by=None)
    with pytest.raises(actions.NotPossible, match="not pinned"):
        actions.unpin(run, path=f"st:{result}", by=None)


def test_a_pinned_summary_is_not_carried_on() -> None:
    run = compacted_run()
    view = newest(run)
    actions.pin(run, path=view.path, by=None)
    assert newest(run).state == "pinned"
    for _ in range(3):
        decide(run, "approve")
        prompts = read_on(run)
    later = [one for one in compactions(run) if one.seq > view.seq]
    assert later
    assert all(one.first > view.last and one.carries_on != view.seq for one in later)
    assert view.text in prompts[-1]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("st:1", "was told nothing"),
        ("st:99999", "was told nothing"),
        ("su:2", "is not a compaction"),
        ("fi:a.txt", "is not a path"),
        ("st:", "is not a path"),
        ("st:٣", "is not a path"),
        ("xx:2", "can't be pinned"),
    ],
)
def test_only_what_the_model_reads_can_be_pinned(path: str, sentence: str) -> None:
    run = compacted_run()
    with pytest.raises(actions.NotPossible, match=sentence):
        actions.pin(run, path=path, by=None)


# --- compact now --------------------------------------------------------------------------------------------------


def test_a_run_without_a_limit_is_compacted_when_a_person_wants_it() -> None:
    run = long_run(limit=None)
    read_on(run)
    assert not compactions(run)
    actions.compact_now(run, by=bob(), reason="It gets dear.")
    with pytest.raises(actions.NotPossible, match="already requested"):
        actions.compact_now(run, by=None)
    assert WRONG in next_prompt(run)
    view = newest(run)
    assert view.wanted_by == "bob"
    assert view.tokens_after < view.tokens_before
    assert any("bob" in line and "It gets dear." in line for line in said(run))
    decide(run, "approve")
    read_on(run)
    assert len(compactions(run)) == 1, "once"


def test_where_nothing_is_old_enough_the_wish_is_answered_with_a_notice() -> None:
    run = long_run(HELD, FINAL, limit=None)
    read_on(run)
    actions.compact_now(run, by=None)
    decide(run, "approve")
    read_on(run)
    assert not compactions(run)
    assert any("Nothing is old enough to compact" in line for line in said(run))
    assert not loading.compaction_wanted(run)


def test_a_wish_waits_for_what_was_taken_back_after_it_and_is_not_used_up() -> None:
    replies = (*searches(4), HELD, HELD, *searches(14), HELD, FINAL)
    run = long_run(*replies, owner=(owner := person("ann", "add_run")), limit=4000)
    read_on(run)
    actions.compact_now(run, by=None)
    next_prompt(run)
    view = compaction_view(run, newest(run).seq)
    assert view is not None
    actions.compact_now(run, by=bob())
    actions.undo_summary(run, seq=view.seq, reason="It is wrong.", by=None)
    page = context_page(run, owner)
    assert "Compaction requested by bob" in page and "before the next model call" not in page
    assert "Compact now</button>" in page
    prompt = next_prompt(run)
    assert all(one.text[:60] in prompt for one in view.originals), "the rows themselves are read"
    assert (
        sum("All steps that are old enough come from a reverted summary" in line for line in said(run)) == 1
    )
    assert not any("Nothing is old enough" in line for line in said(run))
    later = next(one for one in compactions(run) if one.seq > view.seq)
    assert (later.wanted_by, later.first > view.last) == ("bob", True), "granted when other rows are old"
    assert not loading.compaction_wanted(run)


def test_a_wish_after_taking_back_is_for_those_rows_too() -> None:
    run = compacted_run(owner := person("ann", "add_run"))
    view = newest(run)
    actions.compact_now(run, by=None)
    actions.undo_summary(run, seq=view.seq, reason="It is wrong.", by=None)
    actions.compact_now(run, by=bob(), reason="Anew.")
    with pytest.raises(actions.NotPossible, match="already requested"):
        actions.compact_now(run, by=None)
    assert "before the next model call" in context_page(run, owner)
    next_prompt(run)
    later = next(one for one in compactions(run) if one.seq > view.seq)
    assert (later.first, later.wanted_by) == (view.first, "bob")


def test_a_wish_that_came_to_nothing_changes_no_later_prompt() -> None:
    """A run without a limit is neither compacted later, nor are its results left out."""
    run = long_run(HELD, *searches(5), FINAL, limit=None)
    read_on(run)
    actions.compact_now(run, by=None)
    decide(run, "approve")
    prompts = read_on(run)
    assert not compactions(run)
    assert "sent" in prompts[0] and STUB not in "".join(prompts)
    assert all(f"result {number} of" in prompts[-1] for number in range(5))


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_summary_changes_nothing_and_whoever_listens_is_told(text: str) -> None:
    told: list[dict[str, Any]] = []

    def listen(**about: Any) -> None:
        told.append(about)

    run = long_run(*searches(4), HELD, FINAL, summaries=(text,))
    on_after_compaction.connect(listen)
    try:
        read_on(run)
    finally:
        on_after_compaction.disconnect(listen)
    assert not compactions(run)
    assert told and all("error" in about for about in told)


# --- what is refused ----------------------------------------------------------------------------------------------


Deed = Callable[[Run, int, Any], Any]
DEEDS: dict[str, Deed] = {
    "edit": lambda run, seq, by: actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="x", by=by),
    "undo": lambda run, seq, by: actions.undo_summary(run, seq=seq, reason="x", by=by),
    "pin": lambda run, seq, by: actions.pin(run, path=f"su:{seq}", by=by),
    "unpin": lambda run, seq, by: actions.unpin(run, path=f"su:{seq}", by=by),
    "compact": lambda run, seq, by: actions.compact_now(run, by=by),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_who_may_not_changes_nothing(deed: str) -> None:
    owner = person("alice", "add_run")
    run = compacted_run(owner)
    head = run.head
    for somebody in (stranger("charlie"), stranger("dan", "view_run"), stranger("eve", "change_compaction")):
        with pytest.raises(actions.NotAllowed, match="A reviewer can"):
            DEEDS[deed](run, newest(run).seq, somebody)
    run.refresh_from_db()
    assert run.head == head
    if deed != "unpin":
        DEEDS[deed](run, newest(run).seq, owner)
    run.refresh_from_db()
    assert run.head == head + (deed != "unpin")


@pytest.mark.parametrize("deed", DEEDS)
def test_an_ended_run_is_left_as_it_is(deed: str) -> None:
    run = compacted_run()
    seq = newest(run).seq
    actions.abort(run, by=None)
    with pytest.raises(actions.NotPossible, match="has ended already"):
        DEEDS[deed](run, seq, None)


@pytest.mark.parametrize("deed", ["edit", "undo", "pin"])
def test_what_the_run_went_back_over_can_not_be_changed(deed: str) -> None:
    run = compacted_run()
    view = newest(run)
    actions.rewind(run, to=transitions(run)[0], by=None)
    with pytest.raises(actions.NotPossible, match="is not a compaction, or was rolled back"):
        DEEDS[deed](run, view.seq, None)
    assert {one.state for one in compactions(run)} == {"dead"}
    dead = compaction_view(run, view.seq)
    assert dead is not None and dead.originals and dead.text == view.text


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"version": 0}, "You saw version 0 of the summary; it now has version 1"),
        ({"version": 2}, "Read it again"),
        ({"text": " \n"}, "can't be empty"),
        ({"text": "x" * 3201}, "at most 3200 characters; this one has 3201"),
        ({"text": WRONG}, "nothing was changed"),
        ({"reason": " "}, "Enter a reason"),
        ({"reason": "x" * 1001}, "at most 1000 characters"),
        ({"seq": 1}, "is not a compaction"),
    ],
)
def test_a_correction_that_is_not_right_is_refused_with_a_sentence(
    fields: dict[str, Any], sentence: str
) -> None:
    run = long_run(*searches(4), HELD, FINAL)
    read_on(run)
    head = run.head
    given: dict[str, Any] = {"seq": newest(run).seq, "version": 1, "text": RIGHT, "reason": "x"} | fields
    with pytest.raises(actions.NotPossible, match=sentence):
        actions.edit_summary(run, by=None, **given)
    run.refresh_from_db()
    assert run.head == head


def test_a_summary_is_taken_back_once_and_with_a_reason() -> None:
    run = compacted_run()
    seq = newest(run).seq
    with pytest.raises(actions.NotPossible, match="Enter a reason"):
        actions.undo_summary(run, seq=seq, reason="", by=None)
    actions.undo_summary(run, seq=seq, reason="x", by=None)
    with pytest.raises(actions.NotPossible, match="reverted already"):
        actions.undo_summary(run, seq=seq, reason="x", by=None)


@pytest.mark.parametrize("deed", ["pin", "compact"])
def test_a_reason_has_a_bound_everywhere(deed: str) -> None:
    run = compacted_run()
    with pytest.raises(actions.NotPossible, match="at most 1000 characters"):
        if deed == "pin":
            actions.pin(run, path=newest(run).path, by=None, reason="x" * 1001)
        else:
            actions.compact_now(run, by=None, reason="x" * 1001)
    actions.pin(run, path=newest(run).path, by=None, reason="x" * 1000)


def test_a_summary_that_is_carried_on_names_the_later_one_even_where_that_leaves_its_last_row_alone() -> None:
    run = long_run(
        *searches(4),
        HELD,
        *searches(6),
        HELD,
        FINAL,
        summaries=("Done: the first.", "Done: the second.", "Done: the third."),
    )
    read_on(run)
    first = newest(run)
    actions.pin(run, path=f"st:{first.last}", by=None)
    decide(run, "approve")
    read_on(run)
    later = compactions(run)[-1]
    assert later.seq != first.seq and first.last in later.kept
    with pytest.raises(actions.NotPossible, match=f"Step {later.seq} continues the summary"):
        actions.undo_summary(run, seq=first.seq, reason="x", by=None)


# --- workers ------------------------------------------------------------------------------------------------------


def test_a_worker_in_a_model_call_finds_its_seat_taken_and_nothing_is_lost() -> None:
    run = long_run(*searches(4), HELD, FINAL)
    read_on(run)
    decide(run, "approve")
    seq = newest(run).seq
    with pytest.raises(errors.Fenced):
        slice_of(
            run,
            before=lambda: actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="x", by=None),
            only="decision",
        )
    run.refresh_from_db()
    assert run.status == "queued"
    assert RIGHT in read_on(run)[-1]
    assert run.status == "succeeded"
    assert run.tool_calls == 5


def test_the_run_page_shows_a_compaction_while_it_is_made_and_when_it_is_made() -> None:
    run = long_run(*searches(4), HELD, FINAL)
    seen: list[tuple[str, bool]] = []

    def look() -> None:
        seen.append((said(run)[-1], run.steps.filter(kind="compaction").exists()))

    slice_of(run, before=look, only="summary")
    view = newest(run)
    [(line, made)] = seen
    assert line.startswith(f"Summarises: steps {view.first}–{view.last}") and not made
    row = next(one for one in row_views(run) if one.seq == view.seq)
    assert f"tokens, steps {view.first}–{view.last}" in row.summary


def test_a_worker_that_dies_between_ask_and_summary_leaves_a_run_that_makes_it_again() -> None:
    run = long_run(*searches(4), HELD, FINAL)
    die_in(run, before=kill, only="summary")
    asked = Exchange.objects.get(run=run, kind="compaction")
    assert asked.answer_json is None and not compactions(run)
    work(run)
    assert [view.text for view in compactions(run)] == [WRONG]
    assert Exchange.objects.filter(run=run, kind="compaction").count() == 1


def test_a_summariser_that_fails_changes_nothing_and_says_so() -> None:
    run = long_run(*searches(4), HELD, FINAL, summaries=({"$error": "fatal"},) * 3)
    prompts = read_on(run)
    assert not compactions(run)
    assert STUB in prompts[-1], (
        "the prompt is over the limit: old results are left out until it is tried again"
    )
    assert "result 0 of" in prompts[-3]
    assert any("The context is unchanged." in line for line in said(run))


# --- what is read of it, what verifies ----------------------------------------------------------------------------


def test_the_database_finds_the_states_that_the_rows_come_to() -> None:
    run = long_run(
        *searches(9), HELD, FINAL, summaries=("Done: the first.", "Done: the second.", "Done: the third.")
    )
    read_on(run)
    other = compacted_run()
    actions.pin(other, path=newest(other).path, by=None)
    third = compacted_run()
    actions.pin(third, path=newest(third).path, by=None)
    actions.unpin(third, path=newest(third).path, by=None)
    fourth = compacted_run()
    actions.undo_summary(fourth, seq=newest(fourth).seq, reason="x", by=None)
    fifth = compacted_run()
    actions.rewind(fifth, to=transitions(fifth)[0], by=None)
    _check_states(run, other, third, fourth, fifth)
    actions.undo_summary(run, seq=newest(run).seq, reason="x", by=None)
    _check_states(run, other, third, fourth, fifth)


def _check_states(*runs: Run) -> None:
    from runs.models import Compaction
    from runs.reading.compactions import STATES

    views = [view for run in runs for view in compactions(run)]
    for state in STATES:
        found = in_state(Compaction.objects.all(), state)
        assert sorted(found.values_list("pk", flat=True)) == [
            view.id for view in views if view.state == state
        ], state


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"first":2,', '"first":900,', "its summary is of steps 900"),
        ('"tokens_after":', '"tokens_after":0,"tokens_was":', ""),
        ('"kept":[]', '"kept":[900]', "outside its range"),
        ('"updates":0', '"updates":3', "not a live compaction"),
        ('"version":2', '"version":3', "is 3, after 1"),
        ('"summary":', '"summary":1', "not a live compaction"),
    ],
)
def test_verify_names_a_summary_that_does_not_fit(old: str, new: str, sentence: str) -> None:
    run = long_run(*searches(4), HELD, FINAL)
    read_on(run)
    actions.edit_summary(run, seq=newest(run).seq, version=1, text=RIGHT, reason="x", by=None)
    assert _flaws_of_summaries(run) == ""
    changed = (
        run.steps.filter(facts_json__contains=old, kind__in=("compaction", "note")).order_by("-seq").first()
    )
    assert changed is not None
    facts = changed.facts_json
    run.steps.filter(pk=changed.pk).update(facts_json=facts.replace(old, new))
    if sentence:
        assert sentence in _flaws_of_summaries(run)
    assert verifying.verify(Run.objects.get(pk=run.pk), driver.tool_specs(run)) is not None
    run.steps.filter(pk=changed.pk).update(facts_json=facts)


def _flaws_of_summaries(run: Run) -> str:
    from runs.machines import CATALOGUE
    from runs.store.summaries import ACTING, flaws

    rows = run.steps.order_by("seq")
    acting = rows.filter(kind__in=ACTING).values_list("seq", "facts_json")
    read = CATALOGUE[run.machine].facts.validate_json
    asked = {exchange.seq: exchange for exchange in run.exchanges.all()}
    found = flaws([(seq, read(text)) for seq, text in acting], dict(rows.values_list("seq", "kind")), asked)
    return " ".join(why for _, why in found)


@pytest.mark.parametrize("deed", ["edit", "undo", "pin", "unpin", "compact"])
def test_whoever_mends_the_context_has_viewers_and_the_list_of_questions_look_again(
    deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, rung = compacted_run(), list[object]()
    seq = newest(run).seq
    if deed == "unpin":
        actions.pin(run, path=f"su:{seq}", by=None)
    monkeypatch.setattr("runs.live.ring", lambda run_id, _: rung.append(run_id))
    monkeypatch.setattr("runs.live.ring_inbox", lambda: rung.append("inbox"))
    match deed:
        case "edit":
            actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=None)
        case "undo":
            actions.undo_summary(run, seq=seq, reason="It is wrong.", by=None)
        case "pin":
            actions.pin(run, path=f"su:{seq}", by=None)
        case "unpin":
            actions.unpin(run, path=f"su:{seq}", by=None)
        case "compact":
            actions.compact_now(run, by=None)
    assert rung == [run.pk, "inbox"]
