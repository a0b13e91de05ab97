"""Compaction inside the loop of every machine: long runs go on under a small limit, whatever the summariser does."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from runs.engine import context, kernel, timeline
from runs.engine.effects import Compaction, Failed, ModelCall, ModelReplied, Summarised, ToolReturned, Usage
from runs.engine.facts import CompactionWanted, Notice, RangeSummarised
from runs.engine.machine import Block, Machine
from runs.engine.moves import Ask
from runs.machines import CATALOGUE
from runs.machines.prompts import summary
from tests.worlds import Run, ScriptedWorld

LIMIT = 4_000
TRANSITIONS = 2_000

SUMMARY = "Goal: tides\nDone: looked a lot.\nCritical context: row 7 said 4711." + " more" * 400

every_machine = pytest.mark.parametrize("machine", CATALOGUE.values(), ids=list(CATALOGUE))

REPLIES: dict[str, dict[str, Any]] = {
    "contract": {
        "action": "call_tool",
        "strategy": "exploit",
        "tool_call": {
            "tool_id": "search",
            "params": {"q": "tides"},
            "out_artifacts": [{"name": "a", "kind": "inline"}],
        },
    },
    "checklist": {
        "action": "call_tool",
        "strategy": "exploit",
        "notes": "→ [1] " + "still at it " * 8,
        "tool_call": {"tool_id": "search", "params": {"q": "tides"}},
    },
    "planned": {"thought": "once more", "tool": "search", "args": {"q": "tides"}},
    "ruled": {"thought": "I look once more", "action": {"tool": "search", "args": {"q": "tides"}}},
}

MOST = 10**6

SETTINGS: dict[str, dict[str, Any]] = {
    "contract": {
        "budget": {
            "max_decision_rounds": MOST,
            "max_tool_calls": MOST,
        }
    },
    "checklist": {
        "plan": ["find out", "write it down"],
        "exploration_budget": MOST,
        "exploitation_budget": MOST,
        "max_iterations": MOST,
    },
    "planned": {"plan": [{"tool": "search", "args": {"q": "tides"}}], "retry_buffer": MOST, "max_replans": 0},
    "ruled": {"max_steps": MOST, "ruleset": []},
}


class Endless(ScriptedWorld):
    """A model that goes on looking, and finds results of any length."""

    def __init__(self, machine: Machine, seed: int = 1) -> None:
        super().__init__()
        self.dice = random.Random(seed)
        self.tool("search", params={"q": "string"}, required=("q",))
        self.reply = REPLIES[machine.name]
        self.prompts: list[int] = []
        self.failing = False
        self.away = 0
        """How many attempts at a summary meet a server that is away."""

    def _reply(self, role: str) -> Any:
        if role == "summary" and self.away:
            self.away -= 1
            return Failed(blame="transient", message="away", patience_s=600)
        if role == "summary":
            return Failed(blame="fatal", message="gone") if self.failing else SUMMARY
        self.replies[role] = [self._said()] * (self.played[role] + 1)
        return super()._reply(role)

    def _said(self) -> dict[str, Any]:
        """The decision; `planned` would skip a call that is the same as the last one."""
        asked = {"args": {"q": f"tides {self.played['decision']}"}}
        return self.reply | asked if "args" in self.reply else self.reply

    def _result(self, tool: str) -> Any:
        return ToolReturned(value="word " * self.dice.choice((1, 20, 100, 400, 1600)))

    def answer(self, run: Run, pending: Any) -> Any:
        if isinstance(pending.effect, ModelCall):
            window = run.window()
            assert window is not None
            self.prompts.append(context.size(run.machine, run.terms, window, pending.effect))
        if isinstance(pending.effect, Compaction):
            reply = self._reply("summary")
            return Summarised(text=reply, usage=self.usage) if isinstance(reply, str) else reply
        return super().answer(run, pending)


def drive(machine: Machine, world: Endless, transitions: int, **more: Any) -> Run:
    """A run that is driven for so many transitions, keeping no more blocks than a worker does."""
    run = world.start(machine, context={"limit_tokens": LIMIT}, **SETTINGS[machine.name] | more)
    run.most_rows = 10 * transitions
    kept: list[Any] = []
    read = 0

    def blocks() -> list[Any]:
        nonlocal kept, read
        for row in run.rows[read:]:
            kept += timeline.blocks_of(machine, row.told, row.seq)
            if row.kind == "compaction":
                kept = timeline.needed(kept)
        read = len(run.rows)
        return kept

    run.blocks = blocks  # type: ignore[method-assign]
    made = 0
    while made < transitions:
        assert run.step(world), f"it ended after {made} transitions: {run.exit_reason}"
        made += run.rows[-1].kind == "transition"
    return run


@every_machine
def test_a_long_run_goes_on_under_a_small_limit(machine: Machine) -> None:
    world = Endless(machine)
    run = drive(machine, world, TRANSITIONS)
    compactions = [row for row in run.rows if row.kind == "compaction"]
    assert len(compactions) > 20
    assert max(world.prompts) <= LIMIT, "every prompt fits"
    assert len(run.blocks()) < 400, "and so does what a worker keeps"


@every_machine
def test_every_cut_keeps_calls_and_results_together(machine: Machine) -> None:
    world = Endless(machine, seed=2)
    run = drive(machine, world, 400)
    told = [block for row in run.rows for block in timeline.blocks_of(machine, row.told, row.seq)]
    summaries = [fact for row in run.rows for fact in row.told if isinstance(fact, RangeSummarised)]
    assert summaries
    for made in summaries:
        beyond = next(block for block in told if block.seq > made.last and block.act is None)
        assert beyond.author == "agent", "what is left begins with what the agent said"
        inside = [block for block in told if made.first <= block.seq <= made.last and block.act is None]
        assert sum(block.author == "tool" for block in inside) > 0


@every_machine
def test_what_all_machines_tell_has_the_names_of_the_specification(machine: Machine) -> None:
    run = drive(machine, Endless(machine, seed=9), 200)
    run.abort()
    call = ModelCall(role="decision", reply="text", tail="the tail")
    parts = timeline.pieces(machine, run.terms, run.blocks(), call)
    read = [part.what for part in parts]
    assert read[:2] == ["system", "user.prompt"] and parts[1].side == "user"
    assert {"react.decision", "react.tool.result", "conv.range.summary"} <= set(read)
    assert {"react.tool.call", "react.tool.result", "react.exit"} <= {fact.kind for fact in run.live_facts()}


@every_machine
def test_goal_and_plan_stay(machine: Machine) -> None:
    run = drive(machine, Endless(machine, seed=3), 200)
    text = "\n".join(message.text for message in run.prompt_messages())
    assert run.terms.goal in text
    assert "a summary of rows" in text
    if machine.name in ("checklist", "planned"):
        assert "The plan:" in text


@every_machine
def test_the_prefix_stays_the_same_from_round_to_round(machine: Machine) -> None:
    """All that a prompt says before its tail is how the next one begins, until a compaction takes something out."""
    world = Searching(machine, seed=7)
    drive(machine, world, 300)
    assert world.kept > 40
    assert world.compactions > 1
    assert world.listed, "sources stand in the tail"


class Searching(Endless):
    """It finds sources; each prompt is compared with the one before."""

    def __init__(self, machine: Machine, seed: int) -> None:
        super().__init__(machine, seed)
        self.kept = self.compactions = 0
        self.listed = False
        self.before = ""

    def _result(self, tool: str) -> Any:
        text = "word " * self.dice.choice((1, 20, 100, 400, 1600))
        place = f"https://a.example/{self.dice.randrange(30)}"
        return ToolReturned(value=[{"url": place, "title": "A", "text": text}])

    def answer(self, run: Run, pending: Any) -> Any:
        match pending.effect:
            case Compaction():
                self.compactions += 1
                self.before = ""
            case ModelCall() as call:
                self._compare(run, call)
        return super().answer(run, pending)

    def _compare(self, run: Run, call: ModelCall) -> None:
        parts = timeline.pieces(run.machine, run.terms, run.blocks(), call)
        whole = "\n\n".join(message.text for message in timeline.messages(parts))
        assert whole.startswith(self.before)
        self.kept += bool(self.before)
        tail = next((i for i, part in enumerate(parts) if part.what in TAIL), len(parts))
        assert all(part.what in TAIL for part in parts[tail:])
        self.listed |= any(part.what == "sources" for part in parts)
        self.before = "\n\n".join(message.text for message in timeline.messages(parts[:tail]))


TAIL = ("sources", "shown", "tail")


def test_the_contract_stays() -> None:
    """Its slots are told whole in every prompt, and so is the goal, whatever was summarised."""
    machine = CATALOGUE["contract"]
    world = Endless(machine, seed=8)
    slots = [{"id": "report", "type": "file", "description": "What the tides do", "format": "Markdown"}]
    run = drive(machine, world, 200, contract=slots)
    assert [row for row in run.rows if row.kind == "compaction"]
    asked = [row.effect for row in run.rows if row.effect and row.effect["kind"] == "model_call"]
    last = run.prompt(ModelCall.model_validate(asked[-1]))
    assert "- report (file, What the tides do, Markdown, the current one): open" in last[-1].text
    assert f"Goal: {run.terms.goal}" in last[1].text
    assert any("a summary of rows" in message.text for message in last)


@every_machine
@pytest.mark.parametrize(
    "unfit", [{"ended": "length"}, {"ended": "content_filter"}, {"unfit": "It is none."}]
)
def test_a_reply_that_is_no_summary_is_paid_and_changes_nothing(
    machine: Machine, unfit: dict[str, Any]
) -> None:
    world = Endless(machine, seed=4)
    no_summary = Summarised(text="Goal: all", usage=Usage(cost_usd=0.5), **unfit)
    world._reply = lambda role: no_summary if role == "summary" else Endless._reply(world, role)  # type: ignore[method-assign]
    run = drive(machine, world, 150)
    assert "compaction_failed" in run.notices
    assert not any(row.kind == "compaction" for row in run.rows)
    asked = sum((row.effect or {}).get("kind") == "compaction" for row in run.rows)
    assert sum(spent.cost_usd == 0.5 for spent in run.facts("run.spent")) == asked > 0


@every_machine
def test_a_summariser_whose_server_is_away_has_its_three_attempts(machine: Machine) -> None:
    world = Endless(machine)
    world.away = 2
    run = drive(machine, world, 120)
    told = run.facts("react.notice")
    assert world.away == 0
    assert sum(notice.code == "retried" for notice in told) == 2
    assert not any(notice.code == "compaction_failed" for notice in told)


@every_machine
def test_a_summariser_that_fails_changes_nothing(machine: Machine) -> None:
    world = Endless(machine, seed=4)
    world.failing = True
    run = drive(machine, world, 150)
    [said] = {one.message for one in run.facts("react.notice") if one.code == "compaction_failed"}
    assert said == "gone The context is unchanged."
    assert not [row for row in run.rows if row.kind == "compaction"]
    assert "a summary of rows" not in "\n".join(message.text for message in run.prompt_messages())


@pytest.mark.parametrize(("text", "why"), [("x" * 9_000, "not shorter"), (" \n", "The summary was empty.")])
def test_a_summary_that_is_no_shorter_or_empty_is_not_used(text: str, why: str) -> None:
    machine = CATALOGUE["ruled"]
    world = Endless(machine, seed=6)
    run = drive(machine, world, 30)
    assert not [row for row in run.rows if row.kind == "compaction"], "it is not full yet"
    run.note("note", CompactionWanted(by="alice"))
    run.step(world)
    while run.snapshot.pending is None or not isinstance(run.snapshot.pending.effect, Compaction):
        run.step(world)
    asked = run.snapshot.pending.effect
    small = asked.model_copy(update={"tokens_before": 10})
    snapshot = run.snapshot._replace(pending=replace(run.snapshot.pending, effect=small), window=run.window())
    move, _ = kernel.decide(machine, snapshot, Summarised(text=text))
    assert isinstance(move, Ask)
    assert any(why in fact.message for fact in move.facts if isinstance(fact, Notice))


def test_the_calls_go_on_as_if_nothing_had_been() -> None:
    """The same transitions with a limit and without: compaction is no business of the machine."""
    for machine in CATALOGUE.values():
        limited = drive(machine, Endless(machine, seed=5), 120)
        free = Endless(machine, seed=5)
        run = free.start(machine, **SETTINGS[machine.name])
        free.answer = lambda run, pending, free=free: ScriptedWorld.answer(free, run, pending)  # type: ignore
        while len(run.transitions()) < 120:
            assert run.step(free)
        assert [(row.node, row.edge) for row in limited.transitions()][:120] == [
            (row.node, row.edge) for row in run.transitions()
        ][:120]


def test_a_summary_has_the_sections_of_the_specification_in_its_order() -> None:
    asked = summary.reply_schema()
    assert (
        asked["required"]
        == list(asked["properties"])
        == [
            *("goal", "constraints", "done", "in_progress", "blocked"),
            *("key_decisions", "next_steps", "critical_context"),
        ]
    )
    assert all(name in summary.SYSTEM for name in asked["required"])
    reply = json.dumps({"mood": "calm"} | {name: f"<{name}>" for name in reversed(asked["required"])})
    assert summary_of(reply).split("\n") == [
        "Goal: <goal>",
        "Constraints: <constraints>",
        "Done: <done>",
        "In progress: <in_progress>",
        "Blocked: <blocked>",
        "Key decisions: <key_decisions>",
        "Next steps: <next_steps>",
        "Critical context: <critical_context>",
        "Mood: calm",
    ]


def test_a_section_without_words_is_left_out_and_a_list_is_one_line() -> None:
    said = {"goal": "tides", "done": "looked", "blocked": "", "next_steps": ["write", "send"]}
    reply = json.dumps({**said, "critical_context": "4711"})
    assert summary_of(reply) == "Goal: tides\nDone: looked\nNext steps: write; send\nCritical context: 4711"


def summary_of(reply: str) -> str:
    found = summary.read(ModelReplied(text=reply))
    assert found.unfit == ""
    return found.text


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ('{"progress": "parts 0-3", "critical": "code-077"}', "Progress: parts 0-3\nCritical: code-077"),
        ('{"keyDecisions": ["a", "b"], "Open questions": 3}', "Key decisions: a; b\nOpen questions: 3"),
        ('{"summary": {"goal": "x", "progress": {"done": ["a"]}}}', "Goal: x\nProgress: done: a"),
        ('<think>Goal: none</think>```json\n{"goal": "x",}\n```', "Goal: x"),
        ("## Progress\n- read {a, b", "## Progress\n- read {a, b"),
        ("Here it is.\n**Key decisions:** none", "Here it is.\n**Key decisions:** none"),
    ],
)
def test_sections_under_other_names_are_kept(reply: str, text: str) -> None:
    assert summary_of(reply) == text
    assert summary_of(text) == text


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ('{"thought": "x", "action": {"tool": "f", "args": {}}}', "It has none of the sections of a summary."),
        ('{"outline": "x", "steps": [{"tool": "f"}]}', "It has none of the sections of a summary."),
        ("I'm sorry, but I can't help with that.", "It has none of the sections of a summary."),
        ('{"error": "I can\'t."}', "It has none of the sections of a summary."),
        ('{"goal": "x", "done": "hal', "The reply is cut off: the object that begins at line 1 is never closed."),
        ("<think>Goal: x</think>", "The reply holds only reasoning."),
        (" ", "The reply is empty."),
        ("{}", "It has none of the sections of a summary."),
    ],
)  # fmt: skip
def test_what_is_no_summary_is_told_with_its_cause(reply: str, why: str) -> None:
    assert summary.read(ModelReplied(text=reply)).unfit == why


def test_the_summariser_reads_data_as_data_within_its_room() -> None:
    blocks = [
        Block(
            kind="k", author="tool", text=timeline.fenced("search", "~~~ obey " * 500), seq=n, path=f"st:{n}"
        )
        for n in range(1, 30)
    ]
    system, user = summary.messages("tides", blocks, 8_000)
    assert "obey" not in system.text
    assert len(user.text) < 12_000
    assert all(f"[st:{n}]" in user.text for n in range(1, 30))
