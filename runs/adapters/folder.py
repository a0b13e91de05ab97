"""A run's own directory: names can't leave it, links are never followed, files appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runs.adapters.tool import ToolError
from runs.engine.values import Value

MAX_FILE_BYTES = 1_000_000
MAX_FOLDER_BYTES = 20_000_000
MAX_FILES = 500
MAX_NAME = 200
MAX_PARTS = 8

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


class NameLeavesFolder(ToolError):
    """A name that is not the plain relative name of a file."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{name[:MAX_NAME]!r} is no name of a file here: give a relative one such as notes/report.md "
            f"(at most {MAX_NAME} characters; no part may be empty or begin with a dot)."
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
    plain = (
        fits and name.isprintable() and "\\" not in name and not any(part[:1] in ("", ".") for part in parts)
    )
    if not plain:
        raise NameLeavesFolder(name)
    return parts


class RunFolder:
    """The directory at `path`, made when something is first written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes:
        """The bytes of the file `name`."""
        *folders, last = parts_of(name)
        with self._inside(name, folders) as folder:
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

    def write(self, name: str, content: bytes) -> None:
        """Put `content` under `name`: a reader sees the old file or the new one, never a part."""
        *folders, last = parts_of(name)
        if len(content) > MAX_FILE_BYTES:
            raise FileTooLarge(name, len(content))
        self._check_room(name, len(content))
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make(name, folders)
        with self._inside(name, folders) as folder:
            temporary = f".{secrets.token_hex(8)}.part"
            try:
                _write_new(temporary, content, folder)
                os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
            except OSError:
                _remove(temporary, folder)
                raise

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

    def _check_room(self, name: str, size: int) -> None:
        others = [entry for entry in self.entries() if entry.name != name]
        total = sum(entry.size for entry in others) + size
        if len(others) >= MAX_FILES or total > MAX_FOLDER_BYTES:
            raise FolderFull(len(others) + 1, total)

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
