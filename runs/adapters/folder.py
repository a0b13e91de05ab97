"""A run's own directory: names can't leave it, links are never followed, files appear whole or not at all.

Every written content is also kept by its SHA-256, in a part of the directory that no name reaches: a later version of a
file takes nothing from the earlier ones. The kept bytes are written first, and never changed in place: two runs may
share them. Several files of one result are written all or not at all.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath

from runs.adapters.atomic_files import (
    PART,
    move,
    named_too,
    new_part,
    put,
    put_back,
    remove,
    set_aside,
    stat_of,
    write_new,
)
from runs.adapters.media import media_type_of
from runs.adapters.tool import ToolError
from runs.engine.effects import MadeFile
from runs.engine.values import Value

MAX_FILE_BYTES = 1_000_000
MAX_FOLDER_BYTES = 20_000_000
MAX_FILES = 500
MAX_KEPT_BYTES = 100_000_000
MAX_KEPT = 2_000
"""Bytes and number of all the versions that a run may keep."""
MAX_NAME = 200
MAX_PARTS = 8

_PART = r"[^\s./\\]([^/\\\r\n\t]*[^\s./\\])?"
NAME = rf"^{_PART}(/{_PART}){{0,{MAX_PARTS - 1}}}$"
"""A file's name as far as a pattern can tell; `parts_of` tells the rest."""
NAME_SENTENCE = (
    f"must be a relative name of up to {MAX_PARTS} parts, such as notes/report.md; "
    "no part may be empty, begin with a dot, or end with a dot or a blank"
)

KEPT = ".kept"
"""The folder of the versions. No part of a file's name begins with a dot."""

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Names that mean a device on some computers, whatever follows the dot."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNSEEN = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
"""Letters and marks that count as printable but are drawn as nothing."""


class NameLeavesFolder(ToolError):
    """A name that is not the plain relative name of a file."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{name[:MAX_NAME]!r} is not a file name. Give a relative one such as notes/report.md, of at most "
            f"{MAX_NAME} visible characters. No part may be empty, begin with a dot or end with a dot or a blank. "
            "None may be the name of a device such as nul."
        )


class FileNotThere(ToolError):
    """No file of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"The run's directory has no file {name!r}. list_files shows all files.")


class FileChanged(ToolError):
    """The bytes kept under a SHA-256 have another one."""

    def __init__(self, sha256: str) -> None:
        self.sha256 = sha256
        super().__init__(f"The stored file {sha256} was changed from outside.")


class NotAFile(ToolError):
    """The name is a directory, a link or a device, or a part of it is a file."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is not a regular file in a regular directory; links are not followed.")


class NameTaken(ToolError):
    """A name that some computers confuse with another file's, or its directory's."""

    def __init__(self, name: str, taken: str) -> None:
        self.name, self.taken = name, taken
        super().__init__(
            f"{name!r} conflicts with {taken!r}: some computers take them for one file, or one for the other's "
            "directory. Overwrite that one, or choose another name."
        )


class FileTooLarge(ToolError):
    """More bytes than one file may have."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        told = f"{size / 1e6:.1f} MB" if size > 1.05 * MAX_FILE_BYTES else f"{size:,} bytes"
        super().__init__(f"{name} is {told}; the limit is {MAX_FILE_BYTES / 1e6:g} MB.")


class FolderFull(ToolError):
    """More files or bytes than a run may keep."""

    def __init__(self, files: int, size: int) -> None:
        self.files, self.size = files, size
        super().__init__(
            f"This run's directory would have {files} files and {size} bytes; "
            f"the limits are {MAX_FILES} and {MAX_FOLDER_BYTES}. Write less, or overwrite a file."
        )


class VersionsFull(ToolError):
    """More versions, or more bytes of them, than a run may keep."""

    def __init__(self, versions: int, size: int) -> None:
        self.versions, self.size = versions, size
        super().__init__(
            f"The run keeps every version of its files. This call would make {versions} with {size} bytes; "
            f"the limits are {MAX_KEPT} and {MAX_KEPT_BYTES}. Nothing was written."
        )


class FileEntry(Value):
    """A file in the directory."""

    name: str
    size: int


def parts_of(name: str) -> tuple[str, ...]:
    """Return the parts of a file's name; raises `NameLeavesFolder`."""
    parts = tuple(name.split("/"))
    fits = (
        0 < len(name) <= MAX_NAME
        and len(parts) <= MAX_PARTS
        and len(name.encode(errors="replace")) <= MAX_NAME
    )
    visible = fits and name.isprintable() and "\\" not in name and _UNSEEN.isdisjoint(name)
    if not visible or not all(map(_plain, parts)):
        raise NameLeavesFolder(name)
    return parts


def _plain(part: str) -> bool:
    """Return True if a part of a name means the same on every computer."""
    return part[:1] not in ("", ".", " ") and part[-1] not in ". " and not _DEVICE.fullmatch(part)


def _same_for_some(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


class RunFolder:
    """The directory at `path`, made at the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes:
        """Return the bytes of the file `name`."""
        with self._place_of(name) as (folder, last):
            return _read_file(name, last, folder)

    def write(self, name: str, content: bytes) -> MadeFile:
        """Put `content` under `name`: a reader sees the old file or the new one, never a part."""
        (made,) = self.write_all([(name, content)])
        return made

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> tuple[MadeFile, ...]:
        """Put each content under its name, or none of them; if a name comes twice the last one wins.

        Every refusal comes before the first write; a later failure is undone.
        """
        for name, content in files:
            self._check_place(name)
            if len(content) > MAX_FILE_BYTES:
                raise FileTooLarge(name, len(content))
        if not files:
            return ()
        self._check_room({name: len(content) for name, content in files})
        made = self._keep(files)
        self._put_all(dict(files))
        return made

    def keep(self, name: str) -> MadeFile:
        """Keep the file `name` as it is now, whoever has written it."""
        (made,) = self._keep([(name, self.read(name))])
        return made

    def begin_as(self, other: RunFolder, versions: Sequence[tuple[str, str]]) -> None:
        """Fill this new directory with versions of another one: name and SHA-256 of each, in order.

        The last version of a name gets that name. One without a SHA-256 is the current file. Missing ones are left out.
        The directory must not be used before this ends.
        """
        standing: dict[str, bytes] = {}
        for name, digest in reversed(versions):
            if name not in standing:
                with suppress(ToolError):
                    standing[name] = other.kept(digest) if digest else other.read(name)
        if not standing:
            return
        self._keep_what(other, {digest for _, digest in versions if _DIGEST.fullmatch(digest)})
        for name, content in standing.items():
            with suppress(ToolError, FileExistsError):  # a newer version is in its way
                self._make(name, parts_of(name)[:-1])
                with self._place_of(name) as (folder, last):
                    write_new(last, content, folder)
        with suppress(ToolError):
            self._keep([*standing.items()])  # versions not kept by the other one
        for *_, descriptor in os.fwalk(self.path, follow_symlinks=False):
            os.fsync(descriptor)

    def kept(self, sha256: str) -> bytes:
        """Return the bytes with this SHA-256, whatever their name holds now.

        Raises `FileNotThere` if none are kept, `FileChanged` if others are.
        """
        if not _DIGEST.fullmatch(sha256):
            raise FileNotThere(sha256)
        with self._inside(sha256, [KEPT]) as folder:
            content = _read_file(sha256, sha256, folder)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise FileChanged(sha256)
        return content

    def entries(self) -> list[FileEntry]:
        """Return every ordinary file, by name; at most MAX_FILES."""
        entries: list[FileEntry] = []
        if not self.path.is_dir():
            return entries
        for place, folders, names, descriptor in os.fwalk(self.path, follow_symlinks=False):
            folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
            below = os.path.relpath(place, self.path)
            for name in names:
                kind = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(kind.st_mode) and not name.startswith("."):
                    full = name if below == "." else f"{below}/{name}"
                    entries.append(FileEntry(name=full.replace(os.sep, "/"), size=kind.st_size))
            if len(entries) >= MAX_FILES:
                break
        return sorted(entries, key=lambda entry: entry.name)[:MAX_FILES]

    def clear_parts(self, older_than_s: float) -> int:
        """Remove the unfinished parts of dead processes, untouched for so many seconds; return how many.

        A younger part may belong to a live process that has yet to notice the loss of its lease.
        """
        removed, before = 0, time.time() - older_than_s
        if not self.path.is_dir():
            return removed
        for _, _, names, descriptor in os.fwalk(self.path, follow_symlinks=False):
            for name in filter(PART.fullmatch, names):
                try:
                    if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime < before:
                        os.unlink(name, dir_fd=descriptor)
                        removed += 1
                except OSError:  # it stays, and does no harm
                    continue
        return removed

    def _check_place(self, name: str) -> None:
        """Raise if no file can be written under `name`."""
        with suppress(FileNotThere), self._place_of(name) as (folder, last):
            if (there := stat_of(last, folder)) and stat.S_ISDIR(there.st_mode):
                raise NotAFile(name)

    def _check_room(self, sizes: Mapping[str, int]) -> None:
        there = {entry.name: entry.size for entry in self.entries()}
        _check_beside(sizes, there)
        after = {**there, **sizes}
        if len(after) > MAX_FILES or sum(after.values()) > MAX_FOLDER_BYTES:
            raise FolderFull(len(after), sum(after.values()))

    def _keep(self, files: Sequence[tuple[str, bytes]]) -> tuple[MadeFile, ...]:
        """Keep each content by its SHA-256, the same bytes once; none if there is no room for all."""
        contents = {hashlib.sha256(content).hexdigest(): content for _, content in files}
        self._make_kept()
        with self._inside(KEPT, [KEPT]) as folder:
            kept = _sizes_of_kept(folder)
            new = {
                digest: content for digest, content in contents.items() if kept.get(digest) != len(content)
            }
            after = kept | {digest: len(content) for digest, content in new.items()}
            if new and (len(after) > MAX_KEPT or sum(after.values()) > MAX_KEPT_BYTES):
                raise VersionsFull(len(after), sum(after.values()))
            for digest, content in new.items():
                put(digest, content, folder)
        return tuple(_described(name, content) for name, content in files)

    def _keep_what(self, other: RunFolder, digests: Collection[str]) -> None:
        """Keep the files that another directory keeps: by a second name if the disk allows one, else as a copy."""
        self._make_kept()
        with suppress(ToolError), other._inside(KEPT, [KEPT]) as theirs, self._inside(KEPT, [KEPT]) as mine:
            for digest in digests:
                with suppress(ToolError, FileNotFoundError):  # no longer there
                    if not named_too(digest, digest, theirs, mine):
                        write_new(digest, _read_file(digest, digest, theirs), mine)

    def _make_kept(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make(KEPT, [KEPT])

    def _put_all(self, contents: Mapping[str, bytes]) -> None:
        """Write every content beside its place, and move them all; if one can't be, everything is as it was."""
        with ExitStack() as leftovers, ExitStack() as undo:
            written = {}
            for name, content in contents.items():
                self._make(name, parts_of(name)[:-1])
                part = new_part()
                leftovers.callback(self._remove, name, part)
                with self._place_of(name) as (folder, _):
                    written[name] = part, write_new(part, content, folder)
            for name, (part, mine) in written.items():
                with self._place_of(name) as (folder, last):
                    spare = set_aside(last, folder)
                    leftovers.callback(self._remove, name, spare)
                    undo.callback(self._put_back, name, spare, mine)
                    move(part, last, folder)
            undo.pop_all()

    def _put_back(self, name: str, spare: str, mine: os.stat_result) -> None:
        with self._place_of(name) as (folder, last):
            put_back(last, spare, mine, folder)

    def _remove(self, name: str, part: str) -> None:
        """Remove a part beside `name`; a failure does no harm, like any part left behind."""
        with suppress(OSError, ToolError), self._place_of(name) as (folder, _):
            remove(part, folder)

    def _make(self, name: str, folders: Sequence[str]) -> None:
        for depth in range(len(folders)):
            with self._inside(name, folders[:depth]) as folder:
                try:
                    os.mkdir(folders[depth], 0o700, dir_fd=folder)
                except FileExistsError:
                    continue

    @contextmanager
    def _place_of(self, name: str) -> Iterator[tuple[int, str]]:
        """Open the directory of the file `name`; yield its descriptor and the file's name there."""
        *folders, last = parts_of(name)
        with self._inside(name, folders) as folder:
            yield folder, last

    @contextmanager
    def _inside(self, name: str, folders: Sequence[str]) -> Iterator[int]:
        """Open the directory named by `folders`, part by part, without following links; yield its descriptor."""
        opened: list[int] = []
        try:
            opened.append(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            for part in folders:
                opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=opened[-1]))
            yield opened[-1]
        except FileNotFoundError:
            raise FileNotThere(name) from None
        except (IsADirectoryError, NotADirectoryError):
            raise NotAFile(name) from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
                raise NotAFile(name) from None
            raise
        finally:
            for descriptor in reversed(opened):
                os.close(descriptor)


def _check_beside(names: Collection[str], there: Collection[str]) -> None:
    """Raise `NameTaken` if one of the names would not be a file of its own on every computer."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in (*there, *names):
        files.setdefault(_same_for_some(name), name)
        folders |= {folder: name for folder in _folders_of(name) if folder not in folders}
    for name in names:
        same = _same_for_some(name)
        for taken in (files[same], folders.get(same, name), *map(files.get, _folders_of(name))):
            if taken not in (None, name):
                raise NameTaken(name, taken)


def _folders_of(name: str) -> list[str]:
    return list(map(str, PurePosixPath(_same_for_some(name)).parents))[:-1]


def _described(name: str, content: bytes) -> MadeFile:
    digest = hashlib.sha256(content).hexdigest()
    return MadeFile(name=name, size=len(content), media_type=media_type_of(name, content), sha256=digest)


def _sizes_of_kept(folder: int) -> dict[str, int]:
    with os.scandir(folder) as found:
        whole = [entry for entry in found if _DIGEST.fullmatch(entry.name)]
        return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in whole}


def _read_file(name: str, last: str, folder: int) -> bytes:
    # O_NONBLOCK: a planted pipe must not hold the worker.
    descriptor = os.open(last, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=folder)
    try:
        kind = os.fstat(descriptor)
        if not stat.S_ISREG(kind.st_mode):
            raise NotAFile(name)
        if kind.st_size > MAX_FILE_BYTES:
            raise FileTooLarge(name, kind.st_size)
        return _read_all(descriptor)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    content = bytearray()
    while len(content) < MAX_FILE_BYTES and (piece := os.read(descriptor, MAX_FILE_BYTES - len(content))):
        content += piece
    return bytes(content)
