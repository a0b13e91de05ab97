"""Who may do what: asked by the actions before a change, by the pages before they offer one, and before a deed."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin

from runs.models import Run

Person = AbstractBaseUser | AnonymousUser | None
"""Who acts or looks; None is the installation's own operator, at the command line."""

OPERATOR = "the operator"
"""How rows name the installation's own operator. A person's name has no blanks."""


def _has(person: Person, permission: str) -> bool:
    return person is None or (isinstance(person, PermissionsMixin) and person.has_perm(permission))


def may_launch(person: Person) -> bool:
    """Whether the person may start runs."""
    return _has(person, "runs.add_run")


def may_steer(person: Person, run: Run) -> bool:
    """Whether the person may pause, resume, abort and rewind the run."""
    return person is None or run.owner_id == person.pk or _has(person, "runs.change_run")


def may_halt(person: Person) -> bool:
    """Whether the person may stop everything on the site, and let it go on."""
    return _has(person, "runs.halt_site")


def may_manage_servers(person: Person) -> bool:
    """Return whether the person may name MCP servers, which are programs that a worker starts, and approve tools."""
    return _has(person, "runs.change_mcpserver")


def decides(person: Person) -> bool:
    """Whether the person may answer the interrupts of the runs that they may see."""
    return _has(person, "runs.decide_interrupt")


def may_decide(person: Person, run: Run) -> bool:
    """Return whether the person may answer this run's interrupts, which they must be able to see."""
    return (person is None or run.seen_by(person)) and decides(person)


def may_mend(person: Person, run: Run) -> bool:
    """Whether the person may change what the model of the run reads, which they must be able to see."""
    if person is None or run.owner_id == person.pk:
        return True
    return _has(person, "runs.change_compaction") and run.seen_by(person)
