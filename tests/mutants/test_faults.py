"""The faults are those that are meant, each is one small change, and the list of equivalents is in order."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.__main__ import equivalents
from tests.mutants.faults import MODULE, ROOT, faults_in, faults_of, is_one
from tests.mutants.subjects import SUBJECTS, TESTS


def changed(line: str) -> set[str]:
    """What becomes of a line within a function, by the faults that are one."""
    source = f"def f():\n    while True:\n        {line}\n    return 0\n".encode()
    found = [fault for fault in faults_of("x.py", source) if fault.line == 3 and is_one(fault, source)]
    return {fault.after for fault in found}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("x = a and b(c)", {"x = (b(c))", "x = (a)"}),
        ("x = a < b", {"x = a <= b"}),
        ("x = not a", {"x = a"}),
        ("x = a is None", {"x = a is not None"}),
        ("x = 3", {"x = 4"}),
        ("x = True", {"x = False"}),
        ('x = "approve"', {'x = "reject"'}),
        ("x = a + b", {"x = a - b"}),
        ("x = max(a, b)", {"x = min(a, b)"}),
        ("run.filter(pk=a, epoch=b)", {"pass", "run.filter(epoch=b)", "run.filter(pk=a)"}),
        ("x = Said(by=a.pk)", {"x = Said(by=None)"}),
        ("x.limit += a", {"pass"}),
        ("x.status = RunStatus.WAITING", {"pass", "x.status = RunStatus.QUEUED"}),
        ("return a", {"pass"}),
        ("raise Fenced(a)", {"pass"}),
        ('x = "SELECT pg_advisory_lock(1)"', {'x = "SELECT pg_try_advisory_lock(1)"'}),
        ('log.info("said")', set()),
        ('x = f"{a}: text"', set()),
    ],
)
def test_a_line_has_these_faults(line: str, wanted: set[str]) -> None:
    assert changed(line) == wanted


def test_conditions_are_negated_guards_closed_and_transactions_left_out() -> None:
    source = b"""
@for_people
def f(x):
    with transaction.atomic():
        if x.ok:
            x.go()
    match x:
        case 1 if x:
            return 2
        case y:
            return 3
"""
    after = {fault.after for fault in faults_of("x.py", source)}
    wanted = ("# for_people", "if not x.ok:", "case 1 if False:", "case 1 if True:", "case y if False:")
    assert after >= {*wanted, 'with __import__("contextlib").nullcontext():'}
    assert [fault.function for fault in faults_of("x.py", source) if "for_people" in fault.after] == [MODULE]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_module_of_a_subject_is_there_and_has_faults(subject: str) -> None:
    for path, functions in SUBJECTS[subject].items():
        assert len(faults_in(path, functions)) >= 2, path
        for pattern in functions:
            assert faults_in(path, (pattern,)), f"{path} has nothing called {pattern}"


def test_the_tests_that_are_asked_are_there() -> None:
    assert [file for file in TESTS if not (ROOT / file).exists()] == []


def test_every_fault_is_another_program() -> None:
    source = (ROOT / "runs/rights.py").read_bytes()
    faults = faults_of("runs/rights.py", source)
    assert len(faults) > 20
    for fault in faults:
        assert ast.dump(ast.parse(fault.applied(source))) != ast.dump(ast.parse(source))


def test_every_fault_that_is_named_as_equivalent_has_a_reason_and_a_place() -> None:
    for (path, function, before, _), why in equivalents().items():
        assert len(why) > 20, why
        known = {(fault.function, fault.before) for fault in faults_in(path)}
        assert (function, before) in known, f"{path} {function} has no such line any more: {before}"
