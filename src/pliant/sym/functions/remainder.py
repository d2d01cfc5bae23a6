"""fmod, exact: x - trunc(x/y)*y without a rounding error.

f32 divides in f64 by y * 2^240, y * 2^192, … y: a quotient of 48 bits is off by at most one, and the remainder has few digits. Without
FMA a quotient has 28 bits, so that its product with the 24 bits of y is exact. In f64, with integer significands X, Y of 53 bits and D
the difference of the exponents, the remainder is X * 2^D modulo Y. 2^D is built from the bits of D by squaring modulo Y. A product of two
remainders is computed as a pair, and all steps are exact: remainders are in -Y/2..Y/2, so that no intermediate result has more than 53
bits.
"""

from __future__ import annotations

import math

from ...dtype import f32, f64, u64
from ..expr import Add, And, BitAnd, Bitcast, BitOr, Call, Cast, Const, Div, Eq, Expr, Fma, Lt, Mul, Neg, Select, Shl, Shr, Sub
from .build import absolute, bits, number, pattern, rest_of, signed, two_product

_DIGITS, _DIGITS_UNFUSED = 48, 28  # bits of a quotient; the ratio of the largest to the least f32 has 277 bits
_STEPS = 6  # bits of D processed one by one; the rest of D is at most 2^5, and 2^32 is less than any Y


def _round(x: Expr) -> Expr:
    return Call("round", x)


class _Modulus:
    """Arithmetic of expressions modulo y, an f64 that is an integer of 53 bits."""

    def __init__(self, y: Expr, fused: bool) -> None:
        self.y = y
        self.fused = fused
        self.inverse = Div(number(1.0, y), y)

    def center(self, a: Expr) -> Expr:
        """a reduced to -y/2..y/2, where |a| is at most about 2*y."""
        return rest_of(a, _round(Mul(a, self.inverse)), self.y, self.fused)

    def product(self, a: Expr, b: Expr, factor: Expr | None = None) -> Expr:
        """Returns a*b, or a*b*factor with a factor of 1 or 2, reduced modulo y."""
        high, low = two_product(a, b, self.fused)
        r: Expr = Add(rest_of(high, _round(Div(high, self.y)), self.y, self.fused), low)
        return self.center(r if factor is None else Mul(r, factor))


def _significand(x: Expr) -> tuple[Expr, Expr]:
    """The significand of a positive x as an integer in 2^52..2^53, and its exponent field plus 64 (at most 64 for denormals)."""
    small = Lt(x, number(2.0**-1022, x))
    scaled = bits(Select(small, Mul(x, number(2.0**64, x)), x))
    significand = Bitcast(f64, BitOr(BitAnd(scaled, pattern((1 << 52) - 1, x)), pattern(0x433 << 52, x)))
    field = Shr(scaled, pattern(52, x))
    return significand, Select(small, field, Add(field, pattern(64, x)))


def _power(field: Expr) -> Expr:
    """2^(field - 1023)."""
    return Bitcast(f64, Shl(field, Const(52, u64)))


def _remainder64(a: Expr, b: Expr, fused: bool) -> Expr:
    """Returns the remainder a % b of positive f64 numbers as an expression. With `fused`, by FMA."""
    (sa, ea), (sb, eb) = _significand(a), _significand(b)
    by = _Modulus(sb, fused)
    d = BitAnd(Sub(ea, eb), Const(0xFFF, u64))  # wraps if a < b, where the result is not used
    power = _power(Add(Shr(d, Const(_STEPS, u64)), Const(1023, u64)))
    for i in reversed(range(_STEPS)):
        bit = BitAnd(Shr(d, Const(i, u64)), Const(1, u64))
        power = by.product(power, power, _power(Add(bit, Const(1023, u64))))
    r = by.product(by.center(sa), power)
    r = Select(Lt(r, number(0.0, r)), Add(r, sb), r)
    # The ulp of b is 2^(eb - 64 - 1075), applied as two factors that are both normal numbers.
    half = Shr(eb, Const(1, u64))
    return Mul(Mul(r, _power(Add(half, Const(454, u64)))), _power(Add(Sub(eb, half), Const(453, u64))))


def _remainder32(a: Expr, b: Expr, fused: bool) -> Expr:
    """Returns the remainder a % b of positive f32 numbers as an expression. With `fused`, by FMA."""
    r, wide = Cast(f64, a), Cast(f64, b)
    inverse = Div(number(1.0, wide), wide)
    value: Expr = r
    for bits_left in reversed(range(0, 277, _DIGITS if fused else _DIGITS_UNFUSED)):
        times = Call("round", Mul(value, Mul(inverse, number(2.0**-bits_left, wide))))
        step = Mul(wide, number(2.0**bits_left, wide))
        value = Fma(Neg(times), step, value) if fused else Sub(value, Mul(times, step))
    return Cast(f32, Select(Lt(value, number(0.0, value)), Add(value, wide), value))


def fmod(x: Expr, y: Expr, fused: bool = True) -> Expr:
    """Returns the definition of fmod, x - trunc(x / y) * y, exactly; it has the sign of x. With `fused`, by FMA."""
    a, b = absolute(x), absolute(y)
    remainder = _remainder32(a, b, fused) if x.dtype is f32 else _remainder64(a, b, fused)
    defined = And(Lt(a, number(math.inf, x)), And(Lt(number(0.0, x), b), Eq(y, y)))
    return Select(defined, signed(Select(Lt(a, b), a, remainder), x), number(math.nan, x))
