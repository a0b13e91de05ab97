"""Search the folders of documents that an administrator has registered; passages come as sources to cite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import Field

from runs.adapters.documents import DocumentIndex, Passage, can_be_read, words_of
from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError
from runs.engine.sources import document_url

MOST = 20


class SearchArguments(Arguments):
    """What to look for."""

    query: str = Field(min_length=1, max_length=500, description="Words to look for, in any form and order.")
    folder: str = Field(
        default="", max_length=40, description="Search this folder only. Leave empty for all."
    )
    results: int = Field(default=8, ge=1, le=MOST, description="Passages to give at most.")


class NoDocuments(ToolError):
    """The site has registered no folder."""

    def __init__(self) -> None:
        super().__init__("No documents are registered. Ask an administrator to set AGENTSITE_DOCUMENTS.")


class FolderUnknown(ToolError):
    """A name that is not registered."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        super().__init__(f"There is no folder {name!r}. Folders: {', '.join(known)}.")


class NoWord(ToolError):
    """A query without a word."""

    def __init__(self, query: str) -> None:
        self.query = query
        super().__init__(f"{query[:200]!r} has no word to look for. Write at least one.")


class IndexUnusable(ToolError):
    """The index can't be read now."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            f"The documents could not be searched: {why}. Try fewer words, or ask an administrator."
        )


def _run(arguments: SearchArguments, place: Place) -> Result:
    from django.conf import settings

    folders: Mapping[str, Path] = settings.DOCUMENT_FOLDERS
    if not folders:
        raise NoDocuments
    if arguments.folder and arguments.folder not in folders:
        raise FolderUnknown(arguments.folder, folders)
    if not words_of(arguments.query):
        raise NoWord(arguments.query)
    index = DocumentIndex(Path(settings.DATA_DIR) / "documents.sqlite3", folders)
    try:
        left = index.update().left
        wanted = [arguments.folder] if arguments.folder else list(folders)
        found = [_source(passage) for passage in index.find(arguments.query, wanted, arguments.results)]
    except sqlite3.Error as why:
        raise IndexUnusable(str(why)) from None
    away = [_away(name) for name in wanted if not can_be_read(folders[name])]
    return Result([*found, *away, *([_still_to_come(left)] if left else [])])


def _source(passage: Passage) -> dict[str, str]:
    name = f"{passage.folder}/{passage.path}"
    return {
        "url": document_url(name, passage.line),
        "title": f"{name}, line {passage.line}",
        "text": passage.text,
    }


def _away(name: str) -> dict[str, str]:
    lost = "results from it may be old or missing"
    return {"url": "", "title": f"The folder {name!r} can't be read now: {lost}. Tell an administrator."}


def _still_to_come(left: int) -> dict[str, str]:
    files = "1 file is" if left == 1 else f"{left:,} files are"
    return {"url": "", "title": f"{files} not indexed yet. Search again for the rest."}


TOOL = Tool(
    name="search",
    description=f"Searches the site's documents by their words; gives up to {MOST} passages with file and line.",
    arguments=SearchArguments,
    effects="read",
    idempotent=True,
    deadline_s=30,
    run=_run,
)
