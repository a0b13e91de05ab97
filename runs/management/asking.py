"""What the commands share: finding a run, reading JSON from a file or the line, and refusing in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from runs.models import Interrupt, Run

BAD_INPUT = 2
EXIT_CODES = {"succeeded": 0, "stopped": 3, "failed": 4, "cancelled": 5, "waiting": 6, "paused": 6}


def bad_input(sentence: str) -> CommandError:
    """The error that ends a command with exit code 2."""
    return CommandError(sentence, returncode=BAD_INPUT)


def run_of(text: str) -> Run:
    """The run that an argument names."""
    run = Run.objects.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 18 else None
    if run is None:
        raise bad_input(f"There is no run {text}.")
    return run


def interrupt_of(text: str) -> Interrupt:
    """The interrupt that an argument names."""
    try:
        return Interrupt.objects.select_related("run").get(pk=text)
    except (Interrupt.DoesNotExist, ValidationError):
        raise bad_input(f"There is no interrupt {text}.") from None


def json_of(text: str | None, what: str) -> Any:
    """JSON given on the line or as the name of a file; None where nothing was given."""
    if text is None:
        return None
    if not text.lstrip().startswith(("{", "[", '"')):
        path = Path(text)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise bad_input(f"{what}: {path} can't be read ({fault}). Give a file or JSON.") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise bad_input(f"{what} is no JSON: {fault}.") from None
