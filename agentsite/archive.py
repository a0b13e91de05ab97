"""A backup as one file: a zip archive of tables as JSON lines, of the runs' directories, and of a manifest.

It is made under another name and renamed when it is whole. A restore reads and checks it in full before any change. The
site's secret key is not in it.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any

from django.conf import settings
from pydantic import ValidationError

from agentsite.supervise import sync_folder
from runs.engine.values import Value
from runs.failpoints import failpoint
from runs.models import UNFINISHED, Run
from runs.store import backups
from runs.store.db import snapshot

FORMAT = 1
MANIFEST = "manifest.json"
CHUNK = 1 << 20
_LEVEL = 1


class Part(Value):
    """One member of the archive."""

    sha256: str
    size: int
    """Bytes."""
    rows: int | None = None


class Manifest(Value):
    """The contents of a backup, their source, and the hash of each part."""

    format: int
    made_at: datetime
    migrations: tuple[str, ...]
    """The schema; only the same one can take it."""
    database: str
    """The kind of database it was read from; any kind can take it."""
    restore_epoch: str
    secret_key: str
    """Identifies the secret key that sealed the models' keys, without revealing it."""
    runs: int
    unfinished: int
    parts: dict[str, Part]


class BadBackup(Exception):
    """A file that is no whole backup of this version; nothing was changed."""

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path} can't be restored: {why} Nothing was changed.")


class FileThere(Exception):
    """A backup would replace a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} already exists. Name another file, or add --force to replace it.")


class FileInUse(Exception):
    """Two backups to one file at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"Another backup to {path} is running. Wait for it, or name another file.")


class AmongRuns(Exception):
    """A backup would contain itself, and the next restore would remove it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"{path} is in the runs' own directory, which the backup contains. Name another directory."
        )


def key_id() -> str:
    """Return an id of the site's secret key that does not reveal it."""
    slow = hashlib.pbkdf2_hmac("sha256", settings.SECRET_KEY.encode(), b"agentsite: which key", 200_000)
    return slow.hex()[:16]


def runs_dir() -> Path:
    """Return the directory of the runs' own directories."""
    return Path(settings.DATA_DIR) / "runs"


def _is_among_runs(place: Path) -> bool:
    """Return True if the place is the runs' directory or in it; links are followed."""
    if not place.exists() or not runs_dir().exists():
        return False
    real = place.resolve()
    return any(above.samefile(runs_dir()) for above in (real, *real.parents))


# --- out ----------------------------------------------------------------------------------------------------------


def write(path: Path, *, replaces: bool) -> Manifest:
    """Back up the site into `path`, while it works on. The file appears whole, or not at all."""
    if _is_among_runs(path.parent):
        raise AmongRuns(path)
    if path.exists() and not replaces:
        raise FileThere(path)
    draft = path.with_name(f".{path.name}.partial")
    with _own(draft, path) as file:
        manifest = _fill(file)
        file.flush()
        os.fsync(file.fileno())
        failpoint("backup_before_rename")
        if replaces:
            draft.replace(path)
        else:
            _link(draft, path)
    sync_folder(path.parent)
    return manifest


@contextmanager
def _own(draft: Path, path: Path) -> Iterator[IO[bytes]]:
    """Open the draft for this process alone, and remove it afterwards. A killed backup's draft is overwritten."""
    with os.fdopen(os.open(draft, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileInUse(path) from None
        file.truncate()
        try:
            yield file
        finally:
            draft.unlink(missing_ok=True)


def _link(draft: Path, path: Path) -> None:
    """Give the draft its name, unless another process has just made a file of that name."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise FileThere(path) from None
    except OSError:  # a file system without links
        draft.rename(path)


def _fill(file: IO[bytes]) -> Manifest:
    """Write the tables in one snapshot, then the files: every file named in a row exists, since changed files
    are kept."""
    parts: dict[str, Part] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        with snapshot(however_long=True):
            known = {
                "format": FORMAT,
                "made_at": datetime.now(UTC),
                "migrations": tuple(backups.migrations()),
                "database": backups.connection.vendor,
                "restore_epoch": backups.epoch_id(),
                "secret_key": key_id(),
                "runs": Run.objects.count(),
                "unfinished": Run.objects.filter(status__in=UNFINISHED).count(),
            }
            for table in backups.tables():
                parts[_member(table)] = _write_table(archive, table)
                failpoint("backup_after_table")
        for name, source in _files(runs_dir()):
            if (part := _write_file(archive, f"runs/{name}", source)) is not None:
                parts[f"runs/{name}"] = part
        manifest = Manifest(parts=parts, **known)
        archive.writestr(MANIFEST, manifest.model_dump_json(indent=1))
    return manifest


def _member(table: backups.Table) -> str:
    return f"tables/{table._meta.label_lower}.jsonl"


def _write_table(archive: zipfile.ZipFile, table: backups.Table) -> Part:
    digest, size, rows = hashlib.sha256(), 0, -1
    with archive.open(_member(table), "w", force_zip64=True) as member:
        for line in backups.lines_of(table):
            raw = line.encode("utf-8", "surrogatepass") + b"\n"
            digest.update(raw)
            size += len(raw)
            rows += 1
            member.write(raw)
    return Part(sha256=digest.hexdigest(), size=size, rows=rows)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield every plain file below the folder, by its name from there; links are not followed."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place) / name
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(folder).as_posix(), path


def _write_file(archive: zipfile.ZipFile, name: str, source: Path) -> Part | None:
    digest, size = hashlib.sha256(), 0
    try:
        file = source.open("rb")
    except FileNotFoundError:  # it was replaced at this moment
        return None
    with file, archive.open(name, "w", force_zip64=True) as member:
        while raw := file.read(CHUNK):
            digest.update(raw)
            size += len(raw)
            member.write(raw)
    return Part(sha256=digest.hexdigest(), size=size)


# --- in -----------------------------------------------------------------------------------------------------------


class Backup:
    """A checked backup: it is whole, of this schema, and every part has its hash."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, manifest: Manifest) -> None:
        self.path = path
        self.archive = archive
        self.manifest = manifest

    def lines(self, table: backups.Table) -> Iterator[str]:
        """Yield the lines of a table."""
        with self.archive.open(_member(table)) as member:
            yield from io.TextIOWrapper(member, "utf-8", "surrogatepass", newline="\n")

    def extract_files(self, folder: Path) -> None:
        """Extract the runs' directories into a new folder."""
        for name in self.manifest.parts:
            if name.startswith("runs/"):
                target = folder / name.removeprefix("runs/")
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with self.archive.open(name) as member, target.open("wb") as file:
                    while raw := member.read(CHUNK):
                        file.write(raw)


@contextmanager
def checked(path: Path) -> Iterator[Backup]:
    """Yield the backup in a file, read and checked in full; raises `BadBackup` for any fault."""
    with _opened(path) as file, _archive(path, file) as archive:
        manifest = _manifest(path, archive)
        _check(path, archive, manifest)
        yield Backup(path, archive, manifest)


def _opened(path: Path) -> IO[bytes]:
    """Open a plain file, unless the restore itself would remove it."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise BadBackup(path, "it is a directory.")
        if not stat.S_ISREG(kind):
            raise BadBackup(path, "it is not a regular file.")
        if _is_among_runs(path.parent) or _is_among_runs(path):
            raise BadBackup(
                path, "it is in the runs' own directory, which a restore replaces. Move it elsewhere first."
            )
        return path.open("rb")
    except FileNotFoundError:
        raise BadBackup(path, "the file does not exist.") from None
    except OSError as why:
        raise BadBackup(path, f"it can't be read: {why.strerror}.") from None


def _archive(path: Path, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except Exception:  # a damaged one raises not only BadZipFile
        raise BadBackup(path, "it is not a complete backup.") from None


def _manifest(path: Path, archive: zipfile.ZipFile) -> Manifest:
    try:
        text = b"".join(_pieces(path, archive, MANIFEST)) if MANIFEST in archive.namelist() else b""
        found: Any = json.loads(text)
    except ValueError:
        raise BadBackup(path, "it has no manifest, so it is not a backup of agentsite.") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BadBackup(path, "this version can't read its format.")
    try:
        return Manifest.model_validate_json(text)
    except ValidationError:
        raise BadBackup(path, "its manifest is damaged.") from None


def _check(path: Path, archive: zipfile.ZipFile, manifest: Manifest) -> None:
    wanted = {_member(table) for table in backups.tables()}
    held = set(archive.namelist()) - {MANIFEST}
    if held != set(manifest.parts) or len(archive.namelist()) != len(held) + 1:
        raise BadBackup(path, "its parts do not match its manifest.")
    if missing := sorted(wanted - held):
        raise BadBackup(path, f"it lacks {missing[0]}.")
    for name in sorted(held - wanted):
        if not name.startswith("runs/") or not _stays_inside(name):
            raise BadBackup(path, f"it holds {name}, which does not belong in a backup.")
    for name, part in manifest.parts.items():
        _check_part(path, archive, name, part)


def _stays_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return (
        name == "/".join(parts) and ".." not in parts and not any("\\" in one or "\0" in one for one in parts)
    )


def _check_part(path: Path, archive: zipfile.ZipFile, name: str, part: Part) -> None:
    digest, size = hashlib.sha256(), 0
    for raw in _pieces(path, archive, name):
        digest.update(raw)
        size += len(raw)
        if size > part.size:
            break
    if (digest.hexdigest(), size) != (part.sha256, part.size):
        raise BadBackup(path, f"its {name} does not match its manifest.")


def _pieces(path: Path, archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    """Yield the content of a part. Damage can look like anything: zlib's own error, encryption, an unknown
    compression."""
    try:
        with archive.open(name) as member:
            while raw := member.read(CHUNK):
                yield raw
    except Exception:
        raise BadBackup(path, f"its {name} is damaged.") from None
