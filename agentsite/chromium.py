"""Where the browser of the tests is, and how to get it."""

import os
import shutil
import subprocess
import sys

SHELL = "chromium-headless-shell"
"""Chromium without the parts of its own window, which cost the tests two thirds of their time."""

NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW_TO_GET = (
    "The browser tests need Chromium, which was not found. On Debian or Ubuntu: apt-get install chromium. "
    "Elsewhere install Chromium or Chrome and set CHROMIUM to its program."
)
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
)


def find_chromium() -> str | None:
    """The program, if there is one."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


def get_chromium() -> str | None:
    """The program, installed first where that can be done without asking anybody."""
    if find_chromium() is None and sys.platform == "linux" and os.geteuid() == 0 and shutil.which("apt-get"):
        apt("update", "--quiet")
        for package in (SHELL, "chromium"):
            apt("install", "--quiet", "--yes", "--no-install-recommends", package)
            if find_chromium() is not None:
                break
    return find_chromium()


def apt(*arguments: str) -> None:
    """A package command that never asks."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(
        ["apt-get", *arguments], env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    )
