"""Symbolic scalar expressions (hash-consed): those of shapes, indices and element values. Grammar and semantics.

Grammar (`e` has a dtype; operands of one node have the same dtype unless said; nothing is cast implicitly):

    e = Const(value)                       literal, keyed by dtype and bits: 0, 0.0, -0.0, False differ
      | Var(name)                          one variable; two variables may share a name
      | Dim(name, min, max, multiple_of)   a Var whose values are known to lie in min..max and to be multiples
      | Add(a, b) | Sub(a, b) | Mul(a, b)
      | Div(a, b)                          floats
      | FloorDiv(a, b) | FloorMod(a, b)    integers
      | Min(a, b) | Max(a, b)
      | BitAnd(a, b) | BitOr(a, b) | BitXor(a, b) | Shl(a, b) | Shr(a, b)     integers
      | Neg(a) | BitNot(a)
      | Eq(a, b) | Ne(a, b) | Lt(a, b) | Le(a, b)        -> bool
      | And(a, b) | Or(a, b) | Not(a)                    bool -> bool
      | Select(c, a, b)                    c is bool
      | Fma(a, b, c)                       a*b + c with one rounding; floats
      | MulAdd(a, b, c)                    the same value; says that two roundings would do as well
      | Cast(a) | Bitcast(a)               to the node's dtype
      | Call(fn, args)                     a function of FUNCTIONS, or its form of UNFUSED
      | Load(buffer, indices)              an element of a buffer; lives in loop programs only (loop/buffer.py)

Semantics, the same for all targets:
- Integers wrap modulo 2^bits. `a // b` and `a % b` round towards minus infinity (the remainder has the divisor's sign);
  by zero both are 0; `min // -1` wraps to `min`. `a >> b` is arithmetic for signed types; a shift by `bits` or more, or
  by a negative number, shifts everything out.
- Floats are IEEE 754, round to nearest even, no contraction, no reassociation, denormals kept. f16 and bf16 results are
  those of the f32 operation rounded once more.
- `min`/`max` of floats: NaN if either is NaN; -0.0 < +0.0. Comparisons with NaN are false, except `!=`.
- `select` evaluates only the arm that it takes: a load in the other arm does not happen. `and`/`or` evaluate their right side only
  when it decides.
- Casts: integer to integer wraps; float to integer truncates, saturates at the target's range, and takes NaN to 0; to
  float rounds to nearest even; to bool is `!= 0`; from bool gives 0 or 1. `bitcast` keeps the bits of a same-width type.
- `round` rounds halves to even. PRIMITIVE_FUNCTIONS are correctly rounded; the others are defined by an expansion into
  the rest of this grammar (`sym/functions/`), which is their meaning on every target.
- A machine without fused multiply-add gets another program (`sym/unfuse.py`): `MulAdd(a, b, c)` becomes `Add(Mul(a, b), c)`, and a
  function its form without FMA, `Call("exp.unfused", x)`, written `exp(x, fused=False)`. An `Fma` has one rounding everywhere.

Expressions are hash-consed: structurally equal means the same object, so `==` is identity, and walks memoize on nodes.
Python operators on expressions build expressions and fold integer constants; the classes build exactly the node that they name.

    >>> n = Var("n", i64); str((n + 1) * 4 // 2)
    '(n + 1) * 4 // 2'
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar

from ..dtype import DType, bool_, f32, i64
from ..support.errors import Error, InternalError
from .float_bits import bits_float, float_bits
from .function_names import ARITIES
from .hash_consing import hash_consed
from .walk import fold_up, rewrite

_uids = itertools.count()  # the identities of variables, which order them by age


class Expr:
    """Base class of expression nodes: a typed symbolic scalar; immutable and hash-consed."""

    __slots__ = ("__weakref__", "args", "dtype", "key", "memo", "payload")
    key: tuple[Any, ...]
    dtype: DType
    args: tuple[Expr, ...]  # operands
    payload: Any  # what else identifies the node: a literal's bits, a variable's identity, a function's name, a buffer
    memo: dict[Any, Any] | None  # results of walks that depend on this node alone
    symbol: ClassVar[str] = ""
    precedence: ClassVar[int] = 100

    def __setattr__(self, name: str, value: object) -> None:
        if name != "memo":
            raise InternalError(f"expressions are immutable: cannot set `{name}`")
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (hash_consed, (type(self), self.dtype, self.payload, self.args))

    def with_args(self, args: tuple[Expr, ...]) -> Expr:
        """Returns this node over other operands (of the same dtypes)."""
        return self if args == self.args else hash_consed(type(self), self.dtype, self.payload, args)

    def __repr__(self) -> str:
        from .text import text  # imported here: it prints the classes of this module

        return text(self)

    def __bool__(self) -> bool:
        from ..support.source import caller_span

        help_ = "inside kernels and functions it can be a condition; for shapes there are select, min and max of pliant.sym.script"
        raise Error(f"`{self}` is known only at run time: it is neither true nor false here", where=caller_span(), help=help_)

    # Python operators: for writing shapes and building programs. `==` stays identity.
    def __add__(self, other: Expr | float) -> Expr:
        return binary(Add, self, other)

    def __radd__(self, other: float) -> Expr:
        return binary(Add, other, self)

    def __sub__(self, other: Expr | float) -> Expr:
        return binary(Sub, self, other)

    def __rsub__(self, other: float) -> Expr:
        return binary(Sub, other, self)

    def __mul__(self, other: Expr | float) -> Expr:
        return binary(Mul, self, other)

    def __rmul__(self, other: float) -> Expr:
        return binary(Mul, other, self)

    def __truediv__(self, other: Expr | float) -> Expr:
        return binary(Div, self, other)

    def __rtruediv__(self, other: float) -> Expr:
        return binary(Div, other, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return binary(FloorDiv, self, other)

    def __rfloordiv__(self, other: int) -> Expr:
        return binary(FloorDiv, other, self)

    def __mod__(self, other: Expr | int) -> Expr:
        return binary(FloorMod, self, other)

    def __rmod__(self, other: int) -> Expr:
        return binary(FloorMod, other, self)

    def __neg__(self) -> Expr:
        return Neg(self)

    def __lt__(self, other: Expr | float) -> Expr:
        return binary(Lt, self, other)

    def __le__(self, other: Expr | float) -> Expr:
        return binary(Le, self, other)

    def __gt__(self, other: Expr | float) -> Expr:
        return binary(Lt, other, self)

    def __ge__(self, other: Expr | float) -> Expr:
        return binary(Le, other, self)


class Const(Expr):
    """A literal; `value` is a bool, an int or a float that the dtype holds exactly."""

    __slots__ = ()

    def __new__(cls, value: float, dtype: DType) -> Const:
        if dtype.is_float:
            return hash_consed(cls, dtype, float_bits(float(value), dtype), ())
        value = bool(value) if dtype is bool_ else dtype.wrap(int(value))
        return hash_consed(cls, dtype, value, ())

    @property
    def value(self) -> Any:
        """The literal as a Python bool, int or float."""
        if not self.dtype.is_float:
            return self.payload
        return bits_float(self.payload, self.dtype)


class Var(Expr):
    """A variable: a dim, a loop variable, a block iterator, a let or a scalar parameter."""

    __slots__ = ()

    def __new__(cls, name: str, dtype: DType = i64) -> Var:
        return hash_consed(cls, dtype, (name, next(_uids)), ())

    @property
    def name(self) -> str:
        """The name of the variable; not unique."""
        return str(self.payload[0])


DIM_MAX = 2**31 - 1  # the product of two dims fits i64


class Dim(Var):
    """A dimension of a model: an i64 variable with the range and the divisibility that its declaration states."""

    __slots__ = ()

    def __new__(cls, name: str, min: int = 0, max: int = DIM_MAX, multiple_of: int = 1) -> Dim:
        return hash_consed(cls, i64, (name, next(_uids), min, max, multiple_of), ())

    @property
    def min(self) -> int:
        """The smallest value that the contract allows."""
        return int(self.payload[2])

    @property
    def max(self) -> int:
        """The largest value that the contract allows."""
        return int(self.payload[3])

    @property
    def multiple_of(self) -> int:
        """A number that divides every allowed value."""
        return int(self.payload[4])

    @property
    def contract(self) -> str:
        """The allowed values as text: `n in 1..2048 step 8`."""
        return f"{self.name} in {self.min}..{self.max}" + (f" step {self.multiple_of}" if self.multiple_of > 1 else "")


class Unary(Expr):
    """Base class of nodes with one operand, whose dtype is the result's too."""

    __slots__ = ()

    def __new__(cls, a: Expr) -> Unary:
        return hash_consed(cls, a.dtype, None, (a,))


class Binary(Expr):
    """Base class of nodes with two operands of one dtype, which is also the result's."""

    __slots__ = ()
    commutative: ClassVar[bool] = False

    def __new__(cls, a: Expr, b: Expr) -> Binary:
        if a.dtype is not b.dtype:
            raise InternalError(f"{cls.__name__} of {a.dtype} and {b.dtype}: {a} and {b}")
        return hash_consed(cls, a.dtype, None, (a, b))


class Compare(Binary):
    """Base class of comparisons; the result is bool for operands of any dtype."""

    __slots__ = ()
    precedence: ClassVar[int] = 4

    def __new__(cls, a: Expr, b: Expr) -> Compare:
        if a.dtype is not b.dtype:
            raise InternalError(f"{cls.__name__} of {a.dtype} and {b.dtype}: {a} and {b}")
        return hash_consed(cls, bool_, None, (a, b))


class Add(Binary):
    __slots__ = ()
    symbol, precedence, commutative = "+", 9, True


class Sub(Binary):
    __slots__ = ()
    symbol, precedence = "-", 9


class Mul(Binary):
    __slots__ = ()
    symbol, precedence, commutative = "*", 10, True


class Div(Binary):
    __slots__ = ()
    symbol, precedence = "/", 10


class FloorDiv(Binary):
    __slots__ = ()
    symbol, precedence = "//", 10


class FloorMod(Binary):
    __slots__ = ()
    symbol, precedence = "%", 10


class Min(Binary):
    __slots__ = ()
    symbol, commutative = "min", True


class Max(Binary):
    __slots__ = ()
    symbol, commutative = "max", True


class BitAnd(Binary):
    __slots__ = ()
    symbol, precedence, commutative = "&", 7, True


class BitXor(Binary):
    __slots__ = ()
    symbol, precedence, commutative = "^", 6, True


class BitOr(Binary):
    __slots__ = ()
    symbol, precedence, commutative = "|", 5, True


class Shl(Binary):
    __slots__ = ()
    symbol, precedence = "<<", 8


class Shr(Binary):
    __slots__ = ()
    symbol, precedence = ">>", 8


class Eq(Compare):
    __slots__ = ()
    symbol, commutative = "==", True


class Ne(Compare):
    __slots__ = ()
    symbol, commutative = "!=", True


class Lt(Compare):
    __slots__ = ()
    symbol = "<"


class Le(Compare):
    __slots__ = ()
    symbol = "<="


class And(Binary):
    __slots__ = ()
    symbol, precedence = "and", 2


class Or(Binary):
    __slots__ = ()
    symbol, precedence = "or", 1


class Not(Unary):
    __slots__ = ()
    symbol, precedence = "not ", 3


class Neg(Unary):
    __slots__ = ()
    symbol, precedence = "-", 11


class BitNot(Unary):
    __slots__ = ()
    symbol, precedence = "~", 11


class Select(Expr):
    """A node with the value `a` if `c` holds, else `b`; the other arm is not evaluated."""

    __slots__ = ()
    symbol = "select"

    def __new__(cls, c: Expr, a: Expr, b: Expr) -> Select:
        if c.dtype is not bool_ or a.dtype is not b.dtype:
            raise InternalError(f"select of {c.dtype}, {a.dtype}, {b.dtype}")
        return hash_consed(cls, a.dtype, None, (c, a, b))


class Fma(Expr):
    """A node with the value `a * b + c`, rounded once."""

    __slots__ = ()
    symbol = "fma"

    def __new__(cls, a: Expr, b: Expr, c: Expr) -> Fma:
        if not (a.dtype is b.dtype is c.dtype and a.dtype.is_float):
            raise InternalError(f"fma of {a.dtype}, {b.dtype}, {c.dtype}")
        return hash_consed(cls, a.dtype, None, (a, b, c))


class MulAdd(Fma):
    """A node with the value `a * b + c`, rounded once; `unfuse` turns it into a product and a sum for machines without FMA."""

    __slots__ = ()
    symbol = "muladd"


class Cast(Expr):
    """A node with the value of `a` converted to another dtype."""

    __slots__ = ()

    def __new__(cls, dtype: DType, a: Expr) -> Cast:
        return hash_consed(cls, dtype, None, (a,))


class Bitcast(Expr):
    """A node with the bits of `a` as another dtype of the same width."""

    __slots__ = ()

    def __new__(cls, dtype: DType, a: Expr) -> Bitcast:
        if dtype.bits != a.dtype.bits:
            raise InternalError(f"bitcast of {a.dtype} to {dtype}")
        return hash_consed(cls, dtype, None, (a,))


class Call(Expr):
    """A node that applies a math function of FUNCTIONS, or a form of UNFUSED, to operands of one dtype."""

    __slots__ = ()

    def __new__(cls, fn: str, *args: Expr) -> Call:
        if ARITIES.get(fn) != len(args):
            raise InternalError(f"no function `{fn}` of {len(args)} arguments")
        return hash_consed(cls, args[0].dtype, fn, args)

    @property
    def fn(self) -> str:
        """The name of the called math function."""
        return str(self.payload)


TRUE, FALSE = Const(True, bool_), Const(False, bool_)


def const(value: float, dtype: DType = i64) -> Const:
    """Returns a literal of the dtype, i64 by default."""
    return Const(value, dtype)


def wrap(value: Expr | float, like: DType | None = None) -> Expr:
    """`value` as an expression; a Python number becomes a literal of `like` (by default bool, i64 or f32)."""
    if isinstance(value, Expr):
        return value
    if like is None:
        like = bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f32
    return Const(value, like)


# Integer operations that are folded at construction; the result is wrapped to the dtype by `Const`.
_FOLD: dict[type[Expr], Callable[[int, int], int | bool]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // b if b else 0,
    FloorMod: lambda a, b: a % b if b else 0,
    Min: min,
    Max: max,
    Lt: lambda a, b: a < b,
    Le: lambda a, b: a <= b,
    Eq: lambda a, b: a == b,
    Ne: lambda a, b: a != b,
}


def binary(cls: type[Binary], a: Expr | float, b: Expr | float) -> Expr:
    """`cls(a, b)` with Python numbers wrapped; folds integer constants and neutral elements."""
    if not isinstance(a, Expr):
        a = wrap(a, b.dtype if isinstance(b, Expr) else None)
    b = wrap(b, a.dtype)
    if a.dtype.is_int:
        if isinstance(a, Const) and isinstance(b, Const) and cls in _FOLD:
            result = _FOLD[cls](a.value, b.value)
            return Const(result, bool_ if issubclass(cls, Compare) else a.dtype)
        if isinstance(b, Const) and ((b.value == 0 and cls in (Add, Sub)) or (b.value == 1 and cls in (Mul, FloorDiv))):
            return a
        if isinstance(a, Const) and ((a.value == 0 and cls is Add) or (a.value == 1 and cls is Mul)):
            return b
        if cls is Mul and ((isinstance(a, Const) and a.value == 0) or (isinstance(b, Const) and b.value == 0)):
            return Const(0, a.dtype)
    return cls(a, b)


def product(factors: tuple[Expr, ...]) -> Expr:
    """Returns the product of i64 factors as an expression; 1 if there are none."""
    result: Expr = Const(1, i64)
    for f in factors:
        result = result * f
    return result


def free_vars(e: Expr) -> frozenset[Var]:
    """Returns the variables that occur in `e` (memoized)."""
    variables: frozenset[Var] = fold_up(e, "free", _free)
    return variables


def _free(e: Expr, below: list[frozenset[Var]]) -> frozenset[Var]:
    """The free variables of a node from those of its operands."""
    return frozenset((e,)) if isinstance(e, Var) else frozenset().union(*below)


def substitute(e: Expr, values: dict[Var, Expr]) -> Expr:
    """Returns `e` with variables replaced by expressions, all at once."""
    if not values or free_vars(e).isdisjoint(values):
        return e
    return rewrite(e, lambda node: values.get(node) if isinstance(node, Var) else None)
