"""A run's own directory: names can't leave it, links are never followed, files appear whole or not at all.

Whatever is written is kept by its SHA-256 as well, in a part of the directory that no name reaches: a later version
of a file takes nothing from the earlier ones. The kept bytes are written first.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runs.adapters.media import media_type_of
from runs.adapters.tool import ToolError
from runs.engine.effects import MadeFile
from runs.engine.values import Value
from runs.failpoints import failpoint

MAX_FILE_BYTES = 1_000_000
MAX_FOLDER_BYTES = 20_000_000
MAX_FILES = 500
MAX_KEPT_BYTES = 100_000_000
MAX_KEPT = 2_000
"""Bytes and number of all the versions that a run may keep."""
MAX_NAME = 200
MAX_PARTS = 8

KEPT = ".kept"
"""Where the versions lie. No name of a file has a part that begins with a dot."""

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Names that mean a device on some computers, whatever follows the dot."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"\.[0-9a-f]{16}\.part")
"""What is being written; a process that dies in the middle leaves it behind."""
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
"""Letters and marks that count as printable and are drawn as nothing."""


class NameLeavesFolder(ToolError):
    """A name that is not the plain relative name of a file."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{name[:MAX_NAME]!r} is no name of a file here: give a relative one such as notes/report.md "
            f"(at most {MAX_NAME} characters, all of them visible; no part may be empty, begin with a dot, end with "
            "a dot or a blank, or be the name of a device such as nul)."
        )


class FileNotThere(ToolError):
    """No file of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"There is no file {name!r} in this run's directory; list_files shows them all.")


class NotAFile(ToolError):
    """The name belongs to a directory, a link or a device, or a part of it to a file."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is no ordinary file in an ordinary directory; links are not followed.")


class NameTaken(ToolError):
    """Another file has the same name but for upper and lower case."""

    def __init__(self, name: str, taken: str) -> None:
        self.name, self.taken = name, taken
        super().__init__(
            f"There is a file {taken!r} already, and on some computers {name!r} would be the same one. "
            "Write over that one, or choose another name."
        )


class FileTooLarge(ToolError):
    """More bytes than one file may have."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        super().__init__(f"{name!r} has {size} bytes; a file may have {MAX_FILE_BYTES}.")


class FolderFull(ToolError):
    """More files or bytes than a run may keep."""

    def __init__(self, files: int, size: int) -> None:
        self.files, self.size = files, size
        super().__init__(
            f"This run's directory would have {files} files and {size} bytes; "
            f"it may have {MAX_FILES} and {MAX_FOLDER_BYTES}. Write less, or over a file that is there."
        )


class VersionsFull(ToolError):
    """More versions, or more bytes of them, than a run may keep."""

    def __init__(self, versions: int, size: int) -> None:
        self.versions, self.size = versions, size
        super().__init__(
            f"Every version of a file is kept, and with this one the run would keep {versions} with {size} bytes; "
            f"it may keep {MAX_KEPT} with {MAX_KEPT_BYTES}. Nothing was written; what is there stays."
        )


class FileEntry(Value):
    """A file in the directory."""

    name: str
    size: int


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a file's name; raises `NameLeavesFolder`."""
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
    """Whether a part of a name means the same on every computer."""
    return part[:1] not in ("", ".", " ") and part[-1] not in ". " and not _DEVICE.fullmatch(part)


def _same_for_some(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


class RunFolder:
    """The directory at `path`, made when something is first written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes:
        """The bytes of the file `name`."""
        *folders, last = parts_of(name)
        with self._inside(name, folders) as folder:
            return _read_file(name, last, folder)

    def write(self, name: str, content: bytes) -> MadeFile:
        """Put `content` under `name`: a reader sees the old file or the new one, never a part."""
        *folders, last = parts_of(name)
        if len(content) > MAX_FILE_BYTES:
            raise FileTooLarge(name, len(content))
        self._check_room(name, len(content))
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make(name, folders)
        with self._inside(name, folders) as folder:
            if _is_folder(last, folder):
                raise NotAFile(name)
            made = self._keep(name, content)
            _put(last, content, folder)
        return made

    def keep(self, name: str) -> MadeFile:
        """Keep the file `name` as it stands now, whoever has written it."""
        return self._keep(name, self.read(name))

    def kept(self, sha256: str) -> bytes:
        """The bytes with this SHA-256, whatever stands under their name now; `FileNotThere` where none are kept."""
        if not _DIGEST.fullmatch(sha256):
            raise FileNotThere(sha256)
        with self._inside(sha256, [KEPT]) as folder:
            content = _read_file(sha256, sha256, folder)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise FileNotThere(sha256)
        return content

    def entries(self) -> list[FileEntry]:
        """Every ordinary file, by name; at most MAX_FILES."""
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
        """Remove what processes that are gone had begun to write, and not touched for so many seconds; how many.

        A younger part may be that of a process which lives, and has yet to notice that its seat was taken.
        """
        removed, before = 0, time.time() - older_than_s
        if not self.path.is_dir():
            return removed
        for _, _, names, descriptor in os.fwalk(self.path, follow_symlinks=False):
            for name in filter(_PART.fullmatch, names):
                try:
                    if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mtime < before:
                        os.unlink(name, dir_fd=descriptor)
                        removed += 1
                except OSError:  # it stays, and counts for nothing
                    continue
        return removed

    def _check_room(self, name: str, size: int) -> None:
        others = [entry for entry in self.entries() if entry.name != name]
        same = _same_for_some(name)
        if taken := next((entry.name for entry in others if _same_for_some(entry.name) == same), None):
            raise NameTaken(name, taken)
        total = sum(entry.size for entry in others) + size
        if len(others) >= MAX_FILES or total > MAX_FOLDER_BYTES:
            raise FolderFull(len(others) + 1, total)

    def _keep(self, name: str, content: bytes) -> MadeFile:
        """Keep `content` by its SHA-256; the same bytes once."""
        digest = hashlib.sha256(content).hexdigest()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make(name, [KEPT])
        with self._inside(name, [KEPT]) as folder:
            with os.scandir(folder) as found:
                whole = [entry for entry in found if _DIGEST.fullmatch(entry.name)]
                kept = {entry.name: entry.stat(follow_symlinks=False).st_size for entry in whole}
            if kept.get(digest) != len(content):
                size = sum(kept.values()) + len(content)
                if len(kept) >= MAX_KEPT or size > MAX_KEPT_BYTES:
                    raise VersionsFull(len(kept) + 1, size)
                _put(digest, content, folder)
        return MadeFile(name=name, size=len(content), media_type=media_type_of(name, content), sha256=digest)

    def _make(self, name: str, folders: list[str]) -> None:
        for depth in range(len(folders)):
            with self._inside(name, folders[:depth]) as folder:
                try:
                    os.mkdir(folders[depth], 0o700, dir_fd=folder)
                except FileExistsError:
                    continue

    @contextmanager
    def _inside(self, name: str, folders: list[str]) -> Iterator[int]:
        """A descriptor of the directory that `folders` name, opened part by part: no link is followed."""
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


def _read_file(name: str, last: str, folder: int) -> bytes:
    # O_NONBLOCK: a pipe put there by somebody must not hold the worker.
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


def _is_folder(last: str, folder: int) -> bool:
    try:
        kind = os.stat(last, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(kind.st_mode)


def _put(last: str, content: bytes, folder: int) -> None:
    """Write `content` beside, and move it into its place when it is safe."""
    temporary = f".{secrets.token_hex(8)}.part"
    try:
        _write_new(temporary, content, folder)
        failpoint("inside_put")
        os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError:
        _remove(temporary, folder)
        raise


def _read_all(descriptor: int) -> bytes:
    content = bytearray()
    while len(content) < MAX_FILE_BYTES and (piece := os.read(descriptor, MAX_FILE_BYTES - len(content))):
        content += piece
    return bytes(content)


def _write_new(name: str, content: bytes, folder: int) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
