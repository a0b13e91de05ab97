"""A site's own modules lie in its data directory; a fault in one is told with its file and line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentsite.environment import ROOT

EXAMPLES = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs" / "extending.md").read_text("utf-8"), re.M | re.S
)
TOOL, MACHINE = EXAMPLES[:2]
LOST = MACHINE.replace('"answered", END', '"answered", "lost"')

PRINT_TOOLS = "from runs.adapters.tools import OWN; print(sorted(OWN))"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "modules").mkdir()
    return folder


def manage(data_dir: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environ |= {
        "AGENTSITE_DATA_DIR": str(data_dir),
        "REDIS_URL": "",
        "DJANGO_SETTINGS_MODULE": "agentsite.settings",
    }
    command = [sys.executable, "manage.py", *words]
    return subprocess.run(
        command, cwd=ROOT, env=environ | variables, capture_output=True, text=True, check=False
    )


def test_tools_and_machines_are_found_in_the_data_directory(data_dir: Path) -> None:
    (data_dir / "modules" / "shop_tools.py").write_text(TOOL, "utf-8")
    (data_dir / "modules" / "one_answer.py").write_text(MACHINE, "utf-8")
    own = {"AGENTSITE_TOOLS": "shop_tools:TOOL", "AGENTSITE_MACHINES": "one_answer:ONE_ANSWER"}
    shown = manage(data_dir, "machines", "one_answer", **own)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Asks the model once." in shown.stdout
    listed = manage(data_dir, "shell", "-v0", "-c", PRINT_TOOLS, **own)
    assert listed.stdout.strip() == "['stock']", listed.stderr


def test_a_module_there_hides_none_that_is_installed(data_dir: Path) -> None:
    (data_dir / "modules" / "json.py").write_text("raise RuntimeError('hidden')\n", "utf-8")
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
    data_dir: Path, variable: str, words: tuple[str, ...], code: str, line: int, said: str
) -> None:
    file = data_dir / "modules" / "faulty.py"
    file.write_text(code, "utf-8")
    done = manage(data_dir, *words, **{variable: "faulty:X"})
    assert done.returncode == 74
    assert "Traceback" not in done.stderr
    assert variable in done.stderr and said in done.stderr
    assert re.search(rf"{re.escape(str(file))}, line {line}\b", done.stderr), done.stderr


def test_a_fault_two_modules_deep_is_told_where_it_is(data_dir: Path) -> None:
    (data_dir / "modules" / "outer.py").write_text("import inner\n", "utf-8")
    inner = data_dir / "modules" / "inner.py"
    inner.write_text("\n1 / 0\n", "utf-8")
    done = manage(data_dir, "machines", AGENTSITE_MACHINES="outer:X")
    assert f"{inner}, line 2: ZeroDivisionError: division by zero" in done.stderr
