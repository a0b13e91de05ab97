"""The content of an artifact on a page: bounded, harmless, and in time."""

from __future__ import annotations

import struct
import time
from hashlib import sha256

import pytest

from runs.adapters.media import media_type_of
from runs.reading.previews import (
    MOST_BYTES,
    MOST_CELL,
    MOST_COLUMNS,
    MOST_ROWS,
    MOST_TEXT,
    Preview,
    pixels_of,
    preview_of,
)
from tests.artifacts import png
from tests.stack import A_BUSY_SECOND


def shown(name: str, content: bytes | str) -> Preview:
    if isinstance(content, str):
        content = content.encode()
    return preview_of(content, media_type_of(name, content))


def test_a_text_is_shown_with_signs_for_what_nobody_sees() -> None:
    found = shown("a.txt", "a\u202eb\x1b[31m\n\tc")
    assert (found.form, found.text, found.notes) == ("text", "a⟨U+202E⟩b␛[31m\n\tc", ())


def test_an_empty_content_is_said_to_be_empty() -> None:
    assert shown("a.json", "").form == "nothing"


def test_a_long_text_is_cut_and_says_so() -> None:
    found = shown("a.txt", "x" * 5_000_000)
    assert (len(found.text), found.notes) == (MOST_TEXT, ("The first 60,000 of 5,000,000 characters.",))


def test_html_and_svg_are_shown_as_their_source() -> None:
    for name in ("a.html", "a.svg"):
        found = shown(name, "<svg onload=alert(1)>")
        assert (found.form, found.text) == ("text", "<svg onload=alert(1)>")
        assert "source" in found.notes[0]


# --- JSON -----------------------------------------------------------------------------------------------------------


def test_json_is_laid_out_with_every_token_as_it_is_written() -> None:
    found = shown("a.json", '{"a":[1, 2.50,{}],"a":1e400,"b":"x\\u202ey \u202e {,","c":[]}')
    assert found.text == (
        '{\n  "a": [\n    1,\n    2.50,\n    {}\n  ],\n  "a": 1e400,\n'
        '  "b": "x\\u202ey ⟨U+202E⟩ {,",\n  "c": []\n}'
    )
    assert found.notes == ()


@pytest.mark.parametrize(
    "text", ['{"a":', "{a b}", '{"a": "', "[1,]", "\x01{}", "[" * 100, "9" * 5_000, '"\\']
)
def test_what_is_no_json_is_shown_as_it_stands(text: str) -> None:
    found = shown("a.json", text)
    assert (found.form, found.notes[0]) == ("text", "Invalid JSON, shown unformatted.")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000 + "]" * 10_000,
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        "[" * 40 + ",".join(["0"] * 400_000) + "]" * 40,
        json_line := '"' + "x" * 900_000 + '"',
        "[" + ",".join(f'"{number}"' for number in range(100_000)) + "]",
    ],
    ids=["deep arrays", "deep objects", "deep and wide", "one string", "wide"],
)
def test_deep_and_wide_json_is_bounded_in_size_and_time(text: str) -> None:
    started = time.thread_time()  # of its own: the cores may be busy
    found = shown("a.json", text)
    assert time.thread_time() - started < A_BUSY_SECOND
    assert found.form == "text"
    assert 0 < len(found.text) <= MOST_TEXT
    assert found.notes


# --- tables ---------------------------------------------------------------------------------------------------------


def test_a_csv_is_a_table() -> None:
    found = shown("a.csv", 'place,high\n"Brest, FR",6.1\nCuxhaven\n\n')
    assert found.rows == (("place", "high"), ("Brest, FR", "6.1"), ("Cuxhaven", ""))
    assert found.notes == ()


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", "a;b\n1;2"), ("a.tsv", "a\tb\n1\t2"), ("a.csv", "a|b\n1|2")]
)
def test_its_columns_are_parted_as_they_are(name: str, text: str) -> None:
    assert shown(name, text).rows == (("a", "b"), ("1", "2"))


def test_a_large_table_is_cut_and_says_so() -> None:
    found = shown("a.csv", "\n".join(",".join(["1"] * 60) for _ in range(2_000)))
    assert (len(found.rows), len(found.rows[0])) == (MOST_ROWS, MOST_COLUMNS)
    assert found.notes == ("The first 200 rows.", "The first 30 columns.")


def test_huge_cells_and_quotes_that_never_close_are_cut() -> None:
    for text in (f"a,{'x' * 900_000}\n1,2", 'a,"' + "x\n" * 400_000, '"' * 900_001, "," * 900_000):
        found = shown("a.csv", text)
        assert found.form in ("table", "text")
        assert all(len(cell) <= MOST_CELL + 1 for row in found.rows for cell in row)
        assert len(found.text) <= MOST_TEXT


def test_formulas_are_named_and_numbers_are_none() -> None:
    for cell in ("=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "=HYPERLINK()"):
        assert "spreadsheet" in shown("a.csv", f'a,b\n"{cell}",1').notes[-1]
    assert shown("a.csv", "a,b\n-1.5,+3\n-4 %,1").notes == ()


def test_cells_show_what_nobody_sees() -> None:
    assert shown("a.csv", "a\u202e,b").rows == (("a⟨U+202E⟩", "b"),)


# --- Markdown, pictures, bytes --------------------------------------------------------------------------------------


def test_markdown_has_no_pictures_from_elsewhere_and_no_html() -> None:
    found = shown("a.md", "# Hi\n\n![x](https://evil.example/x.png)\n\n<script>alert(1)</script>")
    assert found.form == "prose"
    assert found.html is not None
    assert "<img" not in found.html and "<script" not in found.html
    assert "&lt;script&gt;" in found.html


def test_a_picture_is_shown_with_its_size() -> None:
    found = shown("a.png", png(30, 20))
    assert (found.form, found.pixels) == ("picture", (30, 20))


JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x14\x00\x1e\x03" + bytes(20)
GIF = b"GIF89a" + struct.pack("<HH", 30, 20) + bytes(3)
WEBP_LOSSY = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 30, 20)
WEBP_LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 29 | 19 << 14) + bytes(8)
WEBP_MORE = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x1d\0\0\x13\0\0"


@pytest.mark.parametrize("content", [JPEG, GIF, WEBP_LOSSY, WEBP_LOSSLESS, WEBP_MORE, png(30, 20)])
def test_every_picture_states_its_size(content: bytes) -> None:
    assert pixels_of(content, media_type_of("a", content)) == (30, 20)


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n<script>alert(1)</script>" + bytes(40),
        b"GIF89a",
        b"GIF89a\0\0\0\0\0\0\0<script>",
        b"\xff\xd8\xff<script>",
        b"\xff\xd8\xff\xe0\x00\x00",
        b"\xff\xd8\xff" + b"\xff" * 100_000,
        b"RIFF\0\0\0\0WEBP<svg onload=alert(1)>" + bytes(20),
        png(0, 20),
    ],
)
def test_what_only_begins_like_a_picture_is_none(content: bytes) -> None:
    found = shown("a.png", content)
    assert (found.form, found.notes[0][:26]) == ("bytes", "Not a picture that can be ")


def test_a_picture_that_would_fill_the_memory_is_not_shown() -> None:
    found = shown("a.png", png(100_000, 100_000))
    assert (found.form, found.notes) == (
        "nothing",
        ("A picture of 100,000 × 100,000 pixels is too large to show here.",),
    )


@pytest.mark.parametrize("content", [b"a\x00b", b"\xff\xfe<script>", sha256(b"x").digest() * 100])
def test_what_is_no_text_is_shown_by_its_bytes(content: bytes) -> None:
    found = shown("a.txt", content)
    assert found.form == "bytes"
    assert found.text.startswith(f"0000  {content[:1].hex()}")
    assert len(found.text.splitlines()) <= MOST_BYTES // 16
    assert found.text.isprintable() or "\n" in found.text
