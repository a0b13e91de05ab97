"""What calls cost: each kind of token by its price, broken-off attempts too; and no limit that could never bind."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from runs import actions, driver
from runs.adapters.prices import Tariff
from runs.models import ModelProfile, Run
from runs.reading.exporting import export
from runs.reading.rows import row_views
from tests.cast import cast_member, signed_in
from tests.fake_model_server import BreaksOff, FakeModelServer, Refuses, Says, Stalls
from tests.running import decide, pending, work
from tests.served import BUSY, NO_CREDIT, SAYS_93, launched

MINE = {"input_price": 2.0, "output_price": 8.0}
HALF = BreaksOff('{"thought": "' + "I think about tides. " * 20)


def tariff(**prices: float) -> Tariff:
    return Tariff("own", "https://models.example.com/v1", **(MINE | prices))


@pytest.mark.parametrize(
    ("counts", "cost"),
    [
        ({}, 2.0 + 8.0),
        ({"cached": 500_000}, 1.0 + 0.1 + 8.0),
        ({"stored": 500_000}, 1.0 + 1.5 + 8.0),
        ({"thought": 250_000}, 2.0 + 6.0 + 1.0),
        ({"cached": 500_000, "stored": 500_000, "thought": 1_000_000}, 0.1 + 1.5 + 4.0),
        ({"cached": 9_000_000}, 0.2 + 8.0),
    ],
)
def test_each_kind_of_token_has_its_price(counts: dict[str, int], cost: float) -> None:
    priced = tariff(cached_price=0.2, cache_write_price=3.0, reasoning_price=4.0)
    assert priced.charge(1_000_000, 1_000_000, **counts) == pytest.approx(cost)


def test_what_has_no_price_of_its_own_costs_what_its_kind_costs() -> None:
    assert tariff().charge(1_000_000, 1_000_000, 0, 500_000, 500_000) == 10.0
    assert tariff(reasoning_price=20.0).worst(1).output_usd == 20e-6
    assert tariff(cache_write_price=3.0).worst(1).input_usd == 3e-6


def test_one_price_of_its_own_stands_beside_those_of_the_list() -> None:
    listed = Tariff("gpt-4o", "https://api.openai.com/v1")
    mixed = Tariff("gpt-4o", "https://api.openai.com/v1", cached_price=0.0)
    assert mixed.charge(1_000_000, 0) == listed.charge(1_000_000, 0)
    assert mixed.charge(1_000_000, 0, 1_000_000) == 0
    assert listed.charge(1_000_000, 0, 1_000_000) > 0


def test_a_model_of_the_list_has_its_price_behind_any_public_address_and_none_on_this_network() -> None:
    own = Tariff("gpt-4o", "https://api.openai.com/v1").charge(1_000, 1_000)
    assert Tariff("gpt-4o", "https://gateway.example.com/v1").charge(1_000, 1_000) == own > 0
    for local in (
        "http://127.0.0.1:8080/v1",
        "http://10.0.0.7/v1",
        "http://gpu/v1",
        "http://gpu.local/v1",
        "http://[::1",
        "",
    ):
        assert not Tariff("gpt-4o", local).is_known
    assert Tariff("own", "http://gpu/v1", input_price=0.0).is_known
    assert not Tariff("own", "https://gateway.example.com/v1").is_known


# --- a limit on cost ----------------------------------------------------------------------------------------------

pytestmark = pytest.mark.usefixtures("every_run_verifies")
LIMITED: dict[str, Any] = {"model": "tiny", "limits": {"cost_usd": 1.0}}
SAID = (
    "The model “tiny” has no price, so a limit on cost would never be reached. Enter its prices in its profile "
    "(0 for a free model), set a limit on tokens instead, or choose another model."
)


def profile(name: str = "tiny", **fields: Any) -> ModelProfile:
    about = {"base_url": "http://127.0.0.1:1/v1", "model_id": "tiny-1"} | fields
    return ModelProfile.objects.create(name=name, **about)


def start(settings: dict[str, Any]) -> Run:
    return actions.start_run(owner=None, machine="ruled", goal="Say hello", settings=settings)


def test_a_limit_on_cost_is_refused_for_a_model_without_a_price() -> None:
    profile()
    with pytest.raises(actions.BadLaunch) as refused:
        start(LIMITED)
    assert [(one.path, one.message) for one in refused.value.problems] == [("settings.limits.cost_usd", SAID)]
    assert not Run.objects.exists()
    start({"model": "tiny", "limits": {"tokens": 1_000}})


@pytest.mark.parametrize(
    "fields",
    [
        {"input_price": 0.0},
        {"output_price": 3.0},
        {"model_id": "gpt-4o", "base_url": "https://api.openai.com/v1"},
        {"kind": "openrouter", "base_url": ""},
    ],
    ids=["free", "own", "listed", "told"],
)
def test_it_is_taken_where_the_model_has_a_price_or_its_provider_tells_the_cost(
    fields: dict[str, Any],
) -> None:
    profile(**fields)
    assert start(LIMITED).budgets.filter(name="cost_usd").exists()


def test_it_is_refused_for_a_fallback_and_for_a_child_without_a_price_too() -> None:
    profile(input_price=1.0, fallback=profile("spare"))
    with pytest.raises(actions.BadLaunch, match="The model “spare” has no price"):
        start(LIMITED)
    ModelProfile.objects.filter(name="tiny").update(fallback=None)
    child = {"machine": "ruled", "settings": {"model": "spare"}}
    with pytest.raises(actions.BadLaunch, match="The model “spare” has no price"):
        start(LIMITED | {"subgraphs": {"helper": child}})
    limited = {"machine": "ruled", "settings": LIMITED | {"model": "spare"}}
    with pytest.raises(actions.BadLaunch, match=r"settings\.subgraphs\.helper\.settings\.limits\.cost_usd"):
        start({"model": "tiny", "subgraphs": {"helper": limited}})


def test_the_form_says_so_beside_the_field_and_the_command_too() -> None:
    profile()
    browser = signed_in(cast_member("carol", is_superuser=True))
    form = {"machine": "ruled", "goal": "Say hello", "model": "tiny", "cost_usd": "1", "asks": "writes"}
    form |= {"on_limit": "ask", "on_clarify": "ask"}
    page = browser.post(reverse("launch"), form)
    assert page.status_code == 422
    assert page.context["form"].errors["cost_usd"] == [SAID]
    with pytest.raises(CommandError, match="has no price") as refused:
        call_command(
            "launch",
            "--machine=ruled",
            "--goal=x",
            f"--run-settings={json.dumps(LIMITED)}",
            stdout=StringIO(),
        )
    assert refused.value.returncode == 2
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (MINE, "input $2.00, cached $2.00, written to cache $2.00, output $8.00, reasoning $8.00."),
        ({"model_id": "gpt-4o", "base_url": "https://api.openai.com/v1"}, "input $2.50, cached $1.25"),
        ({}, "None. Runs with a limit on cost are refused."),
        ({"kind": "openrouter", "model_id": "no/such"}, "The provider tells the cost of each call."),
    ],
    ids=["own", "listed", "none", "told"],
)
def test_an_administrator_sees_the_prices_in_force(fields: dict[str, Any], said: str) -> None:
    browser = signed_in(cast_member("carol", is_superuser=True, is_staff=True))
    shown = browser.get(reverse("admin:runs_modelprofile_change", args=[profile(**fields).pk]))
    assert said in shown.text


def test_no_other_model_without_a_price_is_named_for_a_run_with_a_limit_on_cost() -> None:
    with FakeModelServer([NO_CREDIT]) as server, FakeModelServer([SAYS_93]) as other:
        profile("spare", base_url=other.base_url)
        run = launched(server, **MINE)
        limited = actions.fork(run, at=0, by=None, settings={"limits": {"cost_usd": 1.0}})
        run = work(limited)
        with pytest.raises(actions.BadDecision, match="The model “spare” has no price"):
            decide(run, "resume", args={"model": "spare"})
        ModelProfile.objects.filter(name="spare").update(input_price=0.0)
        decide(run, "resume", args={"model": "spare"})
        assert work(run).status == "succeeded"


def test_a_fork_that_shares_a_limit_on_cost_takes_no_model_without_a_price() -> None:
    with FakeModelServer([SAYS_93]) as server:
        profile("spare", base_url=server.base_url)
        launched(server, **MINE)
        limited = {"model": "tiny", "limits": {"cost_usd": 1.0}}
        root = actions.start_run(owner=None, machine="ruled", goal="Work out 12*7+9", settings=limited)
        with pytest.raises(actions.BadLaunch, match="The model “spare” has no price"):
            actions.fork(root, at=0, by=None, settings={"limits": None, "model": "spare"})
        assert actions.fork(root, at=0, by=None, settings={"limits": None}).root_id == root.pk


def test_an_answer_given_beforehand_names_no_model_without_a_price_under_a_limit_on_cost() -> None:
    answer = {"verdict": "resume", "args": {"model": "spare"}}
    with FakeModelServer([NO_CREDIT]) as server, FakeModelServer([SAYS_93]) as other:
        profile("spare", base_url=other.base_url)
        run = launched(server, **MINE)
        limited = {"limits": {"cost_usd": 1.0}, "answers": [answer]}
        run = work(actions.fork(run, at=0, by=None, settings=limited))
        assert (pending(run).kind, run.switched_to, len(other.asked)) == ("manual", "", 0)


def test_fallbacks_that_lead_in_a_circle_are_each_looked_at_once() -> None:
    first, second = profile("first", input_price=0.0), profile("second", input_price=0.0)
    ModelProfile.objects.filter(pk=first.pk).update(fallback=second)
    ModelProfile.objects.filter(pk=second.pk).update(fallback=first)
    assert driver.without_price("first") == ""


def test_a_fallback_that_has_lost_its_price_is_passed_over_where_cost_is_limited() -> None:
    with FakeModelServer([BUSY] * 2) as server:
        second = profile("spare", base_url=server.base_url, input_price=0.0)
        run = launched(server, patience_s=1.0, fallback=second, **MINE)
        run = actions.fork(run, at=0, by=None, settings={"limits": {"cost_usd": 1.0}})
        ModelProfile.objects.filter(name="spare").update(input_price=None)
        assert pending(work(run)).kind == "manual"


# --- attempts that broke off --------------------------------------------------------------------------------------


@pytest.mark.database
def test_what_a_broken_off_attempt_used_is_charged_and_marked_as_an_estimate() -> None:
    with FakeModelServer([HALF, SAYS_93]) as server:
        run = work(launched(server, **MINE))
        assert run.status == "succeeded"
    broken, whole = run.exchanges.filter(kind="model_call").order_by("seq")
    assert broken.input_tokens > 50 and 90 < broken.output_tokens < 130
    assert broken.cost_usd == pytest.approx((2 * broken.input_tokens + 8 * broken.output_tokens) / 1e6)
    assert run.cost_usd == pytest.approx(broken.cost_usd + whole.cost_usd)
    assert (run.input_tokens, run.model_calls) == (broken.input_tokens + 40, 1)
    rows = [view for view in row_views(run) if view.cost]
    assert [view.cost.startswith("≈ ") for view in rows] == [True, False]
    assert [step["usage"].get("estimated", False) for step in export(run)["steps"] if step["usage"]] == [
        True,
        False,
    ]
    page = signed_in(cast_member("carol", is_superuser=True)).get(reverse("run", args=[run.pk])).text
    assert page.count("≈ ") == 4, "cost and tokens, of the step and of the run"
    assert actions.replay(run, by=None)[1] is None


def test_three_broken_off_attempts_are_paid_each_and_a_limit_holds_them() -> None:
    with FakeModelServer([HALF] * 3) as server:
        run = work(launched(server, **MINE))
        assert (run.exit_reason, len(server.asked)) == ("model_error", 3)
    used = list(run.exchanges.filter(kind="model_call").values_list("cost_usd", flat=True))
    assert len(used) == 3 and min(used) > 0
    assert run.cost_usd == pytest.approx(sum(used))


def test_an_attempt_of_which_nothing_came_costs_nothing() -> None:
    with FakeModelServer([BUSY, Refuses(500, {"message": "no"}), Stalls(), SAYS_93]) as server:
        run = work(launched(server, timeout_s=0.3, **MINE))
        assert run.status == "succeeded"
    assert (run.input_tokens, run.output_tokens) == (40, 7)


def test_a_count_that_arrived_before_the_break_is_no_estimate() -> None:
    counted = Says({"thought": "FINAL ANSWER: 93", "action": None}, usage=(1_000, 7))
    with FakeModelServer([counted]) as server:
        run = work(launched(server, **MINE))
    assert run.cost_usd == pytest.approx(0.002056)
    assert not run.steps.filter(facts_json__contains="estimated").exists()


def test_a_server_that_does_not_count_has_its_figures_marked() -> None:
    uncounted = Says({"thought": "FINAL ANSWER: 93", "action": None}, usage=None)
    with FakeModelServer([uncounted]) as server:
        run = work(launched(server, **MINE))
    assert [view.cost.startswith("≈ ") for view in row_views(run) if view.cost] == [True]
    seq = run.exchanges.get(kind="model_call").seq
    browser = signed_in(cast_member("carol", is_superuser=True))
    assert "did not arrive" in browser.get(reverse("step", args=[run.pk, seq])).text
