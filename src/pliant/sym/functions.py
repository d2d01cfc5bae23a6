"""Functions that no machine has, written in the expression language: their meaning on every target.

Each definition is for f32 (`exp` also for f64); the half types compute in f32 and round once more. They use no table and
no branch, so they vectorise as they stand. Error in units of the last place, at most: exp 1.5, log 1.5, tanh 2, sigmoid 2.5, erf 1.5,
rsqrt 1.5, sin and cos 2 for |x| < 2^30 and NaN beyond. Infinities, NaN, denormals and signed zeros come out as IEEE 754 asks.

    expand(exp(x) * 2)  ->  an expression of fma, shifts and bitcasts
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from ..dtype import DType, bf16, f16, f32, f64, i32, i64
from ..support.errors import UnsupportedError
from .expr import (
    EXPANDED_FUNCTIONS,
    Add,
    BitAnd,
    Bitcast,
    Call,
    Cast,
    Const,
    Div,
    Eq,
    Expr,
    Fma,
    Le,
    Lt,
    Mul,
    Ne,
    Neg,
    Select,
    Shl,
    Shr,
    Sub,
    Var,
    rewrite,
    substitute,
)


@cache
def definition(fn: str, dtype: DType) -> tuple[tuple[Var, ...], Expr]:
    """The parameters of an expanded function and its value in terms of them, with no expanded function left inside."""
    params = tuple(Var(name, dtype) for name in ("x", "y", "z")[: EXPANDED_FUNCTIONS[fn]])
    if dtype in (f16, bf16):
        body: Expr = Cast(dtype, Call(fn, *(Cast(f32, p) for p in params)))
    else:
        define = _DEFINITIONS.get((fn, dtype))
        if define is None:
            raise UnsupportedError(f"`{fn}` of {dtype} is not supported", facts=[f"`{fn}` takes " + ", ".join(_takes(fn))])
        body = define(*params)
    return params, expand(body)


def _takes(fn: str) -> list[str]:
    return [*(str(d) for name, d in _DEFINITIONS if name == fn), "f16", "bf16"]


def expand(e: Expr) -> Expr:
    """`e` with every expanded function replaced by its definition."""

    def leaf(node: Expr) -> Expr | None:
        if not isinstance(node, Call) or node.fn not in EXPANDED_FUNCTIONS:
            return None
        params, body = definition(node.fn, node.dtype)
        return substitute(body, dict(zip(params, (rewrite(a, leaf, memo) for a in node.args), strict=True)))

    memo: dict[Expr, Expr] = {}
    return rewrite(e, leaf, memo)


def _f(value: float) -> Const:
    return Const(value, f32)


def _d(value: float) -> Const:
    return Const(value, f64)


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The polynomial in `x` by fma, the coefficient of the highest power first."""
    result: Expr = Const(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        result = Fma(result, x, Const(c, x.dtype))
    return result


def _abs(x: Expr) -> Expr:
    return Call("abs", x)


def _with_sign_of(size: Expr, x: Expr) -> Expr:
    return Select(Lt(x, Const(0, x.dtype)), Neg(size), size)


def _power_of_two(n: Expr, to: DType) -> Expr:
    """2^n from the integer n, by its exponent bits."""
    bias, shift = (127, 23) if to is f32 else (1023, 52)
    return Bitcast(to, Shl(Add(n, Const(bias, n.dtype)), Const(shift, n.dtype)))


def _exp(x: Expr, low: float, high: float, ln2: tuple[float, float], tail: Callable[[Expr], Expr]) -> Expr:
    """2^n * e^r with x = n*ln2 + r; adding 1.5 * 2^23 (f64: 2^52) rounds to the integer n and leaves it in the low bits.

    2^n is multiplied in two steps: each is a normal number, and only the second can round or overflow.
    """
    d = x.dtype
    ints = i32 if d is f32 else i64
    magic = Const(1.5 * 2.0 ** (23 if d is f32 else 52), d)
    x = Select(Lt(x, Const(low, d)), Const(low, d), Select(Lt(Const(high, d), x), Const(high, d), x))
    t = Fma(x, Const(math.log2(math.e), d), magic)
    n = Sub(t, magic)
    r = Fma(n, Const(-ln2[1], d), Fma(n, Const(-ln2[0], d), x))
    k = Sub(Bitcast(ints, t), Const(magic.payload, ints))
    half = Shr(k, Const(1, ints))
    return Mul(Mul(tail(r), _power_of_two(half, d)), _power_of_two(Sub(k, half), d))


def _exp32(x: Expr) -> Expr:
    def tail(r: Expr) -> Expr:
        p = horner(r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1))
        return Add(Fma(p, Mul(r, r), r), _f(1.0))

    return _exp(x, -104.0, 89.0, (0.693359375, -2.12194440e-4), tail)


def _exp64(x: Expr) -> Expr:
    def tail(r: Expr) -> Expr:
        p = horner(r, [1.0 / math.factorial(k) for k in range(13, 1, -1)])
        return Add(Fma(p, Mul(r, r), r), _d(1.0))

    return _exp(x, -746.0, 710.0, (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56")), tail)


def _log32(x: Expr) -> Expr:
    """x = 2^e * m with m in sqrt(1/2)..sqrt(2); denormals are scaled first."""
    small = Lt(x, _f(2.0**-126))
    scaled = Select(small, Mul(x, _f(2.0**24)), x)
    bits = Bitcast(i32, scaled)
    offset = Sub(bits, Const(0x3F3504F3, i32))  # the bits of sqrt(1/2)
    e = Shr(offset, Const(23, i32))
    m = Sub(Bitcast(f32, Sub(bits, Shl(e, Const(23, i32)))), _f(1.0))
    exponent = Sub(Cast(f32, e), Select(small, _f(24.0), _f(0.0)))
    z = Mul(m, m)
    p = horner(
        m,
        (
            7.0376836292e-2,
            -1.1514610310e-1,
            1.1676998740e-1,
            -1.2420140846e-1,
            1.4249322787e-1,
            -1.6668057665e-1,
            2.0000714765e-1,
            -2.4999993993e-1,
            3.3333331174e-1,
        ),
    )
    y = Add(m, Fma(z, _f(-0.5), Fma(exponent, _f(-2.12194440e-4), Mul(Mul(p, m), z))))
    finite = Fma(exponent, _f(0.693359375), y)
    special = Select(Lt(x, _f(0.0)), _f(math.nan), Select(Eq(x, _f(0.0)), _f(-math.inf), x))  # inf and NaN stay
    regular = Lt(_f(0.0), x), Lt(x, _f(math.inf))
    return Select(regular[0], Select(regular[1], finite, special), special)


def _sigmoid32(x: Expr) -> Expr:
    e = Call("exp", Neg(_abs(x)))
    return Div(Select(Lt(x, _f(0.0)), e, _f(1.0)), Add(_f(1.0), e))


def _tanh32(x: Expr) -> Expr:
    z, size = Mul(x, x), _abs(x)
    p = horner(z, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1))
    near = Fma(Mul(x, z), p, x)
    far = _with_sign_of(Sub(_f(1.0), Div(_f(2.0), Add(Call("exp", Add(size, size)), _f(1.0)))), x)
    return Select(Eq(x, _f(0.0)), x, Select(Lt(size, _f(0.625)), near, far))  # 0 keeps its sign


def _erf32(x: Expr) -> Expr:
    """After N. Juffa: 1 - exp(polynomial) away from zero, an odd polynomial near it."""
    s, t = Mul(x, x), _abs(x)
    near = Fma(horner(s, (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)), x, x)
    t = Select(Lt(_f(4.0), t), _f(4.0), t)  # erf(4) rounds to 1
    r = Fma(Fma(_f(-1.72853470e-5), t, _f(3.83197126e-4)), Mul(t, t), Fma(_f(-3.88396438e-3), t, _f(2.42546219e-2)))
    for c in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = Fma(r, t, _f(c))
    far = _with_sign_of(Sub(_f(1.0), Call("exp", Fma(r, t, Neg(t)))), x)
    return Select(Lt(_f(0.927734375), t), far, near)


def _rsqrt(x: Expr) -> Expr:
    return Div(Const(1.0, x.dtype), Call("sqrt", x))


def _circular(x: Expr, quarter: int) -> Expr:
    """sin(x + quarter * pi/2): the angle is reduced in f64, the polynomials are in f32."""
    magic = _d(1.5 * 2.0**52)
    wide = Cast(f64, x)
    t = Fma(wide, _d(2.0 / math.pi), magic)
    n = Sub(t, magic)
    r = Cast(f32, Fma(n, _d(-float.fromhex("0x1.1a62633145c07p-54")), Fma(n, _d(-math.pi / 2), wide)))
    turn = BitAnd(Add(Cast(i32, Bitcast(i64, t)), Const(quarter, i32)), Const(3, i32))
    z = Mul(r, r)
    sine = Fma(Mul(r, z), horner(z, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)), r)
    cosine = Fma(
        Mul(z, z),
        horner(z, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)),
        Fma(z, _f(-0.5), _f(1.0)),
    )
    size = Select(Ne(BitAnd(turn, Const(1, i32)), Const(0, i32)), cosine, sine)
    value = Select(Le(Const(2, i32), turn), Neg(size), size)
    return Select(Lt(_abs(x), _f(2.0**30)), value, _f(math.nan))


def _sin32(x: Expr) -> Expr:
    return Select(Eq(x, _f(0.0)), x, _circular(x, 0))  # 0 keeps its sign


def _cos32(x: Expr) -> Expr:
    return _circular(x, 1)


_DEFINITIONS: dict[tuple[str, DType], Callable[..., Expr]] = {
    ("exp", f32): _exp32,
    ("exp", f64): _exp64,
    ("log", f32): _log32,
    ("sigmoid", f32): _sigmoid32,
    ("tanh", f32): _tanh32,
    ("erf", f32): _erf32,
    ("rsqrt", f32): _rsqrt,
    ("rsqrt", f64): _rsqrt,
    ("sin", f32): _sin32,
    ("cos", f32): _cos32,
}
