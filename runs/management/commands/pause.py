"""Pause a run until it is resumed."""

from __future__ import annotations

from typing import Any

from runs import actions
from runs.management.steering import SteeringCommand
from runs.models import Run


class Command(SteeringCommand):
    """Pauses a run until it is resumed."""

    help = "Pause a run until it is resumed."

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """Pause it."""
        return actions.pause(run, by=None)
