"""What a file is, is told from its bytes first, and from its name where it is text."""

from __future__ import annotations

import pytest

from runs.adapters.media import media_type_of

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("a.txt", b"tides", "text/plain"),
        ("a", b"", "text/plain"),
        ("a.json", b"{}", "application/json"),
        ("a.CSV", b"a,b", "text/csv"),
        ("a.tsv", b"a\tb", "text/tab-separated-values"),
        ("out/a.md", b"# a", "text/markdown"),
        ("a.svg", b"<svg onload=alert(1)>", "image/svg+xml"),
        ("a.html", b"<script>", "text/html"),
        ("a.xml", b"<a/>", "application/xml"),
        ("a.py", b"import os", "text/plain"),
        ("a.png", PNG + b"<script>alert(1)</script>", "image/png"),
        ("a.txt", PNG, "image/png"),
        ("a.jpg", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("a.gif", b"GIF89a", "image/gif"),
        ("a.webp", b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        ("a.wav", b"RIFF\x00\x00\x00\x00WAVE", "application/octet-stream"),
        ("a.pdf", b"%PDF-1.7", "application/pdf"),
        ("a.png", b"<script>alert(1)</script>", "text/plain"),
        ("a.json", b"\xff{}", "application/octet-stream"),
        ("a.html", b"<b>\x00", "application/octet-stream"),
        ("a.txt", "über".encode("latin-1"), "application/octet-stream"),
    ],
)
def test_the_media_type(name: str, content: bytes, media_type: str) -> None:
    assert media_type_of(name, content) == media_type
