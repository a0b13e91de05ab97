"""The node `exit`: judges whether the contract is fulfilled and the run succeeded."""

from __future__ import annotations

from runs.engine.effects import Answer
from runs.engine.kernel import UnexpectedAnswer
from runs.engine.moves import Ask, Go
from runs.machines.contract.facts import ContractJudged
from runs.machines.contract.state import ContractState


def exit_node(state: ContractState, answer: Answer | None) -> Ask | Go:
    """Judge the contract; `complete` with an unfilled slot is no success."""
    if answer is not None:
        raise UnexpectedAnswer("exit", answer)
    filled = tuple(name for name in state.slots if name not in state.unfilled)
    return Go("final", (ContractJudged(filled=filled, unfilled=tuple(state.unfilled)),))


def ok(state: ContractState) -> bool | None:
    """Return whether every slot is filled; None if there is none."""
    return not state.unfilled if state.slots else None


def succeeded(state: ContractState) -> bool:
    """Return True if all slots are filled, whatever the reason; without slots, if the run is `complete`."""
    return not state.unfilled if state.slots else state.exit_reason == "complete"
