"""Characters that a reader can't see, or that make others look different, as signs that everybody sees."""

from __future__ import annotations

import re
from typing import Any

from runs.reading.characters import CONTROLS, DIRECTIONS, sign_of

_BREAK = re.compile("\r\n?|[\u2028\u2029]")
_SIGNS = {char: sign_of(char) for char in CONTROLS | DIRECTIONS}


def visible(text: str) -> str:
    """`text` with a sign for each control and direction character; newlines and tabs stay, half pairs go."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _BREAK.sub("\n", text)
    for char in _SIGNS.keys() & set(text):  # long texts hold millions of them: no step for each
        text = text.replace(char, _SIGNS[char])
    return text


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
