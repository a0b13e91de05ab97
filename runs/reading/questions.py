"""The whole question to a person. An agent may ask several things at once: the title of its question is the first.

Only the run's own question in its log is stored; title and reason stay as they were.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from django.db.models import OuterRef, Subquery

from runs.engine.effects import EFFECT, HumanCall
from runs.models import Exchange, Interrupt
from runs.reading.phrases import Data


def whole_title(asked: Data) -> str:
    """Return all questions on one line; `asked` is the effect as it was stored."""
    return " ".join(asked.get("questions") or ()) or str(asked["title"])


def questions_of(interrupts: Collection[Interrupt]) -> dict[Any, tuple[str, ...]]:
    """Return the single questions of each, by its key; nothing if it is no agent's question. One query for all."""
    agents = [found.pk for found in interrupts if found.kind == "question"]
    questions: dict[Any, tuple[str, ...]] = {found.pk: () for found in interrupts}
    if agents:
        stored = Exchange.objects.filter(run=OuterRef("run"), seq=OuterRef("seq")).values("request_json")
        requests = Interrupt.objects.filter(pk__in=agents).values_list("pk", Subquery(stored))
        questions |= {pk: _asked(request) for pk, request in requests}
    return questions


def asked_of(interrupt: Interrupt) -> HumanCall | None:
    """Return the question as the run asked it."""
    request = (
        Exchange.objects.filter(run=interrupt.run_id, seq=interrupt.seq).values_list("request_json").first()
    )
    asked = EFFECT.validate_json(request[0]) if request else None
    return asked if isinstance(asked, HumanCall) else None


def _asked(request: str | None) -> tuple[str, ...]:
    return tuple(json.loads(request).get("questions") or ()) if request else ()


def answer_field(number: int) -> str:
    """Return the name of the form's field for the answer to one of several questions; they count from 1."""
    return f"answer.{number}"


def titles_of(interrupts: Collection[Interrupt]) -> dict[Any, str]:
    """Return all questions of each on one line, by its key."""
    questions = questions_of(interrupts)
    return {found.pk: title_of(found, questions[found.pk]) for found in interrupts}


def title_of(interrupt: Interrupt, questions: tuple[str, ...]) -> str:
    """Return all its questions on one line."""
    return " ".join(questions) or interrupt.title


def reason_of(interrupt: Interrupt, questions: tuple[str, ...]) -> str:
    """Return why it is asked, without the further questions, if the machine puts them before its reason."""
    further = "\n".join(questions[1:])
    if further and interrupt.why.startswith(further):
        return interrupt.why.removeprefix(further).removeprefix("\n")
    return interrupt.why
