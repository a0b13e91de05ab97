"""Backup and restore: one neutral file, whole or not there; after it nothing goes on unseen."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

from agentsite import archive, restoring
from agentsite.environment import ROOT, private_dir
from agentsite.management.commands.up import web_command, worker_command
from agentsite.sign_in_link import make_link, user_of
from agentsite.supervise import passport
from runs import actions, driver
from runs.models import ModelProfile, RestoreEpoch, Run, SiteRule, Skill, Step
from runs.store import backups
from runs.store.creating import folder_of
from runs.store.db import snapshot
from tests.commands import command, database_url
from tests.launching import ALLOW, FINAL, launch, script, think
from tests.running import decide, pending, work
from tests.stack import LONGEST_S, free_port, own_environ, wait_for
from tests.workers import die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

Content = dict[str, list[str]]


@pytest.fixture(autouse=True)
def own_data_dir(tmp_path: Path, settings: Any) -> Iterator[Path]:
    """A data directory of the test's own."""
    settings.DATA_DIR = tmp_path / "data"
    settings.DATA_DIR.mkdir(mode=0o700)
    yield settings.DATA_DIR


def told(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def refused(*words: str) -> str:
    with pytest.raises(CommandError) as caught:
        told(*words)
    assert caught.value.returncode == 2
    return str(caught.value)


def everything() -> Content:
    """All that a backup must bring back, but for what a restore changes on unfinished runs."""
    with snapshot(however_long=True):
        return {table._meta.label_lower: list(backups.lines_of(table)) for table in backups.tables()}


def changed(before: Content, after: Content) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def populate() -> dict[str, Run]:
    """A site with something of everything: runs that ended, wait, are queued, are in the middle of a deed."""
    alice = User.objects.create_superuser("alice", password="pw")
    alice.groups.add(Group.objects.create(name="friends"))
    actions.register_model(name="hosted", base_url="http://127.0.0.1:1/v1", model_id="m", api_key="sesame")
    Skill.objects.create(name="tides", text="High and low.\n\n\u2603")
    SiteRule.objects.create(rule_json='{"when": {"tool": "nobody"}, "do": "ask"}')
    ended = work(launch(think("search", q="tides"), FINAL, owner=alice))
    waiting = work(launch(think("send", to="bob"), FINAL))
    queued = launch(FINAL)
    deed = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(deed, before=kill, only="send")
    folder = folder_of(ended.pk)
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "süß.txt").write_bytes(b"sweet \x00 bytes")
    return {"ended": ended, "waiting": waiting, "queued": queued, "deed": deed}


def wipe() -> None:
    """An empty database and an empty data directory."""
    with transaction.atomic(), connection.cursor() as cursor:
        backups.empty(cursor)
    RestoreEpoch.objects.all().delete()
    for path in Path(settings.DATA_DIR).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


# --- there and back -----------------------------------------------------------------------------------------------


def test_everything_comes_back_and_what_is_unfinished_is_paused(tmp_path: Path) -> None:
    runs = populate()
    before = everything()
    said = told("backup", str(tmp_path / "site.zip"))
    assert "4 runs (3 unfinished)" in said and "everything except model keys" in said
    wipe()
    assert not Run.objects.exists()
    said = told("restore", str(tmp_path / "site.zip"))
    assert "4 runs" in said and "Paused, each with a note: 3" in said
    assert changed(before, everything()) == {"runs.run", "runs.step"}
    assert (folder_of(runs["ended"].pk) / "deep" / "süß.txt").read_bytes() == b"sweet \x00 bytes"
    ended = Run.objects.get(pk=runs["ended"].pk)
    assert (ended.status, ended.answer, ended.head) == ("succeeded", "42", runs["ended"].head)
    for name in ("waiting", "queued", "deed"):
        run = Run.objects.get(pk=runs[name].pk)
        assert (run.status, run.worker) == ("paused", "")
        assert run.epoch > runs[name].epoch
        row = run.steps.latest("seq")
        assert row.kind == "pause" and "Restored from a backup of" in row.facts_json
        assert "it asks before each call with side effects" in row.facts_json


def test_a_site_that_comes_back_halted_says_so(tmp_path: Path) -> None:
    populate()
    told("backup", str(tmp_path / "working.zip"))
    actions.halt_site(by=None, reason="bad prices")
    told("backup", str(tmp_path / "halted.zip"))
    wipe()
    said = told("restore", str(tmp_path / "halted.zip"))
    assert ", by the operator: bad prices). To resume the site: manage.py unhalt\n" in said
    assert said.count("The site is halted (since ") == 1
    assert "halted" not in told("restore", str(tmp_path / "working.zip"), "--force")


def test_after_a_restore_no_deed_is_repeated_until_a_person_says_so(tmp_path: Path) -> None:
    runs = populate()
    told("backup", str(tmp_path / "site.zip"))
    decide(runs["waiting"], "approve")
    assert work(runs["waiting"]).status == "succeeded"
    told("restore", str(tmp_path / "site.zip"), "--force")
    for name in ("waiting", "queued", "deed"):
        assert driver.drive(runs[name].pk) == []
    deed = actions.resume(Run.objects.get(pk=runs["deed"].pk), by=None)
    work(deed)
    assert pending(deed).kind == "may_have_happened"
    waiting = actions.resume(Run.objects.get(pk=runs["waiting"].pk), by=None)
    assert waiting.status == "waiting"
    decide(waiting, "reject", message="it was sent before the restore")
    assert (work(waiting).status, waiting.tool_calls) == ("succeeded", 0)


def test_new_rows_get_numbers_that_nobody_has(tmp_path: Path) -> None:
    runs = populate()
    told("backup", str(tmp_path / "site.zip"))
    wipe()
    told("restore", str(tmp_path / "site.zip"))
    run = launch(FINAL)
    assert run.pk > max(one.pk for one in runs.values())
    assert work(run).status == "succeeded"


def test_sign_ins_and_links_of_before_are_void(tmp_path: Path) -> None:
    populate()
    alice = User.objects.get(username="alice")
    link = make_link(alice, "http://here").rstrip("/").rpartition("/")[2]
    Session.objects.create(session_key="a" * 32, session_data="", expire_date=timezone.now())
    assert user_of(link) == alice
    told("backup", str(tmp_path / "site.zip"))
    told("restore", str(tmp_path / "site.zip"), "--force")
    assert user_of(link) is None
    assert not Session.objects.exists()
    assert User.objects.get(username="alice").check_password("pw")


def test_another_secret_key_is_said(tmp_path: Path, settings: Any) -> None:
    populate()
    told("backup", str(tmp_path / "site.zip"))
    assert "secret key" not in told("restore", str(tmp_path / "site.zip"), "--force")
    settings.SECRET_KEY = "quite another key, long enough to be one"
    said = told("restore", str(tmp_path / "site.zip"), "--force")
    assert "another secret key" in said and "1 stored model key" in said
    assert ModelProfile.objects.get().sealed_key


def test_a_backup_is_of_one_moment_while_the_site_works(tmp_path: Path) -> None:
    """Workers write all the time; the backup's runs verify all the same."""
    runs = [launch(*[think("search", q=str(number)) for number in range(12)], FINAL) for _ in range(4)]
    began, done = threading.Event(), threading.Event()

    def write() -> None:
        for run in runs:
            began.set()
            slice_of(run)
        connection.close()

    worker = threading.Thread(target=write)
    worker.start()
    began.wait(LONGEST_S)
    told("backup", str(tmp_path / "site.zip"))
    worker.join()
    done.set()
    told("restore", str(tmp_path / "site.zip"), "--force")  # that all runs verify is checked after each test
    assert Run.objects.count() == 4


def test_the_file_is_for_its_owner_alone_and_replaces_no_other(tmp_path: Path) -> None:
    file = tmp_path / "site.zip"
    told("backup", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "already exists" in refused("backup", str(file))
    told("backup", str(file), "--force")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "site.zip"]
    nowhere = tmp_path / "nowhere"
    said = refused("backup", str(nowhere / "site.zip"))
    assert (
        said
        == f"{nowhere / 'site.zip'} can't be written: the directory {nowhere} does not exist. Make it first."
    )
    said = refused("backup", f"{nowhere}/")
    assert said.startswith(f"The directory {nowhere}/ does not exist. Make it first and name a file in it")
    assert not nowhere.exists()


def test_a_backup_is_not_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "A backup can't be printed." in refused("backup", "-")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("more", [(), ("--force",)])
def test_a_directory_is_no_place_for_a_backup(tmp_path: Path, more: tuple[str, ...]) -> None:
    said = refused("backup", str(tmp_path), *more)
    assert "is a directory" in said and "--force" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_no_backup_lies_among_the_files_that_it_holds(tmp_path: Path) -> None:
    run = populate()["ended"]
    runs, link = archive.runs_dir(), tmp_path / "link"
    link.symlink_to(runs)
    before = sorted(runs.rglob("*"))
    for folder in (runs, folder_of(run.pk), runs / ".." / "runs", link, link / str(run.pk)):
        for more in ((), ("--force",)):
            said = refused("backup", str(folder / "site.zip"), *more)
            assert "is in the runs' own directory" in said
    assert sorted(runs.rglob("*")) == before
    told("backup", str(runs.parent / "site.zip"))


# --- files that are not there -------------------------------------------------------------------------------------


def run_with_a_file() -> Run:
    """It has made a file, and has then made it anew."""
    saved = [{"output": "ok", "files": [{"name": "report.md", "text": text}]} for text in ("high", "low")]
    save = {"params": {"n": "integer"}, "effects": "read", "results": saved}
    replies = (think("save", n=1), think("save", n=2), FINAL)
    return work(launch(played=script(*replies, tools={"save": save})))


def test_a_backup_with_another_data_directory_than_the_sites_is_refused(
    tmp_path: Path, settings: Any
) -> None:
    run = run_with_a_file()
    settings.DATA_DIR = private_dir(tmp_path / "another")
    said = refused("backup", str(tmp_path / "site.zip"))
    assert said.startswith(f"2 versions of runs' files are missing in {tmp_path / 'another' / 'runs'}")
    assert f"report.md (version 1) of run {run.pk}, report.md (version 2) of run {run.pk}" in said
    assert "--data DIR" in said and "--without-lost" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "data"]


def test_what_is_lost_for_good_hinders_no_backup_and_is_said_at_every_step(tmp_path: Path) -> None:
    run = run_with_a_file()
    assert "report.md" not in told("verify", str(run.pk)) + told("verify", "--all")
    lost = run.artifacts.get(version=1)
    (folder_of(run.pk) / ".kept" / lost.sha256).unlink()
    notice = f"1 version of a run's file is missing in {archive.runs_dir()}: report.md (version 1)"
    assert notice in refused("backup", str(tmp_path / "site.zip"))
    assert notice in told("backup", str(tmp_path / "site.zip"), "--without-lost")
    said = told("restore", str(tmp_path / "site.zip"), "--force")
    assert notice in said and "Missing from the backup" in said
    for words in (("verify", str(run.pk)), ("verify", "--all")):
        assert f"Run {run.pk}: {notice}" in told(*words)


@pytest.mark.parametrize("others", [b"HIGH", b"", None], ids=["other", "none", "a folder"])
def test_a_kept_file_that_was_changed_on_disk_is_a_fault_and_is_not_called_gone(
    others: bytes | None, tmp_path: Path
) -> None:
    run = run_with_a_file()
    kept = folder_of(run.pk) / ".kept" / run.artifacts.get(version=1).sha256
    kept.unlink()
    kept.mkdir() if others is None else kept.write_bytes(others)
    notice = f"1 version of a run's file is changed in {archive.runs_dir()} since the run wrote it"
    for words in (("verify", str(run.pk)), ("verify", "--all")):
        out = io.StringIO()
        with pytest.raises(CommandError, match=r"^1 run does not verify\.$") as caught:
            call_command(*words, stdout=out)
        assert caught.value.returncode == 1
        assert f"Run {run.pk}: {notice}" in out.getvalue()
        assert "report.md (version 1)" in out.getvalue() and "any more" not in out.getvalue()
    assert notice in refused("backup", str(tmp_path / "site.zip"))


def test_a_working_file_that_was_changed_is_no_fault_of_the_log() -> None:
    run = run_with_a_file()
    (folder_of(run.pk) / "report.md").write_text("another")
    assert told("verify", str(run.pk)) == f"Run {run.pk}: {run.head} steps verified.\n"


# --- what is refused ----------------------------------------------------------------------------------------------


def test_a_site_in_use_is_not_replaced_without_force(tmp_path: Path) -> None:
    populate()
    told("backup", str(tmp_path / "site.zip"))
    before = everything()
    assert "This site is not empty: 4 runs, 1 account" in refused("restore", str(tmp_path / "site.zip"))
    assert everything() == before


SERVERS = {
    "web": lambda: web_command(free_port()),
    "worker": worker_command,
    "scheduler": lambda: [sys.executable, str(ROOT / "manage.py"), "sweeper"],
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_site_that_runs_on_another_data_directory_is_not_replaced(name: str, tmp_path: Path) -> None:
    """Whichever of its processes is there, started by itself; one that was killed hinders nobody."""
    if connection.vendor != "postgresql":
        pytest.skip("an SQLite file is in one data directory")
    run = work(launch(FINAL))
    told("backup", str(tmp_path / "site.zip"))
    environ = own_environ(tmp_path / "another") | {
        "DATABASE_URL": database_url(),
        "REDIS_URL": "",
        "DJANGO_SETTINGS_MODULE": "agentsite.settings",
    }
    server = subprocess.Popen(
        SERVERS[name](), cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: not nobody_is_there() or server.poll() is not None)
        said = refused("restore", str(tmp_path / "site.zip"), "--force")
        assert said.startswith(
            "The site runs: a web server, worker or scheduler of it works on this database."
        )
        assert Run.objects.get(pk=run.pk).epoch == run.epoch
    finally:
        server.kill()
        server.wait()
    assert "Restored" in told("restore", str(tmp_path / "site.zip"), "--force")


def nobody_is_there() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted)")
        return bool(cursor.fetchone()[0])


def spoiled(source: Path, target: Path, part: str, change: Any) -> None:
    """A copy with one part changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == part:
                data = change(data)
            if data is not None:
                new.writestr(name, data)


def other(**fields: Any) -> Any:
    return lambda data: json.dumps({**json.loads(data), **fields}).encode()


def later(manifest: Any) -> bytes:
    """As a version writes it that has one more migration."""
    return json.dumps(manifest | {"migrations": [*manifest["migrations"], "runs.9999_later"]}).encode()


DAMAGES: tuple[tuple[str, Any, str], ...] = (
    (
        "tables/runs.step.jsonl",
        lambda data: data.replace(b"tides", b"lunch"),
        "does not match its manifest",
    ),
    ("tables/runs.step.jsonl", lambda data: None, "its parts do not match its manifest"),
    ("manifest.json", lambda data: None, "has no manifest"),
    ("manifest.json", lambda data: b"{", "has no manifest"),
    ("manifest.json", other(format=99), "can't read its format"),
    ("manifest.json", other(parts=7), "manifest is damaged"),
    ("manifest.json", other(migrations=["runs.0001_first"]), "an older version made it"),
    ("manifest.json", lambda data: later(json.loads(data)), "a newer version made it"),
)


def test_a_damaged_backup_changes_nothing(tmp_path: Path) -> None:
    populate()
    good, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    told("backup", str(good))
    before = everything()
    for part, change, why in DAMAGES:
        spoiled(good, bad, part, change)
        said = refused("restore", str(bad), "--force")
        assert why in said and "Nothing was changed" in said, said
        assert everything() == before


def test_what_is_no_backup_is_said(tmp_path: Path) -> None:
    half = tmp_path / "half.zip"
    populate()
    told("backup", str(tmp_path / "site.zip"))
    half.write_bytes((tmp_path / "site.zip").read_bytes()[:-2000])
    assert "not a complete backup" in refused("restore", str(half), "--force")
    assert "the file does not exist" in refused("restore", str(tmp_path / "none.zip"))
    assert "it is a directory" in refused("restore", str(tmp_path))


def test_what_is_no_plain_file_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a regular file" in refused("restore", str(tmp_path / "pipe"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    said = refused("restore", str(tmp_path / "loop"))
    assert "it can't be read: " in said and "Nothing was changed" in said


def test_a_backup_that_the_restore_would_remove_is_refused(tmp_path: Path) -> None:
    populate()
    told("backup", str(tmp_path / "site.zip"))
    before = everything()
    moved, link = archive.runs_dir() / "site.zip", tmp_path / "link.zip"
    (tmp_path / "site.zip").rename(moved)
    link.symlink_to(moved)
    for file in (moved, link):
        said = refused("restore", str(file), "--force")
        assert "is in the runs' own directory" in said and "Nothing was changed" in said
    assert moved.exists() and everything() == before


def test_no_damaged_byte_is_taken_for_another_fault(tmp_path: Path) -> None:
    """One flipped anywhere: the backup is refused, or says the same without it."""
    good, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    told("backup", str(good))
    with archive.checked(good) as backup:
        manifest = backup.manifest
    whole, outcomes = good.read_bytes(), Counter[str]()
    for place in some_of_each_kind(good):
        for mask in (0x01, 0x04, 0xFF):
            bad.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            try:
                with archive.checked(bad) as backup:
                    assert backup.manifest == manifest
                outcomes["the same"] += 1
            except archive.BadBackup as why:
                assert "Nothing was changed" in str(why)
                outcomes["refused"] += 1
    assert outcomes["refused"] > outcomes["the same"] > 0


def some_of_each_kind(file: Path) -> list[int]:
    """The places of an archive's first part, of the first entry in its list of parts, and of its end."""
    with zipfile.ZipFile(file) as opened:
        after, listed = opened.infolist()[1].header_offset, opened.start_dir
    size = file.stat().st_size
    return [*range(after), *range(listed, listed + 100), *range(size - 22, size)]


def test_a_fault_of_the_restore_itself_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    told("backup", str(tmp_path / "site.zip"))
    with pytest.raises(FileNotFoundError), archive.checked(tmp_path / "site.zip"):
        (tmp_path / "nowhere").read_text()


def test_no_part_leaves_the_runs_directory(tmp_path: Path) -> None:
    told("backup", str(tmp_path / "site.zip"))
    for name in ("runs/../../escape", "/etc/escape", "elsewhere/file", "runs/a/../b"):
        with_another_part(tmp_path / "site.zip", tmp_path / "bad.zip", name)
        assert "does not belong in a backup" in refused("restore", str(tmp_path / "bad.zip"), "--force")


def with_another_part(source: Path, target: Path, name: str) -> None:
    """A copy with one more part, which its manifest names."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for part in old.namelist():
            if part != "manifest.json":
                new.writestr(part, old.read(part))
        new.writestr(name, b"x")
        manifest = json.loads(old.read("manifest.json"))
        manifest["parts"][name] = {"sha256": hashlib.sha256(b"x").hexdigest(), "size": 1}
        new.writestr("manifest.json", json.dumps(manifest))


# --- killed in the middle -----------------------------------------------------------------------------------------


def killed(place: str, *words: str) -> None:
    done = command(*words, failpoints=f"{place}:kill9")
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


@pytest.mark.parametrize("place", ["backup_after_table", "backup_before_rename"])
def test_a_backup_that_is_killed_leaves_no_file_and_the_next_one_works(tmp_path: Path, place: str) -> None:
    populate()
    killed(place, "backup", str(tmp_path / "site.zip"))
    assert not (tmp_path / "site.zip").exists()
    told("backup", str(tmp_path / "site.zip"))
    told("restore", str(tmp_path / "site.zip"), "--force")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "site.zip"]


@pytest.mark.parametrize("place", ["restore_before_load", "restore_before_commit"])
def test_a_restore_that_is_killed_early_leaves_the_old_site(tmp_path: Path, place: str) -> None:
    runs = populate()
    told("backup", str(tmp_path / "site.zip"))
    work(runs["queued"])
    (folder_of(runs["queued"].pk)).mkdir(parents=True)
    (folder_of(runs["queued"].pk) / "later.txt").write_text("made after the backup")
    before = everything()
    killed(place, "restore", str(tmp_path / "site.zip"), "--force")
    assert everything() == before
    assert "interrupted before it changed anything" in restoring.finish_interrupted()
    assert (folder_of(runs["queued"].pk) / "later.txt").exists()
    assert not (Path(settings.DATA_DIR) / "runs.restoring").exists()
    assert restoring.finish_interrupted() == ""


@pytest.mark.parametrize("place", ["restore_after_load", "restore_between_renames"])
def test_a_restore_that_is_killed_late_is_brought_to_its_end(tmp_path: Path, place: str) -> None:
    runs = populate()
    told("backup", str(tmp_path / "site.zip"))
    later = folder_of(runs["queued"].pk) / "later.txt"
    later.parent.mkdir(parents=True)
    later.write_text("made after the backup")
    killed(place, "restore", str(tmp_path / "site.zip"), "--force")
    assert Run.objects.get(pk=runs["queued"].pk).status == "paused"
    assert "it is now complete" in restoring.finish_interrupted()
    assert not later.exists()
    assert (folder_of(runs["ended"].pk) / "deep" / "süß.txt").exists()
    names = {path.name for path in Path(settings.DATA_DIR).iterdir()}
    assert not {"runs.restoring", "runs.before"} & names
    assert restoring.notice_an_old_database() == ""


def test_what_a_killed_start_left_running_is_stopped_before_a_restore(tmp_path: Path) -> None:
    told("backup", str(tmp_path / "site.zip"))
    orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
    record = private_dir(Path(settings.DATA_DIR) / "run") / "up.json"
    record.write_text(json.dumps({"children": {"scheduler": passport(orphan.pid)}}))
    try:
        said = told("restore", str(tmp_path / "site.zip"), "--force")
        assert orphan.poll() == -signal.SIGTERM
    finally:
        orphan.kill()
        orphan.wait()
    assert "left these processes: scheduler. Stopping them first." in said


# --- an old copy put back by hand ---------------------------------------------------------------------------------


def test_each_start_can_tell_the_database_from_an_older_copy() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("a server's database has the id of its last restore")
    runs = populate()
    assert restoring.notice_an_old_database() == ""
    copied = backups.epoch_id()
    assert restoring.notice_an_old_database() == ""
    assert Run.objects.filter(status="paused").count() == 0
    backups.set_epoch_id(copied)
    life = backups.restored_id()
    said = restoring.notice_an_old_database()
    assert "may be an old copy" in said and "3" in said
    assert backups.restored_id() != life, "pages that were loaded before are told that they were"
    assert Run.objects.filter(status="paused").count() == 3
    assert "replaced another one" in runs["queued"].steps.latest("seq").facts_json
    for run in runs.values():  # whoever claimed it since the copy is fenced
        assert Run.objects.get(pk=run.pk).epoch > run.epoch + 1000
    assert restoring.notice_an_old_database() == ""


def ids_file() -> Path:
    """The file beside the database that names it."""
    return Path(settings.DATA_DIR) / "restore_epoch"


def aged(seconds: float) -> None:
    """As if the id was written so long ago, or in the future by a clock that has been set since."""
    written_at = time.time() - seconds
    os.utime(ids_file(), (written_at, written_at))


@pytest.mark.parametrize("seconds", [restoring.ID_LASTS_S, -2 * restoring.ID_LASTS_S])
def test_an_old_copy_that_is_put_back_after_a_crash_is_noticed_too(seconds: float) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("a server's database has the id of its last restore")
    runs = populate()
    restoring.notice_an_old_database()
    copied = backups.epoch_id()
    restoring.renew_old_id()
    assert backups.epoch_id() == copied
    aged(seconds)
    restoring.renew_old_id()  # and nobody stops the site: the power is cut
    assert json.loads(ids_file().read_text()) == [backups.epoch_id()]
    backups.set_epoch_id(copied)
    assert "may be an old copy" in restoring.notice_an_old_database()
    assert Run.objects.get(pk=runs["queued"].pk).status == "paused"


def test_a_copy_that_is_put_in_while_the_site_runs_is_left_for_the_next_start_to_notice() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("a server's database has the id of its last restore")
    restoring.notice_an_old_database()
    copied = backups.epoch_id()
    restoring.renew_id()
    backups.set_epoch_id(copied)
    aged(restoring.ID_LASTS_S)
    restoring.renew_old_id()
    restoring.renew_id()
    assert backups.epoch_id() == copied
    assert "may be an old copy" in restoring.notice_an_old_database()


def test_a_renewal_that_is_interrupted_alarms_nobody() -> None:
    restoring.notice_an_old_database()
    inside = backups.epoch_id()
    ids_file().write_text(json.dumps([inside, "the next"]))
    assert restoring.notice_an_old_database() == ""
    ids_file().write_text(json.dumps(["the one before", backups.epoch_id()]))
    assert restoring.notice_an_old_database() == ""


def test_on_a_server_another_data_directory_takes_its_id() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("an SQLite file has one data directory")
    populate()
    restoring.notice_an_old_database()
    inside = backups.epoch_id()
    ids_file().unlink()
    assert restoring.notice_an_old_database() == ""
    assert json.loads(ids_file().read_text()) == [inside]
    backups.set_epoch_id("of a dump")
    assert "may be an old copy" in restoring.notice_an_old_database()


def test_a_row_of_the_log_survives_to_the_microsecond(tmp_path: Path) -> None:
    run = work(launch(think("search", q="tides"), FINAL))
    before = list(Step.objects.filter(run=run).order_by("seq").values_list())
    told("backup", str(tmp_path / "site.zip"))
    told("restore", str(tmp_path / "site.zip"), "--force")
    assert list(Step.objects.filter(run=run).order_by("seq").values_list()) == before


def test_a_script_and_its_text_come_back(tmp_path: Path) -> None:
    run = launch(played=script(FINAL, tools={}))
    told("backup", str(tmp_path / "site.zip"))
    wipe()
    told("restore", str(tmp_path / "site.zip"))
    assert Run.objects.get(pk=run.pk).script_json == run.script_json


def test_the_key_of_the_site_is_recognised_and_not_told() -> None:
    assert archive.key_id() == archive.key_id()
    assert len(archive.key_id()) == 16
