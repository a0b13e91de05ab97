"""Wrong passwords lock a name for browsers that nobody has signed in with, and never for a colleague's own."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentsite.known_browser import COOKIE

pytestmark = [pytest.mark.django_db, pytest.mark.database]

LIMIT = 5


@pytest.fixture(autouse=True)
def people(settings: Any) -> None:
    """Everyone comes through one proxy, so from one address."""
    settings.AXES_ENABLED = True
    for name in ("alice", "bob"):
        User.objects.create_user(name, password=f"right for {name}")


def sign_in(browser: Client, name: str, *, right: bool = True, at: str = "/sign-in/") -> int:
    """Try a password; the status of the answer: 302 is in, 429 is locked out."""
    password = f"right for {name}" if right else "wrong"
    return browser.post(at, {"username": name, "password": password}).status_code


def known(name: str) -> Client:
    """A browser in which somebody has signed in, and out again."""
    browser = Client()
    assert sign_in(browser, name) == 302
    browser.post("/sign-out/")
    return browser


def attack(browser: Client, name: str, at: str = "/sign-in/") -> int:
    """Wrong tries up to the limit and beyond; the last answer."""
    return [sign_in(browser, name, right=False, at=at) for _ in range(LIMIT + 2)][-1]


@pytest.mark.parametrize("at", ["/sign-in/", "/admin/login/"])
def test_wrong_tries_of_a_stranger_do_not_lock_out_a_colleague_behind_the_same_proxy(at: str) -> None:
    colleague = known("bob")
    assert attack(Client(), "bob", at) == 429
    assert sign_in(Client(), "bob") == 429
    assert sign_in(colleague, "bob") == 302


def test_wrong_tries_in_a_known_browser_lock_that_browser_alone() -> None:
    stolen, own = known("bob"), known("bob")
    assert attack(stolen, "bob") == 429
    assert sign_in(stolen, "bob") == 429
    assert sign_in(own, "bob") == 302


def test_a_browser_is_known_for_the_person_who_signed_in_there_alone() -> None:
    alices = known("alice")
    assert attack(alices, "bob") == 429
    assert sign_in(Client(), "bob") == 429
    assert sign_in(alices, "alice") == 302


def test_a_browser_can_not_say_of_itself_that_it_is_known() -> None:
    bobs = known("bob")
    for value in ("x", bobs.cookies[COOKIE].value[:-1] + "_", known("alice").cookies[COOKIE].value):
        forger = Client()
        forger.cookies[COOKIE] = value
        attack(forger, "bob")
    assert sign_in(Client(), "bob") == 429
    assert sign_in(bobs, "bob") == 302


def test_the_mark_of_a_known_browser_outlives_the_session_and_is_out_of_the_reach_of_scripts() -> None:
    cookie = known("bob").cookies[COOKIE]
    assert int(cookie["max-age"]) > 180 * 86400
    assert cookie["httponly"] and cookie["samesite"] == "Lax"
    assert "bob" not in cookie.value


def test_who_is_locked_out_is_told_what_to_do() -> None:
    browser = Client()
    attack(browser, "bob")
    answer = browser.post("/sign-in/", {"username": "bob", "password": "right for bob"})
    page = answer.content.decode()
    assert "Too many wrong passwords for “bob”" in page
    assert "15 minutes" in page and "sign_in_link" in page


def test_a_right_password_ends_the_count() -> None:
    browser = Client()
    for _ in range(3):
        for _ in range(LIMIT - 1):
            assert sign_in(browser, "bob", right=False) == 200
        assert sign_in(browser, "bob") == 302
        browser.post("/sign-out/")
