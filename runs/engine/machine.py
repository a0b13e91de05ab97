"""A machine's declaration: its graph, its state, its facts, and the words for model and reader.

The drawing on the run page, the documentation and the tests read it; the kernel runs it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Union

from pydantic import Field, TypeAdapter

from runs.engine.effects import Answer, HumanCall, HumanSaid
from runs.engine.facts import (
    COMMON_FACTS,
    Answered,
    DataRead,
    Exited,
    Fact,
    Forked,
    HostAllowed,
    InterruptAsked,
    SummaryStands,
    ToolCalled,
    ToolReported,
    is_of_script,
)
from runs.engine.moves import Ask, Go
from runs.engine.ports import Message
from runs.engine.presentation import BudgetRow, Presentation
from runs.engine.settings import Settings
from runs.engine.sources import Source
from runs.engine.tools import ToolSpec
from runs.engine.values import Value, is_none

END = "end"
"""The pseudo-node after the last transition."""

COMMON_EXITS = ("cost_limit", "token_limit", "time_limit", "model_error", "fatal_error", "aborted")


class Terms(Value):
    """A run's fixed terms: never changed while it runs, and not part of the stored state."""

    goal: str
    settings: Settings
    site_rules: int = 0
    """How many of the rules in the settings, the first ones, are the site's as of launch."""
    tools: dict[str, ToolSpec] = {}
    skills: dict[str, str] = {}
    """Named texts kept by an administrator, for machines with skills."""
    guided: bool = False
    """The model is weak: reply schemas are as narrow as the state allows, and worked examples are given."""

    def permitted(self) -> list[ToolSpec]:
        """Return the tools permitted in this run."""
        return [spec for spec in self.tools.values() if spec.permitted]


class ScriptCall(Value):
    """A call that a script has made and waits for."""

    script: int
    """The step of the call that began the script."""
    tool: str


class State(Value):
    """Control values only: counters, flags, indexes, the draft at hand. The log is not in it."""

    terms: Terms = Field(exclude=True, repr=False)
    exit_reason: str | None = None
    answer: str | None = None
    answer_source: Literal["final_answer", "fallback"] | None = None
    interrupts_asked: dict[str, int] = {}
    """The last multiple at which each "every N steps" rule asked."""
    data_read: tuple[DataRead, ...] = Field(default=(), exclude_if=operator.not_)
    """Data not meant for every host; the first sources only."""
    hosts_allowed: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Hosts allowed by people for this run."""
    script_call: ScriptCall | None = Field(default=None, exclude_if=is_none)
    """The call that a script waits for; None between calls, and in a run without a script."""


def evolve_common(state: State, fact: Fact) -> State:
    """Fold the facts that mean the same in every machine; others leave the state as it is."""
    match fact:
        case InterruptAsked(rule=rule, multiple=multiple):
            return state.model_copy(update={"interrupts_asked": {**state.interrupts_asked, rule: multiple}})
        case Answered(text=text, source=source):
            return state.model_copy(update={"answer": text, "answer_source": source})
        case Exited(reason=reason):
            return state if state.exit_reason else state.model_copy(update={"exit_reason": reason})
        case DataRead():
            return state.model_copy(update={"data_read": (*state.data_read, fact)})
        case HostAllowed(host=host):
            return state.model_copy(update={"hosts_allowed": (*state.hosts_allowed, host)})
        case ToolCalled(script=script, tool=tool) if script:
            return state.model_copy(update={"script_call": ScriptCall(script=script, tool=tool)})
        case ToolReported(script=script) if script:
            return state.model_copy(update={"script_call": None})
        case Forked(state=changes) if (
            changes or state.hosts_allowed
        ):  # what people allowed, they allowed one run
            values = {**state.model_dump(), **changes, "hosts_allowed": (), "terms": state.terms}
            return type(state).model_validate(values)
    return state


class Edge(NamedTuple):
    """One declared transition, and its condition, in words."""

    source: str
    name: str
    target: str
    when: str = ""


class ArtifactRow(Value):
    """An artifact as the export and the page show it."""

    name: str
    kind: str
    error: str | None = None
    slot: str | None = None


class Block(Value):
    """One fact as the model reads it. Text from tools and pages is untrusted: fenced, and never system text."""

    kind: str
    author: Literal["user", "agent", "tool", "system"]
    text: str
    shows: dict[str, str] = {}
    """Whole texts by name, for prompts that want them (`ModelCall.shows`)."""
    seq: int = 0
    """The step of the fact."""
    path: str = ""
    """Its address: `st:<seq>`, or `su:<seq>` for a summary."""
    covers: dict[str, str | None] = {}
    """Paths of the blocks hidden from now on, each with its replacement; None shows them again."""
    sources: tuple[Source, ...] = ()
    """Sources found by a search, for the pool."""
    act: Fact | None = None
    """A change of the context itself: never shown; it decides which blocks are."""


class GraphError(Exception):
    """A machine's declaration does not hold together."""

    def __init__(self, machine: str, why: str) -> None:
        self.machine = machine
        self.why = why
        super().__init__(f"The graph of {machine} is wrong: {why}.")


@dataclass(frozen=True)
class Plan:
    """A machine's plan, for a person who sees and may change it before the first step."""

    schema: dict[str, Any]
    """JSON schema of the shown plan."""
    shown: Callable[[Any], dict[str, Any]]
    """The plan of a state, as arguments."""
    changed: Callable[[dict[str, Any]], Fact | str]
    """The plan from a person's arguments; or its fault, as a sentence."""


def facts_read(own: tuple[type[Fact], ...]) -> TypeAdapter[Any]:
    """Return the reader of stored facts: the common ones, and a machine's own."""
    kinds: Any = Union[COMMON_FACTS + own]  # noqa: UP007 (built at run time)
    one: Any = Annotated[kinds, Field(discriminator="kind")]
    return TypeAdapter(tuple[one, ...])


NodeFunction = Callable[[Any, Answer | None], Ask | Go]


@dataclass(frozen=True)
class Machine:
    """One declared state machine. `deciding` is the node where "every N steps" looks."""

    name: str
    line: str
    start: str
    deciding: str
    nodes: Mapping[str, NodeFunction]
    edges: tuple[Edge, ...]
    exit_reasons: tuple[str, ...]
    settings: type[Settings]
    state: type[State]
    own_facts: tuple[type[Fact], ...]
    open: Callable[[Terms], State]
    evolve: Callable[[Any, Fact], State]
    turns: Callable[[Any], int]
    """The count for "every N steps"."""
    budget: Callable[[Any], tuple[BudgetRow, ...]]
    budget_text: Callable[[Any], str]
    system: Callable[[Terms], str]
    block: Callable[[Fact], Block | None]
    reply_schema: Callable[[str, Any], dict[str, Any] | None]
    examples: Callable[[Terms], tuple[Message, ...]] = lambda terms: ()
    """Worked examples, between the system text and the goal."""
    names_paths: Callable[[Terms], bool] = lambda terms: False
    """True if prompts show the paths of blocks: the machine's tools work with paths."""
    artifacts: Callable[[Any], tuple[ArtifactRow, ...]] = lambda state: ()
    """The run's artifacts, as far as its state knows."""
    kept: Callable[[Any], dict[str, Any]] = lambda state: {}
    """The values kept from the head in a rollback."""
    succeeded: Callable[[Any], bool] = lambda state: state.exit_reason in ("complete", "goal_achieved")
    ok: Callable[[Any], bool | None] = lambda state: None
    rewords: Mapping[str, str] = field(default_factory=dict)
    """Exit reasons that its last node may turn into another."""
    takes_fatal: frozenset[str] = frozenset()
    """Nodes whose table names an edge for a fatal tool error."""
    built_in: tuple[ToolSpec, ...] = ()
    """Tools of its own, permitted in every run, without side effects. Such a call returns its arguments, or, if infra,
    its finding in the run's own record."""
    feedback: Callable[[HumanCall | None, HumanSaid], tuple[Fact, ...]] = lambda call, said: ()
    """The facts to keep of a person's verdict on a question; None: of a rollback, whatever was asked."""
    metadata: Callable[[Any], dict[str, Any]] = lambda state: {}
    """The extended state, merged into a parent's own if the run is a fixed node of it."""
    keeps_summary: bool = False
    """True if the state keeps the text of the newest active summary."""
    plan: Plan | None = None
    """The plan before the first step; None if the machine has none by then."""
    remembers: tuple[str, str] | None = None
    """The transition (node, edge) after which the cache may repeat the last reply."""
    presentation: Presentation = field(default_factory=Presentation)
    """How it reads for people."""
    targets: Mapping[tuple[str, str], str] = field(init=False)
    facts: TypeAdapter[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", {(edge.source, edge.name): edge.target for edge in self.edges})
        object.__setattr__(self, "facts", facts_read(self.own_facts))
        self._check()

    def _check(self) -> None:
        if len(self.targets) != len(self.edges):
            raise GraphError(self.name, "an edge is declared twice")
        for edge in self.edges:
            if edge.source not in self.nodes:
                raise GraphError(self.name, f"edge {edge.name} leaves {edge.source}, which is no node")
            if edge.target not in self.nodes and edge.target != END:
                raise GraphError(self.name, f"edge {edge.name} leads to {edge.target}, which is no node")
        if self.start not in self.nodes or self.deciding not in self.nodes:
            raise GraphError(self.name, "its first or its deciding node is not declared")
        reached = {self.start}
        while more := {edge.target for edge in self.edges if edge.source in reached} - reached:
            reached |= more
        if lost := set(self.nodes) - reached:
            raise GraphError(self.name, f"{', '.join(sorted(lost))} can't be reached")

    def fold(self, state: State, facts: tuple[Fact, ...]) -> State:
        """Return the state after `facts`."""
        for fact in facts:
            state = evolve_common(state, fact) if is_of_script(fact) else self.evolve(state, fact)
        return state

    def summary_kept(self, text: str) -> tuple[Fact, ...]:
        """Return the fact that stores the newest summary in the state."""
        return (SummaryStands(text=text),) if self.keeps_summary else ()

    def mermaid(self) -> str:
        """Return the declared graph as a Mermaid state diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.start}"]
        for edge in self.edges:
            target = "[*]" if edge.target == END else edge.target
            lines.append(f"    {edge.source} --> {target}: {edge.name}")
        return "\n".join(lines)
