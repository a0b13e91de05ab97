"""Who signs out, or loses an account or a right, loses the open sockets with it: at once, in every process."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from runs import live
from runs.consumers import socket
from runs.live.listening import hub
from runs.models import Run
from tests.cast import person
from tests.live.valkey import Valkey
from tests.live.watching import Watcher, in_database, new_run, signed_in

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    """Alice's."""
    return new_run(person("alice", "add_run"), 3)


@pytest.fixture
def bob() -> User:
    """May see all runs, as one of a group, and enter the admin."""
    bob = person("bob")
    bob.is_staff = True
    bob.save()
    group = Group.objects.create(name="lookers")
    group.permissions.set(Permission.objects.filter(codename="view_run"))
    bob.groups.add(group)
    return bob


@pytest.fixture(autouse=True)
def no_look(monkeypatch: pytest.MonkeyPatch, valkey: Valkey) -> None:
    """Nothing but a ring can have a socket ask again within the time of a test."""
    monkeypatch.setattr(socket, "RECHECK_SECONDS", 3600.0)


def browser_of(user: User) -> Client:
    """A browser in which they have signed in."""
    client = Client()
    client.force_login(user)
    return client


async def open_page(path: str, session: str) -> Watcher:
    """A page whose process hears the rings; connected, with its first message heard."""
    page = Watcher(path, session)
    assert await page.connect() == (True, 0)
    if path.startswith("/ws/runs/"):
        await page.hello(3)
    await page.hear()
    return page


async def pages_of(user: User, run: Run) -> tuple[Client, list[Watcher]]:
    """A browser, and two pages that are open in it."""
    client = await in_database(browser_of, user)
    key = (await in_database(lambda: client.session)).session_key
    return client, [await open_page(path, key) for path in (f"/ws/runs/{run.pk}/", "/ws/inbox/")]


async def hearing() -> None:
    """Until this process hears rings; one that is sent before that is lost."""
    while not hub().connected:
        await in_database(live.flush)


async def all_closed(pages: list[Watcher]) -> None:
    for page in pages:
        assert await page.closed_with() == socket.NOT_ALLOWED
        await page.leave()


@pytest.mark.parametrize("way_out", ["/sign-out/", "/admin/logout/"])
async def test_signing_out_closes_the_sockets_of_that_session_and_of_no_other(
    way_out: str, run: Run, bob: User
) -> None:
    client, pages = await pages_of(bob, run)
    other = await open_page("/ws/inbox/", await in_database(signed_in, bob))
    await hearing()
    await in_database(client.post, way_out)
    await all_closed(pages)
    await other.line.send_json_to({"type": "ping"})
    await other.until("pong")
    await other.leave()


async def test_signing_in_as_another_person_closes_the_sockets_of_the_first(run: Run, bob: User) -> None:
    client, pages = await pages_of(bob, run)
    await hearing()
    await in_database(client.force_login, await in_database(person, "charlie"))
    await all_closed(pages)


def switch_off(user: User) -> None:
    user.is_active = False
    user.save()


def change_password(user: User) -> None:
    user.set_password("another one")
    user.save()


@pytest.mark.parametrize("change", [switch_off, change_password, User.delete])
async def test_an_account_that_changes_has_its_sockets_closed(change: Any, run: Run, bob: User) -> None:
    _, pages = await pages_of(bob, run)
    await hearing()
    await in_database(change, bob)
    await all_closed(pages)


def leave_group(user: User) -> None:
    user.groups.clear()


def put_out_of_group(user: User) -> None:
    Group.objects.get(name="lookers").user_set.remove(user)


def take_from_group(user: User) -> None:
    Group.objects.get(name="lookers").permissions.clear()


def remove_group(user: User) -> None:
    Group.objects.get(name="lookers").delete()


@pytest.mark.parametrize("change", [leave_group, put_out_of_group, take_from_group, remove_group])
async def test_who_may_no_longer_see_the_run_is_sent_away_from_it_and_keeps_the_inbox(
    change: Any, run: Run, bob: User
) -> None:
    _, (page, inbox) = await pages_of(bob, run)
    await hearing()
    await in_database(change, bob)
    await all_closed([page])
    await inbox.line.send_json_to({"type": "ping"})
    await inbox.until("pong")
    await inbox.leave()


async def test_who_keeps_the_right_keeps_the_socket(run: Run, bob: User) -> None:
    _, pages = await pages_of(bob, run)
    await hearing()
    await in_database(
        bob.user_permissions.set, await in_database(list, Permission.objects.filter(codename="view_run"))
    )
    await in_database(leave_group, bob)
    await in_database(live.flush)
    for page in pages:
        await page.line.send_json_to({"type": "ping"})
        await page.until("pong")
        await page.leave()


async def test_a_ring_that_may_have_been_lost_has_everybody_asked_again(
    valkey: Valkey, run: Run, bob: User
) -> None:
    client, pages = await pages_of(bob, run)
    await hearing()
    valkey.kill9()
    await in_database(client.post, "/sign-out/")
    valkey.start()
    await all_closed(pages)
