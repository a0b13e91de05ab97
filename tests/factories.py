"""The cast, and runs for them to look at: alice owns runs, bob may review, charlie sees only a run of his own."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, User
from django.test import Client

from runs import actions
from runs.models import Run
from tests.compact import PageReader
from tests.running import script, think, with_own_run, work

MAIL: dict[str, Any] = {
    "params": {
        "to": "string",
        "body": "string",
        "copies": "integer",
        "ratio": "number",
        "urgent": "boolean",
        "tags": "array",
    },
    "required": ["to", "body", "copies", "urgent"],
    "effects": "send",
    "results": [{"output": "sent"}],
}
LETTER: dict[str, Any] = {
    "to": "board@example.com",
    "body": "Dear board,\nall is well.",
    "copies": 1,
    "urgent": True,
}
FINAL = {"thought": "FINAL ANSWER: all is well", "action": None}


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


def launched(owner: User | None, *replies: Any, tools: dict[str, Any] | None = None, **settings: Any) -> Run:
    """A run of the machine `ruled` that has been driven as far as it goes."""
    run = actions.start_run(
        machine="ruled",
        goal="Tell the board how <b>things</b> are",
        settings=settings,
        owner=owner,
        script=script(*replies, tools={"send_mail": MAIL} if tools is None else tools),
    )
    return work(run)


def run_with_letter(owner: User | None, **settings: Any) -> Run:
    """A run that wants to send a letter, and waits for somebody who lets it."""
    return launched(owner, think("send_mail", **LETTER), FINAL, **settings)
