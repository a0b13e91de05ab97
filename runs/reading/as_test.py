"""A run as a pytest file that replays it from its record: no database, no model, no tool."""

from __future__ import annotations

import json
from collections.abc import Iterator

from runs import driver
from runs.engine.replaying import Record
from runs.models import Run
from runs.store.copying import check_row
from runs.store.db import of_one_moment
from runs.store.errors import NotPossible

_FILE = '''"""{title}: replayed from the recorded answers; every step must come out the same.

Written by `{command}`. It needs this project, and neither database, model nor tool.
"""

import json

import pytest

from runs.engine.replaying import Record, Replay
from runs.machines import CATALOGUE

RECORDS = json.loads(
    r"""
{records}
"""
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"run-{{record['run']}}")
def test_every_step_comes_out_as_recorded(record):
    made = Replay(CATALOGUE[record["machine"]], Record.model_validate(record)).upto()
    assert made.difference is None, str(made.difference)
    assert [row.seq for row in made.rows] == [row["seq"] for row in record["rows"]]


def test_the_run_stands_where_it_stood():
    record = RECORDS[0]
    made = Replay(CATALOGUE[record["machine"]], Record.model_validate(record)).upto()
    last = made.rows[-1]
    assert (last.seq, last.kind, last.node, last.edge) == {last}
    assert made.snapshot.node == {node!r}
    assert made.snapshot.state.exit_reason == {exit_reason!r}
'''


class NothingToTest(NotPossible):
    """The run has no step to replay."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"Run {run.pk} has no steps up to there to reproduce.")


@of_one_moment
def pytest_file(run: Run, upto: int | None = None) -> str:
    """Return the file's text, for the steps up to `upto` or all, and for the children started by then.

    Raises `NotPossible` without a step `upto`.
    """
    if upto is not None:
        check_row(run, upto)
    record = driver.record_of(run)
    rows = tuple(row for row in record.rows if upto is None or row.seq <= upto)
    if not rows:
        raise NothingToTest(run)
    record = record.model_copy(update={"rows": rows})
    records = [record, *_children(run, rows[-1].seq)]
    made = driver.made_again(record)
    last = rows[-1]
    command = f"manage.py export {run.pk} --format pytest" + (f" --to {upto}" if upto is not None else "")
    return _FILE.format(
        title=f"Run {run.pk} ({run.machine}), steps {rows[0].seq} to {last.seq}",
        command=command,
        records=json.dumps([_as_data(one) for one in records], indent=1, sort_keys=True),
        last=repr((last.seq, last.kind, last.node, last.edge)),
        node=made.snapshot.node,
        exit_reason=made.snapshot.state.exit_reason,
    )


def _children(run: Run, upto: int) -> Iterator[Record]:
    for child in Run.objects.filter(parent=run, parent_seq__lte=upto).order_by("pk"):
        record = driver.record_of(child)
        if record.rows:
            yield record
        yield from _children(child, child.head)


def _as_data(record: Record) -> dict[str, object]:
    return record.model_dump(mode="json", exclude_defaults=True, by_alias=True)
