"""Django's commands, and their refusals."""

import gc
import sys
from functools import partial
from typing import Any

from django.core.management import ManagementUtility, get_commands
from django.core.management.base import BaseCommand, CommandError, SystemCheckError


class Commands(ManagementUtility):
    """Prints only the sentence of a command's refusal; Django puts the name of a Python class before it."""

    def fetch_command(self, subcommand: str) -> BaseCommand:
        """Return one of our commands or of Django's. Ours run no configuration checks, which would load every page."""
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
        if options["traceback"] or isinstance(why, SystemCheckError):  # more than a sentence
            raise
        command.stderr.write(str(why))
        sys.exit(why.returncode)
