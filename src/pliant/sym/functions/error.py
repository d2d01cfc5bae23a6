"""erf: x + x*p(x^2) near zero; 1 - e^g(|x|) away from it, where the polynomial g approximates log(erfc(|x|))."""

from __future__ import annotations

from ...dtype import f32
from ..expr import Call, Expr, Lt, Min, Mul, MulAdd, Neg, Select, Sub
from .build import absolute, horner, number, polynomial, signed

# After N. Juffa: g(t) = t*far(t) - t, evaluated in two chains because the powers of t are large.
_NEAR_32 = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_FAR_32 = (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1)
_NEAR_64 = (
    -4.233049473629978e-12, 8.7104128956209346e-11, -1.2164953413570186e-9, 1.4792467076383821e-8, -1.636464927147751e-7,
    1.6462045959938116e-6, -1.4925647593454674e-5, 1.2055332903776449e-4, -8.5483270219551846e-4, 5.2239776254235978e-3,
    -2.6866170645129867e-2, 1.128379167095512e-1, -3.7612638903183752e-1, 1.2837916709551257e-1,
)  # fmt: skip
# log(erfc(1 + t)) for t in 0..5; for large t only a few digits matter.
_FAR_64 = (
    2.2509684322322299e-14, -7.9614693295675751e-13, 1.3268708718157881e-11, -1.3878131903095217e-10, 1.0215232179389423e-9,
    -5.5964213486676832e-9, 2.3261193051765398e-8, -7.109656310671872e-8, 1.3044842234979645e-7, 9.9687408608644123e-8,
    -2.0166837909515599e-6, 9.5764179692459873e-6, -2.7140822063218939e-5, 2.6270320735039564e-5, 2.373247102391201e-4,
    -1.9779030199980377e-3, 1.0033825434015717e-2, -4.156109804649479e-2, -8.4310725635848674e-1, -2.6389675142347912,
    -1.8496055099332482,
)  # fmt: skip


def erf(x: Expr) -> Expr:
    """Returns the definition of the error function as an expression."""
    single = x.dtype is f32
    size = Min(absolute(x), number(4.0 if single else 6.0, x))  # beyond this erf rounds to 1
    near = MulAdd(polynomial(Mul(x, x), _NEAR_32 if single else _NEAR_64), x, x)
    exponent = _far32(size) if single else horner(Sub(size, number(1.0, x)), _FAR_64)
    far = signed(Sub(number(1.0, x), Call("exp", exponent)), x)
    return Select(Lt(number(0.927734375 if single else 1.0, x), size), far, near)


def _far32(t: Expr) -> Expr:
    """log(erfc(t)) in f32."""
    high = MulAdd(number(-1.72853470e-5, t), t, number(3.83197126e-4, t))
    r: Expr = MulAdd(high, Mul(t, t), MulAdd(number(-3.88396438e-3, t), t, number(2.42546219e-2, t)))
    for c in _FAR_32:
        r = MulAdd(r, t, number(c, t))
    return MulAdd(r, t, Neg(t))
