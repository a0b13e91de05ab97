"""The text of a page: what a reader sees, with whole links, in time that no page can stretch."""

from __future__ import annotations

import time

import pytest

from runs.adapters.html_pages import LONGEST_TITLE, HtmlText, read_html

URL = "https://page.test/tides/"


def text_of(page: str) -> str:
    return read_html(page, URL).text


def test_a_page_reads_as_headings_paragraphs_lists_cells_and_links() -> None:
    read = read_html(
        "<!doctype html><head><title>A\n page &amp; more</title><style>p{}</style></head><body><!-- <p>no</p> -->"
        "<h2>Moon</h2><p>It   pulls&nbsp;the\n<b>sea</b>.</p><ul><li>high</li><li>low</li></ul>"
        "<table><tr><th>h</th><th>m</th></tr><tr><td>1</td><td>2</td></tr></table>"
        "<a href='https://x.test/a'>more</a> 3 < 4</body>",
        URL,
    )
    assert (read.title, read.cut) == ("A page & more", False)
    assert read.text == (
        "## Moon\n\nIt pulls the **sea**.\n\n- high\n- low\n\n| h | m |\n| --- | --- |\n| 1 | 2 |\n\n"
        "[more](https://x.test/a) 3 < 4"
    )


def test_what_a_browser_hides_is_left_out_and_menus_and_forms_stay() -> None:
    page = (
        "<nav><a href='/moon'>Moon</a></nav><p style='display:none'>a</p><p hidden>b</p><script>c</script>"
        "<template>d</template><noscript>e</noscript><form><button>Send</button></form>"
    )
    assert text_of(page) == "[Moon](https://page.test/moon)\n\nSend"


@pytest.mark.parametrize(
    "href", ["javascript:alert(1)", " JaVaScript:alert(1)", "data:text/html,x", "vbscript:x"]
)
def test_a_link_that_is_no_page_is_shown_as_its_words(href: str) -> None:
    assert text_of(f'<p>a <a href="{href}">go</a></p>') == "a go"


@pytest.mark.parametrize(
    ("href", "whole"),
    [
        ("low", "https://page.test/tides/low"),
        ("/low", "https://page.test/low"),
        ("//o.test/low", "https://o.test/low"),
    ],
)
def test_a_link_is_whole(href: str, whole: str) -> None:
    assert text_of(f'<a href="{href}">go</a>') == f"[go]({whole})"


def test_a_page_that_begins_with_a_rule_keeps_it_and_has_no_title() -> None:
    assert read_html("<hr><p>title: x</p><hr>", URL) == HtmlText("", "---\n\ntitle: x\n\n---", False)


def test_a_long_title_is_cut() -> None:
    assert len(read_html(f"<title>{'x ' * 5_000}</title>", URL).title) == LONGEST_TITLE


def test_what_lies_too_deep_is_said() -> None:
    assert read_html(f"<p>top</p>{'<div>' * 5_000}deep", URL) == HtmlText("", "top", True)


HOSTILE = {
    "comments that do not end": "<!--" * 200_000,
    "tags that do not end": "<a " * 300_000,
    "openings alone": "<" * 900_000,
    "deep nesting": "<div>" * 200_000,
    "nested quotes": "<blockquote>" * 80_000,
    "nested tables": "<table><tr><td>" * 60_000,
    "a wide table": "<table><tr>" + "<td>x" * 100_000,
    "a huge span": "<table><tr><td rowspan=1000000 colspan=1000000>x",
    "links": "<a href=x>y</a>" * 60_000,
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
    read_html(HOSTILE[kind], URL)
    assert time.thread_time() - begun < 5
