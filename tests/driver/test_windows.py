"""How much a run's model may read: what its settings say, else its model; and how its tokens are counted."""

from __future__ import annotations

from typing import Any

import pytest

from runs import actions
from runs.driver.holds import held
from runs.driver.window import Reader
from runs.driver.worker import Worker
from runs.models import ModelProfile, Run
from runs.reading.prompts import full_terms, limit_of
from runs.store import leases
from tests.launching import FINAL, launch
from tests.prompts import drive, long_run
from tests.running import make_due

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def reader_of(run: Run) -> Reader:
    """What a worker that takes the run now reckons with."""
    make_due(run.pk)
    lease = leases.claim(run.pk, "reader")
    assert lease is not None
    with held(lease) as hold:
        journey = Worker(hold)
        journey.prepare()
        leases.let_go(lease)
    return journey.reader


def of_a_model(**settings: Any) -> Run:
    """A run of a model that takes 9,000 tokens, 1,000 of them for its reply."""
    ModelProfile.objects.get_or_create(
        name="tiny",
        defaults={
            "base_url": "http://127.0.0.1:9/v1",
            "model_id": "tiny",
            "context_tokens": 9000,
            "max_output_tokens": 1000,
        },
    )
    settings = {"model": "tiny", **settings}
    return actions.start_run(machine="ruled", goal="Tides", settings=settings, owner=None)


def test_where_the_settings_name_no_limit_it_is_the_models() -> None:
    for settings, limit in (({}, 8000), ({"context": {"limit_tokens": 3000}}, 3000)):
        run = of_a_model(**settings)
        reader = reader_of(run)
        window = reader.window()
        assert window is not None
        assert reader.limit == window.limit == limit_of(run, full_terms(run)) == limit
        assert (window.compact_at, window.keep_recent) == (0.9, 0.5)


def test_a_script_has_no_window() -> None:
    reader = reader_of(launch(FINAL))
    assert (reader.limit, reader.window()) == (None, None)


def test_tokens_are_a_quarter_of_the_characters_until_the_provider_counts_those_of_this_run() -> None:
    counted, other = long_run(9), long_run(9)
    drive(counted, moves=8)  # a provider that counts a token for three characters
    for run, ratio in ((counted, 0.35), (other, 0.25)):
        reader = reader_of(run)
        reader.ports.reads_prompt = True
        assert Reader(reader.at, reader.ports, reader.told).per_character == ratio
