"""Load what a name such as `package.module:NAME` leads to: a site's own tools and machines.

A fault in such a module is told with the file and line that its author can mend.
"""

from __future__ import annotations

import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

HERE = Path(__file__).parent
OTHERS = (*(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), str(HERE))
"""Folders of code that the author of a module has not written."""


class CannotLoad(Exception):
    """Nothing can be loaded under a name; the text says why, as a part of a sentence."""


def load(name: str) -> Any:
    """Return the object at `package.module:NAME`. Raises `CannotLoad`, whatever the module raises."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as fault:
        raise CannotLoad(_why(fault)) from fault


def look_in(folder: Path) -> None:
    """Find modules in a folder too, after all installed ones."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _why(fault: Exception) -> str:
    """Return the fault, with its place where a module of a person's own has one."""
    if isinstance(fault, SyntaxError) and fault.filename:
        return f"{fault.filename}, line {fault.lineno}: {fault.msg}"
    said = " ".join(str(fault).split()) or "it says no more"
    kind = "" if isinstance(fault, ImportError | AttributeError) else f"{type(fault).__name__}: "
    frames = [frame for frame in extract_tb(fault.__traceback__) if not _is_of_others(frame.filename)]
    where = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    return f"{where}{kind}{said}"


def _is_of_others(file: str) -> bool:
    return file.startswith("<") or any(Path(file).is_relative_to(folder) for folder in OTHERS)
