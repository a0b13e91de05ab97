"""Build a run's ports from its settings: its model and its tools. Nothing else builds ports."""

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
    """A run's model can't be called from here; a retry would not help."""


class NoSuchModel(NoModel):
    """A run names a model that the site lacks, or has switched off."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The site has no model {name!r}, or it is switched off. Add it, switch it on, or name another."
        )


class ModelUnusable(NoModel):
    """The site has the model, but lacks the means to call it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The model {name!r} can't be called. {why}")


@dataclass(slots=True)
class Ports:
    """The model and the tools of one run."""

    model: ModelPort
    model_key: str
    """Model and parameters, as the cache of replies distinguishes them."""
    reads_prompt: bool
    guided: bool
    context_tokens: int | None
    """Tokens of a prompt that the model takes; None for no bound."""
    price: Price | None
    """Largest usage of one call; None if unknown beforehand."""
    tools: Toolbox
    next_use: Callable[[Role, int], Worst] | None = None
    """Usage of a role's call number n, if known exactly: a script's."""
    limits: turns.Limits | None = None
    """The model's limits for all workers together; None for no limit."""
    slow: bool = True
    """True if a call may take longer than a new connection to the database."""


def ports_of(run: Run) -> Ports:
    """Return the ports named by the run's settings."""
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
    model = ServedModel(served, remember=partial(remember, profile.pk))
    key = f"{profile.address} {profile.model_id} 0"
    if profile.seed is not None:
        key = f"{key} seed {profile.seed}"
    if profile.effort:
        key = f"{key} effort {profile.effort}"
    tokens, price, limits = prompt_tokens(profile), price_of(profile), turns.limits_of(profile)
    return Ports(model, key, True, profile.guided, tokens, price, tools, limits=limits)


def _fallback(run: Run, profile: ModelProfile) -> str:
    """Return the fallback of an unavailable model; empty if the run has none that it may call."""
    spare = profile.fallback
    if spare is None or why_not([spare.name]) or (not has_price(spare) and shared_limits.limits_cost(run)):
        return ""
    return spare.name


def price_of(profile: ModelProfile) -> Price:
    """Return the largest usage of one call of the model, at its prices."""
    return tariff_of(profile).worst(profile.max_output_tokens)


def tariff_of(profile: ModelProfile) -> Tariff:
    """Return the model's current prices."""
    return Tariff(profile.model_id, profile.address, **{name: getattr(profile, name) for name in PRICES})


def has_price(profile: ModelProfile) -> bool:
    """Return True if a limit on cost can hold calls of the model: it has prices, or its provider reports each cost."""
    return profile.kind == ModelProfile.Kind.OPENROUTER or tariff_of(profile).is_known


def prompt_tokens(profile: ModelProfile) -> int:
    """Return the model's context minus the room for its reply; at least half of it."""
    return max(profile.context_tokens - profile.max_output_tokens, profile.context_tokens // 2)


@lru_cache(maxsize=64)
def script_of(text: str) -> Script:
    """Return a script, read once for all the slices of its run."""
    return stored_script(text)


def load_libraries() -> None:
    """Load the libraries of the available models, so no run waits for it."""
    kinds = ModelProfile.objects.filter(enabled=True).exclude(kind=ModelProfile.Kind.SCRIPT)
    for kind in sorted(set(kinds.values_list("kind", flat=True))):
        load_library(cast("Kind", kind))


def without_price(name: str) -> str:
    """Return the first of a model and its fallbacks that has no price; empty if each has one."""
    profile, seen = ModelProfile.objects.filter(name=name).first(), set[int]()
    while profile is not None and profile.pk not in seen:
        seen.add(profile.pk)
        if profile.kind != ModelProfile.Kind.SCRIPT and not has_price(profile):
            return profile.name
        profile = profile.fallback
    return ""


def unfit_for(run: Run, name: str) -> str:
    """Return why the run can't go on with the model of that name; empty if it can."""
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
    """Return the models that can't be called from here, each with the reason."""
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
    """Return a model's profile as its adapter takes it; the key from its variable, else unsealed. Raises
    `ModelUnusable`."""
    try:
        return _model_settings(profile)
    except SecretUnreadable as fault:
        raise ModelUnusable(profile.name, str(fault)) from None
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ModelUnusable(profile.name, f"Correct its profile, {where}: {first['msg']}.") from None


def remember(profile: int, left_out: frozenset[str]) -> None:
    """Store the options refused by the profile's server, so no later call meets the refusal."""
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
            "effort": profile.effort,
            "seed": profile.seed,
            "left_out": frozenset(profile.left_out.split()),
        }
    )


def tool_specs(run: Run) -> dict[str, ToolSpec]:
    """Return every tool that the run knows of; those it may call are `permitted`."""
    return dict(_toolbox(run, script_of(run.script_json) if run.script_json else None).specs)


def _toolbox(run: Run, script: Script | None) -> Toolbox:
    """Return the tools named by the run's settings, its script and its machine."""
    machine = CATALOGUE[run.machine]
    wanted = machine.settings.model_validate_json(run.settings_json)
    folder = creating.folder_of(run.pk)
    fixed = [name for name, child in wanted.subgraphs.items() if child.at]
    of_servers, off = mcp.tools_named(wanted.tools)
    permitted = [name for name in wanted.tools if name not in off]
    box = partial(Toolbox, tools={**TOOLS, **of_servers}) if of_servers else Toolbox
    return box(permitted, folder, script, wanted.subgraphs, built_in=machine.built_in, fixed=fixed)
