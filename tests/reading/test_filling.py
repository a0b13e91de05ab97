"""What fills the window: the parts add up to the kernel's own estimate, and new rows only are read."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import actions
from runs.engine import context
from runs.engine.effects import EFFECT, Compaction, ModelCall
from runs.engine.snapshot import Window
from runs.engine.timeline import Piece, folded
from runs.machines import CATALOGUE
from runs.models import Run, Step
from runs.reading import exporting, filling, inspector, rows
from runs.reading.compactions import compaction_view
from runs.reading.filling import Filling, filling_of, pictured, room_needed, sizes, sources_of
from runs.reading.markdown import render
from runs.reading.mended import context_state
from runs.reading.panels import panels_of
from runs.reading.prompt_changes import changes
from runs.reading.prompt_views import prompt_view
from runs.reading.prompts import Sent, full_terms
from runs.signals import on_after_compaction, on_before_compaction
from runs.store import decisions, loading
from tests.cast import person, signed_in, stranger
from tests.launching import FINAL, launch, script, think
from tests.prompts import NOTES, drive, hiding_run, long_run
from tests.running import work

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

PAGES = {
    "params": {"q": "string"},
    "required": ["q"],
    "effects": "read",
    "results": [
        {
            "output": [
                {
                    "url": f"https://tides.example/{number}",
                    "title": f"Tides <b>{number}</b> \u202e",
                    "text": "high",
                },
                {"url": "javascript:alert(1)", "title": "No page", "text": "low"},
            ]
        }
        for number in range(30)
    ],
}


def ann() -> User:
    """She launches runs."""
    return person("ann", "add_run")


def ben() -> User:
    """He may look at all runs."""
    return person("ben", "view_run")


def forget() -> None:
    """As if another process asked."""
    filling.KEPT.clear()


def anew(run: Run) -> Filling | None:
    """The filling, counted from the first row on."""
    forget()
    return filling_of(run)


def compacted(owner: User | None = None, rounds: int = 20) -> Run:
    """A run that has compacted, and goes on."""
    run = long_run(rounds, owner=owner, interrupt_every=15)
    return work(run)


# --- the bar ------------------------------------------------------------------------------------------------------


def test_the_parts_add_up_to_what_the_kernel_reckons() -> None:
    run = compacted()
    found = filling_of(run)
    assert found is not None
    machine, terms = CATALOGUE[run.machine], full_terms(run)
    asked = run.exchanges.filter(kind="model_call").order_by("-seq")[0]
    call = EFFECT.validate_json(asked.request_json)
    assert isinstance(call, ModelCall)
    window = Window(loading.load_window(run, machine, run.head), 1200, 0.9, 0.5)
    assert found.tokens == context.size(machine, terms, window, call)
    assert sum(part.tokens for part in found.parts) == found.tokens
    assert (found.limit, found.compacts_at) == (1200, 1080)
    labels = [part.label for part in found.parts]
    assert labels[:2] == ["Instructions", "Goal"]
    assert {"Summaries", "Agent", "Tool results"} <= set(labels)


def test_the_bar_is_as_long_as_what_is_larger_and_its_parts_touch() -> None:
    parts = [
        Piece("system", "system", "s" * 400),
        Piece("tail", "user", "t" * 200),
        Piece("a.b_c", "user", "x" * 7),
    ]
    for limit in (None, 100, 1000):
        found = pictured(sizes(parts), 0.25, limit, 0.9)
        ends = [part.begins + part.width for part in found.parts]
        assert [part.begins for part in found.parts][1:] == pytest.approx(ends[:-1], abs=0.2)
        assert ends[-1] == pytest.approx(1000 * found.tokens / max(found.tokens, limit or 0), abs=0.2)
        assert found.over == (limit == 100)
    assert [part.label for part in found.parts] == ["Instructions", "B c", "State of this turn"]
    assert found.tone == "busy"
    assert pictured({}, 0.25).tokens == 0


def test_a_run_without_a_limit_has_none_and_one_without_a_call_shows_nothing() -> None:
    run = launch(think("search", q="tides"), FINAL)
    assert filling_of(run) is None
    assert panels_of(run, ann())["context"] == ""
    run = work(run)
    found = filling_of(run)
    assert found is not None
    assert (found.limit, found.compacts_at, found.filled) == (None, None, None)
    assert "no limit" in panels_of(run, ben())["context"]


def test_the_providers_count_stands_beside_the_estimate() -> None:
    run = long_run(6)
    drive(run)
    found = filling_of(run)
    assert found is not None and found.counted is not None
    asked = run.exchanges.get(seq=found.counted.seq)
    assert found.counted.tokens == asked.input_tokens == asked.prompt_chars // 3
    assert found.counted.estimate == context.tokens(asked.prompt_chars, 0.25)
    assert "The provider counted" in panels_of(run, ben())["context"]


@pytest.mark.parametrize("make", [lambda: long_run(14), hiding_run])
def test_what_is_added_row_by_row_is_what_is_counted_at_once(make: Any) -> None:
    run = make()
    forget()
    while not run.finished:
        drive(run, moves=3)
        kept = filling_of(run)
        if not run.finished and run.steps.count() > 20 and not run.steps.filter(kind="note").exists():
            told = run.steps.filter(facts_json__contains=".result", live=True, kind="transition")
            actions.pin(run, path=f"st:{told.order_by('-seq')[0].seq}", by=None)
            run.refresh_from_db()
            kept = filling_of(run)
        assert kept == anew(run), f"at row {run.head}"
        pool = sources_of(run)
        forget()
        assert pool == sources_of(run)


def test_a_run_that_goes_on_costs_a_few_questions_however_long_it_is() -> None:
    run = work(long_run(40, limit=100_000, interrupt_every=39))
    filling_of(run)
    run = Run.objects.get(pk=run.pk)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        filling_of(run)
    assert len(asked) == 0
    decisions.note(run.pk, "heard", "Something.")
    run.refresh_from_db()
    with CaptureQueriesContext(connection) as asked:
        filling_of(run)
    assert len(asked) == 2
    assert not any("state_json" in query["sql"] and "100" in query["sql"] for query in asked)


# --- rows and pages -----------------------------------------------------------------------------------------------


def test_a_compaction_and_what_people_do_about_it_are_rows_that_say_so() -> None:
    run = compacted()
    said = {row.seq: row.summary for row in rows.row_views(run)}
    [standing] = folded(loading.context_blocks(run)).standing()
    made = standing.made
    assert any(line.startswith(f"Summarises: steps {made.first}–{made.last}") for line in said.values())
    told = f"{made.tokens_before:,} → {made.tokens_after:,} tokens, steps {made.first}–{made.last}"
    assert told in said[standing.seq]
    actions.edit_summary(run, seq=standing.seq, version=1, text="3,500 cm.", reason="A typo.", by=None)
    actions.pin(run, path=standing.path, by=None, reason="Keep it.")
    actions.unpin(run, path=standing.path, by=None)
    actions.undo_summary(run, seq=standing.seq, reason="Too short.", by=None)
    actions.compact_now(run, by=None)
    lines = [row.summary for row in rows.row_views(Run.objects.get(pk=run.pk))][-5:]
    assert lines[0] == f"Summary corrected: step {standing.seq}, version 2, by the operator: “A typo.”"
    assert lines[1] == f"Pinned for the model: the summary of step {standing.seq} by the operator: “Keep it.”"
    assert lines[2].startswith("Unpinned: ")
    assert lines[3] == f"Summary reverted: step {standing.seq} by the operator: “Too short.”"
    assert lines[4] == "Compaction requested: by the operator"


def test_the_inspector_of_a_compaction_has_the_originals_beside_the_summary() -> None:
    run = compacted(owner := ann())
    seq = run.steps.filter(kind="compaction").order_by("-seq")[0].seq
    page = signed_in(owner).get(f"/runs/{run.pk}/steps/{seq}/").content.decode()
    assert "Summary and original steps" in page
    assert "originals__item" in page
    assert "Pin for the model" in page
    assert "In the admin" not in page
    step = inspector.step_view(run, seq)
    assert step is not None and step.exchange is not None and step.exchange.kind == "compaction"
    assert step.context is not None
    assert step.context.sent.parts[1].what == "originals"


def test_the_context_page_shows_and_takes_what_may_be_done() -> None:
    owner = ann()
    run = compacted(owner)
    [summary] = folded(loading.context_blocks(run)).standing()
    client, where = signed_in(owner), f"/runs/{run.pk}/context/"
    page = client.get(where).content.decode()
    assert all(word in page for word in ("Compact now", "Correct…", "Revert…", "Instructions"))
    address = f"/runs/{run.pk}/summaries/{summary.seq}/edit/"
    form = {"text": "3,500 cm <b>", "reason": "A typo.", "version": "1"}
    assert client.post(address, form).headers["Location"] == where
    assert loading.summary_text(run, summary.seq) == "3,500 cm <b>"
    assert "3,500 cm &lt;b&gt;</pre>" in client.get(where).content.decode()
    stale = client.post(address, form | {"text": "My own\nwords <i>"})
    assert stale.status_code == 409
    said = stale.content.decode()
    assert "You saw version 1 of the summary; it now has version 2." in said
    assert "My own\nwords &lt;i&gt;</textarea>" in said
    assert client.post(f"/runs/{run.pk}/context/pin/", {"path": "st:99999"}).status_code == 409
    pin = client.post(f"/runs/{run.pk}/context/pin/", {"path": summary.path, "next": "//evil.example"})
    assert pin.headers["Location"] == where
    assert "Unpin" in client.get(where).content.decode()
    assert client.post(f"/runs/{run.pk}/context/unpin/", {"path": summary.path}).status_code == 302
    assert client.post(f"/runs/{run.pk}/context/compact/", {"reason": ""}).status_code == 302
    assert "Compaction requested by ann" in client.get(where).content.decode()
    undo = f"/runs/{run.pk}/summaries/{summary.seq}/undo/"
    assert "as far as they fit its window" in page
    assert "The original steps need about" in page
    assert "Enter a reason." in client.post(undo, {"reason": " ", "version": "2"}).content.decode()
    stale = client.post(undo, {"reason": "Wrong.", "version": "1"})
    assert stale.status_code == 409
    assert "You saw version 1 of the summary; it now has version 2." in stale.content.decode()
    assert client.post(undo, {"reason": "Wrong."}).status_code == 409
    assert client.post(undo, {"reason": "Wrong.", "version": "2"}).status_code == 302
    assert f'id="summary-{summary.seq}"' not in client.get(where).content.decode()


def test_of_a_run_that_has_ended_nothing_is_wanted_and_nothing_offered() -> None:
    owner = ann()
    run = compacted(owner)
    [summary] = folded(loading.context_blocks(run)).standing()
    client, at = signed_in(owner), f"/runs/{run.pk}/"
    offer = f"/runs/{run.pk}/context/#summary-{summary.seq}"
    actions.pin(run, path=summary.path, by=owner)
    actions.compact_now(run, by=owner)
    assert offer in client.get(f"{at}steps/{summary.seq}/").content.decode()
    assert [pin.path for pin in context_state(run).pins] == [summary.path]
    actions.undo_summary(run, seq=summary.seq, reason="Wrong.", by=owner)
    assert context_state(run).pins == ()
    assert context_state(run).wanted_by == "ann"
    assert offer not in client.get(f"{at}steps/{summary.seq}/").content.decode()
    actions.abort(run, by=owner)
    page = client.get(f"{at}context/").content.decode()
    assert "Compaction requested" not in page
    assert "Unpin" not in page


def test_the_room_that_the_originals_need_is_said_before() -> None:
    run = compacted(ann())
    [summary] = folded(loading.context_blocks(run)).standing()
    view = compaction_view(run, summary.seq)
    now = filling_of(run)
    assert view is not None and now is not None
    room = room_needed(run, view)
    assert room is not None
    assert room.limit == now.limit
    assert room.originals > 0
    actions.undo_summary(run, seq=summary.seq, reason="Wrong.", by=None)
    run.refresh_from_db()
    after = filling_of(run)
    assert after is not None
    assert abs(after.tokens - room.prompt) <= 20
    assert room.fits == (room.prompt <= (now.limit or 0))


def test_who_may_not_mend_is_offered_nothing_and_refused() -> None:
    run = compacted(ann())
    charlie = signed_in(stranger("charlie"))
    assert charlie.get(f"/runs/{run.pk}/context/").status_code == 404
    assert charlie.post(f"/runs/{run.pk}/context/compact/").status_code == 404
    client = signed_in(ben())
    page = client.get(f"/runs/{run.pk}/context/").content.decode()
    assert "Compact now" not in page and "Correct" not in page
    assert client.post(f"/runs/{run.pk}/context/compact/").status_code == 403


def test_a_prompt_has_a_page_that_says_what_is_new() -> None:
    run = compacted(owner := ann())
    asks = list(run.exchanges.filter(kind="model_call").order_by("seq").values_list("seq", flat=True))
    client = signed_in(owner)
    first = client.get(f"/runs/{run.pk}/context/?step={asks[0]}").content.decode()
    assert "First prompt for this role." in first
    second = client.get(f"/runs/{run.pk}/context/?step={asks[1]}").content.decode()
    assert "+ 2 blocks, " in second and " are the same" in second
    assert client.get(f"/runs/{run.pk}/context/?step=99999").status_code == 404
    assert client.get(f"/runs/{run.pk}/context/?step=x").status_code == 404


# --- what is new --------------------------------------------------------------------------------------------------


def sent(*parts: Piece, seq: int = 1) -> Sent:
    return Sent(seq, "model_call", "decision", parts, 0.25, 0, 0, sent=True)


def test_changes_say_what_is_the_same_what_came_what_went_and_what_reads_otherwise() -> None:
    goal, tail = Piece("user.prompt", "user", "g" * 40), Piece("tail", "user", "3 steps left")
    old, new = (
        Piece("react.decision", "assistant", "old", "st:3"),
        Piece("react.decision", "assistant", "new!", "st:9"),
    )
    summary = Piece("conv.range.summary", "user", "It is 3,400 cm high.", "su:5")
    found = changes(
        sent(goal, old, summary, tail),
        sent(goal, summary._replace(text="It is 3,500 cm high."), new, tail._replace(text="2 steps left")),
    )
    assert (found.same, found.same_tokens, found.whole) == (1, 10, False)
    assert [part.path for part in found.added] == ["st:9"]
    assert [part.path for part in found.removed] == ["st:3"]
    assert [change.path for change in found.changed] == ["su:5", ""]
    gone = [word.text for word in found.changed[0].words if word.where == "before"]
    come = [word.text for word in found.changed[0].words if word.where == "after"]
    assert (gone, come) == (["400"], ["500"])
    assert found.said == "+ 1 block, 1 tokens; − 1 block, 1 tokens; 2 blocks changed"
    assert found.said_same == "the first 10 tokens (1 block) are the same"
    assert changes(sent(goal), sent(goal)).whole


def test_long_texts_are_laid_over_each_other_around_the_first_difference() -> None:
    before, after = "x " * 100_000 + "three " + "y " * 10, "x " * 100_000 + "four " + "y " * 10
    [change] = changes(sent(Piece("tail", "user", before)), sent(Piece("tail", "user", after))).changed
    assert sum(len(word.text) for word in change.words) < 20_000
    assert any("four" in word.text and word.where == "after" for word in change.words)


def test_of_a_very_long_prompt_the_beginning_and_the_newest_parts_have_their_texts() -> None:
    run = work(long_run(60, limit=1_000_000, interrupt_every=59))
    asked = run.exchanges.filter(kind="model_call").order_by("-seq")[0]
    view = prompt_view(run, asked.seq)
    assert view is not None and view.left_out == 0
    assert len(view.parts) == len(view.sent.parts) > 100


# --- sources ------------------------------------------------------------------------------------------------------


def cited_run(owner: User | None = None) -> Run:
    answer = {
        "thought": "FINAL ANSWER: High [[S:1]], low [[S:2]], unknown [[S:9]], `[[S:1]]`.",
        "action": None,
    }
    played = script(think("pages", q="a"), think("pages", q="b"), answer, tools={"pages": PAGES})
    return work(launch(played=played, owner=owner, rules=[], tools=["pages"]))


def test_an_answer_links_the_sources_that_it_cites() -> None:
    run = cited_run()
    shown = panels_of(run, ben())
    answer = shown["answer"]
    assert answer.count("<cite>") == 2
    assert 'href="https://tides.example/0"' in answer and 'rel="noopener noreferrer nofollow"' in answer
    assert 'title="Tides &lt;b&gt;0&lt;/b&gt; ⟨U+202E⟩"' in answer
    assert "[[S:9]]" in answer and "<code>[[S:1]]</code>" in answer
    assert shown["sources"].count("sources__item") == 2
    assert "javascript:" not in shown["sources"] and "<b>" not in shown["sources"]
    decided = next(row for row in rows.row_views(run) if "FINAL" in row.summary or "High" in row.summary)
    step = inspector.step_view(run, decided.seq)
    assert step is not None and any("<cite>" in fact for fact in step.facts)


def test_a_number_is_no_link_where_there_is_no_such_source_or_another_link_is_around_it() -> None:
    run = cited_run()
    pool = sources_of(run)
    assert "<cite>" not in render("[[S:0]] [[S:01]] [[S:3]] [[S:1] [[S:x]] [[S:-1]]", pool)
    assert "<cite>" not in render("[[S:1]]")
    assert render("[[S:1]]" * 40, pool).count("<cite>") == 40
    assert "<a" in render("[read](https://a.example 'Hm')", pool)
    assert "Hm" not in render("[read](https://a.example 'Hm')", pool)


def test_the_export_has_sources_and_compactions() -> None:
    exported = exporting.export(cited_run())
    assert [source["number"] for source in exported["sources"]] == [1, 2]
    assert exported["sources"][0]["url"] == "https://tides.example/0"
    assert exported["compactions"] == []
    run = compacted()
    [*_, last] = folded(loading.context_blocks(run)).standing()
    actions.edit_summary(run, seq=last.seq, version=1, text="Other.", reason="Why.", by=None)
    [*_, newest] = exporting.export(Run.objects.get(pk=run.pk))["compactions"]
    assert (newest["seq"], newest["first"], newest["last"]) == (last.seq, last.made.first, last.made.last)
    assert [one["version"] for one in newest["versions"]] == [1, 2]
    assert newest["versions"][1]["reason"] == "Why."
    assert newest["undone"] is None


# --- signals ------------------------------------------------------------------------------------------------------


def test_who_subscribes_hears_of_each_compaction_and_a_faulty_one_harms_nothing(caplog: Any) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []

    def before(sender: Any, **about: Any) -> None:
        heard.append(("before", about))
        raise RuntimeError("a fault of a subscriber")

    def after(sender: Any, **about: Any) -> None:
        heard.append(("after", about))

    on_before_compaction.connect(before)
    on_after_compaction.connect(after)
    try:
        run = compacted()
    finally:
        on_before_compaction.disconnect(before)
        on_after_compaction.disconnect(after)
    assert run.steps.filter(kind="compaction").count() * 2 == len(heard) > 0
    (first, asked), (second, made) = heard[0], heard[1]
    assert (first, second) == ("before", "after")
    row = Step.objects.get(run=run, seq=made["seq"], kind="compaction")
    exchange = run.exchanges.filter(kind="compaction", seq__lt=row.seq).order_by("-seq")[0]
    effect = EFFECT.validate_json(exchange.request_json)
    assert isinstance(effect, Compaction)
    assert asked["run_id"] == made["run_id"] == run.pk
    for about in (asked, made):
        assert (about["first"], about["last"], about["tokens_before"]) == (
            effect.first,
            effect.last,
            effect.tokens_before,
        )
    assert made["text"] == loading.summary_text(run, row.seq) or made["text"]
    assert 0 < made["tokens_after"] < made["tokens_before"]
    assert "a receiver of a compaction signal failed" in caplog.text


def test_a_summariser_that_fails_is_told_to_subscribers_with_its_error() -> None:
    heard: list[dict[str, Any]] = []

    def after(sender: Any, **about: Any) -> None:
        heard.append(about)

    played = script(*[think("notes", q=str(number)) for number in range(9)], FINAL, tools={"notes": NOTES})
    played["replies"]["summary"] = [{"$error": "fatal"}] * 9
    run = launch(played=played, context={"limit_tokens": 1200}, rules=[], tools=["notes"])
    on_after_compaction.connect(after)
    try:
        run = work(run)
    finally:
        on_after_compaction.disconnect(after)
    assert heard and all(about["error"] for about in heard)
    assert any(row.line.title == "Compaction failed" for row in rows.row_views(run))
