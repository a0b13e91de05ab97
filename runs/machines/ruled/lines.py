"""How `ruled` reads for people."""

from __future__ import annotations

from collections.abc import Callable

from runs.engine.presentation import Data, Reads, Said, call_of


def _thought(fact: Data) -> Said:
    tag = "from the cache" if fact.get("cached") else ""
    return Said("Thought", fact["thought"], "thought", "think", "turn", tag, call=call_of(fact))


def _merged(fact: Data) -> Said:
    if fact["error"] is None:
        return Said("Subgraph merged", icon="child", tone="call", tag=fact["name"], values=fact["metadata"])
    tag = fact["name"] if fact["ran"] else f"{fact['name']}, not run"
    return Said("Subgraph failed", fact["error"], "cross", "bad", tag=tag, not_run=not fact["ran"])


def _judged(title: str, tone: str) -> Callable[[Data], Said]:
    def line(fact: Data) -> Said:
        by = f"by {fact['by'] or 'a person'}"
        return Said(title, by, "hand", tone, quote=fact.get("message") or "", goes_on=True)

    return line


LINES: dict[str, Reads] = {
    "react.decision": Reads(_thought, reply=True, said="thought", by_chance=("cached",)),
    "ruled.subgraph.merged": Reads(_merged, before_end=True, counts="call"),
    "ruled.rule.broken": Reads(
        lambda fact: Said("Rule broken", fact["message"], "cross", "bad", "turn"), before_end=True
    ),
    "ruled.draft.rejected": Reads(
        lambda fact: Said("Draft rejected", fact["reason"], "back", "warn"), before_end=True
    ),
    "ruled.draft.approved": Reads(_judged("Let pass", "good"), before_end=True),
    "ruled.draft.returned": Reads(_judged("Draft rejected", "warn"), before_end=True),
    "ruled.draft.passed": Reads(
        lambda fact: Said("Rules passed", icon="check", level="all"), before_end=True, yields=True
    ),
    "ruled.reply.unread": Reads(
        lambda fact: Said("Reply unreadable", fact["message"], "alert", "warn"),
        before_end=True,
        at_ask="again",
    ),
    "ruled.step.committed": Reads(
        lambda fact: Said(f"Step {fact['number']} counts", level="all"),
        before_end=True,
        by_chance=("number",),
    ),
    "ruled.step.observed": Reads(lambda fact: Said("Noted", fact["status"], level="all"), before_end=True),
}

EXITS = {
    "max_steps": "all steps used",
    "rule_violation": "rule broken",
    "retries_exhausted": "all retries used",
}
