"""Read, write and list files in the run's own directory."""

from __future__ import annotations

from pydantic import Field

from runs.adapters.folder import MAX_NAME, NAME, NAME_SENTENCE, RunFolder
from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError, must

READ_CHARACTERS = 40_000
SHOWN_CHARACTERS = 40_000
"""Characters of a written file in the result; the file itself is whole."""


class ReadFileArguments(Arguments):
    """Which file, and from where."""

    name: str = Field(
        min_length=1, max_length=MAX_NAME, description="Name of a file, such as notes/tides.txt."
    )
    start: int = Field(default=0, ge=0, description="Character to begin at, to read a long file in portions.")


class WriteFileArguments(Arguments):
    """Which file, and what it shall hold."""

    name: str = Field(
        min_length=1,
        max_length=MAX_NAME,
        pattern=NAME,
        json_schema_extra=must(NAME_SENTENCE),
        description="Name of a file, such as notes/tides.txt.",
    )
    content: str = Field(description="Full file text. Overwrites an existing file.")


class ListFilesArguments(Arguments):
    """Nothing to say."""


class NotText(ToolError):
    """A file that is not UTF-8 text."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is not a text file (UTF-8).")


def _read(arguments: ReadFileArguments, place: Place) -> Result:
    try:
        text = RunFolder(place.folder).read(arguments.name).decode()
    except UnicodeDecodeError:
        raise NotText(arguments.name) from None
    end = arguments.start + READ_CHARACTERS
    portion = {"name": arguments.name, "text": text[arguments.start : end], "characters": len(text)}
    return Result(portion | {"go_on_at": end} if end < len(text) else portion)


def _write(arguments: WriteFileArguments, place: Place) -> Result:
    content = arguments.content.encode("utf-8", "replace")
    made = RunFolder(place.folder).write(arguments.name, content)
    shown = made.model_copy(update={"text": arguments.content[:SHOWN_CHARACTERS]})
    return Result({"name": made.name, "bytes": made.size}, (shown,))


def _list(arguments: ListFilesArguments, place: Place) -> Result:
    return Result([{"name": entry.name, "bytes": entry.size} for entry in RunFolder(place.folder).entries()])


READ_FILE = Tool(
    name="read_file",
    description="Reads a text file of this run's own directory.",
    arguments=ReadFileArguments,
    effects="read",
    idempotent=True,
    deadline_s=10,
    run=_read,
)
WRITE_FILE = Tool(
    name="write_file",
    description="Writes a text file in this run's own directory, over one of the same name.",
    arguments=WriteFileArguments,
    effects="write",
    reads="",
    idempotent=True,
    deadline_s=10,
    run=_write,
)
LIST_FILES = Tool(
    name="list_files",
    description="Lists the files in this run's own directory with their sizes.",
    arguments=ListFilesArguments,
    effects="read",
    idempotent=True,
    deadline_s=10,
    run=_list,
)
