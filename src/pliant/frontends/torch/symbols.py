"""Translates sympy expressions over the symbols of torch to expressions over dims, and the guards of an export to conditions.

s0, FloorDiv(s0, 2) + 1      ->      n, n // 2 + 1
"L['x'].size()[1] != 1"      ->      Ne(n, 1)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from ...dtype import i64
from ...support.errors import UnsupportedError
from ...sym.expr import And, Const, Eq, Expr, Le, Lt, Max, Min, Ne, Not, Or, const
from ...sym.simplify import simplify


def _folded(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Returns a function of any number of arguments, at least one, that joins them from the left by a function of two."""

    def fold(*args: Any) -> Any:
        total = args[0]
        for a in args[1:]:
            total = step(total, a)
        return total

    return fold


def wide(value: Any) -> Expr:
    """Returns an integer or an expression as an expression."""
    return value if isinstance(value, Expr) else const(int(value))


def plain(value: Any) -> Any:
    """Returns an expression simplified, or a Python number if it is constant; other values as they are."""
    if not isinstance(value, Expr):
        return value
    simple = simplify(value)
    return simple.value if isinstance(simple, Const) else simple


def _power(base: Any, exponent: Any) -> Any:
    """Returns a power as a product; raises UnsupportedError unless the exponent is an integer of 0 to 8."""
    if not isinstance(exponent, int) or not 0 <= exponent <= 8:
        raise UnsupportedError(f"torch: a size is {base} to the power {exponent}")
    return _folded(lambda a, b: a * b)(1, *[base] * exponent)


_BUILD: dict[str, Callable[..., Any]] = {
    "Add": _folded(lambda a, b: a + b),
    "Mul": _folded(lambda a, b: a * b),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilDiv": lambda a, b: -(-a // b),
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": lambda a, b, c: (a // b) % c,
    "Max": _folded(lambda a, b: Max(wide(a), wide(b))),
    "Min": _folded(lambda a, b: Min(wide(a), wide(b))),
}


def translated(expr: Any, dims: Mapping[str, Any]) -> Any:
    """Returns a sympy expression of sizes as an expression over dims, given by the names of its symbols; an integer if it is constant.

    Raises UnsupportedError for a symbol without a dim, and for functions that sizes do not have.
    """
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        if expr.name not in dims:
            raise UnsupportedError(f"torch: the size {expr.name} is known only at run time, which is not supported here")
        return dims[expr.name]
    name = type(expr).__name__
    if name not in _BUILD:
        raise UnsupportedError(f"torch: the size {str(expr)[:200]} is not supported ({name})")
    return plain(_BUILD[name](*(translated(a, dims) for a in expr.args)))


# Guards.

_COMPARE: dict[type[ast.AST], Callable[[Any, Any], Expr]] = {
    ast.Eq: lambda a, b: Eq(wide(a), wide(b)),
    ast.NotEq: lambda a, b: Ne(wide(a), wide(b)),
    ast.Lt: lambda a, b: Lt(wide(a), wide(b)),
    ast.LtE: lambda a, b: Le(wide(a), wide(b)),
    ast.Gt: lambda a, b: Lt(wide(b), wide(a)),
    ast.GtE: lambda a, b: Le(wide(b), wide(a)),
}
_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: _power,
}


def guard(text: str, sizes: Mapping[str, Any]) -> list[Expr]:
    """Returns the conditions that a guard of an export states, which hold all; `sizes` are dims by their text in guards.

    Raises UnsupportedError for a guard about anything else.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise UnsupportedError(f"torch: the guard `{text[:200]}` cannot be read") from None
    return _conditions(tree, sizes)


def _conditions(tree: ast.expr, sizes: Mapping[str, Any]) -> list[Expr]:
    """Returns the conditions that a parsed guard states, which hold all; raises UnsupportedError for another form."""
    match tree:
        case ast.BoolOp(ast.And(), values):
            return [c for v in values for c in _conditions(v, sizes)]
        case ast.BoolOp(ast.Or(), values):
            parts = [_conditions(v, sizes) for v in values]
            return [_folded(lambda a, b: Or(a, b))(*(_folded(lambda a, b: And(a, b))(*p) for p in parts))]
        case ast.UnaryOp(ast.Not(), operand):
            inner = _conditions(operand, sizes)
            if len(inner) == 1:
                return [Not(inner[0])]
        case ast.Compare(left, operators, rights):
            sides = [_side(s, sizes) for s in (left, *rights)]
            return [_COMPARE[type(op)](a, b) for op, a, b in zip(operators, sides, sides[1:], strict=False)]
    raise UnsupportedError(f"torch: the guard `{ast.unparse(tree)[:200]}` is not supported")


def _side(tree: ast.expr, sizes: Mapping[str, Any]) -> Any:
    """Returns one side of a comparison in a guard, a number or an expression; raises UnsupportedError for a term that is no size."""
    text = ast.unparse(tree)
    if text in sizes:
        return sizes[text]
    match tree:
        case ast.Constant(int() as value):
            return value
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_side(left, sizes), _side(right, sizes))
        case ast.UnaryOp(ast.USub(), operand):
            return -_side(operand, sizes)
        case ast.Call(ast.Name(name), args, []) if name in _BUILD:
            return _BUILD[name](*(_side(a, sizes) for a in args))
        case ast.Call(ast.Name("max" | "min" as name), args, []):
            return _BUILD[name.capitalize()](*(_side(a, sizes) for a in args))
    raise UnsupportedError(f"torch: the guard's term `{text[:200]}` is not supported")


def is_i64(value: Any) -> bool:
    """True for what can be a size: an integer, or an i64 expression."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, Expr) and value.dtype is i64)
