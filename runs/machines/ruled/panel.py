"""The rules of `ruled`: passed or broken, with retries, cost against its rule, feedback, rollbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runs.engine.facts import Rewound
from runs.engine.presentation import Data, Lost, Meter, Panel, Told, money, spoken
from runs.machines.ruled.facts import DraftPassed, DraftRejected, RuleBroken
from runs.machines.ruled.settings import MOST_USD, RETRIES, RulesetRule
from runs.machines.ruled.state import RuledState

FACTS = tuple(fact.model_fields["kind"].default for fact in (DraftPassed, DraftRejected, RuleBroken, Rewound))


@dataclass(frozen=True)
class RuleView:
    """A rule, and how the thoughts fared under it."""

    name: str
    wants: str
    ends: bool
    """True if breaking it ends the run."""
    broken: int
    seq: int | None
    """The last step that broke it."""

    @property
    def sign(self) -> str:
        return "✗" if self.broken else "✓"


@dataclass(frozen=True)
class Rollback:
    """A rollback: its step, and the step whose state is in force again."""

    seq: int
    to: int
    by: str


def context(state: RuledState, rows: Sequence[Told], _lost: Lost | None) -> Data:
    """Return the data of the template."""
    broken, last, counted = Counter[str](), dict[str, int](), Counter[str]()
    for row in rows:
        for fact in row.facts:
            counted[fact["kind"]] += 1
            names = fact.get("rules") or ([fact["rule"]] if "rule" in fact else [])
            broken.update(names)
            last |= dict.fromkeys(names, row.seq)
    rules = state.settings.rules_in_order()
    return {
        "rules": [_rule(rule, state, broken, last) for rule in rules],
        "judged": counted["ruled.draft.passed"]
        + counted["ruled.draft.rejected"]
        + counted["ruled.rule.broken"],
        "passed": counted["ruled.draft.passed"],
        "why": state.metadata.retry_reason,
        "meters": [_retries(state), _rejections(state), *_cost(state, rules)],
        "feedback": list(state.metadata.user_feedback.items())[::-1],
        "rollbacks": [
            Rollback(row.seq, fact["to_seq"], fact["by"])
            for row in rows
            for fact in row.facts
            if fact["kind"] == "run.rewound"
        ][::-1],
    }


def _rule(rule: RulesetRule, state: RuledState, broken: Counter[str], last: dict[str, int]) -> RuleView:
    return RuleView(
        spoken(rule.type), _wants(rule, state), rule.terminal, broken[rule.type], last.get(rule.type)
    )


def _wants(rule: RulesetRule, state: RuledState) -> str:
    match rule.type:
        case "max_depth":
            return f"at most {rule.most(state.settings.max_steps):g} steps"
        case "cost_limit":
            return f"at most {money(rule.most(MOST_USD))}"
        case "forbid_guessing":
            return f"none of {', '.join(f'“{phrase}”' for phrase in rule.phrases)}"
        case "require_tool_use":
            return "a tool is used before the answer"
        case "forbid_pattern":
            return f"nothing that matches {rule.value}"


def _cost(state: RuledState, rules: list[RulesetRule]) -> list[Meter]:
    """Return the run's cost against each rule that limits it."""
    used = state.metadata.total_cost
    limits = [rule.most(MOST_USD) for rule in rules if rule.type == "cost_limit"]
    return [Meter("Cost by the rule", used, limit, unit="usd") for limit in limits]


def _retries(state: RuledState) -> Meter:
    return Meter("Retries in a row", state.metadata.retry_count, RETRIES)


def _rejections(state: RuledState) -> Meter:
    return Meter("Rejected by people", state.rejections, state.settings.max_rejections)


PANEL = Panel("The rules", FACTS, context, "ruled/panel.html", open=False)
