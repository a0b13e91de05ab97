"""Letters that look like others: a Cyrillic a in `paypal`, full width for `rm`. Real words of any script pass.

The table of look-alikes is Unicode's, from the library disarm, loaded when a text first needs it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import regex

_PART = regex.compile(r"[^\s-]+")  # α-particle and USB-кабель are two words
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}_]+")
_LETTER = regex.compile(r"[a-zA-Z]")
_EASTERN = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\u3001-\u303f]")

_SHAPES = ("<wide>", "<font>")
"""Unicode's marks for letters in another shape: full width, and those of mathematics."""

_PHONETIC = regex.compile(
    r"[\u01c0\u01c3\u0251\u0261\u0262\u026a\u0274\u0280\u028f\u0299\u029c\u029f\u1d00-\u1d22\ua731]"
)
"""Latin letters used in no written language: clicks, another a and g, small capitals."""

_CLEAR = "\u00b5\u03bc\u2139"
"""The two signs for a millionth, and the letter of a picture: not taken for u and i."""

_SEPARATORS = "/\\.:;|&@?=#%"
"""Separators of hosts, paths and commands; their look-alikes separate nothing."""


class Alike(NamedTuple):
    """A letter or sign that looks like another one, and its place."""

    place: int
    char: str
    like: str


def alikes(text: str) -> Iterator[Alike]:
    """Yield each character of `text` that looks like another and is foreign to its surroundings."""
    if text.isascii():
        return
    chars = set(text)
    table = _Table(chars)
    if not table.like:
        return
    for chunk in _PART.finditer(text):
        part = chunk[0]
        if part.isascii() or not (table.anywhere & set(part) or (table.near_latin and _LETTER.search(part))):
            continue
        places = [*table.letters(part), *table.separators(part)]
        yield from [Alike(chunk.start() + at, part[at], table.like[part[at]]) for at in places]


class _Table:
    """The look-alikes of ASCII characters in a text, and those of them at home in its scripts."""

    def __init__(self, chars: set[str]) -> None:
        self.shapes = {char: plain for char in chars if (plain := _plain(char))}
        self.like = _confused(chars) | self.shapes
        """The character that each looks like."""
        written_in = {_script(char) for char in chars - self.like.keys() if char.isalpha()}
        self.at_home = {char for char in self.like if char.isalpha() and _script(char) in written_in}
        """Letters of the text's own scripts: there they have others of their script beside them, which resemble no
        Latin ones."""
        self.foreign = {char for char in self.like.keys() - self.shapes.keys() if _is_foreign(char)}
        self.anywhere = self.like.keys() - self.at_home
        self.near_latin = bool(self.foreign & self.at_home)

    def letters(self, part: str) -> Iterator[int]:
        """Yield the places of foreign letters and digits between two blanks."""
        latin = _LETTER.search(part) is not None
        shapes = set() if _EASTERN.search(part) else self.shapes.keys()
        for word in _WORD.finditer(part):
            strange = shapes | self._foreign_in(word[0], latin)
            if not strange.isdisjoint(word[0]):
                yield from (at for at, char in enumerate(word[0], word.start()) if char in strange)

    def _foreign_in(self, word: str, beside_latin: bool) -> set[str]:  # noqa: FBT001
        """Return those among Latin letters or digits; or all of a word without others, if its script is foreign to the
        text."""
        chars = set(word)
        found = chars & self.foreign
        if not found or _LETTER.search(word):
            return found
        if any(char.isascii() and char.isdigit() for char in word):
            return {char for char in found if char.isdecimal()}
        letters = {char for char in chars if char.isalpha()}
        whole = bool(letters) and letters <= found
        strange = beside_latin or (len(word) > 1 and not letters <= self.at_home)
        return found if whole and strange else set()

    def separators(self, part: str) -> Iterator[int]:
        """Yield the places of separator look-alikes, between ASCII letters; `1\\u20442` is a fraction."""
        signs = {char for char in set(part) & self.like.keys() if self.like[char] in _SEPARATORS}
        for at in (at for at, char in enumerate(part) if char in signs) if signs else ():
            sides = part[at - 1 : at] + part[at + 1 : at + 2]
            if len(sides) == 2 and sides.isascii() and sides.isalnum() and not sides.isdigit():
                yield at


def _confused(chars: set[str]) -> dict[str, str]:
    """Return the ASCII character that each looks like, if it looks like one."""
    import disarm

    found = disarm.find_confusables("".join(chars))
    return {
        char: plain
        for char, _, plain in found
        if len(plain) == 1 and plain.isascii() and char not in _CLEAR and not "\uff00" <= char <= "\uffef"
    }


def _plain(char: str) -> str:
    """Return the ASCII letter or digit behind another shape; empty for all other characters."""
    if char.isascii() or char in _CLEAR or not unicodedata.decomposition(char).startswith(_SHAPES):
        return ""
    plain = unicodedata.normalize("NFKC", char)
    return plain if plain.isascii() and plain.isalnum() else ""


def _is_foreign(char: str) -> bool:
    return char.isalnum() and (_script(char) != "LATIN" or _PHONETIC.match(char) is not None)


def _script(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]
