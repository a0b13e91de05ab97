"""A run that asks each kind of question, and the verdicts that its card takes: for tests in a process and on a site."""

from __future__ import annotations

from typing import Any, NamedTuple

from runs import actions
from runs.models import Run
from tests.launching import ALLOW, FINAL, SEARCH, SEND, USAGE, launch, think
from tests.running import work
from tests.workers import die_in, kill

LOST = "may_have_happened"
WAY_OUT = ("rollback", "abort")


class Asks(NamedTuple):
    """A launch whose run asks such a question, and what may be answered."""

    verdicts: tuple[str, ...]
    machine: str = "ruled"
    replies: tuple[Any, ...] = ()
    settings: dict[str, Any] = {}

    @property
    def script(self) -> dict[str, Any]:
        """What its model and its tools play."""
        return {
            "replies": {"decision": list(self.replies)},
            "tools": {"search": SEARCH, "send": SEND},
            "usage": USAGE,
        }


LETTER = think("send", to="bob", text="All is well.", n=1)
LOOK = think("search", q="tides")
GUESS = {"thought": "I guess", "action": {"tool": "send", "args": {"to": "bob"}}}
PLAN = [{"tool": "search", "args": {"q": "tides"}}, {"tool": "final_answer", "args": {"answer": "three"}}]

ASKS: dict[str, Asks] = {
    "tool_call": Asks(("approve", "edit", "reject", "respond", *WAY_OUT), replies=(LOOK, LETTER, FINAL)),
    "question": Asks(
        ("respond", *WAY_OUT),
        machine="contract",
        replies=(
            {"action": "clarify", "questions": ["Which tides?"]},
            {"action": "clarify", "questions": ["By when?"]},
            {"action": "complete", "completion_summary": "ok"},
        ),
    ),
    "limit": Asks(
        ("top_up", "finish", *WAY_OUT), replies=(LOOK, LOOK, FINAL), settings={"limits": {"cost_usd": 0.0015}}
    ),
    "every_n_steps": Asks(("resume", *WAY_OUT), replies=(LOOK, LOOK, FINAL), settings={"interrupt_every": 1}),
    "manual": Asks(
        ("resume", *WAY_OUT),
        replies=(LOOK, FINAL),
        settings={"rules": [{"when": {"next_cost_usd": 0.0005}, "do": "ask"}, *ALLOW]},
    ),
    "plan": Asks(
        ("approve", "edit", "reject", *WAY_OUT),
        machine="planned",
        replies=(FINAL,),
        settings={"rules": [{"when": {"first_step": True}, "do": "ask"}], "follow": "plan", "plan": PLAN},
    ),
    "human_approval": Asks(
        ("approve", "reject", *WAY_OUT), replies=(*[GUESS] * 8, FINAL), settings={"rules": ALLOW}
    ),
    LOST: Asks(("approve", "respond", "reject", *WAY_OUT), replies=(LOOK, LETTER, FINAL)),
}
"""By the question's kind."""


def asking(kind: str, owner: Any = None) -> Run:
    """A run that waits with such a question."""
    asks = ASKS[kind]
    if kind == LOST:
        run = launch(*asks.replies, owner=owner, rules=ALLOW)
        die_in(run, before=kill, only="send")
        return work(run)
    return work(
        actions.start_run(
            machine=asks.machine,
            goal="Find the <b>tides</b>",
            settings=dict(asks.settings),
            owner=owner,
            script=asks.script,
        )
    )
