"""How `planned` reads for people."""

from __future__ import annotations

from collections.abc import Sequence

from runs.engine.presentation import Beside, Data, Reads, Said, call_of, spoken

CHANGED = "plan changed by a person"


def _thought(fact: Data) -> Said:
    return Said("Thought", fact["thought"], "thought", "think", "turn", call=call_of(fact))


def _plan(fact: Data) -> Said:
    calls = ", ".join(f"[{number}] {row['tool']}" for number, row in enumerate(fact["rows"], 1))
    tag = f"after {fact['why']}" if fact["why"] else CHANGED if fact["by"] == "person" else ""
    text = fact["outline"] or ("" if calls else "no steps")
    return Said("New plan" if tag else "Plan", text, "list", "think", "turn", tag, calls)


def _changed(facts: Sequence[Data]) -> Beside | None:
    return Beside(CHANGED) if facts[-1].get("by") == "person" else None


def _skipped(facts: Sequence[Data]) -> Beside:
    why = facts[-1]["why"]
    tag = "not the plan's tool" if why == "plan_tool_mismatch" else f"skipped: {spoken(why)}"
    return Beside(tag, "warn", alone=True)


LINES: dict[str, Reads] = {
    "react.decision": Reads(_thought, reply=True, said="thought"),
    "react.plan": Reads(_plan, at_ask="told", beside=_changed, noun="plan"),
    "planned.plan.unread": Reads(
        lambda fact: Said("Plan unreadable", fact["message"], "alert", "warn", "turn")
    ),
    "planned.row.taken": Reads(_thought, said="thought"),
    "step.skipped": Reads(
        lambda fact: Said("Skipped", fact["message"], "down", "warn", tag=spoken(fact["why"])),
        beside=_skipped,
        counts="skip",
    ),
    "planned.replan.began": Reads(
        lambda fact: Said("Replanning", f"because of {fact['why']}", "list", "warn")
    ),
    "planned.attempt.began": Reads(
        lambda fact: Said(f"Attempt {fact['number']}", level="all"), by_chance=("number",)
    ),
    "planned.action.entered": Reads(None),
}

EXITS = {"budget_exhausted": "all attempts used"}
