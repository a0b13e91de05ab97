"""A field of rows: the same few inputs again and again, as many as a person fills in. Works without scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django import forms

Row = dict[str, str]

MOST_ROWS = 200


class RowsWidget(forms.Widget):
    """A reader of inputs called NAME-NUMBER-COLUMN; an empty row counts as none."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        super().__init__()
        self.columns = columns
        self.telling = columns
        """The columns that make a row: with only other columns filled it is blank."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> list[Row]:
        """Return the non-empty rows, in the order of their numbers."""
        wanted = re.compile(rf"{re.escape(name)}-([0-9]{{1,4}})-({'|'.join(self.columns)})")
        found: dict[int, Row] = {}
        for key in data:
            match = wanted.fullmatch(key)
            if match:
                found.setdefault(int(match[1]), {})[match[2]] = data[key].replace("\r\n", "\n").strip()
        rows = [self._whole(found[number]) for number in sorted(found)]
        return [row for row in rows if any(row[column] for column in self.telling)][:MOST_ROWS]

    def value_omitted_from_data(self, data: Mapping[str, Any], files: Any, name: str) -> bool:
        """Return True if no row was sent at all."""
        return not any(key.startswith(f"{name}-") for key in data)

    def _whole(self, row: Row) -> Row:
        return {column: row.get(column, "") for column in self.columns}


class RowsField(forms.Field):
    """Rows of text; the form gives them their meaning."""

    def __init__(self, columns: tuple[str, ...], telling: tuple[str, ...] | None = None) -> None:
        widget = RowsWidget(columns)
        widget.telling = telling or columns
        super().__init__(required=False, widget=widget)

    def clean(self, value: Any) -> list[Row]:
        """Return the rows as they were written."""
        return list(value or [])


def blank_rows(given: list[Row], columns: tuple[str, ...], least: int, spare: int) -> list[Row]:
    """Return the rows to show: the given ones and a few to fill in."""
    blank = dict.fromkeys(columns, "")
    return [*given, *(dict(blank) for _ in range(max(spare, least - len(given))))]
