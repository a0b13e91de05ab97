"""The rules that gates look at, each under a stable name: the site's current ones, then the run's own.

A rule is named by its place at launch. A later or changed site rule is named by its content: an answer to another rule
does not count for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from runs.engine.machine import Terms
from runs.engine.settings import InterruptRule
from runs.engine.values import fingerprint

SETTING = "settings"
"""Names the setting `interrupt_every` among the rules."""

_LATER = "site:"


class NamedRule(NamedTuple):
    """A rule and its name."""

    name: str
    rule: InterruptRule


def at_launch(terms: Terms) -> tuple[NamedRule, ...]:
    """Return the rules as of launch: the site's, then the run's own."""
    return tuple(NamedRule(f"rule:{number}", rule) for number, rule in enumerate(terms.settings.rules, 1))


def named(terms: Terms, site: Iterable[InterruptRule]) -> tuple[NamedRule, ...]:
    """Return the rules with `site` as the site's."""
    rules = at_launch(terms)
    known = _names(rules[: terms.site_rules])
    return (*(NamedRule(_name_of(rule, known), rule) for rule in site), *rules[terms.site_rules :])


def is_of_site(name: str, at_launch: int) -> bool:
    """Return True if the rule of that name is one of the site's, of which there were `at_launch`."""
    _, _, place = name.partition("rule:")
    return name.startswith(_LATER) or (place.isdigit() and int(place) <= at_launch)


def is_rule(name: str) -> bool:
    """Return True if the name is a rule's, not a setting's or a default's."""
    return name.startswith(("rule:", _LATER))


def words_of(named_rule: NamedRule) -> str:
    """Return the rule as a question names it."""
    name, rule = named_rule
    return f"{'Site rule' if name.startswith(_LATER) else f'Rule {name[5:]}'}: {rule.words()}"


def carried_over(
    source: Terms, terms: Terms, asked: Mapping[str, int], turns: int, *, changed: bool
) -> dict[str, int]:
    """Return the multiples that a fork's rules have asked at already: those of the same rules in its copied steps.

    In a changed fork, rules on the first step begin again. No rule on every N steps counts as asked beyond the fork's
    steps.
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
