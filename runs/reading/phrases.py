"""The pieces of a step's words: its line, a call as code, a text on one line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from runs.reading.hidden_text import escaped
from runs.reading.stacks import without_marks_at_end

Level = Literal["turn", "step", "all"]
"""The coarsest detail that still shows a step."""

Data = dict[str, Any]
LONG = 400
"""Characters of a sentence in a line; the inspector has the whole."""
CALL = 240
"""Characters of a call in one line."""
LONG_ARGUMENT = 40
"""Characters above which an argument stands after the others."""

_BREAK = re.compile("\r\n?|[\u2028\u2029]")

_INNER = str.maketrans("“”", "‘’")


@dataclass(frozen=True)
class Line:
    """A step in words. `code` is shown as code; `tag` is a small mark beside the title."""

    title: str
    text: str = ""
    code: str = ""
    icon: str = "dot"
    tone: str = "quiet"
    level: Level = "step"
    tag: str = ""
    goes_on: bool = False
    """True if the text goes on from the title, in words of this program: `Went back` … `from row 9 to row 4`."""
    not_run: bool = False
    """True if it is about a call that did not take place."""

    @property
    def plain(self) -> str:
        """Return the step as one line of text."""
        said = " ".join(part for part in (self.text, self.code) if part)
        title = f"{self.title} ({self.tag})" if self.tag else self.title
        return " ".join((f"{title}: {said}" if said else title).split())


def call_text(tool: str, args: Data) -> str:
    """Return a call as code: `write_file(name="a.txt", content="12")`. A long one is cut, and says so."""
    text = f"{tool}({args_text(long_last(args))})"
    shown = short(text, CALL)
    return f"{shown} ({len(text):,} characters)" if shown.endswith("…") else shown


def short(text: str, most: int = LONG) -> str:
    """Return `text` on one line, at most `most` characters."""
    if len(text) > most * 4:
        text = f"{without_marks_at_end(text[: most * 4].rstrip())}…"  # a cut stack would show a wrong count
    text = " ".join(escaped(_BREAK.sub("\n", text)).split())
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def quoted(text: str, most: int = LONG) -> str:
    """Return `text` on one line, as a quotation: its own quotation marks become inner ones."""
    return f"“{short(text, most).translate(_INNER)}”"


def args_text(args: Data) -> str:
    """Return arguments as code, between the brackets of a call; of any length, with all hidden characters in them."""
    return ", ".join(f"{name}={_json(value)}" for name, value in args.items())


def long_last(args: Data) -> Data:
    """Return the arguments with long ones last: what is cut is then a text, and not where it goes."""
    return dict(sorted(args.items(), key=lambda one: len(_json(one[1])) > LONG_ARGUMENT))


def value_text(value: Any) -> str:
    """Return a tool's value for a reader, on one line."""
    return short(value if isinstance(value, str) else _json(value))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
