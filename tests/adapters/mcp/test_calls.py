"""Tools of a real server: what they return, how they fail, and what a bad server can't do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from runs.adapters.folder import RunFolder
from runs.adapters.mcp import ServerSettings, sessions
from runs.adapters.toolbox import MayHaveHappened
from runs.engine.effects import Failed, ToolReturned
from tests.adapters.mcp.serving import (
    FAKE,
    Bench,
    http_settings,
    is_alive,
    stdio_settings,
)
from tests.stack import free_port, wait_for


@pytest.fixture(scope="module", autouse=True)
def _no_session_stays() -> Iterator[None]:
    yield
    sessions.close_all()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> ServerSettings:
    """One server for all tests that leave it as it was."""
    return stdio_settings(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def bench(shared: ServerSettings, tmp_path: Path) -> Bench:
    return Bench(shared, tmp_path / "run")


@pytest.fixture
def own(tmp_path: Path) -> Bench:
    """A server of the test's own."""
    return Bench(stdio_settings(tmp_path, name="own"), tmp_path / "run")


@pytest.fixture(scope="module")
def over_http() -> Iterator[ServerSettings]:
    with http_settings(name="fake_http") as settings:
        yield settings


@pytest.fixture(params=["shared", "over_http"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """The same server over each transport."""
    return Bench(request.getfixturevalue(request.param), tmp_path / "run")


def failure(bench: Bench, name: str, said: dict[str, Any] | None = None, **args: Any) -> Failed:
    answer = bench.call(bench.tool(name, **said or {}), **args)
    assert isinstance(answer, Failed), answer
    return answer


def test_text_and_json_come_back_as_the_tool_returns_them(either: Bench) -> None:
    assert either.value("echo", text="high water") == {"result": "high water"}
    assert either.value("count", text="tide") == {"characters": 4}


def test_a_picture_becomes_a_file_of_the_run(either: Bench) -> None:
    answer = either.call(either.tool("picture"))
    assert isinstance(answer, ToolReturned)
    (made,) = answer.files
    assert (made.media_type, answer.value) == ("image/png", f"[file {made.name}]")
    assert RunFolder(either.folder).read(made.name).startswith(b"\x89PNG")


def test_an_error_of_the_tool_is_what_the_model_reads(either: Bench) -> None:
    failed = failure(either, "fail")
    assert failed.blame == "recoverable"
    assert "no such ship" in failed.message


def test_resources_and_prompts_are_tools_that_read(either: Bench) -> None:
    (resource,) = either.value("list_resources")
    assert (resource["name"], resource["uri"]) == ("log", "ship://log")
    assert either.value("read_resource", uri="ship://log") == "High water at noon."
    assert [one["name"] for one in either.value("list_prompts")] == ["greeting"]
    prompt = either.value("get_prompt", name="greeting", arguments={"name": "Ann"})
    assert prompt["messages"] == [{"role": "user", "text": "Say hello to Ann."}]


def test_arguments_that_do_not_fit_the_schema_reach_no_server(bench: Bench) -> None:
    tool = bench.tool("echo")
    for args in ({}, {"text": ""}, {"text": 3}):
        failed = bench.call(tool, **args)
        assert isinstance(failed, Failed)
        assert (failed.blame, failed.ran) == ("recoverable", False)
        assert failed.message.startswith("fake.echo does not take these arguments: ")


def test_a_changed_definition_is_not_called_until_it_is_approved_again(either: Bench) -> None:
    old = either.tool("mutable")
    assert either.call(old, text="a") == ToolReturned(value={"result": "a"})
    either.value("change_mind")
    failed = either.call(old, text="secret")
    assert isinstance(failed, Failed)
    assert not failed.ran
    assert failed.message == (
        f"The server has changed {old.name}. It is off until an administrator approves the change."
    )
    (found,) = either.heard.found
    changed = next(one for one in found if one.name == "mutable")
    assert changed.description == "Sends the text to everybody."
    assert either.value("mutable", text="a") == {"result": "sent to everybody: a"}


def test_a_server_gets_no_variable_of_the_worker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSITE_KEY_OPENAI", "sk-worker")
    given = (("TOKEN", "very-secret-token"), ("TZ", "UTC"))
    own = Bench(bench.settings.model_copy(update={"variables": given}), bench.folder)
    seen = own.value("environment")
    assert set(seen) - {"LC_CTYPE"} <= {
        "PATH",
        "LANG",
        "HOME",
        "TOKEN",
        "TZ",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    }
    assert (seen["HOME"], seen["TZ"]) == (str(own.settings.folder), "UTC")


def test_a_secret_does_not_come_back(bench: Bench) -> None:
    update = {"variables": (("TOKEN", "very-secret-token"),), "secrets": ("very-secret-token",)}
    own = Bench(bench.settings.model_copy(update=update), bench.folder)
    assert own.value("environment")["TOKEN"] == "[key]"


def test_calls_at_once_share_one_server(bench: Bench) -> None:
    tool = bench.tool("environment")
    started: list[Any] = []
    threads = [threading.Thread(target=lambda: started.append(bench.call(tool))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == 8
    assert all(isinstance(one, ToolReturned) for one in started)
    assert len({one.value["HOME"] for one in started}) == 1
    assert sessions.open_to().count(bench.settings) == 1


# --- servers that hang, die, flood ----------------------------------------------------------------------------------


def test_a_server_that_hangs_is_left_and_ended_and_the_call_may_have_happened(
    bench: Bench, tmp_path: Path
) -> None:
    own = Bench(bench.settings.model_copy(update={"name": "slow", "timeout_s": 1.5}), bench.folder)
    tool, beside = own.tool("hang"), tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(MayHaveHappened):
        own.call(tool, beside=str(beside))
    assert time.monotonic() - began < 30
    wait_for(lambda: not is_alive(int(beside.read_text())))
    assert own.heard.faults == [("The server slow did not answer within 1.5 s.", "")]


def test_a_hanging_call_that_reads_or_is_repeatable_is_tried_again(bench: Bench, tmp_path: Path) -> None:
    own = Bench(bench.settings.model_copy(update={"name": "slow", "timeout_s": 1.0}), bench.folder)
    said: tuple[dict[str, Any], ...] = ({"effects": "read"}, {"repeatable": True})
    for one in said:
        failed = failure(own, "hang", one, beside=str(tmp_path / "pid"))
        assert (failed.blame, failed.message) == (
            "transient",
            "slow.hang: The server slow did not answer within 1 s.",
        )


def test_a_server_that_dies_in_a_call_leaves_it_unsure_and_is_started_anew(bench: Bench) -> None:
    tool = bench.tool("die")
    with pytest.raises(MayHaveHappened):
        bench.call(tool)
    ((why, last_words),) = bench.heard.faults
    assert why == "The server fake ended the connection during the call."
    assert "the engine is on fire" in last_words
    assert bench.value("echo", text="again") == {"result": "again"}


def test_a_server_that_died_between_calls_is_started_anew_and_nothing_is_unsure(
    own: Bench, tmp_path: Path
) -> None:
    beside = tmp_path / "pids"
    echo = own.tool("echo")
    own.value("grandchildren", beside=str(beside))
    os.kill(int(beside.read_text().split()[0]), 9)
    wait_for(lambda: own.settings not in sessions.open_to())
    assert own.call(echo, text="again") == ToolReturned(value={"result": "again"})
    assert own.heard.faults == []


def test_notices_are_taken_up_to_a_cap(bench: Bench) -> None:
    assert bench.value("flood", notices=500) == {"result": "500 notices"}
    with pytest.raises(MayHaveHappened):
        bench.call(bench.tool("flood"), notices=20_000)
    ((why, _),) = bench.heard.faults
    assert "more than 10,000 notices without an answer" in why


def test_a_result_of_fifty_megabytes_is_not_taken(either: Bench) -> None:
    began = time.monotonic()
    failed = failure(either, "huge", {"effects": "read"}, megabytes=50)
    assert time.monotonic() - began < 30
    assert failed.blame == "recoverable"
    assert len(failed.message) < 300
    assert either.value("echo", text="still there") == {"result": "still there"}


def test_a_server_that_does_not_start_was_not_called(tmp_path: Path) -> None:
    settings = stdio_settings(tmp_path)
    tool = Bench(settings, tmp_path / "run").tool("echo")
    for command, words in (
        (("no-such-program",), "no-such-program: No such file or directory"),
        ((sys.executable, "-c", "raise SystemExit('no licence')"), "no licence"),
    ):
        gone = Bench(settings.model_copy(update={"command": command}), tmp_path / "run")
        failed = gone.call(_moved(tool, gone), text="a")
        assert isinstance(failed, Failed)
        assert failed.blame == "transient"
        ((why, last_words),) = gone.heard.faults
        assert why == "The server fake can't be reached: its process ended."
        assert words in last_words


def test_a_server_that_is_silent_at_its_start_is_given_up(tmp_path: Path) -> None:
    settings = stdio_settings(tmp_path)
    tool = Bench(settings, tmp_path / "run").tool("echo")
    update = {"command": (sys.executable, "-c", "import signal; signal.pause()"), "connect_s": 1.0}
    silent = Bench(settings.model_copy(update=update), tmp_path / "run")
    began = time.monotonic()
    failed = silent.call(_moved(tool, silent), text="a")
    assert time.monotonic() - began < 30
    assert isinstance(failed, Failed)
    assert failed.blame == "transient"


def test_an_address_where_nobody_listens_was_not_called(tmp_path: Path) -> None:
    tool = Bench(stdio_settings(tmp_path), tmp_path / "run").tool("echo")
    update = {"kind": "http", "address": f"http://127.0.0.1:{free_port()}/mcp", "command": ()}
    gone = Bench(stdio_settings(tmp_path).model_copy(update=update), tmp_path / "run")
    failed = gone.call(_moved(tool, gone), text="a")
    assert isinstance(failed, Failed)
    assert failed.blame == "transient"
    assert len(gone.heard.faults) == 1


def test_an_http_server_that_went_away_between_calls_was_not_called(tmp_path: Path) -> None:
    with http_settings() as settings:
        bench = Bench(settings, tmp_path / "run")
        tool = bench.tool("echo")
        assert isinstance(bench.call(tool, text="a"), ToolReturned)
    failed = bench.call(tool, text="b")
    assert isinstance(failed, Failed)
    assert failed.blame == "transient"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_http_server_that_was_started_anew_is_reached_again(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MODE", mode)
    port = free_port()
    with http_settings(port, name=mode) as settings:
        bench = Bench(settings, tmp_path / "run")
        tool = bench.tool("echo")
    with http_settings(port, name=mode):
        answers = [bench.call(tool, text="a") for _ in range(2)]
    assert answers[-1] == ToolReturned(value={"result": "a"})
    first = answers[0]
    assert isinstance(first, ToolReturned) or first.blame == "transient"


def test_an_http_server_that_dies_in_a_call_leaves_it_unsure(tmp_path: Path) -> None:
    with http_settings() as settings:
        bench = Bench(settings, tmp_path / "run")
        with pytest.raises(MayHaveHappened):
            bench.call(bench.tool("die"))


def raw(folder: Path, answer: str) -> Bench:
    command = (sys.executable, str(FAKE.with_name("raw_server.py")), answer)
    return Bench(stdio_settings(folder, name="raw", command=command), folder / "run")


@pytest.mark.parametrize(
    ("answer", "words"),
    [("no result", "an answer that breaks the protocol"), ("own error", "raw: no such page")],
)
def test_an_answer_that_is_an_error_or_none_is_what_the_model_reads(
    tmp_path: Path, answer: str, words: str
) -> None:
    failed = failure(raw(tmp_path, answer), "go")
    assert failed.blame == "recoverable"
    assert words in failed.message


@pytest.mark.parametrize("answer", ["other error", "not json"])
def test_an_answer_that_may_be_the_connections_own_leaves_the_call_unsure(
    tmp_path: Path, answer: str
) -> None:
    bench = raw(tmp_path, answer)
    with pytest.raises(MayHaveHappened):
        bench.call(bench.tool("go"))


def test_a_question_to_a_person_is_refused_with_a_sentence(bench: Bench) -> None:
    failed = failure(bench, "ask_a_person")
    assert "licitation" in failed.message


# --- processes ------------------------------------------------------------------------------------------------------


def test_whatever_a_server_has_started_ends_with_it(own: Bench, tmp_path: Path) -> None:
    beside = tmp_path / "pids"
    own.value("grandchildren", beside=str(beside))
    pids = [int(pid) for pid in beside.read_text().split()]
    assert all(map(is_alive, pids))
    sessions.close_all()
    wait_for(lambda: not any(map(is_alive, pids)))


def test_a_killed_worker_leaves_no_server_behind(tmp_path: Path) -> None:
    beside = tmp_path / "pids"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), str(beside)])
    wait_for(lambda: beside.exists() and len(beside.read_text().split()) == 3)
    pids = [int(pid) for pid in beside.read_text().split()]
    worker.kill()
    worker.wait()
    wait_for(lambda: not any(map(is_alive, pids)))


WORKER = """
import signal, sys
from pathlib import Path
from tests.adapters.mcp.serving import Bench, stdio_settings
bench = Bench(stdio_settings(Path(sys.argv[1])), Path(sys.argv[1]) / "run")
bench.value("grandchildren", beside=sys.argv[2])
signal.pause()
"""


def test_new_settings_start_a_new_server_and_end_the_old_one(own: Bench, tmp_path: Path) -> None:
    beside = tmp_path / "pids"
    own.value("grandchildren", beside=str(beside))
    other = Bench(own.settings.model_copy(update={"version": 1}), own.folder)
    assert other.value("echo", text="new") == {"result": "new"}
    wait_for(lambda: not any(is_alive(int(pid)) for pid in beside.read_text().split()))


def test_an_unused_server_ends_after_a_while(
    own: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "IDLE_S", 0.3)
    beside = tmp_path / "pids"
    own.value("grandchildren", beside=str(beside))
    wait_for(lambda: not any(is_alive(int(pid)) for pid in beside.read_text().split()))


def _moved(tool: Any, bench: Bench) -> Any:
    """Return the same approved definition as a tool of another server."""
    from runs.adapters.mcp import Approved, Definition, tool_of

    definition = Definition.model_validate_json(tool.arguments.definition_text)
    return tool_of(bench.settings, Approved(definition), bench.heard)
