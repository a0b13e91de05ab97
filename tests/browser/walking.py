"""What walks through the site in a browser share: sign in, launch a demonstration, approve, see how it ended."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ViewportSize, expect

from tests.stack import Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page


def sign_in(page: Page, link: str) -> None:
    """Follow a one-time link."""
    page.goto(link)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/runs/")


def launch_demonstration(page: Page, base: str, machine: str = "ruled") -> str:
    """Launch a machine's demonstration from the form; the run's number."""
    page.goto(f"{base}/runs/new/?demonstration={machine}")
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/\d+/"))
    found = re.search(r"/runs/(\d+)/", page.url)
    assert found is not None
    return found[1]


def rows_of(page: Page) -> list[int]:
    """The numbers of the rows that the page shows, in their order."""
    numbers: list[int] = page.eval_on_selector_all(
        "[data-timeline] > [data-seq]", "rows => rows.map(row => Number(row.dataset.seq))"
    )
    return numbers


def check_page(page: Page, context: str | None = None) -> None:
    """Nothing that axe complains of, in the page or a part of it, and nothing to scroll sideways for."""
    found = Axe().run(page, context=context).response["violations"]
    where = [(fault["id"], [node["html"][:200] for node in fault["nodes"]]) for fault in found]
    assert not where, f"{page.url}: {where}"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{page.url} is too wide"


def picture(page: Page, name: str) -> None:
    """A screenshot, where somebody wants them."""
    if where := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=str(Path(where) / f"{name}.png"), full_page=True)


def approve(page: Page) -> None:
    """Press the card's first button, once it is there."""
    button = page.locator("[data-approve]")
    expect(button).to_be_visible()
    button.click()


def reload_until_it_asks(page: Page) -> None:
    """A page without scripts is loaded again by its reader."""

    def asks() -> bool:
        page.reload()
        return page.locator("[data-card]").count() > 0

    wait_for(asks)


def check_ended(site: Site, page: Page, run: str) -> dict[str, Any]:
    """The page shows the answer and every row once and in order; the log verifies. Gives the export."""
    expect(page.locator('[data-panel="header"]')).to_contain_text("Finished")
    export = site.export(run)
    wait_for(lambda: rows_of(page) == list(range(1, export["run"]["head"] + 1)))
    expect(page.locator('[data-panel="answer"]')).to_contain_text(export["run"]["answer"])
    assert "steps verified" in site.manage("verify", run)
    return export


DESK = ViewportSize(width=1440, height=900)

PHONE = ViewportSize(width=360, height=740)


def check_looks(page: Page) -> None:
    """On a dark desk and on a light phone: nothing that axe complains of, nothing to scroll sideways for."""
    for size, scheme in ((DESK, "dark"), (PHONE, "light")):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = Axe().run(page).response["violations"]
        where = [(fault["id"], [node["html"][:200] for node in fault["nodes"]]) for fault in found]
        assert not where, f"{page.url}: {where}"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{page.url} is too wide"
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme=None)


SAVE = {
    "thought": "I save it.",
    "action": {"tool": "write_file", "args": {"name": "a.txt", "content": "42\n"}},
}

FINAL_42 = {"thought": "FINAL ANSWER: 42", "action": None}


def launch_save(site: Site, thought: str = "I save it.") -> str:
    """A run that wants to write a file, and asks first; its number."""
    save = SAVE | {"thought": thought}
    said = site.manage(
        *("launch", "--machine", "ruled", "--goal", "Keep the answer in a file"),
        *("--settings", json.dumps({"tools": ["write_file"], "limits": {"cost_usd": 1}})),
        *("--script", json.dumps({"replies": {"decision": [save, FINAL_42]}})),
    )
    found = re.search(r"\d+", said)
    assert found is not None, said
    return found[0]


WATCH = """
    addEventListener("securitypolicyviolation", event =>
        console.error("Content Security Policy:", event.violatedDirective, event.blockedURI));
"""
