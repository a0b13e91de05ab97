"""The toolbox shows what there is, runs what may run, and lets nothing but two kinds of answer out."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from runs.adapters.scripted import parse_script
from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError
from runs.adapters.toolbox import MAX_RESULT, Toolbox, cut
from runs.adapters.tools import TOOLS
from runs.engine.effects import Failed, ToolCall, ToolReturned
from runs.engine.sources import found_in
from runs.engine.tools import ToolSpec, check_arguments
from runs.engine.values import canonical

SCRIPT = parse_script(
    {
        "tools": {
            "calculator": {"params": {"q": "string"}, "effects": "send", "results": [{"output": "scripted"}]},
            "report": {
                "effects": "write",
                "results": [{"output": "made", "files": [{"name": "out/report.md", "text": "# Tides"}]}],
            },
            "forbidden": {"effects": "read", "allowed": False},
        }
    }
)


class Word(Arguments):
    """A word."""

    word: str = Field(min_length=1)


def box_of(run: Callable[[Any, Place], Result], folder: Path) -> Toolbox:
    tool = Tool("odd", "An odd tool.", Word, "read", False, 5, run)
    return Toolbox(["odd"], folder, None, [], {"odd": tool})


def call(box: Toolbox, tool: str, **args: Any) -> ToolReturned | Failed:
    spec = box.specs.get(tool)
    return box.call(ToolCall(tool=tool, args=args, effects=spec.effects if spec else "none"), 1, "key-1")


def outcome(box: Toolbox, tool: str, **args: Any) -> Any:
    answer = call(box, tool, **args)
    assert isinstance(answer, ToolReturned)
    return answer.value


def test_every_registered_tool_is_shown_and_the_permitted_ones_marked(tmp_path: Path) -> None:
    box = Toolbox(["calculator", "write_file"], tmp_path, None, [])
    assert {name for name, spec in box.specs.items() if spec.permitted} == {"calculator", "write_file"}
    assert {name: spec.effects for name, spec in box.specs.items()} == {
        "calculator": "none",
        "now": "read",
        "read_file": "read",
        "write_file": "write",
        "list_files": "read",
        "search_files": "read",
        "search": "read",
        "sql_query": "read",
        "fetch_url": "read",
        "http_request": "send",
        "send_mail": "send",
        "ask_person": "none",
        "python": "none",
    }


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_describes_itself_and_its_arguments(name: str) -> None:
    spec = TOOLS[name].spec()
    assert len(spec.description) > 20
    assert spec.parameters["type"] == "object"
    assert all("description" in argument for argument in spec.parameters["properties"].values())
    assert not check_arguments(spec, {}).drops


def test_a_permitted_tool_runs(tmp_path: Path) -> None:
    box = Toolbox(["calculator", "write_file", "read_file"], tmp_path, None, [])
    assert outcome(box, "calculator", expression="6 * 7") == 42
    written = call(box, "write_file", name="a.txt", content="hi")
    assert isinstance(written, ToolReturned)
    assert [file.name for file in written.files] == ["a.txt"]
    assert outcome(box, "read_file", name="a.txt")["text"] == "hi"


@pytest.mark.parametrize(
    ("tool", "sentence"),
    [("nothing", "There is no tool nothing"), ("now", "not permitted"), ("agent.helper", "is a child run")],
)
def test_what_may_not_run_does_not(tool: str, sentence: str, tmp_path: Path) -> None:
    failed = call(Toolbox(["calculator"], tmp_path, None, ["helper"]), tool)
    assert isinstance(failed, Failed)
    assert (failed.blame, failed.ran) == ("recoverable", False)
    assert sentence in failed.message


def test_a_child_run_is_offered_as_a_tool_with_a_goal(tmp_path: Path) -> None:
    spec = Toolbox([], tmp_path, None, ["helper"]).specs["agent.helper"]
    assert (spec.child, spec.effects, spec.permitted) == ("helper", "none", True)
    assert [fault.code for fault in check_arguments(spec, {}).faults] == ["missing_required"]


def test_scripted_tools_stand_before_registered_ones(tmp_path: Path) -> None:
    box = Toolbox(["calculator", "forbidden"], tmp_path, SCRIPT, [])
    assert box.specs["calculator"].effects == "send"
    assert outcome(box, "calculator", q="1+1") == "scripted"
    assert not box.specs["forbidden"].permitted
    assert isinstance(call(box, "forbidden"), Failed)


def test_what_is_built_into_the_machine_hides_all_others_and_hands_its_arguments_on(tmp_path: Path) -> None:
    own = ToolSpec(name="calculator", effects="none")
    box = Toolbox([], tmp_path, SCRIPT, [], built_in=[own])
    assert box.specs["calculator"] == own
    assert outcome(box, "calculator", answer="42") == {"answer": "42"}


def test_files_of_a_scripted_tool_are_written(tmp_path: Path) -> None:
    made = call(Toolbox([], tmp_path / "run", SCRIPT, []), "report")
    assert isinstance(made, ToolReturned)
    assert [(file.name, file.size) for file in made.files] == [("out/report.md", 7)]
    assert (tmp_path / "run" / "out" / "report.md").read_text() == "# Tides"


def test_of_a_scripted_result_all_files_are_written_or_none(tmp_path: Path) -> None:
    files = [{"name": "report.md", "text": "new"}, {"name": "Report.md", "text": "x"}]
    tools = {"report": {"effects": "write", "results": [{"output": "made", "files": files}]}}
    box = Toolbox([], tmp_path / "run", parse_script({"tools": tools}), [])
    failed = call(box, "report")
    assert isinstance(failed, Failed)
    assert failed.blame == "recoverable"
    assert "'Report.md' conflicts with 'report.md'" in failed.message
    assert not (tmp_path / "run").exists()


def test_arguments_that_the_tool_does_not_take_are_named(tmp_path: Path) -> None:
    failed = call(Toolbox(["calculator"], tmp_path, None, []), "calculator", expression="", more=1)
    assert isinstance(failed, Failed)
    assert (failed.blame, failed.ran) == ("recoverable", False)
    assert "expression: " in failed.message and "more: " in failed.message


class Odd(ToolError):
    """A tool's own refusal."""


@pytest.mark.parametrize(
    ("error", "blame", "sentence"),
    [
        (Odd("No such word."), "recoverable", "No such word."),
        (TimeoutError("too long"), "transient", "too long"),
        (ConnectionResetError("gone"), "transient", "gone"),
        (OSError(errno.ENOSPC, "No space left on device"), "fatal", "No space left on device"),
        (ModuleNotFoundError("no", name="simpleeval"), "fatal", "lacks simpleeval"),
        (KeyError("x"), "recoverable", "KeyError"),
        (RecursionError(), "recoverable", "RecursionError"),
    ],
)
def test_every_exception_becomes_a_failure(
    error: Exception, blame: str, sentence: str, tmp_path: Path
) -> None:
    def run(arguments: Word, place: Place) -> Result:
        raise error

    failed = call(box_of(run, tmp_path), "odd", word="w")
    assert isinstance(failed, Failed)
    assert (failed.blame, failed.ran) == (blame, True)
    assert sentence in failed.message
    assert str(tmp_path) not in failed.message


def test_a_tool_is_told_its_directory_key_and_time(tmp_path: Path) -> None:
    places: list[Place] = []

    def run(arguments: Word, place: Place) -> Result:
        places.append(place)
        return Result(arguments.word)

    assert outcome(box_of(run, tmp_path), "odd", word="w") == "w"
    assert places == [Place(tmp_path, "key-1", 5)]


@pytest.mark.parametrize(
    "value",
    [
        "x" * 200_000,
        {"a": "x" * 50_000, "b": ["y" * 50_000]},
        list(range(50_000)),
        {str(n): "v" for n in range(19_000)},
    ],
)
def test_a_large_result_is_cut_and_says_so(value: Any, tmp_path: Path) -> None:
    shown = outcome(box_of(lambda arguments, place: Result(value), tmp_path), "odd", word="w")
    assert len(canonical(shown)) <= MAX_RESULT
    assert "cut" in canonical(shown) or "entries more, left out" in canonical(shown)


def test_a_result_passes_the_door_of_foreign_data(tmp_path: Path) -> None:
    value = {"nul": "a\x00b", "lone": "\ud800", "nan": float("nan"), 3: {1}, "bytes": b"\xff"}
    shown = outcome(box_of(lambda arguments, place: Result(value), tmp_path), "odd", word="w")
    assert shown == {"nul": "a␀b", "lone": "�", "nan": "nan", "3": [1], "bytes": "�"}


def test_what_fits_is_not_touched() -> None:
    value = {"a": ["x" * 60_000, 1, None, True]}
    assert cut(value) == value


def test_listing_tools_loads_no_heavy_library() -> None:
    program = (
        "import sys, runs.adapters.toolbox, runs.adapters.scripted, runs.adapters.models,"
        " runs.adapters.secrets\n"
        "heavy = {'httpcore2', 'httpx2', 'simpleeval', 'genai_prices', 'cryptography', 'openai'}\n"
        "print(*(heavy & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "\n", "")


def test_a_very_long_list_keeps_its_first_entries_and_says_how_many_are_left_out() -> None:
    sources = [{"url": f"https://a.example/{n}", "title": "t" * 60, "text": "x" * 60} for n in range(900)]
    shorter = cut(sources)
    assert 200 < len(shorter) < 900
    assert shorter[:3] == sources[:3]
    assert shorter[-1] == {
        "url": "",
        "title": f"… [{900 - len(shorter) + 1} entries more, left out for length]",
    }
    assert len(found_in(shorter)) == len(shorter) - 1
    assert cut(list(range(40_000)))[-1].endswith("entries more, left out for length]")
