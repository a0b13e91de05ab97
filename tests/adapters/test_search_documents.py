"""Full-text search over the folders of an administrator: up to date, cited by file and line, within bounds."""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runs.adapters import documents
from runs.adapters.documents import MAX_FILE_BYTES, DocumentIndex
from runs.adapters.tool import Place, ToolError
from runs.adapters.tools import TOOLS
from runs.engine.sources import found_in

TIDES = (
    "# Tides\n\nHigh water comes twice a day.\n\n" + "Filler line.\n" * 200 + "\nThe moon pulls the sea.\n"
)


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    """A folder of documents that is registered as handbook."""
    folder = tmp_path / "handbook"
    (folder / "coast").mkdir(parents=True)
    (folder / "coast" / "tides.md").write_text(TIDES)
    (folder / "moon.txt").write_text("The moon is far away.\n")
    settings.DATA_DIR = tmp_path
    settings.DOCUMENT_FOLDERS = {"handbook": folder}
    return folder


def search(query: str, **more: Any) -> Any:
    tool = TOOLS["search"]
    return tool.run(
        tool.arguments.model_validate({"query": query, **more}), Place(Path("none"), "key", tool.deadline_s)
    ).value


def places(query: str, **more: Any) -> list[str]:
    return [found["url"] for found in search(query, **more)]


def test_passages_are_found_by_their_words_with_file_and_line(folder: Path) -> None:
    (best,) = search("pulling seas")
    assert best["url"] == "document:handbook/coast/tides.md#L206"
    assert best["title"] == "handbook/coast/tides.md, line 206"
    assert best["text"].endswith("Filler line.\n\nThe moon pulls the sea.")
    assert set(places("moon")) == {"document:handbook/coast/tides.md#L206", "document:handbook/moon.txt#L1"}


def test_results_are_sources_that_an_answer_can_cite(folder: Path) -> None:
    (source,) = found_in(search("away"))
    assert (source.url, source.title) == ("document:handbook/moon.txt#L1", "handbook/moon.txt, line 1")
    assert source.link == ""


def test_the_passage_with_more_of_the_words_comes_first(folder: Path) -> None:
    assert places("far moon")[0] == "document:handbook/moon.txt#L1"


def test_changed_new_and_removed_files_are_seen_at_the_next_search(folder: Path) -> None:
    assert places("lighthouse") == []
    (folder / "new.md").write_text("A lighthouse.\n")
    (folder / "moon.txt").write_text("One lighthouse more.\n")
    (folder / "coast" / "tides.md").unlink()
    assert sorted(places("lighthouse")) == ["document:handbook/moon.txt#L1", "document:handbook/new.md#L1"]
    assert places("pulls") == [] and places("away") == []


def test_a_folder_that_is_no_longer_registered_is_not_found(
    folder: Path, settings: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("moon\n")
    settings.DOCUMENT_FOLDERS = {"handbook": folder, "other": other}
    assert places("moon", folder="other") == ["document:other/a.txt#L1"]
    settings.DOCUMENT_FOLDERS = {"other": other}
    assert places("moon") == ["document:other/a.txt#L1"]


def test_a_folder_that_is_away_for_a_while_keeps_its_place(folder: Path) -> None:
    assert places("away")
    folder.rename(folder.with_name("moved"))
    assert places("away")[0] == "document:handbook/moon.txt#L1"


def test_links_hidden_files_binaries_and_huge_files_are_left_out(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("zebra\n")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "linked").symlink_to(tmp_path)
    (folder / ".hidden.txt").write_text("zebra\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "a.txt").write_text("zebra\n")
    (folder / "a.bin").write_bytes(b"zebra\0\xff")
    (folder / "huge.txt").write_bytes(b"zebra\n" * (MAX_FILE_BYTES // 6 + 1))
    os.mkfifo(folder / "pipe.txt")
    (folder / "line\nbreak.txt").write_text("zebra\n")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).write_text("zebra\n")
    assert places("zebra") == []


@pytest.mark.parametrize("query", ['moon" OR x', "moon)", "moon*", "NEAR(moon", "text:moon", "Moon AND"])
def test_no_query_is_read_as_a_command(query: str, folder: Path) -> None:
    assert "document:handbook/moon.txt#L1" in places(query)


def test_what_can_not_be_searched_is_said_with_what_to_do(folder: Path, settings: Any) -> None:
    with pytest.raises(ToolError, match="no word"):
        search("?!")
    with pytest.raises(ToolError, match=r"no folder 'x'. Folders: handbook"):
        search("moon", folder="x")
    settings.DOCUMENT_FOLDERS = {}
    with pytest.raises(ToolError, match="AGENTSITE_DOCUMENTS"):
        search("moon")


def test_a_folder_that_has_gone_is_said_beside_what_is_known_of_it(
    folder: Path, tmp_path: Path, settings: Any
) -> None:
    settings.DOCUMENT_FOLDERS = {"handbook": folder, "minutes": tmp_path / "minutes"}
    (tmp_path / "minutes").mkdir()
    assert len(search("away")) == 1
    folder.rename(tmp_path / "elsewhere")
    known, gone = search("away")
    assert known["url"] == "document:handbook/moon.txt#L1"
    assert (gone["url"], gone["title"]) == (
        "",
        "The folder 'handbook' can't be read now: results from it may be old or missing. Tell an administrator.",
    )
    assert search("away", folder="minutes") == []
    assert found_in(search("away"))[0].url == known["url"] and len(found_in(search("away"))) == 1


def test_results_are_at_most_as_many_as_wanted(folder: Path) -> None:
    for number in range(20):
        (folder / f"{number}.txt").write_text("gull\n")
    assert len(places("gull", results=5)) == 5


def test_a_long_line_is_cut_into_passages_of_the_same_line(folder: Path) -> None:
    (folder / "long.txt").write_text("x\n" + "word " * 3_000 + "needle\n")
    (found,) = search("needle")
    assert found["url"] == "document:handbook/long.txt#L2"
    assert len(found["text"]) <= documents.LONGEST_PASSAGE


def test_what_is_not_indexed_in_time_is_said_and_comes_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "UPDATE_S", -1.0)
    assert search("moon") == [{"url": "", "title": "2 files are not indexed yet. Search again for the rest."}]
    monkeypatch.undo()
    assert len(search("moon")) == 2


def test_another_process_that_indexes_holds_nobody_up(folder: Path, tmp_path: Path) -> None:
    assert places("away")
    (folder / "new.md").write_text("away\n")
    with sqlite3.connect(tmp_path / "documents.sqlite3") as other:
        other.execute("BEGIN IMMEDIATE")
        assert len(places("away")) == 2  # the one that is indexed, and the word on what is not
    other.close()


def test_an_index_of_another_version_is_made_anew(folder: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "documents.sqlite3") as old:
        old.execute("CREATE TABLE files (other)")
        old.execute("PRAGMA user_version = 99")
    old.close()
    assert len(places("moon")) == 2


def test_a_damaged_index_is_made_anew(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "documents.sqlite3").write_bytes(b"no database " * 100)
    assert len(places("moon")) == 2


def test_lines_are_counted_as_editors_count_them(folder: Path) -> None:
    (folder / "odd.txt").write_bytes("\ufeffa\x0c\u2028b\r\nneedle\r\n".encode())
    assert places("needle") == ["document:handbook/odd.txt#L2"]


def test_many_at_once_make_one_index(folder: Path) -> None:
    with ThreadPoolExecutor(8) as desk:
        found = list(desk.map(lambda _: places("far"), range(16)))
    assert all(set(one) <= {"document:handbook/moon.txt#L1", ""} for one in found)
    assert places("far") == ["document:handbook/moon.txt#L1"]


def test_the_index_is_private(folder: Path, tmp_path: Path) -> None:
    assert places("moon")
    assert (tmp_path / "documents.sqlite3").stat().st_mode & 0o077 == 0


def test_an_unchanged_folder_is_not_read_again(folder: Path, tmp_path: Path) -> None:
    index = DocumentIndex(tmp_path / "documents.sqlite3", {"handbook": folder})
    assert (index.update().read, index.update().read) == (2, 0)
