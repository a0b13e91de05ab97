"""What an administrator registers for tools by name: databases, folders of documents, limits of scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from agentsite.environment import database_of, sqlite_database
from agentsite.registered import document_folders_of, python_limits_of, sql_databases_of
from runs.adapters.script_limits import ScriptLimits

SHOP = "postgresql://reader:p%2Cq@db.example/shop"


OWN = sqlite_database(Path("/data/agentsite.sqlite3"))


def test_databases_are_registered_by_name() -> None:
    assert sql_databases_of("", OWN) == {}
    assert sql_databases_of(f"shop={SHOP}, old=sqlite:////data/old=1.sqlite3", OWN) == {
        "shop": SHOP,
        "old": "sqlite:////data/old=1.sqlite3",
    }


@pytest.mark.parametrize(
    "text",
    [
        "shop",
        "=sqlite:////x",
        f"Shop={SHOP}",
        f"a b={SHOP}",
        f"shop={SHOP},shop={SHOP}",
        "shop=mysql://x/y",
        "shop=sqlite://relative",
        "shop=postgresql://x:p%2Cq@",
        "shop=postgresql://[p%2Cq/x",
        "shop=postgresql://x:p%2Cq@h:port/x",
    ],
)
def test_what_can_not_be_used_is_said_without_the_password(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="AGENTSITE_SQL_DATABASES can't be used") as caught:
        sql_databases_of(text, OWN)
    assert "p%2Cq" not in str(caught.value)


def test_the_sites_own_database_is_none_that_agents_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/data")
    with pytest.raises(ImproperlyConfigured, match="the site's own"):
        sql_databases_of(f"me=sqlite:///{tmp_path}/link/agentsite.sqlite3", OWN)
    with pytest.raises(ImproperlyConfigured, match="the site's own"):
        sql_databases_of("me=sqlite:////data/agentsite.sqlite3", OWN)
    served = database_of("postgresql://site:x@db.example/agentsite", Path("/data"), 0)
    with pytest.raises(ImproperlyConfigured, match="the site's own"):
        sql_databases_of("me=postgresql://reader@db.example/agentsite", served)


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_a_hard_link_to_the_sites_own_database_is_refused(ending: str, tmp_path: Path) -> None:
    own, other = tmp_path / "own.sqlite3", tmp_path / "other.sqlite3"
    for file in (own, other):
        file.write_bytes(b"")
    made = own.with_name(f"{own.name}{ending}")
    made.touch()
    link = tmp_path / f"link.sqlite3{ending}"
    link.hardlink_to(made)
    known = sqlite_database(own)
    assert sql_databases_of(f"other=sqlite:///{other}", known) == {"other": f"sqlite:///{other}"}
    with pytest.raises(ImproperlyConfigured, match="the site's own"):
        sql_databases_of(f"me=sqlite:///{tmp_path}/link.sqlite3", known)


def test_folders_of_documents_are_registered_by_name(tmp_path: Path) -> None:
    assert document_folders_of("", tmp_path) == {}
    first, second = tmp_path / "hand book", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    found = document_folders_of(f"handbook={first}, b={second}", tmp_path / "data")
    assert found == {"handbook": first, "b": second}


def test_a_folder_that_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(ImproperlyConfigured, match="handbook is not a folder that this user may read"):
            document_folders_of(f"handbook={path}", tmp_path / "data")


@pytest.mark.parametrize("path", ["relative", "{site}", "{site}/runs", "{site}/..", "/"])
def test_a_folder_with_the_sites_data_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="AGENTSITE_DOCUMENTS can't be used"):
        document_folders_of(f"a={path.format(site=tmp_path)}", tmp_path)


def test_scripts_have_the_limits_that_an_administrator_names() -> None:
    assert python_limits_of("") == ScriptLimits()
    found = python_limits_of("seconds=10, calls=100")
    assert found == ScriptLimits(seconds=10, calls=100) and found.megabytes == ScriptLimits().megabytes


@pytest.mark.parametrize(
    "text", ["seconds", "seconds=0", "seconds=31", "calls=many", "minutes=1", "calls=1,calls=2"]
)
def test_a_limit_that_can_not_hold_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(
        ImproperlyConfigured, match=r"AGENTSITE_PYTHON_LIMITS can't be used.*seconds, megabytes"
    ):
        python_limits_of(text)
