"""The one-time sign-in link."""

import datetime
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.core.management import call_command
from django.test import Client, override_settings

from agentsite.ports import address_of
from agentsite.sign_in_link import TOKENS, SignInTokens, make_link, user_of

pytestmark = [pytest.mark.django_db, pytest.mark.database]
BASE = "http://127.0.0.1:8000/"


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice")


def token_of(link: str) -> str:
    return link.removeprefix(BASE + "sign-in/").removesuffix("/")


def test_a_link_names_its_person(alice: User) -> None:
    assert user_of(token_of(make_link(alice, BASE))) == alice


def test_a_link_works_once(alice: User, client: Client) -> None:
    link = make_link(alice, BASE)
    assert b"alice" in client.get(link).content
    assert client.post(link)["Location"] == "/"
    assert client.session["_auth_user_id"] == str(alice.pk)
    again = Client().post(link)
    assert again["Location"] == "/sign-in/"


def test_any_other_sign_in_makes_a_link_void(alice: User, client: Client) -> None:
    token = token_of(make_link(alice, BASE))
    client.force_login(alice)
    assert user_of(token) is None


def test_looking_at_a_link_does_not_use_it_up(alice: User, client: Client) -> None:
    link = make_link(alice, BASE)
    assert client.get(link).status_code == client.get(link).status_code == 200
    assert user_of(token_of(link)) == alice


def test_a_used_link_says_so_on_the_sign_in_page(alice: User, client: Client) -> None:
    answer = client.get("/sign-in/1.used-up/", follow=True)
    assert "no longer works" in answer.content.decode()
    assert "<code>python3 manage.py up</code> prints a fresh one" in answer.content.decode()


def test_a_link_ends_after_an_hour(alice: User) -> None:
    class Earlier(SignInTokens):
        def _now(self) -> datetime.datetime:
            return datetime.datetime.now() - datetime.timedelta(seconds=3601)  # noqa: DTZ005  (as Django counts)

    assert TOKENS.check_token(alice, Earlier().make_token(alice)) is False


def test_a_person_who_was_switched_off_has_no_link(alice: User) -> None:
    token = token_of(make_link(alice, BASE))
    alice.is_active = False
    alice.save()
    assert user_of(token) is None


def test_a_password_reset_token_is_no_sign_in_link(alice: User) -> None:
    assert user_of(f"{alice.pk}.{default_token_generator.make_token(alice)}") is None


@pytest.mark.parametrize("token", ["", "x", "1.", "1.abc-def", "zzzzzzzzzzzzzzzzz.1-2", "-1.a-b", "1.1.1"])
def test_nonsense_names_nobody(token: str) -> None:
    assert user_of(token) is None


def printed(*words: str) -> str:
    said = StringIO()
    call_command("sign_in_link", *words, stdout=said)
    return said.getvalue()


def test_the_command_prints_the_address_where_the_site_runs(alice: User, tmp_path: Path) -> None:
    with override_settings(DATA_DIR=tmp_path):
        assert printed("alice").startswith(f"{BASE}sign-in/")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "up.json").write_text(json.dumps({"address": "http://127.0.0.1:8123"}))
        assert printed("alice").startswith("http://127.0.0.1:8123/sign-in/")
        assert printed("alice", "--address", "http://site.test").startswith("http://site.test/sign-in/")


def test_a_link_to_a_public_site_leads_to_its_name_and_not_to_the_port_behind_the_proxy(
    alice: User, tmp_path: Path, settings: Any
) -> None:
    settings.DATA_DIR = tmp_path
    environment = settings.ENVIRONMENT
    settings.ENVIRONMENT = environment.model_copy(
        update={"allowed_hosts": ("localhost", "site.example"), "https": True}
    )
    assert printed("alice").startswith("https://site.example/sign-in/")
    assert address_of(8000) == "https://site.example"
    settings.ENVIRONMENT = environment
    assert address_of(8000) == "http://127.0.0.1:8000"


def test_the_icon_is_found_where_browsers_look_for_it(client: Client) -> None:
    assert client.get("/favicon.ico")["Location"].endswith(".svg")
    assert b'rel="icon"' in client.get("/admin/login/").content
