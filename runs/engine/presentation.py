"""How a machine reads for people, as data: its facts, its exits, its panel, its part of the launch form.

Pages, comparisons and exports draw it. Nothing here knows HTML, a database, or how long a text may be: texts are given
whole, and who shows them cuts them and writes out what hides in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from runs.engine.values import Value

Data = dict[str, Any]

Level = Literal["turn", "step", "all"]
"""The coarsest detail at which a step is still shown."""


def spoken(name: str) -> str:
    """Return an engine's name as words: `call_tool` reads "call tool"."""
    return name.replace("_", " ")


class Word(NamedTuple):
    """How a name reads: words, an icon, and a tone (a colour that never stands alone)."""

    text: str
    icon: str
    tone: str = "quiet"


def money(usd: float) -> str:
    """Return an amount in USD: cents where it has any, else what there is of it."""
    if usd == 0:
        return "$0.00"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.3f}" if usd >= 0.01 else f"${usd:.5f}".rstrip("0")


class BudgetRow(Value):
    """One line of a run's budget, as it is shown and stored."""

    scope: str
    name: str
    used: float
    limit: float


# --- facts --------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A call of a tool, shown as code."""

    tool: str
    args: Data


@dataclass(frozen=True)
class Said:
    """The line of a fact. `code`, `call` and `values` are shown as code; `tag` is a small mark beside the title."""

    title: str
    text: str = ""
    icon: str = "dot"
    tone: str = "quiet"
    level: Level = "step"
    tag: str = ""
    code: str = ""
    call: Call | None = None
    values: Data = field(default_factory=dict)
    value: tuple[Any, ...] = ()
    """One value of any kind, in place of the text."""
    quote: str = ""
    """A person's words, after the text."""
    goes_on: bool = False
    """Whether the text continues the title's sentence."""
    not_run: bool = False
    """Whether it is about a call that did not take place."""


class Beside(NamedTuple):
    """The mark that a fact leaves on a step whose line is another fact's."""

    tag: str
    tone: str = ""
    alone: bool = False
    """Whether it takes the place of the line's own tag."""


def call_of(fact: Data) -> Call | None:
    """Return the call that a fact names by `tool` and `args`."""
    return Call(fact["tool"], fact.get("args") or {}) if fact.get("tool") else None


@dataclass(frozen=True)
class Reads:
    """How one kind of fact reads, wherever it is shown."""

    line: Callable[[Data], Said] | None
    """Its line, on the timeline, in comparisons and exports; None where it says nothing by itself."""
    reply: bool = False
    """Whether it is what the model replied: it speaks before every other fact of its step."""
    said: str = ""
    """The name of the value with the thought behind it; cards show it."""
    call: Callable[[Data], Call | None] = call_of
    """Of a reply: the call that it wants."""
    before_end: bool = False
    """Whether it speaks though the step also ends the run."""
    beside: Callable[[Sequence[Data]], Beside | None] | None = None
    """The mark that all facts of the kind leave where another fact speaks."""
    at_ask: Literal["", "told", "again"] = ""
    """Whether it speaks on a step that asks the model: as it is, or as a retry."""
    yields: bool = False
    """Whether the run's answer speaks in its place."""
    by_chance: tuple[str, ...] = ()
    """Values that differ between any two runs: comparisons skip them."""
    counts: Literal["", "call", "skip"] = ""
    """Whether it tells how a call ended, or that a step was skipped: an ended run counts both."""
    part: tuple[str, str] = ("", "")
    """What its block is called in the prompt's picture, and its colour there."""
    noun: str = ""
    """What its block is called in a list."""


# --- the panel ----------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """A step's number, and those of its facts that the panel asked for."""

    seq: int
    facts: tuple[Data, ...]


class Lost(NamedTuple):
    """A call whose end a stopped run did not hear of: what became of it, the same in words, and where it was asked."""

    tool: str
    outcome: Literal["done", "failed", "not_done", "under_way", "unknown"]
    sentence: str
    seq: int


class Meter(NamedTuple):
    """A number with its limit. One that only advises is no fault when it is used up."""

    label: str
    used: float
    limit: float
    advisory: bool = False
    unit: Literal["", "usd"] = ""


def meters_of(
    rows: Sequence[BudgetRow], scope: str, labels: Mapping[str, str], advisory: Sequence[str] = ()
) -> dict[str, Meter]:
    """Return the lines of a budget in one scope as meters, by their names."""
    return {
        row.name: Meter(
            labels.get(row.name) or spoken(row.name).capitalize(), row.used, row.limit, row.name in advisory
        )
        for row in rows
        if row.scope == scope
    }


class PanelRow(NamedTuple):
    """One line of a panel's list. `seq` is the step that it leads to."""

    text: str
    status: Literal["done", "failed", "now", "later"] = "later"
    note: str = ""
    seq: int | None = None

    @property
    def sign(self) -> str:
        """Return the mark of its status."""
        return {"done": "✓", "failed": "✗", "now": "→", "later": "□"}[self.status]


def panel_of(said: str, rows: Sequence[PanelRow] = (), meters: Sequence[Meter] = ()) -> Data:
    """Return what the panel that every machine can use is drawn from: a sentence, a list, numbers."""
    return {"said": said, "rows": list(rows), "meters": list(meters)}


@dataclass(frozen=True)
class Panel:
    """A machine's own part of the run page."""

    title: str
    kinds: tuple[str, ...]
    """The facts that it tells of."""
    context: Callable[[Any, Sequence[Told], Lost | None], Data]
    """What is drawn, from the newest state, the steps with those facts, and a lost call."""
    template: str = ""
    """A template of the machine's own; empty: the one for `panel_of`."""
    open: bool = True
    """Whether a page begins with the part unfolded."""


# --- the launch form ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Control:
    """A field of the launch form. Left empty, its setting keeps the default."""

    name: str
    label: str
    setting: str = field(default="", kw_only=True)
    """The setting, where it has another name than the field."""
    text: str = field(default="", kw_only=True)
    """What the page says at the field, where that is longer than its label."""
    hint: str = field(default="", kw_only=True)
    """Beside the label, in small letters."""
    placeholder: str = field(default="", kw_only=True)
    place: Literal["", "fold", "more"] = field(default="", kw_only=True)
    """Whether it stands in the fold at the end, or among the other settings."""

    @property
    def of(self) -> str:
        """Return the name of the setting."""
        return self.setting or self.name


@dataclass(frozen=True)
class Whole(Control):
    """A whole number."""

    least: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class Choice(Control):
    """One of several values, each with its words; the first is the default and sets nothing."""

    choices: tuple[tuple[str, str], ...]
    wide: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Check(Control):
    """A box to tick. `on` and `off` are the values of the setting; None sets nothing."""

    on: Any = field(default=None, kw_only=True)
    off: Any = field(default=None, kw_only=True)
    instead_of: str = field(default="", kw_only=True)
    """A setting that must be empty where this is ticked."""
    conflict: str = field(default="", kw_only=True)
    """The sentence where it is not."""

    @property
    def ticked(self) -> bool:
        """Return whether it is ticked on an empty form: where ticking sets nothing."""
        return self.on is None


@dataclass(frozen=True)
class Lines(Control):
    """A list of texts, one a line. `what` is what all of them are called."""

    what: str


@dataclass(frozen=True)
class Json(Control):
    """A JSON object or list. `must_be` ends the sentence "This must be …"."""

    kind: type
    must_be: str
    rows: int = field(default=3, kw_only=True)
    names_skills: bool = field(default=False, kw_only=True)
    """Whether the page names the site's skills at it."""


@dataclass(frozen=True)
class Column:
    """A column of rows."""

    name: str
    label: str
    placeholder: str = ""
    choices: tuple[str, ...] = ()
    code: bool = False
    required: str = ""
    """The sentence where a row leaves it empty."""
    json: str = ""
    """Where a cell is a JSON object: the sentence for one that is none."""
    tools: bool = False
    """Whether the tools are suggested."""


@dataclass(frozen=True)
class Rows(Control):
    """A list of objects, each a row of cells; or all of them pasted as JSON into another field."""

    columns: tuple[Column, ...]
    one: str
    """What one row is called; its look is named for it too."""
    pasted: Json
    telling: tuple[str, ...] = field(default=(), kw_only=True)
    """The columns that make a row, where not all do: one in which only others say something is blank."""
    empty: bool = field(default=False, kw_only=True)
    """Whether an empty list says something else than none."""


@dataclass(frozen=True)
class Form:
    """A machine's part of the launch form."""

    title: str
    about: str
    controls: tuple[Control, ...]
    numbers_about: str = ""
    """A sentence under the small fields."""
    fold: str = ""
    """What the fold is called."""


# --- all of it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Presentation:
    """How a machine reads for people."""

    facts: Mapping[str, Reads] = field(default_factory=dict)
    """By kind; of several facts of a step the first one in this order speaks."""
    exits: Mapping[str, str] = field(default_factory=dict)
    """Its own exit reasons, each as the rest of a sentence."""
    violation: Callable[[str], str] = lambda code: ""
    """The violation that a notice's code names, in words; empty where it names none."""
    speaking_notices: tuple[str, ...] = ()
    """Codes of notices that speak where the model is asked again."""
    panel: Panel | None = None
    form: Form | None = None
    progress: str = ""
    """The line of its budget that tells how far a run is; empty: the first one."""
    usual: bool = False
    """Whether a fresh launch form has chosen it."""


EXITS: Mapping[str, str] = {
    "complete": "the agent says it is complete",
    "goal_achieved": "the agent says the goal is reached",
    "cost_limit": "cost limit reached",
    "token_limit": "token limit reached",
    "time_limit": "time limit reached",
    "model_error": "model error",
    "fatal_error": "fatal error",
    "aborted": "cancelled by a person",
}
"""The exit reasons that every machine may have."""
