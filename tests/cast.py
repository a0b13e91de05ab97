"""The cast, and runs for them to look at: alice owns runs, bob may review, charlie sees only a run of his own."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from runs.models import Run
from tests.compact import PageReader
from tests.launching import FINAL, launch
from tests.running import work


def cast_member(name: str, *groups: str, **fields: Any) -> User:
    """Somebody who has signed up."""
    user = User.objects.create_user(name, password="pw", **fields)
    user.groups.set(Group.objects.filter(name__in=groups))
    return user


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


def person(name: str, *permissions: str) -> User:
    """Somebody with these permissions of the app."""
    user = User.objects.create_user(name)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="runs", codename__in=permissions)
    )
    return User.objects.get(pk=user.pk)


def with_own_run(user: User) -> User:
    """The same person, who owns a run that has ended: one look at "any run of theirs" must not let them in."""
    run = work(launch(FINAL))
    Run.objects.filter(pk=run.pk).update(owner=user)
    return user


def stranger(name: str, *permissions: str) -> User:
    """A person with these permissions and one run, which is not the one that the test is about."""
    return with_own_run(person(name, *permissions))


def administrator() -> User:
    return User.objects.create_superuser("ada", password="pw")
