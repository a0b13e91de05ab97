"""How plain statements are sent."""

import pytest

from runs.store.db import first
from tests.running import on_postgresql

pytestmark = pytest.mark.django_db

_KEPT = "SELECT COUNT(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT head FROM runs_run %%'"


@on_postgresql("SQLite has no server")
def test_a_repeated_statement_is_prepared_on_the_server() -> None:
    assert first(_KEPT) == (0,)
    for run_id in range(1, 10):
        first("SELECT head FROM runs_run WHERE id = %s", run_id)
    assert first(_KEPT) == (1,)
