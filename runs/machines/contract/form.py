"""The part of `contract` in the launch form."""

from __future__ import annotations

from runs.engine.presentation import Check, Choice, Column, Form, Json, Rows

_SLOTS = Rows(
    "slots",
    "Slots",
    (
        Column("id", "Name"),
        Column("type", "Type", choices=("inline", "file")),
        Column("description", "Content"),
        Column("format", "Format", placeholder="any"),
    ),
    "slot",
    Json(
        "slots_json",
        "Slots as JSON",
        list,
        'a JSON list, such as [{"id": "report", "type": "file", "description": "what it holds"}]',
        hint="replaces the slots above",
        placeholder='[{"id": "report", "type": "file", "description": "…", "format": "Markdown"}]',
        place="fold",
    ),
    setting="contract",
    telling=("id", "description", "format"),
)

FORM = Form(
    "The contract",
    "What the run must deliver. Tool calls fill the slots: inline slots with text, file slots with a file. The run "
    "succeeds when every slot is filled.",
    (
        _SLOTS,
        Check(
            "coordinator",
            "Let the model write the contract",
            text="Let the model write the contract instead of the slots above",
            on="model",
            instead_of="contract",
            conflict="The model writes the contract: leave the slots empty, or untick this.",
        ),
        Choice(
            "depth", "Depth", (("", "Usual"), ("shallow", "Shallow"), ("medium", "Medium"), ("deep", "Deep"))
        ),
        Choice(
            "plan_shape",
            "Plan shape",
            (
                ("", "Not set"),
                ("single_step", "One step"),
                ("single_deliverable", "One result"),
                ("multi_step", "Several steps (one more round per slot)"),
            ),
        ),
        Json(
            "skills",
            "Skills of this run",
            dict,
            'a JSON object, such as {"style": "Write short sentences."}',
            hint="JSON; named texts that the model can request",
            placeholder='{"style": "Write short sentences."}',
            names_skills=True,
            place="fold",
        ),
        Json(
            "hints",
            "Rounds per slot",
            dict,
            'a JSON object, such as {"report": {"explore": 1, "exploit": 2}}',
            hint="JSON; overrides depth",
            placeholder='{"report": {"explore": 2, "exploit": 3, "render": 1, "ctx_reads": 1}}',
            place="fold",
        ),
        Json(
            "budget",
            "Run budget",
            dict,
            'a JSON object, such as {"max_decision_rounds": 10}',
            hint="JSON; replaces the sum of the slots",
            placeholder='{"max_decision_rounds": 12, "max_tool_calls": 10}',
            place="fold",
        ),
    ),
    numbers_about="Depth and plan shape set each slot’s rounds of exploring, exploiting and rendering.",
    fold="Skills, rounds per slot, limits, slots as JSON",
)
