"""Few threads of a process work on runs at a time, and any number of calls may be under way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from runs import driver
from runs.adapters.scripted import ScriptedModel
from runs.driver.desk import SEATS, Desk
from runs.models import Run
from tests.launching import FINAL, launch
from tests.running import in_threads
from tests.stack import LONGEST_S, wait_for

pytestmark = pytest.mark.usefixtures("every_run_verifies")


def in_thread(deed: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=deed)
    thread.start()
    return thread


def test_who_comes_back_from_a_call_is_served_before_who_begins_and_those_in_their_order() -> None:
    desk, order = Desk(1), list[str]()
    out, back = threading.Event(), threading.Event()

    def begin(name: str) -> None:
        with desk.seat(lambda: False):
            order.append(name)

    def go_out_and_come_back() -> None:
        with desk.seat(lambda: False), desk.left():
            out.set()
            back.wait(LONGEST_S)
        order.append("back")

    threads = [in_thread(go_out_and_come_back)]
    assert out.wait(LONGEST_S)
    with desk.seat(lambda: False):
        for number, name in enumerate(("first", "second"), 1):
            threads.append(in_thread(lambda name=name: begin(name)))  # type: ignore[misc]
            wait_for(lambda number=number: desk.waiting == number)  # type: ignore[misc]
        back.set()
        wait_for(lambda: desk.waiting == 3)
    for thread in threads:
        thread.join()
    assert order == ["back", "first", "second"]


def test_who_is_not_wanted_any_more_goes_without_a_seat_and_keeps_none_from_others() -> None:
    desk, seats = Desk(1), list[bool]()

    def ask() -> None:
        with desk.seat(lambda: True) as seated:
            seats.append(seated)

    with desk.seat(lambda: False):
        in_thread(ask).join()
    ask()
    assert seats == [False, True]


@pytest.mark.database
def test_more_calls_are_under_way_than_there_are_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [launch(FINAL) for _ in range(2 * SEATS)]
    all_of_them = threading.Barrier(len(runs))
    ask = ScriptedModel.ask

    def together(*given: Any) -> Any:
        all_of_them.wait(LONGEST_S)
        return ask(*given)

    monkeypatch.setattr(ScriptedModel, "ask", together)
    in_threads(len(runs), lambda number: driver.drive(runs[number].pk))
    assert {run.status for run in Run.objects.all()} == {"succeeded"}
