"""A staff reviewer decides each kind of question in the admin, in a browser, on the whole stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import pytest
from playwright.sync_api import expect

from tests.browser.walking import WATCH, check_page, sign_in
from tests.stack import Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, StorageState, ViewportSize

pytestmark = [pytest.mark.browser, pytest.mark.stack]

PHONE: ViewportSize = {"width": 360, "height": 740}
DESK: ViewportSize = {"width": 1440, "height": 900}

PEOPLE = """
from django.contrib.auth.models import Group, User
rita = User.objects.create_user("rita", is_staff=True)
rita.groups.set([Group.objects.get(name="reviewers")])
"""
ASK = """
from django.conf import settings
settings.HINTS = False  # no worker of the site is told of it before it has asked
from tests.asking import asking
from tests.running import pending
for kind in {kinds!r}:
    run = asking(kind)
    print("asked", kind, run.pk, pending(run).pk)
"""


class Deed(NamedTuple):
    """A question, what a reviewer fills in and presses, and the verdict that is recorded."""

    kind: str
    verdict: str
    fill: tuple[tuple[str, str], ...] = ()
    """Names of fields and what is written there."""
    opened: tuple[str, ...] = ()
    """The folds that are opened first, the outer one before the inner."""
    button: str = ""
    """The value of the button, where it is another than the verdict."""


REASON = ("reason", "Not now.")
ANSWER = ("answer", "They are at noon.")
DEEDS = (
    Deed("tool_call", "approve"),
    Deed("tool_call", "edit", (("arg.to", "ann"),), button="approve"),
    Deed("tool_call", "reject", (REASON,), ("card-reject",)),
    Deed("tool_call", "respond", (ANSWER,), ("card-respond",)),
    Deed("tool_call", "abort", (), ("card-more", "card-cancel")),
    Deed("question", "respond", (ANSWER,)),
    Deed("limit", "top_up", (("amount.cost_usd", "0.5"),)),
    Deed("limit", "finish"),
    Deed("every_n_steps", "resume"),
    Deed("manual", "resume"),
    Deed("plan", "approve"),
    Deed("plan", "reject", (REASON,), ("card-reject",)),
    Deed("human_approval", "approve"),
    Deed("human_approval", "reject", (REASON,), ("card-reject",)),
    Deed("may_have_happened", "approve"),
    Deed("may_have_happened", "respond", (ANSWER,), ("card-respond",)),
    Deed("may_have_happened", "reject", (REASON,), ("card-reject",)),
)


@pytest.fixture(scope="module")
def rita(browser: Browser, site: Site) -> StorageState:
    """What the browser of a member of staff keeps who is in the group `reviewers` only."""
    site.manage("shell", "-c", PEOPLE)
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    sign_in(page, site.fresh_link("rita"))
    kept = context.storage_state()
    context.close()
    return kept


@pytest.fixture(params=["desk light", "phone dark"])
def staff(request: pytest.FixtureRequest, browser: Browser, site: Site, rita: StorageState) -> Iterator[Page]:
    """Her tab, on a desk or a phone; nothing in it breaks the policy."""
    size, scheme = request.param.split()
    colours: Literal["dark", "light"] = "dark" if scheme == "dark" else "light"
    context = browser.new_context(
        base_url=site.url,
        storage_state=rita,
        viewport=PHONE if size == "phone" else DESK,
        color_scheme=colours,
    )
    page, broken = context.new_page(), []
    page.add_init_script(WATCH)
    page.on("console", lambda said: broken.append(said.text) if "Security Policy" in said.text else None)
    page.on("pageerror", lambda fault: broken.append(str(fault)))
    yield page
    context.close()
    assert broken == []


def asked(site: Site, *kinds: str) -> list[str]:
    """New runs that ask these; the admin's address of each question."""
    said = site.manage("shell", "-c", ASK.format(kinds=kinds))
    return [f"/admin/runs/interrupt/{key}/change/" for key in re.findall(r"asked \w+ \d+ (\S+)", said)]


def press(card: Locator, deed: Deed) -> None:
    """Fill in what belongs to the deed, and press its button."""
    for fold in deed.opened:
        card.locator(f"#{fold} > summary").click()
    for name, text in deed.fill:
        card.locator(f"[name='{name}']").fill(text)
    if card.locator("[name=sure]").count():
        card.locator("[name=sure]").check()
    card.locator(f"button[name=verdict][value='{deed.button or deed.verdict}']").click()


def test_a_reviewer_of_the_staff_decides_each_kind_of_question(site: Site, staff: Page) -> None:
    on_phone = staff.viewport_size == PHONE
    one_of_each = tuple({deed.kind: deed for deed in DEEDS}.values())
    deeds = one_of_each if on_phone else DEEDS
    for deed, address in zip(deeds, asked(site, *(deed.kind for deed in deeds)), strict=True):
        staff.goto(address)
        card = staff.locator("[data-card]")
        expect(card.locator(".card__you")).to_have_text("waiting for you")
        if deed in one_of_each:
            check_page(staff, ".in-admin")
        press(card, deed)
        expect(staff.locator(".messagelist")).to_contain_text("Recorded:")
        expect(staff.locator(".card__outcome")).to_contain_text("by rita in the admin")
        if deed in one_of_each:
            check_page(staff, ".in-admin")
        staff.locator(".object-tools a", has_text="Decision").click()
        expect(staff.locator(".field-verdict")).to_contain_text(deed.verdict)
        expect(staff.locator(".field-channel")).to_contain_text("admin")


def test_a_rollback_is_confirmed_in_sight_of_what_stays_done(site: Site, staff: Page) -> None:
    (address,) = asked(site, "tool_call")
    staff.goto(address)
    card = staff.locator("[data-card]")
    press(card, Deed("tool_call", "respond", (ANSWER,), ("card-respond",)))
    expect(staff.locator(".card__outcome")).to_be_visible()
    (address,) = asked(site, "tool_call")
    staff.goto(address)
    card.locator("#card-more > summary").click()
    card.locator("button[value=rollback]").click()
    expect(card.locator("#to_step-wrong")).to_have_text("Choose a step to roll back to.")
    check_page(staff, ".in-admin")
    row = card.locator("#to_step option").nth(1).get_attribute("value")
    card.locator("#to_step").select_option(row)
    card.locator("button[value=rollback]").click()
    if card.locator("[name=stays_done]").count():
        check_page(staff, ".in-admin")
        card.locator("[name=stays_done]").check()
        card.locator("button[value=rollback]").click()
    expect(staff.locator(".card__outcome")).to_contain_text("by rita in the admin")


def test_a_conflict_and_a_refusal_come_back_on_the_card(site: Site, staff: Page) -> None:
    (address,) = asked(site, "tool_call")
    staff.goto(address)
    card = staff.locator("[data-card]")
    card.locator("[name='arg.n']").fill("many")
    card.locator("[name=sure]").check()
    card.locator("[data-approve]").click()
    expect(card.locator("[name='arg.n']")).to_have_attribute("aria-invalid", "true")
    expect(card.locator("[name='arg.n']")).to_have_value("many")
    check_page(staff, ".in-admin")
    staff.goto(address)
    other = staff.context.new_page()
    other.goto(address)
    press(other.locator("[data-card]"), Deed("tool_call", "reject", (REASON,), ("card-reject",)))
    expect(other.locator(".card__outcome")).to_be_visible()
    press(card, Deed("tool_call", "respond", (("answer", "My own words."),), ("card-respond",)))
    expect(card.get_by_role("alert")).to_contain_text("rita rejected this")
    expect(card).to_contain_text("My own words.")
    check_page(staff, ".in-admin")


def test_the_card_works_in_the_admin_without_a_script(
    browser: Browser, site: Site, rita: StorageState
) -> None:
    (address,) = asked(site, "tool_call")
    context = browser.new_context(base_url=site.url, storage_state=rita, java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    press(page.locator("[data-card]"), Deed("tool_call", "edit", (("arg.to", "ann"),), button="approve"))
    expect(page.locator(".card__outcome")).to_contain_text("Approved with changes")
    context.close()


def test_a_limit_that_is_raised_in_the_admin_lets_the_run_go_on(site: Site, staff: Page) -> None:
    (address,) = asked(site, "limit")
    staff.goto(address)
    staff.locator(".object-tools a", has_text="and its budget").click()
    expect(staff.locator(".budget")).to_contain_text("$0.002 of $0.0015 used")
    run = re.search(r"/run/(\d+)/", staff.url)
    assert run is not None
    staff.locator(".budget a", has_text="Raise limit").click()
    press(staff.locator("[data-card]"), Deed("limit", "top_up", (("amount.cost_usd", "0.5"),)))
    expect(staff.locator(".messagelist")).to_contain_text("Recorded:")
    wait_for(lambda: site.export(run[1])["run"]["status"] == "succeeded")
