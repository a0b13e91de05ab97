"""What can be wrong when a run is written to: one class each, the sentence in the class."""

from __future__ import annotations

from runs.models import Decision


class Fenced(Exception):
    """Somebody else has the seat: another worker, or a person who stopped the run."""

    def __init__(self, run_id: int, epoch: int) -> None:
        self.run_id = run_id
        self.epoch = epoch
        super().__init__(f"Run {run_id} is no longer ours (epoch {epoch}).")


class NotPossible(Exception):
    """The run's state does not allow what was asked."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


class Busy(NotPossible):
    """Others held what a person's change needs for too long, or were in its way again and again."""

    def __init__(self) -> None:
        super().__init__(
            "The database is busy with what others write at this moment; nothing was changed. Try once more."
        )


class ToldOtherwise(NotPossible):
    """What a page told before the deed is not so any more; nothing was done."""

    def __init__(self, run_id: int) -> None:
        super().__init__(
            f"The steps of #{run_id} after that one have changed since you looked. Read them again, then confirm. "
            "If they keep changing, pause the run first."
        )


class BadDecision(Exception):
    """A decision that its interrupt can't take."""

    def __init__(self, sentence: str, field: str = "verdict") -> None:
        self.sentence = sentence
        self.field = field
        super().__init__(sentence)


class Conflict(Exception):
    """The interrupt was decided otherwise, or is not what the person had seen."""

    def __init__(self, decision: Decision | None, sentence: str) -> None:
        self.decision = decision
        self.sentence = sentence
        super().__init__(sentence)


class NotYet(Exception):
    """A call waits until another one of its family has ended, whose cost is not known beforehand either."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} waits for its turn.")
