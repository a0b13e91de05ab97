"""The SQL tool: one statement that only reads, in a database that an administrator has named, within bounds."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentsite.environment import sqlite_database
from runs.adapters.tool import Place, ToolError
from runs.adapters.toolbox import Toolbox
from runs.adapters.tools import TOOLS, sql_query
from runs.adapters.tools.sql_query import MAX_CHARACTERS, MAX_ROWS, MAX_VALUE
from runs.engine.effects import Failed, ToolReturned
from tests.benchmarks.postgres import binaries, cluster

MADE = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, article TEXT, price REAL, note BLOB);
INSERT INTO orders VALUES (1, 'lamp', 12.5, x'00ff'), (2, 'chair', NULL, NULL);
CREATE VIEW cheap AS SELECT * FROM orders WHERE price < 20;
"""


@pytest.fixture
def shop(tmp_path: Path, settings: Any) -> Path:
    """A SQLite database that is registered as shop."""
    file = tmp_path / "my shop.sqlite3"
    with sqlite3.connect(file) as made:
        made.executescript(MADE)
    made.close()
    settings.SQL_DATABASES = {"shop": f"sqlite:///{file}"}
    return file


def ask(**args: Any) -> Any:
    tool = TOOLS["sql_query"]
    return tool.run(tool.arguments.model_validate(args), Place(Path("none"), "key", tool.deadline_s)).value


def rows(statement: str, database: str = "shop", **more: Any) -> Any:
    return ask(database=database, statement=statement, **more)["rows"]


def test_rows_come_with_their_columns_as_json(shop: Path) -> None:
    assert ask(database="shop", statement="SELECT * FROM orders ORDER BY id") == {
        "columns": ["id", "article", "price", "note"],
        "rows": [[1, "lamp", 12.5, "\\x00ff"], [2, "chair", None, None]],
        "cut": False,
    }


def test_without_a_statement_the_tables_are_told_and_without_a_database_the_databases(shop: Path) -> None:
    assert [row[0] for row in ask(database="shop")["rows"]] == ["cheap", "orders"]
    assert ask() == [{"database": "shop", "kind": "SQLite"}]


def test_a_database_that_is_not_registered_is_said_with_those_that_are(shop: Path) -> None:
    with pytest.raises(ToolError, match=r"no database 'main'. Registered: shop"):
        rows("SELECT 1", "main")


def test_without_any_database_it_says_what_to_do(settings: Any) -> None:
    settings.SQL_DATABASES = {}
    for args in ({}, {"database": "shop"}):
        with pytest.raises(ToolError, match="AGENTSITE_SQL_DATABASES"):
            ask(**args)


WRITING = [
    "INSERT INTO orders (article) VALUES ('x')",
    "UPDATE orders SET article = 'x'",
    "DELETE FROM orders",
    "DROP TABLE orders",
    "CREATE TABLE t (a)",
    "CREATE TEMP TABLE t (a)",
    "ATTACH DATABASE '/etc/passwd' AS other",
    "PRAGMA writable_schema = 1",
    "PRAGMA query_only = 0",
    "VACUUM",
    "VACUUM INTO '/tmp/copy.sqlite3'",
    "REINDEX",
    "BEGIN",
    "SAVEPOINT a",
    "SELECT load_extension('x.so')",
    "SELECT 1; DELETE FROM orders",
]


@pytest.mark.parametrize("statement", WRITING)
def test_nothing_but_reading_is_done(statement: str, shop: Path) -> None:
    before = shop.read_bytes()
    with pytest.raises(ToolError):
        rows(statement)
    assert shop.read_bytes() == before
    assert [path.name for path in shop.parent.iterdir()] == [shop.name]


@pytest.mark.parametrize("statement", ["SELEC 1", "SELECT nothing FROM orders", "-- nothing", "SELECT ?"])
def test_what_is_no_statement_is_said(statement: str, shop: Path) -> None:
    with pytest.raises(ToolError, match="was not run"):
        rows(statement)


def test_a_database_that_is_gone_can_not_be_opened_and_is_not_made(shop: Path) -> None:
    shop.unlink()
    with pytest.raises(ToolError, match="can't be opened"):
        rows("SELECT 1")
    assert not shop.exists()


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_the_sites_own_database_is_not_read_under_another_name(
    ending: str, shop: Path, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.sqlite3"
    monkeypatch.setitem(settings.DATABASES, "default", sqlite_database(own))
    assert rows("SELECT count(*) FROM orders") == [[2]]
    own.with_name(f"{own.name}{ending}").hardlink_to(shop)
    with pytest.raises(ToolError, match="the site's own"):
        rows("SELECT count(*) FROM orders")


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "


def test_a_statement_that_takes_too_long_is_given_up(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_query, "TIME_S", 0.3)
    begun = time.monotonic()
    with pytest.raises(ToolError, match=r"longer than 0\.3 s"):
        rows(f"{ENDLESS} count(*) FROM n")
    assert time.monotonic() - begun < 30


def test_rows_values_and_the_whole_are_cut_and_say_so(shop: Path) -> None:
    many = ask(database="shop", statement=f"{ENDLESS} i FROM n")
    assert (len(many["rows"]), many["cut"]) == (MAX_ROWS, True)
    few = ask(database="shop", statement=f"{ENDLESS} i FROM n", rows=3)
    assert (few["rows"], few["cut"]) == ([[1], [2], [3]], True)
    long = ask(database="shop", statement=f"SELECT printf('%.*c', {MAX_VALUE + 5}, 'x')")
    assert (len(long["rows"][0][0]), long["cut"]) == (MAX_VALUE + 1, True)
    wide = ask(database="shop", statement=f"{ENDLESS} printf('%.*c', 900, 'x') FROM n")
    assert wide["cut"] and len(str(wide["rows"])) < MAX_CHARACTERS + 1_000


def test_no_value_fills_the_memory(shop: Path) -> None:
    with pytest.raises(ToolError):
        rows("SELECT length(hex(randomblob(500000000)))")


@pytest.mark.parametrize(
    ("value", "told"),
    [("9007199254740993", 9007199254740993), ("1e999", "inf"), ("CAST(x'ff' AS TEXT)", "�"), ("x''", "\\x")],
)
def test_values_that_json_has_not_are_told_as_text(value: str, told: object, shop: Path) -> None:
    assert rows(f"SELECT {value}") == [[told]]


def test_the_tool_reads_private_data_and_contacts_no_host(shop: Path, tmp_path: Path) -> None:
    spec = TOOLS["sql_query"].spec()
    assert (spec.effects, spec.reads, spec.outward) == ("read", "private", "")
    assert list(spec.parameters["properties"]) == ["database", "statement", "rows"]
    box = Toolbox(["sql_query"], tmp_path, None, [])
    answer = box.call(spec.call_with({"database": "shop", "statement": "SELECT 1"}), 1, "key")
    assert isinstance(answer, ToolReturned)


# --- PostgreSQL -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server with a table of one row, and a role that may do anything with it."""
    found = binaries()
    if found is None:
        pytest.skip("PostgreSQL's initdb and postgres are not on this machine.")
    with cluster(found, "fsync=off") as url:
        with psycopg.connect(url) as made:
            made.execute("CREATE ROLE reader LOGIN")
            made.execute(
                "CREATE TABLE orders (id int PRIMARY KEY, price numeric, at date, more jsonb, raw bytea)"
            )
            made.execute("INSERT INTO orders VALUES (1, 12.50, '2026-11-30', '{\"a\": [1]}', '\\x00ff')")
            made.execute("GRANT ALL ON orders TO reader")
            made.execute("GRANT CREATE ON SCHEMA public TO reader")
        yield url


@pytest.fixture
def served(server: str, settings: Any) -> str:
    """The same registered as shop, for its own role."""
    url = server.replace("postgres@", "reader@")
    settings.SQL_DATABASES = {"shop": url, "root": server}
    return server


def test_a_server_gives_rows_as_json(served: str) -> None:
    assert ask(database="shop", statement="SELECT * FROM orders") == {
        "columns": ["id", "price", "at", "more", "raw"],
        "rows": [[1, "12.50", "2026-11-30", {"a": [1]}, "\\x00ff"]],
        "cut": False,
    }
    assert ["public.orders", "price", "numeric"] in ask(database="shop")["rows"]
    assert ask()[0] == {"database": "shop", "kind": "PostgreSQL"}


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO orders VALUES (2)",
        "DELETE FROM orders",
        "CREATE TABLE t (a int)",
        "WITH gone AS (DELETE FROM orders RETURNING id) SELECT * FROM gone",
        "SELECT 1; DELETE FROM orders",
        "SELECT set_config('transaction_read_only', 'off', false); DELETE FROM orders",
        "COMMIT; DELETE FROM orders",
        "COPY orders TO STDOUT",
        "DO $$ BEGIN DELETE FROM orders; END $$",
    ],
)
def test_a_server_is_only_read(statement: str, served: str) -> None:
    with pytest.raises(ToolError):
        rows(statement)
    with psycopg.connect(served) as seen:
        assert seen.execute("SELECT count(*) FROM orders").fetchone() == (1,)


def test_a_role_that_may_do_anything_is_refused(served: str) -> None:
    with pytest.raises(ToolError, match="superuser"):
        rows("SELECT 1", "root")


def test_a_server_gives_up_a_statement_that_takes_too_long(
    served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_query, "TIME_S", 0.3)
    with pytest.raises(ToolError, match=r"longer than 0\.3 s"):
        rows("SELECT pg_sleep(30)")


def test_many_rows_of_a_server_are_cut_without_reading_them_all(served: str) -> None:
    many = ask(database="shop", statement="SELECT generate_series(1, 100000000)")
    assert (len(many["rows"]), many["cut"]) == (MAX_ROWS, True)


def test_a_server_that_is_away_is_tried_again(settings: Any, tmp_path: Path) -> None:
    settings.SQL_DATABASES = {"shop": f"postgresql://reader@/shop?host={tmp_path}"}
    spec = TOOLS["sql_query"].spec()
    failed = Toolbox(["sql_query"], tmp_path, None, []).call(
        spec.call_with({"database": "shop", "statement": "SELECT 1"}), 1, "key"
    )
    assert isinstance(failed, Failed)
    assert failed.blame == "transient"


def test_a_long_value_of_a_server_is_cut(served: str) -> None:
    told = ask(
        database="shop",
        statement="SELECT repeat('x', 5000000), array_agg(i) FROM generate_series(1, 5000) AS i",
    )
    text, numbers = told["rows"][0]
    assert (len(text), text[-1], told["cut"]) == (MAX_VALUE + 1, "…", True)
    assert numbers.startswith("[1, 2, 3") and len(numbers) == MAX_VALUE + 1
