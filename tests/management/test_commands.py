"""The commands: what they print, what they say about bad input, and their exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as site
from django.core.management import CommandError, call_command

from agentsite.environment import ROOT
from runs import actions
from runs.engine.effects import ToolReturned
from runs.management.asking import asked_by, exit_code, how_to_answer
from runs.management.commands.launch import Command
from runs.models import Interrupt, Run, RunStatus
from runs.reading.cards import card_of
from tests.commands import database_url, refused, told
from tests.compacting import RIGHT, compacted_run, newest
from tests.launching import ALLOW, FINAL, launch, script, think
from tests.running import just_after, kinds, pending, transitions, work
from tests.workers import die_in, kill, slice_of

pytestmark = pytest.mark.usefixtures("every_run_verifies")

GOAL = ("--machine", "ruled", "--goal", "Look up the tides")


# --- launch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("played", "settings", "code", "last"),
    [
        (script(FINAL), {}, 0, "succeeded (goal_achieved)"),
        (script(think("search", q="a")), {"max_steps": 1}, 3, "stopped (max_steps)"),
        (script(), {}, 4, "failed (model_error)"),
        (script(think("send", to="a")), {"answers": [{"verdict": "abort"}]}, 5, "cancelled (aborted)"),
        (script(think("send", to="a")), {}, 6, "waiting"),
    ],
)
def test_the_exit_code_says_how_a_run_ended(
    played: dict[str, Any], settings: dict[str, Any], code: int, last: str
) -> None:
    words = (
        "launch",
        *GOAL,
        "--script",
        json.dumps(played),
        "--run-settings",
        json.dumps(settings),
        "--inline",
    )
    out, got = told(*words)
    assert got == code
    assert f": {last}" in out


def test_a_whole_timeline_is_printed_with_wait() -> None:
    played = script(think("search", q="tides"), FINAL)
    out, code = told("launch", *GOAL, "--script", json.dumps(played), "--inline", "--wait")
    lines = out.splitlines()
    run = Run.objects.get()
    assert code == 0
    assert len(lines) == run.head + 2
    assert lines[-2] == f"Run {run.pk}: succeeded (goal_achieved)"
    assert lines[-1] == "42"
    assert [line.split()[0] for line in lines[:-2]] == [str(seq) for seq in range(1, run.head + 1)]
    assert "search" in out


@pytest.mark.parametrize(
    ("played", "settings", "says", "verdict"),
    [
        (script(think("send", to="a")), {}, "Run send?", "--verdict approve"),
        (
            script(FINAL),
            {"limits": {"cost_usd": 0}},
            "Cost limit reached: $0.00 of $0.00 used",
            "--verdict top_up --args '{\"cost_usd\": AMOUNT}'",
        ),
    ],
)
def test_a_run_that_waits_names_the_command_that_answers(
    played: dict[str, Any], settings: dict[str, Any], says: str, verdict: str
) -> None:
    given = ("--script", json.dumps(played), "--run-settings", json.dumps(settings))
    out, code = told("launch", *GOAL, *given, "--inline", "--wait")
    question = pending(Run.objects.get())
    asked, *call, answered, others = out[out.index("It asks:") :].splitlines()
    assert code == 6
    assert asked == f"It asks: {says}"
    assert call == (["    send", "      to: a"] if question.tool else [])
    assert answered == f"  python3 manage.py decide {question.pk} {verdict}"
    assert others == f"  or another verdict: {', '.join(question.verdicts[1:])}"


def test_json_prints_the_export_alone() -> None:
    out, code = told("launch", *GOAL, "--script", json.dumps(script(FINAL)), "--inline", "--json")
    export = json.loads(out)
    assert code == 0
    assert (export["format"], export["run"]["status"], export["run"]["answer"]) == (1, "succeeded", "42")
    assert export["run"]["totals"]["model_calls"] == 1
    assert [step["seq"] for step in export["steps"]] == list(range(1, export["run"]["head"] + 1))


def test_an_empty_script_is_a_script() -> None:
    _, code = told("launch", *GOAL, "--script", "{}", "--inline")
    assert (code, Run.objects.get().exit_reason) == (4, "model_error")
    assert "script exhausted" in export_of(Run.objects.get())
    assert "it must be one JSON object" in refused("launch", *GOAL, "--script", "[]", "--inline")


def export_of(run: Run) -> str:
    return told("export", str(run.pk))[0]


def test_settings_and_script_may_be_files(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"max_steps": 1}')
    (tmp_path / "script.json").write_text(json.dumps(script(think("search", q="a"))))
    files = ("--run-settings", str(tmp_path / "settings.json"), "--script", str(tmp_path / "script.json"))
    _, code = told("launch", *GOAL, *files, "--inline")
    assert code == 3


def test_a_script_plays_in_place_of_the_model_of_the_settings_and_says_so() -> None:
    played, named = json.dumps(script(FINAL)), json.dumps({"model": "away"})
    out, err = io.StringIO(), io.StringIO()
    said = "The script plays; the model of the settings, away, is not asked."
    words = ("--script", played, "--run-settings", named)
    call_command("launch", *GOAL, *words, stdout=out, stderr=err)
    run = work(Run.objects.get())
    assert (err.getvalue().strip(), run.model, run.status) == (said, "", "succeeded")
    err = io.StringIO()
    call_command("fork", str(run.pk), "--at", "0", *words, stdout=out, stderr=err)
    assert err.getvalue().strip() == said


def test_launch_without_inline_queues_the_run_and_says_so() -> None:
    out, code = told("launch", *GOAL, "--script", json.dumps(script(FINAL)))
    run = Run.objects.get()
    assert (out, code) == (f"Run {run.pk}: queued\n", 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--goal", "x"), "Name the machine"),
        (("--machine", "ruled"), "Name the goal"),
        (("--machine", "nope", "--goal", "x"), "There is no machine 'nope'. Machines: "),
        ((*GOAL,), "settings.model: Name a model, or give a script."),
        ((*GOAL, "--model", "gpt"), "There is no model 'gpt'"),
        ((*GOAL, "--run-settings", "{"), "--settings is no JSON"),
        ((*GOAL, "--run-settings", "[]"), "settings: The settings must be a JSON object."),
        ((*GOAL, "--run-settings", "not/there.json"), "can't be read"),
        (
            (*GOAL, "--run-settings", '{"max_step": 1}'),
            "settings.max_step: ruled has no setting of this name. Known: model, tools, hosts, ",
        ),
        (
            (*GOAL, "--run-settings", '{"rules": [{"when": {"tools": "x"}, "do": "ask"}]}'),
            "settings.rules.0.when.tools: ruled has no setting of this name. Known: tool, effects, args, ",
        ),
        (
            (*GOAL, "--run-settings", '{"subgraphs": {"a": {"goal": "x"}}}'),
            "settings.subgraphs.a.goal: ruled has no setting of this name. Known: machine, settings",
        ),
        ((*GOAL, "--script", '{"replies": 1}'), "The script is not right at replies"),
        ((*GOAL, "--script", '{"tools": {"a": {}}}'), "it is missing; give one of none, read, write, send"),
        (("--batch", "{}"), "--batch needs a JSON list"),
        (
            ("--batch", "[]", "--model", "m", "--script", "{}"),
            "set these themselves: leave out --model, --script.",
        ),
        ((*GOAL, "--model", "m", "--script", "{}"), "give --model or --script, not both."),
    ],
)
def test_bad_input_is_refused_in_a_sentence(words: tuple[str, ...], said: str) -> None:
    assert said in refused("launch", *words)
    assert not Run.objects.exists()


@pytest.mark.parametrize("how", ["--inline", "--wait"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_given_answer_that_does_not_fit_is_bad_input_and_the_run_is_told_of(
    how: str,
    as_json: bool,  # noqa: FBT001
) -> None:
    settings = json.dumps({"answers": [{"verdict": "approve"}, {"verdict": "resume"}]})
    played = json.dumps(script(think("send", to="a"), think("send", to="b"), FINAL))
    words = ("launch", *GOAL, "--script", played, "--run-settings", settings, how)
    out = io.StringIO()
    with contextlib.ExitStack() as stack:
        if how == "--wait":
            stack.enter_context(just_after("runs_run", lambda: work(Run.objects.get())))
        caught = stack.enter_context(pytest.raises(CommandError))
        call_command(*words, *(["--json"] if as_json else []), stdout=out)
    run = Run.objects.get()
    assert (run.status, caught.value.returncode) == ("waiting", 2)
    assert str(caught.value).startswith(
        "settings.answers: resume is not an answer to this question (tool_call). Possible: approve"
    )
    if as_json:
        assert json.loads(out.getvalue())["run"]["id"] == str(run.pk)
    else:
        assert f"Run {run.pk}: waiting" in out.getvalue() and f"decide {pending(run).pk}" in out.getvalue()


def test_a_batch_prints_one_export_a_line_in_order_and_errors_in_their_place() -> None:
    good = {"machine": "ruled", "goal": "x", "settings": {}, "script": script(FINAL)}
    items = [
        good,
        {"machine": "nope", "goal": "x"},
        good | {"settings": []},
        good | {"settings": {"answers": [{"verdict": "top_up"}]}, "script": script(think("send", to="a"))},
        "what",
        good | {"speed": 1},
        good | {"script": [1]},
        good | {"settings": None, "script": script(think("send", to="a"))},
    ]
    out, code = told("launch", "--batch", json.dumps(items))
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [("error" in line) for line in lines] == [False, True, True, True, True, True, True, False]
    assert lines[0]["run"]["status"] == "succeeded"
    assert "settings.answers" in lines[3]["error"]
    assert lines[7]["run"]["status"] == "waiting"


# --- the other commands -------------------------------------------------------------------------------------------


def test_decide_by_command() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    question = str(pending(run).pk)
    assert "no argument cc" in refused(
        "decide", question, "--verdict", "edit", "--args", '{"to": "a", "cc": 1}'
    )
    assert "is not an answer" in refused("decide", question, "--verdict", "top_up")
    assert "is no JSON" in refused("decide", question, "--verdict", "edit", "--args", "{")
    assert "There is no question" in refused("decide", "nope", "--verdict", "approve")
    assert "There is no question" in refused("decide", "0" * 32, "--verdict", "approve")
    with pytest.raises(CommandError) as caught:
        call_command("decide", question, "--verdict", "approve", "--revision", "5")
    assert caught.value.returncode == 1
    words = ("decide", question, "--verdict", "edit", "--args", '{"to": "eve"}', "--message", "eve")
    assert told(*words) == (f"Recorded: edit on run {run.pk}.\n", 0)
    assert told(*words) == (f"Recorded: edit on run {run.pk}.\n", 0)
    with pytest.raises(CommandError, match="the operator already decided at") as caught:
        call_command("decide", question, "--verdict", "reject")
    assert caught.value.returncode == 1
    assert work(run).status == "succeeded"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--verdict", "approve", "--args", '{"to": "evil"}'),
            "--args goes with edit and top_up; nothing was decided.",
        ),
        (
            ("--verdict", "approve", "--args", '{"to": "bob"}'),
            "--args goes with edit and top_up; nothing was decided.",
        ),
        (("--verdict", "reject", "--args", "{}"), "--args goes with edit and top_up; nothing was decided."),
        (("--verdict", "respond", "--message", "x", "--args", "null"), "--args goes with edit and top_up"),
        (("--verdict", "abort", "--args", "{}"), "--args goes with edit and top_up"),
        (("--verdict", "rollback", "--to-step", "2", "--args", "{}"), "--args goes with edit and top_up"),
        (("--verdict", "approve", "--to-step", "2"), "--to-step goes with rollback; nothing was decided."),
        (("--verdict", "edit", "--args", '{"to": "a"}', "--to-step", "0"), "--to-step goes with rollback"),
        (("--verdict", "approve", "--message", "x" * 4001), "at most 4000 characters; this one has 4001"),
    ],
)
def test_an_option_that_the_verdict_does_not_take_is_refused(words: tuple[str, ...], said: str) -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    assert said in refused("decide", str(pending(run).pk), *words)
    assert pending(run).status == "pending"


def test_decide_takes_the_number_of_a_run_that_asks_one_thing() -> None:
    run = work(launch(think("send", to="bob"), think("send", to="eve"), FINAL))
    words = ("decide", str(run.pk), "--verdict", "approve")
    assert told(*words) == (f"Recorded: approve on run {run.pk}.\n", 0)
    assert f"Run {run.pk} has no open question." in refused(*words)
    work(run)
    assert told(*words) == (f"Recorded: approve on run {run.pk}.\n", 0)
    assert work(run).tool_calls == 2


def test_a_call_that_may_have_happened_is_made_again_only_by_who_is_sure() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    journey = die_in(run, before=kill, only="send")
    words = ("decide", str(pending(work(run)).pk), "--verdict", "approve")
    twice = 'This runs the call send(to="bob") again. If it already happened, this could duplicate it.'
    assert refused(*words) == f"{twice} Check outside first, then add --sure. Nothing was decided."
    assert journey.at.asked is not None
    journey.keep(journey.at.asked, ToolReturned(value="sent 1"))
    came_back = card_of(pending(run), None).late_end
    sentence = r"The lost worker returned on .* UTC with the outcome of the call\. It was done: sent 1"
    assert re.fullmatch(sentence, came_back)
    assert refused(*words).startswith(f"{came_back}. {twice}")
    assert pending(run).status == "pending"
    assert told(*words, "--sure") == (f"Recorded: approve on run {run.pk}.\n", 0)
    assert told(*words) == (f"Recorded: approve on run {run.pk}.\n", 0)  # the same one again
    work(run)
    assert run.exchanges.filter(name="send").count() == 2


def test_what_is_not_made_again_wants_no_sureness() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    work(run)
    assert told("decide", str(run.pk), "--verdict", "reject") == (f"Recorded: reject on run {run.pk}.\n", 0)


def with_a_child_that_asks() -> Run:
    inner = {"replies": {"decision": [think("send", to="bob"), FINAL]}}
    played = script(think("agent.inner", goal="Ask"), FINAL, subgraphs={"inner": inner})
    return work(launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": {}}}))


def test_the_number_of_a_run_stands_for_the_question_of_its_child_too() -> None:
    run = with_a_child_that_asks()
    child = run.children.get()
    assert told("decide", str(run.pk), "--verdict", "approve") == (
        f"Recorded: approve on run {child.pk}.\n",
        0,
    )
    work(child)
    assert work(run).status == "succeeded"


def test_several_open_questions_are_listed_and_none_is_decided() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    first = pending(run)
    second = Interrupt.objects.create(
        run=run, seq=first.seq + 1000, kind="manual", title="Go on?", verdicts_json='["resume"]'
    )
    said = refused("decide", str(run.pk), "--verdict", "approve")
    assert f"Run {run.pk} has 2 open questions; nothing was decided." in said
    assert f"{first.pk}  {first.title}" in said and f"{second.pk}  Go on?" in said
    assert Interrupt.objects.filter(status="pending").count() == 2
    second.delete()


def test_who_names_no_interrupt_is_told_where_they_are() -> None:
    said = refused("decide", "1", "--verdict", "approve")
    assert said.startswith("There is no question 1 and no run of this number.")
    assert "export RUN" in said and "Needs you" in said


def test_a_top_up_by_command() -> None:
    run = work(launch(FINAL, limits={"cost_usd": 0}))
    question = str(pending(run).pk)
    for args in ("[1]", '"much"', '{"cost_usd": -1}'):
        refused("decide", question, "--verdict", "top_up", "--args", args)
    told("decide", question, "--verdict", "top_up", "--args", '{"cost_usd": 0.5}')
    assert work(run).status == "succeeded"


def test_a_way_back_past_what_stays_done_is_told_and_wants_to_be_sure() -> None:
    run = work(launch(*[think("send", to="bob")] * 2, FINAL))
    told("decide", str(run.pk), "--verdict", "approve")
    work(run)
    sent = run.exchanges.get(kind="tool_call").seq
    stays = (
        "Side effects after step {} stay, and may be repeated:\n"
        f'  sends send(to="bob") in step {sent}\n'
        "Estimated to add: $0.001 (1 model call, 120 tokens, 1 tool call), "
        "if the run repeats its steps.\n"
    )
    first, last = transitions(run)[0], transitions(run)[-1]
    words = ("decide", str(run.pk), "--verdict", "rollback", "--to-step", str(first))
    assert refused(*words) == stays.format(first) + "Add --sure to roll back. Nothing was changed."
    assert "not a live transition" in refused(*words[:-1], "1")
    assert pending(run).status == "pending"
    assert told(*words, "--sure") == (stays.format(first) + f"Recorded: rollback on run {run.pk}.\n", 0)

    run = work(launch(*[think("send", to="bob")] * 2, FINAL))
    told("decide", str(run.pk), "--verdict", "approve")
    work(run)
    first, last = transitions(run)[0], transitions(run)[-1]
    words = ("decide", str(run.pk), "--verdict", "rollback", "--to-step", str(last))
    assert told(*words) == (f"Recorded: rollback on run {run.pk}.\n", 0)
    goes_back, rows = ("rollback", str(run.pk), "--to"), run.steps.count()
    assert refused(*goes_back, str(first)) == stays.format(first) + (
        "Add --sure to roll back. Nothing was changed."
    )
    assert "not a live transition" in refused(*goes_back, "1")
    assert run.steps.count() == rows
    said, code = told(*goes_back, str(first), "--sure")
    assert (code, said.startswith(stays.format(first) + f"Run {run.pk}: ")) == (0, True)


def test_a_rollback_during_a_call_that_sends_wants_to_be_sure() -> None:
    run = launch(think("search", q="tides"), think("send", to="bob"), FINAL, rules=ALLOW)
    refusals: list[str] = []

    def go_back() -> None:
        run.refresh_from_db()
        words = ("rollback", str(run.pk), "--to", str(transitions(run, "executed")[0]))
        refusals.append(refused(*words))

    world = slice_of(run, before=go_back, only="send")
    assert 'send(to="bob")' in refusals[0] and "(may have happened)" in refusals[0]
    assert refusals[0].endswith("Add --sure to roll back. Nothing was changed.")
    assert (world.calls, run.status, "rewind" in kinds(run)) == (
        ["decision", "search", "decision", "send", "decision"],
        "succeeded",
        False,
    )


def test_a_rollback_that_is_not_possible_says_that_and_not_what_it_would_leave() -> None:
    run = work(launch(think("send", to="bob"), FINAL, rules=ALLOW))
    words = ("rollback", str(run.pk), "--to", str(transitions(run)[0]))
    assert refused(*words) == f"Run {run.pk} has ended already (succeeded: goal_achieved)."


def test_a_way_back_past_what_people_did_to_the_context_is_told_and_wants_to_be_sure() -> None:
    def mended() -> tuple[Run, int, str]:
        """The run, a row before a correction and a pin of what stands before that row, and what is told of them."""
        run = compacted_run()
        seq, at = newest(run).seq, transitions(run)[-1]
        actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=None)
        row = transitions(run, "executed")[-1]
        actions.pin(run, path=f"st:{row}", by=None)
        return (
            run,
            at,
            f"Changes to the context after step {at} are rolled back:\n"
            f"  Summary corrected: step {seq}, version 2, by the operator: “A digit.” (step {run.head + 1})\n"
            f"  Pinned for the model: step {row} by the operator (step {run.head + 2})\n"
            "Estimated to add: $0.00 (0 model calls, 0 tokens, 0 tool calls), "
            "if the run repeats its steps.\n",
        )

    run, at, lost = mended()
    words = ("decide", str(run.pk), "--verdict", "rollback", "--to-step", str(at))
    assert refused(*words) == lost + "Add --sure to roll back. Nothing was changed."
    assert pending(run).status == "pending"
    assert told(*words, "--sure") == (f"{lost}Recorded: rollback on run {run.pk}.\n", 0)
    work(run)
    at = transitions(run)[-1]
    assert told(*words[:-1], str(at)) == (f"Recorded: rollback on run {run.pk}.\n", 0), (
        "nothing counts no more"
    )

    run, at, lost = mended()
    goes_back = ("rollback", str(run.pk), "--to", str(at))
    assert refused(*goes_back) == lost + "Add --sure to roll back. Nothing was changed."
    said, code = told(*goes_back, "--sure")
    assert (code, said.startswith(f"{lost}Run {run.pk}: ")) == (0, True)
    said, code = told("rollback", str(run.pk), "--to", str(at))
    assert (code, said.startswith(f"Run {run.pk}: ")) == (0, True)


def test_rerun_says_what_people_did_to_the_context_that_is_not_in_the_new_run() -> None:
    run = compacted_run()
    seq, at = newest(run).seq, transitions(run)[-1]
    estimate = ("rerun", str(run.pk), "--at", str(at), "--estimate")
    again = "Estimated to add: 0 model calls (0 tokens, $0.00), 0 tool calls.\n"
    assert told(*estimate) == (again, 0)
    actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=None)
    assert told(*estimate) == (
        f"{again}Changes to the context since are not copied:\n"
        f"  Summary corrected: step {seq}, version 2, by the operator: “A digit.” (step {run.head + 1})\n",
        0,
    )


def test_pause_resume_rollback_and_abort_say_where_the_run_is() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    number, head = str(run.pk), run.head
    assert told("pause", number) == (f"Run {number}: paused, at action, step {head + 1}.\n", 0)
    assert "paused already" in refused("pause", number)
    assert told("resume", number) == (f"Run {number}: waiting, at action, step {head + 2}.\n", 0)
    first = transitions(run)[0]
    assert told("rollback", number, "--to", str(first)) == (
        f"Run {number}: queued, at validate, step {head + 3}.\n",
        0,
    )
    assert "not a live transition" in refused("rollback", number, "--to", "1")
    assert told("abort", number) == (f"Run {number}: cancelled, at end, step {head + 4}.\n", 0)
    assert "has ended already" in refused("abort", number)
    assert "There is no run 999999." in refused("abort", "999999")
    assert "There is no run x." in refused("pause", "x")


def test_export_prints_the_run_as_json() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    export = json.loads(told("export", str(run.pk))[0])
    assert export["run"]["id"] == str(run.pk)
    assert export["interrupts"][0]["status"] == "pending"
    assert "can't be exported as" in refused("export", str(run.pk), "--format", "xml")
    assert "There is no run" in refused("export", "12345")


def test_machines_are_shown_as_a_table_or_a_diagram() -> None:
    table, code = told("machines", "ruled")
    assert code == 0
    assert "ruled: " in table
    assert "validate" in table
    diagram, _ = told("machines", "ruled", "--mermaid")
    assert diagram.startswith("stateDiagram-v2")
    assert "validate --> action: pass" in diagram
    assert "commit --> [*]: terminated" in diagram
    assert "There is no machine nope" in refused("machines", "nope")


# --- as a process -------------------------------------------------------------------------------------------------


def process(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=os.environ
        | {"DATABASE_URL": database_url(), "REDIS_URL": "", "AGENTSITE_DATA_DIR": str(site.DATA_DIR)}
        | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_settings_of_the_run_are_given_as_settings(tmp_path: Path) -> None:
    """`--settings` would be Django's own; manage.py hands it to the run, in both spellings, file or JSON."""
    (tmp_path / "settings.json").write_text('{"max_steps": 1}')
    played = json.dumps(script(think("search", q="a")))
    for given in (("--settings", '{"max_steps": 1}'), (f"--settings={tmp_path / 'settings.json'}",)):
        done = process("launch", *GOAL, *given, "--script", played, "--inline", "--json")
        assert done.returncode == 3, done.stderr
        assert json.loads(done.stdout)["run"]["exit_reason"] == "max_steps"


def test_bad_input_ends_a_process_with_2_and_a_sentence_without_a_traceback() -> None:
    done = process("launch", "--machine", "nope", "--goal", "x")
    assert done.returncode == 2
    assert "There is no machine 'nope'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_broker_that_is_away_loses_nothing_and_bothers_nobody() -> None:
    played = json.dumps(script(FINAL))
    done = process("launch", *GOAL, "--script", played, REDIS_URL="redis://127.0.0.1:1/0")
    assert done.returncode == 0, done.stderr
    run = Run.objects.get()
    assert f"Run {run.pk}: queued" in done.stdout
    assert "Traceback" not in done.stderr
    assert work(run).status == "succeeded"


def test_a_run_that_waits_is_gone_on_with_by_another_process() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    done = process("decide", str(pending(run).pk), "--verdict", "approve")
    assert done.returncode == 0, done.stderr
    assert work(run).status == "succeeded"
    assert process("verify", str(run.pk)).returncode == 0


def test_the_model_is_named_on_the_line() -> None:
    actions.register_model(name="real", base_url="http://127.0.0.1:9/v1", model_id="m")
    out, _ = told("launch", *GOAL, "--model", "real")
    assert Run.objects.get().model == "real"
    assert "queued" in out
    actions.abort(Run.objects.get(), by=None)


def test_following_a_run_ends_where_its_child_asks_a_person() -> None:
    run = with_a_child_that_asks()
    assert not run.interrupts.exists()
    asked = Command().followed(run, "", silent=True)
    assert (run.status, [question.run for question in asked]) == ("waiting", [run.children.get()])


def test_a_question_of_a_child_is_told_with_the_number_of_the_child() -> None:
    run = with_a_child_that_asks()
    (asked,) = asked_by(run)
    shown = how_to_answer(asked, run)
    assert f"Run {run.children.get().pk} (inner), a child of run {run.pk}, asks: " in shown
    assert "It asks" not in shown
    assert how_to_answer(asked, run.children.get()).startswith("It asks: ")


def test_launch_says_that_a_question_is_its_childs() -> None:
    inner = {"replies": {"decision": [think("send", to="bob"), FINAL]}}
    played = json.dumps(script(think("agent.inner", goal="Ask"), FINAL, subgraphs={"inner": inner}))
    settings = json.dumps({"subgraphs": {"inner": {"machine": "ruled", "settings": {}}}})
    out, code = told("launch", *GOAL, "--script", played, f"--run-settings={settings}", "--inline", "--wait")
    run = Run.objects.get(parent=None)
    assert code == 6
    assert (
        f"Run {run.pk}: waiting\nRun {run.children.get().pk} (inner), a child of run {run.pk}, asks: " in out
    )


def test_a_question_that_comes_once_the_status_was_read_is_told_with_the_status_of_its_own() -> None:
    played = json.dumps(script(think("send", to="bob"), FINAL))
    with just_after("runs_step", lambda: work(Run.objects.get())):
        out, code = told("launch", *GOAL, "--script", played, "--wait")
    run = Run.objects.get()
    assert code == 6
    assert f"Run {run.pk}: waiting\nIt asks: {pending(run).title}\n" in out
    assert [line.split()[0] for line in out.splitlines()[: run.head]] == [
        str(seq) for seq in range(1, run.head + 1)
    ]


def test_a_followed_run_is_as_its_last_look_found_it() -> None:
    run = launch(think("send", to="bob"), FINAL)
    with just_after("runs_run", lambda: work(Run.objects.get())):
        asked = Command().followed(run, "", silent=True)
    assert (run.status, asked) == ("waiting", [pending(run)])


def test_0_is_for_a_run_that_has_succeeded_alone() -> None:
    codes = {status.value: exit_code(Run(status=status)) for status in RunStatus}
    assert codes == {
        "queued": 6,
        "running": 6,
        "waiting": 6,
        "paused": 6,
        "succeeded": 0,
        "stopped": 3,
        "failed": 4,
        "cancelled": 5,
    }
