"""The errors of writing to a run: one class each, the sentence in the class."""

from __future__ import annotations

from runs.models import Decision


class Fenced(Exception):
    """The run has another lease: another worker's, or none after a person stopped it."""

    def __init__(self, run_id: int, epoch: int) -> None:
        self.run_id = run_id
        self.epoch = epoch
        super().__init__(f"Run {run_id} is no longer ours (epoch {epoch}).")


class NotPossible(Exception):
    """The run's state does not allow the request."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


class Busy(NotPossible):
    """A person's change could not get its locks in time, or failed repeatedly by conflicts."""

    def __init__(self) -> None:
        super().__init__("The database is busy; nothing was changed. Try again.")


class ToldOtherwise(NotPossible):
    """A page's account before the command is out of date; nothing was done."""

    def __init__(self, run_id: int) -> None:
        super().__init__(
            f"The steps of #{run_id} after that one have changed since you read them. Read them again, then confirm. "
            "If they keep changing, pause the run first."
        )


class BadDecision(Exception):
    """A decision not fit for its interrupt."""

    def __init__(self, sentence: str, field: str = "verdict") -> None:
        self.sentence = sentence
        self.field = field
        super().__init__(sentence)


class Conflict(Exception):
    """The interrupt was decided otherwise, or differs from the version seen by the person."""

    def __init__(self, decision: Decision | None, sentence: str) -> None:
        self.decision = decision
        self.sentence = sentence
        super().__init__(sentence)


class NotYet(Exception):
    """A call waits for another of its family to end, whose cost is unknown beforehand, too."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} waits for its turn.")
