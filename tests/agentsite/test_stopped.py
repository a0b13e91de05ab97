"""What stops a command from outside is a sentence and an exit code of its own, and no traceback."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import ConnectionHandler

from agentsite.environment import ROOT, private_dir, sqlite_database
from agentsite.migrating import DatabaseAway, prepare_database
from agentsite.stopped import STOPPED, sentence_of
from agentsite.supervise import held, write_atomically
from tests.commands import command, database_url
from tests.launching import FINAL, launch
from tests.running import work
from tests.stack import own_environ

pytestmark = pytest.mark.usefixtures("every_run_verifies")


def manage(*words: str, data: Path, stdout: Any = subprocess.PIPE, database: str = "") -> Any:
    environ = own_environ(data) | {"DATABASE_URL": database, "REDIS_URL": ""}
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=environ,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("export", "99"), 2, "There is no run 99.\n"),
        (("launch",), 2, "Name the machine: --machine.\n"),
        (
            ("restore", "x", "--force", "--settings=agentsite.settings"),
            2,
            "The site runs. Stop it first (Ctrl-C in its terminal).\n",
        ),
        (("createsuperuser", "--noinput"), 1, "You must use --username with --noinput.\n"),
    ],
)
def test_what_a_command_refuses_is_its_sentence_alone(words: tuple[str, ...], code: int, said: str) -> None:
    with held(private_dir(Path(settings.DATA_DIR) / "run") / "up.lock"):
        done = command(*words)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_command_may_have_an_option_of_any_name() -> None:
    done = command("shell", "-c", "print(42)")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "42")


def test_where_the_traceback_is_wanted_it_is_shown() -> None:
    done = command("export", "99", "--traceback")
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("CommandError: There is no run 99.\n")


@pytest.mark.database
@pytest.mark.parametrize("name", ["export", "verify"])
def test_output_that_has_no_place_is_said_and_is_no_fault_of_the_run(name: str, tmp_path: Path) -> None:
    run = work(launch(FINAL))
    with Path("/dev/full").open("w") as full:
        done = manage(name, str(run.pk), data=tmp_path, stdout=full, database=database_url())
    assert done.returncode == STOPPED
    assert done.stderr == (
        "The disk is full where this command writes (No space left on device). Free some space, then run it again.\n"
    )


def test_where_no_site_was_started_the_command_that_makes_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "agentsite.sqlite3").touch()
    done = manage("export", "1", data=tmp_path)
    assert (done.returncode, done.stdout) == (STOPPED, "")
    assert done.stderr.startswith(
        "The database lacks the tables of this version. Start the site once (manage.py up), which makes them,"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "--all"),
        ("backup", "x.zip"),
        ("export", "1"),
        ("replay", "1"),
        ("sign_in_link",),
        ("launch", "--machine=ruled", "--goal=x", "--inline", '--script={"replies": {}}'),
    ],
    ids=lambda words: words[0],
)
def test_a_command_about_a_site_makes_none_where_the_name_is_mistyped(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    data = tmp_path / "nowhere"
    done = manage(*words, data=data)
    assert (done.returncode, done.stdout) == (STOPPED, "")
    assert done.stderr == (
        f"There is no site at {data}: the directory does not exist. Name the right data directory "
        "(AGENTSITE_DATA_DIR), or start a site there (manage.py up). Nothing was made.\n"
    )
    assert not data.exists()


def test_a_directory_or_a_database_that_is_no_site_stays_as_it_is(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other.sqlite3"
    data.mkdir(mode=0o700)
    (data / "letter.txt").touch()
    done = manage("verify", "--all", data=data)
    assert done.stderr.startswith(f"There is no site in {data}. Name the right data directory")
    assert [path.name for path in data.iterdir()] == ["letter.txt"]
    done = manage("verify", "--all", data=data, database=f"sqlite:///{other}")
    assert done.stderr.startswith(f"There is no site at {other}. Name the right data directory")
    assert [path.name for path in data.iterdir()] == ["letter.txt"] and not other.exists()


@pytest.mark.parametrize("words", [("machines",), ("verify", "--help"), ("help",)], ids=" ".join)
def test_a_command_that_needs_no_site_makes_none(words: tuple[str, ...], tmp_path: Path) -> None:
    done = manage(*words, data=tmp_path / "nowhere")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.database
def test_a_restore_makes_a_site_of_a_good_file_alone(tmp_path: Path) -> None:
    work(launch(FINAL))
    good, bad, data = tmp_path / "good.zip", tmp_path / "bad.zip", tmp_path / "new"
    call_command("backup", str(good), stdout=io.StringIO())
    bad.write_bytes(good.read_bytes()[:-100])
    done = manage("restore", str(bad), data=data)
    assert (done.returncode, done.stderr.endswith("Nothing was changed.\n")) == (2, True)
    assert not data.exists()
    done = manage("restore", str(good), data=data)
    assert done.returncode == 0, done.stderr
    key = (data / "secret_key").read_text()
    done = manage("verify", "--all", data=data)
    assert (done.returncode, done.stdout) == (0, "1 run verifies.\n")
    assert (data / "secret_key").read_text() == key


def test_a_full_disk_is_not_taken_for_a_wrong_address(tmp_path: Path) -> None:
    database = ConnectionHandler({"default": sqlite_database(tmp_path / "full.sqlite3")})["default"]
    with database.cursor() as cursor:
        cursor.execute("PRAGMA max_page_count = 2")
        with pytest.raises(OperationalError) as full:
            cursor.execute("CREATE TABLE long AS SELECT randomblob(100000) AS bytes")
    database.close()
    assert sentence_of(full.value) == str(DatabaseAway(full.value))
    assert str(DatabaseAway(full.value)).startswith("The database's disk is full. Free some space")


def test_a_data_directory_of_another_user_is_refused_in_a_sentence() -> None:
    code = (
        "import os, pathlib, sys; from agentsite.environment import BadDataDirectory, private_dir\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: private_dir(pathlib.Path(sys.argv[1]))\n"
        "except BadDataDirectory as why: print(why)"
    )
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        data.mkdir(mode=0o500)
        Path(folder).chmod(0o755)
        said = subprocess.run(
            [sys.executable, "-c", code, str(data)], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert said.stdout.startswith(f"{data} can't be the data directory: this user may not"), said.stderr


def test_a_fault_of_the_program_keeps_its_traceback() -> None:
    assert sentence_of(KeyError("x")) is None
    assert sentence_of(FileNotFoundError(errno.ENOENT, "No such file")) is None


def test_a_text_that_can_not_be_written_leaves_no_draft(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(there, "text")
    assert list(tmp_path.iterdir()) == [there]


@pytest.mark.database
def test_a_database_of_a_newer_version_is_refused_and_named() -> None:
    MigrationRecorder(connection).record_applied("runs", "9999_later")
    try:
        with pytest.raises(
            CommandError, match=r"has changed the database \(runs\.9999_later is unknown here\)"
        ):
            prepare_database()
        with pytest.raises(CommandError, match="newer version") as refused:
            call_command("verify", "--all")
        assert refused.value.returncode == 2
    finally:
        MigrationRecorder(connection).record_unapplied("runs", "9999_later")
