"""What people are told of a limit: whose it is, who has used it, and what would let the next call through."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs import actions, driver
from runs.engine.effects import AtLimit
from runs.engine.gates import at_limit
from runs.engine.old_rows import figures_told
from runs.engine.snapshot import SharedLimit
from runs.management.asking import how_to_answer
from runs.models import Budget, Interrupt, ModelProfile, Run
from runs.reading.cards import Card, asked_now, card_of, headline_now, headlines
from runs.reading.exporting import export
from runs.reading.limits import as_asked, rounded_up
from runs.reading.panels import panels_of
from runs.reading.rows import row_views
from runs.store import errors, shared_limits, verifying
from runs.store.shared_limits import has_room
from tests.cast import alice, bob, signed_in
from tests.launching import FINAL, launch, script, think
from tests.pages import send_card
from tests.priced import PRICE, THINKING, fork, travel, waiting_run
from tests.running import decide, pending, work

pytestmark = [pytest.mark.django_db]


def child_at_the_limit(cost: float = 0.003) -> tuple[Run, Run]:
    """A parent that has used 0.002 of its limit, and its child, which has used 0.001 and is held by it."""
    inner = {"replies": {"decision": [think("search", q="x"), think("search", q="y"), FINAL]}}
    played = script(
        think("search", q="z"), think("agent.inner", goal="Ask bob"), FINAL, subgraphs={"inner": inner}
    )
    subgraphs = {"inner": {"machine": "ruled", "settings": {"tools": ["search"]}}}
    parent = work(launch(played=played, subgraphs=subgraphs, limits={"cost_usd": cost}, owner=alice()))
    return parent, work(parent.children.get())


def priced(run: Run) -> Run:
    """The run's model has a price that pages can look up."""
    ModelProfile.objects.create(
        name="probe",
        max_output_tokens=PRICE.reply_tokens,
        input_price=PRICE.input_usd * 1e6,
        output_price=PRICE.output_usd * 1e6,
    )
    Run.objects.filter(pk=run.pk).update(model="probe")
    run.refresh_from_db()
    return run


def held_before_it_is_used(name: str, limit: float) -> Run:
    """A run of a model with a price: less is left of a limit than its next call may use."""
    run = priced(launch(*THINKING, FINAL, limits={name: limit}, max_steps=30))
    travel(run)
    assert pending(run).kind == "limit"
    return run


def card(run: Run) -> Card:
    """The card of the run's question, as bob sees it."""
    return card_of(pending(run), User.objects.filter(username="bob").first() or bob())


def gauges(run: Run) -> str:
    text = re.sub(r"<[^>]+>", " ", panels_of(Run.objects.get(pk=run.pk), None)["gauges"])
    return " ".join(text.split())


# --- a limit that is shared ---------------------------------------------------------------------------------------


def test_a_child_that_stops_at_its_parents_limit_can_be_topped_up_on_the_page() -> None:
    parent, child = child_at_the_limit()
    client = signed_in(bob())
    page = client.get(f"/runs/{child.pk}/").text
    assert "Cost limit reached: $0.003 of $0.003 used" in page
    assert f"Shared limit (#{parent.pk} and forks): $0.003 of $0.003 used" in page
    assert "$0.002 by other runs" in page
    assert "Nothing is left for the next call." in page
    amount = re.search(r'name="amount.cost_usd"[^>]*value="([^"]*)"', page)
    assert amount is not None
    assert send_card(client, child, "top_up", **{"amount.cost_usd": ""}).status_code == 422
    assert "Enter the amount to add." in send_card(client, child, "top_up", **{"amount.cost_usd": ""}).text
    assert send_card(client, child, "top_up", **{"amount.cost_usd": amount[1]}).status_code == 302
    work(child)
    assert child.status == "succeeded", "what was proposed is enough for the rest"


def filled_by_another() -> tuple[Run, Run]:
    """A run, and a fork of it that finds the limit of both filled by another one."""
    run = waiting_run(0.004)
    work(fork(run))
    work(run)
    return run, work(fork(run))


def test_a_fork_is_told_that_another_run_has_filled_the_limit() -> None:
    run, copy = filled_by_another()
    shown = card(copy)
    assert shown.title == "Cost limit reached: $0.004 of $0.004 used"
    assert f"Shared limit (#{run.pk} and forks)" in shown.why
    own, shared = shown.limits[0].lines
    assert (own.whose, own.figures) == ("This run’s limit", "$0.002 of $0.004 used")
    assert shared.others == pytest.approx(0.003)
    assert shared.limit == 0.004
    decide(copy, "top_up", args={"cost_usd": float(shown.limits[0].suggested)})
    work(copy)
    assert pending(copy).kind == "tool_call", "it asks for the letter now, and no longer for money"


def test_the_row_of_a_question_says_whose_limit_it_is_where_the_run_shares_it() -> None:
    """And so do its card and the list of what was decided, when the limit has no figures of its own any more."""
    run, copy = filled_by_another()
    question = pending(copy)
    said = f"Cost limit of run {run.pk} and its forks reached: $0.004 of $0.004 used"
    row = row_views(copy, limit=1, before=question.seq + 1)[0]
    assert row.line.text == said
    summary = next(step["summary"] for step in export(copy)["steps"] if step["seq"] == question.seq)
    assert summary.startswith(f"Limit (asks a person): {said} ")
    decide(copy, "top_up", args={"cost_usd": 0.004})
    assert card_of(Interrupt.objects.get(pk=question.pk), bob()).title == said
    assert headlines([question]) == {question.pk: said}
    assert question.title == "Limit reached: cost_usd 0.004 of 0.004", "what is stored stays as it was"


def test_gauges_show_what_the_family_has_used_and_the_limit_as_it_is_now() -> None:
    parent, child = child_at_the_limit()
    assert "Cost, with children and forks $0.003 of $0.003" in gauges(parent)
    assert f"Cost $0.001 Cost, shared with run {parent.pk} $0.003 of $0.003" in gauges(child)
    decide(child, "top_up", args={"cost_usd": 0.01})
    assert "Cost $0.002 of $0.003 Cost, with children and forks $0.003 of $0.013" in gauges(parent)
    actions.abort(parent, by=None)
    assert "Cost $0.003 Cost, with children and forks $0.003 of $0.013" in gauges(parent), "it has ended"


def test_a_fork_with_limits_of_its_own_has_both_gauges_and_a_run_alone_has_one() -> None:
    run = waiting_run(0.004)
    assert "Cost $0.002 of $0.004 Tokens" in gauges(run)
    copy = work(fork(run))
    assert f"Cost $0.002 of $0.004 Cost, shared with run {run.pk} $0.003 of $0.004" in gauges(copy)
    assert "Cost $0.002 Cost, with children and forks $0.003 of $0.004" in gauges(run)


def test_the_export_has_no_line_of_what_was_added_to_a_shared_limit() -> None:
    parent, child = child_at_the_limit()
    decide(child, "top_up", args={"cost_usd": 0.01})
    assert Budget.objects.filter(run=child, scope="shared").exists()
    for run in (parent, child):
        scopes = {row["scope"] for row in export(Run.objects.get(pk=run.pk))["budget"]["rows"]}
        assert "shared" not in scopes
    limits = [row for row in export(parent)["budget"]["rows"] if row["scope"] == "limits"]
    assert limits == [{"scope": "limits", "name": "cost_usd", "used": 0.002, "limit": 0.003}]


# --- a limit that is not reached, and holds ------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "limit"), [("cost_usd", 0.006), ("tokens", 1_500)])
def test_a_limit_that_is_not_used_up_says_what_the_next_call_may_use(name: str, limit: float) -> None:
    run = held_before_it_is_used(name, limit)
    shown = card(run)
    assert "reached" not in shown.title
    assert re.fullmatch(r"(Cost|Token) limit: \S+ of \S+ used; the next call may use up to \S+", shown.title)
    assert shown.why.startswith("This run’s limit. ") and shown.why.endswith(" is left for the next call.")
    assert shown.why in signed_in(User.objects.get(username="bob")).get(f"/runs/{run.pk}/").text


@pytest.mark.parametrize(("name", "limit"), [("cost_usd", 0.006), ("tokens", 1_500)])
def test_what_is_proposed_lets_the_next_call_through_with_its_longest_reply(name: str, limit: float) -> None:
    run = held_before_it_is_used(name, limit)
    calls = run.model_calls
    amount = float(card(run).limits[0].suggested)
    decide(run, "top_up", args={name: int(amount) if name == "tokens" else amount})
    model = travel(run)
    assert run.model_calls > calls
    assert model.seen[0][2] == PRICE.reply_tokens


def test_what_is_proposed_once_is_enough_for_many_calls() -> None:
    run = work(launch(*[think("search", q=str(n)) for n in range(8)], FINAL, limits={"cost_usd": 0.002}))
    assert pending(run).kind == "limit"
    decide(run, "top_up", args={"cost_usd": float(card(run).limits[0].suggested)})
    assert (work(run).status, run.model_calls) == ("succeeded", 9)


def test_a_limit_that_would_be_reached_soon_is_proposed_to_be_raised_too() -> None:
    limits = {"cost_usd": 0.002, "tokens": 300, "active_seconds": 3600}
    run = work(launch(*[think("search", q=str(n)) for n in range(8)], FINAL, limits=limits))
    assert pending(run).limit == "cost_usd"
    offered = {line.name: line.suggested for line in card(run).limits}
    assert offered["active_seconds"] == ""
    amounts = {name: float(offered[name]) for name in ("cost_usd", "tokens")}
    decide(run, "top_up", args={**amounts, "tokens": int(amounts["tokens"])})
    assert (work(run).status, run.model_calls) == ("succeeded", 9)


def test_an_empty_list_of_amounts_is_none_though_there_is_room_by_now() -> None:
    run = held_before_it_is_used("cost_usd", 0.006)
    Budget.objects.filter(run=run, scope="limits", name="cost_usd").update(limit=1.0)
    with pytest.raises(errors.BadDecision, match="Say how much to add"):
        decide(run, "top_up", args={})
    decide(run, "top_up")
    assert not run.interrupts.filter(status="pending").exists()


def test_the_queue_the_commands_and_the_row_say_the_same() -> None:
    run = held_before_it_is_used("cost_usd", 0.006)
    question = pending(run)
    said = card(run).title
    assert asked_now([question]) == {question.pk: (said, card(run).why)}
    assert headline_now(question) == said
    assert said in how_to_answer(question, question.run)
    assert said in signed_in(User.objects.get(username="bob")).get("/needs-you/").text
    row = next(view for view in row_views(run, limit=100) if view.seq == question.seq)
    assert (row.line.title, "reached" in row.line.text) == ("Limit", False)
    assert question.title.startswith("Limit reached: cost_usd "), "what is stored stays as it was"


def test_many_questions_about_limits_are_read_with_as_many_queries_as_two() -> None:
    """Of runs alone, and of forks that share a limit."""
    client = signed_in(bob())
    root = waiting_run(0.003)

    def looks(count: int) -> int:
        while (open_ones := Interrupt.objects.filter(kind="limit", status="pending")).count() < count:
            work(launch(FINAL, limits={"tokens": 0}))
            work(fork(root))
        client.get("/needs-you/")
        with CaptureQueriesContext(connection) as asked:
            page = client.get("/needs-you/").text
        listed = [reverse("interrupt", args=[found.pk]) in page for found in open_ones]
        assert listed == [True] * count
        assert f"Shared limit (#{root.pk} and forks)" in page
        return len(asked)

    assert looks(2) == looks(12)


def test_what_is_read_for_many_at_once_is_what_is_read_for_each() -> None:
    parent, child = child_at_the_limit()
    root = waiting_run(0.003)
    forks = [work(fork(root)), work(fork(root))]
    decide(forks[1], "top_up", args={"cost_usd": 0.01})
    runs = [parent, child, root, *forks, launch(FINAL, limits={"cost_usd": 1})]
    found = shared_limits.shared_limits_of([run.pk for run in runs])
    assert found == {run.pk: shared_limits.limits_shared_by(run) for run in runs}
    assert [dict(found[run.pk]) for run in (parent, child)] == [
        {"cost_usd": SharedLimit(0.003, 0.001, parent.pk)},
        {"cost_usd": SharedLimit(0.003, 0.002, parent.pk)},
    ]
    assert [found[run.pk]["cost_usd"].limit for run in (root, *forks)] == pytest.approx([0.013] * 3)
    assert found[runs[-1].pk] == {}


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("Limit reached: cost_usd 0.05 of 0.045", "Cost limit reached: $0.050 of $0.045 used"),
        (
            "Limit reached: cost_usd 0.044 of 0.06",
            "Cost limit: $0.044 of $0.060 used; the next call may use more than is left",
        ),
        (
            "Limit reached: cost_usd 0.0598 of 0.06",
            "Cost limit: $0.0598 of $0.06 used; the next call may use more than is left",
        ),
        ("Limit reached: tokens 1e+06 of 1e+06", "Token limit reached: 1.0M of 1.0M used"),
        ("Something else", "Something else"),
    ],
)
def test_an_older_title_is_said_in_words(stored: str, said: str) -> None:
    assert as_asked(stored, figures_told(stored, "The run's limit cost_usd is 0.05.")) == said


def at(used: float, limit: float, root: int = 0, aside: float = 0.0) -> AtLimit:
    left = limit - used if used < limit else None
    return AtLimit(name="tokens", used=used, limit=limit, root=root, left=left, aside=aside)


def test_a_shared_limit_that_is_not_used_up_is_said_in_words_too() -> None:
    asked = at_limit(at(900, 1000, 7))
    assert asked.figures is not None
    assert as_asked(asked.title, asked.figures.model_dump()) == (
        "Token limit of run 7 and its forks: 900 of 1,000 used; the next call may use more than is left"
    )


def test_what_others_have_only_set_aside_is_not_said_to_be_used() -> None:
    run = waiting_run(0.003)
    other = fork(run)
    Run.objects.filter(pk=other.pk).update(reserved_usd=0.008)
    assert shared_limits.limits_shared_by(run)["cost_usd"].aside == 0.008
    decide(run, "approve")
    question = pending(work(run))
    said = as_asked(question.title, question.figures)
    assert "used or reserved" in said
    assert question.why.startswith(
        f"Run {run.pk} and its forks share the limit cost_usd of 0.003. "
        "0.008 of it is reserved for calls under way in other runs."
    )
    assert at_limit(AtLimit.model_validate(question.figures)).title == question.title
    copy, differs = actions.replay(Run.objects.get(pk=run.pk), by=None)
    assert differs is None
    asked = copy.exchanges.filter(kind="human_call").latest("seq")
    assert question.why in asked.request_json


@pytest.mark.parametrize("used", [900, 1000])
def test_the_words_at_a_limit_say_what_is_reserved_only_if_something_is(used: int) -> None:
    assert "250 of it is reserved" in at_limit(at(used, 1000, 7, 250)).why
    assert "reserved" not in at_limit(at(used, 1000, 7)).why


def test_what_a_question_at_a_limit_says_decides_nothing() -> None:
    """A reworded, or translated, question has the same figures."""
    run = held_before_it_is_used("tokens", 1_500)
    question = pending(run)
    before = (headlines([question]), has_room(question))
    exchange = run.exchanges.get(seq=question.seq)
    request = json.loads(exchange.request_json) | {"title": "Grenze erreicht", "why": "Es reicht nicht."}
    run.exchanges.filter(pk=exchange.pk).update(request_json=json.dumps(request))
    Interrupt.objects.filter(pk=question.pk).update(title="Grenze erreicht", why="Es reicht nicht.")
    question.refresh_from_db()
    assert (headlines([question]), has_room(question)) == before == (before[0], False)
    assert before[0][question.pk].startswith("Token limit: ")
    (row,) = (row for row in row_views(run) if row.seq == question.seq)
    assert row.line.text == before[0][question.pk]


def test_verify_names_a_question_whose_figures_are_not_those_that_were_asked_about() -> None:
    run = work(launch(*THINKING[:3], FINAL, limits={"tokens": 240}))
    question = pending(run)
    figures = json.dumps({**(question.figures or {}), "left": 1.0})
    Interrupt.objects.filter(pk=question.pk).update(figures_json=figures)
    misfit = verifying.verify(run, driver.tool_specs(run))
    assert misfit is not None and misfit.seq == question.seq and "figures" in misfit.why
    Interrupt.objects.filter(pk=question.pk).update(figures_json=question.figures_json)


@pytest.mark.parametrize(
    ("name", "value", "rounded"),
    [
        ("cost_usd", 0.0049, 0.0049),
        ("cost_usd", 0.00491, 0.005),
        ("cost_usd", 0.021 - 0.016, 0.005),
        ("cost_usd", 1.234, 1.3),
        ("tokens", 1_201, 1_300),
        ("tokens", 4.2, 5),
        ("active_seconds", 0.31, 0.31),
    ],
)
def test_amounts_are_rounded_up_to_two_digits(name: str, value: float, rounded: float) -> None:
    assert rounded_up(name, value) == rounded
