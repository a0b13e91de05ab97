"""Arithmetic on one line of text, bounded in time and size."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from pydantic import Field

from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError

MAX_BITS = 4_096
"""Size of the largest integer; about 1,200 digits."""

Number = int | float
Value = int | float | bool


class CalculatorArguments(Arguments):
    """The expression."""

    expression: str = Field(
        min_length=1,
        max_length=500,
        description="Such as (2 + 3) * 4 ** 2. It knows + - * / // % ** and sqrt, round, min, max, abs.",
    )


class NotArithmetic(ToolError):
    """A text that is no arithmetic, or has no answer."""

    def __init__(self, expression: str, why: str) -> None:
        self.expression, self.why = expression, why
        super().__init__(f"{expression!r} can't be calculated: {why}.")


class ResultTooLarge(ToolError):
    """Too large a number."""

    def __init__(self) -> None:
        super().__init__(f"The result, or a part of it, is larger than a number of {MAX_BITS} bits.")


def calculate(expression: str) -> Value:
    """Return the value of `expression`."""
    from simpleeval import InvalidExpression

    # Models write powers and signs as people do.
    plain = expression.replace("^", "**").replace("×", "*").replace("÷", "/").replace("−", "-").strip()
    try:
        value = _evaluator().eval(plain, previously_parsed=ast.parse(plain, mode="eval").body)
    except ToolError:
        raise
    except InvalidExpression as error:
        raise NotArithmetic(expression, str(error).rstrip(".")) from None
    except SyntaxError:
        raise NotArithmetic(expression, "it is not written as one expression") from None
    except ZeroDivisionError:
        raise NotArithmetic(expression, "it divides by zero") from None
    except OverflowError:
        raise ResultTooLarge from None
    except (RecursionError, MemoryError):
        raise NotArithmetic(expression, "it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise NotArithmetic(expression, str(error).rstrip(".")) from None
    number: Value = _checked(value)
    return _plain(number)


EXACT = 2**53
"""Up to here a float without a fraction is exactly an integer."""


def _plain(number: Value) -> Value:
    """Return whole floats as integers: 144 / 12 is 12, as people write it, and not 12.0."""
    whole = isinstance(number, float) and number.is_integer() and abs(number) <= EXACT
    return int(number) if whole else number


def _evaluator() -> Any:
    from simpleeval import SimpleEval

    evaluator = SimpleEval(operators=_OPERATORS, functions=_FUNCTIONS, names={"pi": math.pi, "e": math.e})
    # Only arithmetic: text, attributes, indexes and formats have their own ways to grow.
    evaluator.nodes = {kind: evaluator.nodes[kind] for kind in _NODES} | {ast.Constant: _constant}
    return evaluator


def _constant(node: ast.Constant) -> Number:
    number: Number = _checked(node.value)
    return number


def _checked(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value.bit_length() <= MAX_BITS:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, int | float):
        raise ResultTooLarge
    raise TypeError("only real numbers are known here")


def _bounded(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return `operation` on checked numbers: their size is bounded, so one more step can't be large."""

    def apply(*numbers: Any) -> Any:
        return _checked(operation(*map(_checked, numbers)))

    return apply


def _power(base: Number, exponent: Number) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1
    if whole and int(base).bit_length() * abs(exponent) > 2 * MAX_BITS:
        raise ResultTooLarge
    return base**exponent


def _rounded(number: Number, digits: int = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > 300:
        raise ValueError("round takes a whole number of digits, at most 300")
    return round(number, digits) if digits else round(number)


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: _bounded(operator.add),
    ast.Sub: _bounded(operator.sub),
    ast.Mult: _bounded(operator.mul),
    ast.Div: _bounded(operator.truediv),
    ast.FloorDiv: _bounded(operator.floordiv),
    ast.Mod: _bounded(operator.mod),
    ast.Pow: _bounded(_power),
    ast.USub: _bounded(operator.neg),
    ast.UAdd: _bounded(operator.pos),
    ast.Eq: _bounded(operator.eq),
    ast.NotEq: _bounded(operator.ne),
    ast.Gt: _bounded(operator.gt),
    ast.Lt: _bounded(operator.lt),
    ast.GtE: _bounded(operator.ge),
    ast.LtE: _bounded(operator.le),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": _bounded(math.sqrt),
    "round": _bounded(_rounded),
    "min": _bounded(min),
    "max": _bounded(max),
    "abs": _bounded(abs),
}
_NODES = (ast.Expr, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Call, ast.Name)


def _run(arguments: CalculatorArguments, place: Place) -> Result:
    return Result(calculate(arguments.expression))


TOOL = Tool(
    name="calculator",
    description="Calculates an arithmetic expression exactly and gives the number.",
    arguments=CalculatorArguments,
    effects="none",
    idempotent=True,
    deadline_s=2,
    run=_run,
)
