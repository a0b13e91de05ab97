"""Launch a run: scripts, tools and replies that many tests share."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from runs import actions
from runs.models import Run
from tests.running import decide, transitions, work

FINAL = {"thought": "FINAL ANSWER: 42", "action": None}

SEARCH = {
    "params": {"q": "string", "n": "integer"},
    "required": ["q"],
    "effects": "read",
    "results": [{"output": "three results"}],
}

SEND = {
    "params": {"to": "string", "text": "string", "n": "integer"},
    "required": ["to"],
    "effects": "send",
    "results": [{"output": "sent 1"}, {"output": "sent 2"}, {"output": "sent 3"}],
}

TOOLS = {"search": SEARCH, "send": SEND}

USAGE = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.001}

ALLOW = [{"when": {"tool": "*"}, "do": "allow"}]


def think(tool: str, **args: Any) -> dict[str, Any]:
    """A thought that calls a tool."""
    return {"thought": f"I use {tool}", "action": {"tool": tool, "args": args}}


def script(*replies: Any, tools: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    """A script of one `ruled` run."""
    given = {
        "replies": {"decision": list(replies)},
        "tools": TOOLS if tools is None else tools,
        "usage": USAGE,
    }
    return given | parts


def launch(
    *replies: Any, owner: User | None = None, played: dict[str, Any] | None = None, **settings: Any
) -> Run:
    """A `ruled` run that has been launched and not begun."""
    return actions.start_run(
        machine="ruled",
        goal="Write a short report about tides",
        settings=settings,
        owner=owner,
        script=script(*replies) if played is None else played,
    )


def busy_run() -> Run:
    """Thoughts, a call, a question with its decision, a limit with its top-up, a rewind, an end."""
    run = work(
        launch(
            think("search", q="a"),
            think("send", to="bob"),
            FINAL,
            limits={"cost_usd": 0.001},
        )
    )
    decide(run, "top_up", args={"cost_usd": 1})
    work(run)
    decide(run, "rollback", to_step=transitions(run, "continue")[0])
    work(run)
    decide(run, "approve")
    assert work(run).status == "succeeded"
    return run


MAIL: dict[str, Any] = {
    "params": {
        "to": "string",
        "body": "string",
        "copies": "integer",
        "ratio": "number",
        "urgent": "boolean",
        "tags": "array",
    },
    "required": ["to", "body", "copies", "urgent"],
    "effects": "send",
    "results": [{"output": "sent"}],
}

LETTER: dict[str, Any] = {
    "to": "board@example.com",
    "body": "Dear board,\nall is well.",
    "copies": 1,
    "urgent": True,
}

ALL_WELL = {"thought": "FINAL ANSWER: all is well", "action": None}


def launched(owner: User | None, *replies: Any, tools: dict[str, Any] | None = None, **settings: Any) -> Run:
    """A run of the machine `ruled` that has been driven as far as it goes."""
    run = actions.start_run(
        machine="ruled",
        goal="Tell the board how <b>things</b> are",
        settings=settings,
        owner=owner,
        script=script(*replies, tools={"send_mail": MAIL} if tools is None else tools),
    )
    return work(run)


def run_with_letter(owner: User | None, **settings: Any) -> Run:
    """A run that wants to send a letter, and waits for somebody who lets it."""
    return launched(owner, think("send_mail", **LETTER), ALL_WELL, **settings)


BROKEN = {"effects": "read", "results": [{"error": "the server said no"}]}

WITH_BROKEN: dict[str, Any] = {"search": SEARCH, "send": SEND, "broken": BROKEN}


def play(machine: str, *replies: Any, planner: tuple[Any, ...] = (), **settings: Any) -> Run:
    """A run of `machine` that has been driven as far as it goes."""
    parts = {"decision": list(replies), "planner": list(planner), "fallback": ["As far as I know: three."]}
    run = actions.start_run(
        machine=machine,
        goal="Find the <b>tides</b>",
        settings=settings,
        owner=None,
        script={"replies": parts, "tools": WITH_BROKEN, "usage": USAGE},
    )
    return work(run)


def sent(owner: User, **settings: Any) -> Run:
    """A run that looked, wrote to bob with somebody's leave, and ended."""
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL, owner=owner, **settings))
    decide(run, "approve", message="Go ahead.")
    return work(run)
