"""How a machine reads for people, as data: its facts, its exits, its panel, its part of the launch form.

Pages, comparisons and exports draw it. It knows no HTML, no database and no length limits: texts are given whole, and
readers cut them and reveal hidden characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Data = dict[str, Any]

Level = Literal["turn", "step", "all"]
"""The coarsest detail that still shows a step."""


def spoken(name: str) -> str:
    """Return an engine's name as words: `call_tool` reads "call tool"."""
    return name.replace("_", " ")


class Word(NamedTuple):
    """How a name reads: words, an icon, and a tone (a colour that never stands alone)."""

    text: str
    icon: str
    tone: str = "quiet"


def money(usd: float) -> str:
    """Return an amount in USD: in cents, or with more digits if below a cent."""
    if usd == 0:
        return "$0.00"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.3f}" if usd >= 0.01 else f"${usd:.5f}".rstrip("0")


def plural(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{number} {one if number == 1 else many or one + 's'}"


class BudgetRow(NamedTuple):
    """One line of a run's budget, as shown and stored."""

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
    """True if the text continues the title's sentence."""
    not_run: bool = False
    """True if it is about a call that did not take place."""


class Beside(NamedTuple):
    """The mark that a fact leaves on a step with another fact's line."""

    tag: str
    tone: str = ""
    alone: bool = False
    """True if it takes the place of the line's own tag."""


def call_of(fact: Data) -> Call | None:
    """Return the call that a fact names by `tool` and `args`."""
    return Call(fact["tool"], fact.get("args") or {}) if fact.get("tool") else None


@dataclass(frozen=True)
class Reads:
    """How one kind of fact reads, wherever it is shown."""

    line: Callable[[Data], Said] | None
    """Its line, on the timeline, in comparisons and exports; None if it has none of its own."""
    reply: bool = False
    """True if it is the model's reply: it speaks before every other fact of its step."""
    said: str = ""
    """The name of the value with the thought behind it; cards show it."""
    call: Callable[[Data], Call | None] = call_of
    """Of a reply: the wanted call."""
    before_end: bool = False
    """True if it speaks though the step also ends the run."""
    beside: Callable[[Sequence[Data]], Beside | None] | None = None
    """The mark that all facts of the kind leave beside another fact's line."""
    at_ask: Literal["", "told", "again"] = ""
    """Tells how it speaks on a step that asks the model: as it is, or as a retry."""
    yields: bool = False
    """True if the run's answer speaks in its place."""
    by_chance: tuple[str, ...] = ()
    """Values that differ between any two runs: comparisons skip them."""
    counts: Literal["", "call", "skip"] = ""
    """`call`: it tells how a call ended. `skip`: a step was skipped. An ended run counts both."""
    part: tuple[str, str] = ("", "")
    """Its block's name in the prompt's picture, and its colour there."""
    noun: str = ""
    """Its block's name in a list."""


# --- the panel ----------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """A step's number, and those of its facts that the panel asked for."""

    seq: int
    facts: tuple[Data, ...]


class Lost(NamedTuple):
    """A call in flight when its run was stopped: its outcome, the same in words, and the step of its question."""

    tool: str
    outcome: Literal["done", "failed", "not_done", "under_way", "unknown"]
    sentence: str
    seq: int


class Meter(NamedTuple):
    """A number with its limit. Reaching an advisory limit is no fault."""

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
    """Return the data of the panel that every machine can use: a sentence, a list, numbers."""
    return {"said": said, "rows": list(rows), "meters": list(meters)}


@dataclass(frozen=True)
class Panel:
    """A machine's own part of the run page."""

    title: str
    kinds: tuple[str, ...]
    """The kinds of its facts."""
    context: Callable[[Any, Sequence[Told], Lost | None], Data]
    """Its data, from the newest state, the steps with those facts, and a lost call."""
    template: str = ""
    """A template of the machine's own; empty: the one for `panel_of`."""
    open: bool = True
    """True if a page begins with the part unfolded."""


# --- the launch form ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Control:
    """A field of the launch form. Left empty, its setting keeps the default."""

    name: str
    label: str
    setting: str = field(default="", kw_only=True)
    """The setting, if its name differs from the field's."""
    text: str = field(default="", kw_only=True)
    """The page's text at the field, if longer than its label."""
    hint: str = field(default="", kw_only=True)
    """Beside the label, in small letters."""
    placeholder: str = field(default="", kw_only=True)
    place: Literal["", "fold", "more"] = field(default="", kw_only=True)
    """Its place: the fold at the end, or among the other settings."""

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
    """A setting that must be empty if this is ticked."""
    conflict: str = field(default="", kw_only=True)
    """The sentence if it is not."""

    @property
    def ticked(self) -> bool:
        """Return True if it is ticked on an empty form: ticking sets nothing."""
        return self.on is None


@dataclass(frozen=True)
class Lines(Control):
    """A list of texts, one a line. `what` names them."""

    what: str


@dataclass(frozen=True)
class Json(Control):
    """A JSON object or list. `must_be` ends the sentence "This must be …"."""

    kind: type
    must_be: str
    rows: int = field(default=3, kw_only=True)
    names_skills: bool = field(default=False, kw_only=True)
    """True if the page names the site's skills at it."""


@dataclass(frozen=True)
class Column:
    """A column of rows."""

    name: str
    label: str
    placeholder: str = ""
    choices: tuple[str, ...] = ()
    code: bool = False
    required: str = ""
    """The sentence if a row leaves it empty."""
    json: str = ""
    """For a cell with a JSON object: the sentence if it has none."""
    tools: bool = False
    """True if the tools are suggested."""


@dataclass(frozen=True)
class Rows(Control):
    """A list of objects, each a row of cells; or all of them pasted as JSON into another field."""

    columns: tuple[Column, ...]
    one: str
    """The name of one row, and of its look."""
    pasted: Json
    telling: tuple[str, ...] = field(default=(), kw_only=True)
    """The columns that make a row, if not all do: a row with only other columns filled is blank."""
    empty: bool = field(default=False, kw_only=True)
    """True if an empty list means something else than none."""


@dataclass(frozen=True)
class Form:
    """A machine's part of the launch form."""

    title: str
    about: str
    controls: tuple[Control, ...]
    numbers_about: str = ""
    """A sentence under the small fields."""
    fold: str = ""
    """The name of the fold."""


# --- all of it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Presentation:
    """How a machine reads for people."""

    facts: Mapping[str, Reads] = field(default_factory=dict)
    """By kind; of a step's facts, the first in this order gives the line."""
    exits: Mapping[str, str] = field(default_factory=dict)
    """Its own exit reasons, each as the rest of a sentence."""
    violation: Callable[[str], str] = lambda code: ""
    """A notice code's violation, in words; empty if it names none."""
    speaking_notices: tuple[str, ...] = ()
    """Codes of notices with a line of their own on a retry of the model."""
    panel: Panel | None = None
    form: Form | None = None
    progress: str = ""
    """The line of its budget that shows a run's progress; empty: the first one."""
    usual: bool = False
    """True if a fresh launch form has chosen it."""


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
"""Exit reasons of every machine."""
