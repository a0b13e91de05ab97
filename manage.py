#!/usr/bin/env python3
"""The project's one door: every command starts here, on a bare Python as well as inside the environment."""

import os
import sys
from pathlib import Path

from agentsite import bootstrap

READER_GONE = 141
"""What a shell gives for a command whose output nobody reads any more."""


def main() -> None:
    """Find or make the environment that has Django, then run the command there."""
    bootstrap.enter(Path(__file__).resolve().parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
    bootstrap.take_data_dir(sys.argv)
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(own_settings(sys.argv))
    except ImproperlyConfigured as why:
        sys.exit(f"{why}")
    except BrokenPipeError:  # whoever reads has read enough (`… | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_GONE)


def own_settings(argv: list[str]) -> list[str]:
    """`--settings` of launch and fork are the run's, where Django would take them for its own settings module."""
    if argv[1:2] not in (["launch"], ["fork"]):
        return argv
    named = "--run-settings"
    return [
        named + word.removeprefix("--settings") if word.split("=")[0] == "--settings" else word
        for word in argv
    ]


if __name__ == "__main__":
    main()
