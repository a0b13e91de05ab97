"""Tests of model profiles, in a worker: the web server loads no provider's library, and waits for no model."""

from __future__ import annotations

from functools import partial

from runs.adapters.models.findings import Checked, Finding
from runs.driver.ports import ModelUnusable, model_settings, remember
from runs.models import ModelCheck, ModelProfile
from runs.store import halting, model_checks

FAULT = Checked(findings=(Finding(tone="bad", text="The test met a fault. The worker's log has it."),))


def check_wanted() -> bool:
    """Test a profile for which a person requested it. Return whether there was one."""
    if halting.halt_now() is not None:
        return False
    wanted = model_checks.take_wanted()
    if wanted is None:
        return False
    found = FAULT
    try:
        found = checked(wanted)
    finally:
        model_checks.keep(wanted, found.model_dump_json())
    return True


def checked(wanted: ModelCheck) -> Checked:
    """Return the result of a test; each of its calls has a deadline."""
    from runs.adapters.models.checking import UNCHOSEN, check

    profile = ModelProfile.objects.get(pk=wanted.profile_id)
    profile.model_id = profile.model_id or UNCHOSEN
    try:
        settings = model_settings(profile)
    except ModelUnusable as fault:
        return Checked(findings=(Finding(tone="bad", text=str(fault)),))
    return check(settings, too_long=wanted.too_long, remember=partial(remember, profile.pk))
