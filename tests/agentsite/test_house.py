"""How the tests are kept: helpers stand apart from tests, nobody sleeps, and nothing private is read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
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


# --- sleeping -----------------------------------------------------------------------------------------------------

SLEEPERS = {
    ("agentsite/pills.py", "_pill"): "a call that takes long",
    ("agentsite/pills.py", "_work"): "a call that takes long",
    ("agentsite/test_database_away.py", "stay_away"): "a database that is away",
    ("agentsite/test_supervise.py", "until"): "waits for a condition beside other tasks",
    ("agentsite/wearing.py", "suspend"): "a machine that is asleep",
    ("benchmarks/load.py", "answers"): "people who answer at a rate",
    ("benchmarks/load.py", "freezes"): "a worker that is let work between two freezes",
    ("chaos/bench.py", "Bench"): "the pause between two faults",
    ("chaos/far_side.py", "_doze"): "a call that takes long",
    ("chaos/far_side.py", "_toil"): "a call that takes long",
    ("chaos/far_side.py", "slowly"): "a call that takes long",
    ("chaos/freezing.py", "Freezer"): "a machine that is asleep",
    ("chaos/leftovers.py", "lightest"): "looks at a process a few times",
    ("chaos/people.py", "copier"): "acts at a person's pace",
    ("chaos/people.py", "keeper"): "acts at a person's pace",
    ("chaos/people.py", "launcher"): "acts at a person's pace",
    ("chaos/people.py", "meddler"): "acts at a person's pace",
    ("chaos/people.py", "person"): "acts at a person's pace",
    ("chaos/processes.py", "_crowd"): "a worker that has nothing to do",
    ("chaos/processes.py", "_hand"): "a worker that has nothing to do",
    ("chaos/processes.py", "_hinter"): "hints at a rate",
    ("chaos/scenes.py", "_sleep"): "a machine that is asleep",
    ("chaos/times.py", "_kills"): "runs that are let reach their slow calls",
    ("chaos/wiring.py", "unharmed"): "a process whose database is away",
    ("live/fan_out.py", "write"): "writes at a rate",
}
"""Functions that sleep, each with what takes the time. All others wait for a condition (`tests.stack.wait_for`)."""


def sleeps(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[ast.Constant(0)]):
            return False  # it only lets others run
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep")):
            return True
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Attribute(attr="Event")), attr="wait"), args=[_]
        ):
            return True  # an event that nobody sets
        case ast.ImportFrom(module="time" | "asyncio", names=names):
            return any(one.name == "sleep" for one in names)
    return False


def test_nobody_sleeps_but_whoever_takes_time_on_purpose() -> None:
    asleep = where(sleeps)
    assert [place for place in asleep if (place.file, place.function) not in SLEEPERS] == []
    assert {(place.file, place.function) for place in asleep} == set(SLEEPERS)


# --- what is private ----------------------------------------------------------------------------------------------

FOREIGN = {
    "_meta": "Django's documented description of a table",
    "_base_manager": "Django's documented manager of all rows",
    "_default_manager": "Django's documented manager of a table that is not known by name",
    "_after_fork": "Celery forgets its connections by no other name",
    "_fixture_teardown": "Django's, which tests/conftest.py replaces by a quicker one",
    "_should_reload_connections": "the same",
    "_forkserver": "Python's own processes, which its `multiprocessing` names nowhere else",
    "_forkserver_pid": "the same",
    "_pid": "the same",
    "_resource_tracker": "the same",
    "_replace": "a named tuple's documented copy",
    "_asdict": "its documented dictionary",
    "_exit": "the end of a forked process, in Python's `os`",
    "_actions": "argparse lists its options nowhere else",
}
"""Names of other projects that begin with a low line."""

PLANTED = {
    ("chaos/controls.py", "_DUE"): "takes the run of a worker that lives",
    ("chaos/controls.py", "_claimable"): "leaves lost runs to nobody",
    ("chaos/controls.py", "_take_the_seat"): "writes without the seat",
    ("chaos/world.py", "_take_the_seat"): "watches who has the seat",
}
"""Files that read a private name of ours: the faults that chaos plants, and what it does with each."""


@cache
def own_names(file: str) -> set[str]:
    """What a file of the tests defines itself."""
    found = set()
    for node in ast.walk(ast.parse((TESTS / file).read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


def private_names(node: ast.AST) -> Iterator[str]:
    """The private names that an expression or an import takes from somewhere else."""
    match node:
        case ast.Attribute(attr=name):
            names = [name]
        case ast.ImportFrom(names=aliases):
            names = [one.name for one in aliases]
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=args) if called.endswith(
            "attr"
        ):
            names = [
                one.value for one in args if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
        case _:
            return
    yield from (name for name in names if name.startswith("_") and not name.startswith("__"))


def test_nothing_private_is_read_but_what_has_a_reason() -> None:
    read = [
        (place, name)
        for place in all_places()
        for name in private_names(place.node)
        if name not in FOREIGN and name not in own_names(place.file)
    ]
    assert [place for place, name in read if (place.file, name) not in PLANTED] == []
    assert {(place.file, name) for place, name in read} == set(PLANTED)
