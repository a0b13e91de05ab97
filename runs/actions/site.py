"""Actions on the whole site: the kill switch, its models and rules."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings as site
from django.db import transaction
from pydantic import ValidationError

from runs import hints
from runs.actions.common import NotAllowed, name_of, tell_all
from runs.adapters.secrets import seal
from runs.engine.settings import InterruptRule
from runs.engine.values import clean_text
from runs.models import Halt, ModelProfile, RunStatus
from runs.rights import Person, may_halt
from runs.store import halting
from runs.store.errors import NotPossible

log = logging.getLogger(__name__)

MAX_HALT_REASON = 500
"""Characters of the reason for a halt."""


def halt_site(*, by: Person, reason: str) -> Halt:
    """Halt the site: no run is claimed, no effect begins, nothing is lost.

    If it is halted already, a missing reason can be added; else raises `AlreadyHalted`, and nothing changes.
    """
    _check_halting(by)
    reason = clean_text(reason.strip())
    if len(reason) > MAX_HALT_REASON:
        raise NotPossible(
            f"A reason has at most {MAX_HALT_REASON} characters; this one has {len(reason)}; nothing was halted."
        )
    halt = halting.halt_site(name_of(by), reason)
    if by is not None:  # the operator at the terminal sees it
        log.warning("halted by %s: %r", halt.by_name, halt.reason)
    tell_all(halting.unfinished_ids(RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING, RunStatus.PAUSED))
    return halt


def unhalt_site(*, by: Person) -> int:
    """Resume the site; return how many runs want a worker now."""
    _check_halting(by)
    if halting.unhalt_site(name_of(by)) is None:
        raise NotPossible("The site is not halted.")
    if by is not None:
        log.warning("no longer halted, by %s", name_of(by))
    wanting = halting.unfinished_ids(RunStatus.QUEUED, RunStatus.RUNNING)
    tell_all([*wanting, *halting.unfinished_ids(RunStatus.WAITING, RunStatus.PAUSED)])
    transaction.on_commit(lambda: hints.hint(*wanting))
    return len(wanting)


def _check_halting(person: Person) -> None:
    if not may_halt(person):
        raise NotAllowed("You may not halt the site. An administrator can.")


def register_model(
    *, name: str, base_url: str, model_id: str, api_key: str = "", **fields: Any
) -> ModelProfile:
    """Add or replace a model of the site; its key is stored sealed."""
    sealed = seal(api_key, site.SECRET_KEY) if api_key else ""
    values = {
        "kind": ModelProfile.Kind.OPENAI,
        "base_url": base_url,
        "model_id": model_id,
        "sealed_key": sealed,
    }
    profile, _ = ModelProfile.objects.update_or_create(
        name=name, defaults={**values, **fields, "enabled": True}
    )
    return profile


def check_rule(text: str) -> InterruptRule:
    """Return a site rule from its JSON; raises `ValueError` with a sentence."""
    try:
        return InterruptRule.model_validate_json(text)
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the rule"
        raise ValueError(f"{where}: {first['msg']}.") from None
