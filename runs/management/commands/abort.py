"""Cancel a run."""

from __future__ import annotations

from typing import Any

from runs import actions
from runs.management.steering import SteeringCommand
from runs.models import Run


class Command(SteeringCommand):
    """Cancels a run."""

    help = "Cancel a run; calls under way can't be undone."

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """Cancel it."""
        return actions.abort(run, by=None)
