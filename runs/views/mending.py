"""The context of a run as a page: the model's blocks, each prompt as it was sent, and people's changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from runs import actions
from runs.models import Run
from runs.reading.filling import filling_of, room_needed, sources_of
from runs.reading.inspector import ask_of
from runs.reading.mended import context_state
from runs.reading.prompt_views import ask_beside, prompt_view, prompts_of
from runs.store.mending import MOST_CHARACTERS
from runs.views.requests import number_in, visible_run


@dataclass(frozen=True)
class Typed:
    """A person's input for a form that was refused, and why."""

    form: str
    """The form: `compact`, `edit-SEQ` or `undo-SEQ`."""
    error: str
    text: str = ""
    reason: str = ""
    version: str = ""


@never_cache
@require_GET
def context(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show the contents of the window now; with `?step=` the prompt of one step."""
    run = visible_run(request, run_id)
    step = number_in(request, "step")
    if "step" not in request.GET:
        return _page(request, run)
    seq = ask_of(run, step) if step else None
    shown = prompt_view(run, seq) if seq else None
    if shown is None or seq is None:
        raise Http404("no prompt there")
    before, after = ask_beside(run, seq)
    about = {"run": run, "shown": shown, "filling": shown.filling, "before": before, "after": after}
    return render(request, "runs/prompt.html", about)


def _page(request: HttpRequest, run: Run, typed: Typed | None = None, status: int = 200) -> HttpResponse:
    state = context_state(run)
    about = {
        "run": run,
        "filling": filling_of(run),
        "sources": sources_of(run),
        "state": state,
        "needs": {view.seq: room_needed(run, view) for view in state.summaries},
        "prompts": prompts_of(run),
        "may_mend": actions.may_mend(request.user, run) and not run.finished,
        "typed": typed,
        "most": MOST_CHARACTERS,
    }
    return render(request, "runs/context.html", about, status=status)


@dataclass(frozen=True)
class _Deed:
    """A change, its message, and its form."""

    do: Callable[[], Any]
    said: str
    form: str
    kept: dict[str, str] = field(default_factory=dict)


def _done(request: HttpRequest, run: Run, deed: _Deed) -> HttpResponse:
    """Make the change and come back; show a refusal above the input."""
    try:
        deed.do()
    except actions.NotPossible as impossible:
        run.refresh_from_db()
        return _page(request, run, Typed(deed.form, impossible.sentence, **deed.kept), status=409)
    messages.success(request, deed.said)
    back = request.POST.get("next", "")
    if back.startswith("/") and url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        return HttpResponseRedirect(back)  # `redirect` would take it for the name of a page
    return redirect("context", run.pk)


@require_POST
def compact(request: HttpRequest, run_id: int) -> HttpResponse:
    """Request a compaction before the next model call."""
    run = visible_run(request, run_id)
    reason = request.POST.get("reason", "")
    said = "Compaction requested; it runs before the next model call."
    return _done(
        request,
        run,
        _Deed(
            lambda: actions.compact_now(run, by=request.user, reason=reason),
            said,
            "compact",
            {"reason": reason},
        ),
    )


@require_POST
def pin(request: HttpRequest, run_id: int) -> HttpResponse:
    """Pin a step, or a summary."""
    run = visible_run(request, run_id)
    path = request.POST.get("path", "")
    said = f"Pinned {path}. Compactions leave it in the prompt."
    return _done(request, run, _Deed(lambda: actions.pin(run, path=path, by=request.user), said, "pin"))


@require_POST
def unpin(request: HttpRequest, run_id: int) -> HttpResponse:
    """Remove a pin."""
    run = visible_run(request, run_id)
    path = request.POST.get("path", "")
    said = f"{path} unpinned."
    return _done(request, run, _Deed(lambda: actions.unpin(run, path=path, by=request.user), said, "pin"))


@require_POST
def edit(request: HttpRequest, run_id: int, seq: int) -> HttpResponse:
    """Replace a summary's text; the version that the person saw comes along."""
    run = visible_run(request, run_id)
    text = request.POST.get("text", "").replace("\r\n", "\n")
    reason, version = request.POST.get("reason", ""), request.POST.get("version", "")
    seen = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0

    def correct() -> None:
        actions.edit_summary(run, seq=seq, version=seen, text=text, reason=reason, by=request.user)

    said = f"Saved. The next prompt has version {seen + 1} of the summary of step {seq}."
    kept = {"text": text, "reason": reason, "version": version}
    return _done(request, run, _Deed(correct, said, f"edit-{seq}", kept))


@require_POST
def undo(request: HttpRequest, run_id: int, seq: int) -> HttpResponse:
    """Revert a summary."""
    run = visible_run(request, run_id)
    reason, version = request.POST.get("reason", ""), request.POST.get("version", "")
    seen = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0
    said = (
        f"Summary of step {seq} reverted. From the next prompt on, the model reads the original steps, as far as "
        "they fit its window."
    )
    return _done(
        request,
        run,
        _Deed(
            lambda: actions.undo_summary(run, seq=seq, reason=reason, by=request.user, version=seen),
            said,
            f"undo-{seq}",
            {"reason": reason, "version": version},
        ),
    )
