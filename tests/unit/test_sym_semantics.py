"""The sentences at the head of sym/expr.py, one by one, against hand-made values, Python integers and exact fractions."""

from __future__ import annotations

import itertools
import math
import random
import struct
from fractions import Fraction

import numpy as np
import pytest

from pliant.dtype import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from pliant.support.errors import InternalError
from pliant.sym import expr as E
from pliant.sym.expr import Call, Cast, Const, Expr, Var
from pliant.sym.hash_consing import hash_consed
from pliant.sym.semantics import apply, bitcast, cast, evaluate, literal, value_of

INTS = (i8, i16, i32, i64, u8, u16, u32, u64)
NAN = math.nan


def binary(cls: type[Expr], d: DType, a: float, b: float) -> np.generic:
    x, y = Var("x", d), Var("y", d)
    return apply(cls(x, y), [value_of(a, d), value_of(b, d)])


def edges(d: DType) -> list[int]:
    wanted = [d.min, d.min + 1, -9, -1, 0, 1, 2, 3, 7, d.bits - 1, d.bits, d.max - 1, d.max]
    return [v for v in dict.fromkeys(wanted) if d.min <= v <= d.max]


def python_value(cls: type[Expr], d: DType, a: int, b: int) -> int:
    """Integer semantics written with Python's unbounded integers."""
    out = {
        E.Add: lambda: a + b,
        E.Sub: lambda: a - b,
        E.Mul: lambda: a * b,
        E.FloorDiv: lambda: a // b if b else 0,
        E.FloorMod: lambda: a % b if b else 0,
        E.Min: lambda: min(a, b),
        E.Max: lambda: max(a, b),
        E.BitAnd: lambda: a & b,
        E.BitOr: lambda: a | b,
        E.BitXor: lambda: a ^ b,
        E.Shl: lambda: a << b if 0 <= b < d.bits else 0,
        E.Shr: lambda: a >> b if 0 <= b < d.bits else (-1 if a < 0 else 0),
    }[cls]()
    return d.wrap(out)


INT_OPS = [E.Add, E.Sub, E.Mul, E.FloorDiv, E.FloorMod, E.Min, E.Max, E.BitAnd, E.BitOr, E.BitXor, E.Shl, E.Shr]


@pytest.mark.parametrize("cls", INT_OPS)
@pytest.mark.parametrize("d", INTS, ids=str)
def test_integers(cls: type[Expr], d: DType) -> None:
    for a, b in itertools.product(edges(d), repeat=2):
        got = binary(cls, d, a, b)
        assert got.dtype == d.numpy()
        assert int(got) == python_value(cls, d, a, b), (a, b)


@pytest.mark.parametrize("d", INTS, ids=str)
def test_integers_are_vectorized(d: DType) -> None:
    pairs = list(itertools.product(edges(d), repeat=2))
    x, y = Var("x", d), Var("y", d)
    a, b = (np.array(side, d.numpy()) for side in zip(*pairs, strict=True))
    for cls in INT_OPS:
        want = [python_value(cls, d, p, q) for p, q in pairs]
        assert apply(cls(x, y), [a, b]).tolist() == want


def test_unary_integers() -> None:
    x = Var("x", i8)
    assert int(apply(E.Neg(x), [np.int8(-128)])) == -128
    assert int(apply(E.BitNot(x), [np.int8(5)])) == -6
    assert int(apply(Call("abs", x), [np.int8(-128)])) == -128


@pytest.mark.parametrize("d", (f16, bf16, f32, f64), ids=str)
def test_min_max_of_floats(d: DType) -> None:
    low, high = binary(E.Min, d, 0.0, -0.0), binary(E.Max, d, -0.0, 0.0)
    assert np.signbit(low) and not np.signbit(high)
    assert np.signbit(binary(E.Max, d, -0.0, -0.0)) and not np.signbit(binary(E.Min, d, 0.0, 0.0))
    assert np.isnan(binary(E.Min, d, NAN, 1.0)) and np.isnan(binary(E.Max, d, 1.0, NAN))
    assert float(binary(E.Min, d, -math.inf, 3.0)) == -math.inf
    assert float(binary(E.Max, d, 2.0, 3.0)) == 3.0


def test_comparisons_with_nan() -> None:
    for cls in (E.Eq, E.Lt, E.Le):
        assert not binary(cls, f32, NAN, NAN) and not binary(cls, f32, NAN, 1.0)
    assert binary(E.Ne, f32, NAN, NAN)
    assert binary(E.Eq, f32, 0.0, -0.0)


def test_half_types_round_the_f32_result() -> None:
    assert float(binary(E.Add, f16, 2048.0, 1.0)) == 2048.0  # a tie, to even
    assert float(binary(E.Add, f16, 2050.0, 1.0)) == 2052.0
    assert float(binary(E.Mul, f16, 256.0, 256.0)) == math.inf
    assert float(binary(E.Add, bf16, 256.0, 1.0)) == 256.0
    assert float(binary(E.Add, bf16, 258.0, 1.0)) == 260.0


def test_select_reads_one_arm() -> None:
    class Peek(Expr):
        __slots__ = ()

        def __new__(cls) -> Peek:
            return hash_consed(cls, i64, "peek", ())

    seen: list[str] = []

    def load(node: Expr, indices: object) -> np.int64:
        seen.append("load")
        return np.int64(7)

    p = Var("p", bool_)
    e = E.Select(p, Peek(), Const(1, i64))
    assert int(evaluate(e, {p: False}, load)) == 1 and not seen
    assert int(evaluate(e, {p: True}, load)) == 7 and seen == ["load"]
    guarded = E.And(p, E.Eq(Peek(), Const(7, i64)))
    assert not evaluate(guarded, {p: False}, load) and len(seen) == 1
    assert evaluate(E.Or(p, E.Eq(Peek(), Const(8, i64))), {p: True}, load) and len(seen) == 1
    with pytest.raises(InternalError, match="no one to load"):
        evaluate(Peek(), {})


def test_arrays_take_both_arms() -> None:
    x = Var("x", i64)
    e = E.Select(E.Lt(x, Const(3, i64)), x, Const(3, i64))
    assert evaluate(e, {x: np.arange(6)}).tolist() == [0, 1, 2, 3, 3, 3]
    assert evaluate(e, {x: np.zeros(4, np.int64)}).tolist() == [0, 0, 0, 0]


def test_a_variable_without_value_is_named() -> None:
    with pytest.raises(InternalError, match="`lost`"):
        evaluate(Var("lost", i64) + 1, {})


@pytest.mark.parametrize("to", INTS, ids=str)
def test_float_to_integer_saturates(to: DType) -> None:
    values = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 200.7, -200.7, 3e9, -3e9, 1e19, -1e19, 1e30, math.inf, -math.inf, NAN, 2.0**63, -(2.0**63)]
    for v in values:
        want = 0 if math.isnan(v) else to.min if v == -math.inf else to.max if v == math.inf else min(max(int(v), to.min), to.max)
        assert int(cast(np.float64(v), to)) == want, v
        narrow = float(np.float32(v))
        want = 0 if math.isnan(v) else to.min if v == -math.inf else to.max if v == math.inf else min(max(int(narrow), to.min), to.max)
        assert int(cast(np.float32(v), to)) == want, v


def test_integer_casts_wrap() -> None:
    for source, to in itertools.product(INTS, INTS):
        for v in edges(source):
            assert int(cast(value_of(v, source), to)) == to.wrap(v)


def test_bool_casts() -> None:
    assert cast(np.float32(NAN), bool_) and not cast(np.float32(-0.0), bool_) and cast(np.int8(-3), bool_)
    for d in (*INTS, f16, bf16, f32, f64):
        assert float(cast(np.True_, d)) == 1.0 and float(cast(np.False_, d)) == 0.0


def nearest_even(value: Fraction, bits: int, least: int) -> Fraction:
    """`value` rounded to `bits` significant bits (exponents not below `least`), halves to even."""
    if value == 0:
        return value
    exponent = 0
    size = abs(value)
    while size >= 2:
        size, exponent = size / 2, exponent + 1
    while size < 1:
        size, exponent = size * 2, exponent - 1
    unit = Fraction(2) ** (max(exponent, least) - bits + 1)
    return round(value / unit) * unit  # Python's round of a Fraction is to even


@pytest.mark.parametrize(("d", "bits", "least", "top"), [(bf16, 8, -126, 3.3895e38), (f16, 11, -14, 65504.0)], ids=str)
def test_one_rounding_into_half_types(d: DType, bits: int, least: int, top: float) -> None:
    rng = random.Random(5)
    ties = [1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8 - 2.0**-45, 1 + 3 * 2.0**-11 - 2.0**-45]
    for v in ties + [rng.uniform(-60000, 60000) * 2.0 ** rng.randint(-30, 0) for _ in range(300)]:
        want = nearest_even(Fraction(v), bits, least)
        assert Fraction(float(cast(np.float64(v), d))) == want, v
    for v in [(1 << 40) + (1 << 32) + 1, -((1 << 40) + (1 << 32) + 1), 257, 259, 2049, 2051, -(2**62) - 2**54 - 1, 2**63 - 1]:
        if abs(v) <= top:
            assert Fraction(float(cast(np.int64(v), d))) == nearest_even(Fraction(v), bits, least), v


def test_casts_to_f32_and_f64() -> None:
    for v in (2**24 + 1, 2**24 + 3, 2**53 + 1, -(2**62) - 1):
        assert Fraction(float(cast(np.int64(v), f32))) == nearest_even(Fraction(v), 24, -126)
        assert Fraction(float(cast(np.int64(v), f64))) == nearest_even(Fraction(v), 53, -1022)
    assert float(cast(np.float64(1e300), f32)) == math.inf


def test_bitcast() -> None:
    assert int(bitcast(np.float32(1.0), i32)) == 0x3F800000
    assert float(bitcast(np.int64(struct.unpack("<q", struct.pack("<d", -2.5))[0]), f64)) == -2.5


def test_functions_of_one_rounding() -> None:
    x = Var("x", f32)
    want = {"floor": -3.0, "ceil": -2.0, "round": -2.0, "trunc": -2.0, "abs": 2.5}
    for fn, result in want.items():
        assert float(apply(Call(fn, x), [np.float32(-2.5)])) == result
    assert float(apply(Call("round", x), [np.float32(3.5)])) == 4.0
    assert float(apply(Call("sqrt", x), [np.float32(2.0)])) == float(np.float32(math.sqrt(2.0)))
    assert np.isnan(apply(Call("sqrt", x), [np.float32(-1.0)]))


def exact_fma(a: float, b: float, c: float, d: DType) -> float:
    """One rounding of the exact value."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    bits, least, top = (24, -126, 127) if d is f32 else (53, -1022, 1023)
    rounded = nearest_even(exact, bits, least)
    if abs(rounded) >= Fraction(2) ** (top + 1):
        return math.copysign(math.inf, rounded)
    return float(rounded)


@pytest.mark.parametrize("d", (f32, f64), ids=str)
def test_fma_rounds_once(d: DType) -> None:
    rng = random.Random(1)
    kind = d.numpy().type
    top = 126 if d is f32 else 1022
    rows = []
    for k in range(2800):
        spread = rng.choice([3, 30, top])
        a, b = (float(kind(rng.uniform(-2, 2) * 2.0 ** (rng.randint(-spread, spread) // 2))) for _ in "ab")
        product = a * b if math.isfinite(a * b) else 1.0
        free = rng.uniform(-2, 2) * 2.0 ** rng.randint(-spread, spread)
        c = [free, -product, -product * (1 + 2.0**-20), product * 2.0**30, 5e-324, 1e-40, 0.0][k % 7]
        rows.append((a, b, float(kind(c))))
    rows += [(1.0 + 2.0**-12, 1.0 + 2.0**-12, -1.0), (float(kind(0.1)), 10.0, -1.0), (2.0**-70, 2.0**-70, 2.0**-149), (3.0, 5.0, -15.0)]
    rows = [r for r in rows if all(map(math.isfinite, r))]
    x, y, z = (Var(n, d) for n in "xyz")
    columns = [np.array(col, d.numpy()) for col in zip(*rows, strict=True)]
    got = apply(E.Fma(x, y, z), columns)
    for row, value in zip(rows, got, strict=True):
        assert float(value) == exact_fma(*row, d), row


@pytest.mark.parametrize("d", (f16, f32, f64), ids=str)
def test_fma_of_special_values(d: DType) -> None:
    x, y, z = (Var(n, d) for n in "xyz")

    def fma(*operands: float) -> float:
        return float(apply(E.Fma(x, y, z), [value_of(v, d) for v in operands]))

    assert math.isnan(fma(math.inf, 0.0, 1.0)) and math.isnan(fma(math.inf, 1.0, -math.inf)) and math.isnan(fma(NAN, 1.0, 1.0))
    assert fma(math.inf, 2.0, 1.0) == math.inf and fma(1.0, 1.0, -math.inf) == -math.inf
    assert math.copysign(1, fma(-0.0, 1.0, -0.0)) == -1 and math.copysign(1, fma(1.0, 1.0, -1.0)) == 1
    tiny = 2.0**-24 if d is f16 else 2.0**-149 if d is f32 else 5e-324
    assert math.copysign(1, fma(-tiny, 2.0**-10, 0.0)) == -1  # underflows to -0.0, it is not an exact zero


def test_literals_keep_their_bits() -> None:
    for d, values in ((f32, (-0.0, 1.5, math.inf)), (i8, (-128, 127)), (bool_, (True, False)), (f16, (65504.0,))):
        for v in values:
            assert literal(value_of(v, d), d) is Const(v, d)


def test_storage_of_python_numbers_wraps() -> None:
    x = Var("x", u8)
    assert int(evaluate(Cast(i64, x), {x: 300})) == 44
