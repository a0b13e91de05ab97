"""The content of an artifact on a page: bounded, as text or as one of a few safe forms, never as HTML.

Whatever a file claims to be, its characters reach the page escaped and visible. Only the four raster types are shown as
pictures, and the page fetches those from an answer of their own.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from django.utils.safestring import SafeString

from runs.adapters.media import RASTER
from runs.reading import markdown
from runs.reading.hidden_text import visible

MOST_TEXT = 60_000
"""Characters of a text on a page."""
MOST_ROWS = 200
MOST_COLUMNS = 30
MOST_CELL = 300
MOST_BYTES = 512
"""Bytes shown of binary content."""
MOST_PIXELS = 30_000_000
DEEPEST = 30
"""Levels of JSON that are indented; deeper ones share the last level."""

Form = Literal["text", "table", "prose", "picture", "bytes", "nothing"]


@dataclass(frozen=True)
class Preview:
    """The preview of a content. Of `text`, `html`, `rows` and `pixels` only those of its form are filled."""

    form: Form
    text: str = ""
    html: SafeString | None = None
    rows: tuple[tuple[str, ...], ...] = ()
    pixels: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()


def preview_of(content: bytes, media_type: str) -> Preview:
    """Return the preview of a content of this type."""
    if not content:
        return Preview("nothing", notes=("Empty.",))
    if media_type in RASTER:
        return _picture(content, media_type)
    if not media_type.startswith(("text/", "application/json", "application/xml", "image/svg+xml")):
        return _bytes(content)
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    match media_type:
        case "application/json":
            return _json(text)
        case "text/csv" | "text/tab-separated-values":
            return _table(text, media_type)
        case "text/markdown":
            return Preview("prose", text=_cut(text)[0], html=markdown.render(text))
        case "text/html" | "image/svg+xml":
            return _text(text, "Shown as source.")
    return _text(text)


def _text(text: str, *notes: str) -> Preview:
    shown, cut = _cut(text)
    return Preview("text", text=shown, notes=(*notes, *cut))


def _cut(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the shown beginning, with a note if there is more."""
    if len(text) <= MOST_TEXT:
        return visible(text), ()
    return visible(text[:MOST_TEXT]), (f"The first {MOST_TEXT:,} of {len(text):,} characters.",)


# --- JSON -----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+)', re.DOTALL)


def _json(text: str) -> Preview:
    notes: list[str] = []
    try:
        json.loads(text)
    except RecursionError:
        notes.append("Nested too deeply to format.")
    except ValueError:
        return _text(text, "Invalid JSON, shown unformatted.")
    laid_out, whole = _laid_out(text)
    if not whole:
        notes.append(f"The first {len(laid_out):,} characters, laid out in lines.")
    return Preview("text", text=visible(laid_out), notes=tuple(notes))


def _laid_out(text: str) -> tuple[str, bool]:
    """Return JSON in lines, every token as it is written (numbers, double names), and whether that is all of it.

    Token by token: nothing is built, so neither depth nor width can cost more than the shown part.
    """
    pieces: list[str] = []
    place = length = depth = 0
    opened = False
    text = text.rstrip()
    while place < len(text) and length < MOST_TEXT:
        found = _TOKEN.match(text, place)
        if found is None:
            break
        token, place = found[1], found.end()
        piece = _piece(token, depth, opened=opened)
        depth += (token in "[{") - (token in "]}")
        opened = token in "[{"
        pieces.append(piece[: MOST_TEXT - length])
        length += len(piece)
    return "".join(pieces), place >= len(text) and length <= MOST_TEXT


def _piece(token: str, depth: int, *, opened: bool) -> str:
    """Return a token with the text before and after it; a bracket that closes at once stays on its line."""
    match token:
        case "]" | "}":
            return token if opened else f"{_line(depth - 1)}{token}"
        case ",":
            return f",{_line(depth)}"
        case ":":
            return ": "
    return f"{_line(depth)}{token}" if opened else token


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, DEEPEST)


# --- tables ---------------------------------------------------------------------------------------------------------

_FORMULA = re.compile(r"[=@\t\r]|[+\-](?![0-9.,]*\s*%?\s*$)")


def _table(text: str, media_type: str) -> Preview:
    sign = "\t" if media_type == "text/tab-separated-values" else _delimiter(text)
    # The first lines are enough; a quote that never closes must not read on for ever.
    head = text[: MOST_TEXT * 2]
    try:
        lines = list(islice(csv.reader(io.StringIO(head), delimiter=sign), MOST_ROWS + 1))
    except csv.Error:
        return _text(text, "Not readable as a table.")
    shown = tuple(tuple(map(_cell, row[:MOST_COLUMNS])) for row in lines[:MOST_ROWS] if row)
    if not shown:
        return _text(text)
    notes = []
    if len(lines) > MOST_ROWS or len(head) < len(text):
        notes.append(f"The first {len(shown)} rows.")
    if any(len(row) > MOST_COLUMNS for row in lines):
        notes.append(f"The first {MOST_COLUMNS} columns.")
    if any(len(cell) > MOST_CELL for row in lines for cell in row[:MOST_COLUMNS]):
        notes.append(f"Long cells are cut at {MOST_CELL} characters.")
    if any(_FORMULA.match(cell) for row in lines for cell in row):
        notes.append(
            "Some cells are formulas in a spreadsheet program. Check them before you open the file there."
        )
    width = max(map(len, shown))
    return Preview("table", rows=tuple(row + ("",) * (width - len(row)) for row in shown), notes=tuple(notes))


def _delimiter(text: str) -> str:
    first = text[:2_000].split("\n", 1)[0]
    return max(",;\t|", key=first.count)


def _cell(text: str) -> str:
    return visible(text if len(text) <= MOST_CELL else f"{text[:MOST_CELL]}…")


# --- binary content -------------------------------------------------------------------------------------------------


def _bytes(content: bytes) -> Preview:
    shown = content[:MOST_BYTES]
    lines = [_hex_line(place, shown[place : place + 16]) for place in range(0, len(shown), 16)]
    note = (
        f"Binary file. The first {len(shown):,} of {len(content):,} bytes."
        if shown != content
        else "Binary file."
    )
    return Preview("bytes", text="\n".join(lines), notes=(note,))


def _hex_line(place: int, row: bytes) -> str:
    signs = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in row)
    return f"{place:04x}  {row.hex(' '):<47}  {signs}"


def _picture(content: bytes, media_type: str) -> Preview:
    pixels = pixels_of(content, media_type)
    if pixels is None:
        note = "Not a picture that can be shown."
        return Preview("bytes", text=_bytes(content).text, notes=(note,))
    width, height = pixels
    if width * height > MOST_PIXELS:
        return Preview(
            "nothing", notes=(f"A picture of {width:,} × {height:,} pixels is too large to show here.",)
        )
    return Preview("picture", pixels=pixels, notes=(f"{width:,} × {height:,} pixels",))


def pixels_of(content: bytes, media_type: str) -> tuple[int, int] | None:
    """Return the width and height stated in a picture's head; None if it has no such head."""
    size: tuple[int, int] | None = None
    match media_type:
        case "image/png" if content[8:16] == b"\x00\x00\x00\rIHDR" and len(content) >= 33:
            size = _number(content[16:20]), _number(content[20:24])
        case "image/gif" if len(content) >= 13:
            size = int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")
        case "image/webp" if len(content) >= 30:
            size = _webp_size(content)
        case "image/jpeg":
            size = _jpeg_size(content)
    return size if size and min(size) > 0 else None


def _number(piece: bytes) -> int:
    return int.from_bytes(piece, "big")


def _webp_size(content: bytes) -> tuple[int, int] | None:
    match content[12:16]:
        case b"VP8X":
            return (
                1 + int.from_bytes(content[24:27], "little"),
                1 + int.from_bytes(content[27:30], "little"),
            )
        case b"VP8L":
            bits = int.from_bytes(content[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return (
                int.from_bytes(content[26:28], "little") & 0x3FFF,
                int.from_bytes(content[28:30], "little") & 0x3FFF,
            )
    return None


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    """Return the size in the frame's head, which follows segments of stated length."""
    place = 2
    while place + 9 <= len(content) and content[place] == 0xFF:
        mark, length = content[place + 1], _number(content[place + 2 : place + 4])
        if mark in range(0xC0, 0xD0) and mark not in (0xC4, 0xC8, 0xCC):
            return _number(content[place + 7 : place + 9]), _number(content[place + 5 : place + 7])
        if length < 2 or mark == 0xD9:
            return None
        place += 2 + length
    return None
