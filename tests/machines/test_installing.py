"""Machines from elsewhere are named by the environment; a name that leads to none stops the start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentsite.environment import BadEnvironment, Environment, install_machines
from runs.machines import CATALOGUE, FOLDERS, BadMachineName, install
from runs.machines.ruled import RULED

NUMBER = 5
DOUBLE = replace(RULED, line="Another machine of a name that is taken.")


@pytest.mark.parametrize(
    "name", ["nowhere.to.be.found:X", f"{__name__}:NOTHING", f"{__name__}:NUMBER", f"{__name__}:DOUBLE", "os"]
)
def test_a_name_that_leads_to_no_machine_is_said_with_its_variable(name: str) -> None:
    before = dict(CATALOGUE)
    with pytest.raises(BadMachineName, match="Write package:NAME") as caught:
        install([name])
    assert name in str(caught.value)
    with pytest.raises(BadEnvironment, match="AGENTSITE_MACHINES"):
        install_machines(Environment(AGENTSITE_MACHINES=name))
    assert before == CATALOGUE


def test_a_machine_that_is_named_twice_is_there_once() -> None:
    before = list(CATALOGUE)
    install(["runs.machines.ruled:RULED"])
    assert list(CATALOGUE) == before


def test_every_machine_of_agentsite_has_its_folder() -> None:
    assert all((FOLDERS[name] / "demonstration.json").is_file() for name in CATALOGUE)
