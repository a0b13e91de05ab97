"""A run's artifacts, version after version.

A version's row is written with the step that declares it. A file's bytes lie in the run's own directory under their
SHA-256; any other artifact's bytes are the tool's result in the log. See docs/context.md, "Artifacts".
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Exists, Max, OuterRef, QuerySet

from runs.adapters.folder import MAX_NAME, FileNotThere, RunFolder
from runs.adapters.media import media_type_of
from runs.adapters.tool import ToolError
from runs.engine.artifacts import ArtifactDeclared, file_kind, part_of
from runs.engine.effects import Answer, MadeFile, ToolReturned
from runs.engine.facts import Fact, ToolReported
from runs.engine.values import Json, canonical, clean_text
from runs.machines import CATALOGUE
from runs.models import Artifact, Run, Step
from runs.store.creating import folder_of

LEFT_BEHIND_S = settings.LEASE_SECONDS / 2
"""Seconds without a write after which a part counts as left behind.

A killed worker's lease was renewed at most a quarter of its length before, and the next worker comes after its end.
Everything left behind is older than this by then.
"""

_IN_FILES = (Artifact.Kind.FILE, Artifact.Kind.DISPLAY)
"""Kinds whose bytes may lie only in the run's directory; the log has those of the others."""

_TEXTS = ("text/", "application/json", "application/xml", "image/svg+xml")


@dataclass(frozen=True, slots=True)
class Made:
    """A version to write."""

    name: str
    kind: str
    media_type: str
    size: int
    sha256: str
    error: str | None
    call_seq: int | None
    tool: str


# --- a step's artifacts ---------------------------------------------------------------------------------------------


def made_by(facts: Iterable[Fact], answer: Answer | None, call_seq: int | None) -> tuple[Made, ...]:
    """Return the artifacts named by these facts, each once; `answer` is that of the concluded call."""
    facts = tuple(facts)
    reported = next((fact for fact in facts if isinstance(fact, ToolReported)), None)
    if reported is None or not (reported.files or reported.outputs):
        return ()
    files = (
        {file.name: file for file in answer.files if file.sha256} if isinstance(answer, ToolReturned) else {}
    )
    declared = [fact for fact in facts if isinstance(fact, ArtifactDeclared)]
    made = {}
    for fact in declared:
        file = _file_behind(fact, declared, files)
        value = part_of(reported.value, reported.outputs, fact.name)
        made[row_name(fact.name)] = _made(fact, file, value, call_seq, reported.tool)
    for name in reported.files:
        if name in files and row_name(name) not in made:
            made[row_name(name)] = _file(
                files[name], file_kind(name), row_name(name), call_seq, reported.tool
            )
    return tuple(made.values())


def row_name(name: str) -> str:
    """Return its name in the database: a declared one may be longer than any row can hold."""
    name = clean_text(name)
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 17]}…{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _file_behind(
    fact: ArtifactDeclared, declared: list[ArtifactDeclared], files: dict[str, MadeFile]
) -> MadeFile | None:
    """Return the file of a declared artifact: the one of its name, else the one at its place if each has one."""
    if fact.artifact_kind != "file" or fact.error is not None:
        return None
    if fact.name in files:
        return files[fact.name]
    wanted = [one.name for one in declared if one.artifact_kind == "file"]
    return list(files.values())[wanted.index(fact.name)] if len(wanted) == len(files) else None


def _made(
    fact: ArtifactDeclared, file: MadeFile | None, value: Json, call_seq: int | None, tool: str
) -> Made:
    name = row_name(fact.name)
    if file is not None:
        return _file(file, fact.artifact_kind, name, call_seq, tool)
    content = b"" if fact.error is not None else content_of(value)
    told = isinstance(value, str) or not content
    media_type = media_type_of(name, content) if told else "application/json"
    digest = hashlib.sha256(content).hexdigest()
    return Made(name, fact.artifact_kind, media_type, len(content), digest, fact.error, call_seq, tool)


def _file(file: MadeFile, kind: str, name: str, call_seq: int | None, tool: str) -> Made:
    return Made(name, kind, file.media_type, file.size, file.sha256, None, call_seq, tool)


def content_of(value: Json) -> bytes:
    """Return the bytes of an artifact from a tool's result: text as it is, anything else in its canonical spelling."""
    if value is None:
        return b""
    text = value if isinstance(value, str) else canonical(value)
    return text.encode("utf-8", "replace")


def write_artifacts(run_id: int, made: Sequence[tuple[int, Made]]) -> None:
    """Write each as the next version of its name, in the transaction of its step and under the run's lease."""
    known = Artifact.objects.filter(run_id=run_id, name__in=[one.name for _, one in made])
    newest = Counter(dict(known.order_by().values_list("name").annotate(newest=Max("version"))))
    Artifact.objects.bulk_create(
        Artifact(
            run_id=run_id,
            seq=seq,
            name=one.name,
            version=_next(newest, one.name),
            kind=one.kind,
            media_type=one.media_type,
            size=one.size,
            sha256=one.sha256,
            error=one.error,
            call_seq=one.call_seq,
            tool=one.tool[:100],
        )
        for seq, one in made
    )


def _next(newest: Counter[str], name: str) -> int:
    newest[name] += 1
    return newest[name]


def clear_parts(run_id: int) -> None:
    """Remove unfinished parts that an earlier, killed worker left behind."""
    with suppress(OSError):  # a faulty directory is reported when it is needed
        RunFolder(folder_of(run_id)).clear_parts(LEFT_BEHIND_S)


_ROW_IS_LIVE = Exists(Step.objects.filter(run=OuterRef("run"), seq=OuterRef("seq"), live=True))


# --- reading --------------------------------------------------------------------------------------------------------


def artifacts_of(run: Run) -> QuerySet[Artifact]:
    """Return all versions of all names; `live` is False for those rolled back."""
    return Artifact.objects.filter(run=run).annotate(live=_ROW_IS_LIVE)


def live_artifacts_of(run: Run) -> QuerySet[Artifact]:
    """Return the versions that were not rolled back."""
    return Artifact.objects.filter(_ROW_IS_LIVE, run=run)


def newest_artifact(run: Run, name: str) -> Artifact | None:
    """Return the current version of the name: the newest on the live path."""
    return live_artifacts_of(run).filter(name=row_name(name)).order_by("-version").first()


def artifact_bytes(artifact: Artifact) -> bytes | None:
    """Return the bytes of a version; None if it failed, or they are no longer kept."""
    if artifact.error is not None:
        return None
    try:
        return RunFolder(folder_of(artifact.run_id)).kept(artifact.sha256)
    except (ToolError, OSError):
        return next((told for told in _told(artifact) if _is(artifact, told)), None)


def lost_artifacts(run: Run | None = None) -> Iterator[Artifact]:
    """Yield versions, of one run or of all, whose bytes are missing from both the run's directory and the log.

    A run of an unknown machine yields none.
    """
    made = Artifact.objects.filter(kind__in=_IN_FILES, error__isnull=True, run__machine__in=CATALOGUE)
    for artifact in (made if run is None else made.filter(run=run)).order_by("pk").iterator():
        if artifact_bytes(artifact) is None:
            yield artifact


def was_changed(lost: Artifact) -> bool:
    """Return True if a lost version's bytes were replaced by others; False if they are missing or unreadable."""
    try:
        RunFolder(folder_of(lost.run_id)).kept(lost.sha256)
    except (FileNotThere, OSError):
        return False
    except ToolError:
        return True
    return False


def _is(artifact: Artifact, content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == artifact.sha256


def _told(artifact: Artifact) -> Iterator[bytes]:
    """Yield the bytes that the log may have for it."""
    machine = CATALOGUE[artifact.run.machine]
    texts = Step.objects.filter(run=artifact.run_id, seq=artifact.seq).values_list("facts_json", flat=True)
    try:
        facts = [fact for text in texts for fact in machine.facts.validate_json(text)]
    except ValueError:  # `verify` reports it
        return
    for reported in facts:
        for fact in facts:
            if isinstance(reported, ToolReported) and isinstance(fact, ArtifactDeclared):
                yield content_of(part_of(reported.value, reported.outputs, fact.name))


def artifact_text(run: Run, name: str, version: int | None = None) -> str | None:
    """Return the text of an artifact, by default of its newest live version; None if there is none.

    A file from before versions were kept is read as it stands.
    """
    if version is not None:
        found = Artifact.objects.filter(run=run, name=row_name(name), version=version).first()
    else:
        found = newest_artifact(run, name)
        if found is None and not Artifact.objects.filter(run=run, name=row_name(name)).exists():
            return _unversioned(run, name)
    if found is None:
        return None
    if found.error is not None:
        return f"[It failed: {found.error}]"
    content = artifact_bytes(found)
    return None if content is None else _as_text(content, found.media_type)


def _unversioned(run: Run, name: str) -> str | None:
    try:
        content = RunFolder(folder_of(run.pk)).read(name)
    except (ToolError, OSError):
        return None
    return _as_text(content, media_type_of(name, content))


def _as_text(content: bytes, media_type: str) -> str:
    if media_type.startswith(_TEXTS):
        return clean_text(content.decode("utf-8", "replace"))
    return f"[{media_type}, {len(content)} bytes; not text]"
