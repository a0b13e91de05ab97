"""Make the next attempt of a waiting call at once."""

from __future__ import annotations

from typing import Any

from runs import actions
from runs.management.steering import SteeringCommand
from runs.models import Run


class Command(SteeringCommand):
    """Makes the next attempt of a waiting call at once."""

    help = "Retry a call now if the run is waiting for its retry."

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """Make the attempt due."""
        return actions.try_now(run, by=None)
