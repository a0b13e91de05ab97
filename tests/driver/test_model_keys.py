"""A key is for the server that it was entered for, and comes from no variable but those meant for keys."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from runs import actions, driver
from runs.adapters.secrets import seal, unseal
from runs.driver.ports import ModelUnusable, model_settings
from runs.models import ModelProfile
from tests.cast import administrator, signed_in
from tests.fake_model_server import FakeModelServer, Says
from tests.launching import FINAL
from tests.running import work
from tests.served import PROFILE

pytestmark = [pytest.mark.django_db]

OLD, NEW = "https://models.example.com/v1", "https://elsewhere.example.com/v1"
VARIABLE = "AGENTSITE_KEY_MODELS"

ELSEWHERE = [
    NEW,
    "http://models.example.com/v1",
    "https://models.example.com:8443/v1",
    "https://models.example.com.evil.example/v1",
    "https://models.example.com@evil.example/v1",
    "https://models.example.com:443x/v1",
    "https://[models.example.com/v1",
    "",
]
THERE = [
    OLD,
    "https://models.example.com/v2",
    "https://MODELS.example.com/v1/",
    "https://models.example.com:443/v1",
]


def profile(**fields: Any) -> ModelProfile:
    sealed = seal("sk-for-the-old-one", settings.SECRET_KEY)
    about = {"name": "tiny", "base_url": OLD, "model_id": "tiny-1", "sealed_key": sealed}
    made: ModelProfile = ModelProfile.objects.create(**about | fields)
    return made


def key_of(found: ModelProfile) -> str:
    found.refresh_from_db()
    return unseal(found.sealed_key, settings.SECRET_KEY) if found.sealed_key else ""


# --- the stored key -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ELSEWHERE)
def test_a_changed_address_forgets_the_key(url: str) -> None:
    found = profile()
    found.base_url = url
    found.save()
    assert key_of(found) == ""


@pytest.mark.parametrize("url", THERE)
def test_the_same_server_in_other_words_keeps_its_key(url: str) -> None:
    found = profile()
    found.base_url = url
    found.save()
    assert key_of(found) == "sk-for-the-old-one"


def test_a_save_of_the_address_alone_forgets_the_key_too() -> None:
    found = profile(key_variable=VARIABLE)
    found.base_url = NEW
    found.save(update_fields=["base_url"])
    assert key_of(found) == ""
    assert found.key_variable == ""


def test_a_key_that_comes_with_the_new_address_is_for_it() -> None:
    found = profile()
    found.base_url, found.sealed_key = NEW, seal("sk-for-the-new-one", settings.SECRET_KEY)
    found.save()
    assert key_of(found) == "sk-for-the-new-one"


def test_a_model_that_is_registered_again_elsewhere_has_the_key_that_it_is_given() -> None:
    found = profile(key_variable=VARIABLE)
    actions.register_model(name="tiny", base_url=NEW, model_id="tiny-1", api_key="sk-for-the-new-one")
    assert key_of(found) == "sk-for-the-new-one"
    assert found.key_variable == ""


def test_another_server_is_not_sent_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sk-of-the-variable")
    with FakeModelServer([Says(FINAL)]) as server:
        found = profile(key_variable=VARIABLE)
        found.base_url = server.base_url
        found.save()
        run = work(actions.start_run(machine="ruled", goal="Say", settings={"model": "tiny"}, owner=None))
        (asked,) = server.asked
    assert run.status == "succeeded"
    assert "authorization" not in asked.headers


# --- the form -----------------------------------------------------------------------------------------------------


def posted(found: ModelProfile, **fields: str) -> Any:
    change = reverse("admin:runs_modelprofile_change", args=[found.pk])
    return signed_in(administrator()).post(change, PROFILE | {"base_url": OLD} | fields, follow=True)


def test_the_form_says_that_a_changed_address_has_forgotten_the_key() -> None:
    found = profile()
    page = posted(found, base_url=NEW).text
    assert "The address changed, so the stored key was forgotten." in page
    assert key_of(found) == ""
    assert found.base_url == NEW


def test_the_form_says_nothing_where_the_address_stays() -> None:
    found = profile()
    assert "was forgotten" not in posted(found, timeout_s="30").text
    assert key_of(found) == "sk-for-the-old-one"


def test_the_form_keeps_a_key_that_comes_with_a_new_address() -> None:
    found = profile()
    assert "was forgotten" not in posted(found, base_url=NEW, new_key="sk-for-the-new-one").text
    assert key_of(found) == "sk-for-the-new-one"


def test_the_key_of_a_variable_goes_to_a_new_address_only_where_a_person_says_so() -> None:
    found = profile(sealed_key="", key_variable=VARIABLE)
    client = signed_in(administrator())
    change = reverse("admin:runs_modelprofile_change", args=[found.pk])
    moved = PROFILE | {"base_url": NEW, "key_variable": VARIABLE}
    page = client.post(change, moved)
    assert page.status_code == 200
    assert f"The address changed. Confirm that the key in {VARIABLE} may go there" in page.text
    found.refresh_from_db()
    assert found.base_url == OLD
    assert client.post(change, moved | {"send_variable": "on"}).status_code == 302
    found.refresh_from_db()
    assert (found.base_url, found.key_variable) == (NEW, VARIABLE)


def test_a_variable_that_is_cleared_with_the_address_needs_no_word() -> None:
    found = profile(sealed_key="", key_variable=VARIABLE)
    posted(found, base_url=NEW, key_variable="")
    found.refresh_from_db()
    assert (found.base_url, found.key_variable) == (NEW, "")


# --- the variable -------------------------------------------------------------------------------------------------

OTHERS = [
    "REDIS_URL",
    "SECRET_KEY",
    "OPENAI_API_KEY",
    "AGENTSITE_DATA_DIR",
    "AGENTSITE_KEY_",
    "agentsite_key_x",
]


@pytest.mark.parametrize("name", OTHERS)
def test_the_form_takes_no_variable_that_is_not_meant_for_keys(name: str) -> None:
    add = reverse("admin:runs_modelprofile_add")
    page = signed_in(administrator()).post(add, PROFILE | {"key_variable": name})
    assert page.status_code == 200
    assert "AGENTSITE_KEY_" in page.context["adminform"].form.errors["key_variable"][0]
    assert not ModelProfile.objects.exists()


@pytest.mark.parametrize("name", OTHERS)
def test_an_older_profile_that_names_another_variable_says_what_to_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "redis://:secret@10.0.0.5")
    found = profile(key_variable=name)
    with pytest.raises(ModelUnusable, match=r"Rename its key variable, .* to AGENTSITE_KEY_") as caught:
        model_settings(found)
    assert "secret@" not in str(caught.value)
    assert "Rename its key variable" in driver.ports.why_not(["tiny"])["tiny"]


def test_a_key_comes_from_a_variable_that_is_meant_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sk-of-the-variable")
    client = signed_in(administrator())
    add = reverse("admin:runs_modelprofile_add")
    assert client.post(add, PROFILE | {"key_variable": VARIABLE}).status_code == 302
    assert model_settings(ModelProfile.objects.get()).api_key.get_secret_value() == "sk-of-the-variable"
