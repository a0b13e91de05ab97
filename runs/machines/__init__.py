"""The machines of this installation, by name. One folder is one machine.

A new machine of agentsite is a folder here and a name in the list below. The environment names machines from elsewhere
(`AGENTSITE_MACHINES`); the site's settings pass them to `install`.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from runs.engine.machine import Machine
from runs.modules import CannotLoad, load

_LIST = (
    "runs.machines.contract:CONTRACT",
    "runs.machines.checklist:CHECKLIST",
    "runs.machines.planned:PLANNED",
    "runs.machines.ruled:RULED",
)


class NoMachine(KeyError):
    """This version lacks the machine; another may have it, and the machine's runs wait for that."""

    def __init__(self, name: str) -> None:
        self.sentence = (
            f"The machine {name} is not installed. Its runs can be viewed; they continue once a version of agentsite "
            "with this machine runs."
        )
        super().__init__(name)

    def __str__(self) -> str:
        return self.sentence


class BadMachineName(ValueError):
    """A name without a machine, or with one whose own name is taken."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name!r} can't be used: {why}. Write package:NAME")


class _Catalogue(dict[str, Machine]):
    def __missing__(self, name: str) -> Machine:
        raise NoMachine(name)


CATALOGUE = _Catalogue()
"""Every machine by its name; raises `NoMachine` if there is none."""

PACKAGES: dict[str, str] = {}
"""The package name of each machine."""

FOLDERS: dict[str, Path] = {}
"""The folder of each machine that has one, with its demonstration and its templates."""


def install(names: Iterable[str]) -> None:
    """Add the machines named as `package:NAME`; raises `BadMachineName` if one is not there."""
    for name in names:
        try:
            machine = load(name)
        except CannotLoad as fault:
            raise BadMachineName(name, str(fault)) from fault
        if not isinstance(machine, Machine):
            raise BadMachineName(name, f"it is {type(machine).__name__}, not a Machine")
        if CATALOGUE.get(machine.name, machine) is not machine:
            raise BadMachineName(name, f"there is a machine {machine.name} already")
        module = name.partition(":")[0]
        package = sys.modules[module]
        CATALOGUE[machine.name] = machine
        PACKAGES[machine.name] = module
        if hasattr(package, "__path__"):
            FOLDERS[machine.name] = Path(str(package.__file__)).parent


install(_LIST)
