"""Scripts of the tool python: each call out of one is a call of the run, with its gates, steps and recoveries."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from agentsite.environment import ROOT
from runs import actions
from runs.machines import CATALOGUE
from runs.models import Run
from runs.reading.rows import row_views
from runs.reading.script_export import launch_of
from runs.store import loading
from tests.cast import person, signed_in
from tests.commands import command, launch_and_die
from tests.launching import ALLOW, FINAL, SEARCH, SEND, launch, script, think
from tests.machines.replies import NAMES, SETTINGS, call, end
from tests.running import decide, kinds, pending, transitions, work
from tests.workers import die_in, kill

pytest.importorskip("pydantic_monty")
pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

CODE = """\
found = search(q="tides")
print("found", found)
try:
    said = send(to="bob", text=found)
except RuntimeError as error:
    said = f"not sent: {error}"
said
"""
WRITE = "write_file(name='a.txt', content='hello')\nread_file(name='a.txt')['text']"
WAITS = 6
"""The exit code of a launch that waits for a person."""

KEYED = SEND | {"idempotent": True}


def scripted(code: str = CODE, *, send: Any = SEND, **settings: Any) -> Run:
    """A run whose model writes that script, not begun."""
    played = script(think("python", code=code), FINAL, tools={"search": SEARCH, "send": send})
    return launch(played=played, tools=["python", "read_file", "write_file"], **settings)


def told(run: Run, kind: str = "react.tool.result") -> list[dict[str, Any]]:
    rows = run.steps.filter(live=True).order_by("seq").values_list("facts_json", flat=True)
    return [fact for text in rows for fact in json.loads(text) if fact["kind"] == kind]


def ending(run: Run) -> dict[str, Any]:
    """What the model is told of the script."""
    (last,) = [fact for fact in told(run) if fact["tool"] == "python"]
    return last


def test_a_call_of_a_script_waits_for_its_approval_and_the_script_goes_on_with_the_result() -> None:
    run = work(scripted())
    question = pending(run)
    assert (question.kind, question.tool) == ("tool_call", "send")
    assert question.args == {"to": "bob", "text": "three results"}
    decide(run, "approve")
    assert work(run).status == "succeeded"
    assert ending(run)["value"] == {"printed": "found three results\n", "value": "sent 1"}
    assert (run.tool_calls, run.exchanges.filter(name="send").count()) == (3, 1)
    assert [fact["tool"] for fact in told(run)] == ["search", "send", "python"]


def test_another_process_goes_on_after_the_decision() -> None:
    played = script(think("python", code=CODE), FINAL, tools={"search": SEARCH, "send": SEND})
    options = ('--settings={"tools": ["python"]}', f"--script={json.dumps(played)}")
    done = command("launch", "--machine=ruled", "--goal=Write to bob", *options, "--inline", "--wait")
    assert done.returncode == WAITS, done.stdout + done.stderr
    run = Run.objects.get()
    decide(run, "approve")
    assert work(run).status == "succeeded"
    assert ending(run)["value"] == {"printed": "found three results\n", "value": "sent 1"}


def test_rejected_and_answered_calls_are_the_scripts_to_hear() -> None:
    rejected = work(scripted())
    decide(rejected, "reject", message="Not bob.")
    assert ending(work(rejected))["value"]["value"] == "not sent: Not bob."
    answered = work(scripted())
    decide(answered, "respond", message="it was sent by hand")
    assert ending(work(answered))["value"]["value"] == "it was sent by hand"
    assert not answered.exchanges.filter(name="send").exists()


def test_an_edited_call_is_made_as_edited_and_the_machine_keeps_its_own_call() -> None:
    run = work(scripted())
    decide(run, "edit", args={"to": "carol", "text": "hi"})
    assert work(run).status == "succeeded"
    assert json.loads(run.exchanges.get(name="send").request_json)["args"] == {"to": "carol", "text": "hi"}
    assert ending(run)["tool"] == "python" and ending(run)["value"]["value"] == "sent 1"


def test_rules_hold_for_calls_of_scripts() -> None:
    deny = [{"when": {"tool": "send"}, "do": "deny", "name": "no mail"}]
    assert "no mail" in ending(work(scripted(rules=deny)))["value"]["value"]
    run = work(scripted(rules=[{"when": {"tool": "python"}, "do": "ask"}, *ALLOW]))
    assert pending(run).tool == "python"
    decide(run, "approve")
    assert (work(run).status, run.interrupts.count()) == ("succeeded", 1), (
        "asked once, not at each call out of it"
    )


def test_a_rule_on_repeated_calls_counts_what_the_script_calls() -> None:
    rules = [{"when": {"tool": "search", "same_call": 3}, "do": "ask"}, *ALLOW]
    run = work(scripted("for n in range(3): search(q='tides')", rules=rules))
    assert pending(run).tool == "search"
    assert [fact["tool"] for fact in told(run)] == ["search", "search"]
    decide(run, "abort")
    work(run)


def test_a_limit_is_asked_about_between_the_calls_of_a_script() -> None:
    run = work(scripted(rules=ALLOW, limits={"cost_usd": 0.001}))
    assert pending(run).kind == "limit"
    decide(run, "top_up", args={"cost_usd": 1})
    assert work(run).status == "succeeded"


def test_a_script_writes_and_reads_the_files_of_its_run() -> None:
    run = work(scripted(WRITE, rules=ALLOW))
    assert ending(run)["value"] == {"value": "hello"}
    assert [artifact.name for artifact in run.artifacts.all()] == ["a.txt"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("final_answer(answer='1')", "name 'final_answer' is not defined"),
        ("python(code='1')", "name 'python' is not defined; tools that a script may call: read_file, search"),
        ("fetch_url(url='https://example.com')", "name 'fetch_url' is not defined"),
        ("search()", "search needs the argument q."),
        ("search(q=5)", "search: q must be a string"),
        ("send(to='bob', cc='carol')", "send has no argument cc; take it out."),
    ],
)
def test_a_call_that_can_not_be_made_is_an_error_with_its_line(code: str, why: str) -> None:
    run = work(scripted(f"x = 1\n{code}", rules=ALLOW))
    assert why in ending(run)["stderr"] and "line 2" in ending(run)["stderr"]
    assert (ending(run)["error"], run.status) == ("Exited with code 1.", "succeeded")
    assert not run.exchanges.filter(name="send").exists()


def test_a_script_asks_a_person_and_starts_child_runs() -> None:
    code = (
        "colour = ask_person(question='Which colour?')['answer']\nagent_reader(goal=f'Find {colour} tides')"
    )
    child = {"reader": {"machine": "ruled", "settings": {}}}
    answers = {
        "reader": {"replies": {"decision": [{"thought": "FINAL ANSWER: a blue tide", "action": None}]}}
    }
    played = script(think("python", code=code), FINAL, tools={}, subgraphs=answers)
    run = work(launch(played=played, tools=["python", "ask_person"], subgraphs=child))
    assert (pending(run).kind, pending(run).title) == ("question", "Which colour?")
    decide(run, "respond", message="blue")
    assert work(run).status == "succeeded"
    assert ending(run)["value"] == {"value": "a blue tide"}
    assert Run.objects.get(parent=run).goal == "Find blue tides"


def test_the_example_of_the_documents_runs() -> None:
    page = (ROOT / "docs" / "tools.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    files = "write_file(name='a.txt', content='the tides')\nwrite_file(name='b.txt', content='none')\n"
    played = script(think("python", code=files + code), FINAL, tools={})
    run = work(launch(played=played, tools=["python", "read_file", "write_file", "list_files"], rules=ALLOW))
    assert ending(run)["value"] == {"value": ["a.txt"]}


def test_the_timeline_marks_what_a_script_calls() -> None:
    lines = [row.line.plain for row in row_views(work(scripted(rules=ALLOW)))]
    assert 'Calls (in a script): search(q="tides")' in lines
    assert "Result (search, in a script): three results" in lines


def test_the_question_about_a_call_shows_the_script_that_makes_it() -> None:
    run = work(scripted())
    assert "Approval (asks a person, in a script)" in [row.summary.split(":")[0] for row in row_views(run)]
    client = signed_in(person("carol", "view_run", "decide_interrupt"))
    card = client.get(f"/runs/{run.pk}/").text
    assert "The script that makes this call" in card and "except RuntimeError as error:" in card
    decide(run, "approve")
    asked = run.head + 1
    after = [row.summary.split(": ")[0] for row in row_views(work(run), after=asked)]
    assert after[:2] == ["Calls (in a script)", "Result (send, in a script)"]


def test_a_launch_is_refused_where_the_sandbox_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(actions.BadLaunch, match="add_provider python"):
        launch(FINAL, tools=["python"])


def test_a_run_whose_worker_lacks_the_sandbox_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    run = scripted()
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    assert work(run).exit_reason == "fatal_error"
    assert "the installation lacks pydantic_monty" in told(run, "react.exit")[0]["message"]


def test_a_transient_failure_of_a_call_is_retried_before_the_script_hears() -> None:
    busy = SEND | {"results": [{"error": "busy", "kind": "transient"}, {"output": "sent late"}]}
    run = work(scripted(send=busy | {"idempotent": True}, rules=ALLOW))
    assert ending(run)["value"]["value"] == "sent late"


def test_a_fatal_failure_of_a_call_ends_the_run() -> None:
    broken = SEND | {"results": [{"error": "the disk is full", "kind": "fatal"}]}
    run = work(scripted(send=broken, rules=ALLOW))
    assert run.exit_reason == "fatal_error"


def test_the_model_reads_the_end_of_the_script_only() -> None:
    run = work(scripted(rules=ALLOW))
    blocks = loading.load_blocks(run, CATALOGUE[run.machine], run.head)
    assert [block.text.count("sent 1") for block in blocks if block.author == "tool"] == [1]
    assert not any("search" in block.text for block in blocks if block.author == "tool")


@pytest.mark.parametrize("machine", NAMES)
def test_every_machine_takes_a_script_as_one_call(machine: str) -> None:
    replies = {
        "decision": [call(machine, "python", code=CODE), end(machine), end(machine)],
        "planner": ["{}"],
    }
    played = {"replies": replies, "tools": {"search": SEARCH, "send": SEND}}
    run = work(launch(machine=machine, played=played, tools=["python"], **SETTINGS[machine]))
    decide(run, "edit", args={"to": "carol", "text": "hi"})
    work(run)
    assert ending(run)["value"] == {"printed": "found three results\n", "value": "sent 1"}
    assert run.status in ("succeeded", "stopped"), run.exit_reason
    assert not told(run, "react.tool.edited")[0]["args"].get("code")


def test_a_rollback_in_the_middle_takes_back_the_whole_script() -> None:
    run = work(scripted())
    decide(run, "rollback", to_step=transitions(run, "pass")[0])
    work(run)
    assert [fact["tool"] for fact in told(run)] == ["search"]
    decide(run, "approve")
    assert ending(work(run))["value"]["value"] == "sent 1"


def test_a_replay_hears_the_same_and_runs_no_script() -> None:
    run = work(scripted(rules=ALLOW))
    again, difference = actions.replay(run, by=None)
    assert difference is None
    assert ending(again) == ending(run)


def test_a_run_told_as_a_script_runs_its_scripts_again() -> None:
    run = work(scripted(rules=ALLOW))
    told_as = launch_of(run)
    assert "python" not in told_as["script"]["tools"]
    again = work(launch(played=told_as["script"], **told_as["settings"]))
    assert ending(again) == ending(run)


# --- workers that die ---------------------------------------------------------------------------------------------


def test_a_lost_call_of_a_script_asks_whether_it_happened() -> None:
    run = scripted(rules=ALLOW)
    die_in(run, before=kill, only="send")
    work(run)
    assert (pending(run).kind, pending(run).tool) == ("may_have_happened", "send")
    decide(run, "respond", message="It is in the outbox.")
    assert work(run).status == "succeeded"
    assert ending(run)["value"]["value"] == "It is in the outbox."


PLACES = [
    *(f"between_moves:kill9:{nth}" for nth in range(2, 9)),
    *(f"after_effect:kill9:{nth}" for nth in range(1, 7)),
    *(f"before_conclusion_commit:kill9:{nth}" for nth in range(1, 7)),
    *(f"after_commit_before_ring:kill9:{nth}" for nth in range(1, 7)),
]


@pytest.mark.parametrize("place", PLACES)
def test_killed_anywhere_each_call_of_a_script_is_made_once(place: str) -> None:
    played = script(think("python", code=CODE), FINAL, tools={"search": SEARCH, "send": KEYED})
    run = launch_and_die(played, place, tools=["python"], rules=ALLOW)
    work(run)
    assert run.status == "succeeded" and not run.interrupts.exists()
    assert ending(run)["value"] == {"printed": "found three results\n", "value": "sent 1"}
    assert (run.model_calls, run.tool_calls, run.cost_usd) == (2, 3, 0.002)
    assert run.exchanges.filter(name="send").count() == 1
    assert kinds(run).count("recovered") == 1


def test_every_page_of_a_run_with_a_script_opens() -> None:
    run, other = work(scripted(rules=ALLOW)), work(scripted("search(q=5)"))
    client = signed_in(person("carol", "view_run", "decide_interrupt"))
    for seq in range(1, run.head + 1):
        assert client.get(f"/runs/{run.pk}/steps/{seq}/").status_code == 200, seq
    for page in ("context/", "artifacts/", "export.json", "script.json", "test.py", f"compare/{other.pk}/"):
        assert client.get(f"/runs/{run.pk}/{page}").status_code == 200, page
