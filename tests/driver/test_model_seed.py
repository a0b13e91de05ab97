"""A model's seed: entered in its profile, sent with each call, kept with the reply, part of the cache's key."""

from __future__ import annotations

import json
import re

import pytest
from django.urls import reverse

from runs import actions
from runs.models import ModelProfile, Run
from tests.cast import administrator, person, signed_in
from tests.fake_model_server import FakeModelServer, Refuses, Says
from tests.launching import FINAL
from tests.running import work
from tests.served import PROFILE

pytestmark = [pytest.mark.django_db]


def asked_once(behaviour: Says | Refuses, seed: int | None) -> tuple[Run, dict[str, object]]:
    """A run with one call of a model that has the seed, and what its server was sent."""
    ModelProfile.objects.all().delete()
    with FakeModelServer([behaviour]) as server:
        ModelProfile.objects.create(name="tiny", base_url=server.base_url, model_id="tiny-1", seed=seed)
        run = work(actions.start_run(machine="ruled", goal="Say", settings={"model": "tiny"}, owner=None))
        (asked,) = server.asked
    return run, asked.body


def test_the_seed_of_a_profile_is_sent_recorded_and_shown() -> None:
    run, sent = asked_once(Says(FINAL), 7)
    assert (run.status, sent["seed"]) == ("succeeded", 7)
    exchange = run.exchanges.get(kind="model_call")
    assert json.loads(exchange.answer_json or "")["seed"] == 7
    page = signed_in(person("bob", "view_run")).get(f"/runs/{run.pk}/steps/{exchange.seq}/").content.decode()
    assert re.search(r"<dt>Seed</dt><dd>7</dd>", page)


def test_the_cache_tells_replies_of_different_seeds_apart() -> None:
    with FakeModelServer([Says(FINAL)] * 4) as server:
        ModelProfile.objects.create(name="tiny", base_url=server.base_url, model_id="tiny-1")
        keys = []
        for seed in (None, 0, 7, None):
            ModelProfile.objects.update(seed=seed)
            run = work(actions.start_run(machine="ruled", goal="Say", settings={"model": "tiny"}, owner=None))
            keys.append(run.exchanges.get(kind="model_call").prompt_hash)
    assert keys[0] == keys[3] and len(set(keys)) == 3


def test_a_run_whose_server_refuses_the_seed_ends_with_what_to_do() -> None:
    run, _ = asked_once(Refuses(400, {"message": "Unsupported.", "param": "seed"}), 7)
    assert run.exit_reason == "model_error"
    texts = "".join(run.steps.values_list("facts_json", flat=True))
    assert "does not take a seed (HTTP 400). Clear the seed in this model's profile." in texts


@pytest.mark.parametrize(("entered", "kept"), [("7", 7), ("", None), ("0", 0)])
def test_the_form_of_a_profile_takes_a_seed_or_none(entered: str, kept: int | None) -> None:
    client = signed_in(administrator())
    assert client.post(reverse("admin:runs_modelprofile_add"), PROFILE | {"seed": entered}).status_code == 302
    assert ModelProfile.objects.get().seed == kept


def test_the_form_refuses_a_negative_seed_in_a_sentence() -> None:
    answer = signed_in(administrator()).post(reverse("admin:runs_modelprofile_add"), PROFILE | {"seed": "-1"})
    assert answer.status_code == 200 and "greater than or equal to 0" in answer.content.decode()
    assert not ModelProfile.objects.exists()
