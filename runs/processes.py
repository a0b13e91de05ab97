"""The system's data about a process, by its number."""

from __future__ import annotations

import subprocess
from pathlib import Path


def state_of(pid: int | None) -> str:
    """Return the letter of the process's state in /proc, such as T for stopped; empty if there is none."""
    fields = _stat_of(pid)
    return fields[0] if fields else ""


def birth_of(pid: int) -> str:
    """Return a process's start time, which tells two processes of one number apart; empty if there is none."""
    if fields := _stat_of(pid):
        return fields[19]
    if Path("/proc/self/stat").exists():
        return ""  # there is no such process
    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return asked.stdout.strip()


def _stat_of(pid: int | None) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; none if it can't be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
