"""Search names and lines in the run's own directory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, Literal

import regex
from pydantic import Field

from runs.adapters.folder import MAX_NAME, RunFolder
from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError

MAX_MATCHES = 100
LINE_CHARACTERS = 300
SEARCH_S = 5.0


class SearchFilesArguments(Arguments):
    """What to look for, and where."""

    pattern: str = Field(
        min_length=1,
        max_length=500,
        description="Regular expression, in any case. Plain words work too; write \\. for a dot.",
    )
    where: Literal["both", "names", "text"] = Field(
        default="both", description="Search file names, lines of text, or both."
    )
    files: str = Field(
        default="*", max_length=MAX_NAME, description="Only files whose name matches, such as notes/*.md."
    )


class PatternWrong(ToolError):
    """A pattern that is no regular expression."""

    def __init__(self, pattern: str, why: str) -> None:
        self.pattern, self.why = pattern, why
        super().__init__(
            f"{pattern[:200]!r} is not a regular expression: {why}. Escape signs such as ( [ * with a backslash."
        )


class PatternTooSlow(ToolError):
    """A pattern that needs too long on these files."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        super().__init__(
            f"{pattern[:200]!r} takes longer than {SEARCH_S:g} s on these files. "
            "Write a simpler pattern, or name fewer files."
        )


class _Search:
    """One search, with its deadline and what it has seen."""

    def __init__(self, arguments: SearchFilesArguments, folder: RunFolder) -> None:
        self._arguments = arguments
        self._folder = folder
        self._end = time.monotonic() + SEARCH_S
        self._pattern = _compiled(arguments.pattern)
        self.files = self.not_text = 0

    def matches(self) -> Iterator[dict[str, Any]]:
        """Yield each match: the file, and unless its name matches, the line's number and text."""
        for entry in self._folder.entries():
            if not fnmatchcase(entry.name, self._arguments.files):
                continue
            if self._arguments.where != "text" and self._find(entry.name):
                yield {"file": entry.name}
            if self._arguments.where != "names":
                yield from self._lines(entry.name)

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        # Lines as editors count them: other signs that break a line for Python do not count.
        lines = self._text(name).replace("\r\n", "\n").removesuffix("\n").split("\n")
        for number, line in enumerate(lines, 1):
            if place := self._find(line):
                yield {"file": name, "line": number, "text": _around(line, place.start())}

    def _text(self, name: str) -> str:
        with suppress(UnicodeDecodeError, ToolError):
            text = self._folder.read(name).decode()
            self.files += 1
            return text
        self.not_text += 1
        return ""

    def _find(self, text: str) -> Any:
        left = self._end - time.monotonic()
        try:
            return self._pattern.search(text, timeout=max(left, 0.001))
        except TimeoutError:
            raise PatternTooSlow(self._arguments.pattern) from None


def _compiled(pattern: str) -> Any:
    try:
        return regex.compile(pattern, regex.IGNORECASE)
    except regex.error as why:
        raise PatternWrong(pattern, str(why)) from None


def _around(line: str, at: int) -> str:
    """Return the part of a long line that has the match."""
    start = max(0, min(at - LINE_CHARACTERS // 3, len(line) - LINE_CHARACTERS))
    end = start + LINE_CHARACTERS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _run(arguments: SearchFilesArguments, place: Place) -> Result:
    search = _Search(arguments, RunFolder(place.folder))
    matches: list[dict[str, Any]] = []
    cut = False
    for match in search.matches():
        if cut := len(matches) == MAX_MATCHES:
            break
        matches.append(match)
    return Result(
        {"matches": matches, "files": search.files, "not_text": search.not_text, "cut": cut},
    )


TOOL = Tool(
    name="search_files",
    description=(
        "Searches names and lines of this run's own files. A match in a name has the file alone; "
        f"at most {MAX_MATCHES} matches, {SEARCH_S:g} s."
    ),
    arguments=SearchFilesArguments,
    effects="read",
    idempotent=True,
    deadline_s=10,
    run=_run,
)
