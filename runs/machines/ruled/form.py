"""The part of `ruled` in the launch form."""

from __future__ import annotations

from runs.engine.presentation import Check, Choice, Form, Json, Whole

FORM = Form(
    "",
    "",
    (
        Whole("max_steps", "Maximum steps", least=1, placeholder="20", place="more"),
        Choice(
            "on_retries",
            "When drafts keep breaking rules",
            (("ask", "Ask a person"), ("stop", "Stop the run")),
            place="more",
        ),
        Whole("max_rejections", "Maximum rejections", placeholder="10", place="more"),
        Check("cache", "Answer repeated prompts from the cache", off=False, place="more"),
        Json(
            "ruleset",
            "Rules on thoughts",
            list,
            'a JSON list of rules, such as [{"type": "forbid_guessing"}]',
            hint="JSON list; replaces the four defaults",
            placeholder='[{"type": "max_depth", "value": 20}, {"type": "cost_limit", "value": 0.5},\n'
            '  {"type": "forbid_guessing"}, {"type": "require_tool_use"}]',
            rows=4,
            place="more",
        ),
    ),
)
