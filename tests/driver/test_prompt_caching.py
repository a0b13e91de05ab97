"""The head of a prompt stays the same from call to call, so that providers read it from their caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runs.adapters.models import Kind
from runs.models import ModelProfile, Run
from tests.caching import Caching
from tests.fake_model_server import FakeModelServer
from tests.launching import launch
from tests.running import work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("every_run_verifies")]

ROUNDS = 20


def _sum(n: int) -> dict[str, str]:
    return {"expression": f"{n} * 7 + 9"}


def _ruled(n: int) -> Any:
    return {"thought": f"Round {n}: I work it out.", "action": {"tool": "calculator", "args": _sum(n)}}


def _checklist(n: int) -> Any:
    call = {"tool_id": "calculator", "params": _sum(n)}
    return {"action": "call_tool", "strategy": "explore", "notes": f"→ [1] round {n}", "tool_call": call}


def _contract(n: int) -> Any:
    made = [{"name": f"sum_{n}", "kind": "inline"}]
    call = {"tool_id": "calculator", "params": _sum(n), "out_artifacts": made, "reason": "I need it."}
    return {"action": "call_tool", "strategy": "explore", "focus_slot": "report", "tool_call": call}


def _planned(n: int) -> Any:
    return {"thought": f"Round {n}", "tool": "calculator", "args": _sum(n)}


SLOT = {"id": "report", "type": "inline", "description": "A report"}
CAPS = {
    "max_decision_rounds": ROUNDS,
    "max_tool_calls": 40,
    "max_explore_rounds": 40,
}
MACHINES: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "ruled": (_ruled, {"max_steps": ROUNDS, "on_retries": "stop"}),
    "checklist": (
        _checklist,
        {"plan": ["Work all out"], "exploration_budget": 40, "max_iterations": ROUNDS},
    ),
    "contract": (_contract, {"contract": [SLOT], "budget": CAPS}),
    "planned": (
        _planned,
        {"plan": [{"tool": "calculator", "args": _sum(n), "thought": "next"} for n in range(1, ROUNDS + 1)]},
    ),
}
"""The reply of each round, and the settings that let it come to so many."""


def played(machine: str, kind: Kind, **fields: Any) -> tuple[Caching, Run]:
    """A run of twenty rounds or more, and what its server has read."""
    says, settings = MACHINES[machine]
    caching = Caching(kind, says)
    model_id = "claude-haiku-4-5" if kind == "anthropic" else "tiny-1"
    with FakeModelServer(caching.behave) as server:
        ModelProfile.objects.create(
            **{"name": "tiny", "kind": kind, "base_url": server.base_url, "model_id": model_id}
            | {"context_tokens": 200_000}
            | fields
        )
        goal = "Work out twenty sums, and write a report about all of them."
        run = work(
            launch(
                machine=machine,
                goal=goal,
                model="tiny",
                tools=["calculator"],
                limits={"tokens": 10_000_000},
                on_limit="stop",
                **settings,
            )
        )
    assert len(caching.prompts) >= ROUNDS, (run.exit_reason, len(caching.prompts))
    return caching, run


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_marked_for_the_cache_begins_the_next_prompt(machine: str) -> None:
    caching, _ = played(machine, "anthropic")
    assert all(caching.heads)
    for head, following in zip(caching.heads, caching.prompts[1:], strict=False):
        assert following[1 : len(head)] == head[1:]  # the first is the form of the reply
    assert caching.share > 0.65


@pytest.mark.parametrize("mode", ["native", "json_object", "prompted"])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_provider_that_caches_by_itself_finds_the_head_again(machine: str, mode: str) -> None:
    caching, _ = played(machine, "openai", output_mode=mode)
    assert caching.share > 0.6
