"""A database server that was restarted, or whose sessions were ended, costs nobody an error once it answers again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from django.db import connection
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.utils import ConnectionHandler

from agentsite.environment import postgres_database
from tests.commands import database_url
from tests.stack import running_site, wait_for

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

IN_POOL = 3


def test_connections_that_died_in_the_pool_are_replaced_before_anybody_is_given_one() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only a server's connections wait in a pool")
    own: dict[str, Any] = {"default": {}, "pooled": postgres_database(database_url(), pool=IN_POOL)}
    handler = ConnectionHandler(own)
    users = [cast(DatabaseWrapper, handler.create_connection("pooled")) for _ in range(IN_POOL)]
    try:
        numbers = [number_of(user) for user in users]
        assert len(set(numbers)) == IN_POOL
        for user in users:
            user.close()
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(pg_terminate_backend(pid, 5000)) FROM unnest(%s) AS pid", [numbers])
        assert number_of(users[0]) not in numbers
    finally:
        for user in users:
            user.close()
        users[0].close_pool()


@pytest.mark.stack
def test_a_stop_after_the_server_cut_every_connection_is_an_orderly_one(tmp_path: Path) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only a server cuts connections")
    with running_site(tmp_path, {"DATABASE_URL": database_url()}) as site:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        wait_for(site.answers)
        assert site.stop() == 0, site.output
        assert site.lines[-1] == "Stopped."


def number_of(user: DatabaseWrapper) -> int:
    """The session that a connection is, by the server's number."""
    with user.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        number: int = cursor.fetchone()[0]
    return number
