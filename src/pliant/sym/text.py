"""Expressions as text in Python syntax, which parses back to the same expression.

A literal is printed bare if its context implies its dtype, else as `f32(0.5)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..dtype import DType, bool_, i64
from .expr import Binary, Bitcast, Call, Cast, Compare, Const, Expr, Fma, Le, Lt, Select, Unary, Var
from .float_bits import float_bits
from .hash_consing import memo_of
from .walk import fold_up


def number_text(c: Const) -> str:
    """The shortest decimal text that parses back to this literal's value."""
    value = c.value
    if not c.dtype.is_float:
        return str(value)
    if math.isinf(value) or math.isnan(value):
        return str(value)
    for digits in range(1, 18):
        shown = f"{value:.{digits}g}"
        if float_bits(float(shown), c.dtype) == c.payload:
            return repr(float(shown))
    return repr(value)


def text(e: Expr, expect: DType | None = i64, names: Callable[[Expr], str] | None = None, outer: int = 0) -> str:
    """Returns `e` in Python syntax; `expect` is the dtype that a bare literal has here, `names` prints variables and loads.

    It is in parentheses if its precedence is below `outer`.
    """
    if names is not None:
        return _text(e, expect, names, outer)
    memo, key = memo_of(e), ("text", expect, outer)
    shown: str | None = memo.get(key)
    if shown is None:
        shown = memo[key] = _text(e, expect, None, outer)
    return shown


def _text(e: Expr, expect: DType | None, names: Callable[[Expr], str] | None, outer: int) -> str:
    """Returns what `text` returns, but does not memoize it; if `expect` is None, no number is bare."""
    if isinstance(e, Const):
        if e.dtype is bool_:
            return str(e.value)
        shown = number_text(e)
        return shown if expect is e.dtype and not (shown[0] == "-" and outer > 10) else f"{e.dtype}({shown})"
    if names is not None and (isinstance(e, Var) or not type(e).__module__.endswith("sym.expr")):
        return names(e)
    if isinstance(e, Var):
        return e.name
    if hasattr(e.payload, "name"):  # a load: the payload is a buffer
        return f"{e.payload.name}[{', '.join(text(a) for a in e.args)}]"
    shown = _text_op(e, expect, names)
    return f"({shown})" if e.precedence < outer else shown


def _says_dtype(e: Expr) -> bool:
    """True if the text of `e` implies its dtype when its literals are printed bare (memoized)."""
    answer: bool = fold_up(e, "says", _says)
    return answer


def _says(e: Expr, below: list[bool]) -> bool:
    """Returns `_says_dtype` of a node from that of its operands."""
    if isinstance(e, Const):
        return e.dtype is bool_
    if isinstance(e, Select):
        return below[1] or below[2]
    if isinstance(e, Unary | Binary | Fma | Call) and not isinstance(e, Compare):
        return any(below)
    return True


def _text_op(e: Expr, expect: DType | None, names: Callable[[Expr], str] | None) -> str:
    """Returns the Python text of an operation, with its operands in parentheses where precedence needs them."""
    if isinstance(e, Cast | Bitcast):
        return f"{type(e).__name__.lower()}({e.dtype}, {text(e.args[0], None, names)})"
    if isinstance(e, Select):
        wanted = e.dtype if expect is e.dtype or _says_dtype(e) else None
        arms = ", ".join(text(a, wanted, names) for a in e.args[1:])
        return f"select({text(e.args[0], None, names)}, {arms})"
    if isinstance(e, Unary):
        if isinstance(e.args[0], Const):  # -1 is a literal, -i64(1) an operation
            return f"{e.symbol}{text(e.args[0], None, names, 100)}"
        return f"{e.symbol}{text(e.args[0], expect, names, e.precedence)}"
    sides = e.args[0].dtype if isinstance(e, Compare) else e.dtype
    known = any(_says_dtype(a) for a in e.args) or (expect is sides and not isinstance(e, Compare))
    wanted = sides if known else None
    if isinstance(e, Binary):
        first, second = e.args
        if isinstance(first, Const) and isinstance(second, Const):  # 2 + 3 would be parsed as 5
            wanted = None
        if not e.symbol.isalpha() or e.symbol in ("and", "or"):
            p, symbol = e.precedence, e.symbol
            if isinstance(e, Lt | Le) and isinstance(first, Const) and not isinstance(second, Const):  # x > 0, not 0 < x
                first, second, symbol = second, first, symbol.replace("<", ">")
            return f"{text(first, wanted, names, p + isinstance(e, Compare))} {symbol} {text(second, wanted, names, p + 1)}"
        return f"{e.symbol}({text(first, wanted, names)}, {text(second, wanted, names)})"
    shown = ", ".join(text(a, wanted, names) for a in e.args)
    if isinstance(e, Call):
        name, _, form = e.fn.partition(".")
        return f"{name}({shown}, fused=False)" if form else f"{name}({shown})"
    return f"{e.symbol or type(e).__name__}({shown})"
