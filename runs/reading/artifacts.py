"""A run's artifacts as the pages show them: the list, one artifact with its versions, and downloads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from urllib.parse import urlencode

from django.urls import reverse

from runs.adapters.folder import MAX_PARTS, RunFolder
from runs.adapters.media import RASTER
from runs.adapters.tool import ToolError
from runs.engine.values import clean_text
from runs.models import Artifact, Run
from runs.reading.previews import Preview, preview_of
from runs.store.artifacts import artifact_bytes, artifacts_of
from runs.store.creating import folder_of

MOST_LISTED = 40
"""Artifacts listed on the run page; a page of their own has all."""
MOST_READ = 5_000
"""Versions of all artifacts counted in a list, newest first."""
MOST_VERSIONS = 100

_NUMBER = re.compile(r"([^0-9]*)([0-9]{0,18})")
"""The text before a number, and the number."""

_SUFFIX = {"application/json": ".json", "text/plain": ".txt"}


@dataclass(frozen=True)
class FileView:
    """An artifact in a list; or a file in the run's directory that no step made."""

    name: str
    url: str
    size: str
    kind: str = "file"
    versions: int = 0
    seq: int | None = None
    """The step that made it."""
    failed: bool = False
    gone: bool = False
    """True if only rolled-back steps made it: the file stays written."""
    on_disk: bool = False


@dataclass(frozen=True)
class VersionView:
    """One version in the version list."""

    version: int
    url: str
    size: str
    seq: int
    at: datetime
    live: bool
    failed: bool
    shown: bool


@dataclass(frozen=True)
class ArtifactView:
    """One version of an artifact, whole, with the others beside it."""

    name: str
    version: int
    kind: str
    media_type: str
    size: str
    exact_size: str
    sha256: str
    seq: int
    call_seq: int | None
    tool: str
    at: datetime
    error: str | None
    live: bool
    meant: bool
    """True if it is the current version of the name."""
    newest: VersionView | None
    """The current version of the name, if it is another one."""
    lost: bool
    """True if its bytes are no longer kept."""
    preview: Preview | None
    download: str
    versions: tuple[VersionView, ...]
    older: int
    """Versions that are not listed."""
    on_disk: str
    """How the file in the run's directory differs from the current version; empty if it does not."""


# --- lists ----------------------------------------------------------------------------------------------------------


def files_of(run: Run) -> list[FileView]:
    """Return all artifacts of the run, by name, and the files in its directory that no step made."""
    entries = {entry.name: entry.size for entry in RunFolder(folder_of(run.pk)).entries()}
    by_name: dict[str, list[Artifact]] = {}
    for artifact in artifacts_of(run).order_by("-pk")[:MOST_READ]:
        by_name.setdefault(artifact.name, []).append(artifact)
    views = [_listed(run, versions, on_disk=name in entries) for name, versions in by_name.items()]
    for name, size in entries.items():
        if name not in by_name:
            url = reverse("file", args=[run.pk, name])
            views.append(FileView(name, url, size_text(size), on_disk=True))
    return sorted(views, key=lambda view: natural(view.name))


def natural(name: str) -> tuple[list[tuple[str, int, str]], str]:
    """Return a sort key with numbers as numbers, so `out2` comes before `out10`."""
    parts = _NUMBER.findall(name)
    return [(text.casefold(), int(digits or -1), digits) for text, digits in parts], name


def _listed(run: Run, versions: list[Artifact], *, on_disk: bool) -> FileView:
    """Return the line of an artifact: of its newest live version, else of the newest."""
    live = [artifact for artifact in versions if _is_live(artifact)]
    shown = (live or versions)[0]
    return FileView(
        name=shown.name,
        url=artifact_url(run.pk, shown.name),
        size=size_text(shown.size),
        kind=shown.kind,
        versions=len(versions),
        seq=shown.seq,
        failed=shown.error is not None,
        gone=not live,
        on_disk=on_disk,
    )


def _is_live(artifact: Artifact) -> bool:
    live: bool = artifact.live  # type: ignore[attr-defined]  # annotated by `artifacts_of`
    return live


def artifact_url(run_id: int, name: str, **query: str | int) -> str:
    """Return the page of an artifact; a name that can't be part of a path goes into the query."""
    parts = name.split("/")
    plain = name.isprintable() and "\\" not in name and len(parts) <= MAX_PARTS
    if plain and not any(part in ("", ".", "..") for part in parts):
        address = reverse("artifact", args=[run_id, name])
    else:
        address, query = reverse("artifacts", args=[run_id]), {"name": name, **query}
    return f"{address}?{urlencode(query)}" if query else address


def size_text(size: int) -> str:
    """Return a number of bytes for people."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


# --- one artifact ---------------------------------------------------------------------------------------------------


def artifact_of(run: Run, name: str, version: int | None) -> Artifact | None:
    """Return a version of a name; without a number the newest live one, else the newest."""
    named = artifacts_of(run).filter(name=clean_text(name)).order_by("-version")
    if version is not None:
        return named.filter(version=version).first()
    versions = list(named)
    return next(filter(_is_live, versions), versions[0] if versions else None)


def artifact_view(run: Run, artifact: Artifact) -> ArtifactView:
    """Return the data of an artifact's page."""
    others = list(artifacts_of(run).filter(name=artifact.name).order_by("-version"))
    meant = next((one for one in others if _is_live(one)), None)
    content = artifact_bytes(artifact)
    preview = None if content is None else preview_of(content, artifact.media_type)
    return ArtifactView(
        name=artifact.name,
        version=artifact.version,
        kind=artifact.kind,
        media_type=artifact.media_type,
        size=size_text(artifact.size),
        exact_size=f"{artifact.size:,}",
        sha256=artifact.sha256,
        seq=artifact.seq,
        call_seq=artifact.call_seq,
        tool=artifact.tool,
        at=artifact.created_at,
        error=artifact.error,
        live=_is_live(artifact),
        meant=meant == artifact,
        newest=None if meant is None or meant == artifact else _version(run, meant, artifact),
        lost=content is None and artifact.error is None,
        preview=preview,
        download=artifact_url(run.pk, artifact.name, version=artifact.version, **{"as": "file"}),
        versions=tuple(_version(run, one, artifact) for one in others[:MOST_VERSIONS]),
        older=max(0, len(others) - MOST_VERSIONS),
        on_disk=_difference(run, artifact.name, others, meant),
    )


def _version(run: Run, artifact: Artifact, shown: Artifact) -> VersionView:
    return VersionView(
        version=artifact.version,
        url=artifact_url(run.pk, artifact.name, version=artifact.version),
        size=size_text(artifact.size),
        seq=artifact.seq,
        at=artifact.created_at,
        live=_is_live(artifact),
        failed=artifact.error is not None,
        shown=artifact == shown,
    )


def _difference(run: Run, name: str, versions: Iterable[Artifact], meant: Artifact | None) -> str:
    """Return how the file on disk differs from the current version: a rollback restores no file, for one."""
    try:
        content = RunFolder(folder_of(run.pk)).read(name)
    except (ToolError, OSError):
        return ""
    digest = hashlib.sha256(content).hexdigest()
    if meant is not None and meant.sha256 == digest:
        return ""
    held = next((one for one in versions if one.sha256 == digest and one.error is None), None)
    if held is None:
        what = "content that is not in the log"
    else:
        what = f"version {held.version}" + ("" if _is_live(held) else ", which was rolled back")
    return f"The file in the run’s directory holds {what}. Tools read that file."


def saved_name(artifact: Artifact) -> str:
    """Return the file name of a download: the last part of its name, without characters that a disk or a header
    rejects."""
    shown = "".join(char if char.isprintable() and char not in '\\:*?"<>|' else "_" for char in artifact.name)
    last = PurePosixPath(shown).name.strip(". ") or "artifact"
    return last if PurePosixPath(last).suffix else last + _SUFFIX.get(artifact.media_type, "")


def saved_type(media_type: str) -> str:
    """Return the type of a download: a raster picture's own, so a page can show it; else just bytes."""
    return media_type if media_type in RASTER else "application/octet-stream"
