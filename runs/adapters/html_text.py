"""The readable text of an HTML page, in time that grows only with its length.

It is no document parser: it drops tags, and keeps headings, lists, cells and links. It never nests or looks back, so no
page can hold a worker.
"""

from __future__ import annotations

import html
import re
from urllib.parse import quote

_NAME = re.compile(r"/?[a-zA-Z][a-zA-Z0-9]*")
_HREF = re.compile(r"""\bhref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_SILENT = ("script", "style", "noscript", "template", "svg", "iframe", "textarea")
_END_OF = {name: re.compile(rf"</{name}\b", re.IGNORECASE) for name in (*_SILENT, "title")}
_BREAKS = re.compile(
    r"/?(p|div|br|hr|section|article|header|footer|main|nav|aside|form|figure|ul|ol|li|dl|dt|dd|table|tr|pre"
    r"|blockquote|h[1-6])"
)
_HEADINGS = {f"h{level}": f"\n\n{'#' * level} " for level in range(1, 7)}
_MARKS = _HEADINGS | {"li": "\n- ", "td": " | ", "th": " | "}
_BLANKS = re.compile(r"[ \t\r\f\v\xa0]+")
_GAPS = re.compile(r"\n\s*\n\s*")
MAX_ATTRIBUTES = 4_000
"""Characters of one tag that are read."""


def text_of(page: str) -> tuple[str, str]:
    """Return the title and text of an HTML page."""
    walk = _Walk(page)
    walk.run()
    return _tidy(walk.title).replace("\n", " "), _tidy("".join(walk.out))


class _Walk:
    """One pass over the page, left to right."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.at = 0
        self.title = ""
        self.href = ""
        self.out: list[str] = []

    def run(self) -> None:
        while (opening := self.page.find("<", self.at)) >= 0:
            self._say(self.page[self.at : opening])
            self.at = opening
            if not self._markup():
                break
        self._say(self.page[self.at :])

    def _markup(self) -> bool:
        """Pass the markup at `at`; return False if none of it ends any more."""
        if self.page.startswith("<!--", self.at):
            return self._skip_past("-->")
        if self.page.startswith(("<!", "<?"), self.at):
            return self._skip_past(">")
        name = _NAME.match(self.page, self.at + 1)
        if name is None:
            self.out.append("<")
            self.at += 1
            return True
        end = self.page.find(">", self.at)
        if end < 0:
            self.at = len(self.page)
            return False
        attributes = self.page[name.end() : min(end, name.end() + MAX_ATTRIBUTES)]
        self.at = end + 1
        self._tag(name[0].lower(), attributes)
        return True

    def _skip_past(self, mark: str) -> bool:
        end = self.page.find(mark, self.at)
        self.at = end + len(mark) if end >= 0 else len(self.page)
        return end >= 0

    def _tag(self, name: str, attributes: str) -> None:
        if name in _END_OF and not attributes.endswith("/"):
            self._element(name)
        elif name in _MARKS:
            self.out.append(_MARKS[name])
        elif _BREAKS.fullmatch(name):
            self.out.append("\n")
        elif name == "a":
            found = _HREF.search(attributes)
            href = html.unescape(next(filter(None, found.groups()), "")) if found else ""
            self.href = href if href.startswith(("http://", "https://", "/")) else ""
        elif name == "/a" and self.href:
            self.out.append(f" ({quote(self.href[:500], safe=_URL_SAFE)})")
            self.href = ""

    def _element(self, name: str) -> None:
        """Pass a whole element whose inside is not text of the page."""
        end = _END_OF[name].search(self.page, self.at)
        until = end.start() if end else len(self.page)
        if name == "title" and not self.title:
            self.title = html.unescape(self.page[self.at : until])[:300]
        self.at = until

    def _say(self, text: str) -> None:
        if text:
            self.out.append(html.unescape(text).replace("\n", " "))


_URL_SAFE = "/%:@!$&'*+,;=~-._?#[]"


def _tidy(text: str) -> str:
    lines = (_BLANKS.sub(" ", line).strip() for line in text.split("\n"))
    return _GAPS.sub("\n\n", "\n".join(lines)).strip()
