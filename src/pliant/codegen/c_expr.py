"""C code generation for expressions: each node of `sym/expr.py` becomes C text.

The passes before (`SOURCE_PASSES` in `loop/source_lowering.py`) leave expressions as trees, without arithmetic on half floats and without
comparisons that range analysis decides. C evaluates the arms of `?:` and the right sides of `&&` and `||` lazily, as our semantics
demand. Integers wrap, but signed overflow is undefined in C: sums and products use unsigned types unless ranges exclude overflow.
"""

from __future__ import annotations

from collections.abc import Callable

from ..dtype import DType, bool_, f32, f64, i64
from ..support.names import unused_name
from ..sym import expr as E
from ..sym.bounds import int_range
from ..sym.expr import Const, Expr, Var
from ..sym.facts import EMPTY, Facts
from ..sym.function_names import PRIMITIVE_FUNCTIONS
from .c_types import HALVES, INT32, Val, arithmetic_type, c_type, literal

_KEYWORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm bool true false memcpy ctx"""
RESERVED = frozenset(_KEYWORDS.split())


class Expressions:
    """Writes the expressions of one C function; keeps the names and known ranges of its variables."""

    def __init__(self, function: Callable[[str, DType], str]) -> None:
        self.names = set(RESERVED)  # C names used in this function
        self.vars: dict[Var, Val] = {}
        self.facts: Facts = EMPTY  # ranges of variables
        self.function = function  # (math function, dtype) -> the name of its C function

    def name(self, wanted: str) -> str:
        """Return an unused C name like `wanted`; the prefixes `f_` and `pl_` are reserved for functions."""
        plain = "".join(ch if ch.isascii() and ch.isalnum() else "_" for ch in wanted)
        return unused_name(plain if plain[:1].isalpha() and not plain.startswith(("f_", "pl_")) else f"v_{plain}", self.names)

    def expr(self, e: Expr) -> Val:
        """Return an expression of the program as C text, with its C type and precedence."""
        if isinstance(e, Const):
            return literal(e)
        if isinstance(e, Var):
            return self.vars[e]
        emit: Callable[[Expr], Val] = getattr(self, f"_{type(e).__name__.lower()}")  # the method named like the node's class
        return emit(e)

    def fits(self, e: Expr) -> bool:
        """True if range analysis proves that a value fits into i32."""
        low, high = int_range(e, self.facts)
        return INT32[0] <= low and high <= INT32[1]

    # Arithmetic.

    def _arithmetic(self, e: Expr) -> Val:
        d, (a, b) = e.dtype, map(self.expr, e.args)
        if not d.is_int:  # of bools only & | ^ reach this
            return _binary(a, e, b, c_type(d))
        if isinstance(e, (E.BitAnd, E.BitOr, E.BitXor)):
            return _wrapped("int32_t" if _narrow(a, b) else c_type(d), d, _binary(a, e, b, ""))
        return self._ring(e, a, b)

    _add = _sub = _mul = _div = _bitand = _bitor = _bitxor = _arithmetic

    def _ring(self, e: Expr, a: Val, b: Val) -> Val:
        """Write a sum, difference or product of integers with wraparound: in int32_t or the signed type if ranges exclude overflow.

        Otherwise it is computed in an unsigned type and cast back.
        """
        d = e.dtype
        (al, ah), (bl, bh) = (int_range(x, self.facts) for x in e.args)
        corners = (al * bl, al * bh, ah * bl, ah * bh)
        low, high = {E.Add: (al + bl, ah + bh), E.Sub: (al - bh, ah - bl), E.Mul: (min(corners), max(corners))}[type(e)]  # type: ignore[index]
        if d is i64 and _narrow(a, b) and INT32[0] <= low and high <= INT32[1]:
            return _binary(a, e, b, "int32_t")
        if d.bits >= 32 and (d.kind == "u" or (d.min <= low and high <= d.max)):
            return _binary(cast(c_type(d), a), e, b, c_type(d))
        u = arithmetic_type(d)
        return cast(c_type(d), _binary(cast(u, a), e, cast(u, b), u))

    def _neg(self, e: Expr) -> Val:
        (a,) = e.args
        return self.expr(E.Sub(Const(0, e.dtype), a)) if e.dtype.is_int else Val(f"-{self.expr(a).at(2)}", c_type(e.dtype), 1)

    def _bitnot(self, e: Expr) -> Val:
        (a,) = e.args  # not `~`: compilers warn if its operand contains a bool
        return self._not(e) if e.dtype is bool_ else self.expr(E.BitXor(a, Const(-1, e.dtype)))

    def _helper(self, e: Expr) -> Val:
        """Write a call of a C helper, for operations that C has no operator for, or one with another meaning."""
        return _called("fma" if isinstance(e, E.Fma) else type(e).__name__.lower(), e.dtype, *map(self.expr, e.args))

    _fma = _muladd = _helper

    def _extreme(self, e: Expr) -> Val:
        a, b = map(self.expr, e.args)
        if e.dtype is bool_:
            return Val(f"{a.at(1)} {'&' if isinstance(e, E.Min) else '|'} {b.at(1)}", "bool", 0)
        return _called(e.symbol, e.dtype, a, b, narrow=e.dtype is i64 and _narrow(a, b))

    _min = _max = _extreme

    def _divide(self, e: Expr) -> Val:
        """Write a floor division or modulo (towards minus infinity; by zero it is 0): `/` and `%` where ranges make them equal."""
        d, (a, b) = e.dtype, map(self.expr, e.args)
        quotient = isinstance(e, E.FloorDiv)
        (low, _), (least, most) = (int_range(x, self.facts) for x in e.args)
        narrow = d is i64 and _narrow(a, b) and least > 0
        type_ = "int32_t" if narrow else c_type(d)
        if least > 0 and low >= 0:
            return _wrapped(type_, d, Val(f"{a.at(1)} {'/' if quotient else '%'} {b.at(1)}", "", 0))
        if least == most > 0 and most & (most - 1) == 0:  # a power of two; compilers shift signed integers arithmetically
            bits = f">> {most.bit_length() - 1}" if quotient else f"& {most - 1}"
            return _wrapped(type_, d, Val(f"{cast(type_, a).at(1)} {bits}", "", 0))
        return _called("floordiv" if quotient else "floormod", d, a, b, narrow=narrow)

    _floordiv = _floormod = _divide

    def _shift(self, e: Expr) -> Val:
        d, (a, b) = e.dtype, e.args
        if not isinstance(b, Const) or not 0 <= b.value < d.bits:
            return self._helper(e)
        wide = cast(arithmetic_type(d) if isinstance(e, E.Shl) else c_type(d), self.expr(a))
        return cast(c_type(d), Val(f"{wide.at(1)} {e.symbol} {b.value}", "", 0))

    _shl = _shr = _shift

    # Comparisons and choices.

    def _compare(self, e: Expr) -> Val:
        a, b = map(self.expr, e.args)
        if e.args[0].dtype is bool_:  # compilers warn about ordering bools
            a, b = Val(f"(int){a.at(1)}", "int", 1), Val(f"(int){b.at(1)}", "int", 1)
        return _binary(a, e, b, "bool")

    _eq = _ne = _lt = _le = _compare

    def _not(self, e: Expr) -> Val:
        return Val(f"!{self.expr(e.args[0]).at(2)}", "bool", 1)

    def _select(self, e: Expr) -> Val:
        c, a, b = map(self.expr, e.args)
        return Val(f"{c.at(1)} ? {a.at(1)} : {b.at(1)}", a.type if a.type == b.type else c_type(e.dtype), 0)

    def _logic(self, e: Expr) -> Val:
        a, b = map(self.expr, e.args)
        return Val(f"{a.at(1)} {'&&' if isinstance(e, E.And) else '||'} {b.at(1)}", "bool", 0)

    _and = _or = _logic

    # Casts and functions.

    def _cast(self, e: Expr) -> Val:
        (x,), a = e.args, self.expr(e.args[0])
        narrow = e.dtype is i64 and not x.dtype.is_float and self.fits(e)
        return cast("int32_t", a) if narrow else converted(a, x.dtype, e.dtype)

    def _bitcast(self, e: Expr) -> Val:
        a, source, to = self.expr(e.args[0]), e.args[0].dtype, e.dtype
        if bool_ in (to, source):
            return converted(a, source, to)
        if source in (f32, f64):
            a = Val(f"pl_{source}_bits({a.text})", f"uint{source.bits}_t")
        if to in (f32, f64):
            return Val(f"pl_{to}_from_bits({cast(f'uint{to.bits}_t', a).text})", c_type(to))
        return cast(c_type(to), a)

    def _call(self, e: Expr) -> Val:
        args, d = [self.expr(a) for a in e.args], e.dtype
        if e.payload not in PRIMITIVE_FUNCTIONS:
            return Val(f"{self.function(e.payload, d)}({', '.join(a.text for a in args)})", c_type(d))
        rounds = e.payload not in ("abs", "sqrt")
        return args[0] if d.is_int and (rounds or (e.payload, d.kind) == ("abs", "u")) else _called(e.payload, d, *args)


def cast(type_: str, a: Val) -> Val:
    """Return a C expression cast to a C type; unchanged if it has that type."""
    return a if a.type == type_ else Val(f"({type_}){a.at(1)}", type_, 1)


def converted(a: Val, source: DType, to: DType) -> Val:
    """Return a C expression converted from one dtype to another, with the semantics of a loop program's cast."""
    if source is to:
        return a
    if source in HALVES and to is not f32:
        return converted(converted(a, source, f32), f32, to)
    if to is bool_:
        return Val(f"{a.at(1)} != 0", "bool", 0)
    if to in HALVES or source in HALVES or (source.is_float and to.is_int):
        return Val(f"pl_{to}_of_{source}({a.text})", c_type(to))
    return cast(c_type(to), a)


def _called(helper: str, d: DType, *args: Val, narrow: bool = False) -> Val:
    kind = "i32" if narrow else d
    return Val(f"pl_{helper}_{kind}({', '.join(a.text for a in args)})", "int32_t" if narrow else c_type(d))


def _narrow(a: Val, b: Val) -> bool:
    return a.type == b.type == "int32_t"


def _binary(a: Val, e: Expr, b: Val, type_: str) -> Val:
    return Val(f"{a.at(1)} {e.symbol} {b.at(1)}", type_, 0)


def _wrapped(type_: str, d: DType, a: Val) -> Val:
    """Return a result in its type: C has promoted an operation on types below 32 bits to int."""
    return cast(type_, a) if d.bits < 32 else a._replace(type=type_)
