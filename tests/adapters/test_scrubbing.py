"""A model's key comes out of what its server says, in the encodings in which keys are echoed, whole or in pieces."""

from __future__ import annotations

import base64
import html
import json
import random
import re
import time
import urllib.parse
from collections.abc import Callable

import pytest

from runs.adapters.models import ServedModel
from runs.adapters.scrubbing import Flow, Scrubber
from runs.engine.effects import ContextOverflowed, ModelReplied
from tests.adapters.asking import TEXT_REQUEST, ask, call, delta, events, failure, settings, streamed, whole
from tests.fake_model_server import FakeModelServer, Refuses, Sends
from tests.stack import A_BUSY_SECOND

KEYS = [
    "sk-test-0123456789abcdef",
    "a/b+c=d&e<f>g\"h'i\\j%k~l.m_n-o",
    "0123456789abcdef0123456789abcdef",
    "eyJhbGciOi.eyJzdWIiOiIx.c2lnbmF0dXJl-_",
]


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def urlsafe(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def base32_after(before: str, key: str) -> str:
    return base64.b32encode(f"{before}{key} and more".encode()).decode()


def each(key: str, *ways: str) -> str:
    """Write each character of `key` in one of `ways` after the other: by its code, or as it is."""
    return "".join(ways[at % len(ways)].format(ord(sign), sign) for at, sign in enumerate(key))


ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "with its scheme": lambda key: f"Bearer {key}",
    "for a URL": lambda key: urllib.parse.quote(key, safe=""),
    "for a URL in small letters": lambda key: urllib.parse.quote(key, safe="").replace("%2B", "%2b"),
    "for a URL twice": lambda key: urllib.parse.quote(urllib.parse.quote(key, safe=""), safe=""),
    "for a form": lambda key: urllib.parse.urlencode({"key": key}),
    "as JSON": json.dumps,
    "as JSON for a page": lambda key: json.dumps(key).replace("<", "\\u003c").replace("&", "\\u0026"),
    "as JSON of other writers": lambda key: json.dumps(key).replace("/", "\\/"),
    "as JSON in JSON": lambda key: json.dumps(json.dumps({"key": key})),
    "for a page": html.escape,
    "for a page by numbers": lambda key: (
        key.replace("&", "&#38;").replace("<", "&#x3C;").replace("/", "&#x2F;")
    ),
    "for a page by names": lambda key: html.escape(key).replace("/", "&sol;").replace("+", "&plus;"),
    "for a page twice": lambda key: html.escape(html.escape(key)),
    "as base64": base64_of,
    "as base64 with its scheme": lambda key: base64_of(f"Bearer {key}"),
    "as base64 for a URL": urlsafe,
    "as base64 for a URL with its scheme": lambda key: urlsafe(f"Bearer {key}"),
    "as base64 inside a text": lambda key: base64_of(f"the user:{key} and more"),
    "as base64 inside a text, one on": lambda key: base64_of(f"a user:{key}, and more"),
    "as base64 inside a text, two on": lambda key: base64_of(f"my user:{key}; and more"),
    "for a URL, every character": lambda key: each(key, "%{:02X}"),
    "for a URL, every character in small letters": lambda key: each(key, "%{:02x}"),
    "for a URL twice, every character": lambda key: each(key, "%25{:02X}"),
    "as JSON, every character": lambda key: each(key, "\\u{:04x}"),
    "as JSON in JSON, every character": lambda key: each(key, "\\\\u{:04X}"),
    "as JavaScript, every character": lambda key: each(key, "\\x{:02x}"),
    "for a page, every character by number": lambda key: each(key, "&#{};"),
    "for a page, every character by hexadecimal number": lambda key: each(key, "&#x{:x};"),
    "for a page twice, every character": lambda key: each(key, "&amp;#x{:04X};"),
    "mixed": lambda key: each(key, "{1}", "%{0:02x}", "\\u{0:04x}", "&#{0};", "&#X{0:X};", "%25{0:02X}"),
    "as hexadecimal": lambda key: key.encode().hex(),
    "as hexadecimal in capitals": lambda key: key.encode().hex().upper(),
    "as hexadecimal inside a text": lambda key: f"Bearer {key} and more".encode().hex(),
    "as base32": lambda key: base64.b32encode(key.encode()).decode(),
    "as base32 without its end, in small letters": lambda key: (
        base64.b32encode(key.encode()).decode().rstrip("=").lower()
    ),
    "as base32 inside a text": lambda key: base32_after("", key),
    "as base32 inside a text, one on": lambda key: base32_after("x", key),
    "as base32 inside a text, two on": lambda key: base32_after("xx", key),
    "as base32 inside a text, three on": lambda key: base32_after("xxx", key),
    "as base32 inside a text, four on": lambda key: base32_after("xxxx", key),
    "as base64 in a URL": lambda key: urllib.parse.quote(base64_of(key), safe=""),
}


def decoded(text: str, skipped: int) -> str:
    """What is written in base64 in `text`, as far as it is read from each word's character number `skipped` on."""
    words = re.findall(r"[A-Za-z0-9+/]{8,}", text.replace("-", "+").replace("_", "/"))
    parts = [word[skipped:][: (len(word) - skipped) // 4 * 4] for word in words]
    return " ".join(base64.b64decode(part).decode("latin-1") for part in parts)


def left_of(key: str, text: str) -> str:
    """What of the key a reader of `text` could still have: any run of 8 of its characters, decoded or not."""
    plain = urllib.parse.unquote(text)
    readings = [
        text,
        plain,
        html.unescape(text),
        text.replace("\\", ""),
        *map(decoded, [plain] * 4, range(4)),
    ]
    parts = [key[at : at + 8] for at in range(len(key) - 7)]
    return next((part for reading in readings for part in parts if part in reading), "")


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("key", KEYS)
def test_a_key_comes_out_in_every_usual_encoding(key: str, encode: Callable[[str], str]) -> None:
    told = f"before {encode(key)} after"
    clean = Scrubber(key).scrub(told)
    assert "[key]" in clean
    assert clean.startswith("before ") and clean.endswith(" after")
    assert left_of(key, clean) == ""


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("size", [1, 3, 10])
def test_a_key_comes_out_across_the_borders_of_chunks(encode: Callable[[str], str], size: int) -> None:
    for key in KEYS:
        scrubber = Scrubber(key)
        told = f"One {key[:5]} {encode(key)} two {encode(key)}{key[:-1]}"
        flow, seen = Flow(scrubber), []
        for at in range(0, len(told), size):
            flow.take(told[at : at + size])
            seen.append(flow.read())
        flow.end()
        assert flow.read() == scrubber.scrub(told)
        longest = max(len(key), 12)
        assert all(key[:longest] not in text for text in seen)
        assert all(
            after.startswith(before) for before, after in zip(seen, [*seen[1:], flow.read()], strict=True)
        )


def test_a_text_that_holds_no_key_passes_as_it_is() -> None:
    dice = random.Random(5)
    for key in KEYS:
        flow, told = Flow(Scrubber(key)), ""
        for _ in range(400):
            piece = dice.choice([key[: dice.randrange(len(key))], key[1:], "%2", "&am", "\\", " text ", "é☃"])
            flow.take(piece)
            told += piece
        flow.end()
        assert flow.read() == told.replace(key, "[key]")


def test_a_key_with_signs_of_any_kind_comes_out() -> None:
    key = "pass-☃-“é”-word"
    for told in (key, urllib.parse.quote(key, safe=""), json.dumps(key)[1:-1], key.encode().hex()):
        assert Scrubber(key).scrub(f"<{told}>") == "<[key]>"


LENGTH = 400_000
LONG_TEXTS = {
    "plain": "the model said so. ",
    "backslashes": "\\",
    "percent signs": "%25",
    "ampersands": "&amp;",
    "zeros": "&#0000000000",
    "beginnings": each(KEYS[0][:-1], "%{:02x}"),
    "hexadecimal": KEYS[0][:-1].encode().hex(),
    "beginnings, as it is": KEYS[0][:-1],
}


@pytest.mark.parametrize("part", LONG_TEXTS.values(), ids=LONG_TEXTS)
@pytest.mark.parametrize("key", KEYS)
def test_a_long_text_is_searched_in_little_time(key: str, part: str) -> None:
    scrubber, text = Scrubber(key), part * (LENGTH // len(part)) + "."
    began = time.process_time()
    assert scrubber.scrub(text) == text
    assert "".join(scrubber.split(text)) == text
    assert time.process_time() - began < A_BUSY_SECOND


def test_a_long_key_is_prepared_in_little_time() -> None:
    began = time.process_time()
    Scrubber("sk-proj-" + "aB3_" * 40)
    assert time.process_time() - began < A_BUSY_SECOND


@pytest.mark.parametrize("key", ["", "x", "none", "ollama", "EMPTY", "sk-1"])
def test_a_key_that_is_too_short_to_be_secret_changes_no_reply(key: str) -> None:
    text = "none of ollama's EMPTY x, sk-1"
    answer, _ = ask(whole({"content": text}), request=TEXT_REQUEST, api_key=key)
    assert isinstance(answer, ModelReplied)
    assert answer.text == text


def test_a_short_key_comes_out_of_an_error_all_the_same() -> None:
    answer, _ = ask(Refuses(401, {"message": "no account for hunter2, hunter23"}), api_key="hunter2")
    assert "no account for [key], hunter23" in str(answer)


KEY = KEYS[1].replace('"', "").replace("\\", "")


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
def test_no_answer_of_a_server_holds_the_key(encode: Callable[[str], str]) -> None:
    said = f"I was sent {encode(KEY)}."
    thought = {"content": f"a {said}", "reasoning_content": f"b {said}"}
    for behaviour in (whole(thought), streamed(thought), in_pieces(said)):
        answer, _ = ask(behaviour, request=TEXT_REQUEST, api_key=KEY)
        assert isinstance(answer, ModelReplied)
        assert "[key]" in answer.text
        assert (left_of(KEY, answer.text), left_of(KEY, answer.reasoning)) == ("", "")
    calls = whole({"tool_calls": [call({"thought": said})]})
    answer, _ = ask(calls, output_mode="tool", api_key=KEY)
    assert isinstance(answer, ModelReplied)
    assert (left_of(KEY, answer.text), "[key]" in answer.text) == ("", True)


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
def test_no_error_of_a_server_holds_the_key(encode: Callable[[str], str]) -> None:
    error = {"message": f"I was sent {encode(KEY)}.", "code": encode(KEY), "type": encode(KEY)}
    for status in (400, 401, 402, 404, 429, 500):
        assert left_of(KEY, failure(Refuses(status, error), api_key=KEY).message) == ""
    assert left_of(KEY, failure(Sends(events({"error": error})), api_key=KEY).message) == ""
    overflow = Refuses(400, {"message": f"the context length of {encode(KEY)}"})
    answer, _ = ask(overflow, api_key=KEY)
    assert isinstance(answer, ContextOverflowed)
    assert left_of(KEY, answer.message) == ""


def test_viewers_never_see_the_beginning_of_a_key_that_is_still_coming() -> None:
    seen = []

    def watch(so_far: Callable[[], str]) -> bool:
        seen.append(so_far())
        return True

    with FakeModelServer([in_pieces(f"key: {KEY} end")]) as server:
        ServedModel(settings(server, api_key=KEY)).ask(TEXT_REQUEST, watch)
    assert seen[-1] == "key: [key] end"
    assert {text for text in seen if len(text) > len("key: ")} <= {
        "key: [key]", "key: [key] ", "key: [key] e", "key: [key] en", "key: [key] end"
    }  # fmt: skip


def in_pieces(text: str) -> Sends:
    """A streamed reply, a chunk for each character."""
    return Sends(events(*(delta(content=sign) for sign in text), delta("stop")))
