"""The machines' own parts of the launch form and of the run page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs import actions, driver, feeds, forms
from runs.engine.presentation import Form, Presentation, Whole
from runs.feeds.reads import look
from runs.forms.machines import controls_of, every_control, rows_of_fields
from runs.forms.machines import read as read_settings
from runs.machines import CATALOGUE
from runs.models import Run, Skill
from runs.reading import panels, rows
from runs.reading.inspector import fact_html, fact_template
from runs.reading.lines import line_of
from runs.reading.speaking import COMMON, speaking
from runs.store import verifying
from tests.cast import alice, bob, cast_member, signed_in
from tests.compact import compact
from tests.launching import ALLOW, USAGE, WITH_BROKEN, play
from tests.running import decide, make_due, pending, work

pytestmark = [pytest.mark.django_db]

MACHINES = ("contract", "checklist", "planned")


def panel(run: Run) -> str:
    """The machine's own part as plain text: every tag is a blank."""
    html = panels.panels_of(run, bob_or_operator())["machine"]
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def bob_or_operator() -> Any:
    """Somebody who sees everything; made once a test."""
    from django.contrib.auth.models import User

    return User.objects.filter(username="bob").first() or bob()


def panel_html(run: Run) -> str:
    """The machine's own part."""
    return compact(panels.panels_of(run, bob_or_operator())["machine"])


def make(strategy: str, focus: str, name: str, kind: str = "inline", **more: Any) -> dict[str, Any]:
    """A decision of `contract` that searches, and keeps the result."""
    call = {"tool_id": "search", "params": {"q": "tides"}, "out_artifacts": [{"name": name, "kind": kind}]}
    return {
        "action": "call_tool",
        "strategy": strategy,
        "focus_slot": focus,
        "tool_call": call,
        **more,
    }


def step(tool: str, notes: str = "", strategy: str = "explore", **params: Any) -> dict[str, Any]:
    """A decision of `checklist` that calls a tool."""
    call = {"tool_id": tool, "params": params}
    return {"action": "call_tool", "strategy": strategy, "notes": notes, "tool_call": call}


def choose(tool: str, **args: Any) -> dict[str, Any]:
    """A selection of `planned`."""
    return {"thought": f"I use {tool}", "tool": tool, "args": args}


SLOTS = [
    {"id": "facts", "type": "inline", "description": "What is known"},
    {"id": "report", "type": "file", "description": "The report", "format": "Markdown"},
]


# --- the launch form ----------------------------------------------------------------------------------------------


def fields_for(machine: str, form: forms.LaunchForm) -> dict[str, Any]:
    """What a browser sends of a form in which `machine` is chosen, the fields of the other machines left out."""
    own = {control.name for control in controls_of(machine)}
    others = {control.name for _, control in every_control()} - own
    sent: dict[str, Any] = {}
    for name in form.fields:
        value = form[name].value()
        if name in others or value in (None, "") or value is False:
            continue
        if name in ("slots", "rows"):
            for number, row in enumerate(value):
                sent |= {f"{name}-{number}-{column}": text for column, text in row.items()}
        else:
            sent[name] = value
    return sent


def post(client: Client, machine: str, **fields: Any) -> Any:
    """Send the form; what is not named is as the empty form has it."""
    usual: dict[str, Any] = {"goal": "Say hello", "machine": machine, "model": "script", "asks": "writes"}
    usual |= {"script": '{"replies": {"decision": []}}', "plan_gate": "yes", "cache": "yes"}
    return client.post("/runs/new/", usual | fields)


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "contract rows": (
        {
            "machine": "contract",
            "slots-0-id": "facts",
            "slots-0-type": "inline",
            "slots-0-description": "What is known",
            "slots-1-type": "inline",
            "slots-7-id": "report",
            "slots-7-type": "file",
            "slots-7-format": "Markdown",
            "depth": "deep",
            "plan_shape": "multi_step",
            "hints": '{"facts": {"explore": 1}}',
            "budget": '{"max_tool_calls": 4}',
            "skills": '{"style": "Short sentences."}',
        },
        {
            "contract": [
                {"id": "facts", "type": "inline", "description": "What is known"},
                {"id": "report", "type": "file", "format": "Markdown"},
            ],
            "depth": "deep",
            "plan_shape": "multi_step",
            "hints": {"facts": {"explore": 1}},
            "budget": {"max_tool_calls": 4},
            "skills": {"style": "Short sentences."},
        },
    ),
    "contract as JSON": (
        {"machine": "contract", "slots_json": json.dumps(SLOTS), "slots-0-type": "inline"},
        {"contract": SLOTS},
    ),
    "contract by the model": (
        {"machine": "contract", "coordinator": "yes", "on_clarify": "exit", "interrupt_every": "4"},
        {"coordinator": "model", "on_clarify": "exit", "interrupt_every": 4},
    ),
    "checklist": (
        {
            "machine": "checklist",
            "steps": "look\r\n\r\n  write  \r\n",
            "plan_gate": "",
            "exploration_budget": "0",
            "exploitation_budget": "5",
            "max_iterations": "9",
            "max_consecutive_violations": "1",
        },
        {
            "plan": ["look", "write"],
            "plan_gate": False,
            "exploration_budget": 0,
            "exploitation_budget": 5,
            "max_iterations": 9,
            "max_consecutive_violations": 1,
        },
    ),
    "checklist by the model": ({"machine": "checklist", "planner": "yes"}, {"planner": "model"}),
    "planned rows": (
        {
            "machine": "planned",
            "rows-0-tool": "calculator",
            "rows-0-args": '{"expression": "6 * 7"}',
            "rows-0-thought": "the sum",
            "rows-2-tool": "final_answer",
            "follow": "plan",
            "retry_buffer": "0",
            "replan_failure_threshold": "3",
            "max_replans": "1",
            "tools": ["calculator"],
        },
        {
            "plan": [
                {"tool": "calculator", "args": {"expression": "6 * 7"}, "thought": "the sum"},
                {"tool": "final_answer"},
            ],
            "follow": "plan",
            "retry_buffer": 0,
            "replan_failure_threshold": 3,
            "max_replans": 1,
            "tools": ["calculator"],
        },
    ),
    "planned without rows": ({"machine": "planned", "rows_json": "[]"}, {"plan": []}),
    "planned by the model": ({"machine": "planned"}, {}),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_machines_fields_become_its_settings_and_come_back(name: str) -> None:
    fields, wanted = FORMS[name]
    client = signed_in(alice())
    answer = post(client, **fields)
    assert answer.status_code == 302, answer.text
    first = Run.objects.get()
    assert first.settings == {"tools": []} | wanted
    form = client.get(f"/runs/new/?like={first.pk}").context["form"]
    again = client.post("/runs/new/", fields_for(first.machine, form))
    assert again.status_code == 302, again.text
    assert Run.objects.latest("pk").settings == first.settings


@pytest.mark.parametrize(
    ("fields", "place", "sentence"),
    [
        ({"machine": "contract", "slots-0-description": "no name"}, "slots", "Row 1, id: This is missing."),
        (
            {"machine": "contract", "slots-0-id": "a", "slots-0-type": "inline"}
            | {"slots-3-id": "b", "slots-3-type": "film"},
            "slots",
            "Row 2, type: ",
        ),
        (
            {"machine": "contract", "slots-0-id": "a" * 61, "slots-0-type": "inline"},
            "slots",
            "Row 1, id: This may have at most 60 characters; it has 61.",
        ),
        (
            {f"slots-{number}-{name}": text for number in (0, 1) for name, text in SLOTS[0].items()}
            | {"machine": "contract"},
            "slots",
            "two slots are called facts",
        ),
        ({"machine": "contract", "slots_json": "[{]"}, "slots_json", "Invalid JSON"),
        ({"machine": "contract", "slots_json": "{}"}, "slots_json", "a JSON list"),
        ({"machine": "contract", "slots_json": '[{"id": "a"}]'}, "slots_json", "contract.0.type: This is"),
        (
            {"machine": "contract", "slots_json": "[]", "slots-0-id": "a", "slots-0-type": "file"},
            "slots_json",
            "not both",
        ),
        (
            {"machine": "contract", "coordinator": "yes", "slots-0-id": "a", "slots-0-type": "file"},
            "coordinator",
            "leave the slots empty",
        ),
        ({"machine": "contract", "hints": '{"a": {"explore": "few"}}'}, "hints", "hints.a.explore"),
        ({"machine": "contract", "budget": '{"max_fun": 1}'}, "budget", "no setting of this name"),
        ({"machine": "contract", "skills": "[]"}, "skills", "a JSON object"),
        ({"machine": "contract", "depth": "abyss"}, "depth", "abyss"),
        (
            {"machine": "checklist", "max_iterations": "-1"},
            "max_iterations",
            "Enter a whole number of at least 0.",
        ),
        ({"machine": "checklist", "planner": "yes", "steps": "one"}, "planner", "leave the steps empty"),
        ({"machine": "planned", "rows-0-thought": "why"}, "rows", "Row 1, tool: Name the tool"),
        ({"machine": "planned", "rows-0-tool": "x", "rows-0-args": "[1]"}, "rows", "Row 1, args: Arguments"),
        ({"machine": "planned", "rows_json": '[{"tool": 5}]'}, "rows_json", "plan.0.tool"),
        ({"machine": "planned", "max_replans": "many"}, "max_replans", "whole number"),
        ({"machine": "planned", "more": '{"plan": []}'}, "more", "plan: use the field above"),
        ({"machine": "ruled", "steps": "one"}, "steps", "is a setting of checklist"),
        ({"machine": "checklist", "rows-0-tool": "x"}, "rows", "is a setting of planned"),
        ({"machine": "contract", "max_replans": "0"}, "max_replans", "is a setting of planned"),
        ({"machine": "planned", "hints": "{}"}, "hints", "is a setting of contract"),
    ],
)
def test_what_is_wrong_stands_beside_the_machines_own_field(
    fields: dict[str, Any], place: str, sentence: str
) -> None:
    answer = post(signed_in(alice()), **fields)
    assert answer.status_code == 422
    form = answer.context["form"]
    assert list(form.errors) == [place]
    assert sentence in str(form.errors[place])
    assert f'id="{place}-wrong"' in answer.text
    assert not Run.objects.exists()
    for name, text in fields.items():
        row = re.fullmatch(r"(slots|rows)-\d+-(\w+)", name)
        kept = [one[row[2]] for one in form[row[1]].value()] if row else [form[name].value()]
        assert text in kept or text == "yes"


@pytest.mark.parametrize(
    ("fields", "places"),
    [
        (
            {"machine": "planned", "rows_json": "[{", "max_replans": "many", "retry_buffer": "-1"},
            {"max_replans": 1, "retry_buffer": 1, "rows_json": 1},
        ),
        (
            {"machine": "planned", "rows-0-thought": "why", "rows-1-tool": "x", "rows-1-args": "["}
            | {"max_replans": "many", "more": '{"nope": 1}'},
            {"max_replans": 1, "more": 1, "rows": 2},
        ),
        (
            {"machine": "contract", "slots_json": "[{]", "hints": "{", "depth": "abyss", "tokens": "x"},
            {"depth": 1, "hints": 1, "slots_json": 1, "tokens": 1},
        ),
        (
            {"machine": "contract", "coordinator": "yes", "slots-0-id": "a", "slots-0-type": "film"},
            {"coordinator": 1, "slots": 1},
        ),
        (
            {"machine": "checklist", "planner": "yes", "steps": "a" * 2001, "exploration_budget": "x"},
            {"exploration_budget": 1, "planner": 1, "steps": 1},
        ),
    ],
)
def test_all_that_is_wrong_with_a_machines_fields_is_said_at_once(
    fields: dict[str, Any], places: dict[str, int]
) -> None:
    form = post(signed_in(alice()), **fields).context["form"]
    assert {place: len(form.errors[place]) for place in sorted(form.errors)} == places


def test_the_faulty_cell_is_marked() -> None:
    page = post(signed_in(alice()), "planned", **{"rows-0-tool": "a", "rows-1-tool": "b", "rows-1-args": "{"})
    cells = re.findall(r'<input[^>]*name="(rows-\d-\w+)"[^>]*aria-invalid', page.text)
    assert cells == ["rows-1-args"]


def test_without_scripts_every_machines_fields_are_on_the_page() -> None:
    Skill.objects.create(name="house-style", text="Short sentences.")
    page = signed_in(alice()).get("/runs/new/").text
    for name in ("coordinator", "depth", "steps", "plan_gate", "follow", "max_replans", "on_clarify"):
        assert f'name="{name}"' in page
    for column in rows_of_fields()["slots"]:
        assert f'name="slots-2-{column}"' in page
    for column in rows_of_fields()["rows"]:
        assert f'name="rows-2-{column}"' in page
    assert "house-style" in page


def test_skills_are_kept_in_the_admin() -> None:
    boss = cast_member("boss", is_staff=True, is_superuser=True)
    client = signed_in(boss)
    client.post("/admin/runs/skill/add/", {"name": "house-style", "text": "Short sentences."})
    assert Skill.objects.get().text == "Short sentences."
    assert "Short sentences." in client.get("/admin/runs/skill/").text


@pytest.mark.parametrize("machine", list(forms.DEMONSTRATIONS))
def test_each_demonstration_asks_once_and_succeeds(machine: str) -> None:
    client, reviewer = signed_in(alice()), bob()
    form = client.get(f"/runs/new/?demonstration={machine}").context["form"]
    fields = fields_for(machine, form)
    quick = json.loads(fields["script"]) | {"pace": {}}
    assert client.post("/runs/new/", fields | {"script": json.dumps(quick)}).status_code == 302
    run = work(Run.objects.get())
    assert run.machine == machine
    question = pending(run)
    assert question.tool == "write_file"
    card = panels.panels_of(run, reviewer)["needs"]
    assert "Steps before" in card
    assert 'class="context__thought"' in card
    decide(run, "approve")
    run = work(run)
    assert (run.status, run.interrupts.count()) == ("succeeded", 1)
    assert verifying.verify(run, driver.tool_specs(run)) is None


# --- the run page: contract ---------------------------------------------------------------------------------------


def test_a_contract_is_seen_filling_up() -> None:
    run = play(
        "contract",
        make("explore", "facts", "found"),
        {
            "action": "clarify",
            "questions": ["Which tides?"],
            "map_slots": [{"slot": "facts", "artifact": "found"}],
        },
        contract=SLOTS,
    )
    html, said = panel_html(run), panel(run)
    assert "1 of 2 slots filled" in said
    assert re.search(r'data-slot="facts" data-filled="true"', html)
    assert re.search(r'data-slot="report" data-filled="false"', html)
    assert "by found , step 5" in said
    assert "three results" in said  # the beginning of what fills it
    assert "BUDGET_STATE: global(decisions left" in said
    assert "found inline fills facts" in said
    assert "in progress" in said


def test_drafts_failures_and_wrap_up_are_told_in_words() -> None:
    ending = {
        "action": "complete",
        "completion_summary": "Partly.",
        "map_slots": [{"slot": "report", "artifact": "draft", "draft": True, "gaps": "no sources"}],
    }
    call = {"tool_id": "broken", "params": {}, "out_artifacts": [{"name": "lost", "kind": "file"}]}
    run = play(
        "contract",
        make("exploit", "report", "draft"),
        {"action": "call_tool", "strategy": "exploit", "focus_slot": "report", "tool_call": call},
        {"action": "complete", "completion_summary": "Done."},
        ending,
        contract=SLOTS[1:],
    )
    html, said = panel_html(run), panel(run)
    assert "1 of 1 slots filled" in said
    assert "Wrap-up round used" in said
    assert "draft" in html
    assert "gaps: no sources" in said
    assert "lost file failed the server said no" in said


def test_the_overdraft_is_counted_while_it_runs() -> None:
    run = play(
        "contract",
        make("explore", "facts", "one"),
        {"action": "clarify", "questions": ["Go on?"]},
        contract=SLOTS,
        budget={"max_decision_rounds": 1},
    )
    assert "Overdraft: round 1 of 3, exploit calls only" in panel(run)
    assert re.search(r"Rounds 2 of 1", panel(run))


def test_a_contract_by_the_model_is_announced() -> None:
    run = actions.start_run(
        machine="contract",
        goal="g",
        settings={"coordinator": "model"},
        owner=None,
        script={"replies": {}, "tools": {}},
    )
    assert "The model writes the contract first." in panel(run)


# --- the run page: checklist --------------------------------------------------------------------------------------


def test_a_checklist_is_ticked_off_live() -> None:
    run = play(
        "checklist",
        step("search", "→ [1] looking", q="tides"),
        step("send", "✓ [1] three of them\n✗ [2] nobody there\n→ [3] sending", "exploit", to="ann"),
        plan=["look", "ask", "send", "rest"],
    )
    found = re.findall(r'data-key="step-\d+" data-status="(\w+)"', panel_html(run))
    assert found == ["done", "failed", "now", "later"]
    said = panel(run)
    assert "1 of 4 done , 1 failed" in said
    assert "✓ 1 look done three of them" in said
    assert "→ 3 send in progress sending" in said
    assert "[ACTIVE STATE] iteration 3/8" in said
    assert "Explore 1 of 3" in said
    assert "It can complete only when every step is ticked off." in said


def test_violations_in_a_row_are_counted() -> None:
    run = play(
        "checklist", "nonsense", {"action": "clarify", "questions": []}, step("send", to="ann"), plan=["a"]
    )
    assert "Violations in a row 0 of 2" in panel(run)
    run = play("checklist", "nonsense", {"action": "complete"}, {"action": "complete"})
    assert "Violations in a row 3 of 2" in panel(run)
    assert "Sent back completion summary required" in panel(run)


def test_files_stand_with_their_kind() -> None:
    draw = {"effects": "read", "results": [{"output": "ok", "files": [{"name": "a.png", "text": "x"}]}]}
    run = actions.start_run(
        machine="checklist",
        goal="g",
        settings={},
        owner=None,
        script={
            "replies": {"decision": [step("draw"), {"action": "complete", "completion_summary": "Done."}]},
            "tools": {"draw": draw},
        },
    )
    assert "a.png display" in panel(work(run))


# --- the run page: planned ----------------------------------------------------------------------------------------

PLAN = [
    {"tool": "search", "args": {"q": "a"}},
    {"tool": "send", "args": {"to": "ann"}},
    {"tool": "final_answer"},
]


def test_a_plan_is_followed_skipped_and_replaced() -> None:
    run = play(
        "planned",
        choose("search", q="a"),
        choose("search", q="a"),
        choose("search", q="b"),
        choose("send", to="ann"),
        planner=({"outline": "Send it.", "steps": [{"tool": "send", "args": {"to": "ann"}}]},),
        plan=PLAN,
    )
    html, said = panel_html(run), panel(run)
    current, old = html.split('<details class="plan-old"')[:2]
    assert re.findall(r'data-status="(\w+)"', current) == ["pending", "later"]
    assert 'aria-current="step"' in current
    assert re.findall(r'data-status="(\w+)"', old) == ["done", "left", "left"]
    assert "Plan 2, replanned because of divergence" in said
    assert "Send it." in said
    assert "skipped: duplicate action search has just been called" in said
    assert "skipped: plan tool mismatch The plan has send next, and search was chosen." in said
    assert "Plan 1, the first one: 1 of 3 done" in said
    assert "Replans 1 of 3" in said


def test_a_fallback_is_marked_on_the_answer_and_an_unread_plan_is_told() -> None:
    run = play(
        "planned",
        *[choose("broken")] * 3,
        planner=("no plan at all",),
        plan=[{"tool": "broken"}, {"tool": "final_answer"}],
        retry_buffer=0,
    )
    assert run.answer_source == "fallback"
    assert "Fallback, because all attempts were used" in compact(
        panels.panels_of(run, bob_or_operator())["answer"]
    )
    said = panel(run)
    assert "Invalid new plan" in said
    assert "failed the server said no" in said
    assert "the answer is a fallback" in said


def test_after_a_rollback_the_plan_is_as_it_was() -> None:
    run = play(
        "planned", choose("search", q="a"), choose("send", to="ann"), choose("send", to="bea"), plan=PLAN
    )
    assert re.findall(r'data-status="(\w+)"', panel_html(run)) == ["done", "pending", "later"]
    actions.rewind(run, to=1, by=None)
    run.refresh_from_db()
    assert re.findall(r'data-status="(\w+)"', panel_html(run)) == ["pending", "later", "later"]


# --- children -----------------------------------------------------------------------------------------------------


def family(machine: str) -> Run:
    """A run of `machine` whose first call is a child that waits for a person."""
    call = {"tool_id": "agent.helper", "params": {"goal": "Look"}}
    first: dict[str, Any] = {
        "contract": {
            "action": "call_tool",
            "strategy": "explore",
            "tool_call": {**call, "out_artifacts": [{"name": "found", "kind": "inline"}]},
        },
        "checklist": step("agent.helper", goal="Look"),
        "planned": choose("agent.helper", goal="Look"),
        "ruled": {"thought": "I ask.", "action": {"tool": "agent.helper", "args": {"goal": "Look"}}},
    }
    inner = {"replies": {"decision": [step("send", to="ann")]}, "tools": WITH_BROKEN}
    return actions.start_run(
        machine=machine,
        goal="Ask",
        settings={"subgraphs": {"helper": {"machine": "checklist"}}}
        | ({"plan": []} if machine == "planned" else {}),
        owner=None,
        script={
            "replies": {"decision": [first[machine]]},
            "tools": {},
            "subgraphs": {"helper": inner},
            "usage": USAGE,
        },
    )


@pytest.mark.parametrize("machine", CATALOGUE)
def test_a_childs_progress_stands_in_the_row_that_started_it(machine: str) -> None:
    parent = family(machine)
    woken = driver.drive(parent.pk)
    parent.refresh_from_db()
    child = Run.objects.get(parent=parent)
    seq = child.parent_seq
    before = panels.panels_of(parent, bob_or_operator())[f"child-{seq}"]
    assert "Queued" in before
    assert "0 steps" in before
    assert woken == [child.pk]
    moment = look(parent.pk, parent.head).moment
    work(child)
    after = panels.panels_of(parent, bob_or_operator())[f"child-{seq}"]
    assert "Waiting" in after
    assert "at tool execution" in after
    assert "$0.001" in after
    assert f'href="/runs/{child.pk}/"' in after
    assert look(parent.pk, parent.head).moment != moment  # so that whoever watches the parent is sent it
    row = next(rows.render_row(row) for row in rows.row_views(parent) if row.seq == seq)
    assert f'data-panel="child-{seq}"' in row
    assert after in row
    client = signed_in(bob_or_operator())
    assert f"/runs/{parent.pk}/?step={seq}" in client.get(f"/runs/{child.pk}/").text
    assert f"/runs/{child.pk}/" in client.get(f"/runs/{parent.pk}/").text


def test_a_run_without_children_costs_no_question_for_them() -> None:
    run = play("checklist", step("search", q="a"), step("send", to="ann"))
    with CaptureQueriesContext(connection) as asked:
        rows.row_views(run)
    assert len(asked) == 2
    assert look(run.pk, 0).moment.children == ()
    assert isinstance(look(run.pk, 0).moment, feeds.Moment)


# --- all of them --------------------------------------------------------------------------------------------------


def test_questions_for_the_machines_part_do_not_grow_with_the_run() -> None:
    reviewer = bob()
    many: dict[str, Any] = {"exploration_budget": 30, "max_iterations": 40, "plan": ["a", "b"]}
    searches = [step("search", f"→ [1] {number}", q=str(number)) for number in range(20)]
    runs = [
        play("checklist", *searches[:1], step("send", to="ann"), **many),
        play("checklist", *searches, step("send", to="ann"), **many),
    ]
    counts = []
    for run in runs:
        panels.panels_of(run, reviewer)
        with CaptureQueriesContext(connection) as asked:
            panels.panels_of(run, reviewer)
        counts.append(len(asked))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("machine", list(CATALOGUE))
def test_each_fact_has_a_line_and_a_look_of_its_own(machine: str) -> None:
    silent = {"planned.action.entered"}  # always beside a fact that says more
    declared = CATALOGUE[machine].presentation.facts
    for fact in CATALOGUE[machine].own_facts:
        kind = fact.model_fields["kind"].default
        assert kind in declared or kind in COMMON
        has_line = kind in speaking(machine)
        assert has_line or kind in silent
        looks_like = Path(fact_template(kind, machine).template.name).name
        assert looks_like == f"{kind}.html" or (looks_like == "_any.html" and has_line)


def test_a_machine_that_says_nothing_of_its_facts_still_has_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(CATALOGUE, "silent", replace(CATALOGUE["ruled"], presentation=Presentation()))
    fact = {"kind": "ruled.draft.rejected", "rules": ["max_depth"], "reason": "too deep"}
    line = line_of("transition", "validate", "retry", [fact], None, machine="silent")
    assert line.plain == 'Rejected: rules=["max_depth"], reason="too deep"'
    assert "<h4" in fact_html(fact, machine="silent")


def test_what_was_concluded_on_the_way_to_the_model_has_a_line() -> None:
    run = play("checklist", step("send", to="ann"), plan=["look", "send"])
    assert "Plan: [1] look, [2] send" in [row.summary for row in rows.row_views(run)]
    run = play(
        "contract",
        make("explore", "facts", "one"),
        {"action": "clarify", "questions": ["Go on?"]},
        contract=SLOTS,
        budget={"max_decision_rounds": 1},
    )
    assert "Overdraft: round 1 of 3" in [row.summary for row in rows.row_views(run)]
    for reply, line in (
        ({"slots": SLOTS[:1]}, "Contract: facts (inline)"),
        ("no plan", "Note: The contract could not be read: The reply holds no JSON object."),
    ):
        run = actions.start_run(
            machine="contract",
            goal="g",
            settings={"coordinator": "model"},
            owner=None,
            script={"replies": {"coordinator": [reply], "decision": []}},
        )
        assert line in [row.summary for row in rows.row_views(work(run))]


def test_what_a_model_writes_is_text_on_the_page() -> None:
    bad = "<img src=x onerror=alert(1)>"
    run = play("checklist", step("search", f"→ [1] {bad}", q=bad), step("send", to="ann"), plan=[bad])
    assert "<img" not in panel_html(run)
    run = play(
        "planned",
        choose("search", q=bad),
        choose("send", to="ann"),
        plan=[{"tool": "search", "args": {"q": bad}}],
    )
    assert "<img" not in panel_html(run)
    slots = [{"id": bad[:50], "type": "inline", "description": bad}]
    run = play("contract", make("explore", "x", bad), make("explore", "x", bad, reason=bad), contract=slots)
    assert "<img" not in panel_html(run)


def test_a_machine_without_a_part_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(CATALOGUE["ruled"], presentation=Presentation())
    monkeypatch.setitem(CATALOGUE, "ruled", bare)
    run = actions.start_run(
        machine="ruled", goal="g", settings={"rules": ALLOW}, owner=None, script={"replies": {}, "tools": {}}
    )
    make_due(run.pk)
    assert panel_html(run) == ""
    page = signed_in(bob_or_operator()).get(f"/runs/{run.pk}/").text
    assert '<details class="own" id="own" hidden>' in page


def test_a_field_whose_name_is_taken_gets_its_machines_name_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Form("Other", "Of another.", (Whole("max_replans", "Replans"), Whole("goal", "Goals")))
    other = replace(CATALOGUE["ruled"], name="other", presentation=Presentation(form=own))
    monkeypatch.setitem(CATALOGUE, "other", other)
    assert [control.name for control in controls_of("other")] == ["other-max_replans", "other-goal"]
    page = signed_in(alice()).get("/runs/new/").text
    assert 'name="other-goal"' in page and 'name="max_replans"' in page
    sent = {"other-max_replans": 4, "other-goal": None, "max_replans": None}
    assert read_settings("other", sent, lambda name, why: pytest.fail(why)) == {"max_replans": 4}
