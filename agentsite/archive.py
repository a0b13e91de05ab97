"""A backup as one file: a zip archive of tables as JSON lines, of the runs' directories, and of a manifest.

Made under another name and renamed when it is whole; read in full and checked before anything is changed by it.
The site's secret key is not in it.
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
    """What a backup holds, of what, and the hash of each part."""

    format: int
    made_at: datetime
    migrations: tuple[str, ...]
    """What the schema was; only the same one can take it."""
    database: str
    """Which kind it was read from; it may be restored into any."""
    restore_epoch: str
    secret_key: str
    """Tells which secret key sealed the keys of models, and nothing about it."""
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
    """A backup would take the place of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} is there already. Name another file, or say --force to replace it.")


class FileInUse(Exception):
    """Two backups to one file at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"Another backup to {path} is being made at this moment.")


class AmongRuns(Exception):
    """A backup would hold itself, and the next restore would remove it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"{path} is among the runs' own files, which the backup holds. Name a place elsewhere."
        )


def key_id() -> str:
    """Which secret key the site has; says nothing about the key."""
    slow = hashlib.pbkdf2_hmac("sha256", settings.SECRET_KEY.encode(), b"agentsite: which key", 200_000)
    return slow.hex()[:16]


def runs_dir() -> Path:
    """Where the runs' own directories are."""
    return Path(settings.DATA_DIR) / "runs"


def _is_among_runs(place: Path) -> bool:
    """Whether that is the runs' directory or something in it, by whatever name."""
    if not place.exists() or not runs_dir().exists():
        return False
    real = place.resolve()
    return any(above.samefile(runs_dir()) for above in (real, *real.parents))


# --- out ----------------------------------------------------------------------------------------------------------


def write(path: Path, *, replaces: bool) -> Manifest:
    """Back the site up into `path`, while it works on. The file is there whole, or not at all."""
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
    """The draft, for this process alone; gone afterwards. One that a killed backup left is written over."""
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
    """Under its name, unless somebody has just made another file of that name."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise FileThere(path) from None
    except OSError:  # a file system without links
        draft.rename(path)


def _fill(file: IO[bytes]) -> Manifest:
    """Tables in one snapshot, then files: whatever a row names is there, since files are kept when they are changed."""
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
    """Every plain file below the folder, by its name from there; links are not followed."""
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
    """A backup that was checked: it is whole, of this schema, and every part has its hash."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, manifest: Manifest) -> None:
        self.path = path
        self.archive = archive
        self.manifest = manifest

    def lines(self, table: backups.Table) -> Iterator[str]:
        """The lines of a table."""
        with self.archive.open(_member(table)) as member:
            yield from io.TextIOWrapper(member, "utf-8", "surrogatepass", newline="\n")

    def extract_files(self, folder: Path) -> None:
        """The runs' directories, into a new folder."""
        for name in self.manifest.parts:
            if name.startswith("runs/"):
                target = folder / name.removeprefix("runs/")
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with self.archive.open(name) as member, target.open("wb") as file:
                    while raw := member.read(CHUNK):
                        file.write(raw)


@contextmanager
def checked(path: Path) -> Iterator[Backup]:
    """The backup in a file, read and checked in full; `BadBackup` where anything is wrong with it."""
    with _opened(path) as file, _archive(path, file) as archive:
        manifest = _manifest(path, archive)
        _check(path, archive, manifest)
        yield Backup(path, archive, manifest)


def _opened(path: Path) -> IO[bytes]:
    """A plain file, and none that the restore itself would remove."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise BadBackup(path, "it is a folder.")
        if not stat.S_ISREG(kind):
            raise BadBackup(path, "it is no plain file.")
        if _is_among_runs(path.parent) or _is_among_runs(path):
            raise BadBackup(
                path, "it is among the runs' own files, which are replaced. Move it elsewhere first."
            )
        return path.open("rb")
    except FileNotFoundError:
        raise BadBackup(path, "there is no such file.") from None
    except OSError as why:
        raise BadBackup(path, f"it can't be read: {why.strerror}.") from None


def _archive(path: Path, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except Exception:  # on a damaged one not only BadZipFile
        raise BadBackup(path, "it is no backup, or only a part of one.") from None


def _manifest(path: Path, archive: zipfile.ZipFile) -> Manifest:
    try:
        text = b"".join(_pieces(path, archive, MANIFEST)) if MANIFEST in archive.namelist() else b""
        found: Any = json.loads(text)
    except ValueError:
        raise BadBackup(path, "it has no manifest, so it is no backup of agentsite.") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BadBackup(path, "its format is another one than this version reads.")
    try:
        return Manifest.model_validate_json(text)
    except ValidationError:
        raise BadBackup(path, "its manifest is damaged.") from None


def _check(path: Path, archive: zipfile.ZipFile, manifest: Manifest) -> None:
    wanted = {_member(table) for table in backups.tables()}
    held = set(archive.namelist()) - {MANIFEST}
    if held != set(manifest.parts) or len(archive.namelist()) != len(held) + 1:
        raise BadBackup(path, "it holds other parts than its manifest names.")
    if missing := sorted(wanted - held):
        raise BadBackup(path, f"it lacks {missing[0]}.")
    for name in sorted(held - wanted):
        if not name.startswith("runs/") or not _stays_inside(name):
            raise BadBackup(path, f"it holds {name}, which has no place here.")
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
        raise BadBackup(path, f"{name} in it is not what its manifest says.")


def _pieces(path: Path, archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    """What a part holds. Damage looks like anything: zlib's own error, an encrypted part, an unknown compression."""
    try:
        with archive.open(name) as member:
            while raw := member.read(CHUNK):
                yield raw
    except Exception:
        raise BadBackup(path, f"{name} in it is damaged.") from None
