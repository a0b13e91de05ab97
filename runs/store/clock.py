"""What time it is: the database's clock says, for a worker's own may be wrong, or jump.

See docs/runtime.md, "Leases".
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connection

NOW = {
    "sqlite": "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')",
    "postgresql": "CLOCK_TIMESTAMP()",
}
"""The present moment in SQL, by the kind of database."""


def now() -> datetime:
    """The present moment: what is due, and when, is reckoned from it."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {NOW[connection.vendor]}", ())
        moment = cursor.fetchone()[0]
    return datetime.fromisoformat(moment).replace(tzinfo=UTC) if isinstance(moment, str) else moment
