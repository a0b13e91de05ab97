"""What pages, sockets and exports say of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import escape

from runs import actions
from runs.machines import CATALOGUE
from runs.models import Exchange, Interrupt, Run, Step
from runs.reading import cards, exporting, inspector, panels, prompts
from runs.reading.arguments import fields_of, read_arguments
from runs.reading.drawing import graph_svg, layout_of
from runs.reading.inspector import changes_between
from runs.reading.lines import line_of
from runs.reading.listing import Filters, run_page
from runs.reading.panels import files_of, status_word, visits_of
from runs.reading.phrases import call_text
from runs.reading.rows import RowView, render_row, row_views
from tests.cast import alice, bob, cast_member, charlie
from tests.launching import ALL_WELL, ALLOW, LETTER, MAIL, launch, launched, run_with_letter, script, think
from tests.prompts import work_reading
from tests.running import decide, pending, transitions, work

pytestmark = [pytest.mark.django_db]


def letter_sent() -> Run:
    run = run_with_letter(None)
    decide(run, "edit", args={**LETTER, "copies": 2}, message="Two, please.")
    return work(run)


# --- rows ---------------------------------------------------------------------------------------------------------


def test_a_row_looks_the_same_wherever_a_page_of_rows_begins() -> None:
    run = work(launch(think("send", to="bob"), ALL_WELL))
    for _ in range(8):
        actions.pause(run, by=None)
        actions.resume(run, by=None)
    decide(run, "approve")
    work(run)
    whole = {row.seq: render_row(row) for row in row_views(run)}
    for after in range(1, run.head):
        for row in row_views(run, after=after):
            assert render_row(row) == whole[row.seq], f"row {row.seq} of those after {after}"


def test_every_row_has_a_line_that_says_more_than_its_kind() -> None:
    rows = row_views(letter_sent())
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    said = [row.summary for row in rows]
    assert any(line.startswith("Thought: I use send_mail send_mail(") for line in said)
    assert any(line.startswith("Approval (asks a person): ") for line in said)
    assert any(
        line.startswith("Approved with changes: by the operator by a command — “Two, please.”")
        for line in said
    )
    assert any(line.startswith("Calls (changed by a person): send_mail(") for line in said)
    assert "Result (send_mail): sent" in said
    assert "Final answer: all is well" in said
    assert said[-1] == "Ended (the agent says the goal is reached)"


def test_page_and_socket_paint_the_same_rows() -> None:
    run = letter_sent()
    whole = {row.seq: render_row(row) for row in row_views(run)}
    for after in range(1, run.head):
        for row in row_views(run, after=after):
            assert render_row(row) == whole[row.seq]


def test_a_row_does_not_change_when_the_run_goes_on() -> None:
    run = run_with_letter(None)
    before = {row.seq: render_row(row) for row in row_views(run)}
    decide(run, "approve")
    run = work(run)
    after = {row.seq: render_row(row) for row in row_views(run)}
    assert {seq: after[seq] for seq in before} == before


def test_windows_meet_without_gap_or_double() -> None:
    run = launched(None, *[think("send_mail", **LETTER)] * 20, ALL_WELL, rules=ALLOW)
    seqs: list[int] = []
    before: int | None = None
    while not seqs or seqs[0] > 1:
        window = [row.seq for row in row_views(run, before=before, limit=30)]
        seqs = window + seqs
        before = seqs[0]
    assert seqs == list(range(1, run.head + 1))


def test_rows_that_were_gone_back_over_are_marked_dead_by_their_rewind() -> None:
    run = run_with_letter(None)
    target = transitions(run)[0]
    actions.rewind(run, to=target, by=None, message="Think again.")
    rows = row_views(run)
    rewind = next(row for row in rows if row.kind == "rewind")
    assert rewind.rewind_to == target
    assert f'data-rewind-to="{target}"' in render_row(rewind)
    assert [row.seq for row in rows if not row.live] == list(range(target + 1, rewind.seq))
    assert "Think again." in rewind.summary


def test_what_a_model_writes_is_escaped_in_rows_panels_and_inspector() -> None:
    evil = "<script>alert(1)</script>"
    run = launched(None, {"thought": f"FINAL ANSWER: {evil}", "action": None})
    html = [render_row(row) for row in row_views(run)]
    html += panels.panels_of(run, bob()).values()
    html += [str(fact) for seq in range(1, run.head + 1) for fact in _step(run, seq).facts]
    assert not any("<script" in piece for piece in html)
    assert any(escape(evil) in piece for piece in html)


def _step(run: Run, seq: int) -> inspector.StepView:
    step = inspector.step_view(run, seq)
    assert step is not None
    return step


def test_costs_stand_in_the_row_that_follows_from_the_answer() -> None:
    run = run_with_letter(None)
    thought = next(row for row in row_views(run) if row.line.title == "Thought")
    assert (thought.tokens, thought.cost) == ("120", "$0.001")
    assert thought.duration.endswith("ms")


def test_two_hundred_rows_are_painted_quickly_and_with_few_questions() -> None:
    run = launched(
        None, *[think("send_mail", **LETTER)] * 40, ALL_WELL, rules=ALLOW, max_steps=60, ruleset=[]
    )
    assert run.head > 200
    row_views(run)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        rows = row_views(run)
    assert len(asked) == 2
    best = min(_seconds_for(rows) for _ in range(5))
    assert len(rows) == 200
    assert best < 0.25, "a window of rows takes far longer than its 40 ms"


def _seconds_for(rows: list[RowView]) -> float:
    began = time.perf_counter()
    for row in rows:
        render_row(row)
    return time.perf_counter() - began


def test_a_kind_of_fact_that_nobody_has_words_for_still_has_a_line() -> None:
    line = line_of(
        "transition", "brew_tea", "poured", [{"kind": "tea.brewed", "grams": 5}], None, machine="ruled"
    )
    assert line.plain == "Brew tea: poured"


# --- the inspector ------------------------------------------------------------------------------------------------


def test_the_prompt_is_shown_exactly_as_it_was_sent() -> None:
    run = launch(played=LETTER_SCRIPT, interrupt_every=1)
    sent = work_reading(run)
    decide(run, "reject", message="Not to the board.")
    sent += work_reading(run)
    assert pending(run).kind == "every_n_steps"
    decide(run, "resume")
    sent += work_reading(run)
    assert _prompts(run) == sent
    assert "Not to the board." in sent[-1][-1].text


def test_the_prompt_of_a_row_that_was_gone_back_over_is_the_one_of_then() -> None:
    run = launch(played=LETTER_SCRIPT, rules=ALLOW, interrupt_every=1)
    sent = work_reading(run)
    actions.rewind(run, to=transitions(run, "thought")[0], by=None)
    sent += work_reading(run)
    decide(run, "resume")
    sent += work_reading(run)
    assert not all(run.steps.values_list("live", flat=True))
    assert _prompts(run) == sent


LETTER_SCRIPT = script(think("send_mail", **LETTER), ALL_WELL, ALL_WELL, tools={"send_mail": MAIL})


def _prompts(run: Run) -> list[Any]:
    asked = Exchange.objects.filter(run=run, kind="model_call").order_by("seq")
    return [prompts.prompt_of(run, exchange.seq) for exchange in asked]


def test_the_inspector_says_what_changed_in_the_state() -> None:
    run = letter_sent()
    thought = next(row.seq for row in row_views(run) if row.line.title == "Thought")
    changed = {change.name: change.after for change in _step(run, thought).changes}
    assert changed["draft.tool"] == "send_mail"
    assert changed["metadata.total_cost"] == "0.001"


def test_changes_look_into_objects_and_name_what_is_gone() -> None:
    before = {"draft": {"tool": "x", "args": {"n": 1}}, "steps": 1}
    after = {"draft": None, "steps": 1, "answer": "42"}
    found = {(change.name, change.before, change.after) for change in changes_between(before, after)}
    assert found == {
        ("draft", "—", "null"),
        ("answer", "—", "42"),
        ("draft.tool", "x", "—"),
        ("draft.args.n", "1", "—"),
    }


def test_a_row_that_concludes_shows_what_was_asked_and_answered() -> None:
    run = letter_sent()
    result = next(row.seq for row in row_views(run) if row.line.title == "Result")
    exchange = _step(run, result).exchange
    assert exchange is not None
    assert exchange.kind == "tool_call"
    assert json.loads(exchange.answer)["value"] == "sent"


def test_there_is_no_view_of_a_row_that_is_not_there() -> None:
    assert inspector.step_view(run_with_letter(None), 999) is None


def test_outside_effects_are_those_that_happened_after() -> None:
    run = letter_sent()
    first, *_, last = transitions(run)
    done = inspector.outside_effects_after(run, first)
    assert [effect.code for effect in done] == [
        'send_mail(to="board@example.com", body="Dear board,\\nall is well.", copies=2, urgent=true)'
    ]
    assert done[0].effects.text == "sends"
    assert inspector.outside_effects_after(run, last) == []


# --- panels -------------------------------------------------------------------------------------------------------


def test_panels_have_the_contracts_names_and_no_clock_in_them() -> None:
    run, reviewer = run_with_letter(None), bob()
    first = panels.panels_of(run, reviewer)
    assert list(first) == [
        "header",
        "gauges",
        "needs",
        "doing",
        "strip",
        "answer",
        "files",
        "context",
        "sources",
        "children",
        "machine",
    ]
    Interrupt.objects.update(deadline=timezone.now() + timedelta(hours=1))
    second, third = panels.panels_of(run, reviewer), panels.panels_of(run, reviewer)
    assert second == third


def test_the_card_can_be_decided_by_a_reviewer_and_only_looked_at_by_others() -> None:
    owner = alice()
    run = run_with_letter(owner)
    assert 'value="approve"' in panels.panels_of(run, bob())["needs"]
    watching = panels.panels_of(run, owner)["needs"]
    assert "<form" not in watching
    assert "waiting for a reviewer" in watching


def test_visits_are_counted_live_and_forget_what_was_gone_back_over() -> None:
    run, reviewer = run_with_letter(None), bob()
    assert _visits(run, reviewer) == {"thought": 1, "validate": 1}
    decide(run, "reject")
    run = work(run)
    assert _visits(run, reviewer)["thought"] == 2
    run = run_with_letter(None)
    panels.panels_of(run, reviewer)
    actions.rewind(run, to=transitions(run)[0], by=None)
    run.refresh_from_db()
    assert _visits(run, reviewer) == {"thought": 1}


def _visits(run: Run, user: Any) -> dict[str, int]:
    return visits_of(run)


def test_questions_for_the_panels_do_not_grow_with_the_run() -> None:
    reviewer = bob()
    short = run_with_letter(None)
    long = launched(None, *[think("send_mail", **LETTER)] * 12, rules=ALLOW, interrupt_every=12)
    assert long.head > 60
    counts = []
    for run in (short, long):
        panels.panels_of(run, reviewer)
        with CaptureQueriesContext(connection) as asked:
            panels.panels_of(run, reviewer)
        counts.append(len(asked))
    assert max(counts) <= min(counts) + 1


@pytest.mark.parametrize(
    ("deed", "word", "said"),
    [
        (actions.pause, "Pausing", "The run is paused after it"),
        (actions.abort, "Cancelling", "No other call begins"),
    ],
)
def test_a_run_whose_worker_has_not_noticed_yet_is_being_paused_or_cancelled(
    deed: Callable[..., Run], word: str, said: str
) -> None:
    run = run_with_letter(None)
    deed(run, by=None)
    Run.objects.filter(pk=run.pk).update(worker="w", lease_until=timezone.now() + timedelta(seconds=9))
    run.refresh_from_db()
    assert status_word(run, True, True).text == word
    found = panels.panels_of(run, bob())
    assert 'data-status="stopping"' in found["header"]
    assert f"<strong>{word}.</strong>" in found["needs"] and said in found["needs"]


def test_a_file_stays_listed_when_the_row_that_made_it_was_gone_back_over(
    settings: Any, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    keep = [think("write_file", name=name, content="1") for name in ("kept.txt", "gone.txt", "gone.txt")]
    played = {"replies": {"decision": [*keep, ALL_WELL]}}
    run = launch(played=played, tools=["write_file"], rules=ALLOW, interrupt_every=2)
    work(run)
    before = panels.panels_of(run, bob())["files"]
    assert "rolled back" not in before
    actions.rewind(run, to=transitions(run, "executed")[0], by=None)
    run.refresh_from_db()
    names = [(file.name, file.gone) for file in files_of(run)]
    assert names == [("gone.txt", True), ("kept.txt", False)]
    assert panels.panels_of(run, User.objects.get(username="bob"))["files"].count("rolled back") == 1
    assert [(file.name, file.gone) for file in files_of(work(run))] == [
        ("gone.txt", False),
        ("kept.txt", False),
    ]


# --- lists --------------------------------------------------------------------------------------------------------


def test_what_waits_for_the_reader_comes_first() -> None:
    reviewer = bob()
    waits = run_with_letter(None)
    done = launched(None, ALL_WELL)
    page = run_page(reviewer, Filters())
    assert [item.run.pk for item in page.waiting] == [waits.pk]
    assert [item.run.pk for item in page.runs] == [done.pk]


def test_the_owner_sees_her_runs_and_waits_for_a_reviewer() -> None:
    owner = alice()
    mine, _ = run_with_letter(owner), run_with_letter(None)
    page = run_page(owner, Filters())
    assert page.waiting == ()
    assert [item.run.pk for item in page.runs] == [mine.pk]
    assert page.runs[0].status.text == "Waiting for a reviewer"
    other = charlie()
    assert [item.run.owner for item in run_page(other, Filters()).runs] == [other]
    assert run_page(cast_member("dan"), Filters()).empty


def test_pages_of_the_list_meet_without_gap_or_double() -> None:
    owner = alice()
    first = launched(owner, ALL_WELL)
    Run.objects.bulk_create(
        Run(
            machine="ruled",
            goal="old",
            owner=owner,
            node="end",
            status="succeeded",
            exit_reason="goal_achieved",
        )
        for _ in range(70)
    )
    seen: list[int] = []
    before = None
    while True:
        page = run_page(owner, Filters(before=before))
        seen += [item.run.pk for item in page.runs]
        before = page.next_before
        if before is None:
            break
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 71
    assert seen[-1] == first.pk


def test_the_count_is_of_what_the_person_may_decide() -> None:
    owner, reviewer = alice(), bob()
    run_with_letter(owner)
    run_with_letter(None)
    assert cards.pending_count(reviewer) == 2
    assert cards.pending_count(owner) == 0


# --- arguments ----------------------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": kind} for name, kind in MAIL["params"].items()},
    "required": MAIL["required"],
}


def test_a_form_that_is_sent_back_as_it_was_changes_nothing() -> None:
    args: dict[str, Any] = {
        "to": "a\r\nb",
        "body": "\nx",
        "copies": 3,
        "ratio": 2.0,
        "urgent": False,
        "tags": [1, "a", None],
    }
    posted = {field.field: "\r\n".join(field.value.splitlines()) for field in fields_of(SCHEMA, args)}
    posted.pop("arg.urgent")
    read = read_arguments(SCHEMA, args, posted)
    assert json.dumps(read.args, sort_keys=True) == json.dumps(args, sort_keys=True)
    assert not read.wrong


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("copies", "7", 7),
        ("ratio", "7", 7),
        ("ratio", "0.25", 0.25),
        ("tags", '["x", 1]', ["x", 1]),
        ("to", "007", "007"),
        ("body", "a\r\nb", "a\nb"),
    ],
)
def test_a_value_keeps_its_type(name: str, text: str, value: Any) -> None:
    read = read_arguments(SCHEMA, {**LETTER, "ratio": 0.5, "tags": []}, _posted({f"arg.{name}": text}))
    assert read.args[name] == value
    assert type(read.args[name]) is type(value)
    assert not read.wrong


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("copies", "many", "copies must be a whole number."),
        ("copies", "", "copies is needed."),
        ("ratio", "nan", "ratio must be a number."),
        ("tags", "[1,", "tags must be JSON"),
        ("tags", '{"a": 1}', "tags must be an array"),
        ("tags", "[" * 5000, "tags is nested too deeply: at most 64 levels."),
        ("tags", "[" * 65 + "]" * 65, "tags is nested too deeply: at most 64 levels."),
        ("tags", "[NaN]", "tags must be JSON: JSON has no number NaN."),
        ("tags", '[{"a": -Infinity}]', "tags must be JSON: JSON has no number -Infinity."),
        ("tags", "[1e999]", "tags must be JSON: the number 1e999 is too large."),
        ("tags", f"[{'9' * 5000}]", "tags must be JSON: the number 99999999999999999999… is too large."),
        ("tags", '[{"a": 1, "b": {}, "a": 2}]', 'tags must be JSON: the key "a" appears twice.'),
        ("tags", f"[{'0,' * 30_000}0]", "tags is too large"),
        ("body", "long " * 100_000, "body is too long: 500,000 characters; the limit is 400,000."),
        ("tags", json.dumps(["l" * 400_001]), "tags is too long: 400,001 characters; the limit is 400,000."),
        ("body", "a\0b", "body holds a character that can't be stored (NUL or half of a pair)."),
        ("tags", '[{"\\ud83d": 1}]', "tags holds a character that can't be stored (NUL or half of a pair)."),
        ("tags", "[9007199254740993]", "tags holds a whole number beyond 9,007,199,254,740,992."),
        ("tags", "[1e301]", "tags holds a number beyond 1e+300."),
        ("urgent", "maybe", "urgent must be true or false."),
    ],
)
def test_what_cannot_be_read_is_said_beside_the_field_and_kept(name: str, text: str, sentence: str) -> None:
    read = read_arguments(SCHEMA, LETTER, _posted({f"arg.{name}": text}))
    field = next(field for field in read.fields if field.name == name)
    assert field.error.startswith(sentence)
    assert field.value == text


def test_a_choice_of_true_and_false_takes_nothing_else() -> None:
    schema = {"properties": {"loud": {"type": "boolean"}}}
    read = [read_arguments(schema, {}, {"arg.loud": text}) for text in ("yes", "true", "false", "")]
    assert [field.error for one in read for field in one.fields] == [
        "loud must be true or false.",
        "",
        "",
        "",
    ]
    assert [one.args for one in read[1:]] == [{"loud": True}, {"loud": False}, {}]


def test_as_many_levels_as_the_engine_keeps_are_taken() -> None:
    text = "[" * 64 + "]" * 64
    read = read_arguments(SCHEMA, LETTER, _posted({"arg.tags": text}))
    assert not read.wrong
    assert json.dumps(read.args["tags"]) == text


def test_an_optional_argument_that_was_not_given_stays_out() -> None:
    assert "ratio" not in read_arguments(SCHEMA, LETTER, _posted({"arg.ratio": "", "arg.tags": ""})).args


def _posted(changed: dict[str, str]) -> dict[str, str]:
    return {"arg.urgent": "true"} | changed


# --- export -------------------------------------------------------------------------------------------------------


def test_the_export_fills_the_state_and_says_each_row_as_the_timeline_does() -> None:
    run = letter_sent()
    found = exporting.export(run)
    assert json.loads(json.dumps(found)) == found
    assert [step["summary"] for step in found["steps"]] == [row.summary for row in row_views(run)]
    assert all(step["state"]["metadata"]["goal"] == run.goal for step in found["steps"])
    assert found["run"]["status"] == "succeeded"
    assert found["run"]["totals"]["tool_calls"] == 1
    assert found["budget"]["text"] == "BUDGET_STATE: steps left 18/20, retries 0/3"
    assert found["budget"]["rows"][0] == {"scope": "global", "name": "steps", "used": 2, "limit": 20}
    decision = found["interrupts"][0]["decisions"][0]
    assert (decision["verdict"], decision["args"]["copies"]) == ("edit", 2)
    assert len(found["exchanges"]) == sum(step["kind"] == "ask" for step in found["steps"])


def test_a_run_that_has_not_begun_can_be_exported() -> None:
    run = launch(goal="x", played={"replies": {}})
    found = exporting.export(run)
    assert found["steps"] == []
    assert found["budget"]["text"].startswith("BUDGET_STATE:")


# --- the drawing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_node_and_edge_of_a_machine_is_drawn_once(name: str) -> None:
    machine, layout = CATALOGUE[name], layout_of(name)
    assert sorted(box.name for box in layout.boxes) == sorted({*machine.nodes, "end"})
    assert sorted(edge for arrow in layout.arrows for edge in arrow.edges) == sorted(machine.edges)
    for box in layout.boxes:
        assert 0 < box.x < layout.width
        assert 0 < box.y < layout.height


def test_the_drawing_lights_the_current_node_only() -> None:
    svg = graph_svg("ruled", "action", (("thought", 3),))
    assert svg.count('data-current="true"') == 1
    assert 'data-node="action" data-current="true"' in svg
    assert ">3</text>" in svg


def test_kinds_of_rows_are_those_of_the_log() -> None:
    words = {
        kind: line_of(kind, "thought", None, [], None, machine="ruled").plain for kind in Step.Kind.values
    }
    assert all(words.values())


def test_a_call_has_its_long_arguments_last_so_that_they_are_cut_first() -> None:
    args = {
        "body": "x" * 1_000,
        "headers": {"Accept": "text/plain"},
        "method": "POST",
        "url": "https://a.test/",
    }
    said = call_text("http_request", args)
    start = 'http_request(headers={"Accept": "text/plain"}, method="POST", url="https://a.test/", body="xxx'
    assert said.startswith(start) and said.endswith("characters)")
