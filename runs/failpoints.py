"""Places for tests to make the process fail: they do nothing unless the environment names them.

`FAILPOINTS="after_effect:kill9"` kills the process at that place, `after_effect:raise` raises there; a third part is
the number of the visit (`after_effect:kill9:3`). `inside_commit:freeze` stops the process there, as SIGSTOP does.
Commas separate several.
"""

from __future__ import annotations

import os
import signal
from collections import Counter


def planned(text: str) -> dict[str, list[str]]:
    """Return each place with its action."""
    return {item.split(":")[0]: item.split(":")[1:] for item in text.split(",")}


PLANNED = planned(os.environ.get("FAILPOINTS", ""))
REACHED: Counter[str] = Counter()
"""How often each place was reached."""


class FailpointReached(Exception):
    """A test made the process fail here."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"The failpoint {name} was reached.")


def failpoint(name: str) -> None:
    """Fail here, if the environment says so."""
    if name not in PLANNED:
        return
    REACHED[name] += 1
    match PLANNED[name]:
        case [_, nth] if int(nth) != REACHED[name]:
            return
        case ["kill9", *_]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["freeze", *_]:
            os.kill(os.getpid(), signal.SIGSTOP)
        case _:
            raise FailpointReached(name)
