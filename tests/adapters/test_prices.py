"""What a call costs: by the prices of the model's profile, by the public list, or nothing."""

from __future__ import annotations

import pytest

from runs.adapters.prices import ABOVE_ALL_TIERS, Tariff
from runs.engine.snapshot import Price

LISTED = ("gpt-4o", "https://api.openai.com/v1")


def test_a_price_for_what_is_read_and_one_for_what_is_written_add_up() -> None:
    both = Tariff("own", "http://127.0.0.1:1/v1", input_price=2.0, output_price=8.0)
    assert both.charge(1_000_000, 500_000) == 6.0
    assert both.worst(700) == Price(700, input_usd=2e-6, output_usd=8e-6, call_usd=0.0)


@pytest.mark.parametrize("model", [("own", "http://127.0.0.1:1/v1"), LISTED])
def test_of_a_price_with_one_half_the_other_half_is_nothing(model: tuple[str, str]) -> None:
    """And not that of the public list, whatever the model's name is."""
    reading, writing = Tariff(*model, input_price=2.0), Tariff(*model, output_price=8.0)
    assert [reading.charge(1_000_000, 0), reading.charge(0, 1_000_000)] == [2.0, 0.0]
    assert [writing.charge(1_000_000, 0), writing.charge(0, 1_000_000)] == [0.0, 8.0]
    assert Tariff(*model, input_price=0.0).charge(1_000_000, 1_000_000) == 0.0


def test_without_a_price_the_public_list_says_and_a_model_on_none_costs_nothing() -> None:
    listed = Tariff(*LISTED)
    assert 0 < listed.charge(1_000_000, 0) < listed.charge(0, 1_000_000)
    assert listed.charge(1_000, 1_000) == pytest.approx(listed.charge(1_000, 0) + listed.charge(0, 1_000))
    assert Tariff("my-own-llama", "http://127.0.0.1:1/v1").charge(1_000_000, 1_000_000) == 0


def test_a_charge_is_told_to_ten_places() -> None:
    assert Tariff("own", "", input_price=1 / 3).charge(1, 0) == 0.0000003333


def test_a_cached_token_costs_the_share_that_the_list_has_for_the_model_else_as_much_as_any() -> None:
    """Also where the model's own prices hold, and it runs at another address."""
    known, unknown = (Tariff(name, "http://127.0.0.1:1/v1", input_price=2.0) for name in ("gpt-4o", "own"))
    assert [known.charge(1_000_000, 0, cached) for cached in (0, 400_000)] == [2.0, 1.6]
    assert unknown.charge(1_000_000, 0, 400_000) == 2.0


def test_no_token_is_charged_twice_whatever_a_provider_counts() -> None:
    """A provider that counts a token as cached and as written to the cache, or more reasoning than it wrote."""
    tariff = Tariff("own", "", input_price=2.0, cached_price=1.0, cache_write_price=4.0, output_price=8.0)
    assert tariff.charge(1_000, 0, cached=600, stored=1_000) == tariff.charge(
        1_000, 0, cached=600, stored=400
    )
    assert tariff.charge(1_000, 0, cached=2_000) == tariff.charge(1_000, 0, cached=1_000)
    assert tariff.charge(0, 100, thought=500) == tariff.charge(0, 100)


def test_the_price_of_each_call_counts_beside_its_tokens() -> None:
    sonar = Tariff("sonar", "https://api.perplexity.ai")
    assert sonar.charge(0, 0) > 0
    assert sonar.worst(1).call_usd == pytest.approx(sonar.charge(0, 0))
    many = sonar.charge(ABOVE_ALL_TIERS, 0)
    assert sonar.worst(1).cost(ABOVE_ALL_TIERS, 0) == pytest.approx(many)
