"""Read figures that earlier versions stored only in sentences: the only such reader.

Versions up to 0.1.0 kept the figures of some questions and facts in their text alone. Questions get their fields by a
migration, and exported records when they are read. Facts are hashed and stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from runs.engine.rules import NamedRule

THE_RESTORE = "the restore"
"""Names the pausing restore in steps without a backup's date."""

_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
_TITLE = re.compile(rf"Limit reached: (\w+) {_NUMBER} of {_NUMBER}")
_ROOT = re.compile(r"The limit \w+ of run ([0-9]+) is ")
_LEFT = re.compile(rf"The next call may use more than the {_NUMBER} that are left")
_ASIDE = re.compile(rf"Of what counts, {_NUMBER} is set aside for calls under way in other runs\.")
_COST = re.compile(r"The next model call may cost \$([0-9]+\.[0-9]+)\. Go on\?")
_COST_ROUNDED = 4e-5
"""US dollars possibly lost by the four digits of a cost."""
_MADE_AT = re.compile(r"backup of (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")
_REFUSED = "Refused by a rule: "
_UNFIT = "An answer given at launch does not fit: "


def question_as_now(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored request with figures from an older one's words; any other as it is."""
    now = dict(asked)
    if asked.get("kind") != "human_call":
        return now
    title, why = str(asked.get("title", "")), str(asked.get("why", ""))
    match asked.get("about"):
        case "limit" if not asked.get("figures") and (figures := figures_told(title, why)):
            now["figures"] = figures
        case "manual" if not asked.get("cost_usd") and (found := _COST.fullmatch(title)):
            now["cost_usd"] = float(found[1]) + _COST_ROUNDED  # no less than was meant
    return now


def figures_told(title: str, why: str) -> dict[str, Any] | None:
    """Return the figures of a question at a limit, with the digits of its words; None for other words."""
    if (found := _TITLE.fullmatch(title)) is None:
        return None
    root, left, aside = _ROOT.search(why), _LEFT.search(why), _ASIDE.search(why)
    return {
        "name": found[1],
        "used": float(found[2]),
        "limit": float(found[3]),
        "root": int(root[1]) if root else 0,
        "left": float(left[1]) if left else None,
        "aside": float(aside[1]) if aside else 0.0,
        "rounded": True,
    }


def as_now(fact: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored fact with fields from an older one's words; any other as it is."""
    match fact:
        case {"kind": "run.paused", "by": by, "message": str(why)} if (
            by == THE_RESTORE and "backup" not in fact
        ):
            told = _MADE_AT.search(why)
            made_at = datetime.strptime(told[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if told else None
            return {**fact, "backup": made_at.isoformat() if made_at else ""}
        case {"kind": "react.notice", "code": "answer_unfit", "message": str(why)} if "fault" not in fact:
            return {**fact, "fault": why.removeprefix(_UNFIT)}
    return fact


def rule_told(fact: Mapping[str, Any], rules: Iterable[NamedRule]) -> str:
    """Return the name of the rule that an older fact quotes without naming it; empty if it quotes none."""
    if fact.get("reason") != "cost_limit" and fact.get("code") != "rule_notified":
        return ""
    words = str(fact["message"]).removeprefix(_REFUSED)
    return next((name for name, rule in rules if rule.words() == words), "")
