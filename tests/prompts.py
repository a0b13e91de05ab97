"""Workers that keep what their model was sent, and long runs for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runs import actions, driver
from runs.driver import Slice
from runs.driver.holds import held
from runs.driver.worker import Worker
from runs.engine.ports import Message, ModelPort, ModelRequest, Watch
from runs.models import Run
from runs.reading import prompts
from runs.reading.prompts import sent_with_the_one_before
from runs.store import errors, leases
from tests.launching import FINAL, launch, script, think
from tests.running import make_due

NOTES = {
    "params": {"q": "string"},
    "required": ["q"],
    "effects": "read",
    "results": [{"output": f"result {number}: " + "tide " * (20 + number % 7 * 15)} for number in range(60)],
}

Prompts = dict[int, tuple[Message, ...]]


@dataclass
class Recorder:
    """A model that plays the script, and keeps what each role was sent; it counts tokens as providers do."""

    model: ModelPort
    asked: Any
    before: Callable[[str], None]
    sent: Prompts = field(default_factory=dict)

    def ask(self, request: ModelRequest, watch: Watch) -> Any:
        self.sent[self.asked().seq] = request.messages
        self.before(request.role)
        answer = self.model.ask(request, watch)
        characters = sum(len(message.text) for message in request.messages)
        usage = getattr(answer, "usage", None)
        if usage is None:
            return answer
        return answer.model_copy(update={"usage": usage.model_copy(update={"input_tokens": characters // 3})})

    def price(self, input_tokens: int) -> float:
        return self.model.price(input_tokens)


class RecordedJourney(Worker):
    """A slice whose model reads its prompts, and records them by the row that asked."""

    recorder: Recorder

    def __init__(self, hold: Any, before: Callable[[str], None]) -> None:
        super().__init__(hold)
        self.before = before

    def prepare(self) -> None:
        super().prepare()
        self.recorder = Recorder(self.ports.model, lambda: self.at.asked, self.before)
        self.ports.model = self.recorder
        self.ports.reads_prompt = True
        self.reader = self.performer.reader = driver.window.Reader(self.at, self.ports, self.shown)


def drive(run: Run, moves: int = 50, before: Callable[[str], None] = lambda role: None) -> Prompts:
    """One slice; what was sent, by the row that asked. `before` is done while a role's reply is waited for."""
    make_due(run.pk)
    lease = leases.claim(run.pk, "recorder")
    assert lease is not None
    with held(lease) as hold:
        journey = RecordedJourney(hold, before)
        try:
            journey.drive(Slice(moves=moves))
        except errors.Fenced:
            pass
        finally:
            leases.let_go(lease)
    run.refresh_from_db()
    return journey.recorder.sent


def long_run(rounds: int, limit: int = 1200, **settings: Any) -> Run:
    """A run that searches so often, in a window of so many tokens."""
    played = script(
        *[think("notes", q=f"tide {number}") for number in range(rounds)], FINAL, tools={"notes": NOTES}
    )
    played["replies"]["summary"] = [{"goal": "tides", "done": f"read {number}"} for number in range(60)]
    context = {"limit_tokens": limit}
    return launch(
        played=played, context=context, max_steps=900, rules=[], ruleset=[], tools=["notes"], **settings
    )


def hiding_run(rounds: int = 14) -> Run:
    """A checklist that hides a result, and brings it back later."""

    def use(tool: str, **params: Any) -> dict[str, Any]:
        return {
            "action": "call_tool",
            "strategy": "explore",
            "tool_call": {"tool_id": tool, "params": params},
        }

    replies = [use("notes", q=f"tide {number}") for number in range(rounds)]
    replies[3] = use("react.memory_hide", path="st:4", replacement="Nothing of use.")
    replies[9] = use("react.read", paths=["st:4"])
    done = {"action": "complete", "completion_summary": "Twice a day."}
    played = {
        "replies": {"decision": [*replies, done], "summary": ["Done: read on."] * 9},
        "tools": {"notes": NOTES},
    }
    settings: dict[str, Any] = {"context": {"limit_tokens": 2000}, "tools": ["notes"]}
    settings |= {"exploration_budget": 40, "max_iterations": 40}
    return actions.start_run(machine="checklist", goal="Tides", settings=settings, owner=None, script=played)


def check_prompts(run: Run, sent: Prompts) -> None:
    """What is shown is what was sent, for every ask."""
    assert sent
    for seq, messages in sent.items():
        found = sent_with_the_one_before(run, seq)
        assert found is not None
        now, before = found
        assert now.messages == messages
        if before is not None and before.seq in sent:
            assert before.messages == sent[before.seq], (
                f"the prompt of row {before.seq}, as that before row {seq}"
            )
        assert prompts.prompt_of(run, seq) == messages, f"the prompt of row {seq}"


class ReadingModel:
    """A model that plays the script, and keeps what it was shown."""

    def __init__(self, model: ModelPort) -> None:
        self.model = model
        self.shown: list[tuple[Message, ...]] = []

    def ask(self, request: ModelRequest, watch: Watch) -> Any:
        self.shown.append(request.messages)
        return self.model.ask(request, watch)

    def price(self, input_tokens: int) -> float:
        return self.model.price(input_tokens)


class ReadJourney(Worker):
    """A slice whose model reads its prompts."""

    shown_to: ReadingModel

    def prepare(self) -> None:
        super().prepare()
        self.shown_to = ReadingModel(self.ports.model)
        self.ports.model = self.shown_to
        self.ports.reads_prompt = True


def work_reading(run: Run) -> list[tuple[Message, ...]]:
    """One slice of the run, and the prompts that its model was shown."""
    make_due(run.pk)
    lease = leases.claim(run.pk, "reader")
    assert lease is not None
    with held(lease) as hold:
        journey = ReadJourney(hold)
        journey.drive(Slice())
        leases.let_go(lease)
    run.refresh_from_db()
    return journey.shown_to.shown
