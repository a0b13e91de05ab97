"""Forms for people: the launch of a run, and a decision."""

from runs.forms.deciding import NotTaken, Wanted, read_decision, take
from runs.forms.demonstration import DEMONSTRATIONS, SHOWS
from runs.forms.launching import ASKS, LaunchForm, initial_launch, launch_like

__all__ = [
    "ASKS",
    "DEMONSTRATIONS",
    "SHOWS",
    "LaunchForm",
    "NotTaken",
    "Wanted",
    "initial_launch",
    "launch_like",
    "read_decision",
    "take",
]
