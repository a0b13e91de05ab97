"""Each prompt can be shown again exactly as it was sent, whatever was compacted, mended or rolled back."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from runs import actions
from runs.engine.timeline import Summary, folded, shown
from runs.machines import CATALOGUE
from runs.models import Exchange, Run
from runs.reading.prompts import sent_at, sent_with_the_one_before
from runs.store import loading
from tests.launching import FINAL, launch, script, think
from tests.prompts import NOTES, Prompts, check_prompts, drive, hiding_run, long_run
from tests.running import lose_worker, transitions
from tests.workers import WorkerKilled, kill

pytestmark = pytest.mark.usefixtures("every_run_verifies")


def test_every_prompt_of_a_run_that_compacts_is_shown_as_it_was_sent() -> None:
    run = long_run(30)
    sent: Prompts = {}
    while not run.finished:
        sent |= drive(run)
    check_prompts(run, sent)
    compactions = run.exchanges.filter(kind="compaction")
    assert compactions.count() > 3
    assert all(sent[seq] for seq in compactions.values_list("seq", flat=True))
    assert not any(found.differs for seq in sent if (found := sent_at(run, seq)))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_people_do_to_the_context_each_prompt_is_shown_as_it_was_sent(seed: int) -> None:
    chance = random.Random(seed)
    run = long_run(25)
    sent: Prompts = {}
    done: set[str] = set()
    while not run.finished and len(sent) < 45:
        sent |= drive(run, moves=chance.randint(4, 12))
        if not run.finished:
            done |= {meddle(run, chance)}
    check_prompts(run, sent)
    assert len(done) > 3, done


def meddle(run: Run, chance: random.Random) -> str:
    """Something that a person does to the run's context, where it is possible."""
    standing = folded(loading.context_blocks(run)).standing()
    told = transitions(run)
    deed = chance.choice(["pin", "edit", "undo", "compact", "rewind", "unpin", "nothing"])
    summary = standing[-1] if standing else None
    try:
        match deed:
            case "pin":
                path = summary.path if summary and chance.random() < 0.3 else f"st:{chance.choice(told)}"
                actions.pin(run, path=path, by=None)
            case "unpin":
                pins = sorted(folded(loading.context_blocks(run)).pins)
                actions.unpin(run, path=chance.choice(pins or ["st:1"]), by=None)
            case "edit" if summary:
                text = summary.text.translate(str.maketrans("0123456789", "1234567890"))
                actions.edit_summary(
                    run, seq=summary.seq, version=summary.version, text=text, reason="A digit.", by=None
                )
            case "undo" if summary:
                actions.undo_summary(run, seq=summary.seq, reason="Too short.", by=None)
            case "compact":
                actions.compact_now(run, by=None)
            case "rewind" if len(told) > 3 and chance.random() < 0.4:
                actions.rewind(run, to=chance.choice(told[1:-1]), by=None)
            case _:
                return "nothing"
    except actions.NotPossible:
        return "nothing"
    run.refresh_from_db()
    return deed


def summarised_run() -> tuple[Run, Summary, Prompts]:
    """A run with one summary, of which somebody wants another one."""
    run = long_run(20)
    sent: Prompts = {}
    while not (standing := folded(loading.context_blocks(run)).standing()):
        sent |= drive(run, moves=2)
    actions.compact_now(run, by=None)
    return run, standing[0], sent


def correct(run: Run, summary: Summary) -> None:
    """What a person does while the next summary is being written."""
    actions.edit_summary(
        run, seq=summary.seq, version=1, text="Nothing was read.", reason="It is so.", by=None
    )


def test_a_prompt_is_shown_without_what_was_changed_while_its_answer_was_waited_for() -> None:
    run, summary, sent = summarised_run()
    asked: list[str] = []

    def meanwhile(role: str) -> None:
        if role == "summary":
            asked.append(role)
            correct(run, summary)

    sent |= drive(run, before=meanwhile)
    assert asked == ["summary"]
    check_prompts(run, sent)
    exchange = run.exchanges.filter(kind="compaction").order_by("-seq")[0]
    assert exchange.status == "answered"
    assert exchange.prompt_upto == exchange.seq < run.head


def test_a_prompt_whose_worker_was_lost_is_shown_as_the_next_worker_sent_it() -> None:
    run, summary, sent = summarised_run()

    def meanwhile(role: str) -> None:
        if role == "summary":
            correct(run, summary)
            kill()

    with pytest.raises(WorkerKilled):
        drive(run, before=meanwhile)
    lose_worker(run)
    sent |= drive(run, moves=3)
    check_prompts(run, sent)
    # What was written from the summary as it stood before is thrown away: the last one is asked for anew.
    _, exchange = run.exchanges.filter(kind="compaction").order_by("-seq")[:2]
    assert exchange.prompt_upto > exchange.seq
    assert "Nothing was read." in sent[exchange.seq][1].text


def test_what_a_checklist_hides_and_reads_again_is_shown_as_it_was_sent() -> None:
    run = hiding_run(26)
    sent: Prompts = {}
    while not run.finished:
        sent |= drive(run)
    check_prompts(run, sent)
    assert any("hidden," in message.text for messages in sent.values() for message in messages)
    assert run.steps.filter(
        kind="transition", facts_json__contains='"tool":"react.read"', edge="infra"
    ).exists()
    assert run.steps.filter(kind="compaction").exists()


def test_what_was_read_again_is_no_longer_hidden_for_a_worker_that_comes_later() -> None:
    """Also where a summary stands for the rows that hid it and brought it back."""
    run = hiding_run(26)
    drive(run, moves=12)
    actions.pin(run, path="st:4", by=None)
    while not run.finished:
        drive(run)
    machine = CATALOGUE[run.machine]
    whole, kept = (load(run, machine, run.head) for load in (loading.load_blocks, loading.load_window))
    brought_back = next(block.seq for block in whole if "st:4" in block.covers and not block.covers["st:4"])
    assert any(summary.covers(brought_back) for summary in folded(whole).standing())
    texts = [block.text for block in shown(kept, folded(kept))]
    assert texts == [block.text for block in shown(whole, folded(whole))]
    assert any("result 0: tide" in text for text in texts)


def test_every_source_keeps_its_number_in_every_prompt() -> None:
    """Whatever was compacted, and whichever worker goes on."""
    results: list[Any] = [
        [
            {
                "url": f"https://a.example/{number % 7}#{number}",
                "title": f"A {number % 7}",
                "text": "tide " * 60,
            },
            {"url": f"HTTPS://B.example:443/{number}", "title": f"B {number}", "text": "low"},
        ]
        for number in range(20)
    ]
    notes = NOTES | {"results": [{"output": result} for result in results]}
    played = script(
        *[think("notes", q=f"tide {number}") for number in range(20)], FINAL, tools={"notes": notes}
    )
    played["replies"]["summary"] = [{"goal": "tides"}] * 60
    run = launch(
        played=played, context={"limit_tokens": 2000}, max_steps=90, rules=[], ruleset=[], tools=["notes"]
    )
    sent: Prompts = {}
    while not run.finished:
        sent |= drive(run, moves=7)
    assert run.steps.filter(kind="compaction").count() > 1
    numbers: dict[str, set[str]] = {}
    for messages in sent.values():
        for number, url in re.findall(r"^\[(\d+)\] .* (https\S+)$", messages[-1].text, re.MULTILINE):
            numbers.setdefault(url, set()).add(number)
    assert len(numbers) == 27
    assert all(len(found) == 1 for found in numbers.values()), numbers
    assert {int(*found) for found in numbers.values()} == set(range(1, 28))


def test_a_prompt_knows_what_was_counted_and_the_one_before_it() -> None:
    run = long_run(3)
    sent = drive(run)
    seqs = list(Exchange.objects.filter(run=run, kind="model_call").values_list("seq", flat=True))
    found = sent_with_the_one_before(run, seqs[1])
    assert found is not None
    now, before = found
    assert now.sent
    assert now.characters_sent == now.characters
    assert now.tokens_counted == now.characters // 3
    assert before is not None
    assert before.messages == sent[seqs[0]]
    first = sent_with_the_one_before(run, seqs[0])
    assert first is not None
    assert first[1] is None
    assert sent_at(run, transitions(run)[0]) is None
