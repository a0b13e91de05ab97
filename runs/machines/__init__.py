"""The machines: pure functions. One folder is one machine; a new one is a folder and a line in CATALOGUE."""

from runs.engine.machine import Machine
from runs.machines.checklist import CHECKLIST
from runs.machines.contract import CONTRACT
from runs.machines.planned import PLANNED
from runs.machines.ruled import RULED


class NoMachine(KeyError):
    """There is no machine of that name in this version; there may be in another, and its runs wait for that."""

    def __init__(self, name: str) -> None:
        self.sentence = (
            f"The machine {name} is not here any more. Its runs stay as they are: they can be seen, and go on, where "
            "a version of agentsite is started that has it."
        )
        super().__init__(name)

    def __str__(self) -> str:
        return self.sentence


class _Catalogue(dict[str, Machine]):
    def __missing__(self, name: str) -> Machine:
        raise NoMachine(name)


CATALOGUE = _Catalogue({machine.name: machine for machine in (CONTRACT, CHECKLIST, PLANNED, RULED)})
"""Every machine by its name; `NoMachine` where there is none."""
