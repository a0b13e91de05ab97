"""`manage.py up` for real: what it starts, survives, refuses and leaves behind."""

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from agentsite.environment import ROOT
from agentsite.supervise import is_alive, passport, read_record
from tests.stack import Site, free_port, own_environ, prepare, running_site, wait_for

pytestmark = pytest.mark.stack
EVERYBODY = {"broker", "worker", "scheduler", "web"}


def up(data_dir: Path, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    """An `up` that is expected to refuse."""
    return subprocess.run(
        [sys.executable, "manage.py", "up", "--port", str(port), "--no-browser", *options],
        cwd=ROOT,
        env=own_environ(data_dir),
        capture_output=True,
        text=True,
        timeout=60,
    )


def follow(link: str) -> str:
    """Where a person with a fresh browser ends up who follows a link and presses its button, if there is one."""
    jar = CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with opener.open(link, timeout=20) as page:
        if page.url != link:
            return str(page.url)
    token = next(cookie.value for cookie in jar if cookie.name.startswith("agentsite_csrf_"))
    with opener.open(
        link, urllib.parse.urlencode({"csrfmiddlewaretoken": token}).encode(), timeout=20
    ) as page:
        return str(page.url)


def test_it_runs_everything_and_one_interrupt_stops_all_of_it(tmp_path: Path) -> None:
    with running_site(tmp_path / "data", fresh=True) as site:
        assert set(site.pids) == EVERYBODY
        everybody = [passport(pid) for pid in site.pids.values()]
        assert site.stop() == 0
    assert not any(map(is_alive, everybody))
    assert site.output.endswith("Stopped.")
    assert "died" not in site.output


def test_the_data_directory_is_private(site: Site) -> None:
    modes = {
        name: stat.S_IMODE((site.data_dir / name).stat().st_mode) for name in (".", "secret_key", "broker")
    }
    assert modes == {".": 0o700, "secret_key": 0o600, "broker": 0o700}
    assert stat.S_IMODE((site.data_dir / "broker" / "valkey.sock").stat().st_mode) == 0o700


def test_the_printed_link_signs_in_once(own_site: Site) -> None:
    """On a site of its own: any other sign-in of that person uses the link up."""
    assert follow(own_site.link) == own_site.url + "/runs/"
    assert follow(own_site.link) == own_site.url + "/sign-in/"


def test_a_page_says_what_a_browser_may_do(site: Site) -> None:
    with urllib.request.urlopen(site.url + "/sign-in/", timeout=20) as page:
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and f"ws://127.0.0.1:{site.port}" in policy
        assert page.headers["X-Frame-Options"] == "DENY"
        assert "Server" not in page.headers


def test_a_foreign_host_name_is_refused(site: Site) -> None:
    request = urllib.request.Request(site.url + "/sign-in/", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    assert refused.value.code == 400
    refused.value.close()


def test_whoever_is_killed_comes_back_and_the_terminal_says_so(own_site: Site) -> None:
    killed = {name: own_site.kill9(name) for name in sorted(EVERYBODY)}
    for name, pid in killed.items():
        own_site.back(name, pid)
    wait_for(lambda: own_site.output.count(" died (signal SIGKILL)") == len(EVERYBODY))


def test_after_a_power_cut_the_next_start_finds_everything_again(tmp_path: Path) -> None:
    prepare(tmp_path / "data")
    site = Site(tmp_path / "data", free_port())
    site.start()
    site.manage(
        "shell", "-c", "from django.contrib.auth.models import User; User.objects.create(username='bob')"
    )
    site.kill_all()
    site.stop()
    site.start()
    try:
        assert "/sign-in/" in site.fresh_link("bob")
        assert set(site.pids) == EVERYBODY
        assert "old copy" not in site.output
    finally:
        assert site.stop() == 0


def test_an_old_copy_of_the_database_that_is_put_back_after_a_power_cut_is_noticed(tmp_path: Path) -> None:
    with running_site(tmp_path / "data") as site:
        database, ids = site.data_dir / "agentsite.sqlite3", site.data_dir / "restore_epoch"
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(tmp_path / "old")) as copy:
            source.backup(copy)
        copied = json.loads(ids.read_text())
        os.utime(ids, (0, 0))  # as if a minute went by
        wait_for(lambda: not set(copied) & set(json.loads(ids.read_text())))
        site.kill_all()
        site.stop()
        for path in site.data_dir.glob(f"{database.name}*"):
            path.unlink()
        (tmp_path / "old").rename(database)
        site.start()
        assert "This database is not the last one used here: it may be an old copy." in site.output


def test_what_a_killed_supervisor_left_behind_is_stopped_by_the_next_start(tmp_path: Path) -> None:
    prepare(tmp_path / "data")
    site = Site(tmp_path / "data", free_port())
    site.start()
    orphans = [passport(pid) for pid in site.pids.values()]
    assert site.process is not None
    site.process.kill()
    site.stop()
    site.start()
    try:
        assert not any(map(is_alive, orphans))
        assert "A killed start left these processes" in site.output
        assert set(site.pids) == EVERYBODY
    finally:
        assert site.stop() == 0


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = up(tmp_path / "data", port)
    assert refused.returncode == 74
    assert f"Port {port} is taken by another program." in refused.stderr
    assert f"--port {port + 1}" in refused.stderr
    assert not (tmp_path / "data" / "broker").exists()
    assert "Traceback" not in refused.stderr


def test_a_second_start_on_the_same_data_says_where_the_first_one_is(site: Site) -> None:
    refused = up(site.data_dir, free_port())
    assert refused.returncode == 1
    assert f"already runs on {site.data_dir} at {site.url}" in refused.stderr
    assert set(site.pids) == EVERYBODY


def test_an_unreachable_database_is_a_sentence(tmp_path: Path) -> None:
    environ = own_environ(tmp_path / "data") | {"DATABASE_URL": f"postgresql://nobody@/none?host={tmp_path}"}
    refused = subprocess.run(
        [sys.executable, "manage.py", "up", "--port", str(free_port()), "--no-browser"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert refused.returncode == 1
    assert "The database can't be reached; check DATABASE_URL" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("workers", ["0", "17", "two", "-1"])
def test_a_number_of_workers_that_can_not_be_is_named(tmp_path: Path, workers: str) -> None:
    refused = up(tmp_path / "data", free_port(), f"--workers={workers}")
    assert refused.returncode == 2
    assert f"give a number from 1 to 16, not '{workers}'" in refused.stderr


def test_terminate_stops_several_workers_as_cleanly_as_an_interrupt(tmp_path: Path) -> None:
    with running_site(tmp_path / "data", options=("--workers", "3")) as site:
        assert set(site.pids) == EVERYBODY | {"worker-2", "worker-3"}
        assert site.process is not None
        os.kill(site.process.pid, signal.SIGTERM)
        assert site.process.wait(30) == 0
    assert read_record(tmp_path / "data" / "run" / "up.json") == {}
