"""A full-text index of the folders of documents that an administrator has registered.

It is built from the files alone, and rebuilt if it is damaged or of another version.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

VERSION = 1
UPDATE_S = 10.0
"""Seconds that one update takes at most; what is left comes with the next."""
SEARCH_S = 5.0
WAIT_S = 2.0
"""Seconds that an update waits for another one."""
MAX_FILE_BYTES = 2_000_000
MAX_FILES = 50_000
PASSAGE = 400
"""Characters after which a passage ends at the next blank line."""
LONGEST_PASSAGE = 1_200
MOST_WORDS = 32

_TABLES = (
    "CREATE TABLE files (id INTEGER PRIMARY KEY, folder TEXT NOT NULL, path TEXT NOT NULL, "
    "changed INTEGER NOT NULL, size INTEGER NOT NULL, UNIQUE (folder, path))",
    "CREATE TABLE passages (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, line INTEGER NOT NULL)",
    "CREATE INDEX passages_of ON passages (file)",
    'CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = "porter unicode61 remove_diacritics 2")',
    f"PRAGMA user_version = {VERSION}",
)
_FIND = """
SELECT folder, path, line, text, highlight(words, 0, char(1), char(2)) FROM words
JOIN passages ON passages.id = words.rowid JOIN files ON files.id = passages.file
WHERE words MATCH ? AND folder IN (SELECT value FROM json_each(?)) ORDER BY bm25(words), path, line LIMIT ?
"""
_WORD = re.compile(r"\w+")


class Passage(NamedTuple):
    """A part of a document; `line` is that of the first word that was found."""

    folder: str
    path: str
    line: int
    text: str


class Updated(NamedTuple):
    """How many files were read, and how many have still to be."""

    read: int
    left: int


class Seen(NamedTuple):
    """Time and size, which tell a changed file from the one before."""

    changed: int
    size: int


class DocumentIndex:
    """The index in `file` of `folders`, by name."""

    def __init__(self, file: Path, folders: Mapping[str, Path]) -> None:
        self._file = file
        self._folders = folders

    def update(self) -> Updated:
        """Take in what was changed, added and removed; nothing where another process is doing so."""
        end = time.monotonic() + UPDATE_S
        found = {(name, path): seen for name, root in self._folders.items() for path, seen in _files_in(root)}
        away = {name for name, root in self._folders.items() if not can_be_read(root)}
        with closing(self._opened()) as index:
            stored = index.execute("SELECT folder, path, changed, size FROM files")
            there = {(folder, path): Seen(*seen) for folder, path, *seen in stored}
            gone = [place for place in there if place not in found and place[0] not in away]
            changed = [place for place in found if there.get(place) != found[place]]
            if not (gone or changed) or not _begun(index):
                return Updated(0, len(changed))
            read = 0
            with index:
                for folder, path in gone:
                    _remove(index, folder, path)
                for folder, path in changed:
                    if time.monotonic() > end:
                        break
                    _take_in(index, folder, path, found[folder, path], self._folders[folder])
                    read += 1
            return Updated(read, len(changed) - read)

    def find(self, query: str, folders: Sequence[str], most: int) -> list[Passage]:
        """Return the passages with words of the query, those with more and rarer ones first."""
        words = " OR ".join(f'"{word}"' for word in words_of(query))
        end = time.monotonic() + SEARCH_S
        with closing(self._opened()) as index:
            index.set_progress_handler(lambda: int(time.monotonic() > end), 10_000)
            found = index.execute(_FIND, (words, json.dumps(list(folders)), most))
            return [
                Passage(folder, path, line + _lines_before(marked), text)
                for folder, path, line, text, marked in found
            ]

    def _opened(self) -> sqlite3.Connection:
        """Return the index, rebuilt if it can't be used."""
        try:
            return self._connected()
        except (sqlite3.DatabaseError, _OtherVersion) as fault:
            if isinstance(fault, sqlite3.OperationalError):  # busy, or the disk: the index itself is sound
                raise
        for name in ("", "-wal", "-shm"):
            self._file.with_name(f"{self._file.name}{name}").unlink(missing_ok=True)
        return self._connected()

    def _connected(self) -> sqlite3.Connection:
        os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        index = sqlite3.connect(self._file, timeout=WAIT_S, isolation_level=None)
        try:
            index.execute("PRAGMA journal_mode = WAL")
            index.execute("PRAGMA synchronous = NORMAL")
            _make_tables(index)
        except BaseException:
            index.close()
            raise
        return index


def _lines_before(marked: str) -> int:
    """Return how many lines of a passage come before its first found word."""
    return marked.partition("\1")[0].count("\n")


def can_be_read(folder: Path) -> bool:
    """Return True if the folder is there, and this user may list and read it."""
    return folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)


class _OtherVersion(Exception):
    """The index was made by another version of this file."""


def words_of(query: str) -> list[str]:
    """Return the words that are looked for."""
    return list(dict.fromkeys(_WORD.findall(query)))[:MOST_WORDS]


def _make_tables(index: sqlite3.Connection) -> None:
    if _version_of(index) == VERSION:
        return
    index.execute("BEGIN IMMEDIATE")
    version = _version_of(index)  # another process may have made them meanwhile
    if version not in (0, VERSION):
        raise _OtherVersion
    if version == 0:
        for statement in _TABLES:
            index.execute(statement)
    index.execute("COMMIT")


def _version_of(index: sqlite3.Connection) -> int:
    return int(index.execute("PRAGMA user_version").fetchone()[0])


def _begun(index: sqlite3.Connection) -> bool:
    """Begin to write; return False if another process is writing."""
    try:
        index.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as why:
        if why.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return False
        raise
    return True


def _files_in(root: Path) -> Iterator[tuple[str, Seen]]:
    """Yield the ordinary files below a folder, each with its time and size; no link is followed."""
    count = 0
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = (Path(place) / name).relative_to(root).as_posix()
            if name.startswith(".") or not path.isprintable() or count == MAX_FILES:
                continue
            with suppress(OSError):
                about = (root / path).lstat()
                if stat.S_ISREG(about.st_mode):
                    count += 1
                    yield path, Seen(about.st_mtime_ns, about.st_size)


def _remove(index: sqlite3.Connection, folder: str, path: str) -> None:
    found = index.execute("SELECT id FROM files WHERE folder = ? AND path = ?", (folder, path)).fetchone()
    if found:
        index.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM passages WHERE file = ?)", found)
        index.execute("DELETE FROM passages WHERE file = ?", found)
        index.execute("DELETE FROM files WHERE id = ?", found)


def _take_in(index: sqlite3.Connection, folder: str, path: str, seen: Seen, root: Path) -> None:
    """Put the file into the index in place of what it was; one that is no text has no passages."""
    _remove(index, folder, path)
    row = index.execute(
        "INSERT INTO files (folder, path, changed, size) VALUES (?, ?, ?, ?)", (folder, path, *seen)
    )
    for line, text in passages_of(_text_of(root / path)):
        place = index.execute("INSERT INTO passages (file, line) VALUES (?, ?)", (row.lastrowid, line))
        index.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (place.lastrowid, text))


def _text_of(path: Path) -> str:
    """Return the text of a file; empty where it is none, too long, or gone."""
    with suppress(OSError, UnicodeDecodeError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) <= MAX_FILE_BYTES and b"\0" not in content:
            return content.decode("utf-8-sig")
    return ""


def passages_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text and their first lines; they end at blank lines, or where they are long."""
    first, part = 1, ""
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        ends = not line.strip() and (not part or len(part) >= PASSAGE)
        if part and (ends or len(part) + len(line) >= LONGEST_PASSAGE):
            yield first, part.strip()
            part = ""
        for start in range(LONGEST_PASSAGE, len(line), LONGEST_PASSAGE):
            yield number, line[start - LONGEST_PASSAGE : start]
        rest = line[(max(len(line) - 1, 0) // LONGEST_PASSAGE) * LONGEST_PASSAGE :]
        if not part:
            first = number
        if part or rest.strip():
            part += f"{rest}\n"
    if part.strip():
        yield first, part.strip()
