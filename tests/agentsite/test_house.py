"""How the tests are kept: helpers stand apart from tests, nobody sleeps, and nothing private is read."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from agentsite.environment import ROOT

TESTS = ROOT / "tests"


class Place(NamedTuple):
    """An expression or an import, and the function or class at the top of the file that holds it."""

    file: str
    function: str
    line: int
    node: ast.AST

    def __repr__(self) -> str:
        return f"{self.file}:{self.line} {ast.unparse(self.node)}"


@cache
def all_places() -> list[Place]:
    """Every attribute, call and import of the tests and their helpers."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        file = str(path.relative_to(TESTS))
        for top in ast.parse(path.read_text(encoding="utf-8")).body:
            function = getattr(top, "name", "")
            found += [
                Place(file, function, node.lineno, node)
                for node in ast.walk(top)
                if isinstance(node, ast.Attribute | ast.Call | ast.Import | ast.ImportFrom)
            ]
    return found


def where(holds: Callable[[ast.AST], bool]) -> list[Place]:
    return [place for place in all_places() if holds(place.node)]


# --- imports ------------------------------------------------------------------------------------------------------


def imports_a_test(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            modules = [one.name for one in names]
        case ast.ImportFrom(module=str(module), names=names):
            modules = [module, *(f"{module}.{one.name}" for one in names)]
        case _:
            return False
    files = [TESTS.parent / f"{name.replace('.', '/')}.py" for name in modules if name.startswith("tests.")]
    return any(file.name.startswith("test_") and file.is_file() for file in files)


def test_no_module_imports_a_test() -> None:
    assert where(imports_a_test) == []
