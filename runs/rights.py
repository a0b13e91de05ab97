"""The rights of people: checked by actions before a change, by pages before an offer, and before a side effect."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin

from runs.models import Run

Person = AbstractBaseUser | AnonymousUser | None
"""The person who acts or looks; None is the installation's own operator, at the command line."""

OPERATOR = "the operator"
"""The log's name of the installation's own operator. A person's name has no blanks."""


def _has(person: Person, permission: str) -> bool:
    return person is None or (isinstance(person, PermissionsMixin) and person.has_perm(permission))


def may_launch(person: Person) -> bool:
    """Return True if the person may start runs."""
    return _has(person, "runs.add_run")


def may_steer(person: Person, run: Run) -> bool:
    """Return True if the person may pause, resume, cancel and roll back the run."""
    return person is None or run.owner_id == person.pk or _has(person, "runs.change_run")


def may_halt(person: Person) -> bool:
    """Return True if the person may halt the site, and resume it."""
    return _has(person, "runs.halt_site")


def may_manage_servers(person: Person) -> bool:
    """Return whether the person may name MCP servers, which are programs that a worker starts, and approve tools."""
    return _has(person, "runs.change_mcpserver")


def may_manage_models(person: Person) -> bool:
    """Return whether the person may add and change profiles of models, and have them tested."""
    return _has(person, "runs.change_modelprofile") and _has(person, "runs.add_modelprofile")


def decides(person: Person) -> bool:
    """Return True if the person may answer the interrupts of visible runs."""
    return _has(person, "runs.decide_interrupt")


def may_decide(person: Person, run: Run) -> bool:
    """Return True if the person may answer this run's interrupts; the run must be visible to them."""
    return (person is None or run.seen_by(person)) and decides(person)


def may_mend(person: Person, run: Run) -> bool:
    """Return True if the person may change the run's context; the run must be visible to them."""
    if person is None or run.owner_id == person.pk:
        return True
    return _has(person, "runs.change_compaction") and run.seen_by(person)
