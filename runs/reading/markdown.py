"""A model's or a person's text as HTML: Markdown by an allow-list, in bounded time, without anything from elsewhere.

Three barriers, one behind the other. The parser knows no raw HTML, no images and three kinds of addresses. A sanitiser
passes only the same few elements. The pages' content security policy stops the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import nh3
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import table as read_table
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from runs.engine.sources import Source
from runs.reading.hidden_text import visible

MOST = 100_000
"""Characters up to which a text is read as Markdown."""

EFFORT = 200_000
"""Largest effort for one text, roughly in millionths of a second of a usual machine."""

CELLS = 3_000
"""Most cells of a table: a wide head makes every short line below it as wide."""

NESTING = 20

_CITATION = re.compile(r"\[\[S:([1-9][0-9]{0,3})\]\]")

_WORDS = (
    "cite",
    "p",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "li",
    "pre",
    "code",
    "blockquote",
    "em",
    "strong",
    "s",
    "a",
)
TAGS = frozenset((*_WORDS, "hr", "br", "table", "thead", "tbody", "tr", "th", "td", "div"))
SCHEMES = frozenset({"http", "https", "mailto"})
ATTRIBUTES = {"a": {"href", "title"}, "cite": {"title"}, "ol": {"start"}}
CELL = {f"text-align:{side}": f"prose__cell--{side}" for side in ("left", "center", "right")}
FIXED = {"a": {"class": "prose__link"}, "div": {"class": "prose__table", "tabindex": "0"}}

_SANITISER = nh3.Cleaner(
    tags=set(TAGS),
    attributes=ATTRIBUTES,
    allowed_classes={"th": set(CELL.values()), "td": set(CELL.values())},
    set_tag_attribute_values=FIXED,
    url_schemes=set(SCHEMES),
    url_relative="deny",
    link_rel="noopener noreferrer nofollow",
)

_ADDRESS = re.compile(r"(https?://|mailto:)[^\s]", re.IGNORECASE)
_RULE = re.compile(r"[-|:>\s]*")  # the line under a table's head, perhaps in a quotation

_LINE, _PLACE, _STEP, _LINK = 30, 10, 1, 60
"""The effort of a line, a place in it, a place passed again, and an address."""


class TooEntangled(Exception):
    """The text takes too long to read as Markdown."""


def render(text: str, sources: Sequence[Source] = ()) -> SafeString:
    """Return `text` as HTML; a too long or too entangled one as plain text, with a note.

    `[[S:3]]` becomes a link to the source of that number, or its name where it is a document; where there is none it
    stays as it was written.
    """
    if len(text) > MOST:
        return _plain(text, f"it has more than {MOST:,} characters")
    numbers = {int(number) for number in _CITATION.findall(text)} if sources else set()
    return _rendered(text, tuple(source for source in sources if source.number in numbers))


@lru_cache(maxsize=128)
def _rendered(text: str, cited: tuple[Source, ...]) -> SafeString:
    shown = visible(text)
    try:
        html = _parser(cited).render(shown)
    except (TooEntangled, RecursionError, IndexError, ValueError):
        # The last two: a text that breaks the parser must not break the page.
        return _plain(shown, "its formatting is too entangled")
    return mark_safe(visible(_SANITISER.clean(html)))  # once more: `&#x202e;` is a character by now


def _plain(text: str, why: str) -> SafeString:
    return format_html(
        '<p class="prose__note">Shown as plain text: {}.</p><pre class="prose__plain" tabindex="0">{}</pre>',
        why,
        visible(text),
    )


# --- the parser -------------------------------------------------------------------------------------------------


class _Effort:
    """A counter of the effort of one text."""

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, amount: int) -> None:
        self.spent += amount
        if self.spent > EFFORT:
            raise TooEntangled


class _CountedInline(ParserInline):
    """An inline parser that counts passed places, too: a row of open brackets passes each of them from each."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        super().__init__()
        self._spend = spend

    def skipToken(self, state: StateInline) -> None:
        self._spend(_STEP)
        super().skipToken(state)


def _parser(cited: tuple[Source, ...] = ()) -> MarkdownIt:
    """Return a parser for one text: it counts, and knows the sources that the text may cite."""
    spend = _Effort().spend
    reader = MarkdownIt("js-default", {"html": False, "breaks": True, "maxNesting": NESTING})
    reader.inline = _CountedInline(spend)
    reader.validateLink = partial(_is_address, spend)  # type: ignore[method-assign]
    chains = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    reader.block.ruler.before("table", "effort", partial(_count_block, spend), chains)  # type: ignore[arg-type]
    reader.inline.ruler.before("text", "effort", partial(_count_inline, spend))
    reader.block.ruler.at("table", partial(_small_table, spend), {"alt": ["paragraph", "reference"]})
    reader.inline.ruler.before("link", "citation", partial(_citation, {one.number: one for one in cited}))
    reader.core.ruler.push("nowhere", _unlink_empty)
    reader.core.ruler.push("page", _fit_page)
    reader.add_render_rule("table_open", _table_open)
    reader.add_render_rule("table_close", _table_close)
    return reader


def _is_address(spend: Callable[[int], None], url: str) -> bool:
    """Return True if a link may lead there; else its source stays as text."""
    spend(_LINK)
    return _ADDRESS.match(url) is not None and "href=" in _SANITISER.clean(
        format_html('<a href="{}"></a>', url)
    )


def _unlink_empty(state: StateCore) -> None:
    """Keep `[x]()` as text: it skips the check of addresses."""
    for token in state.tokens:
        nowhere = False
        for child in token.children or ():
            if child.type == "link_open":
                nowhere = not child.attrGet("href")
            if child.type in ("link_open", "link_close") and nowhere:
                child.hidden = True


def _citation(cited: Mapping[int, Source], state: StateInline, *silent: bool) -> bool:
    """Turn `[[S:3]]` into a link, if there is such a source."""
    found = _CITATION.match(state.src, state.pos) if state.src.startswith("[[S:", state.pos) else None
    source = cited.get(int(found[1])) if found else None
    if found is None or source is None or state.linkLevel or found.end() > state.posMax:
        return False
    if not any(silent):
        title = visible(" ".join((source.title or source.url).split()))
        shown: dict[str, str | int | float] = {"title": title, "data-cited": ""}
        state.push("cite_open", "cite", 1).attrs = {} if source.link else dict(shown)
        if source.link:
            state.push("link_open", "a", 1).attrs = shown | {"href": state.md.normalizeLink(source.link)}
        state.push("text", "", 0).content = f"[{source.number}]"
        if source.link:
            state.push("link_close", "a", -1)
        state.push("cite_close", "cite", -1)
    state.pos = found.end()
    return True


def _count_block(spend: Callable[[int], None], *_: Any) -> bool:
    spend(_LINE)
    return False


def _count_inline(spend: Callable[[int], None], *_: Any) -> bool:
    spend(_PLACE)
    return False


def _small_table(
    spend: Callable[[int], None], state: StateBlock, first: int, last: int, *silent: bool
) -> bool:
    """Apply the parser's own rule to tables that are not too large."""
    if first + 2 > last or not _RULE.fullmatch(state.src, state.bMarks[first + 1], state.eMarks[first + 1]):
        return False
    end = first
    while end < last and not state.isEmpty(end):
        spend(_STEP)
        end += 1
    columns = state.src.count("|", state.bMarks[first], state.eMarks[first]) + 1
    return columns * (end - first) <= CELLS and read_table(state, first, last, *silent)


def _fit_page(state: StateCore) -> None:
    """Move headings below those of the page, turn images into text, give cells a class for their alignment."""
    levels = sorted({token.tag for token in state.tokens if token.type == "heading_open"})
    shown = {tag: f"h{min(3 + place, 6)}" for place, tag in enumerate(levels)}
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = shown[token.tag]
        elif token.type in ("th_open", "td_open"):
            _align(token)
        elif token.type == "inline":
            token.children = [_without_image(state, child) for child in token.children or []]
            for child in token.children:
                if child.attrs.pop("data-cited", None) is None:
                    child.attrs.pop("title", None)


def _align(cell: Token) -> None:
    style = cell.attrs.pop("style", "")
    if style in CELL:
        cell.attrSet("class", CELL[str(style)])


def _without_image(state: StateCore, token: Token) -> Token:
    if token.type != "image":
        return token
    said = RendererHTML().renderInlineAsText(token.children, state.md.options, state.env)
    return Token("text", "", 0, content=f"{said} (image: {token.attrGet('src')})".lstrip())


def _table_open(renderer: Any, *_: Any) -> str:
    return "<div><table>\n"


def _table_close(renderer: Any, *_: Any) -> str:
    return "</table></div>\n"
