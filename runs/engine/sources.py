"""The sources that a run's searches found: pages, and places in documents. Each keeps its number through the run.

A tool's result is one of sources where it is a list of objects with a `url`; the pool is a fold of such results, in
order, so that it needs no place of its own. See docs/context.md, "Sources".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from runs.engine.values import Value

MOST = 500
"""Sources of one run that get a number; what is found beyond can't be cited."""

LONGEST_URL = 2_000
LONGEST_TITLE = 200

_PORTS = {"http": 80, "https": 443}


class Source(Value):
    """One page or place in a document that was found. `number` counts from 1 and is 0 before it has one."""

    number: int = 0
    url: str
    title: str = ""

    @property
    def link(self) -> str:
        """Where a reader's browser can go; empty for a document of the site."""
        return "" if _DOCUMENT.fullmatch(self.url) else self.url


_DOCUMENT = re.compile(r"document:[a-z][a-z0-9_-]*/.+#L[0-9]+")


def document_url(name: str, line: int) -> str:
    """Return the address of a line of a document; the name begins with that of its folder."""
    return f"document:{name}#L{line}"


def normalised(url: str) -> str | None:
    """The URL in the spelling that tells two of them apart; None where it is neither a web address nor a document."""
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
    """The sources in a tool's result; none where it is no list of such."""
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
    """The pool with what else was found, each new address under the next number."""
    known = {source.url for source in pool}
    for source in found:
        if source.url not in known and len(pool) < MOST:
            known.add(source.url)
            pool = (*pool, source.model_copy(update={"number": len(pool) + 1}))
    return pool
