#!/usr/bin/env python3
"""The project's one door: every command starts here, on a bare Python as well as inside the environment."""

import gc
import os
import sys
from pathlib import Path

from agentsite import bootstrap

READER_GONE = 141
"""What a shell gives for a command whose output nobody reads any more."""


def main() -> None:
    """Find or make the environment that has Django, then run the command there.

    Until the command is loaded no garbage is collected: almost nothing is, and it takes a fifth of the time.
    """
    gc.disable()
    bootstrap.enter(Path(__file__).resolve().parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
    bootstrap.take_data_dir(sys.argv)
    from django.core.exceptions import ImproperlyConfigured

    from agentsite.management.utility import Commands
    from agentsite.stopped import STOPPED, sentence_of

    try:
        try:
            Commands(own_settings(sys.argv)).execute()
        finally:
            sys.stdout.flush()  # what has no place to go is noticed here, and not after the exit code is told
    except BrokenPipeError:  # whoever reads has read enough (`… | head`)
        print_no_more()
        sys.exit(READER_GONE)
    except ImproperlyConfigured as why:
        sys.stderr.write(f"{why}\n")
        sys.exit(STOPPED)
    except Exception as fault:
        sentence = sentence_of(fault)
        if sentence is None or "--traceback" in sys.argv:
            raise
        print_no_more()
        sys.stderr.write(f"{sentence}\n")
        sys.exit(STOPPED)


def print_no_more() -> None:
    """What could not be printed is dropped: the interpreter would try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def own_settings(argv: list[str]) -> list[str]:
    """`--settings` of these commands are the run's, where Django would take them for its own settings module."""
    if argv[1:2] not in (["launch"], ["fork"], ["continue"]):
        return argv
    named = "--run-settings"
    return [
        named + word.removeprefix("--settings") if word.split("=")[0] == "--settings" else word
        for word in argv
    ]


if __name__ == "__main__":
    main()
