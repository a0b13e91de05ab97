"""Write one file in an open directory atomically: beside its place, moved into it, and taken out again.

See docs/context.md, "Artifacts".
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress

from runs.failpoints import failpoint

PART = re.compile(r"\.[0-9a-f]{16}\.part")
"""A file in writing, or waiting to be put back; a process that dies in the middle leaves it behind."""

_NO_SECOND_NAMES = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV)


def new_part() -> str:
    """Return an unused name."""
    return f".{secrets.token_hex(8)}.part"


def put(last: str, content: bytes, folder: int) -> None:
    """Write `content` beside, and move it into its place when it is safe."""
    part = new_part()
    try:
        write_new(part, content, folder)
        move(part, last, folder)
    except OSError:
        remove(part, folder)
        raise


def write_new(name: str, content: bytes, folder: int) -> os.stat_result:
    """Write a new file to the disk; return its stat, which identifies it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno())


def move(part: str, last: str, folder: int) -> None:
    """Move a written part into its place, in one step."""
    failpoint("inside_put")
    os.rename(part, last, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def set_aside(last: str, folder: int) -> str:
    """Give the file `last` a second name, and return that; empty if there is no file."""
    spare = new_part()
    try:
        if not named_too(last, spare, folder, folder):
            os.rename(last, spare, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        return ""
    return spare


def named_too(last: str, other: str, folder: int, there: int) -> bool:
    """Give a file a second name, in the open directory `there`; False if the disk has none to give."""
    try:
        os.link(last, other, src_dir_fd=folder, dst_dir_fd=there, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_SECOND_NAMES:
            raise
        return False
    return True


def put_back(last: str, spare: str, mine: os.stat_result, folder: int) -> None:
    """Put a set-aside file back in its place, or remove the place's file if there was none before.

    Only if the file there is `mine`, or none: another worker's later write stays.
    """
    stands = stat_of(last, folder)
    if stands is not None and not os.path.samestat(stands, mine):
        return
    if spare:
        os.rename(spare, last, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        remove(last, folder)
    os.fsync(folder)


def stat_of(last: str, folder: int) -> os.stat_result | None:
    """Return the stat of the file, or of the link itself; None if there is none."""
    try:
        return os.stat(last, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def remove(name: str, folder: int) -> None:
    """Remove a file, if there is one."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
