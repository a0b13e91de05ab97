"""A machine of two nodes for the kernel's own tests: `think` asks a model, `act` does what it is told to."""

from __future__ import annotations

from typing import Any

from runs.engine.effects import (
    Answer,
    ChildRun,
    Effect,
    Failed,
    ModelCall,
    ModelReplied,
    ToolCall,
    ToolReturned,
)
from runs.engine.facts import Answered, Exited, Notice, ToolCalled, ToolReported
from runs.engine.kernel import UnexpectedAnswer
from runs.engine.machine import COMMON_EXITS, END, Edge, Machine, State, evolve_common
from runs.engine.moves import Ask, Go, Stop
from runs.engine.settings import Settings
from runs.engine.timeline import common_block


class ToyState(State):
    """Counts its turns, and knows what the model said last."""

    turns: int = 0
    word: str = ""


def evolve(state: Any, fact: Any) -> State:
    if fact.kind == "react.notice" and fact.code == "word":
        return state.model_copy(update={"turns": state.turns + 1, "word": fact.message})
    return evolve_common(state, fact)


def think(state: ToyState, answer: Answer | None) -> Ask | Go:
    match answer:
        case None:
            return Ask(ModelCall(role="decision", reply="text"))
        case ModelReplied(text=text):
            return Go("act", (Notice(code="word", message=text),))
    raise UnexpectedAnswer("think", answer)


def _call(state: ToyState) -> Effect:
    """What the word means: a tool's name with its argument, a child, or a fallback call."""
    word, _, argument = state.word.partition(" ")
    if word == "child":
        return ChildRun(name="helper", goal=argument)
    if word == "fallback":
        return ModelCall(role="fallback", reply="text", at_limit="fail")
    return ToolCall(tool=word, args={"x": argument}, effects=state.terms.tools[word].effects)


def act(state: ToyState, answer: Answer | None) -> Any:
    match answer:
        case None if state.word == "done":
            return Go("end", (Answered(text="done"), Exited(reason="complete")))
        case None if state.word in ("undeclared", "reasonless"):
            return Go("nowhere" if state.word == "undeclared" else "end", (Notice(code="x", message="x"),))
        case None if state.word == "stop":
            return Stop("complete")
        case None:
            effect = _call(state)
            return Ask(
                effect, (ToolCalled(tool=state.word, args={}),) if isinstance(effect, ToolCall) else ()
            )
        case ToolReturned(value=value, ran=ran):
            return Go("again", (ToolReported(tool=state.word, value=value, ran=ran),))
        case ModelReplied(text=text):
            return Go("end", (Answered(text=text, source="fallback"), Exited(reason="complete")))
        case Failed(blame="transient") if state.word != "fallback":
            raise UnexpectedAnswer("act", answer)  # its last attempt of a tool has another blame
        case Failed(message=why, ran=ran):
            return Go("again", (ToolReported(tool=state.word, error=why, ran=ran),))
    return Go("again", (ToolReported(tool=state.word, value=answer.kind),))


def toy(takes_fatal: frozenset[str] = frozenset(), **changes: Any) -> Machine:
    """The machine; changes replace parts of its declaration."""
    parts: dict[str, Any] = {
        "name": "toy",
        "line": "A toy.",
        "start": "think",
        "deciding": "think",
        "nodes": {"think": think, "act": act},
        "edges": (Edge("think", "act", "act"), Edge("act", "again", "think"), Edge("act", "end", END)),
        "exit_reasons": ("complete", *COMMON_EXITS),
        "settings": Settings,
        "state": ToyState,
        "own_facts": (),
        "open": lambda terms: ToyState(terms=terms),
        "evolve": evolve,
        "turns": lambda state: state.turns,
        "budget": lambda state: (),
        "budget_text": lambda state: "",
        "system": lambda terms: "You are a toy.",
        "block": common_block,
        "reply_schema": lambda name, state: None,
        "takes_fatal": takes_fatal,
    }
    return Machine(**{**parts, **changes})


TOY = toy()
