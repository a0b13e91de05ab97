"""The type of a file, from its first bytes and its name; nothing in it is ever run or opened."""

from __future__ import annotations

from pathlib import PurePosixPath

RASTER = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The only types that this site shows as pictures."""

BINARY = "application/octet-stream"

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_TEXTS = {
    ".json": "application/json",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".svg": "image/svg+xml",
    ".xml": "application/xml",
}
"""A text's type by the end of its name; any other text is plain."""


def media_type_of(name: str, content: bytes) -> str:
    """Return the media type: the bytes tell pictures and binary files, the name the kind of text."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    for begins, media_type in _MAGIC:
        if content.startswith(begins):
            return media_type
    if not _is_text(content):
        return BINARY
    return _TEXTS.get(PurePosixPath(name).suffix.lower(), "text/plain")


def _is_text(content: bytes) -> bool:
    if b"\x00" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
