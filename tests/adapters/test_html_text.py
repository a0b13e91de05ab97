"""The text of a page, in time that grows with its length."""

from __future__ import annotations

import time

import pytest

from runs.adapters.html_text import text_of


def test_a_page_reads_as_headings_paragraphs_lists_cells_and_links() -> None:
    title, text = text_of(
        "<!doctype html><head><title>A\n page</title><style>p{}</style></head><body><!-- <p>hidden</p> -->"
        "<h2>Moon</h2><p>It   pulls&nbsp;the\n<b>sea</b>.<br>Twice.</p><ul><li>high</li><li>low</li></ul>"
        "<table><tr><td>1</td><td>2</td></tr></table><a href='https://x.test/a b'>more</a> 3 < 4</body>"
    )
    assert title == "A page"
    assert text == (
        "## Moon\n\nIt pulls the sea.\nTwice.\n\n- high\n\n- low\n\n| 1 | 2\n\n"
        "more (https://x.test/a%20b) 3 < 4"
    )


def test_a_link_that_is_a_script_is_not_shown() -> None:
    assert text_of('<a href="javascript:alert(1)">go</a>')[1] == "go"


HOSTILE = {
    "comments that do not end": "<!--" * 200_000,
    "tags that do not end": "<a " * 300_000,
    "openings alone": "<" * 900_000,
    "deep nesting": "<div>" * 200_000,
    "scripts": "<script>" * 100_000,
    "attributes": "<a " + "href=" * 200_000 + ">",
    "blanks": " \n" * 450_000,
    "entities": "&" * 900_000,
    "titles": "<title>" * 100_000,
    "closing marks": "<p" + "<" * 500_000 + ">",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_page_holds_the_worker(kind: str) -> None:
    begun = time.thread_time()  # of its own: the cores may be busy
    text_of(HOSTILE[kind])
    assert time.thread_time() - begun < 5
