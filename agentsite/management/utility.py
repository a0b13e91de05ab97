"""Django's commands, and what they refuse."""

import gc
import sys
from functools import partial
from typing import Any

from django.core.management import ManagementUtility, get_commands
from django.core.management.base import BaseCommand, CommandError, SystemCheckError


class Commands(ManagementUtility):
    """Where a command refuses it prints its sentence alone; Django puts the name of a Python class before it."""

    def fetch_command(self, subcommand: str) -> BaseCommand:
        """Return one of ours or of Django's. Ours run no configuration checks, which would load every page."""
        command = super().fetch_command(subcommand)
        gc.freeze()  # what was loaded stays: no later collection looks at it
        gc.enable()
        if get_commands()[subcommand] in ("agentsite", "runs"):
            command.requires_system_checks = []
        command.execute = partial(_executed, command, command.execute)  # type: ignore[method-assign]
        return command


def _executed(command: BaseCommand, execute: Any, /, *args: Any, **options: Any) -> Any:
    try:
        return execute(*args, **options)
    except CommandError as why:
        if options["traceback"] or isinstance(why, SystemCheckError):  # which is more than a sentence
            raise
        command.stderr.write(str(why))
        sys.exit(why.returncode)
