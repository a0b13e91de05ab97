"""What administrators do with profiles of models: save them, test them, choose a model of the server's list."""

from __future__ import annotations

import logging

from runs.actions.common import NotAllowed, name_of
from runs.adapters.models import how_to_add, missing_package
from runs.adapters.models.findings import Offered
from runs.adapters.prices import context_of
from runs.models import ModelProfile
from runs.rights import Person, may_manage_models
from runs.store import model_checks
from runs.store.errors import NotPossible

log = logging.getLogger(__name__)


class NotTestable(NotPossible):
    """The profile has no server."""

    def __init__(self, profile: ModelProfile) -> None:
        super().__init__(f"{profile.name} plays a script: there is nothing to test.")


def save_profile(profile: ModelProfile, *, by: Person) -> list[str]:
    """Keep a profile; return what the person should know of it."""
    check_models(by)
    return keep_profile(profile, by=by)


def keep_profile(profile: ModelProfile, *, by: Person) -> list[str]:
    """Keep a profile, for a caller that has checked the right; the result of its last test is void."""
    had_key, notes = profile.sealed_key != "", []
    profile.save()
    model_checks.forget(profile)
    log.warning("model profile %s was saved by %s", profile.name, name_of(by))
    if missing_package(profile.kind):
        sentence = f"The library for {profile.get_kind_display()} is not installed."
        notes.append(f"{sentence} {how_to_add(profile.kind)}")
    if had_key and not profile.sealed_key:
        notes.append(
            "The address changed, so the stored key was forgotten. Enter the key for the new address."
        )
    return notes


def have_tested(profile: ModelProfile, *, too_long: bool, by: Person) -> None:
    """Have a worker test the profile; `too_long` also sends a prompt over the context. Raises `NotTestable`."""
    check_models(by)
    if profile.kind == ModelProfile.Kind.SCRIPT:
        raise NotTestable(profile)
    model_checks.want(profile, too_long=too_long)
    log.warning("a test of model profile %s was requested by %s", profile.name, name_of(by))


def choose_model(profile: ModelProfile, chosen: Offered, *, by: Person) -> None:
    """Take a model of the server's list with its sizes, switch the profile on, and have it tested."""
    check_models(by)
    profile.model_id, profile.enabled, profile.left_out = chosen.model_id, True, ""
    room = chosen.context_tokens or context_of(chosen.model_id, profile.address)
    if room:
        profile.context_tokens = max(room, 256)
    if chosen.reply_tokens:
        profile.max_output_tokens = min(profile.max_output_tokens, chosen.reply_tokens)
    keep_profile(profile, by=by)
    have_tested(profile, too_long=False, by=by)


def check_models(person: Person) -> None:
    """Raise `NotAllowed` if the person may not manage models."""
    if not may_manage_models(person):
        raise NotAllowed("You may not manage models. An administrator can.")
