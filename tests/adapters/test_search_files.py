"""Search of names and lines in the run's own directory, bounded in time and size."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from runs.adapters.folder import RunFolder
from runs.adapters.tool import Place, ToolError
from runs.adapters.tools import TOOLS
from runs.adapters.tools.search_files import LINE_CHARACTERS, MAX_MATCHES, PatternTooSlow, PatternWrong


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run's own directory with a few files."""
    folder = RunFolder(tmp_path / "run")
    folder.write("notes/tides.md", b"# Tides\nHigh water: 6:12\nLow water: 12:30\n")
    folder.write("notes/moon.md", "# Moon\nIt pulls the Water.\nGrüße\n".encode())
    folder.write("water.txt", b"nothing here\n")
    folder.write("picture.png", b"\x89PNG water\xff\xfe")
    return tmp_path / "run"


def search(home: Path, pattern: str, **where: Any) -> Any:
    tool = TOOLS["search_files"]
    return tool.run(
        tool.arguments.model_validate({"pattern": pattern, **where}), Place(home, "key", tool.deadline_s)
    ).value


def found(home: Path, pattern: str, **where: Any) -> list[tuple[str, int, str]]:
    matches = search(home, pattern, **where)["matches"]
    return [(match["file"], match["line"], match["text"]) for match in matches if "line" in match]


def test_lines_are_found_with_file_and_number_in_any_case(home: Path) -> None:
    assert found(home, "water", where="text") == [
        ("notes/moon.md", 2, "It pulls the Water."),
        ("notes/tides.md", 2, "High water: 6:12"),
        ("notes/tides.md", 3, "Low water: 12:30"),
    ]


def test_lines_are_counted_as_editors_count_them(home: Path) -> None:
    RunFolder(home).write("odd.txt", "a\x0c\u2028b\r\nneedle\r\n".encode())
    assert found(home, "needle") == [("odd.txt", 2, "needle")]
    assert found(home, "^$", files="odd.txt") == []


def test_names_are_found_without_a_line(home: Path) -> None:
    assert search(home, "water", where="names")["matches"] == [{"file": "water.txt"}]
    assert search(home, "^water", where="both")["matches"] == [{"file": "water.txt"}]


def test_a_pattern_of_names_narrows_the_files(home: Path) -> None:
    assert found(home, r"\d+:\d+$", files="notes/*.md")[0] == ("notes/tides.md", 2, "High water: 6:12")
    assert search(home, "water", files="*.txt")["matches"] == [{"file": "water.txt"}]


def test_what_is_no_text_is_counted_and_not_searched(home: Path) -> None:
    result = search(home, "PNG", where="text")
    assert result == {"matches": [], "files": 3, "not_text": 1, "cut": False}


def test_many_matches_and_long_lines_are_cut_and_say_so(home: Path) -> None:
    RunFolder(home).write("long.txt", (("x" * 1_000 + "needle\n") * (MAX_MATCHES + 5)).encode())
    result = search(home, "needle")
    assert (len(result["matches"]), result["cut"]) == (MAX_MATCHES, True)
    assert "needle" in result["matches"][0]["text"]
    assert len(result["matches"][0]["text"]) <= LINE_CHARACTERS + 2


def test_a_run_without_files_finds_nothing(tmp_path: Path) -> None:
    assert search(tmp_path / "none", "x") == {"matches": [], "files": 0, "not_text": 0, "cut": False}


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]"])
def test_a_pattern_that_is_none_is_refused_with_what_to_do(pattern: str, home: Path) -> None:
    with pytest.raises(PatternWrong, match="Escape"):
        search(home, pattern)


def test_a_pattern_that_takes_too_long_is_given_up(home: Path) -> None:
    RunFolder(home).write("slow.txt", b"a" * 50_000 + b"!\n")
    begun = time.thread_time()
    with pytest.raises(PatternTooSlow, match="simpler") as caught:
        search(home, r"(a|aa)+$|(a+)+b", where="text")
    assert isinstance(caught.value, ToolError)
    assert time.thread_time() - begun < 20
