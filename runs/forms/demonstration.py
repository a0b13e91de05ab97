"""A launch that is filled in already, for somebody who has no model yet."""

from __future__ import annotations

from typing import Any

from runs.forms.launching import SCRIPT, pretty

DEMONSTRATION: dict[str, Any] = {
    "goal": "Work out what 12 boxes of 7 apples and 9 loose ones come to, and keep the sum in apples.txt.",
    "machine": "ruled",
    "model": SCRIPT,
    "tools": ["calculator", "write_file"],
    "asks": "writes",
    "on_limit": "ask",
    "on_retries": "ask",
    "cache": True,
    "cost_usd": 0.5,
    "script": pretty(
        {
            "replies": {
                "decision": [
                    {
                        "thought": "Twelve boxes of seven, and nine more. I let the calculator do it.",
                        "action": {"tool": "calculator", "args": {"expression": "12 * 7 + 9"}},
                    },
                    {"thought": "It is probably around ninety, so I could just write that.", "action": None},
                    {
                        "thought": "The calculator says 93. I keep it in a file.",
                        "action": {
                            "tool": "write_file",
                            "args": {
                                "name": "apples.txt",
                                "content": "12 boxes of 7 and 9 loose apples: 93.\n",
                            },
                        },
                    },
                    {
                        "thought": "FINAL ANSWER: There are 93 apples; the sum is in apples.txt.",
                        "action": None,
                    },
                ]
            },
            "usage": {"input_tokens": 420, "output_tokens": 60, "cost_usd": 0.0021},
            "pace": {"model_s": 1.5, "tool_s": 0.4},
        }
    ),
}
"""A run for somebody who has no model yet: it calculates, is sent back for a guess, and asks before it writes."""
