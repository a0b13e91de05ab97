"""The sources that a run's searches found: pages, and places in documents. Each keeps its number through the run.

A tool's result holds sources if it is a list of objects with a `url`. The pool is a fold of such results, in order, and
is not stored itself. See docs/context.md, "Sources".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from runs.engine.values import Value

MOST = 500
"""Most sources of one run with a number; later ones can't be cited."""

LONGEST_URL = 2_000
LONGEST_TITLE = 200

_PORTS = {"http": 80, "https": 443}


class Source(Value):
    """A page, or a place in a document, found by a search. `number` counts from 1 and is 0 before it has one."""

    number: int = 0
    url: str
    title: str = ""

    @property
    def link(self) -> str:
        """Return the address for a reader's browser; empty for a document of the site."""
        return "" if _DOCUMENT.fullmatch(self.url) else self.url


_DOCUMENT = re.compile(r"document:[a-z][a-z0-9_-]*/.+#L[0-9]+")


def document_url(name: str, line: int) -> str:
    """Return the address of a line of a document; the name begins with that of its folder."""
    return f"document:{name}#L{line}"


def normalised(url: str) -> str | None:
    """Return the URL in a spelling fit for comparison; None if it is neither a web address nor a document."""
    url = url.strip()
    if len(url) > LONGEST_URL:
        return None
    if _DOCUMENT.fullmatch(url):
        return url if url.isprintable() else None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not host or not url.isprintable():
        return None
    place = f"[{host}]" if ":" in host else host
    if port not in (None, _PORTS[parts.scheme]):
        place = f"{place}:{port}"
    return urlunsplit(SplitResult(parts.scheme, place, parts.path or "/", parts.query, ""))


def found_in(value: Any) -> tuple[Source, ...]:
    """Return the sources in a tool's result; none if it is no such list."""
    if not isinstance(value, list) or not value or not all(map(_is_source, value)):
        return ()
    found = (
        Source(url=url, title=" ".join(str(entry.get("title") or "").split())[:LONGEST_TITLE])
        for entry in value
        if (url := normalised(entry["url"])) is not None
    )
    return tuple(found)


def _is_source(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("url"), str)
        and ("title" in entry or "text" in entry)
    )


def with_found(pool: tuple[Source, ...], found: Iterable[Source]) -> tuple[Source, ...]:
    """Return the pool with further sources, each new address under the next number."""
    known = {source.url for source in pool}
    for source in found:
        if source.url not in known and len(pool) < MOST:
            known.add(source.url)
            pool = (*pool, source.model_copy(update={"number": len(pool) + 1}))
    return pool
