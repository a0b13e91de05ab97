"""The files tools stay in the run's own directory, and files appear whole."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from runs.adapters import folder as folder_module
from runs.adapters.atomic_files import move, new_part, put, put_back, set_aside, write_new
from runs.adapters.folder import (
    KEPT,
    NAME_SENTENCE,
    FileChanged,
    FileNotThere,
    FileTooLarge,
    FolderFull,
    NameLeavesFolder,
    NameTaken,
    NotAFile,
    RunFolder,
    VersionsFull,
    parts_of,
)
from runs.adapters.tool import Place, Result, ToolError
from runs.adapters.tools import TOOLS
from runs.adapters.tools.files import READ_CHARACTERS, NotText
from runs.engine.tools import check_arguments


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file beside the run's directory that no run may see or change."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    return secret


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The run's own directory, not made yet."""
    return tmp_path / "runs" / "one"


def use(tool: str, home: Path, **arguments: object) -> Result:
    registered = TOOLS[tool]
    return registered.run(
        registered.arguments.model_validate(arguments), Place(home, "key", registered.deadline_s)
    )


ESCAPES = [
    "../secret.txt",
    "/etc/passwd",
    "a/../../secret.txt",
    "..",
    ".",
    "a//b",
    "a/",
    "/",
    ".hidden",
    "a/.hidden/b",
    "..\\secret.txt",
    "a\\b",
    "C:\\x",
    "a\x00b",
    "a\nb",
    "a\u202eb",
    "\ud800",
    "a/" * 20 + "b",
    "x" * 201,
    "ä" * 150,
    "nul",
    "a/CON.txt",
    "lpt1.tar.gz",
    "a.",
    "a /b",
    " a",
    "a\u200bb",
    "a\u3164b",
    "a\ufe0f",
    ".kept/x",
]


@pytest.mark.parametrize("name", ESCAPES)
def test_no_name_leaves_the_directory(name: str, home: Path, outside: Path) -> None:
    folder = RunFolder(home)
    with pytest.raises(NameLeavesFolder):
        folder.write(name, b"x")
    with pytest.raises(NameLeavesFolder):
        folder.read(name)
    assert outside.read_text() == "secret"
    assert not home.exists()


NO_PATTERN_TELLS = {
    "a\x00b",
    "a\u202eb",
    "\ud800",
    "ä" * 150,
    "nul",
    "a/CON.txt",
    "lpt1.tar.gz",
    "a\u200bb",
    "a\u3164b",
    "a\ufe0f",
}


@pytest.mark.parametrize("name", [name for name in ESCAPES if name not in NO_PATTERN_TELLS])
def test_a_call_to_write_under_such_a_name_is_refused_before_anyone_is_asked(name: str) -> None:
    (fault,) = check_arguments(TOOLS["write_file"].spec(), {"name": name, "content": "x"}).faults
    assert fault.param == "name"
    assert "must have at most" in fault.message or fault.message == f"write_file: name {NAME_SENTENCE}."


@pytest.mark.parametrize("name", ["a", "a b.c", "1/2/3/4/5/6/7/8", "Grüße/ä ö.md", "a..b", "-x"])
def test_a_plain_name_passes_the_pattern(name: str) -> None:
    assert parts_of(name)
    assert not check_arguments(TOOLS["write_file"].spec(), {"name": name, "content": "x"}).faults


def test_what_is_written_is_read_and_listed(home: Path) -> None:
    written = use("write_file", home, name="notes/tides.md", content="# Grüße\n")
    assert written.value == {"name": "notes/tides.md", "bytes": 10}
    assert [(file.name, file.text, file.size) for file in written.files] == [
        ("notes/tides.md", "# Grüße\n", 10)
    ]
    assert use("read_file", home, name="notes/tides.md").value == {
        "name": "notes/tides.md",
        "text": "# Grüße\n",
        "characters": 8,
    }
    use("write_file", home, name="a.txt", content="")
    assert use("list_files", home).value == [
        {"name": "a.txt", "bytes": 0},
        {"name": "notes/tides.md", "bytes": 10},
    ]


def test_the_directory_and_its_files_are_private(home: Path) -> None:
    use("write_file", home, name="notes/a.txt", content="x")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "notes", home / "notes" / "a.txt")]
    assert modes == [0o700, 0o700, 0o600]


def test_a_file_is_replaced_and_nothing_else_stays(home: Path) -> None:
    use("write_file", home, name="a.txt", content="one")
    use("write_file", home, name="a.txt", content="two")
    assert sorted(path.name for path in home.iterdir()) == [KEPT, "a.txt"]
    assert (home / "a.txt").read_text() == "two"


def test_a_write_that_fails_leaves_the_old_file_and_no_part(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use("write_file", home, name="a.txt", content="one")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        use("write_file", home, name="a.txt", content="two")
    assert sorted(path.name for path in home.iterdir()) == [KEPT, "a.txt"]
    assert [path.name for path in (home / KEPT).iterdir()] == [sha256(b"one").hexdigest()]
    assert (home / "a.txt").read_text() == "one"


def test_a_long_file_is_read_in_portions(home: Path) -> None:
    use("write_file", home, name="a.txt", content="x" * READ_CHARACTERS + "end")
    first = use("read_file", home, name="a.txt").value
    assert first["go_on_at"] == READ_CHARACTERS
    assert use("read_file", home, name="a.txt", start=first["go_on_at"]).value["text"] == "end"


def test_a_link_to_a_file_is_neither_read_nor_written_through(home: Path, outside: Path) -> None:
    home.mkdir(parents=True)
    (home / "link.txt").symlink_to(outside)
    with pytest.raises(NotAFile):
        RunFolder(home).read("link.txt")
    assert RunFolder(home).entries() == []
    RunFolder(home).write("link.txt", b"mine")
    assert outside.read_text() == "secret"
    assert not (home / "link.txt").is_symlink()


def test_a_link_to_a_directory_is_not_entered(home: Path, outside: Path) -> None:
    home.mkdir(parents=True)
    (home / "up").symlink_to(outside.parent)
    for name in ("up/secret.txt", "up/new.txt"):
        with pytest.raises(NotAFile):
            RunFolder(home).read(name)
        with pytest.raises(NotAFile):
            RunFolder(home).write(name, b"x")
    assert outside.read_text() == "secret"
    assert not (outside.parent / "new.txt").exists()
    assert RunFolder(home).entries() == []


def test_a_pipe_does_not_hold_the_reader(home: Path) -> None:
    home.mkdir(parents=True)
    os.mkfifo(home / "pipe")
    with pytest.raises(NotAFile):
        RunFolder(home).read("pipe")


def test_a_directory_is_no_file(home: Path) -> None:
    use("write_file", home, name="notes/a.txt", content="x")
    with pytest.raises(NotAFile):
        RunFolder(home).read("notes")
    with pytest.raises(NotAFile):
        RunFolder(home).write("notes", b"other")
    with pytest.raises(NotAFile):
        RunFolder(home).write("notes/a.txt/b", b"more")
    assert len(list((home / KEPT).iterdir())) == 1  # what could not be written is not kept


def test_what_is_not_there_is_said_by_name(home: Path) -> None:
    with pytest.raises(FileNotThere, match=r"no file 'a\.txt'"):
        use("read_file", home, name="a.txt")
    assert use("list_files", home).value == []


def test_a_file_that_is_no_text_is_not_read(home: Path) -> None:
    RunFolder(home).write("a.bin", b"\xff\xfe\x00")
    with pytest.raises(NotText):
        use("read_file", home, name="a.bin")


def test_files_and_directories_have_a_size(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(folder_module, "MAX_FOLDER_BYTES", 150)
    monkeypatch.setattr(folder_module, "MAX_FILES", 3)
    folder = RunFolder(home)
    with pytest.raises(FileTooLarge):
        folder.write("a", b"x" * 101)
    folder.write("a", b"x" * 100)
    with pytest.raises(FolderFull):
        folder.write("b", b"x" * 51)
    folder.write("a", b"x" * 10)
    folder.write("b", b"")
    folder.write("c", b"")
    with pytest.raises(FolderFull):
        folder.write("d", b"")
    (home / "a").write_bytes(b"x" * 200)
    with pytest.raises(FileTooLarge):
        folder.read("a")


def test_writing_the_same_again_changes_nothing(home: Path) -> None:
    assert use("write_file", home, name="a", content="x") == use("write_file", home, name="a", content="x")
    assert TOOLS["write_file"].idempotent


def test_a_name_that_differs_in_case_alone_is_refused(home: Path) -> None:
    folder = RunFolder(home)
    folder.write("Notes/Über.md", b"one")
    for name in ("notes/über.md", "Notes/U\u0308ber.md"):
        with pytest.raises(NameTaken, match=r"conflicts with 'Notes/Über\.md'"):
            folder.write(name, b"two")
    assert folder.read("Notes/Über.md") == b"one"


REFUSED_TOGETHER: tuple[tuple[type[ToolError], tuple[tuple[str, bytes], ...]], ...] = (
    (NameLeavesFolder, (("a.txt", b"new"), ("../b.txt", b"x"))),
    (FileTooLarge, (("a.txt", b"new"), ("b.txt", b"x" * 101))),
    (NameTaken, (("a.txt", b"new"), ("A.txt", b"x"))),
    (NameTaken, (("a.txt", b"new"), ("b.txt", b"x"), ("B.txt", b"x"))),
    (NameTaken, (("a.txt", b"new"), ("b", b"x"), ("b/c", b"x"))),
    (NameTaken, (("a.txt", b"new"), ("b/C/d", b"x"), ("B/c", b"x"))),
    (NameTaken, (("a.txt", b"new"), ("Out", b"x"))),
    (NameTaken, (("a.txt", b"new"), ("A.TXT/b", b"x"))),
    (NotAFile, (("a.txt", b"new"), ("out", b"x"))),
    (NotAFile, (("b.txt", b"x"), ("a.txt/b", b"x"))),
    (NotAFile, (("a.txt", b"new"), ("up/b.txt", b"x"))),
    (FolderFull, (("a.txt", b"new"), ("b.txt", b""), ("c.txt", b""))),
    (FolderFull, (("a.txt", b"new"), ("b.txt", b"x" * 100), ("out/b.txt", b"y" * 50))),
    (VersionsFull, (("a.txt", b"new"), ("b.txt", b"x" * 100), ("b.txt", b"y" * 100), ("b.txt", b"z"))),
    (VersionsFull, (("a.txt", b"1"), ("a.txt", b"2"), ("a.txt", b"3"), ("a.txt", b"4"))),
)


@pytest.mark.parametrize(("refusal", "files"), REFUSED_TOGETHER)
def test_of_several_files_none_is_written_where_one_is_refused(
    refusal: type[ToolError],
    files: tuple[tuple[str, bytes], ...],
    home: Path,
    outside: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {"MAX_FILE_BYTES": 100, "MAX_FOLDER_BYTES": 150, "MAX_FILES": 3}
    for name, limit in (limits | {"MAX_KEPT": 5, "MAX_KEPT_BYTES": 200}).items():
        monkeypatch.setattr(folder_module, name, limit)
    folder = RunFolder(home)
    folder.write_all([("a.txt", b"old"), ("out/b.txt", b"")])
    (home / "up").symlink_to(outside.parent)
    before = picture_of(home)
    with pytest.raises(refusal):
        folder.write_all(files)
    assert picture_of(home) == before
    folder.write_all([("a.txt", b"new"), ("c.txt", b"x")])
    assert (folder.read("a.txt"), folder.read("c.txt")) == (b"new", b"x")


def test_files_of_one_result_that_can_t_stand_together_make_no_directory(home: Path) -> None:
    with pytest.raises(NameTaken, match=r"'Report\.md' conflicts with 'report\.md'"):
        RunFolder(home).write_all([("report.md", b"one"), ("Report.md", b"two")])
    assert not home.exists()


def test_several_files_are_written_and_of_a_name_that_comes_twice_the_last_stands(home: Path) -> None:
    folder = RunFolder(home)
    made = folder.write_all([("a.txt", b"one"), ("out/b.txt", b"two"), ("a.txt", b"three")])
    assert [(file.name, file.size) for file in made] == [("a.txt", 3), ("out/b.txt", 3), ("a.txt", 5)]
    assert [folder.kept(file.sha256) for file in made] == [b"one", b"two", b"three"]
    assert (folder.read("a.txt"), folder.read("out/b.txt")) == (b"three", b"two")
    assert folder.write_all([]) == ()


@pytest.mark.parametrize("second_names", [True, False])
@pytest.mark.parametrize(
    ("step", "nth"), [("rename", 4), ("rename", 5), ("rename", 6), ("fsync", 8), ("fsync", 12)]
)
def test_what_fails_in_the_middle_of_several_files_leaves_all_as_it_was(
    step: str,
    nth: int,
    second_names: bool,  # noqa: FBT001 (a parameter of the test)
    home: Path,
    outside: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three renames and six syncs are those of the kept bytes, three syncs those of the parts."""
    folder = RunFolder(home)
    folder.write_all([("a.txt", b"old"), ("c/d.txt", b"old too")])
    (home / "link.txt").symlink_to(outside)
    before = {name: told for name, told in picture_of(home).items() if not name.startswith(KEPT)}
    if not second_names:
        monkeypatch.setattr(os, "link", failing(os.link, "Operation not permitted", errno.EPERM, 1, 2, 3, 4))
    with monkeypatch.context() as broken:
        broken.setattr(os, step, failing(getattr(os, step), "No space left on device", errno.ENOSPC, nth))
        with pytest.raises(OSError, match="No space"):
            folder.write_all([("a.txt", b"1"), ("c/d.txt", b"2"), ("link.txt", b"3")])
    after = {name: told for name, told in picture_of(home).items() if not name.startswith(KEPT)}
    assert after == before
    assert list(home.rglob("*.part")) == []
    folder.write_all([("a.txt", b"1"), ("c/d.txt", b"2"), ("link.txt", b"3")])
    assert [entry.size for entry in folder.entries()] == [1, 1, 1]
    assert list(home.rglob("*.part")) == []
    assert outside.read_text() == "secret"


def test_what_another_worker_has_written_since_is_not_taken_back(tmp_path: Path) -> None:
    """A worker that was frozen between two files wakes up, and can't write the second."""
    (tmp_path / "a.txt").write_bytes(b"old")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        for others, stands in (((), b"old"), ((b"theirs",), b"theirs")):
            part = new_part()
            mine = write_new(part, b"mine", folder)
            spare = set_aside("a.txt", folder)
            move(part, "a.txt", folder)
            for content in others:
                put("a.txt", content, folder)
            put_back("a.txt", spare, mine, folder)
            assert (tmp_path / "a.txt").read_bytes() == stands
    finally:
        os.close(folder)


def failing(real: Callable[..., Any], why: str, number: int, *times: int) -> Callable[..., Any]:
    """The system call, which fails at these times."""
    asked = itertools.count(1)

    def call(*given: Any, **named: Any) -> Any:
        if next(asked) in times:
            raise OSError(number, why)
        return real(*given, **named)

    return call


def picture_of(home: Path) -> dict[str, str]:
    """Everything that lies in a directory, and what it holds; a link is where it leads."""
    found = {}
    for path in home.rglob("*"):
        told = str(path.readlink()) if path.is_symlink() else "" if path.is_dir() else path.read_text()
        found[path.relative_to(home).as_posix()] = told
    return found


def test_every_version_is_kept_by_its_digest_and_no_name_reaches_it(home: Path) -> None:
    folder = RunFolder(home)
    first, second = folder.write("a.txt", b"one"), folder.write("a.txt", b"two")
    assert (first.size, first.media_type, first.sha256) == (3, "text/plain", sha256(b"one").hexdigest())
    assert (folder.kept(first.sha256), folder.kept(second.sha256)) == (b"one", b"two")
    assert [entry.name for entry in folder.entries()] == ["a.txt"]
    for name in (f"{KEPT}/{first.sha256}", f"a/../{KEPT}/{first.sha256}"):
        with pytest.raises(NameLeavesFolder):
            folder.write(name, b"mine")
    for digest in ("0" * 64, "../a.txt", "", first.sha256.upper()):
        with pytest.raises(FileNotThere):
            folder.kept(digest)


def test_kept_bytes_that_were_tampered_with_are_not_given_out(home: Path) -> None:
    folder = RunFolder(home)
    made = folder.write("a.txt", b"one")
    (home / KEPT / made.sha256).write_bytes(b"two")
    with pytest.raises(FileChanged):
        folder.kept(made.sha256)


def test_the_place_of_kept_bytes_is_no_link(home: Path, outside: Path) -> None:
    home.mkdir(parents=True)
    (home / KEPT).symlink_to(outside.parent)
    with pytest.raises(NotAFile):
        RunFolder(home).write("a.txt", b"one")
    assert [path.name for path in outside.parent.iterdir() if path.is_file()] == [outside.name]


def test_when_the_quota_of_versions_is_reached_nothing_is_lost(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "MAX_KEPT_BYTES", 10)
    monkeypatch.setattr(folder_module, "MAX_KEPT", 3)
    folder = RunFolder(home)
    folder.write("a.txt", b"12345")
    folder.write("a.txt", b"1234")
    with pytest.raises(VersionsFull, match=r"make 3 with 11 bytes; .* Nothing was written"):
        folder.write("a.txt", b"12")
    assert folder.read("a.txt") == b"1234"
    folder.write("a.txt", b"12345")
    folder.write("b.txt", b"1")
    with pytest.raises(VersionsFull):
        folder.write("b.txt", b"")
    assert folder.read("b.txt") == b"1"


def test_a_file_that_a_tool_put_there_by_itself_is_kept_as_it_stands(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "chart.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    made = RunFolder(home).keep("chart.png")
    assert made.media_type == "image/png"
    (home / "chart.png").unlink()
    assert RunFolder(home).kept(made.sha256) == b"\x89PNG\r\n\x1a\n"
