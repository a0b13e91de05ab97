"""fork and rerun at the command line: what they print, what they refuse, their exit codes."""

from __future__ import annotations

import io
import json
import os
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class

from runs.models import Run
from tests.commands import command, refused, told
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import transitions, work

pytestmark = pytest.mark.usefixtures("every_run_verifies")


def finished() -> Run:
    return work(launch(think("search", q="a"), think("send", to="bob"), FINAL, rules=ALLOW))


def test_fork_prints_the_number_of_the_new_run() -> None:
    run = finished()
    at = transitions(run, "executed")[0]
    out, code = told("fork", str(run.pk), f"--at={at}", "--message=What if?", "--sure")
    made = Run.objects.get(copied_from=run)
    assert (out, code) == (f"{made.pk}\n", 0)
    assert made.status == "queued"
    work(made)


def test_continue_takes_its_own_settings_too() -> None:
    words = ("--goal", "more", "--settings", '{"max_steps": 1}', "--inline", "--json")
    done = command("continue", str(finished().pk), *words)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert json.loads(done.stdout)["run"]["settings"]["max_steps"] == 1


def test_fork_takes_its_own_settings_where_django_would_take_them_for_a_module() -> None:
    run = finished()
    done = command(
        "fork",
        str(run.pk),
        "--at=0",
        "--settings",
        '{"max_steps": 1}',
        "--sure",
        "--inline",
        "--json",
    )
    assert done.returncode == 3, done.stdout + done.stderr
    export = json.loads(done.stdout)
    assert export["run"]["exit_reason"] == "max_steps"
    assert (export["run"]["copied_from"], export["run"]["origin"]) == (str(run.pk), "fork")


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("--script", {"replies": {"decision": [FINAL]}}),
        ("--run-settings", {"max_steps": 5}),
        ("--decision", {"verdict": "reject"}),
    ],
)
def test_what_is_given_through_a_pipe_is_read_once(option: str, given: dict[str, Any]) -> None:
    """As a shell gives it with `<(…)`: who reads it again finds nothing."""
    run = work(launch(think("send", to="bob"), FINAL))
    reader, writer = os.pipe()
    os.write(writer, json.dumps(given).encode())
    os.close(writer)
    try:
        _, code = told("fork", str(run.pk), "--at=0", option, f"/dev/fd/{reader}")
    finally:
        os.close(reader)
    assert code == 0 and Run.objects.filter(copied_from=run).count() == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at=999",), "has no step 999"),
        (("--at=0", "--run-settings={"), "--settings is no JSON"),
        (
            ("--at=0", '--run-settings={"max_step": 1}'),
            "settings.max_step: ruled has no setting of this name.",
        ),
        (("--at=0", '--state={"steps": "x"}'), "state.steps: This must be a whole number"),
        (("--at=0", '--state={"steps": -7}'), "state.steps: This must be a whole number from 0 to 1,000,000"),
        (("--at=0", '--state=["steps"]'), "state: The state must be a JSON object."),
        (("--at=0", "--state=[]"), "state: The state must be a JSON object."),
        (("--at=0", '--state={"steps": true}'), "state.steps: This must be a whole number, not true."),
        (("--at=0", '--state={"steps": "3"}'), 'state.steps: This must be a whole number, not "3".'),
        (("--at=0", "--run-settings=[]", "--model=nosuch"), "settings: The settings must be a JSON object."),
        (("--at=0", '--run-settings="x"', "--model=nosuch"), "settings: The settings must be a JSON object."),
        (("--at=0", "--script=[]"), "script: "),
        (("--at=0", "--script={}", "--model=m"), "give --model or --script, not both."),
        (("--at=0", f"--message={'m' * 501}"), "A reason has at most 500 characters; this one has 501;"),
        (("--at=0", "--decision={}"), "decision: Run"),
        (("--at=0", "--decision=[]"), "decision: A decision must be a JSON object."),
        (("--at=0", "--model=nosuch"), "settings.model: There is no model 'nosuch'."),
        (("--at=0", '--decision={"verdict": "approve"}'), "decision: Run"),
        (("--at=0", '--decision=["verdict"]'), "decision: A decision must be a JSON object."),
        (
            ("--at=0", '--decision={"verdict": "approve", "question": 9}'),
            "The question in step 9 was rolled back",
        ),
    ],
)
def test_fork_refuses_in_a_sentence(words: tuple[str, ...], said: str) -> None:
    run = finished()
    assert said in refused("fork", str(run.pk), *words)
    assert Run.objects.count() == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_a_fork_whose_given_answer_does_not_fit_is_told_of(as_json: bool) -> None:  # noqa: FBT001
    run = work(launch(think("send", to="bob"), FINAL))
    out = io.StringIO()
    words = ("fork", str(run.pk), "--at=0", '--run-settings={"answers": [{"verdict": "top_up"}]}', "--inline")
    with pytest.raises(CommandError, match=r"settings\.answers: top_up is not an answer") as caught:
        call_command(*words, *(["--json"] if as_json else []), stdout=out)
    made = Run.objects.get(copied_from=run)
    assert (caught.value.returncode, made.status) == (2, "waiting")
    printed = json.loads(out.getvalue())
    assert (printed["run"]["id"] if as_json else str(printed)) == str(made.pk)


def test_rerun_says_first_what_comes_again() -> None:
    run = finished()
    at = transitions(run, "executed")[0]
    out, code = told("rerun", str(run.pk), f"--at={at}", "--estimate")
    assert out == (
        "Estimated to add: 2 model calls (240 tokens, $0.002), 1 tool call, 1 of them with side effects.\n"
    )
    assert (code, Run.objects.count()) == (0, 1)
    out, code = told("rerun", str(run.pk), f"--at={at}", "--estimate", "--json")
    assert (json.loads(out), code, Run.objects.count()) == (
        {
            "model_calls": 2,
            "tokens": 240,
            "cost_usd": 0.002,
            "tool_calls": 1,
            "outside_calls": 1,
            "lost": [],
        },
        0,
        1,
    )
    out, code = told("rerun", str(run.pk), f"--at={at}", "--inline", "--sure")
    made = Run.objects.get(copied_from=run)
    assert (code, out.splitlines()[-1], made.origin) == (0, str(made.pk), "rerun")


@pytest.mark.parametrize("name", ["fork", "rerun"])
def test_a_new_run_that_may_do_again_what_was_done_wants_to_be_sure(name: str) -> None:
    run = finished()
    at, sent = transitions(run, "executed")[0], run.exchanges.get(name="send").seq
    words, out = (name, str(run.pk), f"--at={at}"), io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command(*words, stdout=out)
    assert (caught.value.returncode, out.getvalue(), Run.objects.count()) == (2, "", 1)
    assert str(caught.value) == (
        f"Side effects after step {at} stay, and may be repeated:\n"
        f'  sends send(to="bob") in step {sent}\n'
        "Estimated to add: $0.002 (2 model calls, 240 tokens, 1 tool call), "
        "if the run repeats its steps.\n"
        "Add --sure to start the new run. None was started."
    )
    assert told(*words, "--sure")[1] == 0
    assert work(Run.objects.get(copied_from=run)).tool_calls == 2


@pytest.mark.parametrize("name", ["fork", "rerun"])
def test_a_new_run_from_after_what_was_done_begins_at_once(name: str) -> None:
    run = finished()
    told(name, str(run.pk), f"--at={transitions(run, 'executed')[-1]}")
    assert Run.objects.get(copied_from=run).origin == name


@pytest.mark.parametrize("more", [(), ("--estimate",)])
def test_rerun_prints_no_estimate_of_what_can_not_be_done(more: tuple[str, ...]) -> None:
    run = finished()
    out = io.StringIO()
    with pytest.raises(CommandError, match="Step 1 of run") as caught:
        call_command("rerun", str(run.pk), "--at=1", *more, stdout=out)
    assert (caught.value.returncode, out.getvalue()) == (2, "")


@pytest.mark.parametrize("name", ["fork", "launch"])
def test_the_help_says_how_the_settings_of_the_run_are_written(name: str) -> None:
    parser = load_command_class("runs", name).create_parser("manage.py", name)
    assert "--settings '{…}' means the same here, not Django's own option" in " ".join(
        parser.format_help().split()
    )
