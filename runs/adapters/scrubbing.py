"""Remove a model's key from its server's text, in the spellings in which servers echo one."""

from __future__ import annotations

import base64
import html.entities
import re
from collections.abc import Callable, Iterator
from math import lcm
from typing import Any

SHORTEST = 8
"""Characters. A shorter key ("none", "ollama") is no secret, and may be a word of the reply."""

IN_PLACE = "[key]"


class Scrubber:
    """A search for one key: as it is, with any of its characters encoded for URLs, JSON or HTML, or whole in an
    encoding.

    Those are hexadecimal, base32 and base64, of the key alone or within a longer text.
    """

    def __init__(self, key: str) -> None:
        self._pattern: Any = None
        if len(key) >= SHORTEST:
            import regex  # the standard library finds no incomplete match

            self._pattern = regex.compile("|".join((_spelt(key), *_in_letters(key))))

    def scrub(self, text: str) -> str:
        """Return `text` without the key."""
        return self._pattern.sub(IN_PLACE, text) if self._pattern else text

    def split(self, text: str) -> tuple[str, str]:
        """Return `text` without the key, and its end if that may be the beginning of one."""
        clean, at = [], 0
        while found := self._pattern and self._pattern.search(text, at, partial=True):
            clean.append(text[at : found.start()])
            if found.partial:
                return "".join(clean), text[found.start() :]
            clean.append(IN_PLACE)
            at = found.end()
        return "".join((*clean, text[at:])), ""


class Flow:
    """A text in pieces, without the key. Each piece is searched once, however long the text grows."""

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
        """End the text: the held characters are no key."""
        self._parts.append(self._scrubber.scrub(self._held))
        self._held = ""

    def read(self) -> str:
        """Return the text so far; the cost grows with its length."""
        self._parts = ["".join(self._parts)]
        return self._parts[0]


def _spelt(text: str) -> str:
    """Return the pattern for `text` with any of its characters encoded."""
    return "".join(map(_one, text))


def _one(sign: str) -> str:
    """Return the pattern for one character: as it is, after backslashes, or by its code or name.

    Repetitions have a limit: without one the search takes the square of a text's length.
    """
    code, names = ord(sign), [name for name, means in html.entities.html5.items() if means == sign]
    octets = "".join(f"%(?:25){{0,4}}{octet:02x}" for octet in sign.encode())
    ways = [
        sign if sign.isalnum() else rf"\\{{0,16}}{re.escape(sign)}",
        rf"(?i:{octets})",
        rf"(?i:\\{{1,16}}+(?:u{code:04x}|x{code:02x}))",
        rf"(?i:&(?:amp;){{0,4}}#(?:0{{0,8}}+{code}|x0{{0,8}}+{code:x});)",
        *(rf"&(?:amp;){{0,4}}{name.removesuffix(';')};" for name in names),
    ]
    return f"(?:{'|'.join(ways)})"


def _in_letters(key: str) -> Iterator[str]:
    """Yield the patterns for the whole key as hexadecimal, base32 and base64."""
    raw = key.encode()
    for text in {raw.hex(), *_inside(base64.b32encode, 5, raw)}:
        yield from {text.lower(), text.upper()}
    for text in _inside(base64.b64encode, 6, raw):
        for word in {text, text.replace("+", "-").replace("/", "_")}:
            yield "".join(sign if sign.isalnum() else _one(sign) for sign in word)


def _inside(encode: Callable[[bytes], bytes], bits: int, raw: bytes) -> Iterator[str]:
    """Yield the characters that encode `raw` alone, wherever it begins in the encoded text ("Bearer …").

    A character holds so many `bits`. Those that also hold bits of neighbouring text are left out.
    """
    for before in range(lcm(bits, 8) // 8):
        whole = encode(b"\0" * before + raw).decode()
        yield whole[-(-before * 8 // bits) : (before + len(raw)) * 8 // bits]
