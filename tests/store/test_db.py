"""How plain statements are sent."""

import pytest
from django.db import connection

from runs.store.db import first

pytestmark = pytest.mark.django_db

_KEPT = "SELECT COUNT(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT head FROM runs_run %%'"


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no server")
def test_a_repeated_statement_is_prepared_on_the_server() -> None:
    assert first(_KEPT) == (0,)
    for run_id in range(1, 10):
        first("SELECT head FROM runs_run WHERE id = %s", run_id)
    assert first(_KEPT) == (1,)
