"""The part of `checklist` in the launch form."""

from __future__ import annotations

from runs.engine.presentation import Check, Form, Lines, Whole

FORM = Form(
    "The checklist",
    "The steps that the model ticks off. Leave empty for no checklist.",
    (
        Lines("steps", "Steps", "plan", hint="one a line", setting="plan"),
        Check(
            "planner",
            "Let the model write the steps",
            on="model",
            instead_of="plan",
            conflict="The model writes the plan: leave the steps empty, or untick this.",
        ),
        Check("plan_gate", "Complete only when every step is done or failed", off=False),
        Whole("exploration_budget", "Calls that explore", placeholder="3"),
        Whole("exploitation_budget", "Calls that exploit", placeholder="3"),
        Whole("max_iterations", "Maximum decisions", placeholder="both, plus 2"),
        Whole("max_consecutive_violations", "Violations in a row", placeholder="2"),
    ),
)
