"""Each machine declares the edges and exit reasons of the tables, and nothing else."""

from __future__ import annotations

import pytest

from runs.engine.machine import Machine
from runs.machines import CATALOGUE
from tests.machines import tables

every_machine = pytest.mark.parametrize("machine", CATALOGUE.values(), ids=list(CATALOGUE))


def test_the_catalogue_holds_machines_of_the_spec_by_their_names() -> None:
    assert set(CATALOGUE) <= set(tables.EDGES)
    assert all(name == machine.name for name, machine in CATALOGUE.items())


@every_machine
def test_the_edges_are_the_tables(machine: Machine) -> None:
    assert {(edge.source, edge.name, edge.target) for edge in machine.edges} == set(
        tables.EDGES[machine.name]
    )
    assert (machine.start, machine.deciding) == (tables.START[machine.name], tables.DECIDING[machine.name])
    assert set(machine.takes_fatal) == tables.TAKES_FATAL[machine.name]


@every_machine
def test_the_drawing_is_the_table(machine: Machine) -> None:
    assert sorted(machine.mermaid().split("\n")) == sorted(tables.mermaid(machine.name).split("\n"))
    assert machine.mermaid().startswith(f"stateDiagram-v2\n    [*] --> {machine.start}\n")


@every_machine
def test_the_exit_reasons_are_the_specs(machine: Machine) -> None:
    assert set(machine.exit_reasons) == {*tables.EXITS[machine.name], *tables.COMMON}


@every_machine
def test_the_remembered_transition_is_declared(machine: Machine) -> None:
    assert machine.remembers is None or machine.remembers in machine.targets
