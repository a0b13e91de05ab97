"""Lets a paused run go on."""

from __future__ import annotations

from typing import Any

from runs import actions
from runs.management.steering import SteeringCommand
from runs.models import Run


class Command(SteeringCommand):
    """Lets a paused run go on."""

    help = "Let a paused run go on."

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """The move."""
        return actions.resume(run, by=None)
