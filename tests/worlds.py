"""ScriptedWorld: the one fake. A run in memory, driven by the kernel, its answers prepared or played from a tape.

It stands for store, driver and ports at once: rows are kept as JSON, the log can be stored and loaded after every
row, a person's decision is a row of its own, a rollback makes rows dead, a top-up raises a limit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from runs.engine import kernel, timeline, worker_questions
from runs.engine.effects import (
    ANSWER,
    EFFECT,
    Answer,
    ChildFinished,
    ChildRun,
    Compaction,
    ContextOverflowed,
    Effect,
    EffectClass,
    Failed,
    HumanCall,
    HumanSaid,
    ModelCall,
    ModelReplied,
    Summarised,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.engine.facts import Decided, Exited, Fact, LimitRaised, Recovered
from runs.engine.machine import END, Block, Machine, State, Terms
from runs.engine.moves import Ask, Compact, Go, Move, Rewind, Stop
from runs.engine.ports import Message
from runs.engine.settings import LIMIT_NAMES, LimitName
from runs.engine.snapshot import Held, Pending, Snapshot, Totals, Window
from runs.engine.tools import ToolSpec
from runs.engine.values import canonical, fingerprint

GOAL = "Find out how tides work"
USAGE = Usage(input_tokens=10, output_tokens=5, cost_usd=0.001)
TOO_MANY_ROWS = 3_000


class NeverEnds(AssertionError):
    """A run that has more rows than any bound allows."""


class WorkerDied:
    """What a player says where no answer comes, because the worker is gone."""


class Player(Protocol):
    """Whoever answers. `stored` and `load` let it go on elsewhere from where it stands."""

    def answer(self, run: Run, pending: Pending) -> Answer | WorkerDied | None:
        """The answer; None leaves the run waiting."""

    def meddle(self, run: Run) -> bool:
        """A person who acts on the run unasked; whether one did."""

    def stored(self) -> Any: ...

    def load(self, stored: Any) -> None: ...


@dataclass
class Row:
    """One committed row. All of it is JSON, but for `told`, the same facts as values."""

    seq: int
    kind: str
    node: str
    edge: str | None
    to: str
    facts: list[dict[str, Any]]
    state: dict[str, Any]
    effect: dict[str, Any] | None = None
    attempt: int = 1
    delay_s: float = 0.0
    live: bool = True
    told: tuple[Any, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "told"}


Watcher = Callable[["Run"], None]


@dataclass
class Run:
    """One run, its rows, and what is known of it at its head."""

    machine: Machine
    terms: Terms
    snapshot: Snapshot
    rows: list[Row] = field(default_factory=list)
    cache: dict[str, str] = field(default_factory=dict)
    last_reply: tuple[str, str] | None = None
    """Prompt and text of the last reply, until its thought is known to be good."""
    saved: Answer | None = None
    """The answer to the pending ask, kept before its conclusion is drawn."""
    answers: list[Answer] = field(default_factory=list)
    watchers: list[Watcher] = field(default_factory=list)
    most_rows: int = field(default_factory=lambda: TOO_MANY_ROWS)

    @classmethod
    def start(
        cls, machine: Machine, settings: dict[str, Any], tools: Mapping[str, ToolSpec], goal: str = GOAL
    ) -> Run:
        checked = machine.settings.model_validate(settings)
        built_in = {spec.name: spec for spec in machine.built_in}
        terms = Terms(goal=goal, settings=checked, tools={**tools, **built_in})
        limits = {name: limit for name in LIMIT_NAMES if (limit := checked.limits.of(name)) is not None}
        return cls(machine, terms, Snapshot(machine.start, machine.open(terms), limits=limits))

    # --- going on -----------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self.snapshot.node == END

    def step(self, player: Player) -> bool:
        """One commit; False where the run has ended or waits. A run can be stored between any two."""
        if self.ended:
            return False
        if len(self.rows) > self.most_rows:
            raise NeverEnds(f"{len(self.rows)} rows, and no end")
        if self.saved is None and player.meddle(self):
            return True
        pending = self.snapshot.pending
        if pending is None:
            self._conclude(None)
            return True
        answer = self.saved or self._cached() or player.answer(self, pending)
        if answer is None:
            return False
        if isinstance(answer, WorkerDied):
            self._recover()
        elif self.saved is None and _is_saved_at_once(pending.effect):
            self._save(answer)
        else:
            self._conclude(answer)
        return True

    def _save(self, answer: Answer) -> None:
        """An answer that must not be asked for twice is kept before anything follows from it."""
        self.saved = answer
        if isinstance(answer, HumanSaid):
            self._hear(answer)

    def _conclude(self, answer: Answer | None) -> None:
        self._note_reply(answer)
        if answer is not None:
            self.answers.append(answer)
        move, totals = kernel.decide(self.machine, self._seen(), answer)
        self.saved = None
        self.commit(move, totals)

    def drive(self, player: Player) -> Run:
        while self.step(player):
            pass
        return self

    def _seen(self) -> Snapshot:
        """The head, with what gates look at: the window, and how often each call was asked on the live path."""
        seen = self.snapshot._replace(window=self.window())
        if not any(rule.when.same_call for rule in self.terms.settings.rules):
            return seen
        rows = (row.effect for row in self.rows if row.live and row.effect and row.attempt == 1)
        calls: Counter[str] = Counter()
        for effect in rows:
            if effect["kind"] == "tool_call":
                calls[fingerprint(effect["tool"], effect["args"])] += 1
            elif effect["kind"] == "child_run":
                calls[fingerprint(f"agent.{effect['name']}", {"goal": effect["goal"]})] += 1
        return seen._replace(calls=calls)

    def commit(self, move: Move, totals: Totals) -> None:
        """The row that a move becomes."""
        before = self.snapshot
        match move:
            case Rewind():
                self._rewind(move, totals)
                return
            case Ask(effect=effect, attempt=attempt, delay_s=delay):
                self.snapshot = kernel.advance(self.machine, before, move, totals)
                self._add("ask", before.node, None, before.node, move.facts, effect, attempt, delay)
            case Compact():
                self.snapshot = kernel.advance(self.machine, before, move, totals)
                self._add("compaction", before.node, None, before.node, move.facts)
            case Go(edge=edge):
                self.snapshot = kernel.advance(self.machine, before, move, totals)
                if (before.node, edge) == self.machine.remembers and self.last_reply:
                    self.cache.setdefault(*self.last_reply)
                self._add("transition", before.node, edge, self.snapshot.node, move.facts)
            case Stop():
                self.snapshot = kernel.advance(self.machine, before, move, totals)
                self._add("stop", before.node, None, END, move.facts)

    def _add(
        self,
        kind: str,
        node: str,
        edge: str | None,
        to: str,
        facts: tuple[Fact, ...],
        effect: Effect | None = None,
        attempt: int = 1,
        delay_s: float = 0.0,
    ) -> None:
        row = Row(
            seq=self.snapshot.head,
            kind=kind,
            node=node,
            edge=edge,
            to=to,
            facts=[fact.model_dump(mode="json") for fact in facts],
            state=self.snapshot.state.model_dump(mode="json"),
            effect=effect.model_dump(mode="json") if effect else None,
            attempt=attempt,
            delay_s=delay_s,
            told=facts,
        )
        self.rows.append(row)
        for watch in self.watchers:
            watch(self)

    def note(self, kind: str, *facts: Fact) -> None:
        """A row that people or the runtime add."""
        state = self.machine.fold(self.snapshot.state, facts)
        self.snapshot = self.snapshot._replace(state=state, head=self.snapshot.head + 1)
        self._add(kind, self.snapshot.node, None, self.snapshot.node, facts)

    def _hear(self, said: HumanSaid) -> None:
        pending = self.snapshot.pending
        assert pending and isinstance(pending.effect, HumanCall)
        call = pending.effect
        assert said.verdict in call.verdicts, f"{said.verdict} is no answer to {call.about}"
        decided = Decided(
            interrupt=str(pending.seq),
            about=call.about,
            verdict=said.verdict,
            by=said.by,
            channel="test",
            message=said.message,
            args=said.args,
            to_step=said.to_step,
        )
        self.note("decision", decided)
        if said.verdict == "top_up":
            for name, added in (said.args or {}).items():
                self.top_up(name, added)  # type: ignore[arg-type]

    def top_up(self, name: LimitName, added: float) -> None:
        limit = self.snapshot.limits.get(name, 0) + added
        self.snapshot = self.snapshot._replace(limits={**self.snapshot.limits, name: limit})
        self.note("limit", LimitRaised(name=name, added=added, limit=limit))

    def _recover(self) -> None:
        """Another worker takes over: what may be repeated stays asked; of the rest a person judges."""
        pending = self.snapshot.pending
        assert pending
        self.note("recovered", Recovered(epoch=2, message="A worker was lost."))
        effect = pending.effect
        if isinstance(effect, ToolCall) and not effect.repeatable and not effect.idempotent:
            self.commit(Ask(worker_questions.uncertain(self.snapshot, "worker lost")), self.snapshot.totals)

    # --- people -------------------------------------------------------------------------------------------

    def rewind(self, to: int) -> None:
        """A person goes back while the run is under way."""
        self.commit(kernel.rewind(self.machine, self.snapshot, to), self.snapshot.totals)

    def abort(self) -> None:
        """A person stops the run while it is under way."""
        self.commit(Stop("aborted", (Exited(reason="aborted"),)), self.snapshot.totals)

    def _rewind(self, move: Rewind, totals: Totals) -> None:
        target = next(row for row in self.rows if row.seq == move.to)
        assert target.live and target.kind == "transition", f"{move.to} is no live transition"
        before = self.snapshot
        state = self.state_of(target)
        for row in self.rows:
            row.live = row.live and row.seq <= move.to
        self.last_reply = None
        snapshot = before._replace(totals=totals)
        self.snapshot = kernel.rewound(self.machine, snapshot, move, target.to, state)
        self._add("rewind", before.node, None, target.to, move.facts)

    def targets(self) -> list[int]:
        """The rows that one can go back to."""
        return [row.seq for row in self.rows if row.live and row.kind == "transition" and row.to != END]

    # --- the prompt and its cache -------------------------------------------------------------------------

    def prompt(self, call: ModelCall) -> tuple[Message, ...]:
        """What the model reads: a rendering of the live rows."""
        return timeline.prompt(self.machine, self.terms, self.blocks(), call)

    def blocks(self) -> list[Block]:
        """What the model has been told on the live path."""
        live = (row for row in self.rows if row.live)
        return [block for row in live for block in timeline.blocks_of(self.machine, row.told, row.seq)]

    def window(self) -> Window | None:
        """What prompts have to fit, where the settings set a limit."""
        context = self.terms.settings.context
        if context.limit_tokens is None:
            return None
        return Window(
            blocks=self.blocks(),
            limit=context.limit_tokens,
            compact_at=context.compact_at,
            keep_recent=context.keep_recent,
        )

    def prompt_messages(self) -> tuple[Message, ...]:
        """What the model would read now."""
        return self.prompt(ModelCall(role="decision", reply="text"))

    def _key(self, call: ModelCall) -> str:
        return canonical([message.model_dump() for message in self.prompt(call)])

    def _cached(self) -> ModelReplied | None:
        pending = self.snapshot.pending
        if pending and isinstance(pending.effect, ModelCall) and pending.effect.cacheable and self.cache:
            text = self.cache.get(self._key(pending.effect))
            return ModelReplied(text=text, cached=True) if text is not None else None
        return None

    def _note_reply(self, answer: Answer | None) -> None:
        pending = self.snapshot.pending
        if pending and isinstance(pending.effect, ModelCall) and isinstance(answer, ModelReplied):
            keep = pending.effect.cacheable and not answer.cached
            self.last_reply = (self._key(pending.effect), answer.text) if keep else None

    # --- storing and loading ------------------------------------------------------------------------------

    def state_of(self, row: Row) -> State:
        return self.machine.state.model_validate({**json.loads(json.dumps(row.state)), "terms": self.terms})

    def stored(self, player: Player) -> str:
        """Everything, as one JSON text."""
        at = self.snapshot
        pending = at.pending
        settings = self.terms.settings.model_dump(mode="json")
        return json.dumps(
            {
                "machine": self.machine.name,
                "goal": self.terms.goal,
                "settings": settings,
                "tools": {name: spec.model_dump(mode="json") for name, spec in self.terms.tools.items()},
                "rows": [row.as_json() for row in self.rows],
                "node": at.node,
                "head": at.head,
                "pending": pending
                and {
                    "effect": pending.effect.model_dump(mode="json"),
                    "seq": pending.seq,
                    "attempt": pending.attempt,
                },
                "held": at.held and {"call": at.held.call.model_dump(mode="json"), "passed": at.held.passed},
                "totals": at.totals._asdict(),
                "limits": dict(at.limits),
                "next_cost_usd": at.next_cost_usd,
                "cache": self.cache,
                "last_reply": self.last_reply,
                "saved": self.saved and self.saved.model_dump(mode="json"),
                "player": player.stored(),
            },
            allow_nan=False,
        )

    @classmethod
    def load(cls, text: str, machine: Machine, player: Player) -> Run:
        """The run, and its player, as they were stored; the state is folded from the log."""
        kept = json.loads(text)
        tools = {name: ToolSpec.model_validate(spec) for name, spec in kept["tools"].items()}
        run = cls.start(machine, kept["settings"], tools, kept["goal"])
        run.rows = [Row(**row, told=machine.facts.validate_python(row["facts"])) for row in kept["rows"]]
        pending = kept["pending"]
        run.snapshot = Snapshot(
            node=kept["node"],
            state=folded(run),
            head=kept["head"],
            pending=pending
            and Pending(EFFECT.validate_python(pending["effect"]), pending["seq"], pending["attempt"]),
            held=kept["held"]
            and Held(ModelCall.model_validate(kept["held"]["call"]), tuple(kept["held"]["passed"])),
            totals=Totals(**kept["totals"]),
            limits=kept["limits"],
            next_cost_usd=kept["next_cost_usd"],
        )
        run.cache = kept["cache"]
        run.last_reply = kept["last_reply"] and tuple(kept["last_reply"])
        run.saved = kept["saved"] and ANSWER.validate_python(kept["saved"])
        player.load(kept["player"])
        return run

    def log(self) -> list[dict[str, Any]]:
        """The rows as JSON."""
        return json.loads(json.dumps([row.as_json() for row in self.rows]))

    # --- reading ------------------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        return self.snapshot.state

    @property
    def exit_reason(self) -> str | None:
        return self.snapshot.state.exit_reason

    @property
    def answer(self) -> str | None:
        return self.snapshot.state.answer

    @property
    def status(self) -> str:
        return kernel.status_of(self.machine, self.snapshot.state)

    @property
    def totals(self) -> Totals:
        return self.snapshot.totals

    @property
    def waits_for(self) -> HumanCall | None:
        pending = self.snapshot.pending
        return pending.effect if pending and isinstance(pending.effect, HumanCall) else None

    def transitions(self) -> list[Row]:
        return [row for row in self.rows if row.live and row.kind == "transition"]

    @property
    def path(self) -> list[str]:
        return [row.node for row in self.transitions()]

    @property
    def edges(self) -> list[str]:
        return [str(row.edge) for row in self.transitions()]

    def kinds(self) -> list[str]:
        return [row.kind for row in self.rows]

    def live_facts(self) -> Iterator[Any]:
        return (fact for row in self.rows if row.live for fact in row.told)

    def facts(self, kind: str) -> list[Any]:
        return [fact for fact in self.live_facts() if fact.kind == kind]

    @property
    def notices(self) -> list[str]:
        return [fact.code for fact in self.facts("react.notice")]

    def asked(self, kind: str) -> list[dict[str, Any]]:
        """Every effect of that kind that was asked, dead rows too."""
        return [row.effect for row in self.rows if row.effect and row.effect["kind"] == kind]

    @property
    def interrupts(self) -> list[str]:
        return [effect["about"] for effect in self.asked("human_call")]


def _is_saved_at_once(effect: Effect) -> bool:
    """What a person said, and what came of a call that must not happen twice."""
    return isinstance(effect, HumanCall) or (isinstance(effect, ToolCall) and not effect.repeatable)


def folded(run: Run) -> State:
    """The state that the log alone gives, dead rows and all: a rewind goes back to a row's own state."""
    states: dict[int, State] = {}
    state = run.machine.open(run.terms)
    for row in run.rows:
        facts = run.machine.facts.validate_python(row.facts)
        if row.kind == "rewind":
            state = states[facts[0].to_seq]
        state = run.machine.fold(state, facts)
        states[row.seq] = state
    return state


# --- prepared answers -------------------------------------------------------------------------------------


def call(tool: str, thought: str = "I look it up", **args: Any) -> dict[str, Any]:
    """A reply of `ruled` that calls a tool."""
    return {"thought": thought, "action": {"tool": tool, "args": args}}


def final(answer: str = "42") -> dict[str, Any]:
    """A reply of `ruled` that gives the final answer."""
    return {"thought": f"FINAL ANSWER: {answer}", "action": None}


def said(verdict: Any, **more: Any) -> HumanSaid:
    """A person's decision."""
    return HumanSaid(verdict=verdict, by="alice", **more)


Said = HumanSaid | str | Callable[[Run], HumanSaid]


class ScriptedWorld:
    """Prepared answers, in order; a tool's last result repeats, and where decisions run out the run waits."""

    def __init__(self, usage: Usage = USAGE) -> None:
        self.usage = usage
        self.replies: dict[str, list[Any]] = {}
        self.tools: dict[str, ToolSpec] = {}
        self.results: dict[str, list[Any]] = {}
        self.children: dict[str, list[ChildFinished | Failed]] = {}
        self.decisions: list[Said] = []
        self.played: Counter[str] = Counter()
        self.next_cost_usd = 0.0
        self.seconds_per_effect = 0.0

    def model_says(self, *replies: Any, role: str = "decision") -> ScriptedWorld:
        """An object is sent as JSON, a text as it is, an answer as itself."""
        self.replies.setdefault(role, []).extend(replies)
        return self

    def tool(
        self,
        name: str,
        *results: Any,
        effects: EffectClass = "read",
        params: dict[str, str] | None = None,
        required: tuple[str, ...] = (),
        **more: Any,
    ) -> ScriptedWorld:
        """A tool and its results: an answer as itself, anything else as the value."""
        properties = {param: {"type": kind} for param, kind in (params or {}).items()}
        parameters = {"type": "object", "properties": properties, "required": list(required)}
        self.tools[name] = ToolSpec(name=name, parameters=parameters, effects=effects, **more)
        self.results[name] = list(results) or ["done"]
        return self

    def child(self, name: str, *ends: ChildFinished | Failed) -> ScriptedWorld:
        """A subgraph, offered as `agent.<name>`."""
        self.tool(f"agent.{name}", effects="none", params={"goal": "string"}, required=("goal",), child=name)
        self.children[name] = list(ends)
        return self

    def person_says(self, *decisions: Said) -> ScriptedWorld:
        self.decisions.extend(decisions)
        return self

    def drive(self, machine: Machine, **settings: Any) -> Run:
        """A run from start until it ends or waits for a person who says nothing."""
        return self.start(machine, **settings).drive(self)

    def start(self, machine: Machine, **settings: Any) -> Run:
        run = Run.start(machine, settings, self.tools)
        run.snapshot = run.snapshot._replace(next_cost_usd=self.next_cost_usd)
        return run

    def meddle(self, run: Run) -> bool:
        return False

    def stored(self) -> dict[str, int]:
        return dict(self.played)

    def load(self, stored: Any) -> None:
        self.played = Counter(stored)

    def answer(self, run: Run, pending: Pending) -> Answer | WorkerDied | None:
        totals = run.snapshot.totals
        seconds = totals.active_seconds + self.seconds_per_effect
        run.snapshot = run.snapshot._replace(totals=totals._replace(active_seconds=seconds))
        match pending.effect:
            case ModelCall(role=role):
                return self._reply(role)
            case ToolCall(infra=True, tool=tool, args=args) if tool not in self.results:
                return ToolReturned(value=args, ran=False)
            case ToolCall(tool=tool, args=args):
                return self._result(tool) if tool in self.results else ToolReturned(value=args)
            case ChildRun(name=name):
                return self._next(self.children[name], name)
            case HumanCall():
                return self._decision(run)
            case Compaction():
                reply = self._reply("summary") if "summary" in self.replies else "a summary"
                if isinstance(reply, ModelReplied):
                    return Summarised(text=reply.text, usage=reply.usage, ended=reply.ended)
                return Summarised(text=reply, usage=self.usage) if isinstance(reply, str) else reply

    def _next(self, prepared: list[Any], name: str) -> Any:
        index = min(self.played[name], len(prepared) - 1)
        self.played[name] += 1
        return prepared[index]

    def _reply(self, role: str) -> Answer:
        prepared = self.replies.get(role, [])
        if self.played[role] >= len(prepared):
            return Failed(
                blame="fatal", message=f"script exhausted (role {role}, call {self.played[role] + 1})"
            )
        reply = self._next(prepared, role)
        if isinstance(reply, ModelReplied | Summarised | ContextOverflowed | Failed):
            return reply
        return ModelReplied(text=reply if isinstance(reply, str) else json.dumps(reply), usage=self.usage)

    def _result(self, tool: str) -> Answer | WorkerDied:
        result = self._next(self.results[tool], f"tool {tool}")
        if isinstance(result, ToolReturned | Failed | WorkerDied):
            return result
        return ToolReturned(value=result)

    def _decision(self, run: Run) -> HumanSaid | None:
        if self.played["person"] >= len(self.decisions):
            return None
        decision = self._next(self.decisions, "person")
        if isinstance(decision, str):
            return said(decision)
        return decision if isinstance(decision, HumanSaid) else decision(run)


def round_trip(answer: Answer) -> Answer:
    """An answer, as it comes out of the store."""
    return ANSWER.validate_json(ANSWER.dump_json(answer))
