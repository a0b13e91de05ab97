"""Find the faults that can be put into a module: each is one small change of its text."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]

MODULE = "<module>"
"""Stands for the function of a fault that no function holds: it takes effect when the module is imported."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of a module's text. `before` and `after` are the changed lines, each in one line."""

    path: str
    function: str
    line: int
    before: str
    after: str
    start: int
    end: int
    text: str
    lines: tuple[int, int]
    """The first and the last line of the statement, without what it holds: a test that runs none can't notice."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names the fault also after lines above it have moved."""
        return self.path, self.function, self.before, self.after

    def applied(self, source: bytes) -> bytes:
        """Return the module's text with the fault in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def faults_in(path: str, functions: tuple[str, ...] = ("*",)) -> list[Fault]:
    """Return every fault of the module, in the functions that one of the patterns names."""
    return [
        fault
        for fault in faults_of(path, (ROOT / path).read_bytes())
        if any(fnmatchcase(fault.function, pattern) for pattern in functions)
    ]


def faults_of(path: str, source: bytes) -> list[Fault]:
    """Return every fault of a text; some may be none (`is_one`)."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return list(dict.fromkeys(finder.found))


def is_one(fault: Fault, source: bytes | None = None) -> bool:
    """Whether the text with the fault can be compiled."""
    try:
        ast.parse(fault.applied((ROOT / fault.path).read_bytes() if source is None else source))
    except SyntaxError:
        return False
    return True


COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
COMBINED: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
}
NAMES = {"max": "min", "min": "max", "any": "all", "all": "any"}
WORDS = {
    "approve": "reject",
    "reject": "approve",
    "edit": "approve",
    "respond": "reject",
    "finish": "top_up",
    "top_up": "finish",
    "allow": "deny",
    "deny": "allow",
    "ask": "allow",
    "notify": "deny",
    "pass": "fail",
    "stop": "ask",
    "keep": "ask again",
    "answered": "asked",
    "asked": "started",
    "started": "asked",
    "cost_usd": "tokens",
    "tokens": "cost_usd",
}
STATUSES = {
    "QUEUED": "WAITING",
    "RUNNING": "QUEUED",
    "WAITING": "QUEUED",
    "PAUSED": "QUEUED",
    "PENDING": "DECIDED",
    "ANSWERED": "ASKED",
    "ASKED": "STARTED",
    "EXPIRED": "DECIDED",
    "DECIDED": "EXPIRED",
}
IN_SQL = (
    (" + ", " - "),
    (" <> ", " = "),
    ("pg_advisory", "pg_try_advisory"),
    ("THEN 0 ", "THEN 1 "),
    ("REPEATABLE READ", "READ COMMITTED"),
    (" READ ONLY", ""),
)
QUERIES = {"filter", "exclude", "update", "get", "replace", "select_for_update", "Q", "get_or_create"}
KEPT = {"property", "cached_property", "contextmanager", "staticmethod", "classmethod", "dataclass", "wraps"}
"""Decorators without which the function is another thing."""
SAID = {"log", "failpoint", "super()"}
"""What only tells: a log, a test, the text of an exception."""
TEXTS = {"message", "title", "why", "flat", "update_fields"}
"""Arguments that are words for people, or make nothing else."""


class _Finder(ast.NodeVisitor):
    """Walks over a module, and notes what could be another way."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.names: list[str] = []
        self.in_function = 0
        self.statement = (0, 0)
        self.found: list[Fault] = []

    # places

    def _span(self, node: ast.expr | ast.stmt | ast.pattern | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr | ast.stmt | ast.pattern | ast.keyword) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _held(self, node: ast.expr) -> str:
        """The text of an operand, in parentheses where it may need them."""
        plain = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Constant | ast.Subscript)
        return self._text(node) if plain else f"({self._text(node)})"

    def _note(self, node: ast.expr | ast.stmt | ast.pattern | ast.keyword, text: str) -> None:
        self._note_at(*self._span(node), text)

    def _note_at(self, start: int, end: int, text: str) -> None:
        first = self.source.rfind(b"\n", 0, start) + 1
        last = self.source.find(b"\n", end)
        before = self.source[first:last].decode()
        after = self.source[first:start].decode() + text + self.source[end:last].decode()
        function = ".".join(self.names) if self.in_function else MODULE
        line = self.source.count(b"\n", 0, start) + 1
        changed = (_one(before), _one(after), start, end, text)
        self.found.append(Fault(self.path, function, line, *changed, self.statement))

    # walking

    def visit(self, node: ast.AST) -> None:
        """Look at a node; within a statement it is known which lines are its own."""
        around = self.statement
        if isinstance(node, ast.stmt):
            held = getattr(node, "body", None) or getattr(node, "cases", None)
            first = getattr(held[0], "pattern", held[0]) if isinstance(held, list) else None
            last = max(node.lineno, first.lineno - 1) if first is not None else node.end_lineno
            self.statement = (node.lineno, last or node.lineno)
        elif isinstance(node, ast.match_case):
            last = node.guard.end_lineno if node.guard is not None else node.pattern.end_lineno
            self.statement = (node.pattern.lineno, last or node.pattern.lineno)
        super().visit(node)
        self.statement = around

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names.append(node.name)
        for each in node.body:
            self.visit(each)
        self.names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if self.in_function:  # a function within: its faults are those of the one around
            for each in node.body:
                self.visit(each)
            return
        for decorator in node.decorator_list:
            if not {part for part in re.split(r"\W+", self._text(decorator)) if part in KEPT}:
                start, end = self._span(decorator)
                self._note_at(start - 1, end, f"# {_one(self._text(decorator))}")
        self.names.append(node.name)
        self.in_function += 1
        for each in node.body:
            self.visit(each)
        self.in_function -= 1
        self.names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assert(self, node: ast.Assert) -> None:
        """A check of ours, for the types: left as it is."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text for people."""

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            called = self._text(node.value.func)
            if called.split(".")[0] in SAID:
                return
            self._note(node, "pass")
        self.generic_visit(node)

    # conditions

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
            self._note(test, "True")
        self.generic_visit(node)

    def visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self._note(node.guard, "False")
            self._note(node.guard, "True")
        else:
            self._note(node.pattern, f"{self._text(node.pattern)} if False")
        for each in (node.guard, *node.body):
            if each is not None:
                self.visit(each)

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return  # taken away where the `not` itself is looked at
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in COMPARED:
            opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
            sign = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}.get(type(test.ops[0]))
            if sign is None:
                return  # the comparison's own opposite says it
            self._note(test, f"{self._held(test.left)} {opposite[sign]} {self._held(test.comparators[0])}")
            return
        self._note(test, f"not {self._held(test)}")

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        sign = " and " if isinstance(node.op, ast.And) else " or "
        for left_out in node.values:
            rest = [self._held(value) for value in node.values if value is not left_out]
            self._note(node, f"({sign.join(rest)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            other = COMPARED[type(node.ops[0])]
            self._note(node, f"{self._held(node.left)} {other} {self._held(node.comparators[0])}")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.Invert):
            self._note(node, self._held(node.operand))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in COMBINED and not self._is_of_words_or_types(node):
            self._note(node, f"{self._held(node.left)} {COMBINED[type(node.op)]} {self._held(node.right)}")
        self.generic_visit(node)

    def _is_of_words_or_types(self, node: ast.BinOp) -> bool:
        if isinstance(node.op, ast.BitOr | ast.BitAnd):
            return not isinstance(node.right, ast.Call | ast.UnaryOp)
        return any(
            isinstance(each, ast.JoinedStr | ast.List | ast.Tuple)
            or (isinstance(each, ast.Constant) and isinstance(each.value, str))
            for each in (node.left, node.right)
        )

    # values

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool():
                self._note(node, str(not node.value))
            case int():
                self._note(node, str(node.value + 1))
            case float():
                self._note(node, str(node.value * 2 or 1.0))
            case str() as text if text in WORDS:
                self._note(node, repr(WORDS[text]).replace("'", '"'))
            case str() as text if re.search(r"UPDATE |INSERT |SELECT |SET | WHERE | = ", text):
                for part, other in IN_SQL:
                    for found in re.finditer(re.escape(part), self._text(node)):
                        whole = self._text(node)
                        self._note(node, whole[: found.start()] + other + whole[found.end() :])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in STATUSES:
            self._note(node, f"{self._text(node.value)}.{STATUSES[node.attr]}")
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        self._drop_elements(node, "({})")

    def visit_Set(self, node: ast.Set) -> None:
        self._drop_elements(node, "{{{}}}")

    def _drop_elements(self, node: ast.Tuple | ast.Set, form: str) -> None:
        plain = all(isinstance(each, ast.Constant | ast.Attribute) for each in node.elts)
        loaded = isinstance(node, ast.Set) or isinstance(node.ctx, ast.Load)
        if plain and loaded and len(node.elts) > 1:
            for left_out in node.elts:
                rest = [self._text(each) for each in node.elts if each is not left_out]
                self._note(node, form.format(", ".join(rest) + ("," if len(rest) == 1 else "")))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else self._text(node.func)
        if name in NAMES and isinstance(node.func, ast.Name):
            self._note(node.func, NAMES[name])
        if name in QUERIES:
            self._drop_arguments(node)
        else:
            for word in node.keywords:
                if isinstance(word.value, ast.Attribute | ast.Name | ast.Call) and word.arg not in TEXTS:
                    self._note(word.value, "None")
        for each in (node.func, *node.args):
            self.visit(each)
        for word in node.keywords:
            if word.arg not in TEXTS:
                self.visit(word.value)

    def _drop_arguments(self, node: ast.Call) -> None:
        given: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
        for left_out in given:
            own = isinstance(node.func, ast.Name) and node.func.id == "replace" and left_out is given[0]
            if not own:
                rest = ", ".join(self._text(each) for each in given if each is not left_out)
                self._note(node, f"{self._text(node.func)}({rest})")

    # statements

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._note(node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._note(node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.col_offset > 4 * len(self.names):  # an early one: the function goes on
            self._note(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._note(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._note(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._note(node, "pass")

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if item.optional_vars is None:
                self._note(item.context_expr, '__import__("contextlib").nullcontext()')
        self.generic_visit(node)


def _one(lines: str) -> str:
    return " ".join(lines.split())
