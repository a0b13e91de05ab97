"""Check directly before a call: do the site's rules still let it pass, and may its approvers still decide?

Both checks run in the transaction that commits the intent. See docs/runtime.md, "Questions".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from runs.engine.effects import EFFECT, LET_PASS, HumanCall, HumanSaid, ToolCall
from runs.engine.facts import ApprovalLapsed
from runs.engine.gates import answered_by, rule_that_asks
from runs.engine.rules import is_of_site
from runs.machines import CATALOGUE
from runs.models import Decision, Exchange, Run, Step
from runs.rights import OPERATOR, Person, decides, may_decide
from runs.store.db import rows
from runs.store.site_rules import site_rules

LETS_GO_ON = (*LET_PASS, "resume")
"""Verdicts that count only while their author may decide. `_lapsed` adds a raise that releases a call."""


class LookAgain(Exception):
    """The call is not begun: the site's rules have changed since its request, or an approval no longer counts."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answered question, with its decision."""

    question: HumanCall
    decision: Decision


def still_holds(run_id: int, seq: int, rules: str, host: str) -> bool:
    """Return True if the call of step `seq`, which passed the site's rules `rules` (their text), may begin.

    `host` is the one contacted only because a person allowed it for the run; empty if none is.
    """
    return site_rules().text == rules and lapsed_before(run_id, seq, host) is None


def passed_before(run_id: int, seq: int) -> tuple[str, ...]:
    """Return the gates answered for the call of step `seq`."""
    behind = _behind(run_id, seq)
    if not behind:
        return ()
    answered = Exchange.objects.get(run_id=run_id, seq=behind[-1].decision.interrupt.seq)
    said = HumanSaid.model_validate_json(answered.answer_json or "")
    return answered_by(behind[-1].question, said)


def lapsed_before(run_id: int, seq: int, host: str) -> ApprovalLapsed | None:
    """Return the first lapsed approval behind the call of step `seq`; that of its `host` is one of them."""
    behind = _behind(run_id, seq)
    if host and not any(answered.question.host == host for answered in behind):
        behind += _allowed(run_id, seq, host)
    return next((lapsed for answered in behind if (lapsed := _lapsed(answered))), None)


def _allowed(run_id: int, seq: int, host: str) -> list[Answered]:
    """Return the last approval that allowed the host for the rest of the run."""
    given = _decisions(run_id).filter(allow_host=True, interrupt__host=host, interrupt__seq__lt=seq)
    last = given.order_by("-interrupt__seq").first()
    return [Answered(question_at(run_id, last.interrupt.seq), last)] if last is not None else []


def lapsed_at(run_id: int, seq: int) -> ApprovalLapsed | None:
    """Return the answer to the question of step `seq`, if it no longer counts."""
    decision = _decisions(run_id).filter(interrupt__seq=seq).first()
    return _lapsed(Answered(question_at(run_id, seq), decision)) if decision is not None else None


def question_at(run_id: int, seq: int) -> HumanCall:
    """Return the question of step `seq`."""
    asked = EFFECT.validate_json(Exchange.objects.get(run_id=run_id, seq=seq).request_json)
    assert isinstance(asked, HumanCall)
    return asked


def _behind(run_id: int, seq: int) -> list[Answered]:
    """Return the answers that let the call of step `seq` pass since the machine came to it, in order.

    Of the answers to one gate the last one counts. Changed arguments make another call, and a consent to repeat a
    possible call answers for all gates: nothing before those counts.
    """
    decided = [asked for (asked,) in rows(_DECIDED, run_id, seq, run_id, seq)]
    found: dict[tuple[str, ...], Answered] = {}
    answers = _decisions(run_id).filter(interrupt__seq__in=decided).order_by("interrupt__seq")
    for decision in answers if decided else ():
        question = question_at(run_id, decision.interrupt.seq)
        if decision.verdict == "edit" or question.about == "may_have_happened":
            found.clear()
        gate = (question.about, question.limit, *question.passed[-1:])
        found.pop(gate, None)
        found[gate] = Answered(question, decision)
    return list(found.values())


_DECIDED = """
SELECT question.seq FROM runs_interrupt question JOIN runs_decision ON interrupt_id = question.id
WHERE question.run_id = %s AND question.seq < %s AND question.tool <> '' AND question.seq > COALESCE((
    SELECT seq FROM runs_step
    WHERE run_id = %s AND seq < %s AND live AND kind IN ('transition', 'rewind')
    ORDER BY seq DESC LIMIT 1
), 0)
"""


def _decisions(run_id: int) -> QuerySet[Decision]:
    return Decision.objects.filter(interrupt__run_id=run_id).select_related("interrupt__run", "by")


# --- whose answer counts --------------------------------------------------------------------------------------------


def _lapsed(answered: Answered) -> ApprovalLapsed | None:
    question, decision = answered.question, answered.decision
    lets_go = decision.verdict in LETS_GO_ON or (
        decision.verdict == "top_up" and isinstance(question.holds, ToolCall)
    )
    if not lets_go or _counts(question, decision):
        return None
    return ApprovalLapsed(
        question=decision.interrupt.seq,
        verdict=decision.verdict,
        by=decision.by_name,
        channel=decision.channel,
    )


def _counts(question: HumanCall, decision: Decision) -> bool:
    run = decision.interrupt.run
    match decision.channel:
        case "deadline":
            return True  # a rule's own decision; the rules themselves are checked beside this
        case "settings":
            row = Step.objects.get(run=run, seq=decision.interrupt.seq)
            facts = CATALOGUE[run.machine].facts.validate_json(row.facts_json)
            return may_answer(run, question, rule_that_asks(question, facts))
        case "kept" | "fork" if decision.by is None:
            return may_keep(run, decision.by_name)
    if decision.by is None:  # the person has been deleted, if it was one
        return decision.by_name == OPERATOR
    return may_decide(decision.by, run)


def may_keep(run: Run, name: str) -> bool:
    """Return True if an answer kept for the run in that name counts."""
    return name == OPERATOR or may_decide(person_named(name), run)


def person_named(name: str) -> Person:
    """Return the person of that name; an anonymous one if the name is gone."""
    found: Person = get_user_model().objects.filter(username=name).first()
    return AnonymousUser() if found is None else found


def may_answer(run: Run, question: HumanCall, rule: str) -> bool:
    """Return True if an answer given at launch may answer the question of that rule.

    A launcher without the right to decide can answer only in a script: no real tool, no rule of the site, no other
    owner's limit.
    """
    if _launcher_decides(run):
        return True
    if not run.script_json or is_of_site(rule, len(json.loads(run.site_rules_json))):
        return False
    if question.about == "limit" and run.root is not None and run.root.owner_id != run.owner_id:
        return False
    return not isinstance(question.holds, ToolCall) or question.holds.tool in _played(run)


def _launcher_decides(run: Run) -> bool:
    if run.owner_id is None:
        return run.by_operator
    return decides(get_user_model().objects.filter(pk=run.owner_id).first() or AnonymousUser())


def _played(run: Run) -> set[str]:
    """Return the tools without anything real behind them."""
    return {*_scripted(run.script_json), *(spec.name for spec in CATALOGUE[run.machine].built_in)}


@lru_cache(maxsize=64)
def _scripted(script: str) -> frozenset[str]:
    return frozenset(json.loads(script).get("tools") or ())
