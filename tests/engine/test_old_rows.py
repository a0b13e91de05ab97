"""What earlier versions stored only in sentences is read once, into the fields that there are now."""

from __future__ import annotations

from typing import Any

import pytest

from runs.engine.effects import EFFECT, AtLimit, HumanCall
from runs.engine.facts import Exited, Notice, Paused
from runs.engine.gates import at_limit
from runs.engine.old_rows import as_now, question_as_now, rule_told
from runs.engine.rules import NamedRule
from runs.engine.settings import InterruptRule, When
from tests.earlier_words import worded_then


def stored(question: HumanCall) -> dict[str, Any]:
    """The request of a question as earlier versions wrote it."""
    return worded_then(question.model_dump(mode="json"))


@pytest.mark.parametrize(
    "figures",
    [
        AtLimit(name="tokens", used=240, limit=240),
        AtLimit(name="cost_usd", used=0.0598, limit=0.06, left=0.0002),
        AtLimit(name="cost_usd", used=0.004, limit=0.004, root=12, aside=0.001),
        AtLimit(name="tokens", used=2e6, limit=3e6, root=12, left=1e6, aside=5e5),
        AtLimit(name="active_seconds", used=61.5, limit=60),
    ],
)
def test_a_question_at_a_limit_has_the_figures_of_its_words(figures: AtLimit) -> None:
    question = at_limit(figures)
    now = EFFECT.validate_python(question_as_now(stored(question)))
    assert isinstance(now, HumanCall)
    assert now.figures == figures.model_copy(update={"rounded": True})


def test_exact_figures_are_left_as_they_are() -> None:
    asked = at_limit(AtLimit(name="tokens", used=1234567, limit=1234568, left=1)).model_dump(mode="json")
    assert question_as_now(asked) == asked


def test_a_question_about_the_cost_has_no_less_than_its_words_say() -> None:
    asked = HumanCall(about="manual", title="", why="Costly", cost_usd=0.0123)
    assert question_as_now(stored(asked))["cost_usd"] == pytest.approx(0.0123, abs=5e-5)
    assert question_as_now(stored(asked))["cost_usd"] >= 0.0123


@pytest.mark.parametrize("about", ["question", "tool_call", "manual"])
def test_words_of_a_limit_in_another_question_are_no_figures(about: Any) -> None:
    asked = stored(HumanCall(about=about, title="Limit reached: tokens 1 of 2", why=""))
    assert question_as_now(asked) == asked


def test_a_pause_by_an_earlier_restore_tells_its_backup() -> None:
    why = "Restored from a backup of 2026-11-28 07:25:00 UTC. What came after it is not known."
    now = as_now(Paused(by="the restore", message=why).model_dump())
    assert now["backup"] == "2026-11-28T07:25:00+00:00"
    assert as_now(Paused(by="the restore", message="Put back.").model_dump())["backup"] == ""


@pytest.mark.parametrize(
    "fact",
    [
        Paused(by="bob", message="Restored from a backup of 2026-11-28 07:25:00 UTC."),
        Paused(by="the restore", message="backup of 2026-11-28 07:25:00 UTC", backup=""),
        Notice(code="retried", message="An answer given at launch does not fit: x"),
        Notice(code="answer_unfit", message="An answer given at launch does not fit: x", fault="y"),
    ],
)
def test_other_facts_are_left_as_they_are(fact: Any) -> None:
    assert as_now(fact.model_dump()) == fact.model_dump()


def test_an_answer_that_did_not_fit_tells_what_is_wrong_with_it() -> None:
    fact = Notice(code="answer_unfit", message="An answer given at launch does not fit: no verdict.")
    assert as_now(fact.model_dump())["fault"] == "no verdict."


def test_a_rule_that_an_older_row_quotes_is_found_by_its_words() -> None:
    rule = InterruptRule(do="deny", when=When(next_cost_usd=0.5))
    rules = [NamedRule("rule:2", rule)]
    ends = Exited(reason="cost_limit", message=f"Refused by a rule: {rule.words()}")
    notes = Notice(code="rule_notified", message=rule.words())
    others = [Exited(reason="aborted", message=rule.words()), Notice(code="retried", message=rule.words())]
    assert [rule_told(fact.model_dump(), rules) for fact in (ends, notes)] == ["rule:2", "rule:2"]
    assert [rule_told(fact.model_dump(), rules) for fact in others] == ["", ""]
