"""What a run made: versions, the bytes before the row, one row for one call, and what a rollback leaves."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from runs import actions, driver
from runs.adapters import folder as folder_module
from runs.adapters.folder import KEPT, RunFolder
from runs.models import Artifact, Run, Step
from runs.reading import exporting
from runs.reading.artifacts import artifact_of, artifact_view, files_of
from runs.store import artifacts, creating, leases, verifying
from runs.store.artifacts import row_name
from runs.store.errors import Fenced
from tests.artifacts import contract_run, gone_back, kept_in, made, render, run_saving, saving
from tests.commands import launch_and_die
from tests.launching import ALLOW, FINAL, launch, script, think
from tests.running import decide, lose_worker, pending, transitions, unseal, work
from tests.workers import die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def rows(run: Run) -> list[tuple[str, int, str]]:
    """Name, version and kind of each artifact, as they were made."""
    return list(Artifact.objects.filter(run=run).order_by("pk").values_list("name", "version", "kind"))


def bytes_of(run: Run, name: str, version: int) -> bytes | None:
    return artifacts.artifact_bytes(Artifact.objects.get(run=run, name=name, version=version))


# --- versions -------------------------------------------------------------------------------------------------------


def test_the_same_name_again_is_a_new_version_and_the_old_one_stays_readable() -> None:
    run = run_saving([made("a.md", "one"), made("b.png", "x")], [made("a.md", "two")])
    assert rows(run) == [("a.md", 1, "file"), ("b.png", 1, "display"), ("a.md", 2, "file")]
    assert (bytes_of(run, "a.md", 1), bytes_of(run, "a.md", 2)) == (b"one", b"two")
    first = Artifact.objects.get(run=run, name="a.md", version=1)
    assert (first.media_type, first.size, first.sha256) == ("text/markdown", 3, sha256(b"one").hexdigest())
    assert first.call_seq is not None
    call = run.exchanges.get(seq=first.call_seq)
    assert (first.tool, call.name, first.error) == ("save", "save", None)
    assert "a.md" in Step.objects.get(run=run, seq=first.seq).facts_json


def test_another_call_with_the_same_bytes_is_a_version_and_keeps_them_once() -> None:
    run = run_saving([made("a.txt", "same")], [made("a.txt", "same"), made("b.txt", "same")])
    assert rows(run) == [("a.txt", 1, "file"), ("a.txt", 2, "file"), ("b.txt", 1, "file")]
    assert kept_in(run) == {sha256(b"same").hexdigest()}


def test_a_result_that_names_a_file_twice_makes_one_version_of_what_was_written_last() -> None:
    run = run_saving([made("a.txt", "one"), made("a.txt", "two")])
    assert rows(run) == [("a.txt", 1, "file")]
    assert bytes_of(run, "a.txt", 1) == b"two"


def test_a_version_of_a_name_is_there_once_in_a_run_and_files_lie_in_its_own_directory() -> None:
    run, other = run_saving([made("out/a.txt", "one")]), run_saving([made("out/a.txt", "two")])
    assert rows(run) == rows(other) == [("out/a.txt", 1, "file")]
    assert (creating.folder_of(run.pk) / "out" / "a.txt").read_text() == "one"
    assert (creating.folder_of(other.pk) / "out" / "a.txt").read_text() == "two"
    first = Artifact.objects.get(run=run)
    first.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        first.save(force_insert=True)


CALL = {"tool_id": "save", "params": {}, "out_artifacts": [{"name": "i", "kind": "inline"}]}
DECISIONS: dict[str, dict[str, Any]] = {
    "ruled": think("save"),
    "planned": {"tool": "save", "args": {}},
    "checklist": {"action": "call_tool", "strategy": "explore", "tool_call": CALL},
    "contract": {"action": "call_tool", "strategy": "explore", "tool_call": CALL},
}


@pytest.mark.parametrize("machine", DECISIONS)
def test_every_machine_keeps_the_files_of_its_tools(machine: str) -> None:
    tools = {"save": saving([made("out/a.txt", "x")])}
    settings: dict[str, Any] = {"plan": [{"tool": "save", "args": {}}]} if machine == "planned" else {}
    played = {"replies": {"decision": [DECISIONS[machine]]}, "tools": tools}
    run = work(launch(machine=machine, goal="g", played=played, **settings))
    kept = Artifact.objects.get(run=run, name="out/a.txt")
    assert (kept.version, kept.kind, kept.tool) == (1, "file", "save")
    exported = {row["name"]: row for row in exporting.export(run)["artifacts"]}
    assert (exported["out/a.txt"]["kind"], exported["out/a.txt"]["sha256"]) == ("file", kept.sha256)


def facts_of(run: Run) -> Iterator[dict[str, Any]]:
    for text in run.steps.order_by("seq").values_list("facts_json", flat=True):
        yield from json.loads(text)


def test_a_transition_that_makes_nothing_asks_the_database_nothing_of_artifacts() -> None:
    run = launch(think("search", q="tides"), FINAL)
    with CaptureQueriesContext(connection) as asked:
        work(run)
    assert run.status == "succeeded"
    assert not [query["sql"] for query in asked if "artifact" in query["sql"]]


# --- contract -------------------------------------------------------------------------------------------------------


def test_what_a_contracts_calls_declare_are_artifacts_with_the_result_as_content() -> None:
    sources = [{"url": "https://a.example", "title": "A", "text": "t"}]
    look = {"effects": "read", "results": [{"output": {"found": sources, "notes": "high ␀"}}]}
    run = contract_run(render(("found", "search"), ("notes", "inline"), tool="look"), look=look)
    assert rows(run) == [("found", 1, "search"), ("notes", 1, "inline")]
    found, notes = (Artifact.objects.get(run=run, name=name) for name in ("found", "notes"))
    assert json.loads(artifacts.artifact_bytes(found) or b"") == sources
    assert (found.media_type, notes.media_type) == ("application/json", "text/plain")
    assert artifacts.artifact_bytes(notes) == "high ␀".encode()
    assert not creating.folder_of(run.pk).exists()
    assert artifacts.artifact_text(run, "notes") == "high ␀"


def test_a_declared_file_is_the_file_that_the_call_made() -> None:
    one, two = [made("out/r.md", "# R")], [made("r.md", "# S"), made("c.csv", "a,b")]
    run = contract_run(
        render(("report", "file")), render(("c.csv", "file"), ("other", "file")), save=saving(one, two)
    )
    assert rows(run) == [
        ("report", 1, "file"),
        ("out/r.md", 1, "file"),
        ("c.csv", 1, "file"),
        ("other", 1, "file"),
        ("r.md", 1, "file"),
    ]
    assert (bytes_of(run, "report", 1), bytes_of(run, "c.csv", 1)) == (b"# R", b"a,b")
    assert bytes_of(run, "other", 1) == b"a,b"  # the second of two files, for the second of two declared


def test_a_failed_artifact_has_its_error_and_a_later_one_is_the_next_version() -> None:
    bad = {"effects": "read", "results": [{"error": "The pen is broken."}, {"output": "drawn"}]}
    run = contract_run(*[render(("chart", "inline"), tool="draw")] * 2, draw=bad)
    first, second = Artifact.objects.filter(run=run, name="chart").order_by("version")
    assert (first.error, first.size, artifacts.artifact_bytes(first)) == ("The pen is broken.", 0, None)
    assert (second.version, artifacts.artifact_bytes(second)) == (2, b"drawn")
    assert artifacts.artifact_text(run, "chart", 1) == "[It failed: The pen is broken.]"


ODD_NAMES = ("x" * 5_000, "../../etc/passwd", "a\nb", "\u202egnp.exe", "a//b", "n\x00l", "nul", "a\\b")


def test_a_declared_name_may_be_anything() -> None:
    outputs = [(name, "inline") for name in ODD_NAMES]
    run = contract_run(render(*outputs), save={"effects": "read", "results": [{"output": "v"}]})
    kept = list(Artifact.objects.filter(run=run))
    assert len(kept) == len(ODD_NAMES)
    for one in kept:
        assert len(one.name) <= 200
        assert artifacts.artifact_bytes(one) == b"v"
        assert artifact_view(run, kept_with_live(run, one.name)).meant
    assert [row["version"] for row in exporting.export(run)["artifacts"]] == [1] * len(ODD_NAMES)
    assert list(creating.folder_of(run.pk).parent.glob("**/*")) == []


def kept_with_live(run: Run, name: str) -> Artifact:
    found = artifact_of(run, name, None)
    assert found is not None
    return found


def test_two_long_names_stay_two() -> None:
    one, other = "x" * 300 + "a", "x" * 300 + "b"
    assert len(row_name(one)) == len(row_name(other)) == 200
    assert row_name(one) != row_name(other)


def test_where_one_file_of_a_result_is_refused_none_is_written_and_the_name_means_what_it_holds() -> None:
    run = run_saving([made("report.md", "one")], [made("report.md", "two"), made("Report.md", "x")])
    assert run.status == "succeeded"
    assert rows(run) == [("report.md", 1, "file")]
    errors = [fact["error"] for fact in facts_of(run) if fact["kind"] == "react.tool.result"]
    assert errors[0] is None
    assert errors[1].startswith("'Report.md' conflicts with 'report.md'")
    assert RunFolder(creating.folder_of(run.pk)).read("report.md") == b"one"
    assert artifact_view(run, kept_with_live(run, "report.md")).on_disk == ""
    assert kept_in(run) == {sha256(b"one").hexdigest()}


# --- workers that die -----------------------------------------------------------------------------------------------


def test_a_worker_that_dies_between_the_bytes_and_the_row_loses_nothing_and_doubles_nothing() -> None:
    tool = saving([made("a.txt", "one")], [made("a.txt", "never")])
    run = launch(played=script(think("save"), FINAL, tools={"save": tool}))
    die_in(run, after=kill, only="save")
    assert rows(run) == []
    assert RunFolder(creating.folder_of(run.pk)).read("a.txt") == b"one"
    slice_of(run)
    assert run.status == "succeeded"
    assert rows(run) == [("a.txt", 1, "file")]
    assert kept_in(run) == {sha256(b"one").hexdigest()}


def test_a_worker_that_dies_before_the_bytes_leaves_nothing_behind() -> None:
    run = launch(played=script(think("save"), FINAL, tools={"save": saving([made("a.txt", "one")])}))
    die_in(run, before=kill, only="save")
    assert not creating.folder_of(run.pk).exists()
    slice_of(run)
    assert rows(run) == [("a.txt", 1, "file")]


@pytest.mark.parametrize("place", ["after_effect:kill9:2", "before_conclusion_commit:kill9:2"])
def test_killed_between_the_bytes_and_the_row_there_is_one_version(place: str) -> None:
    tool = saving([made("a.txt", "one")])
    run = launch_and_die(script(think("save"), FINAL, tools={"save": tool}), place)
    assert rows(run) == []
    work(run)
    assert rows(run) == [("a.txt", 1, "file")]
    assert bytes_of(run, "a.txt", 1) == b"one"


def test_killed_between_two_files_of_a_result_both_are_there_when_the_call_is_repeated() -> None:
    tool = saving([made("a.txt", "one"), made("b.txt", "two")])
    run = launch_and_die(script(think("save"), FINAL, tools={"save": tool}), "inside_put:kill9:4")
    folder = RunFolder(creating.folder_of(run.pk))
    assert [entry.name for entry in folder.entries()] == ["a.txt"]
    work(run)
    assert rows(run) == [("a.txt", 1, "file"), ("b.txt", 1, "file")]
    assert (folder.read("a.txt"), folder.read("b.txt")) == (b"one", b"two")


def test_a_deed_that_may_have_happened_is_run_again_and_makes_one_version() -> None:
    tool = saving([made("a.txt", "one")], effects="send")
    run = launch(played=script(think("save"), FINAL, tools={"save": tool}), rules=ALLOW)
    die_in(run, after=kill, only="save")
    work(run)
    assert pending(run).kind == "may_have_happened"
    decide(run, "approve")
    work(run)
    assert rows(run) == [("a.txt", 1, "file")]


def test_where_a_person_enters_the_result_no_row_claims_the_file_and_the_page_lists_it_all_the_same() -> None:
    tool = saving([made("a.txt", "one")], effects="send")
    run = launch(played=script(think("save"), FINAL, tools={"save": tool}), rules=ALLOW)
    die_in(run, after=kill, only="save")
    work(run)
    decide(run, "respond", message="It is there.")
    work(run)
    assert rows(run) == []
    assert [(view.name, view.versions, view.seq) for view in files_of(run)] == [("a.txt", 0, None)]


def test_an_attempt_that_failed_after_it_wrote_makes_no_second_version() -> None:
    flaky = {
        "effects": "read",
        "results": [
            {"error": "busy", "kind": "transient"},
            {"output": "ok", "files": [made("a.txt", "one")]},
        ],
    }
    run = launch(played=script(think("save"), FINAL, tools={"save": flaky}))
    RunFolder(creating.folder_of(run.pk)).write("a.txt", b"one")  # the first attempt came as far as that
    work(run)
    assert rows(run) == [("a.txt", 1, "file")]


def test_a_worker_that_lost_its_seat_writes_no_artifact() -> None:
    run = launch(played=script(think("save"), FINAL, tools={"save": saving([made("a.txt", "one")])}))

    def taken_over() -> None:
        lose_worker(run)
        assert leases.claim(run.pk, "beta") is not None

    with pytest.raises(Fenced):
        slice_of(run, after=taken_over, only="save")
    assert rows(run) == []
    lose_worker(run)
    slice_of(run)
    assert rows(run) == [("a.txt", 1, "file")]


# --- the quota ------------------------------------------------------------------------------------------------------


def test_a_reached_quota_is_an_error_of_the_tool_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MAX_KEPT_BYTES", 6)
    run = run_saving([made("a.txt", "one")], [made("a.txt", "four")])
    assert run.status == "succeeded"
    assert rows(run) == [("a.txt", 1, "file")]
    errors = [fact["error"] for fact in facts_of(run) if fact["kind"] == "react.tool.result"]
    assert errors[0] is None
    assert "This call would make 2 with 7 bytes; the limits are 2000 and 6. Nothing was written" in errors[1]
    assert artifacts.artifact_text(run, "a.txt") == "one"
    assert RunFolder(creating.folder_of(run.pk)).read("a.txt") == b"one"


# --- going back -----------------------------------------------------------------------------------------------------


def test_after_a_rollback_the_newest_live_version_is_what_the_name_means() -> None:
    run = gone_back()
    assert rows(run) == [("a.txt", 1, "file"), ("a.txt", 2, "file"), ("b.txt", 1, "file")]
    newest = artifacts.newest_artifact(run, "a.txt")
    assert newest is not None and newest.version == 1
    assert artifacts.artifact_text(run, "a.txt") == "one"
    assert artifacts.artifact_text(run, "a.txt", 2) == "two"
    assert artifacts.artifact_text(run, "b.txt") is None
    assert artifacts.newest_artifact(run, "b.txt") is None
    assert [(view.name, view.gone, view.versions) for view in files_of(run)] == [
        ("a.txt", False, 2),
        ("b.txt", True, 1),
    ]
    exported = {row["name"]: row for row in exporting.export(run)["artifacts"]}
    assert list(exported) == ["a.txt"]
    assert exported["a.txt"]["version"] == 1


def test_the_page_says_that_the_file_on_disk_is_another_version() -> None:
    run = gone_back()
    assert RunFolder(creating.folder_of(run.pk)).read("a.txt") == b"two"
    view = artifact_view(run, kept_with_live(run, "a.txt"))
    assert (view.version, view.live, view.meant) == (1, True, True)
    assert view.on_disk == on_disk("version 2, which was rolled back")
    dead = artifact_of(run, "a.txt", 2)
    assert dead is not None
    view = artifact_view(run, dead)
    assert (view.live, view.meant, view.newest and view.newest.version) == (False, False, 1)
    only_dead = artifact_view(run, kept_with_live(run, "b.txt"))
    assert (only_dead.live, only_dead.newest) == (False, None)
    assert only_dead.on_disk == on_disk("version 1, which was rolled back")


def on_disk(held: str) -> str:
    """What the page says of a file that is another than its name means."""
    return f"The file in the run’s directory holds {held}. Tools read that file."


def test_where_nobody_went_back_the_page_names_no_such_reason_for_another_file_on_disk() -> None:
    run = run_saving([made("a.txt", "one")], [made("a.txt", "two")])
    folder = RunFolder(creating.folder_of(run.pk))
    for content, held in (
        (b"two", ""),
        (b"one", on_disk("version 1")),
        (b"three", on_disk("content that is not in the log")),
    ):
        folder.write("a.txt", content)
        assert artifact_view(run, kept_with_live(run, "a.txt")).on_disk == held


def test_after_a_rollback_the_next_version_counts_on() -> None:
    run = work(gone_back())
    versions = Artifact.objects.filter(run=run, name="a.txt").order_by("version")
    assert [one.version for one in versions] == list(range(1, len(versions) + 1))


# --- copies ---------------------------------------------------------------------------------------------------------


def test_a_fork_has_the_versions_up_to_its_row_and_their_bytes() -> None:
    run = run_saving([made("a.txt", "one")], [made("a.txt", "two")], [made("a.txt", "three")])
    copy = actions.fork(run, at=transitions(run, "executed")[1], by=None)
    assert rows(copy) == [("a.txt", 1, "file"), ("a.txt", 2, "file")]
    assert (bytes_of(copy, "a.txt", 1), bytes_of(copy, "a.txt", 2)) == (b"one", b"two")
    assert RunFolder(creating.folder_of(copy.pk)).read("a.txt") == b"two"
    assert rows(run)[-1] == ("a.txt", 3, "file")


def test_a_fork_of_a_contract_copies_files_by_their_own_names() -> None:
    save = saving([made("out/r.md", "# R")])
    run = contract_run(render(("../report\n", "file")), render(("note", "inline")), save=save)
    copy = actions.fork(run, at=transitions(run, "done")[0], by=None)
    assert [name for name, *_ in rows(copy)] == ["../report\n", "out/r.md"]
    assert bytes_of(copy, "../report\n", 1) == b"# R"
    assert [entry.name for entry in RunFolder(creating.folder_of(copy.pk)).entries()] == ["out/r.md"]


class Disk:
    """What the disk is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: Counter[str] = Counter()
        for name in ("fsync", "scandir"):
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, deed: Any) -> Any:
        def counted(*given: Any) -> Any:
            self.asked[name] += 1
            return deed(*given)

        return counted


def test_a_run_with_many_versions_of_files_is_forked_with_no_more_work_than_one_with_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    for many in (2, 12):
        run = run_saving(*([made("a.txt", f"version {number}")] for number in range(many)))
        disk = Disk(monkeypatch)
        copy = actions.fork(run, at=transitions(run, "executed")[-1], by=None)
        monkeypatch.undo()
        assert kept_in(copy) == kept_in(run)
        assert len(kept_in(copy)) == many
        asked.append(disk.asked)
    assert asked[0] == asked[1]
    assert asked[0]["fsync"] > 0


def test_a_fork_shares_what_is_kept_and_neither_run_can_change_it_for_the_other() -> None:
    run = run_saving([made("a.txt", "one")], [made("b/a.txt", "two")])
    copy = actions.fork(run, at=transitions(run, "executed")[1], by=None)
    mine, theirs = creating.folder_of(copy.pk), creating.folder_of(run.pk)
    for digest in kept_in(run):
        assert (mine / KEPT / digest).samefile(theirs / KEPT / digest)
    for name in ("a.txt", "b/a.txt"):
        (mine / name).write_text("written over in place")
    RunFolder(mine).write("a.txt", b"one")
    (mine / KEPT / sha256(b"two").hexdigest()).unlink()
    assert (bytes_of(run, "a.txt", 1), bytes_of(run, "b/a.txt", 1)) == (b"one", b"two")
    assert (RunFolder(theirs).read("a.txt"), RunFolder(theirs).read("b/a.txt")) == (b"one", b"two")


def test_where_the_disk_gives_no_second_names_the_versions_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "no second names here")

    run = run_saving([made("a.txt", "one")], [made("a.txt", "two")])
    monkeypatch.setattr(os, "link", refused)
    copy = actions.fork(run, at=transitions(run, "executed")[1], by=None)
    assert kept_in(copy) == kept_in(run)
    assert (bytes_of(copy, "a.txt", 1), bytes_of(copy, "a.txt", 2)) == (b"one", b"two")
    assert not (creating.folder_of(copy.pk) / "a.txt").samefile(creating.folder_of(run.pk) / "a.txt")


def test_a_version_that_is_not_kept_any_more_is_left_out_of_a_fork() -> None:
    run = run_saving([made("a.txt", "one")], [made("a.txt", "two")], [made("b.txt", "b")])
    for text in (b"two", b"b"):
        (creating.folder_of(run.pk) / KEPT / sha256(text).hexdigest()).unlink()
    copy = actions.fork(run, at=transitions(run, "executed")[2], by=None)
    folder = RunFolder(creating.folder_of(copy.pk))
    assert kept_in(copy) == {sha256(b"one").hexdigest()}
    assert [(entry.name, folder.read(entry.name)) for entry in folder.entries()] == [("a.txt", b"one")]


# --- reading --------------------------------------------------------------------------------------------------------


def test_the_text_of_an_artifact() -> None:
    run = run_saving([made("a.txt", "one")], [made("a.txt", "two")])
    assert artifacts.artifact_text(run, "a.txt") == "two"
    assert artifacts.artifact_text(run, "a.txt", 1) == "one"
    assert artifacts.artifact_text(run, "a.txt", 3) is None
    for name in ("nothing.txt", "../a.txt", "", "a\x00b", "\ud800", "x" * 10_000):
        assert artifacts.artifact_text(run, name) is None


def test_a_file_from_before_there_were_versions_is_read_as_it_stands() -> None:
    run = work(launch(FINAL))
    RunFolder(creating.folder_of(run.pk)).write("old.txt", b"old \xff")
    assert artifacts.artifact_text(run, "old.txt") == "[application/octet-stream, 5 bytes; not text]"
    RunFolder(creating.folder_of(run.pk)).write("old.txt", b"old")
    assert artifacts.artifact_text(run, "old.txt") == "old"
    assert [(view.name, view.versions) for view in files_of(run)] == [("old.txt", 0)]


def test_bytes_that_somebody_removed_are_gone_and_nothing_else_is() -> None:
    run = run_saving([made("a.txt", "one")])
    (creating.folder_of(run.pk) / KEPT / sha256(b"one").hexdigest()).unlink()
    assert bytes_of(run, "a.txt", 1) is None
    assert artifacts.artifact_text(run, "a.txt") is None
    view = artifact_view(run, kept_with_live(run, "a.txt"))
    assert (view.lost, view.preview, view.sha256) == (True, None, sha256(b"one").hexdigest())


def test_the_export_says_what_a_name_means() -> None:
    run = run_saving([made("a.png", "one")], [made("a.png", "two")])
    newest = Artifact.objects.get(run=run, version=2)
    assert exporting.export(run)["artifacts"] == [
        {
            "name": "a.png",
            "kind": "display",
            "error": None,
            "slot": None,
            "version": 2,
            "media_type": "text/plain",
            "size": 3,
            "sha256": sha256(b"two").hexdigest(),
            "seq": newest.seq,
            "tool": "save",
        }
    ]


# --- verifying ------------------------------------------------------------------------------------------------------


DAMAGES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"version": 3}, "should be version 2"),
    ({"seq": 1}, "should be version 1"),
    ({"name": "b.txt", "version": 1}, "its artifacts do not match"),
    *(
        ({column: value}, "its artifacts do not match")
        for column, value in (("sha256", "0" * 64), ("size", 5), ("error", "x"), ("kind", "display"))
    ),
)


def test_artifacts_that_do_not_fit_the_log_are_found() -> None:
    run = run_saving([made("a.txt", "one")], [made("a.txt", "two")])
    tools = driver.tool_specs(run)
    second = Artifact.objects.filter(run=run, version=2)
    for damage, why in DAMAGES:
        with transaction.atomic():
            second.update(**damage)
            misfit = verifying.verify(run, tools)
            transaction.set_rollback(True)
        assert misfit is not None
        assert why in misfit.why
    with transaction.atomic():
        second.delete()
        misfit = verifying.verify(run, tools)
        transaction.set_rollback(True)
    assert misfit is not None
    assert misfit.seq == second.get().seq


def test_a_run_from_before_there_were_artifacts_verifies() -> None:
    run = run_saving([made("a.txt", "one")])
    with transaction.atomic():
        Artifact.objects.filter(run=run).delete()
        found = run.exchanges.get(name="save")
        answer = json.loads(found.answer_json or "")
        for file in answer["files"]:
            del file["sha256"], file["media_type"]
        found.answer_json = json.dumps(answer)
        found.save()
        unseal(run)
        misfit = verifying.verify(Run.objects.get(pk=run.pk), driver.tool_specs(run))
        transaction.set_rollback(True)
    assert misfit is None
