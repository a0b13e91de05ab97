"""A profile names whose dialect its server speaks, and remembers what the server refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from agentsite import providers
from runs import actions, driver
from runs.adapters.models import EXTRAS, missing_package
from runs.adapters.prices import Tariff
from runs.driver.ports import ModelUnusable, model_settings, why_not
from runs.models import ADDRESSES, ModelProfile, Run
from tests.adapters.dialects import MODELS
from tests.cast import administrator, signed_in
from tests.fake_model_server import Asked, Behaviour, FakeModelServer, Refuses, Says
from tests.running import work
from tests.served import PROFILE

pytestmark = pytest.mark.usefixtures("every_run_verifies")

FINAL = {"thought": "FINAL ANSWER: 93", "action": None}


def launched() -> Run:
    wanted = {"model": "tiny", "on_retries": "stop", "on_limit": "stop"}
    run = actions.start_run(owner=None, machine="ruled", goal="Work out 12*7+9", settings=wanted)
    return work(run)


def posted(url: str, **fields: str) -> Any:
    ada = User.objects.filter(username="ada").first() or administrator()
    return signed_in(ada).post(url, PROFILE | fields, follow=True)


# --- options that were refused --------------------------------------------------------------------------------------


@pytest.mark.database
def test_a_profile_remembers_what_its_server_refused_and_no_later_run_meets_it() -> None:
    def behave(asked: Asked) -> Behaviour:
        if "stream_options" in asked.body:
            return Refuses(400, {"message": "Unknown parameter: 'stream_options'"})
        if "temperature" in asked.body:
            return Refuses(400, {"message": "Unsupported.", "param": "temperature"})
        return Says(FINAL)

    with FakeModelServer(behave) as server:
        ModelProfile.objects.create(name="tiny", base_url=server.base_url, model_id="tiny-1")
        assert launched().status == "succeeded"
        assert len(server.asked) == 3
        assert ModelProfile.objects.get().left_out == "stream_options temperature"
        assert launched().status == "succeeded"
        assert len(server.asked) == 4


@pytest.mark.parametrize(
    "change", [{"model_id": "tiny-2"}, {"base_url": "http://127.0.0.1:9/v1"}, {"output_mode": "prompted"}]
)
def test_another_model_is_asked_with_all_options_again(change: dict[str, str]) -> None:
    posted(reverse("admin:runs_modelprofile_add"))
    ModelProfile.objects.update(left_out="temperature")
    url = reverse("admin:runs_modelprofile_change", args=[ModelProfile.objects.get().pk])
    posted(url, left_out="temperature", timeout_s="30")
    assert ModelProfile.objects.get().left_out == "temperature"
    posted(url, left_out="temperature", **change)
    assert ModelProfile.objects.get().left_out == ""


def test_only_options_that_a_call_can_do_without_are_left_out() -> None:
    page = posted(reverse("admin:runs_modelprofile_add"), left_out="temperature messages").text
    assert "messages: not one of max_tokens, temperature" in page
    assert not ModelProfile.objects.exists()


# --- kinds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ADDRESSES)
def test_a_provider_needs_no_address(kind: str) -> None:
    posted(reverse("admin:runs_modelprofile_add"), kind=kind, base_url="", model_id=MODELS[kind])
    profile = ModelProfile.objects.get()
    assert profile.address == ADDRESSES[kind]
    if not missing_package(kind):
        assert (model_settings(profile).kind, model_settings(profile).base_url) == (kind, ADDRESSES[kind])


@pytest.mark.parametrize("kind", set(ADDRESSES) - {"openrouter"})
def test_the_public_list_has_the_prices_of_a_provider_under_its_address(kind: str) -> None:
    assert Tariff(MODELS[kind], ADDRESSES[kind]).charge(1_000, 1_000) > 0


def test_a_key_does_not_follow_to_another_provider() -> None:
    add = reverse("admin:runs_modelprofile_add")
    posted(add, kind="anthropic", base_url="", new_key="sk-ant-secret")
    profile = ModelProfile.objects.get()
    assert profile.sealed_key
    change = reverse("admin:runs_modelprofile_change", args=[profile.pk])
    page = posted(change, kind="google", base_url="").text
    assert "The address changed, so the stored key was forgotten." in page
    assert ModelProfile.objects.get().sealed_key == ""


def test_a_variables_key_goes_to_another_provider_only_when_confirmed() -> None:
    add = reverse("admin:runs_modelprofile_add")
    posted(add, kind="anthropic", base_url="", key_variable="AGENTSITE_KEY_A")
    change = reverse("admin:runs_modelprofile_change", args=[ModelProfile.objects.get().pk])
    page = posted(change, kind="google", base_url="", key_variable="AGENTSITE_KEY_A").text
    assert "Confirm that the key in AGENTSITE_KEY_A may go there" in page
    assert ModelProfile.objects.get().kind == "anthropic"


def test_a_seed_for_a_kind_that_takes_none_is_refused_in_the_form() -> None:
    page = posted(reverse("admin:runs_modelprofile_add"), kind="anthropic", base_url="", seed="7").text
    assert "Anthropic takes no seed. Leave the field empty." in page
    assert not ModelProfile.objects.exists()


# --- libraries that are not installed -------------------------------------------------------------------------------


@pytest.fixture
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "anthropic", "not_a_library")


@pytest.mark.usefixtures("_no_library")
def test_a_profile_whose_library_is_missing_says_how_to_get_it() -> None:
    page = posted(reverse("admin:runs_modelprofile_add"), kind="anthropic", base_url="").text
    command = "python3 manage.py add_provider anthropic"
    assert "The library for Anthropic is not installed." in page
    assert command in page
    assert command in why_not(["tiny"])["tiny"]
    with pytest.raises(ModelUnusable, match=command):
        model_settings(ModelProfile.objects.get())


@pytest.mark.usefixtures("_no_library")
def test_an_environment_of_another_owner_is_left_as_it_is(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (sentence,) = providers.add_missing(["anthropic", "openai", "script", "anthropic"])
    assert "Models of kind anthropic can't be called." in sentence
    assert "pip install --require-hashes --no-deps -r requirements-anthropic.lock" in sentence


def test_there_is_a_lock_for_each_library() -> None:
    for kind in EXTRAS:
        assert providers.lock_of(kind).is_file()


def test_a_worker_loads_the_libraries_of_the_models_that_runs_may_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ModelProfile.objects.create(name="on", kind="openrouter", model_id="maker/model")
    ModelProfile.objects.create(name="off", kind="google", model_id="gemini-2.5-pro", enabled=False)
    loaded = ("pydantic_ai.models.openai", "pydantic_ai.models.google")
    for name in loaded:
        monkeypatch.delitem(sys.modules, name, raising=False)
    driver.load_libraries()
    assert [name in sys.modules for name in loaded] == [True, False]
