"""Characters that a reader can't see, or that make others look different, as signs that everybody sees."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from runs.reading.characters import CONTROLS, DIRECTIONS, hides, sign_of
from runs.reading.unseen import in_emoji

_BREAK = re.compile("\r\n?|[\u2028\u2029]")
_SIGNS = {char: sign_of(char) for char in CONTROLS | DIRECTIONS}
_JOINS = "\u200c\u200d\ufe0e\ufe0f"
"""These have a work to do in emoji, and two of them in the letters of some scripts."""

_JOINED = re.compile(f"[{_JOINS}]")


def visible(text: str) -> str:
    """`text` with a sign for each character that can't be seen; newlines and tabs stay, half pairs go."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _BREAK.sub("\n", text)
    chars = set(text)  # long texts hold millions of them: no step for each
    for char in _SIGNS.keys() & chars:
        text = text.replace(char, _SIGNS[char])
    if text.isascii():
        return text
    if not chars.isdisjoint(_JOINS):
        whole = text
        text = _JOINED.sub(
            lambda found: found[0] if _works(whole, found.start()) else sign_of(found[0]), text
        )
    for char in chars.difference(_SIGNS, _JOINS):
        if hides(char):
            text = text.replace(char, sign_of(char))
    return text


def _works(text: str, place: int) -> bool:
    """Whether a joiner or a selector belongs to an emoji, or to a script that is written with joiners."""
    if in_emoji(text, place):
        return True
    before = text[place - 1 : place]
    return (
        text[place] in "\u200c\u200d" and bool(before) and unicodedata.category(before) in ("Lo", "Mn", "Mc")
    )


def all_visible(value: Any) -> Any:
    """A JSON value whose every text is visible."""
    match value:
        case str():
            return visible(value)
        case dict():
            return {visible(name): all_visible(item) for name, item in value.items()}
        case list():
            return [all_visible(item) for item in value]
    return value
