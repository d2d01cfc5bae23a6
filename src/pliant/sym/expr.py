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
import math
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from ..dtype import DType, bool_, f32, i64
from ..support.errors import Error, InternalError
from ..support.memos import when_forgetting

_table: dict[tuple[Any, ...], weakref.ref[Expr]] = {}  # the hash-consing table
_lock = threading.RLock()  # held while the table is changed
_FEW = 1 << 14  # a table smaller than this is not worth sweeping
_room = _FEW  # the table is swept when it grows beyond this
_uids = itertools.count()  # the identities of variables, which order them by age


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _sweep() -> None:
    """Removes the entries of dead expressions from the table.

    It is no finalizer, because Python drops exceptions raised in one, a Ctrl-C among them. An entry holds its operands, whose entries are
    older, so one walk from the youngest to the oldest finds all dead entries.
    """
    global _room
    keys = list(_table)
    while keys:
        key = keys.pop()
        if _table[key]() is None:
            del _table[key]
    _room = max(_FEW, 2 * len(_table))


@when_forgetting
def _forget() -> None:
    with _lock:
        _sweep()


class Expr:
    """A typed symbolic scalar; immutable and hash-consed."""

    __slots__ = ("__weakref__", "args", "dtype", "key", "memo", "payload")
    key: tuple[Any, ...]
    dtype: DType
    args: tuple[Expr, ...]  # operands
    payload: Any  # what else identifies the node: a literal's bits, a variable's identity, a function's name, a buffer
    memo: dict[Any, Any] | None  # results of walks that depend on this node alone
    symbol: ClassVar[str] = ""
    precedence: ClassVar[int] = 100

    def __new__(cls, dtype: DType, payload: Any, args: tuple[Expr, ...]) -> Expr:
        key = (cls, dtype, payload, args)
        entry = _table.get(key)
        if entry is not None:
            node = entry()
            if node is not None:
                return node
        node = object.__new__(cls)
        set_ = object.__setattr__
        set_(node, "dtype", dtype)
        set_(node, "payload", payload)
        set_(node, "args", args)
        set_(node, "key", key)
        set_(node, "memo", None)
        with _lock:
            raced = _table.get(key)
            first = None if raced is entry or raced is None else raced()
            if first is not None:  # another thread has created it meanwhile
                return first
            _table[key] = weakref.ref(node)
            if len(_table) > _room:
                _sweep()
        return node

    def __setattr__(self, name: str, value: object) -> None:
        if name == "memo":
            object.__setattr__(self, name, value)
            return
        raise InternalError(f"expressions are immutable: cannot set `{name}`")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (type(self), self.dtype, self.payload, self.args))

    def with_args(self, args: tuple[Expr, ...]) -> Expr:
        """This node over other operands (of the same dtypes)."""
        if args == self.args:
            return self
        return Expr.__new__(type(self), self.dtype, self.payload, args)

    def __repr__(self) -> str:
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


def _restore(cls: type[Expr], dtype: DType, payload: Any, args: tuple[Expr, ...]) -> Expr:
    """Rebuilds an expression when it is unpickled."""
    return Expr.__new__(cls, dtype, payload, args)


_PACK = {16: "<e", 32: "<f", 64: "<d"}  # codes of `struct` by width


class Const(Expr):
    """A literal; `value` is a bool, an int or a float that the dtype holds exactly."""

    __slots__ = ()

    def __new__(cls, value: float, dtype: DType) -> Const:
        if dtype.is_float:
            return Expr.__new__(cls, dtype, float_bits(float(value), dtype), ())  # type: ignore[return-value]
        value = bool(value) if dtype is bool_ else dtype.wrap(int(value))
        return Expr.__new__(cls, dtype, value, ())  # type: ignore[return-value]

    @property
    def value(self) -> Any:
        """The literal as a Python bool, int or float."""
        if not self.dtype.is_float:
            return self.payload
        return bits_float(self.payload, self.dtype)


def float_bits(value: float, dtype: DType) -> int:
    """The bit pattern of `value` rounded to the float type `dtype`."""
    if math.isnan(value):
        value = math.nan
    if dtype.name == "bf16":
        bits = int.from_bytes(_pack_f32(value), "little")
        return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 if not math.isnan(value) else 0x7FC0
    if dtype.bits == 32:
        return int.from_bytes(_pack_f32(value), "little")
    try:
        return int.from_bytes(struct.pack(_PACK[dtype.bits], value), "little")
    except OverflowError:  # f16
        return int.from_bytes(struct.pack("<e", math.copysign(math.inf, value)), "little")


def _pack_f32(value: float) -> bytes:
    """The bytes of an f32; overflow gives infinity."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def bits_float(bits: int, dtype: DType) -> float:
    """The value of a bit pattern of the float type `dtype`."""
    if dtype.name == "bf16":
        return float(struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0])
    return float(struct.unpack(_PACK[dtype.bits], bits.to_bytes(dtype.bits // 8, "little"))[0])


class Var(Expr):
    """A variable: a dim, a loop variable, a block iterator, a let or a scalar parameter."""

    __slots__ = ()

    def __new__(cls, name: str, dtype: DType = i64) -> Var:
        return Expr.__new__(cls, dtype, (name, next(_uids)), ())  # type: ignore[return-value]

    @property
    def name(self) -> str:
        """The name of the variable; not unique."""
        return str(self.payload[0])


DIM_MAX = 2**31 - 1  # the product of two dims fits i64


class Dim(Var):
    """A dimension of a model: an i64 variable with the range and the divisibility that its declaration states."""

    __slots__ = ()

    def __new__(cls, name: str, min: int = 0, max: int = DIM_MAX, multiple_of: int = 1) -> Dim:
        return Expr.__new__(cls, i64, (name, next(_uids), min, max, multiple_of), ())  # type: ignore[return-value]

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
    """A node with one operand, of the operand's dtype."""

    __slots__ = ()

    def __new__(cls, a: Expr) -> Unary:
        return Expr.__new__(cls, a.dtype, None, (a,))  # type: ignore[return-value]


class Binary(Expr):
    """A node with two operands of one dtype, which is also the result's."""

    __slots__ = ()
    commutative: ClassVar[bool] = False

    def __new__(cls, a: Expr, b: Expr) -> Binary:
        if a.dtype is not b.dtype:
            raise InternalError(f"{cls.__name__} of {a.dtype} and {b.dtype}: {a} and {b}")
        return Expr.__new__(cls, a.dtype, None, (a, b))  # type: ignore[return-value]


class Compare(Binary):
    """A comparison; its result is bool for operands of any dtype."""

    __slots__ = ()
    precedence: ClassVar[int] = 4

    def __new__(cls, a: Expr, b: Expr) -> Compare:
        if a.dtype is not b.dtype:
            raise InternalError(f"{cls.__name__} of {a.dtype} and {b.dtype}: {a} and {b}")
        return Expr.__new__(cls, bool_, None, (a, b))  # type: ignore[return-value]


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
    """`a` if `c` holds, else `b`; the other arm is not evaluated."""

    __slots__ = ()
    symbol = "select"

    def __new__(cls, c: Expr, a: Expr, b: Expr) -> Select:
        if c.dtype is not bool_ or a.dtype is not b.dtype:
            raise InternalError(f"select of {c.dtype}, {a.dtype}, {b.dtype}")
        return Expr.__new__(cls, a.dtype, None, (c, a, b))  # type: ignore[return-value]


class Fma(Expr):
    """`a * b + c` with one rounding."""

    __slots__ = ()
    symbol = "fma"

    def __new__(cls, a: Expr, b: Expr, c: Expr) -> Fma:
        if not (a.dtype is b.dtype is c.dtype and a.dtype.is_float):
            raise InternalError(f"fma of {a.dtype}, {b.dtype}, {c.dtype}")
        return Expr.__new__(cls, a.dtype, None, (a, b, c))  # type: ignore[return-value]


class MulAdd(Fma):
    """`a * b + c` with one rounding, which `unfuse` turns into a product and a sum."""

    __slots__ = ()
    symbol = "muladd"


class Cast(Expr):
    """The value of `a` in another dtype."""

    __slots__ = ()

    def __new__(cls, dtype: DType, a: Expr) -> Cast:
        return Expr.__new__(cls, dtype, None, (a,))  # type: ignore[return-value]


class Bitcast(Expr):
    """The bits of `a` as another dtype of the same width."""

    __slots__ = ()

    def __new__(cls, dtype: DType, a: Expr) -> Bitcast:
        if dtype.bits != a.dtype.bits:
            raise InternalError(f"bitcast of {a.dtype} to {dtype}")
        return Expr.__new__(cls, dtype, None, (a,))  # type: ignore[return-value]


# name -> number of arguments. The primitive functions are exact on every machine; the others are expanded.
PRIMITIVE_FUNCTIONS: dict[str, int] = {"abs": 1, "floor": 1, "ceil": 1, "round": 1, "trunc": 1, "sqrt": 1}
_OF_ONE = (
    *("exp", "exp2", "expm1", "decay", "log", "log1p", "log2", "log10", "sigmoid", "tanh", "erf", "rsqrt", "sin", "cos", "tan"),
    *("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
)
EXPANDED_FUNCTIONS: dict[str, int] = dict.fromkeys(_OF_ONE, 1) | dict.fromkeys(("pow", "fmod", "atan2"), 2)
FUNCTIONS: dict[str, int] = PRIMITIVE_FUNCTIONS | EXPANDED_FUNCTIONS
# Expanded function whose definition contains an FMA -> the name of its form without.
UNFUSED: dict[str, str] = {fn: f"{fn}.unfused" for fn in EXPANDED_FUNCTIONS if fn != "rsqrt"}
_ARITIES = FUNCTIONS | {form: FUNCTIONS[fn] for fn, form in UNFUSED.items()}


class Call(Expr):
    """A function of FUNCTIONS, or a form of UNFUSED, applied to operands of one dtype."""

    __slots__ = ()

    def __new__(cls, fn: str, *args: Expr) -> Call:
        if _ARITIES.get(fn) != len(args):
            raise InternalError(f"no function `{fn}` of {len(args)} arguments")
        return Expr.__new__(cls, args[0].dtype, fn, args)  # type: ignore[return-value]

    @property
    def fn(self) -> str:
        """The function's name."""
        return str(self.payload)


TRUE, FALSE = Const(True, bool_), Const(False, bool_)


def const(value: float, dtype: DType = i64) -> Const:
    """A literal of the dtype."""
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


def all_of(*conditions: Expr) -> Expr:
    """The conjunction of the conditions; TRUE if there are none."""
    result: Expr = TRUE
    for c in conditions:
        if c is FALSE or result is FALSE:
            return FALSE
        if c is not TRUE:
            result = c if result is TRUE else And(result, c)
    return result


def conjuncts(condition: Expr) -> list[Expr]:
    """The conjuncts of a condition."""
    return [c for a in condition.args for c in conjuncts(a)] if isinstance(condition, And) else [condition]


def product(factors: tuple[Expr, ...]) -> Expr:
    """The product of integer factors; 1 if there are none."""
    result: Expr = Const(1, i64)
    for f in factors:
        result = result * f
    return result


def walk(e: Expr) -> Iterator[Expr]:
    """Every distinct node of `e`, operands before users."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(e, False)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if a not in seen)


def free_vars(e: Expr) -> frozenset[Var]:
    """The variables that occur in `e` (memoized)."""
    variables: frozenset[Var] = fold_up(e, "free", _free)
    return variables


def _free(e: Expr, below: list[frozenset[Var]]) -> frozenset[Var]:
    """The free variables of a node from those of its operands."""
    return frozenset((e,)) if isinstance(e, Var) else frozenset().union(*below)


def depth(e: Expr) -> int:
    """The number of nodes on the longest path down from `e` (memoized)."""
    levels: int = fold_up(e, "depth", lambda node, below: 1 + max(below, default=0))
    return levels


def fold_up(e: Expr, name: str, combine: Callable[[Expr, list[Any]], Any]) -> Any:
    """Bottom-up fold: returns `combine(node, results of its operands)` at `e`, memoized on each node under `name`.

    It is iterative, because expressions may be deep.
    """
    if e.memo is not None and name in e.memo:
        return e.memo[name]
    stack = [e]
    while stack:
        node = stack[-1]
        if node.memo is None:
            node.memo = {}
        missing = [a for a in node.args if a.memo is None or name not in a.memo]
        if missing:
            stack.extend(missing)
        else:
            node.memo[name] = combine(node, [a.memo[name] for a in node.args if a.memo is not None])
            stack.pop()
    return e.memo[name] if e.memo else None


def rewrite(e: Expr, leaf: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None) -> Expr:
    """`e` rebuilt bottom-up, with every node replaced for which `leaf(node)` returns an expression.

    Returns the same object if nothing changes.
    """
    memo = {} if memo is None else memo
    result = memo.get(e)
    if result is None:
        result = leaf(e)
        if result is None:
            result = e.with_args(tuple(rewrite(a, leaf, memo) for a in e.args)) if e.args else e
        memo[e] = result
    return result


def substitute(e: Expr, values: dict[Var, Expr]) -> Expr:
    """`e` with variables replaced by expressions, simultaneously."""
    if not values or free_vars(e).isdisjoint(values):
        return e
    return rewrite(e, lambda node: values.get(node) if isinstance(node, Var) else None)


# Text. A literal is printed bare if its context implies its dtype, else as `f32(0.5)`, so that the text can be parsed back.


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
    """`e` in Python syntax; `expect` is the dtype that a bare literal has here, `names` prints variables and loads."""
    if names is not None:
        return _text(e, expect, names, outer)
    if e.memo is None:
        e.memo = {}
    key = ("text", expect, outer)
    shown: str | None = e.memo.get(key)
    if shown is None:
        shown = e.memo[key] = _text(e, expect, None, outer)
    return shown


def _text(e: Expr, expect: DType | None, names: Callable[[Expr], str] | None, outer: int) -> str:
    """The text of a node, not memoized."""
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
    """`_says_dtype` of a node from that of its operands."""
    if isinstance(e, Const):
        return e.dtype is bool_
    if isinstance(e, Select):
        return below[1] or below[2]
    if isinstance(e, Unary | Binary | Fma | Call) and not isinstance(e, Compare):
        return any(below)
    return True


def _text_op(e: Expr, expect: DType | None, names: Callable[[Expr], str] | None) -> str:
    """The text of an operation."""
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
