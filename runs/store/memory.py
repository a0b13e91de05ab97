"""Full-text search over the blocks of runs: one function, the same finds on SQLite and on PostgreSQL.

The words are made here, so both databases index the same ones. A run is indexed when a search first needs it; nothing
is written at a transition. See docs/context.md, "Tools for the run's own record".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import regex
from django.db import IntegrityError, connection, transaction
from django.db.models import OuterRef, QuerySet, Subquery
from pydantic import ValidationError

from runs.engine.facts import Fact, RangeSummarised
from runs.engine.machine import Machine
from runs.engine.timeline import FENCE, SUMMARY, blocks_of
from runs.machines import CATALOGUE
from runs.models import Remembered, Run, Step

EARLIER_RUNS = 50
"""Runs of the same person searched besides the run itself, newest first."""

MOST_WORDS = 32
"""Most different words of a query that count, the first ones."""

LOOKED_BESIDE = 50
"""Steps before and after one without a block that are searched for the next block."""

MOST_CHARS = 65_536
"""Most characters of a step, or of a query, whose words count."""

LONGEST_WORD = 64
"""Most characters of a word that count; a hash in hex fits."""

AT_ONCE = 1000
"""Steps indexed in one transaction."""

_MARKS = regex.compile("[\u0300-\u036f]+")
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
"""Scripts without spaces between words: each character counts as a word, and so does each pair of neighbours."""

_WORD = regex.compile(
    rf"(?P<unspaced>{_UNSPACED}+)|[[\p{{L}}\p{{N}}]--{_UNSPACED}][[\p{{L}}\p{{N}}\p{{M}}]--{_UNSPACED}]*",
    regex.VERSION1,
)
_ASCII_WORD = re.compile("[0-9a-z]+")


class Hit(NamedTuple):
    """A step whose blocks hold words of the query."""

    run: int
    seq: int
    text: str
    """The blocks as the model read them."""


def search(run: Run, query: str, most: int) -> list[Hit]:
    """Return blocks of this run, and of its owner's earlier runs, that hold words of `query`; at most `most`.

    Those with more different words come first, the newest of equals first. The query is data: none raises.
    """
    words = list(dict.fromkeys(_asked(query)))[:MOST_WORDS]
    if not words or most < 1:
        return []
    runs = {one.pk: one for one in (run, *_earlier(run))}
    for one, mark in _behind(runs):
        _index(one, mark)
    find = _found_by_postgresql if connection.vendor == "postgresql" else _found_by_sqlite
    hits = (Hit(run_id, seq, _findable(runs[run_id], seq)) for run_id, seq in find(list(runs), words, most))
    return [hit for hit in hits if hit.text]


def text_of(run: Run, seq: int) -> str:
    """Return the blocks of a live step as the model read them; empty if there are none."""
    machine = CATALOGUE[run.machine]
    return _text(machine, seq, _told(machine, _facts_of(run, seq)))


def places_beside(run: Run, seq: int) -> dict[str, str] | None:
    """Return, for a live step without a block, the paths of the nearest blocks, each with its kind; None without such a
    step.

    A compaction's step has its summary. If no machine of this version can read the step, there is none.
    """
    rows = Step.objects.filter(run=run, live=True)
    facts = _facts_of(run, seq)
    told = _told(CATALOGUE[run.machine], facts)
    if (facts != "[]" and not told) or not rows.filter(seq=seq).exists():
        return None
    if any(isinstance(fact, RangeSummarised) for fact in told):
        return {f"su:{seq}": SUMMARY}
    before = _first_block(run, rows.filter(seq__lt=seq).order_by("-seq"))
    return before | _first_block(run, rows.filter(seq__gt=seq).order_by("seq"))


def _first_block(run: Run, rows: QuerySet[Step]) -> dict[str, str]:
    """Return the path and the kind of the first block in the steps."""
    machine = CATALOGUE[run.machine]
    told = rows.exclude(facts_json="[]").values_list("seq", "facts_json")
    for seq, facts in told[:LOOKED_BESIDE]:
        for block in blocks_of(machine, _told(machine, facts), seq):
            if block.act is None:
                return {block.path: block.kind}
    return {}


def run_of_same_owner(run: Run, number: int) -> Run | None:
    """Return run `number` if `run` has the same owner, as the database has it now; None without an owner."""
    owner = Run.objects.filter(pk=run.pk, owner__isnull=False).values("owner_id")
    return Run.objects.filter(pk=number, owner_id__in=owner, machine__in=CATALOGUE).first()


def _findable(run: Run, seq: int) -> str:
    """Return the searchable text of a live step."""
    machine = CATALOGUE[run.machine]
    return _text(machine, seq, _without_infra(_told(machine, _facts_of(run, seq))))


def _facts_of(run: Run, seq: int) -> str:
    facts = Step.objects.filter(run=run, seq=seq, live=True).values_list("facts_json", flat=True).first()
    return facts or "[]"


def extract(text: str, query: str, most: int) -> str:
    """Return at most `most` characters of `text`, from shortly before the first word of `query` on."""
    if len(text) <= most:
        return text
    asked = set(_asked(query))
    places = (found.start() for found in _WORD.finditer(text) if not asked.isdisjoint(words_of(found[0])))
    begin = min(max(0, next(places, 0) - most // 4), len(text) - most)
    return f"{'…' if begin else ''}{text[begin : begin + most]}{'…' if begin + most < len(text) else ''}"


# --- words --------------------------------------------------------------------------------------------------------


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text as they are indexed: letters and digits, without case and diacritics."""
    folded = _folded(text)
    if folded.isascii():  # most texts, and several times as fast
        yield from (word[:LONGEST_WORD] for word in _ASCII_WORD.findall(folded))
        return
    for found in _WORD.finditer(folded):
        if found["unspaced"]:
            yield from found[0]
            yield from map("".join, pairwise(found[0]))
        else:
            yield found[0][:LONGEST_WORD]


def _asked(query: str) -> Iterator[str]:
    """Yield the words of a query: of a script without spaces the pairs, if there is more than one character."""
    for found in _WORD.finditer(_folded(query)):
        if found["unspaced"] and len(found[0]) > 1:
            yield from map("".join, pairwise(found[0]))
        else:
            yield found[0][:LONGEST_WORD]


def _folded(text: str) -> str:
    if text.isascii():
        return text[:MOST_CHARS].lower()
    plain = _MARKS.sub("", unicodedata.normalize("NFKD", text[:MOST_CHARS]).casefold())
    return unicodedata.normalize("NFC", plain)[:MOST_CHARS]


# --- indexing -----------------------------------------------------------------------------------------------------


def _earlier(run: Run) -> Iterable[Run]:
    """Return the newest of the owner's runs before this one; none without an owner."""
    if run.owner_id is None:
        return ()
    earlier = Run.objects.filter(owner_id=run.owner_id, pk__lt=run.pk, machine__in=CATALOGUE)
    return earlier.order_by("-pk").only("machine")[:EARLIER_RUNS]


def _behind(runs: dict[int, Run]) -> list[tuple[Run, int]]:
    """Return the runs with steps not indexed yet, each with the last indexed step."""
    newest = Remembered.objects.filter(run=OuterRef("pk")).order_by("-seq").values("seq")[:1]
    marks = Run.objects.filter(pk__in=runs).order_by("pk").values_list("pk", "head", Subquery(newest))
    return [(runs[run_id], mark or 0) for run_id, head, mark in marks if head > (mark or 0)]


def _index(run: Run, mark: int) -> None:
    """Index the steps after `mark`, some at a time.

    Steps are only ever added at the end, and their words never change: of two workers at once the second writes
    nothing.
    """
    machine = CATALOGUE[run.machine]
    rows = Step.objects.filter(run=run).order_by("seq").values_list("seq", "live", "facts_json")
    while found := list(rows.filter(seq__gt=mark)[:AT_ONCE]):
        mark = found[-1][0]
        texts = {seq: _indexed(machine, seq, facts) for seq, live, facts in found if live}
        new = [Remembered(run=run, seq=seq, text=text) for seq, text in texts.items() if text]
        if not texts.get(mark):
            new.append(Remembered(run=run, seq=mark))  # marks how far the index goes
        try:
            with transaction.atomic():
                Remembered.objects.bulk_create(new, ignore_conflicts=True)
        except IntegrityError:  # the run was deleted meanwhile
            return


def _indexed(machine: Machine, seq: int, facts: str) -> str:
    """Return the words of a step, each once, with a space between them; without those of the fences."""
    if facts == "[]":
        return ""
    text = _text(machine, seq, _without_infra(_told(machine, facts)))
    lines = (line for line in text.split("\n") if not line.startswith(FENCE))
    return " ".join(dict.fromkeys(words_of("\n".join(lines))))


def _told(machine: Machine, facts: str) -> list[Fact]:
    try:
        return list(machine.facts.validate_json(facts))
    except ValidationError:  # a fact of another version of the machine; its run shows the step as it is
        return []


def _without_infra(told: list[Fact]) -> list[Fact]:
    """Return the facts without those of the infra tools: a search must not find searches."""
    return [fact for fact in told if not str(getattr(fact, "tool", "")).startswith("react.")]


def _text(machine: Machine, seq: int, told: list[Fact]) -> str:
    """Return the blocks of a step as the model reads them."""
    return "\n\n".join(block.text for block in blocks_of(machine, told, seq) if block.act is None)


# --- finding ------------------------------------------------------------------------------------------------------

_SQLITE = """
SELECT remembered.run_id, remembered.seq
FROM (SELECT rowid AS id, count(*) AS held FROM ({words}) GROUP BY rowid) AS found
JOIN runs_remembered AS remembered ON remembered.id = found.id
JOIN runs_step AS step ON step.run_id = remembered.run_id AND step.seq = remembered.seq AND step.live
WHERE remembered.run_id IN ({runs})
ORDER BY found.held DESC, remembered.run_id DESC, remembered.seq DESC
LIMIT %s
"""
_ONE_WORD = "SELECT rowid FROM runs_remembered_words WHERE runs_remembered_words MATCH %s"

_POSTGRESQL = """
SELECT remembered.run_id, remembered.seq
FROM runs_remembered AS remembered
JOIN runs_step AS step ON step.run_id = remembered.run_id AND step.seq = remembered.seq AND step.live
WHERE remembered.words @@ %s::tsquery AND remembered.run_id = ANY(%s)
ORDER BY ts_rank(remembered.words, %s::tsquery) DESC, remembered.run_id DESC, remembered.seq DESC
LIMIT %s
"""
"""A word has no place in `words`, so the rank is the number of the query's words found."""


def _found_by_sqlite(runs: list[int], words: list[str], most: int) -> list[tuple[int, int]]:
    """Return the places of the words. Letters and digits are no syntax of FTS5 within quotes."""
    sql = _SQLITE.format(
        words=" UNION ALL ".join([_ONE_WORD] * len(words)), runs=", ".join(["%s"] * len(runs))
    )
    return _rows(sql, [*(f'"{word}"' for word in words), *runs, most])


def _found_by_postgresql(runs: list[int], words: list[str], most: int) -> list[tuple[int, int]]:
    """Return the places of the words. Letters and digits are no syntax of a tsquery within quotes."""
    asked = " | ".join(f"'{word}'" for word in words)
    return _rows(_POSTGRESQL, [asked, runs, asked, most])


def _rows(sql: str, values: list[Any]) -> list[tuple[int, int]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return [(run_id, seq) for run_id, seq in cursor.fetchall()]
