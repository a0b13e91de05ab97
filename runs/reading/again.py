"""What going on from an earlier row is likely to do and cost again: told from what the run did after that row."""

from __future__ import annotations

from dataclasses import dataclass

from runs.models import Decision, Interrupt, Run, Step
from runs.reading import words
from runs.reading.inspector import OutsideEffect, outside_effects_after, with_theirs


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question that somebody answered after the row."""

    seq: int
    title: str
    verdict: str
    by: str

    @property
    def done(self) -> str:
        """What was answered, as it reads before "by"."""
        word = words.VERDICT_DONE.get(self.verdict)
        return word.text.lower() if word else words.spoken(self.verdict)


@dataclass(frozen=True)
class Again:
    """What the live rows after a row did: what comes again, if the run goes the same way."""

    model_calls: int
    tokens: int
    cost_usd: float
    tool_calls: int
    outside: tuple[OutsideEffect, ...]
    answered: tuple[AnsweredQuestion, ...]

    @property
    def sentence(self) -> str:
        """In one line."""
        calls, tools = _counted(self.model_calls, "model call"), _counted(self.tool_calls, "tool call")
        outside = f", {len(self.outside)} of them with effects outside" if self.outside else ""
        return f"{calls} ({self.tokens:,} tokens, {words.money(self.cost_usd)}), {tools}{outside}."

    @property
    def likely(self) -> str:
        """What it comes to, for who is about to go back."""
        calls, tools = _counted(self.model_calls, "model call"), _counted(self.tool_calls, "tool call")
        return (
            f"Going on from there is likely to cost {words.money(self.cost_usd)} again: {calls}, "
            f"{_counted(self.tokens, 'token')}, {tools}, if it goes the same way."
        )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def again(run: Run, at: int) -> Again:
    """What the run and those that it called did after row `at`, by their own record."""
    live = run.steps.filter(seq__gt=at, live=True, kind=Step.Kind.ASK).values("seq")
    done = list(run.exchanges.filter(seq__in=live).exclude(status="asked"))
    for child in with_theirs(run.children.filter(parent_seq__in=live)):
        of_child = child.steps.filter(live=True, kind=Step.Kind.ASK).values("seq")
        done += child.exchanges.filter(seq__in=of_child).exclude(status="asked")
    models = [one for one in done if one.kind in ("model_call", "compaction") and one.nth]
    calls = [one for one in done if one.kind in ("tool_call", "child_run")]
    decided = Decision.objects.filter(interrupt__run=run, interrupt__seq__in=live).select_related("interrupt")
    return Again(
        model_calls=len(models),
        tokens=sum(one.input_tokens + one.output_tokens for one in models),
        cost_usd=sum(one.cost_usd for one in models),
        tool_calls=len(calls),
        outside=tuple(outside_effects_after(run, at)),
        answered=tuple(
            AnsweredQuestion(one.interrupt.seq, one.interrupt.title, one.verdict, one.by_name)
            for one in decided.order_by("interrupt__seq")
        ),
    )


def staying(interrupt: Interrupt, to: int | None) -> Again | None:
    """What the run did after row `to`, where answering with a rollback to it leaves something done outside.

    None too where the question is closed, or the run can't go to that row: deciding says so.
    """
    if to is None or interrupt.status != Interrupt.Status.PENDING:
        return None
    if not interrupt.run.steps.filter(seq=to, live=True, kind=Step.Kind.TRANSITION).exists():
        return None
    found = again(interrupt.run, to)
    return found if found.outside else None
