"""The tool python: what a script may use, what it hears, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings

from runs.adapters.script_limits import ScriptLimits
from runs.adapters.tool import Calls, Heard, Place, Result, ToolError
from runs.adapters.tools import TOOLS
from runs.adapters.tools.python import MOST_PRINTED, PythonArguments, run

pytest.importorskip("pydantic_monty")

READ, WRITE = TOOLS["read_file"].spec(), TOOLS["write_file"].spec()


@pytest.fixture(autouse=True)
def small(settings: LazySettings) -> None:
    settings.PYTHON_LIMITS = ScriptLimits(seconds=0.5, megabytes=16, depth=100, calls=3)


def ran(code: str, *heard: Heard, folder: Path = Path()) -> Result:
    tools = {spec.name: spec for spec in (READ, WRITE)} | {
        "shop.stock": READ.model_copy(update={"name": "shop.stock"})
    }
    return run(PythonArguments(code=code), Place(folder, "key", 60.0, tools=tools, heard=heard))


def error_of(code: str, *heard: Heard) -> str:
    result = ran(code, *heard)
    assert result.exit_code == 1
    return result.stderr


def value_of(code: str, *heard: Heard) -> Any:
    result = ran(code, *heard)
    assert result.exit_code is None, result
    return result.value


def called(code: str, *heard: Heard) -> tuple[str, dict[str, Any]]:
    """The call that the script waits for."""
    with pytest.raises(Calls) as caught:
        ran(code, *heard)
    return caught.value.tool, caught.value.arguments


def test_what_it_printed_and_its_last_value_come_back() -> None:
    code = "import json\nprint('a', 1)\njson.dumps({'b': [1, 2]})"
    assert value_of(code) == {"printed": "a 1\n", "value": '{"b": [1, 2]}'}
    assert value_of("x = 3") == {"value": None}
    assert value_of("print('only')") == {"printed": "only\n"}


def test_values_are_json() -> None:
    assert value_of("{(1, 2): {3}, 'n': 10**30}") == {"value": {"(1, 2)": [3], "n": str(10**30)}}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("while True: pass", "TimeoutError: the script computed for 0.5 s, its limit."),
        ("while True:\n  try:\n    while True: pass\n  except BaseException: pass", "TimeoutError"),
        ("x = 1\na = [0] * 10**9", "line 2"),
        (
            "a = []\nwhile True: a.append('x' * 1000)",
            "MemoryError: the script needs more than 16 MB, its limit.",
        ),
        ("10 ** 10 ** 9", "MemoryError: the script needs more than 16 MB"),
        (
            "def f(n):\n  return f(n + 1)\nf(0)",
            "RecursionError: maximum recursion depth exceeded (limit: 100 calls)",
        ),
    ],
)
def test_a_script_beyond_a_limit_ends_with_the_limit_in_words(code: str, told: str) -> None:
    assert told in error_of(code)


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "open('x', 'w')",
        "import pathlib\npathlib.Path('/etc/passwd').read_text()",
        "import os\nos.environ['SECRET_KEY']",
        "import os\nos.getenv('SECRET_KEY') or 1/0",
        "import os\nos.listdir('/')",
        "import os\nos.system('ls')",
        "import socket",
        "import subprocess",
        "import urllib.request",
        "import ctypes",
        "__import__('socket')",
        "().__class__.__base__.__subclasses__()",
        "import datetime\ndatetime.datetime.now()",
        "import time\ntime.time()",
        "input()",
    ],
)
def test_a_script_reaches_nothing_outside(code: str) -> None:
    assert "line" in error_of(code)


def test_random_numbers_are_the_same_each_time() -> None:
    code = "import random\nrandom.random()"
    assert value_of(code) == value_of(code)


def test_an_error_names_its_line_and_keeps_what_was_printed() -> None:
    result = ran("print('before')\nx = 0\n1 / x")
    assert result.value == {"printed": "before\n"}
    assert "line 3" in result.stderr and result.stderr.endswith("ZeroDivisionError: division by zero")
    assert "line 1" in error_of("def f(:")


def test_a_flood_of_output_is_cut() -> None:
    printed = value_of(f"print('x' * {MOST_PRINTED + 10})")["printed"]
    assert printed.endswith("… [11 characters more]") and len(printed) < MOST_PRINTED + 100


def test_a_call_leaves_the_script_with_its_arguments_by_name() -> None:
    assert called("read_file('a.txt', start=3)") == ("read_file", {"name": "a.txt", "start": 3})
    assert called("f = read_file\nf(name='a')") == ("read_file", {"name": "a"})
    assert called("[read_file(name=n) for n in ('a', 'b')]") == ("read_file", {"name": "a"})
    assert called("shop_stock(name='lamp')") == ("shop.stock", {"name": "lamp"})


def test_a_call_inside_map_is_an_error_with_its_name() -> None:
    assert "'read_file' cannot suspend in this synchronous context" in error_of("list(map(read_file, ['a']))")


def test_arguments_that_fit_no_names_are_the_scripts_error() -> None:
    assert "read_file: name each argument, as in read_file(name=…, start=…)" in error_of("read_file(1, 2, 3)")
    assert "TypeError" in error_of("read_file('a', name='b')")


def test_an_unknown_tool_is_a_name_error_that_names_the_others() -> None:
    assert "tools that a script may call: read_file, shop_stock, write_file" in error_of("python(code='1')")


def test_a_script_goes_on_with_what_it_has_heard() -> None:
    write = "try:\n  write_file(name='b', content=x)\nexcept RuntimeError as e:\n  print(e)"
    code = f"x = read_file(name='a')\n{write}\nlen(x)"
    first = Heard("read_file", {"name": "a"}, "hello")
    assert called(code, first) == ("write_file", {"name": "b", "content": "hello"})
    second = Heard("write_file", {"name": "b", "content": "hello"}, error="Refused by a person.")
    assert value_of(code, first, second) == {"printed": "Refused by a person.\n", "value": 5}


def test_a_script_that_comes_elsewhere_is_stopped() -> None:
    with pytest.raises(
        ToolError, match="it calls read_file where it had called read_file with other arguments"
    ):
        ran("read_file(name='a')", Heard("read_file", {"name": "b"}))
    with pytest.raises(ToolError, match="it ends where it had called"):
        ran("1", Heard("read_file", {"name": "b"}))


def test_a_script_makes_a_limited_number_of_calls() -> None:
    heard = tuple(Heard("read_file", {"name": str(n)}, "") for n in range(3))
    why = error_of("for n in range(9): read_file(name=str(n))", *heard)
    assert why == "The script wants to call read_file, and has made 3 calls: its limit."
