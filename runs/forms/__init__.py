"""What people fill in: the launch of a run, and a decision."""

from runs.forms.deciding import Wanted, read_decision
from runs.forms.demonstration import DEMONSTRATION
from runs.forms.launching import ASKS, OWN, LaunchForm, initial_launch, launch_like

__all__ = [
    "ASKS",
    "DEMONSTRATION",
    "OWN",
    "LaunchForm",
    "Wanted",
    "initial_launch",
    "launch_like",
    "read_decision",
]
