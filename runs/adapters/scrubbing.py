"""Takes a model's key out of what its server says, in the spellings in which servers echo one."""

from __future__ import annotations

import base64
import html.entities
from typing import Any

SHORTEST = 8
"""Characters. A shorter key ("none", "ollama") is no secret, and may be a word of the reply."""

IN_PLACE = "[key]"


class Scrubber:
    """Finds one key: as it is, and encoded for URLs, JSON, HTML or, alone or in a longer text, as base64."""

    def __init__(self, key: str) -> None:
        self._pattern: Any = None
        if len(key) >= SHORTEST:
            import regex  # the standard one finds no match that is still incomplete

            self._pattern = regex.compile("|".join(map(_spelt, (key, *_in_base64(key)))))

    def scrub(self, text: str) -> str:
        """Return `text` without the key."""
        return self._pattern.sub(IN_PLACE, text) if self._pattern else text

    def split(self, text: str) -> tuple[str, str]:
        """Return `text` without the key, and its end where that may be the beginning of one."""
        clean, at = [], 0
        while found := self._pattern and self._pattern.search(text, at, partial=True):
            clean.append(text[at : found.start()])
            if found.partial:
                return "".join(clean), text[found.start() :]
            clean.append(IN_PLACE)
            at = found.end()
        return "".join((*clean, text[at:])), ""


class Flow:
    """A text that comes in pieces, without the key. Each piece is looked at once, however long the text grows."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._parts: list[str] = []
        self._held = ""
        """The last characters, as long as they may be the beginning of the key."""
        self.blank = True

    def take(self, piece: str) -> None:
        """Add a piece."""
        if not piece:
            return
        clean, self._held = self._scrubber.split(self._held + piece)
        self._parts.append(clean)
        self.blank = self.blank and not piece.strip()

    def end(self) -> None:
        """Nothing follows: what was held is no key."""
        self._parts.append(self._scrubber.scrub(self._held))
        self._held = ""

    def read(self) -> str:
        """Return the text so far; this costs as much as the text is long."""
        self._parts = ["".join(self._parts)]
        return self._parts[0]


def _spelt(text: str) -> str:
    return "".join(map(_one, text))


def _one(sign: str) -> str:
    """The pattern for one character; letters and digits are never encoded."""
    if sign.isalnum():
        return sign
    code, names = ord(sign), [name for name, means in html.entities.html5.items() if means == sign]
    ways = [
        rf"\\*\x{code:02x}",
        rf"(?i:%(?:25)*{code:02x})",
        rf"(?i:\\+u{code:04x})",
        rf"(?i:&(?:amp;)*#0*{code};)",
        rf"(?i:&(?:amp;)*#x0*{code:x};)",
        *(rf"&(?:amp;)*{name.removesuffix(';')};" for name in names),
    ]
    return f"(?:{'|'.join(ways)})"


def _in_base64(key: str) -> list[str]:
    """The characters that stand for the key wherever it begins in what is encoded, such as after "Bearer "."""
    found: list[str] = []
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + key.encode()).decode().rstrip("=")
        cut = (before + len(key)) % 3 != 0  # the last character holds bits of what follows
        inner = whole[(0, 2, 3)[before] : -1 if cut else None]
        found += {inner, inner.replace("+", "-").replace("/", "_")}
    return found
