"""What hides what runs: long gaps, look-alike letters, other blanks. All is named, and shown with signs."""

from __future__ import annotations

import time
import unicodedata

import pytest

from runs.reading.hidden_text import escaped, hidden_in, holds_unseen, warning
from runs.reading.phrases import call_text, short
from tests.stack import A_BUSY_SECOND

RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. Файл сор.txt не нужен."
GERMAN = "Grüße aus Köln: zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich."
JAPANESE = "これは　Kubernetes の設定です。「ＯＫ！」と返します。ＮＨＫニュース：１０時"
OTHERS = "naïve café, C’est où ? Łódź, Diyarbakır, Ελλάδα και Ευρώπη, سلام ١٢, שלום, सत्य १०, 你好，世界"


# --- gaps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", "\u2003", "\u3000", "\u2800", "\u200b", "\u3164"])
def test_a_long_run_of_blanks_of_any_kind_is_a_sign_with_its_count(blank: str) -> None:
    text = f"ls{blank * 10_000}; rm -rf /"
    assert escaped(text) == "ls⟨␣ × 10,000⟩; rm -rf /"
    assert warning(text) == "Holds long gaps: 10,000 blanks at 3."


def test_blanks_of_several_kinds_are_one_run() -> None:
    assert escaped("a" + " \u00a0\t\u2009" * 100 + "b") == "a⟨␣ × 400⟩b"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_long_run_of_line_breaks_is_a_sign_with_its_count(end: str) -> None:
    text = f"ls{end * 4_000}rm"
    assert escaped(text) == "ls⟨⏎ × 4,000⟩rm"
    assert warning(text) == "Holds long gaps: 4,000 line breaks at 3."


def test_blanks_between_line_breaks_belong_to_the_run() -> None:
    assert escaped("ls" + "\n \t" * 500 + "rm") == "ls⟨⏎ × 500 ␣ × 1,000⟩rm"


def test_code_and_paragraphs_hold_no_gaps() -> None:
    text = "def one():\n\n\n    return 1\n" + " " * 28 + "# deep\n\n\n\tx"
    assert (escaped(text), warning(text)) == (text, "")


# --- look-alikes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("p\u0430ypal", "p\\u0430ypal"),
        ("delete_\u0430ll", "delete_\\u0430ll"),
        ("\u0440\u0430\u0443\u0440\u0430", "\\u0440\\u0430\\u0443\\u0440\\u0430"),
        ("https://\u0430\u0440\u0440\u04cf\u0435.com/x", "https://\\u0430\\u0440\\u0440\\u04cf\\u0435.com/x"),
        ("Жду на https://\u0441\u043e\u0440.com", "Жду на https://\\u0441\\u043e\\u0440.com"),
        ("\u0391pple", "\\u0391pple"),
        ("mv /srv/\u0430 x", "mv /srv/\\u0430 x"),
        ("\uff52\uff4d -rf", "\\uff52\\uff4d -rf"),
        ("\U0001d429ay", "\\U0001d429ay"),
        ("\u0261oogle", "\\u0261oogle"),
        ("\u1d00\u1d05\u1d0d\u026a\u0274", "\\u1d00\\u1d05\\u1d0d\\u026a\\u0274"),
        ("1\u09ea0 EUR", "1\\u09ea0 EUR"),
        ("bank.com\u2215evil", "bank.com\\u2215evil"),
    ],
)
def test_letters_that_look_like_others_are_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown
    assert warning(text).startswith("Holds letters that look like others: U+")
    assert holds_unseen({"a": [text]})
    assert holds_unseen({text: 1})


def test_a_warning_says_what_a_letter_looks_like() -> None:
    assert warning("p\u0430y") == "Holds letters that look like others: U+0430 at 2 (looks like a)."


@pytest.mark.parametrize("text", [RUSSIAN.replace("сор.txt", "сор"), GERMAN, JAPANESE, OTHERS])
def test_real_words_of_any_script_pass(text: str) -> None:
    assert (escaped(text), warning(text)) == (text, "")


@pytest.mark.parametrize(
    "text",
    [
        "3D-модель",
        "USB-кабель",
        "дом 5а",
        "C:\\дир\\file",
        "QR코드 T恤",
        "5 µm, α = 2, α-particle",
        "1⁄2",
        "№ 5 ①²™…",
        "ℹ️ 🏳️‍🌈 👩🏽‍🔬",
    ],
)
def test_scripts_side_by_side_and_signs_pass(text: str) -> None:
    assert (escaped(text), warning(text)) == (text, "")


# --- marks stacked on one letter -------------------------------------------------------------------------------------

KALACHAKRA = "\u0f67\u0f90\u0fb5\u0fa8\u0fb3\u0fba\u0fbc\u0fbb\u0f82"
"""A stack of Tibetan: its letters below the first one are marks to Unicode."""


def test_marks_stacked_on_one_letter_are_a_sign_with_their_count() -> None:
    text = "safe" + "\u0301" * 400 + " text"
    assert warning(text) == "Holds marks stacked on one letter: 400 at 5."
    assert escaped(text) == "safe⟨U+0301 × 400⟩ text"
    assert holds_unseen({"a": [text]})


def test_stacked_marks_of_several_kinds_are_counted_together() -> None:
    assert escaped("a" + "\u0301\u0489" * 2_000 + "b") == "a⟨marks × 4,000⟩b"
    assert (
        warning("a" + "\u0301" * 5 + "b" + "\u20dd" * 6)
        == "Holds marks stacked on one letter: 5 at 2, 6 at 8."
    )


def test_marks_with_what_is_not_seen_between_them_are_shown_apart() -> None:
    text = "a" + "\u0301\u034f" * 100
    assert "U+034F at 3" in warning(text)
    assert escaped(text) == "a" + "\u0301\\u034f" * 100


@pytest.mark.parametrize(
    "text",
    [
        unicodedata.normalize("NFD", "Tiếng Việt: Nguyễn, trường, những, ở đâu?"),
        "ที่นี่ น้ำ กั้น ผู้ ปั๊ม เก๋ๆ",
        "בְּרֵאשִׁ֖ית בָּרָ֣א אֱלֹהִ֑ים אֵ֥ת הַשָּׁמַ֖יִם",
        "بِسْمِ ٱللَّهِ ٱلرَّحْمَٰنِ ٱلرَّحِيمِ مُحَمَّدٌۭ",
        "क्षत्रिय र्त्स्न्ये हिन्दी में ज़ँ",
        "བསྒྲུབས་ ཧཱུྃ རྒྱལ་ སྐྱེས་ " + KALACHAKRA,
        "❤️ ☎️ 1️⃣ 👁️‍🗨️ 👩🏽‍🔬 🏳️‍🌈",
        "x" + "\u0301" * 4,
    ],
    ids=["Vietnamese", "Thai", "Hebrew", "Arabic", "Devanagari", "Tibetan", "emoji", "four marks"],
)
def test_letters_with_the_marks_of_their_script_pass(text: str) -> None:
    assert (escaped(text), warning(text)) == (text, "")


# --- other blanks, and all of it together ---------------------------------------------------------------------------


@pytest.mark.parametrize("char", ["\u00a0", "\u202f", "\u2003", "\u3000", "\u00ad", "\u2060", "\U000e0041"])
def test_another_blank_and_what_has_no_width_is_escaped(char: str) -> None:
    assert warning(f"rm{char}-rf") == f"Holds characters that can’t be seen: U+{ord(char):04X} at 3."
    assert escaped(f"rm{char}-rf") != f"rm{char}-rf"


def test_everything_that_hides_is_named() -> None:
    text = "p\u0430y\u202e" + " " * 40 + "x"
    assert warning(text) == (
        "Holds characters that can’t be seen: U+202E at 4."
        " Holds letters that look like others: U+0430 at 2 (looks like a). Holds long gaps: 40 blanks at 5."
    )
    assert escaped(text) == "p\\u0430y\\u202e⟨␣ × 40⟩x"


def test_a_call_in_one_line_says_where_it_is_shortened() -> None:
    code = call_text("run\u0430", {"command": "x" * 6000})
    assert code.startswith('run\\u0430(command="xxx')
    assert code.endswith("… (6,016 characters)")
    assert call_text("run", {"command": "ls" + "\u00a0" * 600 + "; rm"}) == 'run(command="ls⟨␣ × 600⟩; rm")'


def test_a_text_that_is_cut_in_a_gap_tells_no_wrong_count() -> None:
    assert short("ls" + " " * 10_000 + "rm") == "ls…"


def test_a_text_that_is_cut_in_a_stack_tells_no_wrong_count() -> None:
    assert short("ls" + "\u0301" * 10_000 + "rm") == "ls…"


@pytest.mark.parametrize(
    "text",
    [
        "a" * 400_000,
        "\u00e9" + "a" * 400_000,
        "p\u0430ypal" * 60_000,
        "rm\u00a0" * 130_000,
        "\n " * 200_000,
        (RUSSIAN + " ") * 5_000,
        "漢字かな" * 100_000,
        "\u0301" * 400_000,
        "e\u0301\u0302\u0301\u0302" * 80_000,
        "e\u0301\u0302\u0301\u0302\u0301" * 66_000,
    ],
    ids=[
        *("plain", "one letter", "look-alikes", "blanks", "breaks", "Russian", "Japanese"),
        *("marks", "letters with four marks", "letters with five marks"),
    ],
)
def test_a_text_of_400_000_characters_is_searched_well_within_a_second(text: str) -> None:
    warning("p\u0430y")  # the library is loaded once
    began = time.process_time()
    found = hidden_in(text)
    assert len(found.warning) < 500
    assert len(found.escaped) > 0
    assert time.process_time() - began < A_BUSY_SECOND
