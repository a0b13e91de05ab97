"""Make the next attempt of a waiting call at once."""

from __future__ import annotations

from typing import Any

from runs import actions
from runs.management.steering import SteeringCommand
from runs.models import Run


class Command(SteeringCommand):
    """Makes the next attempt of a waiting call at once."""

    help = "Make the next attempt of a call at once, where the run waits for it."

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """Make the attempt due."""
        return actions.try_now(run, by=None)
