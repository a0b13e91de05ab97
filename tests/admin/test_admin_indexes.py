"""What the admin's lists ask of large tables is answered by an index."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from runs.models import Compaction, Run

pytestmark = [pytest.mark.django_db]


def way_of(query: str, parameters: Any) -> str:
    """Return how the database finds what a query asks, where it may not read the whole table."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan TO off")
            cursor.execute(f"EXPLAIN {query}", parameters)
        else:
            cursor.execute(f"EXPLAIN QUERY PLAN {query}", parameters)
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


def way_of_set(asked: QuerySet[Compaction]) -> str:
    """The same of a set."""
    return way_of(*asked.query.sql_with_params())


def test_the_list_of_compactions_reads_no_other_step() -> None:
    assert "step_compactions" in way_of_set(Compaction.objects.order_by("-id")[:50])


def test_the_dates_of_runs_are_found_without_reading_all_runs() -> None:
    """As the admin asks them for the months above the list."""
    assert "run_by_date" in way_of(f"SELECT MIN(created_at), MAX(created_at) FROM {Run._meta.db_table}", ())
