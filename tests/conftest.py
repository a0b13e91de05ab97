"""What all tests share: the real site, the browser, and the rule for where there is no browser."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from agentsite.chromium import ARGUMENTS, HOW_TO_GET, find_chromium

HELPERS = (
    "artifacts",
    "commands",
    "compacting",
    "machines.laws",
    "pages",
    "prompts",
    "replaying",
    "running",
    "workers",
)
pytest.register_assert_rewrite(*(f"tests.{name}" for name in HELPERS))

settings.register_profile("quick", max_examples=20)
if settings.get_current_profile_name() == "default":
    settings.load_profile("quick")  # where CI is set, hypothesis takes its profile "ci": five times as many

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, StorageState

    from tests.stack import Site


def pytest_configure() -> None:
    """Collect no garbage while six thousand tests are gathered: it takes a third of that time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was gathered out of every later collection."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Chromium the browser tests are skipped with the reason; where CI is set they fail instead."""
    if find_chromium() is None and not os.environ.get("CI"):
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason=HOW_TO_GET))


@pytest.fixture(scope="session", autouse=True)
def _tables_are_emptied_quickly() -> Iterator[None]:
    """After a test the rows are deleted; Django's flush makes every content type and permission anew, each time.

    And the connection stays: a server's new process reads its catalogue again before it can answer.
    """
    from django.test import TransactionTestCase

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: _delete_all_rows())
        patch.setattr(TransactionTestCase, "_should_reload_connections", lambda case: False)
        yield


def _delete_all_rows() -> None:
    """Of all tables but those of content types and permissions, which a migrated database begins with."""
    from django.db import connection, transaction

    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    with transaction.atomic(), connection.cursor() as cursor:  # foreign keys are looked at when it ends
        for table in sorted({*tables} - {"django_content_type", "auth_permission"}):
            cursor.execute(f'DELETE FROM "{table}"')


@pytest.fixture
def every_run_verifies(transactional_db: None) -> Iterator[None]:
    """Check after the test that every run it leaves behind holds together."""
    from tests.running import check_everything

    yield
    check_everything()


@pytest.fixture
def no_glances(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process looks at the switch only when a test lets it, and not while a slice of the test runs."""
    monkeypatch.setattr("runs.driver.holds.GLANCE_S", 60.0)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Site"]:
    """The whole stack on a free port, one for all tests of the session."""
    from tests.stack import running_site

    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running
        running.manage("verify", "--all")


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator["Site"]:
    """A stack of the test's own, for tests that break it."""
    from tests.stack import running_site

    with running_site(tmp_path) as running:
        yield running
        running.manage("verify", "--all")


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """One headless Chromium."""
    from playwright.sync_api import expect, sync_playwright

    from tests.stack import LONGEST_S

    program = find_chromium()
    if program is None:
        pytest.fail(HOW_TO_GET)
    expect.set_options(timeout=LONGEST_S * 1000)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture
def browser_context(browser: "Browser", site: "Site") -> Iterator["BrowserContext"]:
    """A person's browser without cookies, at home on the shared site."""
    context = browser.new_context(base_url=site.url)
    yield context
    context.close()


@pytest.fixture
def page(browser_context: "BrowserContext") -> "Page":
    """One tab of it."""
    return browser_context.new_page()


@pytest.fixture(scope="session")
def admin_cookies(browser: "Browser", site: "Site") -> "StorageState":
    """What a browser keeps in which the administrator of the shared site has signed in, once for all tests."""
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    page.goto(site.fresh_link())
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/runs/")
    kept = context.storage_state()
    context.close()
    return kept


@pytest.fixture
def admin_page(browser: "Browser", site: "Site", admin_cookies: "StorageState") -> Iterator["Page"]:
    """A tab in which the administrator has signed in."""
    context = browser.new_context(base_url=site.url, storage_state=admin_cookies)
    yield context.new_page()
    context.close()
