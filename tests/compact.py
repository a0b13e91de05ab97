"""Pages without the white space that a browser does not show: a test does not depend on a template's layout."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client

BLOCKS = re.compile(
    "html|head|body|title|meta|link|script|style|div|p|section|ul|ol|li|dl|dt|dd|h[1-6]|form|fieldset|legend|header|nav"
    "|main|article|aside|figure|table|thead|tbody|tr|th|td|caption|details|summary|blockquote|pre|hr|br|svg|rect|path"
    "|label|input|textarea|select|option|datalist|button"
)
"""White space beside and inside of the edges of these is not shown, or is none of a test's business."""

_TOKEN = re.compile(r"""(<!--.*?-->|</?[a-zA-Z](?:[^>"']|"[^"]*"|'[^']*')*>)""", re.DOTALL)
_IN_TAG = re.compile(r"""("[^"]*"|'[^']*')|\s+(>)?""")
_IDS = re.compile(r'(aria-describedby=)"([^"]*)"')
_NAME = re.compile(r"</?([a-zA-Z0-9]+)")
_KEPT = ("pre", "textarea", "script")


def compact(html: str) -> str:
    """Return `html` with each run of white space as one blank, and none at the edges of blocks."""
    out: list[str] = []
    kept, at_edge = "", True
    for piece in _TOKEN.split(html):
        name = found[1].lower() if (found := _NAME.match(piece)) else ""
        if kept:
            out.append(piece)
            if name == kept:
                kept, at_edge = "", True
        elif name:
            if BLOCKS.fullmatch(name) and out:
                out[-1] = out[-1].rstrip(" ")
                at_edge = True
            out.append(_tag(piece))
            kept = name if name in _KEPT and not piece.startswith("</") else ""
        else:
            text = re.sub(r"\s+", " ", piece)
            out.append(text.lstrip(" ") if at_edge else text)
            at_edge = out[-1].endswith(" ") or (at_edge and not out[-1])
    return "".join(out)


def _tag(piece: str) -> str:
    tag = _IN_TAG.sub(lambda found: found[1] or found[2] or " ", piece)
    return _IDS.sub(lambda found: f'{found[1]}"{" ".join(found[2].split())}"', tag)


class PageReader(Client):
    """A client whose pages are compact."""

    def request(self, **request: Any) -> Any:
        """Return the answer; a page in it is compact."""
        answer: Any = super().request(**request)
        if not answer.streaming and answer.get("Content-Type", "").startswith("text/html"):
            answer.content = compact(answer.content.decode()).encode()
        return answer
