"""A blind tool whose deed lasts until the test says so: `AGENTSITE_TOOLS=tests.agentsite.gate:GATE`."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from runs.adapters.tool import Arguments, Place, Result, Tool

LONGEST_S = 120.0


class Nothing(Arguments):
    """It takes no arguments."""


def _wait(arguments: Nothing, place: Place) -> Result:
    """Done when the file is there."""
    opened, pause, waited = Path(os.environ["GATE_FILE"]), threading.Event(), 0.0
    while not opened.exists() and waited < LONGEST_S:
        pause.wait(0.05)
        waited += 0.05
    return Result("through")


GATE = Tool("gate", "Waits at the gate.", Nothing, "send", False, LONGEST_S, _wait)
