"""Builds the world of a run from its settings: its model and its tools. Nothing else builds ports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import cast

from django.conf import settings
from pydantic import ValidationError

from runs.adapters.models import Kind, ModelSettings, ServedModel, how_to_add, load_library, missing_package
from runs.adapters.prices import Tariff
from runs.adapters.scripted import Script, ScriptedModel, stored_script
from runs.adapters.secrets import SecretUnreadable, unseal
from runs.adapters.toolbox import Toolbox
from runs.adapters.tools import TOOLS
from runs.driver import mcp
from runs.engine.effects import Role
from runs.engine.ports import ModelPort
from runs.engine.snapshot import Price, Worst
from runs.engine.tools import ToolSpec
from runs.machines import CATALOGUE
from runs.models import KEY_VARIABLE, ModelProfile, Run
from runs.store import creating, shared_limits, turns

PRICES = ("input_price", "output_price", "cached_price", "cache_write_price", "reasoning_price")
"""Fields of a profile, in USD per million tokens."""


class NoModel(Exception):
    """A run's model can't be called from here; trying again would not help."""


class NoSuchModel(NoModel):
    """A run names a model that the site does not have, or has switched off."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no model {name!r} here, or it is switched off. Add it or switch it on, or name another."
        )


class ModelUnusable(NoModel):
    """The site has the model, but not what is needed to call it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The model {name!r} can't be called. {why}")


@dataclass(slots=True)
class Ports:
    """The world of one run."""

    model: ModelPort
    model_key: str
    """Model and parameters, as far as the cache of replies tells them apart."""
    reads_prompt: bool
    guided: bool
    context_tokens: int | None
    """Tokens of a prompt that the model takes; None where nothing bounds them."""
    price: Price | None
    """What one call may use at most; None where that is not known beforehand."""
    tools: Toolbox
    next_use: Callable[[Role, int], Worst] | None = None
    """What call number n of a role will use, where that is known exactly: a script's."""
    limits: turns.Limits | None = None
    """How much all workers together may call the model; None where they may as much as they like."""
    slow: bool = True
    """Whether a call may take longer than to open a connection to the database anew."""


def ports_of(run: Run) -> Ports:
    """The ports that the run's settings name."""
    script = script_of(run.script_json) if run.script_json else None
    tools = _toolbox(run, script)
    if script is not None:
        played = ScriptedModel(script, begun=bool(run.copied_upto))
        slow = script.pace.model_s > 0 or script.pace.tool_s > 0
        return Ports(played, "script", False, False, None, None, tools, played.next_use, slow=slow)
    profile = ModelProfile.objects.filter(name=run.model_name, enabled=True).first()
    if profile is None:
        raise NoSuchModel(run.model_name)
    served = model_settings(profile).model_copy(update={"fallback": _fallback(run, profile)})
    model = ServedModel(served, remember=partial(_remember, profile.pk))
    key = f"{profile.address} {profile.model_id} 0"
    if profile.seed is not None:
        key = f"{key} seed {profile.seed}"
    tokens, price, limits = prompt_tokens(profile), price_of(profile), turns.limits_of(profile)
    return Ports(model, key, True, profile.guided, tokens, price, tools, limits=limits)


def _fallback(run: Run, profile: ModelProfile) -> str:
    """Return the model that takes over where this one stays away; empty where the run has none that it may call."""
    spare = profile.fallback
    if spare is None or why_not([spare.name]) or (not has_price(spare) and shared_limits.limits_cost(run)):
        return ""
    return spare.name


def price_of(profile: ModelProfile) -> Price:
    """What one call of the model may use at most, by the prices that it is charged by."""
    return tariff_of(profile).worst(profile.max_output_tokens)


def tariff_of(profile: ModelProfile) -> Tariff:
    """Return the prices that hold for the model."""
    return Tariff(profile.model_id, profile.address, **{name: getattr(profile, name) for name in PRICES})


def has_price(profile: ModelProfile) -> bool:
    """Return whether a limit on cost can hold calls of the model: it has prices, or its provider tells each cost."""
    return profile.kind == ModelProfile.Kind.OPENROUTER or tariff_of(profile).is_known


def prompt_tokens(profile: ModelProfile) -> int:
    """What is left of the model's context once its reply has room; at least half of it."""
    return max(profile.context_tokens - profile.max_output_tokens, profile.context_tokens // 2)


@lru_cache(maxsize=64)
def script_of(text: str) -> Script:
    """A script, read once for all the slices of its run."""
    return stored_script(text)


def load_libraries() -> None:
    """Load the libraries of the models that runs may call now, so that no run's own time goes into it."""
    kinds = ModelProfile.objects.filter(enabled=True).exclude(kind=ModelProfile.Kind.SCRIPT)
    for kind in sorted(set(kinds.values_list("kind", flat=True))):
        load_library(cast("Kind", kind))


def without_price(name: str) -> str:
    """Return the first of a model and its fallbacks that has no price; empty where each has one."""
    profile, seen = ModelProfile.objects.filter(name=name).first(), set[int]()
    while profile is not None and profile.pk not in seen:
        seen.add(profile.pk)
        if profile.kind != ModelProfile.Kind.SCRIPT and not has_price(profile):
            return profile.name
        profile = profile.fallback
    return ""


def unfit_for(run: Run, name: str) -> str:
    """Return why the run can't go on with the model of that name; empty where it can."""
    if why := why_not([name]).get(name, ""):
        return why
    return no_price(unpriced) if (unpriced := without_price(name)) and shared_limits.limits_cost(run) else ""


def no_price(name: str) -> str:
    """Return why a limit on cost can't hold with this model, and the ways out."""
    return (
        f"The model “{name}” has no price, so a limit on cost would never be reached. Enter its prices in its "
        "profile (0 for a free model), set a limit on tokens instead, or choose another model."
    )


def why_not(names: Iterable[str]) -> dict[str, str]:
    """Those of the models that can't be called from here, each with the reason."""
    wanted = set(names)
    profiles = {found.name: found for found in ModelProfile.objects.filter(name__in=wanted, enabled=True)}
    found = {}
    for name in wanted:
        try:
            if name not in profiles:
                raise NoSuchModel(name)
            model_settings(profiles[name])
        except NoModel as fault:
            found[name] = str(fault)
    return found


def model_settings(profile: ModelProfile) -> ModelSettings:
    """A model's profile as its adapter takes it; the key from its variable, else unsealed. Raises `ModelUnusable`."""
    try:
        return _model_settings(profile)
    except SecretUnreadable as fault:
        raise ModelUnusable(profile.name, str(fault)) from None
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ModelUnusable(profile.name, f"Mend its profile, {where}: {first['msg']}.") from None


def _remember(profile: int, left_out: frozenset[str]) -> None:
    """Keep the options that the profile's server refused, so that no later call meets the refusal."""
    ModelProfile.objects.filter(pk=profile).update(left_out=" ".join(sorted(left_out)))


def _model_settings(profile: ModelProfile) -> ModelSettings:
    if missing_package(profile.kind):
        why = f"The library for {profile.get_kind_display()} is not installed. {how_to_add(profile.kind)}"
        raise ModelUnusable(profile.name, why)
    key, variable = "", profile.key_variable
    if variable and not KEY_VARIABLE.fullmatch(variable):
        why = f"Rename its key variable, {variable!r}, to AGENTSITE_KEY_…, in the environment and in its profile."
        raise ModelUnusable(profile.name, f"Keys come from no other variables. {why}")
    if variable:
        key = os.environ.get(variable, "")
    if not key and profile.sealed_key:
        key = unseal(profile.sealed_key, settings.SECRET_KEY)
    return ModelSettings.model_validate(
        {
            "name": profile.name,
            "kind": profile.kind,
            "base_url": profile.address,
            "model_id": profile.model_id,
            "api_key": key,
            "output_mode": profile.output_mode,
            **{name: getattr(profile, name) for name in PRICES},
            "context_tokens": profile.context_tokens,
            "max_output_tokens": profile.max_output_tokens,
            "timeout_s": profile.timeout_s,
            "patience_s": profile.patience_s,
            "guided": profile.guided,
            "seed": profile.seed,
            "left_out": frozenset(profile.left_out.split()),
        }
    )


def tool_specs(run: Run) -> dict[str, ToolSpec]:
    """Every tool that the run knows of; those it may call are `permitted`."""
    return dict(_toolbox(run, script_of(run.script_json) if run.script_json else None).specs)


def _toolbox(run: Run, script: Script | None) -> Toolbox:
    """The tools that the run's settings, its script and its machine name."""
    machine = CATALOGUE[run.machine]
    wanted = machine.settings.model_validate_json(run.settings_json)
    folder = creating.folder_of(run.pk)
    fixed = [name for name, child in wanted.subgraphs.items() if child.at]
    of_servers, off = mcp.tools_named(wanted.tools)
    permitted = [name for name in wanted.tools if name not in off]
    box = partial(Toolbox, tools={**TOOLS, **of_servers}) if of_servers else Toolbox
    return box(permitted, folder, script, wanted.subgraphs, built_in=machine.built_in, fixed=fixed)
