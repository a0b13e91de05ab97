"""A site's own modules are in its data directory; a fault in one stops the start with its file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.own_modules import MACHINE, TOOL, data_dir_with, manage

LOST = MACHINE.replace('"answered", END', '"answered", "lost"')

PRINT_TOOLS = "from runs.adapters.tools import OWN; print(sorted(OWN))"


def test_tools_and_machines_are_found_in_the_data_directory(tmp_path: Path) -> None:
    data_dir = data_dir_with(tmp_path, shop_tools=TOOL, one_answer=MACHINE)
    own = {"AGENTSITE_TOOLS": "shop_tools:TOOL", "AGENTSITE_MACHINES": "one_answer:ONE_ANSWER"}
    shown = manage(data_dir, "machines", "one_answer", **own)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Asks the model once." in shown.stdout
    listed = manage(data_dir, "shell", "-v0", "-c", PRINT_TOOLS, **own)
    assert listed.stdout.strip() == "['stock']", listed.stderr


def test_a_module_there_hides_none_that_is_installed(tmp_path: Path) -> None:
    data_dir = data_dir_with(tmp_path, json="raise RuntimeError('hidden')\n")
    assert manage(data_dir, "machines").returncode == 0


@pytest.mark.parametrize(
    ("variable", "words"),
    [("AGENTSITE_TOOLS", ("shell", "-v0", "-c", PRINT_TOOLS)), ("AGENTSITE_MACHINES", ("machines",))],
    ids=["tools", "machines"],
)
@pytest.mark.parametrize(
    ("code", "line", "said"),
    [
        ("X = 1\nX = = 2\n", 2, "invalid syntax"),
        ("\n\nX = nowhere\n", 3, "name 'nowhere' is not defined"),
        ("import not_there_at_all\n", 1, "No module named 'not_there_at_all'"),
        (LOST, LOST[: LOST.index("ONE_ANSWER =")].count("\n") + 1, "lost"),
        (f"{TOOL}\nTool(nme='x')\n", TOOL.count("\n") + 2, "nme"),
    ],
    ids=["syntax", "name", "import", "graph", "call"],
)
def test_a_fault_is_told_with_its_file_and_line(
    tmp_path: Path, variable: str, words: tuple[str, ...], code: str, line: int, said: str
) -> None:
    data_dir = data_dir_with(tmp_path, faulty=code)
    file = data_dir / "modules" / "faulty.py"
    done = manage(data_dir, *words, **{variable: "faulty:X"})
    assert done.returncode == 74
    assert "Traceback" not in done.stderr
    assert variable in done.stderr and said in done.stderr
    assert re.search(rf"{re.escape(str(file))}, line {line}\b", done.stderr), done.stderr


def test_a_fault_two_modules_deep_is_told_where_it_is(tmp_path: Path) -> None:
    data_dir = data_dir_with(tmp_path, outer="import inner\n", inner="\n1 / 0\n")
    done = manage(data_dir, "machines", AGENTSITE_MACHINES="outer:X")
    inner = data_dir / "modules" / "inner.py"
    assert f"{inner}, line 2: ZeroDivisionError: division by zero" in done.stderr
