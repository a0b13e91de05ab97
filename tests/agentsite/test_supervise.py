"""The supervisor with real, small processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentsite.supervise import (
    LOG_BYTES,
    BoundedLog,
    Child,
    GaveUp,
    NotReady,
    Patience,
    Supervisor,
    held,
    is_alive,
    passport,
    read_record,
    stop_leftovers,
)
from runs.processes import state_of
from tests.stack import LONGEST_S

WAITS = "import signal; signal.pause()"
HASTY = Patience(
    first_pause=0.01,
    quick_death=30,
    quick_deaths_allowed=2,
    ready_within=0.5,
    slow_after=60,
    stopped_for=0.1,
)


def child(
    name: str, code: str, folder: Path, ready: Callable[[], bool] | None = None, grace: float = 10
) -> Child:
    return Child(name, [sys.executable, "-S", "-c", code], folder / f"{name}.log", ready=ready, grace=grace)


def supervisor(folder: Path, *children: Child) -> tuple[Supervisor, list[str]]:
    said: list[str] = []
    return Supervisor(children, said.append, folder / "up.json", {"address": "here"}, HASTY), said


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONGEST_S):
        while not condition():
            await asyncio.sleep(0.01)


def pid_of(running: Supervisor, name: str) -> int:
    return running.processes[name].pid


async def test_a_child_that_dies_is_started_again_and_the_terminal_says_so(tmp_path: Path) -> None:
    running, said = supervisor(
        tmp_path, child("worker", f"print('last words', flush=True); {WAITS}", tmp_path)
    )
    task = asyncio.create_task(running.run())
    await until(
        lambda: b"last words" in (tmp_path / "worker.log").read_bytes() if running.processes else False
    )
    first = pid_of(running, "worker")
    os.kill(first, signal.SIGKILL)
    await until(lambda: bool(running.processes) and pid_of(running, "worker") != first)
    running.stop()
    await task
    assert said == ["The worker died (signal SIGKILL); starting it again. Its last lines:\n    last words"]


async def test_a_child_that_is_stopped_by_a_signal_is_replaced(tmp_path: Path) -> None:
    worker = replace(child("worker", WAITS, tmp_path), replaced_when_stopped=True)
    running, said = supervisor(tmp_path, worker)
    task = asyncio.create_task(running.run())
    await until(lambda: bool(running.processes))
    first = pid_of(running, "worker")
    os.kill(first, signal.SIGSTOP)
    await until(lambda: bool(running.processes) and pid_of(running, "worker") != first)
    running.stop()
    await task
    assert said == [
        "The worker was stopped (SIGSTOP) and is replaced.",
        "The worker died (signal SIGKILL); starting it again.",
    ]


async def test_a_process_that_has_ended_is_told_by_the_name_it_was_started_with(tmp_path: Path) -> None:
    lost: list[str] = []
    said_name = f"import os; print('I am', os.environ['PROCESS_NAME'], flush=True); {WAITS}"
    running, _ = supervisor(tmp_path, replace(child("worker", said_name, tmp_path), lost=lost.append))
    log = tmp_path / "worker.log"
    task = asyncio.create_task(running.run())
    await until(lambda: log.exists() and log.read_text().count("I am") == 1)
    assert not lost, "it runs"
    os.kill(pid_of(running, "worker"), signal.SIGKILL)
    await until(lambda: log.read_text().count("I am") == 2 and bool(lost))
    running.stop()
    await task
    first, second = [line.removeprefix("I am ") for line in log.read_text().splitlines()]
    assert lost == [first], "a process that ends because all are stopped is not reported"
    assert first != second


async def test_a_child_that_is_stopped_for_a_moment_only_goes_on(tmp_path: Path) -> None:
    worker = replace(child("worker", WAITS, tmp_path), replaced_when_stopped=True)
    running, said = supervisor(tmp_path, worker)
    task = asyncio.create_task(running.run())
    await until(lambda: bool(running.processes))
    first = pid_of(running, "worker")
    for _ in range(5):
        os.kill(first, signal.SIGSTOP)
        await until(lambda: state_of(first) == "T")
        os.kill(first, signal.SIGCONT)
        await until(lambda: state_of(first) != "T")
    running.stop()
    await task
    assert said == []


async def test_a_child_that_ends_by_itself_is_not_told_as_dead(tmp_path: Path) -> None:
    running, said = supervisor(tmp_path, child("worker", "print('all done')", tmp_path))
    with pytest.raises(GaveUp, match=r"^The worker exited 3 times right after starting"):
        await running.run()
    ended = "The worker exited (exit code 0); starting it again."
    assert said == [f"{ended} Its last lines:\n    all done"] * 3


async def test_stop_ends_all_children_and_what_they_started(tmp_path: Path) -> None:
    grandchild = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {WAITS!r}])"
    parent = child("worker", f"{grandchild}; print(p.pid, flush=True); {WAITS}", tmp_path)
    running, _ = supervisor(tmp_path, child("broker", WAITS, tmp_path), parent)
    task = asyncio.create_task(running.run())
    log = tmp_path / "worker.log"
    await until(lambda: log.exists() and log.read_text().strip().isdecimal())
    everybody = [passport(pid_of(running, name)) for name in ("broker", "worker")]
    everybody.append(passport(int(log.read_text())))
    assert all(map(is_alive, everybody))
    running.stop()
    await task
    await until(lambda: not any(map(is_alive, everybody)))
    assert not (tmp_path / "up.json").exists()


async def test_none_waits_to_be_told_while_another_takes_its_time(tmp_path: Path) -> None:
    """Whichever is first: only who is needed by the others is told when they have ended."""
    busy = "import signal; signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))"
    busy += "; print('up', flush=True)\nwhile True: signal.pause()"
    prompt = f"print('up', flush=True); {WAITS}"
    broker = replace(child("broker", prompt, tmp_path), needed=True)
    scheduler = child("scheduler", busy, tmp_path, grace=60)
    running, _ = supervisor(tmp_path, child("worker", prompt, tmp_path), broker, scheduler)
    task = asyncio.create_task(running.run())
    logs = [tmp_path / f"{one.name}.log" for one in running.children]
    await until(lambda: all(log.exists() and "up" in log.read_text() for log in logs))
    running.stop()
    await until(lambda: "told" in logs[2].read_text() and "worker" not in running.processes)
    assert set(running.processes) == {"broker", "scheduler"}
    running.stop()
    await task
    assert running.processes == {}


async def test_a_child_that_ignores_the_request_is_killed_after_its_grace(tmp_path: Path) -> None:
    ignores = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    deaf = f"{ignores}; print('deaf', flush=True); signal.pause()"
    running, _ = supervisor(tmp_path, child("worker", deaf, tmp_path, grace=0.1))
    task = asyncio.create_task(running.run())
    log = tmp_path / "worker.log"
    await until(lambda: log.exists() and "deaf" in log.read_text())
    who = passport(pid_of(running, "worker"))
    running.stop()
    await task
    assert not is_alive(who)


async def test_it_gives_up_on_a_child_that_dies_at_once_and_leaves_nothing_running(tmp_path: Path) -> None:
    running, said = supervisor(
        tmp_path, child("broker", WAITS, tmp_path), child("web", "raise SystemExit('no such page')", tmp_path)
    )
    with pytest.raises(GaveUp, match="The web died 3 times") as gave_up:
        await running.run()
    assert gave_up.value.name == "web"
    assert len(said) == 3
    assert "exit code 1" in said[0] and "no such page" in said[0]
    assert running.processes == {}


async def test_a_child_that_once_lived_is_started_again_however_often_it_dies_at_once(tmp_path: Path) -> None:
    lived = tmp_path / "lived"
    code = f"import pathlib, time; been = pathlib.Path({str(lived)!r})\n"
    code += "if been.exists(): raise SystemExit('no disk')\n"
    code += "time.sleep(1.5); been.touch(); raise SystemExit('lived')"
    running, said = supervisor(tmp_path, child("worker", code, tmp_path))
    running.patience = replace(HASTY, quick_death=1, longest_pause=0.02)
    task = asyncio.create_task(running.run())
    await until(lambda: task.done() or len(said) > 2 * HASTY.quick_deaths_allowed + 2)
    running.stop()
    await task
    assert "lived" in said[0] and all("no disk" in words for words in said[1:])


async def test_a_child_that_never_gets_ready_stops_everything_with_a_sentence(tmp_path: Path) -> None:
    running, _ = supervisor(tmp_path, child("web", WAITS, tmp_path, ready=lambda: False))
    with pytest.raises(NotReady, match="The web was not ready after 0"):
        await running.run()
    assert running.processes == {}


async def test_a_child_that_is_slow_to_get_ready_is_waited_for_and_the_terminal_says_so(
    tmp_path: Path,
) -> None:
    running, said = supervisor(tmp_path, child("web", WAITS, tmp_path, ready=lambda: bool(said)))
    running.patience = replace(HASTY, slow_after=0.05, ready_within=30)
    welcomed = asyncio.Event()

    async def welcome() -> None:
        welcomed.set()

    task = asyncio.create_task(running.run(welcome))
    async with asyncio.timeout(LONGEST_S):
        await welcomed.wait()
    running.stop()
    await task
    assert said == ["The web is not ready yet; waiting up to 30 seconds."]


async def test_the_terminal_shows_alarms_and_the_log_has_everything(tmp_path: Path) -> None:
    code = f"print('calm'); print('12:00 ERROR runs.store disk full', flush=True); {WAITS}"
    running, said = supervisor(tmp_path, child("worker", code, tmp_path))
    task = asyncio.create_task(running.run())
    await until(lambda: bool(said))
    running.stop()
    await task
    assert said == ["worker: 12:00 ERROR runs.store disk full"]
    assert (tmp_path / "worker.log").read_text() == "calm\n12:00 ERROR runs.store disk full\n"


async def test_what_a_child_tells_of_its_end_is_shown_while_everything_stops(tmp_path: Path) -> None:
    told = "print('12:00 WARNING farewell I wait for a call.\\n12:00 ERROR runs.store too late', flush=True)"
    code = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); print('up', flush=True)\n"
    )
    code += f"try: signal.pause()\nfinally: {told}"
    talker = replace(child("worker", code, tmp_path), tells=" WARNING farewell ")
    running, said = supervisor(tmp_path, talker)
    task = asyncio.create_task(running.run())
    log = tmp_path / "worker.log"
    await until(lambda: log.exists() and "up" in log.read_text())
    running.stop()
    await task
    assert said == ["I wait for a call."]


async def test_a_long_alarm_keeps_its_beginning_and_its_end_and_names_the_log(tmp_path: Path) -> None:
    alarm = "print('12:00 ERROR runs.store lost traceback=' + 'x' * 900 + ' ValueError: why', flush=True)"
    running, said = supervisor(tmp_path, child("worker", f"{alarm}; {WAITS}", tmp_path))
    task = asyncio.create_task(running.run())
    await until(lambda: bool(said))
    running.stop()
    await task
    assert len(said) == 1
    assert said[0].startswith("worker: 12:00 ERROR runs.store lost traceback=xxx")
    assert said[0].endswith(f"xxx ValueError: why (the whole line: {tmp_path / 'worker.log'})")
    assert " … " in said[0] and len(said[0]) < 900


async def test_last_words_that_are_long_keep_their_end(tmp_path: Path) -> None:
    died = child("web", "raise SystemExit('x' * 900 + ' no such page')", tmp_path)
    running, said = supervisor(tmp_path, died)
    with pytest.raises(GaveUp):
        await running.run()
    assert said[0].endswith(f"xxx no such page (the whole line: {tmp_path / 'web.log'})")


async def test_children_start_side_by_side_but_after_one_that_they_need(tmp_path: Path) -> None:
    opened: set[str] = set()
    broker, web, worker = (
        child(name, WAITS, tmp_path, ready=lambda name=name: name in opened)  # type: ignore[misc]
        for name in ("broker", "web", "worker")
    )
    running, _ = supervisor(tmp_path, replace(broker, needed=True), web, worker)
    running.patience = replace(HASTY, ready_within=LONGEST_S)
    asked = asyncio.Event()

    async def welcome() -> None:
        asked.set()

    task = asyncio.create_task(running.run(welcome))
    await until(lambda: "broker" in running.processes)
    assert set(running.processes) == {"broker"}
    opened.add("broker")
    await until(lambda: set(running.processes) == {"broker", "web", "worker"})
    assert not asked.is_set(), "neither is ready"
    opened |= {"web", "worker"}
    await until(asked.is_set)
    running.stop()
    await task


async def test_welcome_comes_after_the_last_child_is_ready(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    running, said = supervisor(
        tmp_path, child("web", f"open({str(flag)!r}, 'w'); {WAITS}", tmp_path, ready=flag.exists)
    )

    async def welcome() -> None:
        said.append("welcome" if flag.exists() else "too early")
        running.stop()

    await running.run(welcome)
    assert said == ["welcome"]


async def test_a_signal_stops_everything(tmp_path: Path) -> None:
    running, _ = supervisor(tmp_path, child("worker", WAITS, tmp_path))

    async def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    await running.run(interrupt)
    assert running.processes == {}


def test_what_a_killed_supervisor_left_is_stopped(tmp_path: Path) -> None:
    orphan = subprocess.Popen([sys.executable, "-S", "-c", WAITS], start_new_session=True)
    record, said = tmp_path / "up.json", list[str]()
    record.write_text(json.dumps({"children": {"web": passport(orphan.pid)}}))
    stop_leftovers(record, said.append)
    assert orphan.wait(LONGEST_S) == -signal.SIGTERM
    assert said == ["A killed start left these processes: web. Stopping them first."]
    assert not record.exists()


def test_a_number_that_now_belongs_to_another_process_is_left_alone(tmp_path: Path) -> None:
    record, said = tmp_path / "up.json", list[str]()
    record.write_text(json.dumps({"children": {"web": {"pid": os.getpid(), "born": "another day"}}}))
    stop_leftovers(record, said.append)
    assert said == []


def test_a_torn_record_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "up.json").write_text('{"up": ')
    assert read_record(tmp_path / "up.json") == {}


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    with held(tmp_path / "lock") as first, held(tmp_path / "lock") as second:
        assert (first, second) == (True, False)
    with held(tmp_path / "lock") as again:
        assert again


def test_a_log_never_outgrows_two_files(tmp_path: Path) -> None:
    line = b"x" * (LOG_BYTES // 3) + b"\n"
    with BoundedLog(tmp_path / "web.log") as log:
        for _ in range(9):
            log.write(line)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web.log", "web.log.1"]
    assert all(path.stat().st_size <= LOG_BYTES for path in tmp_path.iterdir())


async def test_who_says_stop_twice_waits_for_nobody(tmp_path: Path) -> None:
    stubborn = (
        f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); {WAITS}"
    )
    running, _ = supervisor(tmp_path, child("worker", stubborn, tmp_path, grace=60))
    task = asyncio.create_task(running.run())
    await until(lambda: b"here" in (tmp_path / "worker.log").read_bytes() if running.processes else False)
    running.stop()
    await asyncio.sleep(0)
    assert not task.done()
    running.stop()
    async with asyncio.timeout(LONGEST_S):
        await task


async def test_who_is_hurried_is_told_again_and_names_what_it_leaves(tmp_path: Path) -> None:
    code = """
import signal, sys
told = []
def tell(*_):
    told.append(1)
    print('WARNING farewell', ('I wait for a call.', 'It is cut off.')[len(told) - 1], flush=True)
    if len(told) > 1: sys.exit()
signal.signal(signal.SIGTERM, tell)
print('up', flush=True)
while True: signal.pause()
"""
    running, said = supervisor(
        tmp_path, replace(child("worker", code, tmp_path, grace=60), tells="WARNING farewell ")
    )
    task = asyncio.create_task(running.run())
    log = tmp_path / "worker.log"
    await until(lambda: log.exists() and "up" in log.read_text())
    running.stop()
    await until(lambda: said == ["I wait for a call."])
    running.stop()
    await task
    assert said == ["I wait for a call.", "It is cut off."]


async def test_who_is_hurried_and_tells_nothing_is_killed_after_its_last_words(tmp_path: Path) -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {WAITS}"
    running, said = supervisor(
        tmp_path, replace(child("worker", deaf, tmp_path, grace=60), tells=" WARNING farewell ")
    )
    running.patience = replace(HASTY, last_words=0.1)
    task = asyncio.create_task(running.run())
    log = tmp_path / "worker.log"
    await until(lambda: log.exists() and "deaf" in log.read_text())
    who = passport(pid_of(running, "worker"))
    running.stop()
    running.stop()
    async with asyncio.timeout(LONGEST_S):
        await task
    assert not is_alive(who) and said == []


async def test_a_terminal_that_is_gone_keeps_no_child_from_ending(tmp_path: Path) -> None:
    talks = "for _ in range(30): print('ERROR ' + 'x' * 200_000, flush=True)"
    running, _ = supervisor(
        tmp_path, child("worker", f"{talks}; print('said', flush=True); {WAITS}", tmp_path)
    )

    def gone(sentence: str) -> None:
        raise BrokenPipeError(sentence)

    running.say = gone
    task = asyncio.create_task(running.run())
    await until(lambda: b"said" in (tmp_path / "worker.log").read_bytes() if running.processes else False)
    running.stop()
    async with asyncio.timeout(LONGEST_S):
        await task
