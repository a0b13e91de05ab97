"""Compactions: the summary beside the blocks that it replaces, and the forms to correct, pin, and revert it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs import actions
from runs.admin.parts import OfRunsAdmin, ReadableList, RunFilter, is_number
from runs.models import Compaction, Run
from runs.reading import words
from runs.reading.compactions import (
    STATES,
    CompactionView,
    DiffPiece,
    OriginalView,
    VersionView,
    compaction_view,
    compactions_of,
    in_state,
    word_diff,
)
from runs.reading.filling import room_needed

ORIGINALS = 100
"""Originals on one page."""

LINES, CHARACTERS = 12, 1_200
"""Of an original before it is folded."""

MOST_CHARACTERS = 20_000
"""Most characters of an original; the run's page has the whole."""

DIFFS = 20
"""Versions compared with the one before, the newest first."""


# --- the list -----------------------------------------------------------------------------------------------------


class StateFilter(admin.SimpleListFilter):
    """Filters by the state of the summary."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the states, in words."""
        return list(STATES.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Compaction]) -> QuerySet[Compaction]:
        """Return those in the state."""
        return in_state(queryset, self.value() or "") if self.value() in STATES else queryset


class CompactionList(ReadableList):
    """The list with the state of each, read for the whole page at once."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, each line with its view."""
        super().get_results(request)
        views = compactions_of({row.run_id: row.run.model_name for row in self.result_list})
        for row in self.result_list:
            row.view = views[row.run_id][row.seq]


@admin.register(Compaction)
class CompactionAdmin(OfRunsAdmin):
    """Summaries in place of older blocks; people with the right may change the model's context."""

    list_display = ("rows", "state", "page", "goal", "tokens", "versions", "when")
    list_filter = (StateFilter, RunFilter)
    list_select_related = ("run",)
    list_per_page = 50
    search_fields = ("=run__id", "run__goal")
    search_help_text = "A run's number, or words of its goal."
    ordering = ("-id",)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ReadableList]:
        """Return the list with views."""
        return CompactionList

    @admin.display(description="compaction", ordering="-id")
    def rows(self, row: Any) -> str:
        """Return the replaced steps."""
        return f"Run {row.run_id}, steps {row.view.first} to {row.view.last}"

    @admin.display(description="timeline")
    def page(self, row: Compaction) -> SafeString:
        """Return the link to the run's page; the run is named beside it, and the table is wide."""
        return format_html(
            '<a href="{}?step={}">Step {}</a>', reverse("run", args=[row.run_id]), row.seq, row.seq
        )

    @admin.display(description="goal")
    def goal(self, row: Compaction) -> str:
        """Return the goal's beginning."""
        return row.run.goal if len(row.run.goal) <= 60 else f"{row.run.goal[:59]}…"

    @admin.display(description="tokens")
    def tokens(self, row: Any) -> str:
        """Return the tokens before and after."""
        return f"{words.count(row.view.tokens_before)} → {words.count(row.view.tokens_after)}"

    @admin.display(description="version")
    def versions(self, row: Any) -> str:
        """Return the number of the current text."""
        return str(row.view.version)

    @admin.display(description="at", ordering="at")
    def when(self, row: Compaction) -> str:
        """Return the time, in a form that may wrap: the table is wide."""
        return f"{timezone.localtime(row.at):%Y-%m-%d %H:%M}"

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        """Return its state, in words."""
        return str(row.view.state_words)

    # --- one compaction -------------------------------------------------------------------------------------------

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the summary beside its originals; a posted form changes it."""
        compaction: Compaction | None = self.get_object(request, object_id)
        if compaction is None:
            messages.warning(request, "Compaction not found, or you may not see its run.")
            return redirect("admin:index")
        if not self.has_view_permission(request, compaction):
            raise PermissionDenied
        form = Form()
        if request.method == "POST":
            form = Form.posted(request)
            if form.sent(request, compaction):
                return redirect("admin:runs_compaction_change", compaction.pk)
        view = compaction_view(compaction.run, compaction.seq)
        assert view is not None
        context = {
            **self.admin_site.each_context(request),
            **_shown(view, request),
            **_offered_forms(request, compaction.run, view),
            "needs": room_needed(compaction.run, view),
            "title": f"Steps {view.first} to {view.last} of run {view.run_id}, summarised",
            "opts": self.opts,
            "run": compaction.run,
            "form": form,
            "text": form.text if form.kept else view.text,
            "against_mine": form.against(view),
        }
        return TemplateResponse(request, "admin/runs/compaction/change_form.html", context)


@dataclass
class Form:
    """A person's input in one of the forms of a compaction, and its fault."""

    deed: str = ""
    text: str = ""
    reason: str = ""
    version: str = ""
    path: str = ""
    fault: str = ""

    @classmethod
    def posted(cls, request: HttpRequest) -> Form:
        """Return the form as it came in; with plain line ends."""
        names = ("deed", "text", "reason", "version", "path")
        return cls(*(request.POST.get(name, "").replace("\r\n", "\n") for name in names))

    @property
    def kept(self) -> bool:
        """Return True if the text of a correction is to be shown again."""
        return self.deed == "correct"

    def against(self, view: CompactionView) -> list[DiffPiece]:
        """Return the difference of a correction against a newer version, if there is one."""
        met_newer = self.kept and self.fault and self.version != str(view.version)
        return word_diff(view.text, self.text) if met_newer else []

    def sent(self, request: HttpRequest, compaction: Compaction) -> bool:
        """Make the change, and say so; a refusal is kept in `fault`."""
        deed = DEEDS.get(self.deed)
        if deed is None:
            self.fault = "The form names no action. Reload the page."
            return False
        if self.deed in ("correct", "undo") and not is_number(self.version):
            self.fault = "The form names no version. Reload the page."
            return False
        try:
            said = deed(compaction.run, compaction.seq, self, request.user)
        except actions.NotPossible as fault:
            self.fault = str(fault)
            return False
        messages.success(request, said)
        return True


def _correct(run: Run, seq: int, form: Form, by: Any) -> str:
    after = actions.edit_summary(
        run, seq=seq, version=int(form.version), text=form.text, reason=form.reason, by=by
    )
    return f"Saved as version {after}; the model reads it from the next prompt on."


def _undo(run: Run, seq: int, form: Form, by: Any) -> str:
    actions.undo_summary(run, seq=seq, reason=form.reason, by=by, version=int(form.version))
    return "Reverted; from the next prompt on, the model reads the original steps, as far as they fit its window."


def _pin(run: Run, seq: int, form: Form, by: Any) -> str:
    actions.pin(run, path=form.path, by=by, reason=form.reason)
    return f"Pinned {form.path}: compactions leave it in the prompt."


def _unpin(run: Run, seq: int, form: Form, by: Any) -> str:
    actions.unpin(run, path=form.path, by=by, reason=form.reason)
    return f"Unpinned {form.path}; the next compaction may take it."


DEEDS: dict[str, Callable[[Run, int, Form, Any], str]] = {
    "correct": _correct,
    "undo": _undo,
    "pin": _pin,
    "unpin": _unpin,
}


def _offered_forms(request: HttpRequest, run: Run, view: CompactionView) -> dict[str, Any]:
    """Return the offered forms, and why others are not."""
    mends = actions.may_mend(request.user, run)
    why_not = ""
    if not mends:
        why_not = "You can view this but not change it: that needs the right to change compactions."
    elif run.finished:
        why_not = "The run has ended: a change would have no effect."
    elif not view.stands:
        why_not = f"This summary can no longer be changed: {view.state_words}."
    open_run = mends and not run.finished
    return {
        "may_change": open_run and view.stands,
        "may_pin_rows": open_run and not view.dead,
        "may_compact": open_run,
        "why_not": why_not,
    }


# --- its display --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folded:
    """One original: its beginning, and the rest behind a fold."""

    original: OriginalView
    beginning: str
    rest: str
    lines: int
    """Lines of the rest."""
    left_out: int
    """Characters beyond what a page shows."""


@dataclass(frozen=True)
class Changed:
    """A version, and its changes against the one before; none for the first one, and for old ones."""

    version: VersionView
    diff: list[DiffPiece]


def _shown(view: CompactionView, request: HttpRequest) -> dict[str, Any]:
    page = Paginator(view.originals, ORIGINALS).get_page(request.GET.get("part"))
    carried_on, carries_on = view.carried_on_by, view.carries_on
    ids = dict(
        Compaction.objects.filter(run_id=view.run_id, seq__in=[carried_on or 0, carries_on or 0]).values_list(
            "seq", "pk"
        )
    )
    return {
        "view": view,
        "originals": [_folded(original) for original in page],
        "part": page,
        "count": len(view.originals),
        "changed": _changed(view),
        "later_id": ids.get(carried_on or 0),
        "earlier_id": ids.get(carries_on or 0),
        "saved": max(0, view.tokens_before - view.tokens_after),
    }


def _folded(original: OriginalView) -> Folded:
    text = original.text[:MOST_CHARACTERS]
    lines = text.splitlines(keepends=True)
    beginning = "".join(lines[:LINES])[:CHARACTERS]
    rest = text[len(beginning) :]
    return Folded(
        original, beginning, rest, rest.count("\n") + 1, max(0, len(original.text) - MOST_CHARACTERS)
    )


def _changed(view: CompactionView) -> list[Changed]:
    """Return the versions, newest first."""
    found: list[Changed] = []
    before: VersionView | None = None
    oldest_compared = len(view.versions) - DIFFS
    standing: dict[bool, VersionView] = {}
    for place, version in enumerate(view.versions):
        before = standing.get(True) if version.live else standing.get(False, standing.get(True))
        compared = before is not None and place >= oldest_compared
        found.append(Changed(version, word_diff(before.text, version.text) if compared and before else []))
        standing[version.live] = version
    return found[::-1]


# --- compact now --------------------------------------------------------------------------------------------------


def compact_now(request: HttpRequest, run: Run, site: admin.AdminSite) -> HttpResponse:
    """Show the page that requests a compaction before the run's next model call."""
    reason = request.POST.get("reason", "").replace("\r\n", "\n")
    fault = ""
    if request.method == "POST":
        try:
            actions.compact_now(run, by=request.user, reason=reason)
        except actions.NotPossible as why:
            fault = str(why)
        else:
            messages.success(request, "Compaction requested; it runs before the next model call.")
            return redirect("admin:runs_run_change", run.pk)
    elif not actions.may_mend(request.user, run):
        raise PermissionDenied
    context = {
        **site.each_context(request),
        "title": f"Compact the context of run {run.pk}",
        "opts": Run._meta,
        "run": run,
        "reason": reason,
        "fault": fault,
    }
    return TemplateResponse(request, "admin/runs/run/compact.html", context)


def run_links(request: HttpRequest, run: Run) -> dict[str, Any]:
    """Return the links about a run's context for its page in the admin."""
    found = Compaction.objects.filter(run=run).count()
    address = f"{reverse('admin:runs_compaction_changelist')}?run={run.pk}"
    return {
        "agent_run": run,
        "compactions": format_html('<a href="{}">{}</a>', address, words.plural(found, "compaction")),
        "may_compact": not run.finished and actions.may_mend(request.user, run),
    }
