"""Launches that are filled in already, one for each machine, for somebody who has no model yet."""

from __future__ import annotations

from typing import Any

from runs.forms.launching import SCRIPT, pretty
from runs.forms.machines import usual_fields

USAGE = {"input_tokens": 420, "output_tokens": 60, "cost_usd": 0.0021}
PACE = {"model_s": 1.5, "tool_s": 0.4}


def _demonstration(
    machine: str, goal: str, tools: list[str], replies: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    """A form that is filled in: a script plays the model, and asks before it writes."""
    usual = {"asks": "writes", "on_limit": "ask", "on_retries": "ask", "on_clarify": "ask", "cache": True}
    script = {"replies": replies, "usage": USAGE, "pace": PACE}
    own = {"machine": machine, "goal": goal, "model": SCRIPT, "tools": tools, "cost_usd": 0.5}
    return usual_fields() | usual | own | {"script": pretty(script)} | fields


def _thought(thought: str, tool: str = "", **args: Any) -> dict[str, Any]:
    return {"thought": thought, "action": {"tool": tool, "args": args} if tool else None}


def _made(name: str, kind: str) -> list[dict[str, str]]:
    return [{"name": name, "kind": kind}]


def _call(tool: str, **params: Any) -> dict[str, Any]:
    return {"tool_id": tool, "params": params}


RULED = _demonstration(
    "ruled",
    "Work out what 12 boxes of 7 apples and 9 loose ones come to, and keep the sum in apples.txt.",
    ["calculator", "write_file"],
    {
        "decision": [
            _thought(
                "Twelve boxes of seven, and nine more. I let the calculator do it.",
                "calculator",
                expression="12 * 7 + 9",
            ),
            _thought("It is probably around ninety, so I could just write that."),
            _thought(
                "The calculator says 93. I keep it in a file.",
                "write_file",
                name="apples.txt",
                content="12 boxes of 7 and 9 loose apples: 93.\n",
            ),
            _thought("FINAL ANSWER: There are 93 apples; the sum is in apples.txt."),
        ]
    },
)
"""It calculates, is sent back for a guess, and asks before it writes."""

CONTRACT = _demonstration(
    "contract",
    "Say how much water the two garden beds need in a week, and write a plan for watering them.",
    ["calculator", "write_file"],
    {
        "decision": [
            {
                "action": "call_tool",
                "strategy": "explore",
                "focus_slot": "litres",
                "notes": "Two beds, 14 litres a day together. First the week's sum.",
                "tool_call": {
                    **_call("calculator", expression="(8 + 6) * 7"),
                    "out_artifacts": _made("week_sum", "inline"),
                },
            },
            {
                "action": "call_tool",
                "strategy": "exploit",
                "focus_slot": "plan",
                "notes": "98 litres: that fills the slot for the litres. Now the plan goes into a file.",
                "map_slots": [{"slot": "litres", "artifact": "week_sum"}],
                "tool_call": {
                    **_call(
                        "write_file",
                        name="watering.md",
                        content="# Watering\n\nBed A: 8 litres a day.\nBed B: 6 litres a day.\nA week: 98 litres.\n",
                    ),
                    "out_artifacts": _made("watering.md", "file"),
                },
            },
            {
                "action": "complete",
                "notes": "Both slots can be filled.",
                "map_slots": [{"slot": "plan", "artifact": "watering.md"}],
                "completion_summary": "The beds need 98 litres a week; the plan is in watering.md.",
            },
        ]
    },
    slots=[
        {
            "id": "litres",
            "type": "inline",
            "description": "Litres that both beds need in a week",
            "format": "a number",
        },
        {"id": "plan", "type": "file", "description": "When to water which bed", "format": "Markdown"},
    ],
)
"""It fills an inline slot with a sum, asks before it writes a file, and fills the other slot with that."""

CHECKLIST = _demonstration(
    "checklist",
    "Work out what a week of 5 train rides at 4.80 each costs, and keep the result in rides.txt.",
    ["calculator", "write_file"],
    {
        "decision": [
            {
                "action": "call_tool",
                "strategy": "explore",
                "notes": "→ [1] Work out the price of the week",
                "tool_call": _call("calculator", expression="5 * 4.80"),
            },
            {
                "action": "complete",
                "notes": "✓ [1] It is 24.00\nDone, I think.",
                "completion_summary": "The week costs 24.00.",
            },
            {
                "action": "call_tool",
                "strategy": "exploit",
                "notes": "→ [2] The result still has to go into the file",
                "tool_call": _call("write_file", name="rides.txt", content="5 rides at 4.80: 24.00\n"),
            },
            {
                "action": "complete",
                "notes": "✓ [2] rides.txt is there\n✗ [3] There is no earlier week to compare with",
                "completion_summary": "The week costs 24.00; the result is in rides.txt.",
            },
        ]
    },
    steps="Work out the price of the week\nKeep the result in rides.txt\nCompare it with the week before",
)
"""It ticks off a plan step by step, wants to be done too early, is sent back, and asks before it writes."""

PLANNED = _demonstration(
    "planned",
    "Work out how many tiles of 0.25 m² a floor of 4.5 by 3 metres takes, and keep the number in tiles.txt.",
    ["calculator", "now", "write_file", "list_files"],
    {
        "decision": [
            {
                "thought": "The area over the size of a tile.",
                "tool": "calculator",
                "args": {"expression": "4.5 * 3 / 0.25"},
            },
            {
                "thought": "Let me make sure of the sum.",
                "tool": "calculator",
                "args": {"expression": "4.5 * 3 / 0.25"},
            },
            {
                "thought": "The note should carry a date, and there are no old files to look at.",
                "tool": "now",
                "args": {},
            },
            {
                "thought": "54 tiles: I keep that.",
                "tool": "write_file",
                "args": {"name": "tiles.txt", "content": "A floor of 4.5 by 3 metres: 54 tiles.\n"},
            },
            {
                "thought": "All is done.",
                "tool": "final_answer",
                "args": {"answer": "The floor takes 54 tiles; the number is in tiles.txt."},
            },
        ],
        "planner": [
            {
                "outline": "Write the number down, then answer.",
                "steps": [
                    {"tool": "write_file", "args": {"name": "tiles.txt"}, "thought": "Keep the number"},
                    {"tool": "final_answer", "args": {}, "thought": "Say it"},
                ],
            }
        ],
    },
    rows=[
        {
            "tool": "calculator",
            "args": '{"expression": "4.5 * 3 / 0.25"}',
            "thought": "How many tiles it takes",
        },
        {"tool": "list_files", "args": "", "thought": "Whether there is a note already"},
        {"tool": "write_file", "args": '{"name": "tiles.txt"}', "thought": "Keep the number"},
        {"tool": "final_answer", "args": "", "thought": "Say it"},
    ],
)
"""It follows a plan, repeats itself and is skipped, leaves the plan and gets another, and asks before it writes."""

DEMONSTRATIONS: dict[str, dict[str, Any]] = {
    form["machine"]: form for form in (RULED, CONTRACT, CHECKLIST, PLANNED)
}
"""By the machine's name; the first one is what a newcomer is shown."""

SHOWS = {
    "ruled": "calculates, is sent back for a guess, and asks before it writes a file",
    "contract": "fills two slots, one of them with a file that it asks to write",
    "checklist": "ticks off three steps, and is sent back when it wants to stop too early",
    "planned": "follows a plan, repeats itself and is skipped, and plans again",
}
"""What each demonstration shows."""
