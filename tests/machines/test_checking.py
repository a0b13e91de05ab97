"""A machine of a site's own plays the laws by command: each is told, and the smallest world that breaks one."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs.engine.effects import Answer
from runs.engine.facts import Fact
from runs.engine.machine import Machine
from runs.engine.moves import Ask, Go
from runs.machines import CATALOGUE
from runs.machines.ruled import RULED
from runs.machines.ruled.facts import StepCommitted
from runs.machines.ruled.state import RuledState
from tests.machines.checking import check
from tests.machines.laws import LAWS
from tests.own_modules import MACHINE, data_dir_with, manage

FEW = 20


def told(machine: Machine, worlds: int = FEW) -> tuple[bool, str]:
    out = io.StringIO()
    return check(machine, out, worlds=worlds, most_rows=400), out.getvalue()


def endless() -> Machine:
    """It never has enough."""

    def commit(state: RuledState, answer: Answer | None) -> Ask | Go:
        return Go("continue", (StepCommitted(number=min(state.steps + 1, state.settings.max_steps - 1)),))

    return replace(RULED, nodes={**RULED.nodes, "commit": commit})


def raising() -> Machine:
    """Its fold fails on a fact."""

    def evolve(state: Any, fact: Fact) -> Any:
        if isinstance(fact, StepCommitted):
            raise KeyError("no such counter")
        return RULED.evolve(state, fact)

    return replace(RULED, evolve=evolve)


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_the_machines_of_the_site_keep_every_law(name: str) -> None:
    holds, text = told(CATALOGUE[name], worlds=5)
    assert holds, text
    for law in LAWS:
        assert f"holds   {law.__name__:<13} {law.__doc__}" in text
    assert text.endswith(f"{len(LAWS)} of {len(LAWS)} laws hold in 5 random worlds each.\n")


def test_a_broken_law_is_told_with_its_world_and_run() -> None:
    holds, text = told(endless())
    assert not holds
    assert re.search(r"^BROKEN  halt ", text, re.M)
    assert "Not played: replay, resume" in text
    part = text[text.index("BROKEN  halt") :]
    assert "world: " in part and "settings: " in part
    assert re.search(r"^ +1 +\w+ +thought", part, re.M), part


def test_a_machine_that_raises_is_told_by_the_fault_and_its_place() -> None:
    holds, text = told(raising())
    assert not holds
    assert re.search(rf"KeyError: 'no such counter' \({re.escape(__file__)}, line \d+\)", text), text


def test_the_world_that_breaks_a_law_is_made_small() -> None:
    _, text = told(raising())
    sizes = [int(found) for found in re.findall(r"world: (\d+) bytes", text)]
    assert sizes and max(sizes) < 60  # no world begins with fewer


def test_a_machine_of_one_module_needs_no_play_of_its_own(tmp_path: Path) -> None:
    data_dir = data_dir_with(tmp_path, one_answer=MACHINE)
    named = {"AGENTSITE_MACHINES": "one_answer:ONE_ANSWER"}
    done = manage(data_dir, "check_machine", "one_answer", "--worlds", "10", **named)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.count("holds   ") == len(LAWS)
    assert "It has no play: models say what fits its schemas." in done.stdout
    assert [path.name for path in data_dir.iterdir()] == ["modules"]


def test_a_broken_machine_of_the_site_ends_with_1(tmp_path: Path) -> None:
    broken = MACHINE.replace(
        'edges=(Edge("answering", "answered", END),)',
        'edges=(Edge("answering", "answered", END), Edge("answering", "again", "answering"))',
    ).replace('return Go("answered", (Answered(text=text), Exited(reason="complete")))', 'return Go("again")')
    data_dir = data_dir_with(tmp_path, again=broken)
    done = manage(
        data_dir,
        "check_machine",
        "one_answer",
        "--worlds",
        "5",
        "--rows",
        "300",
        AGENTSITE_MACHINES="again:ONE_ANSWER",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN  halt" in done.stdout


def test_an_unknown_machine_is_bad_input(tmp_path: Path) -> None:
    done = manage(data_dir_with(tmp_path), "check_machine", "nosuch")
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is no machine nosuch. Machines: contract" in done.stderr
