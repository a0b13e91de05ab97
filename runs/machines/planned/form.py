"""The part of `planned` in the launch form."""

from __future__ import annotations

from runs.engine.presentation import Choice, Column, Form, Json, Rows, Whole

_ROWS = Rows(
    "rows",
    "The plan",
    (
        Column("tool", "Tool", code=True, tools=True, required="Name the tool that this step calls."),
        Column(
            "args",
            "Arguments",
            placeholder='{"name": "a.txt"}',
            code=True,
            json='Arguments are a JSON object, such as {"name": "a.txt"}.',
        ),
        Column("thought", "Why"),
    ),
    "row",
    Json(
        "rows_json",
        "Plan as JSON",
        list,
        'a JSON list, such as [{"tool": "calculator", "args": {"expression": "6 * 7"}}]',
        text="Rows",
        hint="JSON list; replaces the steps above",
        placeholder='[{"tool": "calculator", "args": {"expression": "6 * 7"}, "thought": "why"}]',
        rows=4,
        place="fold",
    ),
    setting="plan",
    empty=True,
)

FORM = Form(
    "The plan",
    "The calls to make, in order. `final_answer` ends the run. Leave empty to let the model plan.",
    (
        _ROWS,
        Choice(
            "follow",
            "Next call decided by",
            (("model", "The model, advised by the plan"), ("plan", "The plan")),
            wide=True,
        ),
        Whole("retry_buffer", "Spare attempts"),
        Whole("replan_failure_threshold", "Failures before a new plan", least=1),
        Whole("max_replans", "Maximum new plans", placeholder="3"),
    ),
    fold="Plan as JSON",
)
