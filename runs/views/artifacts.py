"""Pages of a run's artifacts: the list, one artifact, and its bytes, which are saved and never shown as a page."""

from __future__ import annotations

from pathlib import PurePosixPath

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from runs.adapters.folder import RunFolder
from runs.adapters.tool import ToolError
from runs.reading.artifacts import artifact_of, artifact_view, files_of, saved_name, saved_type
from runs.store.artifacts import artifact_bytes
from runs.store.creating import folder_of
from runs.views.requests import number_in, visible_run


@never_cache
@require_GET
def artifacts(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show all artifacts of the run; with `?name=` one whose name can't be part of a path."""
    if "name" in request.GET:
        return artifact(request, run_id, request.GET["name"])
    run = visible_run(request, run_id)
    return render(request, "runs/artifacts.html", {"run": run, "files": files_of(run)})


@never_cache
@require_GET
def artifact(request: HttpRequest, run_id: int, name: str) -> HttpResponse:
    """Show one artifact, by default its newest live version; `?as=file` gives its bytes."""
    run = visible_run(request, run_id)
    version = number_in(request, "version")
    found = artifact_of(run, name, version) if version or "version" not in request.GET else None
    if found is None:
        raise Http404("no such artifact")
    if request.GET.get("as") != "file":
        return render(request, "runs/artifact.html", {"run": run, "made": artifact_view(run, found)})
    content = artifact_bytes(found)
    if content is None:
        raise Http404("no such bytes")
    return _saved(content, saved_name(found), saved_type(found.media_type))


@never_cache
@require_GET
def file(request: HttpRequest, run_id: int, name: str) -> HttpResponse:
    """Send a file as it is in the run's directory."""
    run = visible_run(request, run_id)
    try:
        content = RunFolder(folder_of(run.pk)).read(name)
    except ToolError:
        raise Http404("no such file") from None
    return _saved(content, PurePosixPath(name).name, "application/octet-stream")


def _saved(content: bytes, name: str, media_type: str) -> HttpResponse:
    """Send bytes to save: whatever they are, no browser runs them on this site."""
    response = HttpResponse(content, content_type=media_type)
    response.headers["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return response
