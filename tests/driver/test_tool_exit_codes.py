"""A tool's exit code and stderr: kept with its result, told to each machine's model, shown, exported and verified."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from runs import actions, driver
from runs.adapters.scripted import BadScript, parse_script
from runs.adapters.tool import Arguments, Place, Result, Tool
from runs.adapters.toolbox import MAX_RESULT, Toolbox
from runs.engine.effects import ToolCall, ToolReturned
from runs.machines import CATALOGUE
from runs.models import Run, Step
from runs.reading import prompts
from runs.reading.script_export import script_of
from tests.cast import person, signed_in
from tests.launching import SEARCH, USAGE
from tests.running import work
from tests.shell import ARGS, LAST, OUT, ROWS, SHELL_CALL

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

SHELL = {
    "params": {"line": "string"},
    "effects": "none",
    "results": [
        {"output": "a.txt", "exit_code": 2, "stderr": "b.txt: no such file"},
        {"output": "b.txt", "exit_code": 0, "stderr": "b.txt: read only"},
    ],
}


def played(machine: str, *calls: Any, planner: tuple[Any, ...] = (), **settings: Any) -> Run:
    """A run that makes the calls and ends."""
    own = {"plan": ROWS} if machine == "planned" else {}
    replies = {"decision": [*calls, LAST[machine]], "planner": list(planner)}
    run = actions.start_run(
        machine=machine,
        goal="List the files",
        settings=own | settings,
        owner=None,
        script={"replies": replies, "tools": {"shell": SHELL, "search": SEARCH}, "usage": USAGE},
    )
    return work(run)


def results(run: Run) -> list[Any]:
    return [
        fact
        for step in run.steps.order_by("seq")
        for fact in CATALOGUE[run.machine].facts.validate_json(step.facts_json)
        if fact.kind == "react.tool.result"
    ]


def last_prompt(run: Run, role: str = "decision") -> str:
    asked = run.exchanges.filter(kind="model_call", name=role).order_by("-seq")[0]
    return "\n".join(message.text for message in prompts.prompt_of(run, asked.seq) or ())


@pytest.mark.parametrize("machine", list(CATALOGUE))
def test_a_call_that_exits_with_another_code_than_0_failed_and_the_model_reads_all_of_it(
    machine: str,
) -> None:
    run = played(machine, SHELL_CALL[machine], SHELL_CALL[machine])
    assert run.status == "succeeded"
    failed, passed = results(run)[:2]
    assert (failed.error, failed.value, failed.exit_code) == ("Exited with code 2.", "a.txt", 2)
    assert (passed.error, passed.value, passed.exit_code, passed.stderr) == (
        None,
        "b.txt",
        0,
        "b.txt: read only",
    )
    prompt = last_prompt(run)
    assert "exit code: 2\noutput: a.txt\nstderr: b.txt: no such file" in prompt
    assert "exit code: 0\noutput: b.txt\nstderr: b.txt: read only" in prompt
    _, difference = driver.replay_run(run, None)
    assert difference is None


def test_a_replan_is_told_the_exit_code_and_stderr_as_they_were() -> None:
    new = {"outline": "again", "steps": ROWS}
    run = played("planned", SHELL_CALL["planned"], planner=(new,), replan_failure_threshold=1)
    assert "exit code: 2\noutput: a.txt\nstderr: b.txt: no such file" in last_prompt(run, "planner")


@pytest.mark.parametrize("machine", list(CATALOGUE))
def test_a_result_without_them_is_stored_as_before(machine: str) -> None:
    search = {"q": "tides"}
    call: dict[str, Any] = {
        "contract": SHELL_CALL["contract"]
        | {"tool_call": {"tool_id": "search", "params": search, "out_artifacts": OUT}},
        "checklist": SHELL_CALL["checklist"] | {"tool_call": {"tool_id": "search", "params": search}},
        "planned": {"tool": "search", "args": search},
        "ruled": {"thought": "I look", "action": {"tool": "search", "args": search}},
    }[machine]
    own: dict[str, Any] = {"plan": []} if machine == "planned" else {}
    run = played(machine, call, **own)
    texts = "".join(Step.objects.filter(run=run).values_list("facts_json", flat=True))
    texts += "".join(filter(None, run.exchanges.values_list("answer_json", flat=True)))
    assert "three results" in texts
    assert "exit_code" not in texts and "stderr" not in texts


def seen(client: Client, path: str) -> str:
    """The words of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", client.get(path).content.decode()).split())


def test_the_row_and_the_step_show_the_exit_code_and_stderr() -> None:
    run = played("ruled", SHELL_CALL["ruled"], SHELL_CALL["ruled"])
    client = signed_in(person("bob", "view_run"))
    page = seen(client, f"/runs/{run.pk}/")
    assert "Exited with code 2. b.txt: no such file" in page and "shell, exit code 0 b.txt" in page
    seqs = [step.seq for step in run.steps.order_by("seq") if '"react.tool.result"' in step.facts_json]
    failed, passed = (seen(client, f"/runs/{run.pk}/steps/{seq}/") for seq in seqs)
    for page, code, out, err in (
        (failed, 2, "a.txt", "b.txt: no such file"),
        (passed, 0, "b.txt", "b.txt: read only"),
    ):
        assert f"exit code {code}" in page and out in page and err in page and "stderr" in page


def test_an_exported_script_plays_them_again() -> None:
    run = played("ruled", SHELL_CALL["ruled"], SHELL_CALL["ruled"])
    exported = script_of(run)["tools"]["shell"]["results"]
    assert exported == SHELL["results"]


@pytest.mark.parametrize(
    "result", [{"error": "no", "exit_code": 1}, {"output": 1, "exit_code": "2"}, {"output": 1, "stderr": 3}]
)
def test_a_script_whose_exit_code_or_stderr_can_not_be_played_is_refused(result: dict[str, Any]) -> None:
    with pytest.raises(BadScript, match=r"tools\.shell\.results\.0"):
        parse_script({"tools": {"shell": {"effects": "none", "results": [result]}}})


class Line(Arguments):
    line: str


def test_a_registered_tool_gives_them_and_a_long_stderr_is_cut(tmp_path: Path) -> None:
    def run(arguments: Line, place: Place) -> Result:
        return Result("out", exit_code=1, stderr="x\x00" * MAX_RESULT)

    shell = Tool("shell", "Runs a line.", Line, "execute", idempotent=False, deadline_s=5, run=run)
    toolbox = Toolbox(["shell"], tmp_path, None, (), tools={"shell": shell})
    answer = toolbox.call(ToolCall(tool="shell", args=ARGS, effects="execute"), 1, "key")
    assert isinstance(answer, ToolReturned)
    assert (answer.value, answer.exit_code) == ("out", 1)
    assert "\x00" not in answer.stderr and "characters cut" in answer.stderr
    assert len(answer.stderr) < MAX_RESULT
