"""`verify` names the first row that does not fit, whatever column was changed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from runs import actions
from runs.models import Decision, Interrupt, Run, ScriptText
from runs.store import log
from tests.launching import FINAL, busy_run, launch, script, think
from tests.running import misfit_of, transitions, work

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def test_a_run_verifies_at_every_moment_of_its_life() -> None:
    run = launch(think("send", to="bob"), FINAL)
    assert misfit_of(run) is None
    work(run)
    assert misfit_of(run) is None
    actions.pause(run, by=None)
    assert misfit_of(run) is None
    actions.abort(run, by=None)
    assert misfit_of(run) is None
    assert misfit_of(busy_run()) is None


def flip(text: str) -> str:
    """The same with one character changed in its middle."""
    at = len(text) // 2
    return text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]


COLUMNS: dict[str, Callable[[Any], Any]] = {
    "kind": lambda kind: "note" if kind != "note" else "limit",
    "node": flip,
    "edge": lambda edge: flip(edge) if edge else "pass",
    "to": lambda to: flip(to) if to else "thought",
    "facts_json": flip,
    "state_json": lambda state: flip(state) if state else "{}",
    "at": lambda at: at.replace(microsecond=(at.microsecond + 1) % 1_000_000),
    "ms": lambda ms: ms + 1,
    "hash": flip,
    "live": lambda live: not live,
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_change_in_any_column_of_any_row_is_found_and_the_row_is_named(column: str) -> None:
    run = busy_run()
    for step in run.steps.order_by("seq"):
        before = getattr(step, column)
        run.steps.filter(pk=step.pk).update(**{column: COLUMNS[column](before)})
        misfit = misfit_of(run)
        assert misfit is not None, f"row {step.seq}"
        assert misfit.seq == step.seq
        run.steps.filter(pk=step.pk).update(**{column: before})
    assert misfit_of(run) is None


def test_a_row_that_is_missing_is_found() -> None:
    run = busy_run()
    run.steps.filter(seq=3).delete()
    misfit = misfit_of(run)
    assert misfit is not None
    assert "step 3 is missing" in misfit.why
    other = busy_run()
    other.steps.filter(seq=other.head).delete()
    assert misfit_of(other) is not None


def test_a_row_in_another_place_is_found() -> None:
    run = busy_run()
    head = run.head
    run.steps.filter(seq=head).update(seq=head + 1)
    misfit = misfit_of(run)
    assert misfit is not None
    assert f"step {head} is missing" in misfit.why


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("goal", "Another goal"),
        ("settings_json", '{"max_steps":3}'),
        ("settings_json", '{"max_steps":'),
        ("settings_json", '{"max_steps":"many"}'),
        ("site_rules_json", '[{"do":"allow"}]'),
        ("site_hosts_json", '["evil.test"]'),
        ("script", "{}"),
        ("script", "{"),
        ("model", "another"),
        ("machine", "nope"),
        ("head", 2),
        ("head_hash", "0" * 64),
        ("node", "thought"),
        ("status", "stopping"),
        ("answer", "43"),
        ("exit_reason", "max_steps"),
        ("cost_usd", 0.0001),
        ("input_tokens", 1),
        ("model_calls", 0),
    ],
)
def test_a_change_of_the_runs_own_row_is_found(column: str, value: Any) -> None:
    run = busy_run()
    if column == "status":
        with pytest.raises(Exception, match=r"(?i)run_status_known|constraint"):
            Run.objects.filter(pk=run.pk).update(status=value)
        return
    if column == "script":
        ScriptText.objects.update(text=value)
    else:
        Run.objects.filter(pk=run.pk).update(**{column: value})
    with pytest.raises(CommandError) as caught:
        call_command("verify", str(run.pk), stdout=io.StringIO())
    assert caught.value.returncode == 1


@pytest.mark.parametrize(
    ("scope", "name", "changes"),
    [
        ("global", "steps", {"used": 9}),
        ("global", "steps", {"limit": 9}),
        ("global", "retries", {"used": 1}),
        ("limits", "cost_usd", {"limit": 5}),
        ("limits", "cost_usd", {"used": 5}),
    ],
)
def test_a_budget_line_that_was_changed_is_found(scope: str, name: str, changes: dict[str, float]) -> None:
    run = busy_run()
    run.budgets.filter(scope=scope, name=name).update(**changes)
    misfit = misfit_of(run)
    assert misfit is not None
    assert name in misfit.why


@pytest.mark.parametrize("column", ["cost_usd", "input_tokens", "output_tokens"])
def test_an_exchange_that_used_something_else_than_its_answer_is_found(column: str) -> None:
    run = busy_run()
    exchange = run.exchanges.filter(kind="model_call").order_by("seq")[0]
    run.exchanges.filter(pk=exchange.pk).update(**{column: 7})
    misfit = misfit_of(run)
    assert misfit is not None
    assert misfit.seq == exchange.seq


def test_an_ask_without_an_exchange_and_an_exchange_without_an_ask_are_found() -> None:
    run = busy_run()
    run.exchanges.filter(kind="human_call").delete()
    assert misfit_of(run) is not None
    other = busy_run()
    transition = transitions(other)[0]
    other.exchanges.filter(name="send").update(seq=transition)
    misfit = misfit_of(other)
    assert misfit is not None
    assert misfit.seq == transition


def test_an_open_question_that_nobody_waits_for_is_found() -> None:
    run = busy_run()
    run.interrupts.filter(status="superseded").update(status="pending")
    run.interrupts.filter(status="decided").update(status="pending")
    assert misfit_of(run) is not None


def test_a_forged_row_with_a_right_hash_is_found_by_its_fold() -> None:
    """Somebody who can reckon hashes changes a state: the chain holds, the fold does not."""
    run = work(launch(think("send", to="bob"), FINAL))
    step = run.steps.order_by("-seq")[0]
    assert step.state_json is None
    before = run.steps.get(seq=step.seq - 1).hash
    state = run.steps.exclude(state_json=None).order_by("-seq")[0].state_json or ""
    step.state_json = state.replace('"steps":0', '"steps":5')
    step.hash = log.chain(before, step)
    step.save()
    Run.objects.filter(pk=run.pk).update(head_hash=step.hash)
    misfit = misfit_of(run)
    assert misfit is not None
    assert (misfit.seq, "its state does not follow" in misfit.why) == (step.seq, True)


def forge(run: Run, column: str, before: str, after: str, **which: Any) -> None:
    """Another text in a column of an exchange."""
    exchange = run.exchanges.filter(**which).order_by("seq")[0]
    text = getattr(exchange, column)
    assert before in text
    run.exchanges.filter(pk=exchange.pk).update(**{column: text.replace(before, after)})


def decided(run: Run) -> Any:
    """The questions that were decided."""
    return Interrupt.objects.filter(run=run, status="decided")


def dearer(run: Run) -> None:
    """Both the answer and the columns beside it say that a reply cost more; so does the run's own row."""
    forge(run, "answer_json", '"input_tokens":100', '"input_tokens":900', kind="model_call")
    first = run.exchanges.filter(kind="model_call").order_by("seq")[0]
    run.exchanges.filter(pk=first.pk).update(input_tokens=900)
    Run.objects.filter(pk=run.pk).update(input_tokens=run.input_tokens + 800)


FORGED: dict[str, tuple[Callable[[Run], Any], str]] = {
    "status": (lambda run: Run.objects.filter(pk=run.pk).update(status="failed"), "status does not match"),
    "ok": (lambda run: Run.objects.filter(pk=run.pk).update(ok=False), "ok does not match"),
    "source": (
        lambda run: Run.objects.filter(pk=run.pk).update(answer_source="x"),
        "answer_source does not match",
    ),
    "calls": (lambda run: Run.objects.filter(pk=run.pk).update(tool_calls=0), "tool_calls is 0"),
    "cached": (
        lambda run: Run.objects.filter(pk=run.pk).update(cached_model_calls=99),
        "more cached model calls",
    ),
    "usage": (dearer, "its cost is not that of"),
    "result": (
        lambda run: forge(run, "answer_json", "three", "four", name="search"),
        "its result is not the answer",
    ),
    "request": (
        lambda run: forge(run, "request_json", '"a"', '"b"', name="search"),
        "its exchange does not match its request",
    ),
    "held": (
        lambda run: forge(run, "request_json", '"bob"', '"eve"', name="tool_call"),
        "another call than its steps",
    ),
    "by": (
        lambda run: forge(run, "answer_json", '"by":"', '"by":"not ', name="tool_call", status="answered"),
        "I5: its decision differs from the recorded answer",
    ),
    "shown": (lambda run: decided(run).update(args_json="{}"), "its question shows another call"),
    "title": (lambda run: decided(run).update(title="Really?"), "its question differs from its request"),
    "host": (lambda run: decided(run).update(host="evil.test"), "its question differs from its request"),
    "allowed": (
        lambda run: Decision.objects.filter(interrupt__run=run, verdict="approve").update(allow_host=True),
        "the decision differs",
    ),
    "question": (lambda run: decided(run)[0].delete(), "its question is missing"),
    "moved": (
        lambda run: decided(run).filter(seq=decided(run)[0].seq).update(seq=999),
        "the recorded answer differs",
    ),
    "name": (
        lambda run: Decision.objects.filter(interrupt__run=run, verdict="approve").update(by_name="eve"),
        "the decision differs",
    ),
    "amount": (
        lambda run: Decision.objects.filter(interrupt__run=run, verdict="top_up").update(args_json='{"a":2}'),
        "the decision differs",
    ),
}


@pytest.mark.parametrize("change", FORGED)
def test_what_stands_beside_the_rows_is_held_against_what_they_tell(change: str) -> None:
    run = busy_run()
    forged, said = FORGED[change]
    forged(run)
    misfit = misfit_of(run)
    assert misfit is not None
    assert said in misfit.why


def test_a_question_that_was_moved_to_another_run_is_found_in_both() -> None:
    run, other = busy_run(), busy_run()
    first = decided(run).order_by("seq")[0]
    Interrupt.objects.filter(pk=first.pk).update(run=other, seq=1)
    for one in (run, other):
        misfit = misfit_of(one)
        assert misfit is not None and ("question is missing" in misfit.why or "I5: " in misfit.why)


def test_a_child_is_that_of_the_row_that_asked_for_it() -> None:
    part = {"machine": "ruled", "settings": {}}
    replies = (think("agent.helper", goal="Look"), FINAL)
    played = script(*replies, subgraphs={"helper": {"replies": {"decision": [FINAL]}}})
    parent = work(launch(played=played, subgraphs={"helper": part}))
    child = Run.objects.get(parent=parent)
    other = busy_run()
    assert misfit_of(parent) is misfit_of(child) is None
    for changes in ({"parent": other}, {"parent_seq": 1}, {"parent": None}):
        Run.objects.filter(pk=child.pk).update(**changes)
        misfit = misfit_of(parent)
        assert misfit is not None and "is not its child" in misfit.why
        misfit = misfit_of(child)
        assert changes == {"parent": None} or (misfit is not None and "did not ask for it" in misfit.why)
        Run.objects.filter(pk=child.pk).update(parent=parent, parent_seq=child.parent_seq)
    forge(parent, "answer_json", '"answer":"42"', '"answer":"43"', kind="child_run")
    misfit = misfit_of(parent)
    assert misfit is not None


def test_a_fork_is_that_of_the_run_that_its_row_names() -> None:
    source, other = busy_run(), busy_run()
    fork = work(actions.fork(source, at=transitions(source, "continue")[0], by=None))
    again = work(actions.fork(fork, at=transitions(fork, "continue")[0], by=None))
    replay, _ = actions.replay(again, by=None)
    assert misfit_of(fork) is misfit_of(again) is misfit_of(replay) is None
    row = (fork.copied_upto or 0) + 1
    for changes in (
        {"copied_from": None},
        {"copied_from": other},
        {"copied_upto": 1},
        {"copied_upto": None},
        {"origin": ""},
        {"origin": "replay"},
    ):
        Run.objects.filter(pk=fork.pk).update(**changes)
        misfit = misfit_of(fork)
        assert misfit is not None, changes
        assert (misfit.seq, "its source of the fork" in misfit.why) == (row, True)
        Run.objects.filter(pk=fork.pk).update(copied_from=source, copied_upto=fork.copied_upto, origin="fork")
    assert misfit_of(fork) is None


def test_the_command_says_what_it_found() -> None:
    run = busy_run()
    out = io.StringIO()
    call_command("verify", str(run.pk), stdout=out)
    assert out.getvalue() == f"Run {run.pk}: {run.head} steps verified.\n"
    other = busy_run()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_step SET node = 'validate' WHERE run_id = %s AND seq = 4", (run.pk,))
    out = io.StringIO()
    with pytest.raises(CommandError, match=r"1 run does not verify") as caught:
        call_command("verify", "--all", stdout=out)
    assert caught.value.returncode == 1
    assert out.getvalue().startswith(f"Run {run.pk}: step 4: ")
    assert f"Run {other.pk}" not in out.getvalue()


def unbound(statement: str, *values: Any) -> None:
    """What somebody does to the file of the database with a tool that looks at no constraint."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA foreign_keys = OFF")
        cursor.execute("PRAGMA ignore_check_constraints = ON")
        cursor.execute(statement, values)
        cursor.execute("PRAGMA ignore_check_constraints = OFF")
        cursor.execute("PRAGMA foreign_keys = ON")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="a server keeps its constraints")
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE runs_run SET script_id = 'gone' WHERE id = %s", "launch settings can't be read (ScriptText"),
        ("UPDATE runs_run SET site_skills_id = 'gone' WHERE id = %s", "launch settings can't be read (Scri"),
        ("UPDATE runs_run SET head = 'many' WHERE id = %s", "head is many"),
        (
            "UPDATE runs_run SET goal = CAST(x'ff' AS TEXT) WHERE id = %s",
            "its stored data can't be read (",
        ),
        ("UPDATE runs_step SET at = 'soon' WHERE run_id = %s", "its stored data can't be read ("),
        (
            "UPDATE runs_step SET facts_json = CAST(x'ff' AS TEXT) WHERE run_id = %s",
            "its stored data can't",
        ),
        (
            "UPDATE runs_exchange SET answer_json = x'ff' WHERE run_id = %s",
            "its stored data can't be read (",
        ),
    ],
)
def test_what_can_not_be_read_is_a_fault_of_its_run_and_the_others_are_verified(
    statement: str, said: str
) -> None:
    run, other = busy_run(), busy_run()
    other.steps.filter(seq=4).update(node="validate")
    unbound(statement, run.pk)
    out = io.StringIO()
    with pytest.raises(CommandError, match=r"2 runs do not verify"):
        call_command("verify", "--all", stdout=out)
    first, second = out.getvalue().splitlines()
    assert first.startswith(f"Run {run.pk}: ") and said in first
    assert second.startswith(f"Run {other.pk}: step 4: ")


@pytest.mark.parametrize("words", [(), ("1", "--all"), ("nope",), ("999999",), ("9" * 30,)])
def test_it_needs_a_run_that_exists_or_all(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("verify", *words)
    assert caught.value.returncode == 2
