"""The site's interrupt rules: the current ones, and those last noted in a run's log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from runs.engine.settings import InterruptRule
from runs.engine.values import canonical
from runs.models import Run
from runs.store.db import first, rows, telling

UNREADABLE: dict[str, Any] = {
    "do": "ask",
    "name": "A site rule can't be read; until it is mended every call asks",
}
"""Stands for an unreadable rule: one that can't be evaluated asks."""

_NOW = "SELECT rule_json FROM runs_siterule WHERE enabled ORDER BY position, id"

_CHANGED = f"""
SELECT facts_json FROM runs_step
WHERE run_id = %s AND seq > %s AND kind = 'note' AND {telling("run.site_rules")}
ORDER BY seq DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class SiteRules:
    """All of them, in order."""

    text: str
    """As canonical JSON, for comparison."""
    rules: tuple[InterruptRule, ...]

    @property
    def told(self) -> tuple[dict[str, Any], ...]:
        """Return each rule as a fact and a run's row have it."""
        found: list[dict[str, Any]] = json.loads(self.text)
        return tuple(found)


def site_rules() -> SiteRules:
    """Return the rules switched on now."""
    return _read(tuple(text for (text,) in rows(_NOW)))


@lru_cache(maxsize=16)
def _read(texts: tuple[str, ...]) -> SiteRules:
    told = [_told(text) for text in texts]
    return SiteRules(canonical(told), tuple(InterruptRule.model_validate(rule) for rule in told))


def _told(text: str) -> dict[str, Any]:
    try:
        rule: dict[str, Any] = json.loads(text)
        InterruptRule.model_validate(rule)
    except (ValueError, ValidationError, RecursionError):
        return UNREADABLE
    return rule


def site_rules_of(run: Run) -> SiteRules | None:
    """Return the rules last noted in the run's log; None if they are still those of its launch.

    Rolled-back steps count: the site's rules are not rolled back with a run.
    """
    noted = first(_CHANGED, run.pk, run.copied_upto or 0)
    if noted is None:
        return None
    return _read(tuple(map(canonical, _rules_in(json.loads(noted[0])))))


def _rules_in(facts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return next(fact["rules"] for fact in facts if fact["kind"] == "run.site_rules")
