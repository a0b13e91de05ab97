"""The banner of every page while the site is halted: one template, for first paint and socket."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.template import loader
from django.utils.safestring import SafeString

from runs.rights import Person, may_halt
from runs.store.halting import halt_now


@cache
def _template() -> Any:
    return loader.get_template("_halted.html")


def halt_banner(person: Person) -> SafeString:
    """Return the banner for `person`; empty if the site works."""
    halt = halt_now()
    if halt is None:
        return SafeString("")
    banner: SafeString = _template().render({"halt": halt, "may_halt": may_halt(person)})
    return banner
