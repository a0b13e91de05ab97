"""The readable text of an HTML page as Markdown: what a browser hides is left out, links are whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # the web server lists tools and reads no page
    from html_to_markdown import ConversionResult

HEAD = 100_000
"""Characters of a page in which its title is looked for."""
LONGEST_TITLE = 300


@dataclass(frozen=True)
class HtmlText:
    """A page as text. `cut` says that parts of it lie too deep to be read."""

    title: str
    text: str
    cut: bool


def read_html(page: str, url: str) -> HtmlText:
    """Return title and text of the page at `url`."""
    from html_to_markdown import WarningKind

    read = _converted(page, url)
    title = _converted(page[:HEAD], url, with_title=True).metadata
    whole = title.document.title if title else None
    return HtmlText(
        title=" ".join((whole or "").split())[:LONGEST_TITLE],
        text=(read.content or "").strip(),
        cut=any(warning.kind == WarningKind.DEPTH_LIMIT_EXCEEDED for warning in read.warnings),
    )


def _converted(page: str, url: str, *, with_title: bool = False) -> ConversionResult:
    """Return the page as Markdown. With its title the text begins with a block about it, so that is asked apart."""
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

    keep = PreprocessingOptions(enabled=True, preset="minimal", remove_navigation=False, remove_forms=False)
    options = ConversionOptions(
        extract_metadata=with_title, base_url=url, preprocessing=keep, skip_images=True, compact_tables=True
    )
    return convert(page, options, cast(Any, _OnlyWebLinks()))


class _OnlyWebLinks:
    """Leaves out where a link leads unless that is a page: a script or data is none."""

    def visit_link(self, place: object, href: str, text: str, title: str) -> str | dict[str, str]:
        """Return what stands for a link."""
        return "continue" if href.strip().lower().startswith(("http://", "https://")) else {"custom": text}
