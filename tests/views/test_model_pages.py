"""Models on their own pages: presets, one form with the admin, tests made by a worker, models of the server's list."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from runs import actions, driver
from runs.adapters.models.findings import Checked, Finding
from runs.adapters.models.presets import PRESETS
from runs.adapters.secrets import unseal
from runs.models import ModelCheck, ModelProfile
from runs.reading.model_profiles import LOST_S, profile_view
from runs.store import model_checks
from runs.store.db import now
from tests.cast import alice, bob, cast_member, charlie, person, signed_in
from tests.fake_model_server import FakeModelServer, Refuses, Says
from tests.served import PROFILE

pytestmark = [pytest.mark.django_db]

FOUND = Says({"thought": "12 and 30 make 42", "number": 42})
COUNTED = Says("one, two, three, four", pieces=8)
KEY = "sk-of-the-page-0123456789"


def root() -> User:
    return cast_member("root", is_staff=True, is_superuser=True)


@pytest.fixture
def admin() -> Client:
    return signed_in(root())


def added(admin: Client, preset: str = "other", **fields: str) -> ModelProfile:
    answer = admin.post(f"/models/add/?preset={preset}", PROFILE | fields)
    assert answer.status_code == 302, answer.text
    return ModelProfile.objects.latest("pk")


def page(admin: Client, profile: ModelProfile) -> str:
    return admin.get(f"/models/{profile.pk}/").text


@pytest.mark.parametrize("who", [alice, bob, charlie, lambda: person("half", "change_modelprofile")])
def test_only_administrators_see_models(who: Any) -> None:
    profile = ModelProfile.objects.create(name="tiny", base_url="http://127.0.0.1:9/v1", model_id="m")
    client = signed_in(who())
    for address in ("/models/", "/models/add/", f"/models/{profile.pk}/"):
        assert client.get(address).status_code == 403
        assert client.post(address, PROFILE).status_code in (403, 405)
    for deed in ("test", "choose"):
        assert client.post(f"/models/{profile.pk}/{deed}/", {"model": "m"}).status_code == 403
    assert "/models/" not in client.get("/runs/").text
    assert not ModelCheck.objects.exists()


def test_the_menu_leads_to_them(admin: Client) -> None:
    assert '<a class="menu__item" href="/models/">' in admin.get("/runs/").text
    assert "No model yet" in admin.get("/models/").text


@pytest.mark.parametrize("preset", PRESETS, ids=lambda one: one.name)
def test_each_preset_fills_the_form_and_can_be_saved(admin: Client, preset: Any) -> None:
    assert f'href="?preset={preset.name}"' in admin.get("/models/add/").text
    form = admin.get(f"/models/add/?preset={preset.name}").context["form"]
    filled = {name: form[name].value() for name in form.fields}
    values = {name: value for name, value in filled.items() if value is not None and value is not False}
    if preset.address_hint:
        assert preset.address_hint in str(form["base_url"])
        values["base_url"] = preset.address_hint.replace("RESOURCE", "mine").replace("REGION", "eu-west-1")
    answer = admin.post(f"/models/add/?preset={preset.name}", values | {"model_id": "a-model"})
    assert answer.status_code == 302, answer.context["form"].errors
    kept = ModelProfile.objects.get()
    assert (kept.kind, kept.model_id, kept.key_variable) == (preset.kind, "a-model", preset.key_variable)
    assert kept.address
    assert kept.enabled
    if preset.local:
        assert (kept.input_price, kept.output_price) == (0, 0)


def test_the_context_of_a_known_model_is_filled_in(admin: Client) -> None:
    known = added(admin, kind="anthropic", base_url="", model_id="claude-haiku-4-5", context_tokens="")
    assert known.context_tokens == 200_000
    prices = admin.get(f"/models/{known.pk}/").text
    assert "USD per million tokens: input $1.00" in prices


def test_the_context_of_a_model_of_ones_own_is_not_that_of_the_public_list(admin: Client) -> None:
    assert added(admin, model_id="claude-haiku-4-5", context_tokens="").context_tokens == 32_000


def test_a_key_is_sealed_never_shown_and_forgotten_with_the_address(admin: Client) -> None:
    profile = added(admin, new_key=KEY)
    assert unseal(profile.sealed_key, settings.SECRET_KEY) == KEY
    text = page(admin, profile)
    assert "A key is stored." in text
    assert KEY not in text
    assert profile.sealed_key not in text
    moved = PROFILE | {"base_url": "http://10.1.2.3:9000/v1"}
    answer = admin.post(f"/models/{profile.pk}/", moved, follow=True)
    assert "The address changed, so the stored key was forgotten." in answer.text
    profile.refresh_from_db()
    assert profile.sealed_key == ""


def test_a_refused_form_keeps_what_was_typed_and_opens_its_section(admin: Client) -> None:
    faulty = PROFILE | {"seed": "7", "kind": "anthropic", "key_variable": "HOME", "name": "my words"}
    answer = admin.post("/models/add/?preset=other", faulty)
    assert answer.status_code == 422
    assert "Not saved. Fix the marked fields." in answer.text
    assert "Anthropic takes no seed." in answer.text
    assert "A key variable begins with AGENTSITE_KEY_" in answer.text
    assert 'value="my words"' in answer.text
    assert [one["title"] for one in answer.context["sections"] if one["is_open"]][-1] == "Requests"
    assert not ModelProfile.objects.exists()


def test_an_address_that_no_run_could_call_is_refused_at_its_field(admin: Client) -> None:
    answer = admin.post("/models/add/?preset=other", PROFILE | {"base_url": "ftp://127.0.0.1/v1"})
    assert answer.status_code == 422
    assert answer.context["form"].errors["base_url"][0].startswith("Give an address such as https://")
    assert 'value="ftp://127.0.0.1/v1"' in answer.text


def test_a_model_whose_test_failed_is_not_chosen_beforehand(admin: Client) -> None:
    failing, working = added(admin, name="a-model"), added(admin, name="b-model")
    assert 'value="a-model" selected' in admin.get("/runs/new/").text
    bad = Checked(findings=(Finding(tone="bad", text="It refused."),)).model_dump_json()
    ModelCheck.objects.filter(profile=failing).update(wanted_at=None, done_at=now(), found_json=bad)
    assert f'value="{working.name}" selected' in admin.get("/runs/new/").text


def test_saving_has_a_worker_test_the_connection(admin: Client) -> None:
    with FakeModelServer([FOUND, COUNTED]) as server:
        server.models_are("tiny-1")
        profile = added(admin, base_url=server.base_url, new_key=KEY)
        assert "waiting for a worker" in page(admin, profile)
        assert not server.asked
        assert driver.check_wanted()
        assert not driver.check_wanted()
    text = page(admin, profile)
    assert "A structured reply came as requested." in text
    assert "Replies stream: 7 pieces" in text
    assert "94 tokens" in text
    assert server.listed[0].headers["authorization"] == f"Bearer {KEY}"
    assert "word--good" in text.partition("data-test")[2]
    assert "works" in admin.get("/models/").text


def test_the_long_prompt_is_asked_for(admin: Client) -> None:
    profile = added(admin)
    admin.post(f"/models/{profile.pk}/test/", {"too_long": "yes"})
    assert ModelCheck.objects.get().too_long
    assert "about 4,710 tokens" not in page(admin, profile)
    ModelCheck.objects.update(wanted_at=None)
    assert "Also send a prompt over the context (about 4,710 tokens)" in page(admin, profile)


def test_without_a_model_the_profile_is_off_until_one_of_the_list_is_chosen(admin: Client) -> None:
    with FakeModelServer([FOUND, COUNTED]) as server:
        server.models_are("small", "large", max_model_len=16_384)
        profile = added(admin, base_url=server.base_url, model_id="")
        assert not profile.enabled
        driver.check_wanted()
        assert "The server has 2 models. Choose one." in page(admin, profile)
        admin.post(f"/models/{profile.pk}/choose/", {"model": "large"})
        driver.check_wanted()
        profile.refresh_from_db()
        assert (profile.model_id, profile.enabled, profile.context_tokens) == ("large", True, 16_384)
        assert "has the model “large”" in page(admin, profile)
    assert server.asked[-1].body["model"] == "large"


def test_a_model_that_is_not_on_the_list_can_not_be_chosen(admin: Client) -> None:
    profile = added(admin)
    answer = admin.post(f"/models/{profile.pk}/choose/", {"model": "another"}, follow=True)
    assert "Nothing was changed." in answer.text
    profile.refresh_from_db()
    assert profile.model_id == "tiny-1"


def test_a_change_voids_the_result_and_a_test_under_way_does_not_bring_it_back(admin: Client) -> None:
    with FakeModelServer([FOUND, COUNTED]) as server:
        profile = added(admin, base_url=server.base_url)
        taken = model_checks.take_wanted()
        assert taken is not None
        assert "testing" in page(admin, profile)
        admin.post(f"/models/{profile.pk}/", PROFILE | {"base_url": server.base_url})
        model_checks.keep(taken, '{"findings": [{"tone": "good", "text": "stale"}]}')
    assert "stale" not in page(admin, profile)
    assert profile_view(profile).state == "asked"


def test_a_lost_test_is_not_made_again_by_itself(admin: Client) -> None:
    profile = added(admin)
    assert model_checks.take_wanted() is not None
    ModelCheck.objects.update(since=now() - timedelta(seconds=LOST_S + 1))
    assert model_checks.take_wanted() is None
    text = page(admin, profile)
    assert "worker lost, test again" in text
    assert "Test connection" in text


def test_a_fault_of_the_test_itself_is_told_and_not_repeated(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = added(admin)

    def broken(*_: Any) -> Any:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(driver.model_checks, "checked", broken)
    with pytest.raises(RuntimeError):
        driver.check_wanted()
    assert "The test met a fault." in page(admin, profile)
    assert not driver.check_wanted()


def test_a_profile_that_can_not_be_called_says_why(admin: Client) -> None:
    profile = added(admin)
    ModelProfile.objects.update(sealed_key="damaged")
    driver.check_wanted()
    assert "The stored secret can&#x27;t be opened" in page(admin, profile)


def test_what_a_server_says_is_shown_as_text(admin: Client) -> None:
    nasty = Refuses(400, {"message": "<script>alert(1)</script>\u202e"})
    with FakeModelServer([nasty]) as server:
        profile = added(admin, base_url=server.base_url)
        driver.check_wanted()
    text = page(admin, profile)
    assert "<script>alert" not in text
    assert "\u202e" not in text


def test_during_a_halt_nothing_is_tested(admin: Client) -> None:
    added(admin)
    actions.halt_site(by=None, reason="a pause")
    assert not driver.check_wanted()
    assert ModelCheck.objects.get().wanted_at is not None


def test_a_script_has_nothing_to_test(admin: Client) -> None:
    script = '{"replies": {"decision": [{"thought": "FINAL ANSWER: 42", "action": null}]}}'
    profile = added(admin, kind="script", base_url="", model_id="", script_json=script, enabled="on")
    answer = admin.post(f"/models/{profile.pk}/test/", follow=True)
    assert "there is nothing to test" in answer.text
    assert not ModelCheck.objects.exists()
    assert profile.enabled


def test_a_changed_effort_lets_refused_options_be_tried_again(admin: Client) -> None:
    profile = added(admin, effort="low")
    assert profile.effort == "low"
    ModelProfile.objects.update(left_out="reasoning_effort")
    admin.post(f"/models/{profile.pk}/", PROFILE | {"left_out": "reasoning_effort", "effort": "high"})
    profile.refresh_from_db()
    assert (profile.effort, profile.left_out) == ("high", "")
