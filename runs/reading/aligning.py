"""Align two sequences: equal elements, replaced ones, and those of one side only.

The work grows with the length, never with its square: equal ends and elements that occur once on both sides are found
first, and the rest is aligned in windows.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Pair = tuple[int | None, int | None]
"""Places in the left and in the right sequence; None on the side without one."""

WINDOW = 160
"""Elements of each side aligned at once."""

EQUAL, ALIKE, IN_PLACE = 60, 12, 2
"""The worth of a pair; a forbidden one is worth nothing."""

_UP, _BACK, _BOTH = 0, 1, 2


class Mark(NamedTuple):
    """The compared part of an element: equal ones are the same, alike ones may differ, others of a place may swap."""

    same: int
    alike: str
    place: str


def align(left: Sequence[Mark], right: Sequence[Mark]) -> list[Pair]:
    """Return every element of both, in order, once: in pairs if two belong together."""
    begin = _common(zip(left, right, strict=False))
    most = min(len(left), len(right)) - begin
    tail = min(most, _common(zip(reversed(left), reversed(right), strict=False)))
    left_end, right_end = len(left) - tail, len(right) - tail
    pairs: list[Pair] = [(place, place) for place in range(begin)]
    i = j = begin
    for at, beside in [*_anchors(left, right, begin, left_end, right_end), (left_end, right_end)]:
        pairs += _between(left, right, (i, at), (j, beside))
        if at < left_end:
            pairs.append((at, beside))
        i, j = at + 1, beside + 1
    pairs += [(left_end + place, right_end + place) for place in range(tail)]
    return pairs


def _common(pairs: Iterable[tuple[Mark, Mark]]) -> int:
    """Return how many pairs at the beginning are the same."""
    count = 0
    for one, other in pairs:
        if one.same != other.same:
            break
        count += 1
    return count


def _anchors(
    left: Sequence[Mark], right: Sequence[Mark], begin: int, left_end: int, right_end: int
) -> list[tuple[int, int]]:
    """Return elements that each side has exactly once, as many as have the same order in both."""
    once = Counter(mark.same for mark in left[begin:left_end])
    places = {right[place].same: place for place in range(begin, right_end)}
    often = Counter(mark.same for mark in right[begin:right_end])
    found = [
        (place, places[mark.same])
        for place, mark in enumerate(left[begin:left_end], begin)
        if once[mark.same] == 1 and often.get(mark.same) == 1
    ]
    return _rising(found)


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest part of `pairs` whose second numbers rise as the first ones do."""
    ends: list[int] = []
    holders: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        at = bisect_left(ends, place)
        before.append(holders[at - 1] if at else -1)
        ends[at : at + 1] = [place]
        holders[at : at + 1] = [number]
    chain: list[tuple[int, int]] = []
    number = holders[-1] if holders else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


def _between(
    left: Sequence[Mark], right: Sequence[Mark], lefts: tuple[int, int], rights: tuple[int, int]
) -> Iterator[Pair]:
    """Yield the pairs between two anchors; a long stretch window after window, keeping the first half of each."""
    (i, left_end), (j, right_end) = lefts, rights
    while i < left_end and j < right_end:
        a, b = min(left_end, i + WINDOW), min(right_end, j + WINDOW)
        last = a == left_end and b == right_end
        stop_left, stop_right = (a, b) if last else (i + WINDOW // 2, j + WINDOW // 2)
        from_i, from_j = i, j
        for one, other in _window(left[i:a], right[j:b]):
            at = None if one is None else from_i + one
            beside = None if other is None else from_j + other
            if (at is not None and at >= stop_left) or (beside is not None and beside >= stop_right):
                break
            yield at, beside
            i, j = (i if at is None else at + 1), (j if beside is None else beside + 1)
    yield from ((at, None) for at in range(i, left_end))
    yield from ((None, beside) for beside in range(j, right_end))


def _window(left: Sequence[Mark], right: Sequence[Mark]) -> list[Pair]:
    """Return the most valuable pairing; of several the one with the earliest pairs."""
    ways = _ways(left[::-1], right[::-1])
    i = j = 0
    pairs: list[Pair] = []
    while i < len(left) and j < len(right):
        match ways[len(left) - i - 1][len(right) - j]:
            case 2:
                pairs.append((i, j))
                i, j = i + 1, j + 1
            case 1:
                pairs.append((None, j))
                j += 1
            case _:
                pairs.append((i, None))
                i += 1
    pairs += [(place, None) for place in range(i, len(left))]
    pairs += [(None, place) for place in range(j, len(right))]
    return pairs


def _ways(left: Sequence[Mark], right: Sequence[Mark]) -> list[bytearray]:
    """Return, for each two beginnings, how the last elements of the best pairing are placed."""
    above = [0] * (len(right) + 1)
    ways = []
    for one in left:
        row, way = [0], bytearray(len(right) + 1)
        back = 0
        for number, other in enumerate(right, 1):
            best, chosen = above[number], _UP
            if back > best:
                best, chosen = back, _BACK
            worth = _worth(one, other)
            if worth and above[number - 1] + worth >= best:
                best, chosen = above[number - 1] + worth, _BOTH
            way[number] = chosen
            row.append(best)
            back = best
        ways.append(way)
        above = row
    return ways


def _worth(one: Mark, other: Mark) -> int:
    if one.place != other.place:
        return 0
    if one.same == other.same:
        return EQUAL
    return ALIKE if one.alike == other.alike else IN_PLACE


# --- words ------------------------------------------------------------------------------------------------------

WORDS = 4000
"""Words and signs of a text compared one by one."""

EDITS = 240
"""Most changed words of two versions of one text; beyond, they count as two texts."""

_WORD = re.compile(r"\s+|\w+|[^\w\s]")


class Piece(NamedTuple):
    """A piece of a text, and whether the other text has it too."""

    text: str
    changed: bool


def differing_words(left: str, right: str) -> tuple[list[Piece], list[Piece]]:
    """Return both texts in pieces, with those marked that the other one lacks; unmarked if they have little in
    common."""
    ours, theirs = _WORD.findall(left), _WORD.findall(right)
    ends = _ends(ours, theirs)
    if len(ours) > WORDS or len(theirs) > WORDS:
        kept = None
    else:
        kept = _kept(ours[ends[0] : len(ours) - ends[1]], theirs[ends[0] : len(theirs) - ends[1]])
    if kept is None:
        kept = []
    blocks = [(0, 0, ends[0])] if ends[0] else []
    blocks += [(i + ends[0], j + ends[0], size) for i, j, size in kept]
    if ends[1]:
        blocks.append((len(ours) - ends[1], len(theirs) - ends[1], ends[1]))
    common = sum(len("".join(ours[i : i + size]).strip()) for i, _, size in blocks)
    if common * 4 < max(len(left), len(right)):
        return [Piece(left, False)], [Piece(right, False)]
    blocks = _worth_keeping(ours, blocks)
    return _pieces(ours, [(i, size) for i, _, size in blocks]), _pieces(
        theirs, [(j, size) for _, j, size in blocks]
    )


def _ends(ours: list[str], theirs: list[str]) -> tuple[int, int]:
    """Return how many words both begin with, and end with."""
    most = min(len(ours), len(theirs))
    begin = next((place for place in range(most) if ours[place] != theirs[place]), most)
    end = next(
        (place for place in range(most - begin) if ours[-1 - place] != theirs[-1 - place]), most - begin
    )
    return begin, end


def _kept(ours: list[str], theirs: list[str]) -> list[tuple[int, int, int]] | None:
    """Return the stretches that the shortest edit from one to the other keeps; None if it is longer than EDITS."""
    reached = {1: 0}
    trail = []
    for edits in range(min(EDITS, len(ours) + len(theirs)) + 1):
        trail.append(dict(reached))
        for line in range(-edits, edits + 1, 2):
            down = line == -edits or (line != edits and reached.get(line - 1, -1) < reached.get(line + 1, -1))
            x = reached[line + 1] if down else reached[line - 1] + 1
            y = x - line
            while x < len(ours) and y < len(theirs) and ours[x] == theirs[y]:
                x, y = x + 1, y + 1
            reached[line] = x
            if x >= len(ours) and y >= len(theirs):
                return _stretches(trail, x, y)
    return None


def _stretches(trail: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int, int]]:
    found = []
    for edits in range(len(trail) - 1, -1, -1):
        reached, line = trail[edits], x - y
        down = line == -edits or (line != edits and reached.get(line - 1, -1) < reached.get(line + 1, -1))
        if edits == 0:
            from_x, from_y, begin = 0, 0, 0
        else:
            from_line = line + 1 if down else line - 1
            from_x = reached[from_line]
            from_y = from_x - from_line
            begin = from_x if down else from_x + 1
        if x > begin:
            found.append((begin, begin - line, x - begin))
        x, y = from_x, from_y
    return found[::-1]


def _worth_keeping(ours: list[str], blocks: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the blocks without blanks and lone signs shared by chance: marks in one piece read better."""
    joined: list[tuple[int, int, int]] = []
    for i, j, size in blocks:
        if joined and (joined[-1][0] + joined[-1][2], joined[-1][1] + joined[-1][2]) == (i, j):
            joined[-1] = (joined[-1][0], joined[-1][1], joined[-1][2] + size)
        else:
            joined.append((i, j, size))
    last = len(joined) - 1
    return [
        (i, j, size)
        for number, (i, j, size) in enumerate(joined)
        if number in (0, last) or any(word.isalnum() for word in ours[i : i + size])
    ]


def _pieces(words: list[str], kept: list[tuple[int, int]]) -> list[Piece]:
    pieces = []
    at = 0
    for begin, size in kept:
        pieces.append(Piece("".join(words[at:begin]), True))
        pieces.append(Piece("".join(words[begin : begin + size]), False))
        at = begin + size
    pieces.append(Piece("".join(words[at:]), True))
    return [piece for piece in pieces if piece.text]
