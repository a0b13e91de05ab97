"""Rows with the facts that a machine's part tells of."""

from __future__ import annotations

from typing import Any, NamedTuple

MOST_ROWS = 2000
"""Rows that a part looks back on: a run that is longer is told from there on."""


class Told(NamedTuple):
    """A row's number and those of its facts that are told of."""

    seq: int
    facts: tuple[dict[str, Any], ...]
