"""Tests of model profiles: who asks for one, which worker makes it, and what came of it."""

from __future__ import annotations

from runs.models import ModelCheck, ModelProfile
from runs.store.db import again, now


@again
def want(profile: ModelProfile, *, too_long: bool) -> None:
    """Have a worker test the profile; the result of an earlier test is void."""
    about = {"too_long": too_long, "wanted_at": now(), "since": None, "found_json": ""}
    ModelCheck.objects.update_or_create(profile=profile, defaults=about)


@again
def forget(profile: ModelProfile) -> None:
    """Void the result of a changed profile."""
    ModelCheck.objects.filter(profile=profile).delete()


def take_wanted() -> ModelCheck | None:
    """Return a test that is to be made, to one worker only. One whose worker is lost is not made again: it costs."""
    for check in ModelCheck.objects.filter(wanted_at__isnull=False).order_by("wanted_at"):
        mine, began = ModelCheck.objects.filter(pk=check.pk, wanted_at=check.wanted_at), now()
        if mine.update(wanted_at=None, since=began):
            check.wanted_at, check.since = None, began
            return check
    return None


@again
def keep(check: ModelCheck, found_json: str) -> None:
    """Keep the result, unless the profile was changed or tested anew meanwhile."""
    mine = ModelCheck.objects.filter(pk=check.pk, since=check.since)
    mine.update(since=None, done_at=now(), found_json=found_json)
