"""Tables of the expression parser: which node, number operation or function a piece of Python syntax means."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from typing import Any

from . import script
from .expr import Add, Binary, BitAnd, BitOr, BitXor, Compare, Div, Eq, FloorDiv, FloorMod, Fma, Le, Lt, Mul, MulAdd, Ne, Shl, Shr, Sub
from .function_names import FUNCTIONS

BINARY: dict[type[ast.operator], type[Binary]] = {
    ast.Add: Add,
    ast.Sub: Sub,
    ast.Mult: Mul,
    ast.Div: Div,
    ast.FloorDiv: FloorDiv,
    ast.Mod: FloorMod,
    ast.BitAnd: BitAnd,
    ast.BitOr: BitOr,
    ast.BitXor: BitXor,
    ast.LShift: Shl,
    ast.RShift: Shr,
}
COMPARE: dict[type[ast.cmpop], tuple[type[Compare], bool]] = {  # the node, and True if its sides are swapped
    ast.Eq: (Eq, False),
    ast.NotEq: (Ne, False),
    ast.Lt: (Lt, False),
    ast.LtE: (Le, False),
    ast.Gt: (Lt, True),
    ast.GtE: (Le, True),
}
# Operators on Python numbers, which are folded as Python computes them.
NUMBERS: dict[type[Any], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
INTEGER_ONLY = (FloorDiv, FloorMod, BitAnd, BitOr, BitXor, Shl, Shr)
INTEGER_FUNCTIONS = ("abs",)  # functions that exist for integers too
MULTIPLY_ADDS: dict[str, type[Fma]] = {"fma": Fma, "muladd": MulAdd}

# Function names by the identity of the object that a name means; several objects may mean one function.
FUNCTION_NAMES: dict[int, str] = {
    id(getattr(script, n)): n for n in ("cast", "bitcast", "select", *MULTIPLY_ADDS, "min", "max", *FUNCTIONS) if hasattr(script, n)
} | {id(getattr(builtins, n)): n for n in ("min", "max", "abs", "round", "pow")}

# Advice for Python syntax that the language does not have.
HINTS: dict[type[Any], str] = {
    ast.Pow: "multiply, or use sqrt and exp",
    ast.MatMult: "write the loops of the product; `@` is for functions",
    ast.Tuple: "a tuple is allowed only where several values are meant",
    ast.ListComp: "write a loop",
    ast.JoinedStr: 'messages are plain text: check(c, "n is {0}", n)',
}
