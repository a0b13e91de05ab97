"""Check who may watch: when a socket is opened, and every half minute while it is open."""

from __future__ import annotations

from typing import NamedTuple

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest
from django.utils.module_loading import import_string

from runs import actions
from runs.feeds import Audience, Person
from runs.models import Run
from runs.store.backups import restored_id


class Admission(NamedTuple):
    """A person who may watch, and the inputs of their panels."""

    person: Person
    audience: Audience
    life: str
    """The site's restore epoch: a new one after each restore."""


def admission(session_key: str | None, run_id: int) -> Admission | None:
    """Return the session's current person, if they may see the run."""
    person = person_of(session_key)
    run = Run.objects.for_user(person).filter(pk=run_id).first()
    if run is None:
        return None
    staff = bool(getattr(person, "is_staff", False))
    may = Audience(actions.may_decide(person, run), actions.may_steer(person, run), staff)
    return Admission(person, may, restored_id())


def person_of(session_key: str | None) -> Person:
    """Return the session's current person: read anew, and anonymous after a sign-out."""
    request = HttpRequest()
    request.session = import_string(f"{settings.SESSION_ENGINE}.SessionStore")(session_key)
    return get_user(request)
