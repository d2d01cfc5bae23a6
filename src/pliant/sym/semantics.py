"""Reference semantics of expressions in numpy: the oracle that native code must match bit for bit.

Values are numpy arrays or scalars of the dtype's numpy type (bool, int8 … float64, ml_dtypes' bfloat16). Every function is vectorized,
follows the semantics at the head of `sym/expr.py`, and raises no warnings. `apply` computes one node from the values of its operands,
`evaluate` a whole expression.

    >>> n = Var("n"); int(evaluate((n + 1) // 2, {n: 6}))
    3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..dtype import DType, bf16, bool_, f16, f32, f64
from ..support.errors import InternalError
from . import expr as E
from .expr import Call, Const, Expr, Var

Value = Any  # a numpy array or scalar
Load = Callable[[Expr, Sequence[Value]], Value]  # (the node, the values of its indices) -> the element

_HALF = (f16, bf16)  # computed in f32


def value_of(value: object, dtype: DType) -> Value:
    """`value` (a number or an array) as a numpy value of the dtype; Python integers wrap."""
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        value = Const(value, dtype)
    if isinstance(value, Const):
        return const_value(value)
    array = np.asarray(value)
    return array[()] if array.dtype == dtype.numpy() else cast(array, dtype)


def const_value(c: Const) -> Value:
    """The numpy scalar of a literal, with exactly its bits."""
    if c.dtype.is_float:
        return np.array(c.payload, f"uint{c.dtype.bits}").view(c.dtype.numpy())[()]
    return c.dtype.numpy().type(c.payload)


def literal(value: Value, dtype: DType) -> Const:
    """The literal with the bits of a numpy scalar; the inverse of `const_value` (every NaN becomes the same NaN literal)."""
    if dtype.is_float:
        return Const(float(value), dtype)
    return Const(bool(value) if dtype is bool_ else int(value), dtype)


# Integers.


def _floordiv(d: DType, a: Value, b: Value) -> Value:
    """Floor division of numpy integers; 0 for a zero divisor."""
    zero = b == 0
    divisor = np.where(zero, 1, b).astype(d.numpy())
    if d.kind == "i":  # division by -1 is done by negation, which wraps for min
        flipped = divisor == -1
        quotient = np.where(flipped, np.negative(a), np.floor_divide(a, np.where(flipped, 1, divisor).astype(d.numpy())))
    else:
        quotient = np.floor_divide(a, divisor)
    return np.where(zero, 0, quotient).astype(d.numpy())


def _floormod(d: DType, a: Value, b: Value) -> Value:
    """The remainder with the divisor's sign, 0 for a zero divisor."""
    trivial = (b == 0) | (b == -1) if d.kind == "i" else b == 0
    return np.where(trivial, 0, np.remainder(a, np.where(trivial, 1, b).astype(d.numpy()))).astype(d.numpy())


def _shl(d: DType, a: Value, b: Value) -> Value:
    """Left shift; 0 for a shift by `bits` or more, or by a negative number."""
    inside = (b >= 0) & (b < d.bits)
    return np.where(inside, np.left_shift(a, np.where(inside, b, 0).astype(d.numpy())), 0).astype(d.numpy())


def _shr(d: DType, a: Value, b: Value) -> Value:
    """Right shift; shifts everything out for a shift by `bits` or more, or by a negative number."""
    inside = (b >= 0) & (b < d.bits)
    shifted = np.right_shift(a, np.where(inside, b, d.bits - 1).astype(d.numpy()))
    return shifted if d.kind == "i" else np.where(inside, shifted, 0).astype(d.numpy())


# Floats. Half floats compute in f32 and round once more.


def _float_minmax(d: DType, a: Value, b: Value, least: bool) -> Value:
    """Returns the minimum (`least`) or maximum of floats, with -0.0 < +0.0."""
    chosen = np.minimum(a, b) if least else np.maximum(a, b)
    negative = np.signbit(a) | np.signbit(b) if least else np.signbit(a) & np.signbit(b)
    zero = np.where(negative, -0.0, 0.0).astype(d.numpy())
    return np.where((a == 0) & (b == 0), zero, chosen)


def _min(d: DType, a: Value, b: Value) -> Value:
    return _float_minmax(d, a, b, True) if d.is_float else np.minimum(a, b)


def _max(d: DType, a: Value, b: Value) -> Value:
    return _float_minmax(d, a, b, False) if d.is_float else np.maximum(a, b)


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """Returns a + b and its rounding error, in numpy."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _odd_sum(a: Value, b: Value) -> Value:
    """a + b in f64 rounded to odd, so that a later rounding to fewer bits does not round twice."""
    s, error = _two_sum(a, b)
    even = (np.asarray(s, np.float64).view(np.uint64) & 1) == 0
    inexact = np.isfinite(s) & (error != 0) & ~np.isnan(error)
    return np.where(even & inexact, np.nextafter(s, np.where(error > 0, np.inf, -np.inf)), s)


def _fma32(a: Value, b: Value, c: Value) -> Value:
    """FMA of f32: the product is exact in f64, and the sum is rounded to odd before the final rounding."""
    wide = np.multiply(a, b, dtype=np.float64)  # exact: 24 + 24 bits
    return _odd_sum(wide, np.asarray(c, np.float64)).astype(np.float32)


def _split(a: Value) -> tuple[Value, Value]:
    """Veltkamp splitting into two halves of 26 bits."""
    scaled = a * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def _fma64(a: Value, b: Value, c: Value) -> Value:
    """FMA by Boldo and Melquiond's emulation where nothing can overflow or underflow, by rational arithmetic elsewhere."""
    a, b, c = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, c)))
    p = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    low = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    th, tl = _two_sum(c, low)
    vh, vl = _two_sum(p, th)
    result = np.array(vh + _odd_sum(tl, vl))

    def moderate(v: Value, least: float) -> Value:
        return (np.abs(v) > least) & (np.abs(v) < 2.0**400)

    # The rounding error of a product is at most 2^106 times smaller than the product, and must be a normal number.
    safe = moderate(a, 2.0**-900) & moderate(b, 2.0**-900) & moderate(p, 2.0**-800) & (moderate(c, 2.0**-900) | (c == 0))
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    direct = ~finite | (a == 0) | (b == 0)
    result = np.where(direct, np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, p + c), result)
    for i in np.argwhere(~direct & ~safe):
        at = tuple(i)
        result[at] = _exact_fma(float(a[at]), float(b[at]), float(c[at]))
    return result


def _exact_fma(a: float, b: float, c: float) -> float:
    """Returns a * b + c rounded once, by rational arithmetic."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0
    try:
        size = abs(exact.numerator) / exact.denominator  # Python divides integers with one correct rounding
    except OverflowError:
        size = np.inf
    return size if exact > 0 else -size


def _fma(d: DType, a: Value, b: Value, c: Value) -> Value:
    return _fma64(a, b, c) if d is f64 else _fma32(a, b, c)


def _neg(d: DType, a: Value) -> Value:
    return np.negative(a)


# Casts.


def to_bf16(a: Value) -> Value:
    """Converts f64 or f32 to bfloat16 with one rounding to nearest even."""
    a = np.asarray(a)
    if a.dtype == np.float64:
        a = _odd_f32(a)
    bits = a.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(a), 0x7FC0, rounded).astype(np.uint16).view(bf16.numpy())


def _odd_f32(a: Value) -> Value:
    """Converts f64 to f32 with rounding to odd, so that a second rounding is correct."""
    near = a.astype(np.float32)
    error = a - near
    even = (near.view(np.uint32) & 1) == 0
    beyond = np.isinf(near) & np.isfinite(a)
    moved = np.nextafter(near, np.where(error > 0, np.inf, -np.inf).astype(np.float32))
    odd = np.where(even & (error != 0) & np.isfinite(near), moved, near)
    return np.where(beyond, np.copysign(np.finfo(np.float32).max, near), odd).astype(np.float32)


def _sticky(a: Value) -> Value:
    """Integers as f64, such that rounding to 8 or 11 bits gives the same result as rounding the integer itself."""
    a = np.asarray(a)
    if a.dtype.itemsize < 8:
        return a.astype(np.float64)
    low = (a & 0xFFFFF) != 0
    coarse = (a >> 20).astype(a.dtype)
    large = (coarse >= 1 << 12) | (coarse < -(1 << 12)) if a.dtype.kind == "i" else coarse >= 1 << 12
    return np.where(large, (coarse | low.astype(a.dtype)).astype(np.float64) * 2.0**20, a.astype(np.float64))


def _float_to_int(a: Value, d: DType) -> Value:
    """Truncates, saturates at the range of `d`, and maps NaN to 0."""
    whole = np.trunc(np.asarray(a).astype(np.float64))
    low, high = whole < d.min, whole >= 2.0 ** (d.bits - (d.kind == "i"))
    inside = np.where(np.isnan(whole) | low | high, 0.0, whole).astype(d.numpy())
    return np.where(high, d.max, np.where(low, d.min, inside)).astype(d.numpy()) if d.bits < 64 else _saturate(inside, low, high, d)


def _saturate(inside: Value, low: Value, high: Value, d: DType) -> Value:
    """Saturation for 64 bits: the limits are numpy scalars, because numpy would promote Python integers to another type."""
    one = d.numpy().type
    return np.where(high, one(d.max), np.where(low, one(d.min), inside))


def cast(a: Value, d: DType) -> Value:
    """Converts numpy values to the dtype `d`, as the expression `Cast` does."""
    a = np.asarray(a)
    source = a.dtype.kind if a.dtype.kind in "biuf" else "f"  # numpy gives bfloat16 the kind V
    with np.errstate(all="ignore"):
        if source == "f" and a.dtype.kind != "f":
            a = a.astype(np.float32)
        if d is bool_:
            result = a != 0
        elif source == "f" and d.is_int:
            result = _float_to_int(a, d)
        elif d is bf16:
            result = to_bf16(a.astype(np.float32) if a.dtype == np.float16 else a if source == "f" else _sticky(a))
        elif d is f16 and source in "iu":
            result = _sticky(a).astype(np.float16)
        else:
            result = a.astype(d.numpy())
    return np.asarray(result)[()]


def bitcast(a: Value, d: DType) -> Value:
    """The bits of `a` as the dtype `d` of the same width."""
    return np.asarray(a).view(d.numpy())[()]


_CALLS: dict[str, Callable[[Value], Value]] = {
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
}

_OPS: dict[type[Expr], Callable[..., Value]] = {
    E.Add: lambda d, a, b: np.add(a, b),
    E.Sub: lambda d, a, b: np.subtract(a, b),
    E.Mul: lambda d, a, b: np.multiply(a, b),
    E.Div: lambda d, a, b: np.divide(a, b),
    E.FloorDiv: _floordiv,
    E.FloorMod: _floormod,
    E.Min: _min,
    E.Max: _max,
    E.BitAnd: lambda d, a, b: np.bitwise_and(a, b),
    E.BitOr: lambda d, a, b: np.bitwise_or(a, b),
    E.BitXor: lambda d, a, b: np.bitwise_xor(a, b),
    E.Shl: _shl,
    E.Shr: _shr,
    E.Neg: _neg,
    E.BitNot: lambda d, a: np.invert(a),
    E.Eq: lambda d, a, b: np.equal(a, b),
    E.Ne: lambda d, a, b: np.not_equal(a, b),
    E.Lt: lambda d, a, b: np.less(a, b),
    E.Le: lambda d, a, b: np.less_equal(a, b),
    E.And: lambda d, a, b: np.logical_and(a, b),
    E.Or: lambda d, a, b: np.logical_or(a, b),
    E.Not: lambda d, a: np.logical_not(a),
    E.Fma: _fma,
    E.MulAdd: _fma,
}


def apply(node: Expr, operands: Sequence[Value]) -> Value:
    """Computes an expression node in numpy from the values of its operands; not for `Load`."""
    with np.errstate(all="ignore"):
        return np.asarray(_apply(node, operands))[()]


def _apply(node: Expr, operands: Sequence[Value]) -> Value:
    """As `apply`, but does not silence numpy's warnings."""
    kind = type(node)
    if kind is E.Select:
        return np.where(*operands)
    if kind is E.Cast:
        return cast(operands[0], node.dtype)
    if kind is E.Bitcast:
        return bitcast(operands[0], node.dtype)
    if kind is Call:
        return _call(node, operands)
    op = _OPS.get(kind)
    if op is None:
        raise InternalError(f"{kind.__name__} has no value of its own: {node}")
    operand_dtype = node.args[0].dtype
    if operand_dtype not in _HALF:
        return op(operand_dtype, *operands)
    wide = op(f32, *(np.asarray(v).astype(np.float32) for v in operands))
    return wide if node.dtype is bool_ else cast(wide, operand_dtype)


def _call(node: Expr, operands: Sequence[Value]) -> Value:
    """Returns the value of a function: primitive ones by numpy, the others by their definition; half floats are computed in f32.

    Rounding functions leave integers unchanged. Raises an InternalError for the sqrt of an integer.
    """
    primitive = _CALLS.get(node.payload)
    if primitive is None:
        from .functions import definition

        params, body = definition(node.payload, node.dtype)
        return evaluate(body, dict(zip(params, operands, strict=True)))
    if node.dtype in _HALF:
        return cast(primitive(np.asarray(operands[0]).astype(np.float32)), node.dtype)
    if node.dtype.is_int and node.payload != "abs":
        if node.payload == "sqrt":
            raise InternalError(f"sqrt of {node.dtype}: {node}")
        return operands[0]  # integers are integral already
    return primitive(operands[0])


def evaluate(e: Expr, env: Mapping[Var, Any], load: Load | None = None) -> Value:
    """The value of `e` if variables have the values of `env` (numbers or arrays, which broadcast).

    With scalars, the untaken arm of a select and a right side of `and`/`or` that does not decide are not evaluated. With arrays, an arm
    is evaluated for all elements if any of them takes it.
    """
    memo: dict[Expr, Value] = {}
    with np.errstate(all="ignore"):
        return _evaluate(e, env, load, memo)


def _evaluate(e: Expr, env: Mapping[Var, Any], load: Load | None, memo: dict[Expr, Value]) -> Value:
    """Returns the value of a node, computed once per memo."""
    value = memo.get(e)
    if value is None:
        value = memo[e] = np.asarray(_compute(e, env, load, memo))[()]
    return value


def _compute(e: Expr, env: Mapping[Var, Any], load: Load | None, memo: dict[Expr, Value]) -> Value:
    """Computes the value of a node in numpy; arms of selects are computed only where they are taken, and `load` loads elements.

    Raises an InternalError for a variable without a value.
    """
    if isinstance(e, Const):
        return const_value(e)
    if isinstance(e, Var):
        if e not in env:
            raise InternalError(f"variable `{e.name}` has no value")
        return value_of(env[e], e.dtype)
    if isinstance(e, (E.Select, E.And, E.Or)):
        first = _evaluate(e.args[0], env, load, memo)
        every, some = bool(np.all(first)), bool(np.any(first))
        if isinstance(e, E.Select):
            arms = [i for i, taken in ((1, some), (2, not every)) if taken]
            if len(arms) == 1:
                only = _evaluate(e.args[arms[0]], env, load, memo)
                return np.broadcast_to(only, np.broadcast_shapes(np.shape(first), np.shape(only)))
        elif (not some) if isinstance(e, E.And) else every:
            return first
    operands = [_evaluate(a, env, load, memo) for a in e.args]
    if type(e) in _OPS or isinstance(e, (E.Select, E.Cast, E.Bitcast, Call)):
        return _apply(e, operands)
    if load is None:
        raise InternalError(f"no one to load {e}")
    return load(e, operands)
