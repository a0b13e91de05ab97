"""Models for administrators: profiles, where each begins, and tests that a worker makes."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from runs import actions
from runs.adapters.models.presets import PRESETS, Preset, preset_of
from runs.forms.model_profiles import SECTIONS, ProfilePage
from runs.models import ModelProfile
from runs.reading.model_profiles import ProfileView, profile_view, profile_views

OPEN = ("Model", "Key", "Size and effort")
"""The sections of the form that are not folded."""


@never_cache
@require_safe
def profiles(request: HttpRequest) -> HttpResponse:
    """Show all profiles with their states."""
    actions.check_models(request.user)
    return render(request, "runs/models.html", {"profiles": profile_views()})


@never_cache
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    """Show the presets, or the form that one fills; save a new profile."""
    actions.check_models(request.user)
    preset = preset_of(request.GET.get("preset", ""))
    if request.method == "POST":
        form = _form(request, ModelProfile(), preset)
        return _saved(request, form) if form.is_valid() else _adding(request, form, preset, status=422)
    if preset is None:
        return render(request, "runs/model_presets.html", {"presets": PRESETS})
    return _adding(request, ProfilePage(initial=preset.values, address_hint=preset.address_hint), preset)


@never_cache
@require_http_methods(["GET", "POST"])
def profile(request: HttpRequest, profile_id: int) -> HttpResponse:
    """Show one profile with its last test and its settings, or save the settings."""
    actions.check_models(request.user)
    found = get_object_or_404(ModelProfile, pk=profile_id)
    if request.method == "GET":
        return _page(request, found, ProfilePage(instance=found))
    form = _form(request, get_object_or_404(ModelProfile, pk=profile_id))
    return _saved(request, form) if form.is_valid() else _page(request, found, form, status=422)


@require_POST
def test(request: HttpRequest, profile_id: int) -> HttpResponse:
    """Have a worker test the profile."""
    found = get_object_or_404(ModelProfile, pk=profile_id)
    try:
        actions.have_tested(found, too_long="too_long" in request.POST, by=request.user)
    except actions.NotPossible as why:
        messages.error(request, why.sentence)
    return redirect("model", profile_id)


@require_POST
def choose(request: HttpRequest, profile_id: int) -> HttpResponse:
    """Take a model of the server's list."""
    actions.check_models(request.user)
    found = get_object_or_404(ModelProfile, pk=profile_id)
    name = request.POST.get("model", "")
    chosen = next((one for one in profile_view(found).offered if one.model_id == name), None)
    if chosen is None:
        messages.error(request, "Nothing was changed. The server's list has changed: choose again.")
    else:
        actions.choose_model(found, chosen, by=request.user)
        messages.success(request, f"{found.name} uses {chosen.model_id}. A worker tests it now.")
    return redirect("model", profile_id)


def _form(request: HttpRequest, found: ModelProfile, preset: Preset | None = None) -> ProfilePage:
    """Return the filled form."""
    return ProfilePage(request.POST, instance=found, address_hint=preset.address_hint if preset else "")


def _saved(request: HttpRequest, form: ProfilePage) -> HttpResponse:
    kept = form.save(commit=False)
    notes = actions.save_profile(kept, by=request.user)
    if kept.kind == ModelProfile.Kind.SCRIPT:
        messages.success(request, "Saved.")
    else:
        actions.have_tested(kept, too_long=False, by=request.user)
        messages.success(request, "Saved. A worker tests the connection now.")
    for note in notes:
        messages.warning(request, note)
    return redirect("model", kept.pk)


def _adding(
    request: HttpRequest, form: ProfilePage, preset: Preset | None, status: int = 200
) -> HttpResponse:
    values = preset.values if preset else {}
    view = profile_view(ModelProfile(kind=values.get("kind", "openai"), base_url=values.get("base_url", "")))
    context = {"form": form, "sections": _sections(form), "preset": preset, "view": view}
    return render(request, "runs/model_add.html", context, status=status)


def _page(request: HttpRequest, found: ModelProfile, form: ProfilePage, status: int = 200) -> HttpResponse:
    view: ProfileView = profile_view(found)
    context = {"view": view, "profile": found, "form": form, "sections": _sections(form)}
    return render(request, "runs/model.html", context, status=status)


def _sections(form: ProfilePage) -> list[dict[str, object]]:
    """Return the form's fields in their sections; one with an error is open."""
    return [
        {
            "title": title,
            "fields": [form[name] for name in names if name in form.fields],
            "is_open": title in OPEN or any(name in form.errors for name in names),
        }
        for title, names in SECTIONS
    ]
