"""An unsafe value in the environment stops the start: a sentence names the setting, and what to write there."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from agentsite.environment import ROOT, new_secret_key, read_environment, secret_key_in
from agentsite.unsafe import weak_key
from tests.stack import own_environ

GOOD_KEY = new_secret_key()
PUBLIC = {"ALLOWED_HOSTS": "site.example", "HTTPS": "1", "SECRET_KEY": GOOD_KEY}

UNSAFE = {
    "a short key": ({"SECRET_KEY": "x"}, "SECRET_KEY"),
    "a key of one letter": ({"SECRET_KEY": "k" * 64}, "SECRET_KEY"),
    "a key of one text repeated": ({"SECRET_KEY": "changeme" * 5}, "SECRET_KEY"),
    "a key of one text twice": ({"SECRET_KEY": GOOD_KEY * 2}, "SECRET_KEY"),
    "a key that is Django's example": ({"SECRET_KEY": "django-insecure-" + GOOD_KEY}, "SECRET_KEY"),
    "a key with a line end": ({"SECRET_KEY": GOOD_KEY + "\n"}, "SECRET_KEY"),
    "debugging where others come in": (PUBLIC | {"DEBUG": "1"}, "DEBUG"),
    "debugging at an address of the network": (
        PUBLIC | {"ALLOWED_HOSTS": "192.168.1.7", "DEBUG": "1"},
        "DEBUG",
    ),
    "a public host without HTTPS": ({"ALLOWED_HOSTS": "localhost, site.example"}, "HTTPS"),
    "a host of the network without HTTPS": ({"ALLOWED_HOSTS": "10.0.0.5"}, "HTTPS"),
    "a host that only begins like this machine's": ({"ALLOWED_HOSTS": "localhost.example"}, "HTTPS"),
    "any host": ({"ALLOWED_HOSTS": "*"}, "ALLOWED_HOSTS"),
    "any host of a domain": (PUBLIC | {"ALLOWED_HOSTS": ".site.example"}, "ALLOWED_HOSTS"),
    "a pattern of hosts": (PUBLIC | {"ALLOWED_HOSTS": "*.site.example"}, "ALLOWED_HOSTS"),
    "no host": ({"ALLOWED_HOSTS": " , "}, "ALLOWED_HOSTS"),
    "a host with a scheme": (PUBLIC | {"ALLOWED_HOSTS": "https://site.example"}, "ALLOWED_HOSTS"),
    "a host with a port": (PUBLIC | {"ALLOWED_HOSTS": "site.example:8443"}, "ALLOWED_HOSTS"),
    "any origin": (PUBLIC | {"CSRF_TRUSTED_ORIGINS": "*"}, "CSRF_TRUSTED_ORIGINS"),
    "any origin of a domain": (
        PUBLIC | {"CSRF_TRUSTED_ORIGINS": "https://*.example"},
        "CSRF_TRUSTED_ORIGINS",
    ),
    "an origin without a scheme": (PUBLIC | {"CSRF_TRUSTED_ORIGINS": "site.example"}, "CSRF_TRUSTED_ORIGINS"),
    "an origin of another scheme": (
        PUBLIC | {"CSRF_TRUSTED_ORIGINS": "ftp://a.example"},
        "CSRF_TRUSTED_ORIGINS",
    ),
    "an origin that anybody between can forge": (
        PUBLIC | {"CSRF_TRUSTED_ORIGINS": "http://site.example"},
        "CSRF_TRUSTED_ORIGINS",
    ),
    "an origin with a path": (
        PUBLIC | {"CSRF_TRUSTED_ORIGINS": "https://a.example/"},
        "CSRF_TRUSTED_ORIGINS",
    ),
    "a remote broker without a password": ({"REDIS_URL": "redis://broker.example:6379/0"}, "REDIS_URL"),
    "a remote broker with a name alone": ({"REDIS_URL": "redis://agentsite@10.0.0.5/0"}, "REDIS_URL"),
    "a remote broker with an empty password": ({"REDIS_URL": "rediss://:@broker.example"}, "REDIS_URL"),
    "a remote broker named in the query": ({"REDIS_URL": "redis:///0?host=broker.example"}, "REDIS_URL"),
    "a broker of another kind": ({"REDIS_URL": "amqp://localhost"}, "REDIS_URL"),
    "a broker without a scheme": ({"REDIS_URL": "localhost:6379"}, "REDIS_URL"),
    "the folder at hand for the data": ({"AGENTSITE_DATA_DIR": ""}, "AGENTSITE_DATA_DIR"),
    "an unknown log level": ({"LOG_LEVEL": "LOUD"}, "LOG_LEVEL"),
    "a broker that is waited for for ever": ({"BROKER_TIMEOUT": "inf"}, "BROKER_TIMEOUT"),
    "a lease without end": ({"LEASE_SECONDS": "nan"}, "LEASE_SECONDS"),
    "attempts below none": ({"REACT_RETRY_BUFFER": "-1"}, "REACT_RETRY_BUFFER"),
    "a new plan after no failure": (
        {"REACT_REPLAN_FAILURE_THRESHOLD": "0"},
        "REACT_REPLAN_FAILURE_THRESHOLD",
    ),
    "a switch that is neither on nor off": ({"HTTPS": "perhaps"}, "HTTPS"),
}

SAFE: dict[str, dict[str, str]] = {
    "nothing at all": {},
    "a public site": PUBLIC | {"CSRF_TRUSTED_ORIGINS": "https://other.example:8443"},
    "debugging on this machine": {"DEBUG": "1", "ALLOWED_HOSTS": "localhost,127.0.0.2,[::1],a.localhost"},
    "HTTPS on this machine": {"HTTPS": "1"},
    "an origin of this machine": {"CSRF_TRUSTED_ORIGINS": "http://localhost:5173,http://127.0.0.1:3000"},
    "a remote broker with a password": {"REDIS_URL": "redis://:secret@broker.example:6379/0"},
    "a remote broker with a password in the query": {"REDIS_URL": "rediss://b.example/0?password=secret"},
    "a broker of this machine": {"REDIS_URL": "redis://127.0.0.1:6379/0"},
    "a broker without a host": {"REDIS_URL": "redis:///0"},
    "a broker's socket": {"REDIS_URL": "unix:///run/x.sock?db=2"},
    "no broker": {"REDIS_URL": ""},
    "a log level in small letters": {"LOG_LEVEL": "info"},
}


@pytest.fixture(autouse=True)
def only_what_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "SECRET_KEY",
        "ALLOWED_HOSTS",
        "CSRF_TRUSTED_ORIGINS",
        "HTTPS",
        "DEBUG",
        "REDIS_URL",
        "LOG_LEVEL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENTSITE_DATA_DIR", str(tmp_path / "data"))


@pytest.mark.parametrize(("environ", "setting"), UNSAFE.values(), ids=UNSAFE)
def test_an_unsafe_value_is_refused_by_its_settings_name(
    environ: dict[str, str], setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ImproperlyConfigured) as refused:
        read_environment()
    said = str(refused.value)
    assert said.startswith(f"The environment can't be used. {setting}: ")
    assert said.endswith(".")
    assert GOOD_KEY not in said and "secret" not in said


@pytest.mark.parametrize("environ", SAFE.values(), ids=SAFE)
def test_a_safe_value_is_taken(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    read_environment()


def test_a_repeated_key_is_refused_by_what_it_is() -> None:
    assert weak_key("changeme" * 5) == "it is one short text repeated"
    assert weak_key("changeme" * 5 + "!") == ""


@pytest.mark.parametrize("text", ["", "x", "k" * 64, "changeme" * 5])
def test_a_weak_key_in_the_data_directory_is_refused_too(text: str, tmp_path: Path) -> None:
    secret_key_in(tmp_path / "data")
    (tmp_path / "data" / "secret_key").write_text(text)
    with pytest.raises(ImproperlyConfigured, match="secret_key"):
        secret_key_in(tmp_path / "data")


def test_the_start_ends_with_the_sentence_and_the_code_of_what_is_outside(tmp_path: Path) -> None:
    environ = own_environ(tmp_path / "data") | {
        "SECRET_KEY": "x",
        "ALLOWED_HOSTS": "site.example",
        "DEBUG": "1",
    }
    refused = subprocess.run(
        [sys.executable, "manage.py", "up", "--no-browser"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert refused.returncode == 74
    assert "Traceback" not in refused.stderr and refused.stderr.count("\n") == 1
    for setting in ("SECRET_KEY: ", "DEBUG: ", "HTTPS: "):
        assert setting in refused.stderr
    assert not (tmp_path / "data").exists()
