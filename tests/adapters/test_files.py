"""The files tools stay in the run's own directory, and files appear whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from runs.adapters import folder as folder_module
from runs.adapters.folder import FileNotThere, FileTooLarge, FolderFull, NameLeavesFolder, NotAFile, RunFolder
from runs.adapters.tool import Place, Result
from runs.adapters.tools import TOOLS
from runs.adapters.tools.files import READ_CHARACTERS, NotText


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
    return registered.run(registered.arguments(**arguments), Place(home, "key", registered.deadline_s))


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
    assert [path.name for path in home.iterdir()] == ["a.txt"]
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
    assert [path.name for path in home.iterdir()] == ["a.txt"]
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
        RunFolder(home).write("notes", b"x")
    with pytest.raises(NotAFile):
        RunFolder(home).write("notes/a.txt/b", b"x")


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
