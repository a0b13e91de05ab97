"""The cast, and runs for them to look at: alice owns runs, bob may review, charlie sees only a run of his own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db.models import QuerySet
from django.test import Client

from runs.models import Run
from tests.compact import PageReader
from tests.launching import FINAL, launch
from tests.running import work


def cast_member(name: str, *groups: str, **fields: Any) -> User:
    """Somebody who has signed up."""
    user = User.objects.create_user(name, password="pw", **fields)
    user.groups.set(map(role, groups))
    return user


LOOKS_AT = [f"view_{name}" for name in ("budget", "compaction", "decision", "exchange", "interrupt", "step")]
ROLES = {
    "operators": ["add_run", *LOOKS_AT],
    "reviewers": ["view_run", "decide_interrupt", "change_compaction", *LOOKS_AT],
}
"""What the migrations let each group do."""


def role(name: str) -> Group:
    """Return the group, made anew where a test before has emptied its table."""
    group, is_new = Group.objects.get_or_create(name=name)
    if is_new:
        group.permissions.set(permissions(ROLES[name]))
    return group


def permissions(names: Iterable[str]) -> QuerySet[Permission]:
    """Return these permissions of the app."""
    return Permission.objects.filter(content_type__app_label="runs", codename__in=names)


def alice() -> User:
    """She launches runs, and may not decide."""
    return cast_member("alice", "operators")


def bob() -> User:
    """He sees all runs and decides."""
    return cast_member("bob", "reviewers")


def charlie() -> User:
    """He may sign in and look at his one run, and nothing else."""
    return with_own_run(cast_member("charlie"))


def signed_in(user: User, *, csrf: bool = False) -> Client:
    """A browser in which `user` has signed in."""
    client = PageReader(enforce_csrf_checks=csrf)
    client.force_login(user)
    return client


def person(name: str, *may: str) -> User:
    """Somebody with these permissions of the app."""
    user = User.objects.create_user(name)
    user.user_permissions.set(permissions(may))
    return User.objects.get(pk=user.pk)


def with_own_run(user: User) -> User:
    """The same person, who owns a run that has ended: one look at "any run of theirs" must not let them in."""
    run = work(launch(FINAL))
    Run.objects.filter(pk=run.pk).update(owner=user)
    return user


def stranger(name: str, *may: str) -> User:
    """A person with these permissions and one run, which is not the one that the test is about."""
    return with_own_run(person(name, *may))


def administrator() -> User:
    """She may do everything."""
    return User.objects.create_superuser("ada", password="pw")
