"""The run page in a real browser on the real stack: what it shows while things go wrong around it."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.live.browsing import call, launch, rows_are_complete
from tests.stack import Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route, ViewportSize, WebSocketRoute

pytestmark = [pytest.mark.browser, pytest.mark.stack]


ASK = {"rules": [{"when": {"tool": "*"}, "do": "ask"}]}
PHONE: "ViewportSize" = {"width": 360, "height": 740}
DESK: "ViewportSize" = {"width": 1440, "height": 600}
NEEDS_HAS_THE_FOCUS = "document.activeElement === document.querySelector('[data-panel=needs]')"


def waiting(site: Site, page: "Page", *before: dict[str, Any]) -> tuple[str, str]:
    """A run that asks whether it may send, shown in the page; its id and the interrupt's."""
    run = launch(site, *before, call("send", to="ann", text="hello"))
    page.goto(f"{site.url}/runs/{run}/")
    expect(page.locator("[data-card]")).to_be_visible()
    interrupt = page.locator("[data-card]").get_attribute("data-interrupt")
    assert interrupt is not None
    return run, interrupt


def no_socket(page: "Page") -> None:
    """A network that lets no socket through."""
    page.route_web_socket(re.compile("/ws/runs/"), lambda socket: socket.close())


def test_approving_says_sending_recorded_resumed_and_the_page_goes_on(site: Site, admin_page: "Page") -> None:
    run, _ = waiting(site, admin_page)
    expect(admin_page).to_have_title(re.compile(r"^\(\d+\) "))
    admin_page.get_by_role("checkbox", name=re.compile("I have read")).check()
    admin_page.get_by_role("button", name="Approve").click()
    expect(admin_page.locator("[data-panel=needs]")).to_contain_text("Recorded")
    expect(admin_page.locator("[data-panel=needs]")).to_contain_text(re.compile(r"Resumed at step \d+"))
    expect(admin_page.locator("[data-panel=answer]")).to_contain_text("done")
    expect(admin_page.locator("[data-panel=needs]")).to_be_empty()
    expect(admin_page.locator("[data-live-state]")).to_have_attribute("data-live-state", "ended")
    rows_are_complete(site, admin_page, run)


def two_questions(site: Site, page: "Page") -> tuple[str, str]:
    """A run that asks twice, each time about a call that wants no tick; its id and the first interrupt's."""
    run = launch(site, call("note", text="hello"), call("note", text="bye"), settings=ASK)
    page.goto(f"{site.url}/runs/{run}/")
    card = page.locator("[data-card]")
    expect(card).to_contain_text("hello")
    return run, card.get_attribute("data-interrupt") or ""


def test_a_click_in_the_moment_in_which_the_next_question_comes_does_not_decide_it(
    site: Site, admin_page: "Page"
) -> None:
    run, first = two_questions(site, admin_page)
    expect(admin_page.get_by_role("button", name="Approve")).to_be_enabled()
    admin_page.evaluate(
        """first => {
            window.clicked = 0;
            new MutationObserver(() => {
                const card = document.querySelector("[data-card]");
                const button = card?.querySelector("button[value=approve]");
                if (!button || card.dataset.interrupt === first || window.clicked > 0) return;
                window.clicked += 1;
                button.click();
                button.form.dispatchEvent(
                    new SubmitEvent("submit", { submitter: button, bubbles: true, cancelable: true })
                );
            }).observe(document.querySelector("[data-panel=needs]"), { childList: true, subtree: true });
        }""",
        first,
    )
    sent: list[str] = []
    admin_page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    site.manage("decide", first, "--verdict", "approve")
    card, approve = admin_page.locator("[data-card]"), admin_page.get_by_role("button", name="Approve")
    expect(card).to_contain_text("bye")
    expect(approve).to_be_enabled()
    assert admin_page.evaluate("window.clicked") == 1
    assert sent == []
    assert site.export(run)["interrupts"][1]["status"] == "pending"
    approve.click()
    expect(admin_page.locator("[data-panel=answer]")).to_contain_text("done")


def test_after_ones_own_answer_the_next_question_comes_soon_and_below_what_was_recorded(
    site: Site, admin_page: "Page"
) -> None:
    two_questions(site, admin_page)
    needs, card = admin_page.locator("[data-panel=needs]"), admin_page.locator("[data-card]")
    admin_page.evaluate(
        """() => {
            const needs = document.querySelector("[data-panel=needs]");
            const rows = document.querySelector("[data-rows]");
            const news = { childList: true, subtree: true, characterData: true };
            new MutationObserver(() => {
                const said = /Recorded/.test(needs.textContent), asked = /bye/.test(needs.textContent);
                if (said && !asked) window.recordedAt ??= performance.now();
                if (asked) window.nextAt ??= performance.now();
            }).observe(needs, news);
            new MutationObserver(() => {
                if (/bye/.test(rows.textContent)) window.knownAt ??= performance.now();
            }).observe(rows, news);
        }"""
    )
    admin_page.get_by_role("button", name="Approve").click()
    expect(card).to_contain_text("bye")
    expect(needs.locator(".outcome + [data-card]")).to_be_visible()
    expect(needs.locator(".outcome")).to_contain_text(re.compile(r"Recorded\. Resumed at step \d+"))
    assert admin_page.evaluate("window.nextAt - window.recordedAt") > 900  # milliseconds
    assert admin_page.evaluate("window.nextAt - window.knownAt") < 3500
    admin_page.get_by_role("button", name="Approve").click()
    expect(admin_page.locator("[data-panel=answer]")).to_contain_text("done")
    expect(needs).to_be_empty()


def test_a_mistake_comes_back_beside_its_field_and_the_text_is_kept(site: Site, admin_page: "Page") -> None:
    run, _ = waiting(site, admin_page)
    admin_page.locator("[data-argument=text] :is(input, textarea)").fill("hello and welcome")
    admin_page.get_by_role("button", name=re.compile("^Approve with 1 change")).click()
    expect(admin_page.locator("[aria-invalid=true]")).to_be_focused()
    expect(admin_page.locator("[data-argument=text] :is(input, textarea)")).to_have_value("hello and welcome")
    assert site.export(run)["interrupts"][0]["status"] == "pending"
    admin_page.get_by_role("checkbox", name=re.compile("I have read")).check()
    admin_page.get_by_role("button", name=re.compile("^Approve")).click()
    expect(admin_page.locator("[data-panel=answer]")).to_contain_text("done")
    assert site.export(run)["interrupts"][0]["decisions"][0]["args"] == {
        "to": "ann",
        "text": "hello and welcome",
    }


def test_what_is_being_typed_stays_when_somebody_else_decides(site: Site, admin_page: "Page") -> None:
    _, interrupt = waiting(site, admin_page)
    admin_page.get_by_text("Reject…").click()
    admin_page.get_by_role("textbox", name=re.compile("Reason")).fill("not before noon")
    site.manage("decide", interrupt, "--verdict", "approve")
    kept = admin_page.get_by_role("textbox", name="What you typed")
    expect(kept).to_have_value("not before noon")


def test_what_was_being_typed_stays_through_all_news_until_it_has_been_read(
    site: Site, admin_page: "Page"
) -> None:
    first, second = (call("send", to="ann", text=text) for text in ("hello", "bye"))
    run = launch(site, first, second)
    admin_page.goto(f"{site.url}/runs/{run}/")
    card, needs = admin_page.locator("[data-card]"), admin_page.locator("[data-panel=needs]")
    expect(card).to_contain_text("hello")
    admin_page.get_by_text("Reject…").click()
    admin_page.get_by_role("textbox", name=re.compile("Reason")).fill("not before noon")
    site.manage("decide", card.get_attribute("data-interrupt") or "", "--verdict", "approve")
    expect(card).to_contain_text("bye")
    kept = admin_page.get_by_role("textbox", name="What you typed")
    expect(kept).to_have_value("not before noon")
    site.manage("decide", card.get_attribute("data-interrupt") or "", "--verdict", "approve")
    expect(admin_page.locator("[data-live-state]")).to_have_attribute("data-live-state", "ended")
    expect(card).to_have_count(0)
    expect(kept).to_have_value("not before noon")
    needs.get_by_role("button", name="Dismiss").click()
    expect(needs).to_be_empty()


def test_whoever_is_late_learns_who_was_first_and_keeps_the_text(site: Site, admin_page: "Page") -> None:
    no_socket(admin_page)
    _, interrupt = waiting(site, admin_page)
    admin_page.get_by_text("Reject…").click()
    admin_page.get_by_role("textbox", name=re.compile("Reason")).fill("not before noon")
    site.manage("decide", interrupt, "--verdict", "approve")
    admin_page.get_by_role("button", name="Reject", exact=True).click()
    needs = admin_page.locator("[data-panel=needs]")
    expect(needs.get_by_role("alert")).to_contain_text("approve")
    expect(needs).to_contain_text("not before noon")
    admin_page.get_by_role("button", name="Dismiss").click()
    expect(needs).not_to_contain_text("not before noon")


def test_whoever_is_late_sees_the_next_question_at_once_beside_the_conflict(
    site: Site, admin_page: "Page"
) -> None:
    held: list[Any] = []
    run = launch(site, *(call("send", to="ann", text=text) for text in ("hello", "bye")))
    admin_page.goto(f"{site.url}/runs/{run}/")
    card, needs = admin_page.locator("[data-card]"), admin_page.locator("[data-panel=needs]")
    expect(card).to_contain_text("hello")
    admin_page.get_by_text("Reject…").click()
    admin_page.get_by_role("textbox", name=re.compile("Reason")).fill("not before noon")
    admin_page.route("**/decision/", lambda route: held.append(route))
    admin_page.get_by_role("button", name="Reject", exact=True).click()
    wait_for(lambda: admin_page.title() and len(held) == 1)
    site.manage("decide", card.get_attribute("data-interrupt") or "", "--verdict", "approve")
    wait_for(lambda: len(site.export(run)["interrupts"]) == 2)
    held[0].continue_()
    expect(needs.get_by_role("alert")).to_contain_text("the operator approved this at")
    expect(needs).to_contain_text("not before noon")
    expect(card).to_contain_text("bye")
    expect(card.get_by_role("heading", name="Run send?")).to_be_in_viewport()
    needs.get_by_role("button", name="Dismiss").click()
    expect(needs).not_to_contain_text("not before noon")
    expect(card).to_contain_text("bye")


def test_without_any_cookie_the_text_stays_and_goes_out_after_a_sign_in_in_another_tab(
    site: Site, admin_page: "Page"
) -> None:
    admin_page.set_viewport_size(PHONE)
    no_socket(admin_page)
    run, _ = waiting(site, admin_page)
    admin_page.get_by_text("Reject…").click()
    reason = admin_page.get_by_role("textbox", name=re.compile("Reason"))
    reason.fill("not before noon")
    admin_page.context.clear_cookies()
    admin_page.get_by_role("button", name="Reject", exact=True).click()
    complaint = admin_page.locator("[data-complaint]")
    expect(complaint).to_contain_text("Sign in in another tab")
    expect(complaint).to_be_in_viewport(ratio=1)
    expect(reason).to_have_value("not before noon")
    with admin_page.context.new_page() as other:
        other.goto(site.fresh_link())
        other.get_by_role("button", name="Sign in").click()
        other.wait_for_url("**/runs/")
    admin_page.get_by_role("button", name="Reject", exact=True).click()
    expect(admin_page.locator("[data-panel=needs]")).to_contain_text("Recorded")
    assert "not before noon" in site.manage("export", run)


def test_a_page_without_a_socket_polls(site: Site, admin_page: "Page") -> None:
    no_socket(admin_page)
    run, interrupt = waiting(site, admin_page)
    site.manage("decide", interrupt, "--verdict", "approve")
    expect(admin_page.locator("[data-panel=answer]")).to_contain_text("done")
    expect(admin_page.locator("[data-live-word]")).to_have_text("every few seconds")
    rows_are_complete(site, admin_page, run)


def test_rows_that_are_gone_back_over_are_dimmed_in_open_pages(site: Site, admin_page: "Page") -> None:
    run = launch(site, call("look_up", q="a"), call("look_up", q="b"), call("send", to="ann"))
    admin_page.goto(f"{site.url}/runs/{run}/")
    expect(admin_page.locator("[data-card]")).to_be_visible()
    back = next(row["seq"] for row in site.export(run)["steps"] if row["kind"] == "transition")
    site.manage("rollback", run, "--to", str(back))
    rewind = admin_page.locator("[data-rows] > [data-rewind-to]")
    expect(rewind).to_have_attribute("data-rewind-to", str(back))
    wait_for(lambda: site.export(run)["run"]["status"] == "waiting")
    expect(admin_page.locator("[data-card]")).to_be_visible()
    rows_are_complete(site, admin_page, run)
    live = {str(row["seq"]): str(row["live"]).lower() for row in site.export(run)["steps"]}
    assert live == admin_page.locator("[data-rows] > [data-seq]").evaluate_all(
        "rows => Object.fromEntries(rows.map(row => [row.dataset.seq, row.dataset.live]))"
    )
    assert "false" in live.values()


def test_a_click_shows_a_step_beside_and_keeps_the_tab(site: Site, admin_page: "Page") -> None:
    waiting(site, admin_page)
    rows = admin_page.locator("[data-rows] > [data-seq]:visible")
    rows.nth(0).locator("a").click()
    inspector = admin_page.locator("[data-inspector]")
    inspector.get_by_role("tab", name="Usage").click()
    admin_page.keyboard.press("j")
    expect(inspector.get_by_role("tab", name="Usage")).to_have_attribute("aria-selected", "true")
    chosen = admin_page.locator("[data-rows] > [data-selected=true]").get_attribute("data-seq")
    expect(admin_page).to_have_url(re.compile(rf"\?step={chosen}$"))
    expect(inspector.locator("[data-step]").first).to_have_attribute("data-step", str(chosen))


def test_the_rest_of_a_long_text_is_shown_in_its_place(site: Site, admin_page: "Page") -> None:
    text = "".join(f"<{number}> " for number in range(4_000))
    run, _ = waiting(site, admin_page, call("look_up", q=text))
    asked = next(row["seq"] for row in site.export(run)["steps"] if row["kind"] == "ask" and row["seq"] > 1)
    admin_page.goto(f"{site.url}/runs/{run}/?step={asked}")
    inspector = admin_page.locator("[data-inspector]")
    inspector.get_by_role("tab", name="Request & response").click()
    pane = inspector.locator("[data-pane=exchange]")
    expect(pane).not_to_contain_text("<2000>")
    pane.get_by_role("link", name="Show all").first.click()
    expect(pane).to_contain_text("<2000>")
    expect(admin_page).to_have_url(re.compile(rf"\?step={asked}$"))


def test_what_is_pressed_stays_under_the_pointer_until_it_is_let_go(site: Site, admin_page: "Page") -> None:
    """Rows that come between press and release would scroll the list, and the click would be lost."""
    held: list[str | bytes] = []
    holds = False

    def between(page: "WebSocketRoute") -> None:
        server = page.connect_to_server()
        server.on_message(lambda message: held.append(message) if holds else page.send(message))
        routes.append(page)

    routes: list[WebSocketRoute] = []
    admin_page.route_web_socket(re.compile("/ws/runs/"), between)
    run, interrupt = waiting(site, admin_page)
    expect(admin_page.locator("[data-live-state]")).to_have_attribute("data-live-state", "live")
    holds = True
    site.manage("decide", interrupt, "--verdict", "approve")
    wait_for(lambda: admin_page.title() and site.export(run)["run"]["status"] == "succeeded")
    head = str(site.export(run)["run"]["head"])
    wait_for(
        lambda: admin_page.title() and any(f'"seq":{head},' in str(one).replace(" ", "") for one in held)
    )
    rows = admin_page.locator("[data-rows] > [data-seq]")
    before = rows.count()
    row = admin_page.locator("[data-rows] > [data-seq]:visible").first
    row.locator("a").hover()
    admin_page.mouse.down()
    for message in held:
        routes[-1].send(message)
    holds = False
    admin_page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert rows.count() == before
    admin_page.mouse.up()
    inspector = admin_page.locator("[data-inspector]")
    chosen = row.get_attribute("data-seq") or ""
    expect(inspector.locator("[data-step]").first).to_have_attribute("data-step", chosen)
    expect(rows).to_have_count(int(head))
    rows_are_complete(site, admin_page, run)


def frames(page: "Page") -> None:
    """Let the browser paint what it has."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def press_a_row(page: "Page") -> str:
    """Press on the first row that can be seen, and hold; its number."""
    row = page.locator("[data-rows] > [data-seq]:visible").first
    row.locator("a").hover()
    page.mouse.down()
    return row.get_attribute("data-seq") or ""


def test_the_word_of_new_rows_takes_no_room(site: Site, admin_page: "Page") -> None:
    """Where it went as the end came into view, the page grew shorter, and all rows moved under the pointer."""
    admin_page.set_viewport_size({"width": 1280, "height": 1000})  # the rows begin within it
    waiting(site, admin_page)
    heights = admin_page.evaluate(
        """() => [true, false].map(hidden => {
            document.querySelector("[data-new-rows]").textContent = "3 new steps";
            document.querySelector("[data-new-rows]").hidden = hidden;
            return document.querySelector("main").getBoundingClientRect().height;
        })"""
    )
    assert heights[0] == heights[1]
    expect(admin_page.locator("[data-new-rows]")).to_be_in_viewport(ratio=1)


def test_what_a_scroll_changes_waits_for_what_is_pressed(site: Site, admin_page: "Page") -> None:
    admin_page.set_viewport_size({"width": 1440, "height": 400})
    run, interrupt = waiting(site, admin_page, *[call("look_up", q=str(n)) for n in range(9)])
    admin_page.evaluate("scrollTo(0, 0)")
    site.manage("decide", interrupt, "--verdict", "approve")
    word = admin_page.locator("[data-new-rows]")
    expect(word).to_be_visible()
    expect(admin_page.locator("[data-live-state]")).to_have_attribute("data-live-state", "ended")
    rows_are_complete(site, admin_page, run)
    press_a_row(admin_page)
    admin_page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    frames(admin_page)
    expect(word).to_be_visible()
    admin_page.mouse.up()
    expect(word).to_be_hidden()


def test_a_site_s_answer_waits_for_what_is_pressed(site: Site, admin_page: "Page") -> None:
    """Both kinds: the answer to a decision, and the step that was chosen before."""
    answers: list[Any] = []
    no_socket(admin_page)
    run, _ = waiting(site, admin_page)
    admin_page.route("**/decision/", lambda route: answers.append(route))
    admin_page.route("**/steps/*/", lambda route: answers.append(route))
    inspector, needs = admin_page.locator("[data-inspector]"), admin_page.locator("[data-panel=needs]")
    admin_page.locator("[data-rows] > [data-seq]:visible").nth(1).locator("a").click()
    admin_page.get_by_role("checkbox", name=re.compile("I have read")).check()
    admin_page.get_by_role("button", name="Approve").click()
    wait_for(lambda: admin_page.title() and len(answers) == 2)
    chosen = press_a_row(admin_page)
    read, shown = inspector.inner_text(), needs.inner_text()
    for answer in answers:
        with admin_page.expect_event("requestfinished"):
            answer.continue_()
    frames(admin_page)
    assert (inspector.inner_text(), needs.inner_text()) == (read, shown)
    admin_page.mouse.up()
    wait_for(lambda: admin_page.title() and len(answers) == 3)
    answers[-1].continue_()
    expect(needs).to_contain_text("Recorded")
    expect(inspector.locator("[data-step]").first).to_have_attribute("data-step", chosen)
    assert run in admin_page.url


def test_a_press_that_began_before_a_question_could_be_decided_does_not_decide_it(
    site: Site, admin_page: "Page"
) -> None:
    """A button that is made ready under the pointer would take the release for a click."""

    def with_time_to_press(route: "Route") -> None:
        script = route.fetch().text().replace("SHIELD_MS = 800", "SHIELD_MS = 600000")
        route.fulfill(
            body=script.replace("LONGEST_MS = 5000", "LONGEST_MS = 6000000"), content_type="text/javascript"
        )

    admin_page.route(re.compile(r"/js/(shield|press)[.\w]*\.js"), with_time_to_press)
    admin_page.clock.install()
    _, first = two_questions(site, admin_page)
    admin_page.reload()  # what the site painted first can be decided at once
    admin_page.get_by_role("button", name="Approve").click()
    card = admin_page.locator(f"[data-card]:not([data-interrupt='{first}'])")
    expect(card).to_have_attribute("data-arriving", "")
    sent: list[str] = []
    admin_page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    button = card.locator("[data-approve]")
    button.hover(force=True)
    admin_page.mouse.down()
    admin_page.clock.fast_forward(600_001)
    admin_page.mouse.up()
    expect(button).to_be_enabled()
    frames(admin_page)
    assert sent == []
    button.click()
    expect(admin_page.locator("[data-panel=needs]")).to_contain_text("Recorded")


def approve(page: "Page") -> None:
    """Tick and tap."""
    page.get_by_role("checkbox", name=re.compile("I have read")).check()
    page.get_by_role("button", name="Approve").click()


def is_in_view_below_the_head(page: "Page") -> bool:
    """Whether the outcome can be read: below what sticks, above the window's end."""
    seen: bool = page.evaluate(
        """() => {
            const head = document.querySelector(".top");
            const box = document.querySelector(".outcome").getBoundingClientRect();
            const sticks = getComputedStyle(head).position === "sticky";
            const top = sticks ? Math.max(0, head.getBoundingClientRect().bottom) : 0;
            return top <= box.top && box.bottom <= innerHeight;
        }"""
    )
    return seen


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_what_was_recorded_is_in_view_and_the_keyboard_s_place_stays_there(
    site: Site, admin_page: "Page", size: "ViewportSize"
) -> None:
    admin_page.set_viewport_size(size)
    waiting(site, admin_page, *[call("look_up", q=str(n)) for n in range(12)])
    approve(admin_page)
    needs = admin_page.locator("[data-panel=needs]")
    expect(needs).to_contain_text(re.compile(r"Resumed at step \d+"))
    assert is_in_view_below_the_head(admin_page)
    assert admin_page.evaluate(NEEDS_HAS_THE_FOCUS)
    expect(admin_page.locator("[data-panel=answer]")).to_contain_text("done")
    assert is_in_view_below_the_head(admin_page)
    expect(needs).to_be_empty()
    assert admin_page.evaluate(NEEDS_HAS_THE_FOCUS)
    admin_page.keyboard.press("Tab")
    assert admin_page.evaluate(
        """() => {
            const needs = document.querySelector("[data-panel=needs]");
            const next = needs.compareDocumentPosition(document.activeElement);
            return next === Node.DOCUMENT_POSITION_FOLLOWING;
        }"""
    )


def test_the_end_of_the_rows_is_not_followed_past_what_was_just_recorded(
    site: Site, admin_page: "Page"
) -> None:
    """Without the card the end of the rows is in view, and they soon need more room than there is."""
    admin_page.set_viewport_size(PHONE)
    looks = [call("look_up", q=str(n)) for n in range(9)]
    run = launch(site, call("send", to="ann", text="hello"), *looks, call("send", to="ann", text="bye"))
    admin_page.goto(f"{site.url}/runs/{run}/")
    expect(admin_page.locator("[data-card]")).to_contain_text("hello")
    approve(admin_page)
    expect(admin_page.locator(".outcome + [data-card]")).to_contain_text("bye")
    rows_are_complete(site, admin_page, run)
    assert is_in_view_below_the_head(admin_page)
    word = admin_page.locator("[data-new-rows]")
    expect(word).to_have_text(re.compile(r"^\d+ new steps$"))
    word.click()
    expect(admin_page.locator("[data-rows] > [data-seq]:visible").last).to_be_in_viewport()


def test_the_focus_stays_where_the_person_has_moved_it_while_the_site_answers(
    site: Site, admin_page: "Page"
) -> None:
    answers: list[Any] = []
    waiting(site, admin_page)
    admin_page.route("**/decision/", lambda route: answers.append(route))
    approve(admin_page)
    wait_for(lambda: admin_page.title() and len(answers) == 1)
    elsewhere = admin_page.locator("[data-rows] > [data-seq]:visible a").first
    elsewhere.focus()
    answers[0].continue_()
    needs = admin_page.locator("[data-panel=needs]")
    expect(needs).to_contain_text("Recorded")
    expect(elsewhere).to_be_focused()
    expect(needs).to_be_empty()
    expect(elsewhere).to_be_focused()


def test_the_keyboard_s_place_stays_when_somebody_else_decides_or_what_was_written_has_been_read(
    site: Site, admin_page: "Page"
) -> None:
    _, interrupt = waiting(site, admin_page)
    admin_page.get_by_text("Reject…").click()
    admin_page.get_by_role("textbox", name=re.compile("Reason")).fill("not before noon")
    site.manage("decide", interrupt, "--verdict", "approve")
    expect(admin_page.get_by_role("textbox", name="What you typed")).to_be_visible()
    assert admin_page.evaluate(NEEDS_HAS_THE_FOCUS)
    admin_page.get_by_role("button", name="Dismiss").click()
    expect(admin_page.locator("[data-panel=needs]")).to_be_empty()
    assert admin_page.evaluate(NEEDS_HAS_THE_FOCUS)


@pytest.fixture
def works_again(site: Site) -> Iterator[None]:
    """However a test ends, the site that all share is not left halted."""
    yield
    site.manage("unhalt", code=None)


def test_every_open_page_says_that_the_site_is_halted_and_that_it_works_again(
    site: Site, admin_page: "Page", works_again: None
) -> None:
    run, _ = waiting(site, admin_page)
    pages = {
        admin_page: f"/runs/{run}/",
        **{admin_page.context.new_page(): path for path in ("/runs/", "/needs-you/")},
    }
    for page, path in pages.items():
        page.goto(site.url + path)
        page.evaluate(
            """() => {
                window.says = 0;
                const banner = document.querySelector("[data-panel=halted]");
                new MutationObserver(() => (window.says += 1))
                    .observe(banner, { childList: true, characterData: true, subtree: true });
            }"""
        )
    site.manage("halt")
    for page in pages:
        banner = page.get_by_role("status").filter(has_text="All runs are halted")
        expect(banner).to_be_visible()
        expect(banner.get_by_role("link")).to_be_visible()
        assert page.evaluate("window.says") == 1
    site.manage("halt", "--reason", "prices are wrong")
    for page in pages:
        expect(page.get_by_role("status").filter(has_text="All runs are halted")).to_contain_text(
            "prices are wrong"
        )
    site.manage("unhalt")
    for page in pages:
        expect(page.locator(".halted")).to_have_count(0)


class HeldInbox:
    """What the site says to the inbox of a page is kept back until the test lets it through."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.held: list[str | bytes] = []
        self.route: WebSocketRoute | None = None
        page.route_web_socket(re.compile("/ws/inbox/"), self._between)

    def _between(self, route: "WebSocketRoute") -> None:
        route.connect_to_server().on_message(lambda message: self.held.append(message))
        self.route = route

    def wait_for(self, words: str) -> None:
        """Until something was said that has these words in it."""
        wait_for(lambda: self.page.title() and any(words in str(message) for message in self.held))

    def let_through(self) -> None:
        """All that was said so far; the browser has had time to show it."""
        assert self.route is not None
        for message in self.held:
            self.route.send(message)
        frames(self.page)


def test_the_banner_of_a_halt_waits_for_what_is_pressed(
    site: Site, admin_page: "Page", works_again: None
) -> None:
    inbox = HeldInbox(admin_page)
    waiting(site, admin_page)
    site.manage("halt", "--reason", "prices are wrong")
    inbox.wait_for("prices are wrong")
    press_a_row(admin_page)
    inbox.let_through()
    assert admin_page.locator(".halted").count() == 0
    admin_page.mouse.up()
    expect(admin_page.locator(".halted")).to_be_visible()


def test_a_banner_that_the_page_was_painted_with_stays_as_it_is_when_the_socket_says_the_same(
    site: Site, admin_page: "Page", works_again: None
) -> None:
    """Else it would be read out again, and its link would lose the focus."""
    inbox = HeldInbox(admin_page)
    site.manage("halt", "--reason", "prices are wrong")
    admin_page.goto(f"{site.url}/runs/")
    way_back = admin_page.get_by_role("link", name="Resume site")
    way_back.focus()
    admin_page.evaluate(
        """() => {
            const banner = document.querySelector("[data-panel=halted]");
            window.changes = 0;
            new MutationObserver(() => (window.changes += 1))
                .observe(banner, { attributes: true, childList: true, characterData: true, subtree: true });
        }"""
    )
    inbox.wait_for("prices are wrong")
    inbox.let_through()
    assert admin_page.evaluate("window.changes") == 0
    expect(way_back).to_be_focused()


def test_keys_lead_to_the_decision_and_none_of_them_decides(site: Site, admin_page: "Page") -> None:
    run, _ = waiting(site, admin_page)
    expect(admin_page.get_by_role("button", name="Approve")).to_be_enabled()
    admin_page.keyboard.press("a")
    expect(admin_page.get_by_role("button", name="Approve")).to_be_focused()
    admin_page.keyboard.press("e")
    assert admin_page.evaluate("document.activeElement.closest('[data-argument]') !== null")
    admin_page.keyboard.type("r?a")
    expect(admin_page.locator(":focus")).to_have_value(re.compile(r"r\?a"))
    admin_page.evaluate("document.activeElement.blur()")
    admin_page.keyboard.press("r")
    expect(admin_page.get_by_role("textbox", name=re.compile("Reason"))).to_be_focused()
    admin_page.evaluate("document.activeElement.blur()")
    admin_page.keyboard.press("?")
    expect(admin_page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert site.export(run)["interrupts"][0]["status"] == "pending"


def test_a_page_of_before_a_restore_is_loaded_again_unless_somebody_writes_in_it(
    site: Site, admin_page: "Page"
) -> None:
    lines: list[WebSocketRoute] = []

    def between(line: "WebSocketRoute") -> None:
        line.connect_to_server()
        lines.append(line)

    def restored() -> None:
        """As far as pages are told of it: it was somewhere else, and their lines were cut."""
        site.manage("shell", "-c", "from runs.store import backups\nbackups.begin_another_life()")
        lines[-1].close()

    admin_page.route_web_socket(re.compile("/ws/runs/"), between)
    waiting(site, admin_page)
    light, main = admin_page.locator("[data-live-state]"), admin_page.locator("main")
    expect(light).to_have_attribute("data-live-state", "live")
    life = main.get_attribute("data-life") or ""
    restored()
    expect(main).not_to_have_attribute("data-life", life)
    expect(light).to_have_attribute("data-live-state", "live")
    admin_page.get_by_text("Reject…").click()
    reason = admin_page.get_by_role("textbox", name=re.compile("Reason"))
    reason.fill("not before noon")
    restored()
    expect(main.get_by_text("The site was restored from a backup")).to_be_visible()
    expect(light).to_have_attribute("data-live-state", "off")
    expect(reason).to_have_value("not before noon")
    offers_nothing(admin_page)


def offers_nothing(page: "Page") -> None:
    """No button of a form on the page can be pressed, and the card doesn't say that it needs anybody."""
    buttons = page.locator("main form[method=post] button")
    assert buttons.count() > 5
    for number in range(buttons.count()):
        expect(buttons.nth(number)).to_be_disabled()
    expect(page.get_by_text("waiting for you", exact=True)).to_have_count(1)
    expect(page.get_by_text("waiting for you", exact=True)).to_be_hidden()


def test_a_page_whose_run_is_gone_says_so_and_offers_nothing(site: Site, admin_page: "Page") -> None:
    """As after a restore from before the run began; what was written stays, to copy."""
    run, _ = waiting(site, admin_page)
    admin_page.get_by_text("Reject…").click()
    reason = admin_page.get_by_role("textbox", name=re.compile("Reason"))
    reason.fill("not before noon")
    admin_page.evaluate("document.querySelector('[data-live-state]').scrollIntoView()")
    remove(site, run)
    banner = admin_page.get_by_role("alert").filter(has_text="was deleted")
    expect(banner).to_be_in_viewport()
    expect(banner.get_by_role("link", name="the list of runs")).to_be_visible()
    expect(admin_page.locator("[data-live-word]")).to_have_text("no longer there")
    expect(reason).to_have_value("not before noon")
    offers_nothing(admin_page)


def test_a_decision_of_what_is_gone_is_not_to_be_sent_again(site: Site, admin_page: "Page") -> None:
    run = asked_in_silence(site, admin_page)
    remove(site, run)
    admin_page.get_by_role("checkbox", name=re.compile("I have read")).check()
    admin_page.get_by_role("button", name="Approve").click()
    complaint = admin_page.locator("[data-complaint]")
    expect(complaint).to_contain_text("was deleted")
    expect(complaint).not_to_contain_text("Send it again")


def test_a_decision_of_a_page_of_before_a_restore_is_refused_and_what_was_written_stays(
    site: Site, admin_page: "Page"
) -> None:
    run = asked_in_silence(site, admin_page)
    site.manage("shell", "-c", "from runs.store import backups\nbackups.begin_another_life()")
    admin_page.get_by_text("Reject…").click()
    reason = admin_page.get_by_role("textbox", name=re.compile("Reason"))
    reason.fill("not before noon")
    admin_page.get_by_role("button", name="Reject", exact=True).click()
    expect(admin_page.locator("[data-complaint]")).to_contain_text("The site was restored from a backup")
    expect(reason).to_have_value("not before noon")
    assert site.export(run)["interrupts"][0]["status"] == "pending"


def asked_in_silence(site: Site, page: "Page") -> str:
    """A run that asks, in a page that is told nothing of what happens to it any more; its id."""
    run, _ = waiting(site, page)
    page.route_web_socket(re.compile("/ws/runs/"), lambda _: None)
    page.reload()
    return run


def remove(site: Site, run: str) -> None:
    """As if it had never been."""
    site.manage("shell", "-c", f"from runs.models import Run\nRun.objects.get(pk={run}).delete()")


def test_the_list_of_what_waits_says_that_its_reader_is_signed_out(site: Site, page: "Page") -> None:
    page.goto(site.fresh_link())
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/runs/")
    lines: list[WebSocketRoute] = []

    def between(line: "WebSocketRoute") -> None:
        line.connect_to_server()
        lines.append(line)

    page.route_web_socket(re.compile("/ws/inbox/"), between)
    page.goto(f"{site.url}/needs-you/")
    said = page.locator("[data-signed-out]")
    expect(said).to_be_hidden()
    wait_for(lambda: page.title() and lines)
    page.context.clear_cookies()
    lines[-1].close()
    expect(said).to_be_visible()


def test_web_server_and_broker_die_and_the_page_ends_complete(own_site: Site, page: "Page") -> None:
    page.goto(own_site.fresh_link())
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/runs/")
    run, interrupt = waiting(own_site, page)
    broker, web = own_site.kill9("broker"), own_site.kill9("web")
    expect(page.locator("[data-live-state]")).to_have_attribute("data-live-state", "reconnecting")
    own_site.back("broker", broker)
    own_site.back("web", web)
    own_site.manage("decide", interrupt, "--verdict", "approve")
    expect(page.locator("[data-panel=answer]")).to_contain_text("done")
    expect(page.locator("[data-live-state]")).to_have_attribute("data-live-state", "ended")
    wait_for(lambda: own_site.export(run)["run"]["status"] == "succeeded")
    rows_are_complete(own_site, page, run)
