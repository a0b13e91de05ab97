"""The kinds of a row's facts as one text: queries find rows by it, and never by words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs.engine.fact_kinds import MARKS, fact_kinds, name_of
from runs.engine.facts import (
    COMMON_FACTS,
    Fact,
    HeldBack,
    Notice,
    Paused,
    Pinned,
    Recovered,
    SummaryUndone,
    ToolReported,
)
from runs.machines import CATALOGUE


def kinds(*facts: Fact) -> str:
    return fact_kinds(f"[{','.join(fact.model_dump_json() for fact in facts)}]")


@pytest.mark.parametrize(
    ("fact", "names"),
    [
        (Notice(code="retried", message="Once more."), "react.notice react.notice/code=retried"),
        (ToolReported(tool="search", value="x"), "react.tool.result"),
        (ToolReported(tool="a", outputs=("b",)), "react.tool.result react.tool.result/outputs"),
        (HeldBack(halt=3, since="", by="root"), "run.held_back run.held_back/halt=3"),
        (Recovered(epoch=2, message=""), "run.recovered"),
        (
            Recovered(epoch=2, message="", stopped=True, lost=2),
            "run.recovered run.recovered/stopped run.recovered/lost=2",
        ),
        (
            SummaryUndone(summary=12, by="bob", reason=""),
            "conv.summary.undone conv.summary.undone/summary=12",
        ),
        (Pinned(path="su:12", by="bob"), "conv.pinned conv.pinned/path=su:12"),
        (Pinned(path="a b", by="bob"), "conv.pinned conv.pinned/path=ab"),
        (Paused(by="bob"), "run.paused"),
        (Paused(by="the restore", backup=""), "run.paused run.paused/backup"),
    ],
)
def test_a_fact_is_named_by_its_kind_and_its_marks(fact: Fact, names: str) -> None:
    assert kinds(fact) == f" {names} "


def test_a_row_without_facts_has_no_names() -> None:
    assert fact_kinds("[]") == ""


def test_names_stand_once_and_in_order() -> None:
    row = kinds(Notice(code="a", message=""), Paused(by="x"), Notice(code="b", message=""))
    assert row == " react.notice react.notice/code=a run.paused react.notice/code=b "


def test_a_number_is_not_found_in_a_longer_one() -> None:
    assert name_of("run.held_back", "halt", 3) not in kinds(HeldBack(halt=31, since="", by="root"))


@pytest.mark.parametrize("text", ['"react.exit"', " react.exit ", "react.exit", '{"kind":"react.exit"}'])
def test_what_a_person_a_model_or_a_tool_wrote_is_no_kind(text: str) -> None:
    facts = (ToolReported(tool="echo", value={"kind": text, text: [text]}), Paused(by=text, message=text))
    assert kinds(*facts) == " react.tool.result run.paused "


def test_every_mark_is_a_field_of_a_fact_of_that_kind() -> None:
    fields: dict[str, Any] = {}
    for machine in CATALOGUE.values():
        for one in json.loads(json.dumps(machine.facts.json_schema()["$defs"])).values():
            kind = one["properties"].get("kind", {}).get("const")
            fields.setdefault(kind, set()).update(one["properties"])
    assert {fact.model_fields["kind"].default for fact in COMMON_FACTS} <= fields.keys()
    assert all(mark in fields[kind] for kind, marks in MARKS.items() for mark in marks)
