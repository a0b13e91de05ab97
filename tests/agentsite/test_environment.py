"""What the environment may say, and what is refused with a sentence."""

import stat
import threading
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from agentsite.environment import (
    LONGEST_SOCKET_PATH,
    NoSite,
    broker_socket,
    celery_broker_of,
    database_of,
    new_secret_key,
    private_dir,
    read_environment,
    redis_url_of,
    refuse_without_site,
    secret_key_in,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_without_a_database_url_sqlite_lives_in_the_data_directory(tmp_path: Path) -> None:
    found = database_of("", tmp_path, pool=20)
    assert found["ENGINE"] == "agentsite.sqlite3"
    assert found["NAME"] == str(tmp_path / "agentsite.sqlite3")


def test_an_absolute_sqlite_url_has_four_slashes(tmp_path: Path) -> None:
    assert database_of("sqlite:////data/x%20y.sqlite3", tmp_path, pool=20)["NAME"] == "/data/x y.sqlite3"


def test_sqlite_writes_at_once_and_to_the_disk(tmp_path: Path) -> None:
    options = database_of("", tmp_path, pool=20)["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert "synchronous=FULL" in options["init_command"]


def test_postgresql_over_tcp(tmp_path: Path) -> None:
    found = database_of("postgresql://alice:se%40cret@db.example:5433/site", tmp_path, pool=7)
    assert (found["USER"], found["PASSWORD"], found["HOST"]) == ("alice", "se@cret", "db.example")
    assert (found["PORT"], found["NAME"]) == ("5433", "site")
    assert found["OPTIONS"]["pool"]["max_size"] == 7


def test_postgresql_over_a_unix_socket(tmp_path: Path) -> None:
    found = database_of("postgresql://alice@/site?host=/run/pg&port=5433", tmp_path, pool=0)
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("/run/pg", "5433", "site")
    assert "pool" not in found["OPTIONS"]


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://relative", "nonsense", "postgresql://h:port/x"])
def test_other_database_urls_are_refused_with_a_sentence(url: str, tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL can't be used"):
        database_of(url, tmp_path, pool=20)


def test_any_host_at_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOWED_HOSTS", "a.example, *")
    with pytest.raises(ImproperlyConfigured, match="ALLOWED_HOSTS: name the hosts"):
        read_environment()


def test_hosts_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOWED_HOSTS", "a.example, b.example")
    monkeypatch.setenv("HTTPS", "1")
    assert read_environment().allowed_hosts == ("a.example", "b.example")


def test_a_server_s_site_is_there_without_a_data_directory_where_its_key_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://alice@db.example/site")
    monkeypatch.setenv("AGENTSITE_DATA_DIR", str(tmp_path / "new"))
    monkeypatch.delenv("SECRET_KEY", raising=False)
    with pytest.raises(NoSite, match="the directory does not exist"):
        refuse_without_site(read_environment())
    monkeypatch.setenv("SECRET_KEY", new_secret_key())
    refuse_without_site(read_environment())


def test_the_secret_key_is_made_once_and_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = secret_key_in(data)
    assert secret_key_in(data) == first
    assert len(first) > 60
    assert (mode(data), mode(data / "secret_key")) == (0o700, 0o600)


def test_many_first_starts_at_once_agree_on_one_key(tmp_path: Path) -> None:
    keys: list[str] = []
    racers = [
        threading.Thread(target=lambda: keys.append(secret_key_in(tmp_path / "data"))) for _ in range(8)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(set(keys)) == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["secret_key"]


def test_somebody_elses_open_folder_is_refused_not_changed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(ImproperlyConfigured, match="chmod 700"):
        private_dir(tmp_path)
    assert mode(tmp_path) == 0o755


def test_the_socket_of_a_deep_data_directory_goes_where_its_path_is_short(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    assert len(str(broker_socket(deep))) <= LONGEST_SOCKET_PATH
    assert broker_socket(deep) == broker_socket(deep)


def test_without_a_broker_there_is_no_redis_url(tmp_path: Path) -> None:
    assert redis_url_of(None, tmp_path) == ""
    assert celery_broker_of("") == "memory://"


def test_a_dead_brokers_socket_is_no_broker(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "valkey.sock").touch()
    assert redis_url_of(None, tmp_path) == ""


def test_celery_spells_a_unix_socket_its_own_way() -> None:
    assert celery_broker_of("unix:///run/x.sock?db=2") == "redis+socket:///run/x.sock?virtual_host=2"
    assert celery_broker_of("redis://localhost:6379/1") == "redis://localhost:6379/1"
