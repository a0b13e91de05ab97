"""The content security policy in a real browser: every page that links lead to keeps it, the admin's included."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import pytest
from django.urls import Resolver404, resolve
from playwright.sync_api import Error, expect

from tests.browser.walking import WATCH, sign_in
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Response

pytestmark = [pytest.mark.browser, pytest.mark.stack]

MOST_PAGES = 150
SAVE = {
    "thought": "I save **it**: ![x](https://evil.example/x.png) <img src=x onerror=alert(1)>",
    "action": {"tool": "write_file", "args": {"name": "a.txt", "content": "42\n"}},
}
FINAL = {"thought": "FINAL ANSWER: 42", "action": None}


class Walk:
    """A tab that goes from page to page, and notes what breaks the policy."""

    def __init__(self, page: Page, site: Site) -> None:
        self.page, self.site = page, site
        self.broken: list[str] = []
        self.routes: dict[str, str] = {}
        """Each route that was visited, with the address that stood for it."""
        page.add_init_script(WATCH)
        page.on("console", lambda said: self._heard(said.text))
        page.on("pageerror", lambda fault: self.broken.append(f"{page.url}: {fault}"))

    def _heard(self, text: str) -> None:
        if "Content Security Policy" in text or "Refused to" in text:
            self.broken.append(f"{self.page.url}: {text}")

    def visit(self, address: str) -> Response | None:
        """Look at a page; None where it is a download."""
        try:
            answer = self.page.goto(address)
        except Error as why:
            if "Download is starting" not in why.message:
                raise
            self._check_download(address)
            return None
        assert answer is not None
        _check_header(address, answer.headers.get("content-security-policy", ""))
        return answer

    def _check_download(self, address: str) -> None:
        answer = self.page.request.get(address)
        assert "attachment" in answer.headers["content-disposition"], address
        _check_header(address, answer.headers["content-security-policy"])

    def everywhere(self, *starts: str) -> None:
        """Visit one page of every route that links lead to."""
        waiting = list(starts)
        while waiting and len(self.routes) < MOST_PAGES:
            address = waiting.pop(0)
            route = self._route(address)
            if route is None or route in self.routes:
                continue
            self.routes[route] = address
            answer = self.visit(address)
            if answer is not None:
                assert answer.status < 500, address
                waiting += self._links()

    def _links(self) -> list[str]:
        found = self.page.eval_on_selector_all(
            "a[href], iframe[src]", "all => all.map(one => one.href || one.src)"
        )
        return [urljoin(self.page.url, str(link)) for link in found]

    def _route(self, address: str) -> str | None:
        """What kind of page it is; None where it is none of this site."""
        parts = urlsplit(address)
        if f"{parts.scheme}://{parts.netloc}" != self.site.url:
            return None
        try:
            found = resolve(parts.path)
        except Resolver404:
            return None
        return None if found.view_name == "sign-out" else found.route


def _check_header(address: str, policy: str) -> None:
    assert policy, f"{address} has no policy"
    for word in ("data:", "unsafe", "blob:", "*"):
        assert word not in policy, f"{address}: {policy}"


@pytest.fixture
def walk(page: Page, site: Site) -> Iterator[Walk]:
    """A tab that nothing may be refused in."""
    walk = Walk(page, site)
    yield walk
    assert walk.broken == []


def launch(site: Site, *replies: object) -> str:
    """A run that has written a file (or wants to); its number."""
    said = site.manage(
        *("launch", "--machine", "ruled", "--goal", "Keep the answer in a file"),
        *("--settings", json.dumps({"tools": ["write_file"]})),
        *("--script", json.dumps({"replies": {"decision": replies}})),
    )
    found = re.search(r"\d+", said)
    assert found is not None, said
    return found[0]


def test_no_page_breaks_the_policy(walk: Walk, site: Site, page: Page) -> None:
    walk.visit("/sign-in/")
    walk.visit(site.fresh_link())
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/runs/")
    run = launch(site, SAVE, FINAL)
    walk.visit(f"/runs/{run}/")
    expect(page.locator("[data-card]")).to_be_visible()
    card = page.locator("[data-card]").get_attribute("data-interrupt")
    walk.visit(f"/runs/{run}/rewind/?to=2")
    walk.visit(f"/interrupts/{card}/")
    page.get_by_role("button", name="Approve").first.click()
    walk.visit(f"/runs/{run}/")
    expect(page.locator(".answer__text")).to_have_text("42")
    starts = (
        f"runs/{run}/",
        f"runs/{run}/steps/2/",
        f"runs/{run}/export.json",
        "runs/new/",
        "runs/",
        "admin/",
    )
    walk.everywhere(*(f"{site.url}/{start}" for start in starts))
    assert walk.visit(f"{site.url}/nowhere/") is not None
    seen = {name for route in walk.routes if (name := route.split("/")[0])}
    assert {"runs", "needs-you", "admin"} <= seen
    assert len(walk.routes) > 20, sorted(walk.routes)


def test_the_policy_stops_a_mistake(browser_context: BrowserContext, site: Site) -> None:
    page = browser_context.new_page()
    walk = Walk(page, site)
    sign_in(page, site.fresh_link())
    page.evaluate(
        """() => {
            document.body.insertAdjacentHTML("beforeend",
                '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><p style="color: red" onclick="x()">'
                + '<img src="https://evil.example/x.png"><iframe src="https://evil.example/"></iframe>');
            const script = document.createElement("script");
            script.textContent = "window.mistake = true";
            document.body.append(script);
        }"""
    )
    expect(page.locator("iframe")).to_have_count(1)
    assert page.evaluate("window.mistake") is None
    heard = " ".join(walk.broken)
    for directive in ("img-src", "style-src", "script-src"):
        assert directive in heard, heard


def test_the_icons_show_in_every_scheme(browser_context: BrowserContext, site: Site) -> None:
    """Their drawings are files of this site: each mask is there, and coloured as the text."""
    page = browser_context.new_page()
    sign_in(page, site.fresh_link())
    drawings: list[str] = []
    page.on("response", lambda answer: drawings.append(f"{answer.status} {urlsplit(answer.url).path}"))
    page.goto("/runs/new/")
    page.wait_for_load_state("networkidle")
    icons = [one for one in drawings if "/icons/" in one]
    assert icons and all(one.startswith("200 ") for one in icons), icons
    look = "getComputedStyle(document.querySelector('.button .icon'))"
    for scheme, forced in (("light", "none"), ("dark", "none"), ("light", "active"), ("dark", "active")):
        page.emulate_media(color_scheme=scheme, forced_colors=forced)  # type: ignore[arg-type]
        assert "/icons/" in page.evaluate(f"{look}.maskImage")
        assert page.evaluate(f"{look}.backgroundColor") != "rgba(0, 0, 0, 0)"
