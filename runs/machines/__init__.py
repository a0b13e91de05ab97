"""The four machines: pure functions, one file each, or a package where that is too long.

A new one is a file and a line in CATALOGUE.
"""

from runs.engine.machine import Machine
from runs.machines.checklist import CHECKLIST
from runs.machines.contract import CONTRACT
from runs.machines.planned import PLANNED
from runs.machines.ruled import RULED

CATALOGUE: dict[str, Machine] = {machine.name: machine for machine in (CONTRACT, CHECKLIST, PLANNED, RULED)}
"""Every machine by its name."""
