"""A site with modules of its own in its data directory, and `manage.py` on it in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from agentsite.environment import ROOT

TOOL, MACHINE = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs" / "extending.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)[:2]
"""The examples of docs/extending.md: `shop_tools:TOOL` and `one_answer:ONE_ANSWER`."""


def data_dir_with(folder: Path, **modules: str) -> Path:
    """Return a data directory in the folder, with these modules."""
    data_dir = folder / "data"
    data_dir.mkdir(mode=0o700)
    (data_dir / "modules").mkdir()
    for name, code in modules.items():
        (data_dir / "modules" / f"{name}.py").write_text(code, "utf-8")
    return data_dir


def manage(data_dir: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command there, without `PYTHONPATH`."""
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
