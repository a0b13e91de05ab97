"""Full-text search over runs: what is found, in which order, by whom; any query is data; the index keeps up."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.db.migrations.state import ProjectState
from django.utils import timezone

from runs.adapters.folder import RunFolder
from runs.driver.recall import MOST_READ, recall
from runs.engine.effects import Failed, ToolCall, ToolReturned
from runs.engine.facts import SummaryEdited
from runs.models import Remembered, Run, Step
from runs.store import memory
from runs.store.creating import folder_of
from runs.store.memory import EARLIER_RUNS, Hit, extract, search, words_of
from tests.cast import person
from tests.running import in_threads

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def run_of(owner: User | None = None, *texts: str) -> Run:
    """A run whose rows hold these texts, a tool's result each."""
    run = Run.objects.create(machine="ruled", goal="Tides", node="decision", owner=owner)
    told(run, *texts)
    return run


def told(run: Run, *texts: str, tool: str = "search") -> None:
    """More rows of the run."""
    for text in texts:
        run.head += 1
        facts = json.dumps([{"kind": "react.tool.result", "tool": tool, "value": text}])
        Step.objects.create(
            run=run,
            seq=run.head,
            kind="transition",
            node="decision",
            facts_json=facts,
            at=timezone.now(),
            hash="",
        )
    run.save()


def places(run: Run, query: str, most: int = 10) -> list[tuple[int, int]]:
    """Where a search finds something."""
    return [(hit.run, hit.seq) for hit in search(run, query, most)]


def seqs(run: Run, query: str) -> list[int]:
    """Which rows of a run alone a search finds, best first."""
    return [hit.seq for hit in search(run, query, 10)]


# --- what is found, in which order --------------------------------------------------------------------------------


def test_more_words_come_first_and_the_newest_of_equals() -> None:
    run = run_of(None, "moon tides", "moon", "tides moon sun", "sun", "the moon again")
    assert seqs(run, "sun moon tides") == [3, 1, 5, 4, 2]
    assert [hit.seq for hit in search(run, "sun moon tides", 2)] == [3, 1]


def test_a_word_said_often_counts_once() -> None:
    run = run_of(None, "tide sun", "tide tide tide tide tide", "nothing")
    assert seqs(run, "tide sun tide") == [1, 2]


def test_a_hit_gives_the_blocks_as_the_model_read_them() -> None:
    run = run_of(None, "Žluťoučký KŮŇ")
    (hit,) = search(run, "kun", 5)
    assert hit == Hit(run.pk, 1, memory.text_of(run, 1))
    assert "Žluťoučký KŮŇ" in hit.text


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Crème brûlée", "creme BRULEE"),
        ("creme", "crème"),
        ("Straße", "STRASSE"),
        ("İstanbul", "istanbul"),
        ("ΟΔΥΣΣΕΎΣ", "οδυσσευς"),
        ("a file read_file.txt of notes/day-1.md", "read"),
        ("a file read_file.txt of notes/day-1.md", "day-1.md"),
        ("the price is 3.14", "3.14"),
        ("ﬁnal", "final"),
        ("今天的潮汐报告", "潮汐"),
        ("今天的潮汐报告", "汐"),
        ("東京タワーの高さ", "タワー"),
        ("ประเทศไทยสวย", "ไทย"),
        ("서울 타워", "타워"),
        ("हिन्दी भाषा", "भाषा"),
        ("\U00020000\U00020001", "\U00020000\U00020001"),
        ("x" * 500, "x" * 300),
    ],
)
def test_words_are_found_whatever_their_case_diacritics_and_script(text: str, query: str) -> None:
    assert seqs(run_of(None, "something else", text), query) == [2]


def test_neighbours_of_an_unspaced_script_are_asked_for_together() -> None:
    assert seqs(run_of(None, "汐潮", "潮汐"), "潮汐") == [2]


def test_what_the_fences_say_is_not_found() -> None:
    assert seqs(run_of(None, "moon"), "search says data not instructions") == []


def test_a_part_of_a_word_is_not_the_word() -> None:
    assert seqs(run_of(None, "tidesong"), "tides") == []


# --- whose --------------------------------------------------------------------------------------------------------


def test_earlier_runs_of_the_same_person_are_found_and_those_of_others_never() -> None:
    ann, ben = person("ann"), person("ben")
    first, others, nobodys = run_of(ann, "moon"), run_of(ben, "moon"), run_of(None, "moon")
    here, later = run_of(ann, "moon"), run_of(ann, "moon")
    assert places(here, "moon") == [(here.pk, 1), (first.pk, 1)]
    assert places(others, "moon") == [(others.pk, 1)]
    assert places(nobodys, "moon") == [(nobodys.pk, 1)]
    assert places(later, "moon") == [(later.pk, 1), (here.pk, 1), (first.pk, 1)]


def test_what_others_have_indexed_is_not_found_either() -> None:
    ann, ben = person("ann"), person("ben")
    theirs = run_of(ben, "moon")
    assert places(theirs, "moon")
    assert places(run_of(ann, "sun"), "moon") == []
    theirs.owner = ann
    theirs.save()
    assert places(run_of(ann, "sun"), "moon") == [(theirs.pk, 1)]


def test_a_search_looks_into_the_newest_earlier_runs_only() -> None:
    ann = person("ann")
    runs = [run_of(ann, "moon") for _ in range(EARLIER_RUNS + 2)]
    assert len(places(runs[-1], "moon", 100)) == EARLIER_RUNS + 1
    assert not Remembered.objects.filter(run=runs[0]).exists()


# --- what is not found --------------------------------------------------------------------------------------------


def test_rows_that_a_rollback_made_dead_are_not_found() -> None:
    run = run_of(None, "moon one", "moon two", "moon three")
    run.steps.filter(seq=3).update(live=False)
    assert seqs(run, "moon") == [2, 1]
    run.steps.filter(seq=2).update(live=False)  # it has been indexed
    assert seqs(run, "moon") == [1]
    assert memory.text_of(run, 2) == ""


def test_blocks_of_infra_tools_are_not_found() -> None:
    run = run_of(None, "sun")
    told(run, "moon", tool="react.memory_read")
    assert seqs(run, "moon") == []


def test_a_row_of_another_version_of_the_machine_is_passed_over() -> None:
    run = run_of(None, "moon", "moon")
    run.steps.filter(seq=1).update(facts_json='[{"kind": "no.such.fact"}]')
    assert seqs(run, "moon") == [2]


# --- any query is data --------------------------------------------------------------------------------------------

HOSTILE = [
    *("", " ", "\x00", "moon\x00sun", '"', "'", '"moon', "moon'", "''", "\\", "\\'", "'moon':*", "moon:*"),
    *("moon*", "*", "^moon", "NEAR(moon sun)", "moon NEAR/3 sun", "moon AND", "OR", "NOT moon", "AND OR NOT"),
    *(
        "text:moon",
        "{text}: moon",
        "- moon",
        "-moon",
        "+moon",
        "(moon",
        "moon)",
        "((((",
        "moon & | ! <-> sun",
    ),
    *("%", "%s", "%(x)s", "{}", "{words}", "?", "$1", "...!?;,—", "'; DROP TABLE runs_remembered; --"),
    *(
        "\ud800",
        "moon\udfff",
        "🌙",
        "👩\u200d🚀",
        "1\ufe0f\u20e3",
        "\u202emoon",
        "月",
        "\ufffd",
        "\u0301",
        "ﷺ" * 5000,
    ),
    *("moon " * 20_000, "m" * 100_000, "潮汐" * 50_000, " ".join(map(str, range(20_000))), "moon\n\tsun\r\n"),
]


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_no_query_raises(query: str) -> None:
    run = run_of(None, "moon", "sun")
    assert ("moon" in words_of(query)) == (1 in seqs(run, query))
    assert extract("a moon " * 200, query, 100)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_breaks_the_index(text: str) -> None:
    run = run_of(None)
    told(
        run,
        json.loads(json.dumps(text)).encode("utf-8", "replace").decode().replace("\x00", "\ufffd"),
        "moon",
    )
    assert seqs(run, "moon")[0] == 2


def test_only_the_first_words_of_a_query_count() -> None:
    many = " ".join(f"w{number}" for number in range(memory.MOST_WORDS))
    run = run_of(None, "moon", "w3")
    assert seqs(run, f"{many} moon") == [2]


def test_none_are_found_where_none_are_wanted() -> None:
    assert search(run_of(None, "moon"), "moon", 0) == []


# --- the index ----------------------------------------------------------------------------------------------------


def test_nothing_is_written_until_a_search_needs_it_and_then_once() -> None:
    run = run_of(None, "moon", "")
    assert not Remembered.objects.exists()
    assert seqs(run, "moon") == [1]
    kept = list(Remembered.objects.values_list("pk", "seq"))
    assert seqs(run, "moon") == [1]
    assert list(Remembered.objects.values_list("pk", "seq")) == kept
    told(run, "moon")
    assert seqs(run, "moon") == [3, 1]


def test_rows_without_text_are_looked_at_once() -> None:
    run = run_of(None, "moon")
    told(run, *["look"] * 3, tool="react.read")
    assert seqs(run, "moon") == [1]
    assert list(Remembered.objects.order_by("seq").values_list("seq", "text")) == [
        (1, Remembered.objects.get(seq=1).text),
        (4, ""),
    ]


def test_a_run_of_many_rows_is_indexed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "AT_ONCE", 3)
    run = run_of(None, *(f"moon number{number}" for number in range(10)))
    assert seqs(run, "number9 moon")[0] == 10
    assert Remembered.objects.count() == 10


@pytest.mark.django_db(transaction=True)
def test_workers_that_search_at_once_index_a_row_once() -> None:
    ann = person("ann")
    runs = [run_of(ann, *(f"moon {number}" for number in range(40))) for _ in range(3)]
    found = in_threads(4, lambda _: places(runs[-1], "moon", 200))
    assert found == [found[0]] * 4
    assert len(found[0]) == 120
    assert Remembered.objects.count() == 120
    assert _words_in_index() == 120


def test_deleting_a_run_removes_its_index() -> None:
    ann = person("ann")
    earlier, run = run_of(ann, "moon"), run_of(ann, "moon")
    assert len(places(run, "moon")) == 2
    Run.objects.filter(pk=earlier.pk).delete()
    assert places(run, "moon") == [(run.pk, 1)]
    assert (Remembered.objects.count(), _words_in_index()) == (1, 1)


def test_a_changed_text_is_found_by_its_new_words_only() -> None:
    run = run_of(None, "moon")
    assert seqs(run, "moon") == [1]
    Remembered.objects.update(text="sun")
    assert (seqs(run, "moon"), seqs(run, "sun")) == ([], [1])


@pytest.mark.django_db(transaction=True)
def test_the_index_can_be_taken_back_and_made_again() -> None:
    run = run_of(None, "moon")
    assert seqs(run, "moon") == [1]
    migration = import_module("runs.migrations.0005_full_text").Migration("0005_full_text", "runs")
    with connection.schema_editor() as editor:
        migration.unapply(ProjectState(), editor)
    try:
        assert Remembered.objects.filter(text__contains="moon").count() == 1
        with pytest.raises(DatabaseError):
            search(run, "moon", 5)
    finally:
        with connection.schema_editor() as editor:
            migration.apply(ProjectState(), editor)
    assert seqs(run, "moon") == [1]
    told(run, "moon")
    assert seqs(run, "moon") == [2, 1]


def _words_in_index() -> int:
    """How many rows the index has for the word moon, whoever they belong to."""
    by_vendor = {
        "sqlite": "SELECT count(*) FROM runs_remembered_words WHERE runs_remembered_words MATCH 'moon'",
        "postgresql": "SELECT count(*) FROM runs_remembered WHERE words @@ 'moon'::tsquery",
    }
    with connection.cursor() as cursor:
        cursor.execute(by_vendor[connection.vendor])
        count: int = cursor.fetchone()[0]
    return count


# --- extracts -----------------------------------------------------------------------------------------------------


def test_an_extract_shows_the_words_that_were_asked_for() -> None:
    text = "x " * 1000 + "the Moon pulls " + "y " * 1000
    shown = extract(text, "moon", 100)
    assert "the Moon pulls" in shown
    assert shown.startswith("…") and shown.endswith("…") and len(shown) == 102
    assert extract("short moon", "moon", 100) == "short moon"
    assert extract("moon " + "y " * 100, "moon", 50).startswith("moon")
    assert extract("y " * 100 + "moon", "moon", 50).endswith("moon")


# --- reading and hiding by path -----------------------------------------------------------------------------------


def summed_up(run: Run, text: str) -> str:
    """A compaction of the run's rows so far; the path of its summary."""
    run.head += 1
    fact = {"kind": "conv.range.summary", "first": 1, "last": run.head - 1, "text": text}
    fact |= {"tokens_before": 2, "tokens_after": 1}
    Step.objects.create(
        run=run,
        seq=run.head,
        kind="compaction",
        node="decision",
        facts_json=json.dumps([fact]),
        at=timezone.now(),
        hash="",
    )
    run.save()
    return f"su:{run.head}"


def ask(run: Run, tool: str, **args: Any) -> ToolReturned | Failed:
    """What an infra tool answers."""
    return recall(run, ToolCall(tool=tool, args=args, effects="none", infra=True))


def read(run: Run, *paths: str) -> dict[str, str]:
    """What stands at the paths, all of which are known."""
    answer = ask(run, "react.read", paths=list(paths))
    assert isinstance(answer, ToolReturned), answer
    found: dict[str, str] = answer.value
    return found


def refusal(answer: ToolReturned | Failed) -> str:
    """Why not; another try is possible."""
    assert isinstance(answer, Failed) and answer.blame == "recoverable", answer
    return answer.message


def test_a_summary_is_read_as_it_stands_now() -> None:
    run = run_of(None, "moon", "sun")
    path = summed_up(run, "The moon costs 3 EUR.")
    assert read(run, path, "st:1")[path] == "The moon costs 3 EUR."
    run.head += 1
    edit = SummaryEdited(summary=3, version=2, text="4 EUR.", by="bob", reason="wrong").model_dump()
    Step.objects.create(
        run=run,
        seq=run.head,
        kind="note",
        node="x",
        facts_json=json.dumps([edit]),
        at=timezone.now(),
        hash="",
    )
    run.save()
    assert read(run, path) == {path: "4 EUR."}
    assert seqs(run, "EUR") == [], "a search finds the originals, not what was made of them"


def test_a_summary_and_a_block_can_be_hidden_and_nothing_else() -> None:
    run = run_of(None, "moon")
    path = summed_up(run, "Moon.")
    for hideable in (path, "st:1"):
        answer = ask(run, "react.memory_hide", path=hideable, replacement="gone")
        assert isinstance(answer, ToolReturned) and answer.value == {"path": hideable, "replacement": "gone"}
    answer = ask(run, "react.memory_hide", path=f"st:{run.head}", replacement="gone")
    assert (
        refusal(answer) == f"st:{run.head} has no block of its own; the nearest: {path} (conv.range.summary)."
    )
    for other in ("su:1", "su:99", "su:x", "fi:a.txt", "", "moon"):
        answer = ask(run, "react.memory_hide", path=other, replacement="gone")
        assert refusal(answer) == f"There is no block at {other}."


def test_every_unknown_path_is_named() -> None:
    run = run_of(None, "moon")
    paths = ["st:1", "su:7", "fi:no.txt", "st:7", "su:7"]
    assert refusal(ask(run, "react.read", paths=paths)) == "There is nothing at su:7, fi:no.txt, st:7."
    many = refusal(ask(run, "react.read", paths=[f"st:{number}" for number in range(100, 200)]))
    assert many.endswith("st:119 and 80 more.")
    assert len(refusal(ask(run, "react.read", paths=["x" * 100_000]))) < 400


@pytest.mark.parametrize(
    "path",
    ["\x00", "fi:\x00", "fi:" + "a" * 100_000, "st:" + "9" * 5000, "su:-1", "st:٣", "fi:/etc/passwd"],
    ids=range(7),
)
def test_no_path_raises(path: str) -> None:
    assert refusal(ask(run_of(None, "moon"), "react.read", paths=[path])).startswith("There is nothing at ")


def test_the_whole_answer_is_bounded_and_says_what_was_cut() -> None:
    run = run_of(None, *("x" * 8000 for _ in range(12)))
    found = read(run, *(f"st:{seq}" for seq in range(1, 13)))
    whole = len(found["st:1"])
    assert sum(map(len, found.values())) < MOST_READ + 12 * 40
    assert found["st:8"] == found["st:1"]
    over = 9 * whole - MOST_READ
    assert found["st:9"].endswith(f"… [{over} characters more]")
    assert found["st:12"] == f"… [{whole} characters more]"


def test_a_search_gives_five_blocks_where_nothing_is_said() -> None:
    run = run_of(None, *(f"moon {number}" for number in range(9)))
    for more in ({}, {"top_k": 0}, {"top_k": "many"}, {"top_k": True}):
        answer = ask(run, "react.memory_read", query="moon", **more)
        assert isinstance(answer, ToolReturned) and len(answer.value) == 5
    assert len(hits(run, "moon", top_k=7)) == 7


def hits(run: Run, query: str, **more: Any) -> list[dict[str, str]]:
    """What a search of the run finds: where, and what stands there."""
    answer = ask(run, "react.memory_read", query=query, **more)
    assert isinstance(answer, ToolReturned), answer
    found: list[dict[str, str]] = answer.value
    return found


def test_what_an_infra_tool_gave_is_read_and_hidden_by_its_path() -> None:
    run = run_of(None, "sun")
    told(run, "moon", tool="react.read")
    assert "moon" in read(run, "st:2")["st:2"]
    hidden = ask(run, "react.memory_hide", path="st:2", replacement="gone")
    assert isinstance(hidden, ToolReturned), hidden


# --- other runs of the same owner ---------------------------------------------------------------------------------


def test_a_search_gives_paths_that_can_be_read_of_this_run_and_of_others() -> None:
    ann = person("ann")
    earlier, run = run_of(ann, "the moon " + "pulls " * 200), run_of(ann, "a moon")
    here, there = hits(run, "moon", top_k=10**9)
    assert (here["path"], there["path"]) == ("st:1", f"run:{earlier.pk}/st:1")
    assert len(there["text"]) < 700
    found = read(run, here["path"], there["path"])
    assert found == {"st:1": memory.text_of(run, 1), there["path"]: memory.text_of(earlier, 1)}
    assert len(found[there["path"]]) > 1200


def test_summaries_and_artifacts_of_another_run_are_read_too() -> None:
    ann = person("ann")
    earlier, run = run_of(ann, "moon"), run_of(ann, "sun")
    summary = f"run:{earlier.pk}/{summed_up(earlier, 'The moon costs 3 EUR.')}"
    RunFolder(folder_of(earlier.pk)).write("notes/a.txt", b"high water")
    assert read(run, summary, f"run:{earlier.pk}/fi:notes/a.txt") == {
        summary: "The moon costs 3 EUR.",
        f"run:{earlier.pk}/fi:notes/a.txt": "high water",
    }


def test_a_run_of_somebody_else_answers_like_one_that_is_not_there() -> None:
    ann, ben = person("ann"), person("ben")
    run, lonely = run_of(ann, "sun"), run_of(None, "sun")
    theirs, nobodys = run_of(ben, "moon"), run_of(None, "moon")
    for one in (theirs, nobodys):
        summed_up(one, "The moon costs 3 EUR.")
        RunFolder(folder_of(one.pk)).write("a.txt", b"high water")
    for reader in (run, lonely):
        for inner in ("st:1", "su:2", "fi:a.txt", "st:99"):
            said = []
            for number in (theirs.pk, nobodys.pk, 999_999):
                path = f"run:{number}/{inner}"
                said.append(refusal(ask(reader, "react.read", paths=[path])).replace(path, "PATH"))
            assert said == ["There is nothing at PATH."] * 3


def test_whose_a_run_is_counts_when_it_is_read() -> None:
    ann, ben = person("ann"), person("ben")
    earlier, run = run_of(ann, "moon"), run_of(ann, "sun")
    (hit,) = hits(run, "moon")
    assert "moon" in read(run, hit["path"])[hit["path"]]
    Run.objects.filter(pk=earlier.pk).update(owner=ben)
    assert refusal(ask(run, "react.read", paths=[hit["path"]])) == f"There is nothing at {hit['path']}."
    Run.objects.filter(pk=run.pk).update(owner=ben)  # `run` is as a worker has loaded it
    assert "moon" in read(run, hit["path"])[hit["path"]]
    Run.objects.filter(pk__in=(run.pk, earlier.pk)).update(owner=None)
    assert refusal(ask(run, "react.read", paths=[hit["path"]])) == f"There is nothing at {hit['path']}."


def test_a_dead_row_of_another_run_and_one_of_another_version_are_not_read() -> None:
    ann = person("ann")
    earlier, run = run_of(ann, "moon", "sun"), run_of(ann, "sky")
    summed_up(earlier, "Moon.")
    earlier.steps.filter(seq=1).update(live=False)
    earlier.steps.filter(seq__in=(2, 3)).update(facts_json='[{"kind": "no.such.fact"}]')
    for inner in ("st:1", "st:2", "su:3"):
        path = f"run:{earlier.pk}/{inner}"
        assert refusal(ask(run, "react.read", paths=[path])) == f"There is nothing at {path}."
    Run.objects.filter(pk=earlier.pk).update(machine="gone")
    assert refusal(ask(run, "react.read", paths=[path]))


@pytest.mark.parametrize(
    "path",
    [
        *("run:", "run:/", "run:{0}", "run:{0}/", "run:{0}/x", "run:{0}/st:", "run:x/st:1", "run:-{0}/st:1"),
        *("run:{0}/run:{0}/st:1", "run:٣/st:1", "run:²/st:1", "run:" + "9" * 5000 + "/st:1", "run:{0}//st:1"),
        *("run:{0}/fi:../../secret_key", "run:{0}/fi:/etc/passwd", "run:{0}/fi:\x00", "run: {0}/st:1"),
        *("RUN:{0}/st:1", "run:{0}/st:1 ", "run:{0}/st:1/st:1", "st:run:{0}/st:1", "run:999999999999/st:1"),
    ],
)
def test_no_path_of_another_run_raises(path: str) -> None:
    ann = person("ann")
    earlier, run = run_of(ann, "moon"), run_of(ann, "sun")
    asked = path.format(earlier.pk)
    assert refusal(ask(run, "react.read", paths=[asked])).startswith("There is nothing at ")


def test_a_run_may_name_itself_and_what_it_reads_so_is_the_block_itself() -> None:
    run = run_of(None, "moon")
    long = f"run:{run.pk}/st:1"
    assert read(run, long, "st:1") == {"st:1": memory.text_of(run, 1)}
    answer = ask(run, "react.memory_hide", path=long, replacement="gone")
    assert isinstance(answer, ToolReturned) and answer.value == {"path": "st:1", "replacement": "gone"}


def test_what_stands_in_another_run_can_not_be_hidden() -> None:
    ann = person("ann")
    earlier, run = run_of(ann, "moon"), run_of(ann, "sun")
    path = f"run:{earlier.pk}/st:1"
    answer = ask(run, "react.memory_hide", path=path, replacement="gone")
    assert refusal(answer) == f"There is no block at {path}."
