"""Find the browser of the tests, or install it."""

import os
import shutil
import subprocess
import sys

SHELL = "chromium-headless-shell"
"""Chromium without its own window, which takes two thirds of the tests' time."""

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
    """Return the program, if there is one."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


def get_chromium() -> str | None:
    """Return the program, installed first if possible without prompts."""
    if find_chromium() is None and sys.platform == "linux" and os.geteuid() == 0 and shutil.which("apt-get"):
        apt("update", "--quiet")
        for package in (SHELL, "chromium"):
            apt("install", "--quiet", "--yes", "--no-install-recommends", package)
            if find_chromium() is not None:
                break
    return find_chromium()


def apt(*arguments: str) -> None:
    """Run a package command without prompts."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(
        ["apt-get", *arguments], env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    )
