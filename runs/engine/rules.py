"""The rules that gates look at, each under a name that stays: the site's of this moment, then the run's own.

A rule has the name of its place at launch. A site rule that came later, or was changed, is named by its content: what
was answered to another rule does not count for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from runs.engine.machine import Terms
from runs.engine.settings import InterruptRule
from runs.engine.values import fingerprint

SETTING = "settings"
"""Stands for the setting `interrupt_every` where rules are named."""

_LATER = "site:"


class NamedRule(NamedTuple):
    """A rule and its name."""

    name: str
    rule: InterruptRule


def at_launch(terms: Terms) -> tuple[NamedRule, ...]:
    """The rules as the run was launched with them: the site's, then its own."""
    return tuple(NamedRule(f"rule:{number}", rule) for number, rule in enumerate(terms.settings.rules, 1))


def named(terms: Terms, site: Iterable[InterruptRule]) -> tuple[NamedRule, ...]:
    """The rules where the site's are `site`."""
    rules = at_launch(terms)
    known = _names(rules[: terms.site_rules])
    return (*(NamedRule(_name_of(rule, known), rule) for rule in site), *rules[terms.site_rules :])


def is_of_site(name: str, at_launch: int) -> bool:
    """Whether the rule of that name is the site's, which had so many `at_launch`."""
    _, _, place = name.partition("rule:")
    return name.startswith(_LATER) or (place.isdigit() and int(place) <= at_launch)


def is_rule(name: str) -> bool:
    """Whether that is a rule's name, and not that of a setting or of a default."""
    return name.startswith(("rule:", _LATER))


def words_of(named_rule: NamedRule) -> str:
    """The rule as a question names it."""
    name, rule = named_rule
    return f"{'Site rule' if name.startswith(_LATER) else f'Rule {name[5:]}'}: {rule.words()}"


def carried_over(
    source: Terms, terms: Terms, asked: Mapping[str, int], turns: int, *, changed: bool
) -> dict[str, int]:
    """What the rules of a fork have asked already: what the same rules asked in the rows that it has.

    A fork that is changed in anything begins anew for the rules on the first step. No rule on every N steps counts as
    asked beyond the steps that the fork has.
    """
    found = {}
    if SETTING in asked and (every := terms.settings.interrupt_every):
        found[SETTING] = min(asked[SETTING], turns // every * every)
    known = _names(at_launch(source))
    for name, rule in at_launch(terms):
        last = asked.get(_name_of(rule, known))
        if rule.when.first_step and changed:
            last = 0
        elif last is not None and (every := rule.when.every_n_steps):
            last = min(last, turns // every * every)
        if last is not None:
            found[name] = last
    return found


def _name_of(rule: InterruptRule, known: Mapping[str, str]) -> str:
    content = _content(rule)
    return known.get(content, f"{_LATER}{content}")


def _names(rules: Sequence[NamedRule]) -> dict[str, str]:
    return {_content(rule): name for name, rule in reversed(rules)}


def _content(rule: InterruptRule) -> str:
    return fingerprint("rule", rule.model_dump(mode="json", by_alias=True))
