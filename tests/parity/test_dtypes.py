"""Every data type, cast and operator, compiled, against numpy and ml_dtypes themselves; edge values included, all codes of small types.

Where Pliant's definition is another one than numpy's, the difference is spelled out here, in `cast_as_numpy_should` and in `OPERATORS`:
casts from float to integer saturate and take NaN to 0 (in C that is undefined), shifts by too much or by a negative number shift
everything out, -0.0 is below +0.0 in min and max, and casts to bf16 round once, not by way of f32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from native_loops import Native, same_bits
from pliant.dtype import ALL, DType, bf16, bool_, f16, f32, f64, i64, pack, unpack
from pliant.loop.buffer import Buffer, loaded_dtype
from pliant.loop.stmt import For, Func, Param, Store
from pliant.sym import expr as E
from pliant.sym.expr import Const, Expr, Var

Array = np.ndarray[Any, Any]
COMPUTE = [d for d in ALL.values() if not d.storage]
STORAGE = [d for d in ALL.values() if d.storage]
KINDS = ("serial", "vector")


def program(name: str, sources: list[DType], out: DType, value: Callable[..., Expr], kind: str) -> Func:
    """`out[i] = value(x0[i], x1[i], …)`."""
    n, i = Var("n"), Var("i")
    inputs = [Buffer(f"x{k}", d, (n,)) for k, d in enumerate(sources)]
    result = Buffer("result", out, (n,))
    body = Store(result, (i,), value(*(b.load(i) for b in inputs)))
    return Func(name, (*map(Param, inputs), Param(result, "out")), For(i, Const(0, i64), n, kind, body))


def passed(a: Array, d: DType) -> Array:
    """An array of elements as it is passed."""
    return pack(a, d) if d.bits < 8 else a


def run(native: Native, name: str, inputs: list[Array], sources: list[DType], out: DType) -> Array:
    """The elements that a program gives."""
    count = len(inputs[0])
    memory = np.zeros(out.array_shape((count,)), out.array_dtype())
    assert native.call(name, [*(passed(a, d) for a, d in zip(inputs, sources, strict=True)), memory], [count]) == 0
    return unpack(memory, out) if out.bits < 8 else memory


def check(what: str, inputs: list[Array], found: Array, expected: Array) -> None:
    """Bits are equal; every NaN of a compute type is the same."""
    if found.dtype.itemsize == 1 and found.dtype.kind not in "biu":  # storage: also the code of NaN is defined
        found, expected = found.view(np.uint8), expected.view(np.uint8)
    if not same_bits(found, expected):
        at = next(k for k in range(len(found)) if not same_bits(found[k : k + 1], expected[k : k + 1]))
        pytest.fail(f"{what} of {[repr(a[at]) for a in inputs]} is {found[at]!r}, expected {expected[at]!r}")


# Values.


def all_codes(d: DType) -> Array:
    """Every value of a type of up to 16 bits, a whole number of times in 64."""
    if d is bool_:
        return np.array([False, True] * 32)
    codes = np.arange(1 << d.bits, dtype=np.uint16 if d.bits == 16 else np.uint8)
    codes = np.resize(codes, max(64, len(codes)))
    return codes.view(d.numpy()) if d.bits >= 8 else unpack(pack_codes(codes, d), d)


def pack_codes(codes: Array, d: DType) -> Array:
    """Bytes of codes, by hand: low bits first."""
    rows = codes.reshape(-1, d.per_byte)
    return np.array([sum(int(c) << (k * d.bits) for k, c in enumerate(row)) for row in rows], np.uint8)


def values(d: DType) -> Array:
    """All values of small types; of the others edges, neighbors of powers of two, and random bits."""
    if d.bits <= 16:
        return all_codes(d)
    rng = np.random.default_rng(d.code)
    noise = rng.integers(0, 2**64, 2000, np.uint64).astype(f"u{d.itemsize}").view(d.numpy())
    powers = [s * (2**k + e) for k in range(d.bits if d.is_int else 70) for e in (-1, 0, 1) for s in (1, -1)]
    if d.is_int:
        return np.concatenate([np.array([d.wrap(p) for p in powers], d.numpy()), noise])
    with np.errstate(all="ignore"):
        plain = np.array(powers, np.float64)
        small = np.concatenate([plain * 0.5, plain + 0.5, plain * (1 + 2.0**-20), plain * 2.0**-30, plain * 2.0**-60, plain * 2.0**60])
        every = np.concatenate([[0.0, -0.0, np.inf, -np.inf, np.nan, 0.1, 65519.99, 65520.0, 464.0, 464.01, 248.0, 61440.0], plain, small])
        limits = [np.finfo(t).max for t in (np.float16, np.float32, np.float64)] + [np.finfo(np.float32).smallest_subnormal]
        halfway = np.concatenate([small_midpoints(s) for s in STORAGE if s.is_float])
        wide = np.concatenate([every, np.array(limits, np.float64), -np.array(limits, np.float64), halfway]).astype(d.numpy())
        near = np.concatenate([np.nextafter(halfway.astype(d.numpy()), d.numpy().type(s * np.inf)) for s in (1, -1)])
        return np.concatenate([wide, near, noise])


def small_midpoints(d: DType) -> Array:
    """The numbers between two neighbors of a small float type."""
    known = np.unique(all_codes(d).astype(np.float64))
    known = known[np.isfinite(known)]
    return (known[1:] + known[:-1]) / 2


def even(a: Array, d: DType) -> Array:
    """A number of elements that fills whole bytes."""
    return a[: len(a) - len(a) % d.per_byte]


# Casts.


def nearest_bf16(a: Array) -> Array:
    """bf16 by its definition: of the numbers around `a` the nearest, of two the even one."""
    start = a.astype(bf16.numpy())
    codes = start.view(np.uint16).astype(np.int64)
    best, distance = start.copy(), np.full(len(a), np.inf, object)
    for step in (-1, 0, 1):
        candidate = ((codes + step) & 0xFFFF).astype(np.uint16)
        for k, (x, c) in enumerate(zip(a.tolist(), candidate.view(bf16.numpy()).astype(np.float64).tolist(), strict=True)):
            if np.isfinite(c) and np.isfinite(x):
                d = abs(Fraction(x) - Fraction(c))
                if d < distance[k] or (d == distance[k] and candidate[k] % 2 == 0):
                    best[k], distance[k] = candidate.view(bf16.numpy())[k], d
    limit = Fraction(2) ** 128 - Fraction(2) ** 119  # from here on infinity is as near
    large = np.array([np.isfinite(x) and abs(Fraction(x)) >= limit for x in a.tolist()], bool)
    return np.where(large, np.copysign(np.inf, a.astype(np.float32)).astype(bf16.numpy()), np.where(np.isfinite(a), best, start))


def cast_as_numpy_should(a: Array, source: DType, to: DType) -> Array:
    """numpy's and ml_dtypes' cast, but for the documented differences."""
    with np.errstate(all="ignore"):
        if to.bits < 8 and to.is_int and source.is_float:  # by way of i8 or u8
            return cast_as_numpy_should(a, source, loaded_dtype(to)).astype(to.numpy())
        if source.is_float and to.is_int:
            wide = np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
            exact = [to.max if v > to.max else to.min if v < to.min else int(v) for v in wide.tolist()]
            return np.array(exact, to.numpy())
        if to is bf16 and (source is f64 or (source.is_int and source.bits > 16)):
            return nearest_bf16(a)
        if to.storage and to.is_float:  # one NaN
            plain = a.astype(np.int8) if source is bool_ else a.astype(loaded_dtype(source).numpy())
            if to.name == "f8e8m0":  # ml_dtypes has no cast of many types to it
                plain = plain.astype(np.float32)
            if source.is_float:
                plain[np.isnan(plain)] = np.nan
            return plain.astype(to.numpy())
        if to is bool_:
            return a.astype(np.float32 if source.storage or source in (bf16,) else a.dtype) != 0
        if source.storage or (to.storage and source is bool_):
            return a.astype(loaded_dtype(source).numpy() if source.storage else np.int8).astype(to.numpy())
        return a.astype(to.numpy())


@pytest.mark.parametrize("source", [*COMPUTE, *STORAGE], ids=str)
def test_every_cast(source: DType) -> None:
    targets = [*COMPUTE, *STORAGE]
    funcs = [program(f"{kind}_{to}", [source], to, lambda x, to=to: E.Cast(loaded_dtype(to), x), kind) for to in targets for kind in KINDS]
    native = Native(*funcs)
    for to in targets:
        given = values(source)
        if to is bf16 and source.bits > 16:
            given = given[:: 4 if source.is_float else 1][:2000]  # fractions take their time
        given = np.ascontiguousarray(even(given, ALL["u2"]))
        expected = cast_as_numpy_should(given, source, to)
        for kind in KINDS:
            check(f"{kind} {source} -> {to}", [given], run(native, f"{kind}_{to}", [given], [source], to), expected)


@pytest.mark.parametrize("d", [d for d in STORAGE if d.is_float], ids=str)
def test_every_half_of_the_bits_of_a_float_is_stored_right(d: DType) -> None:
    """All exponents, signs and leading digits, exactly and a little above."""
    top = np.arange(1 << 16, dtype=np.uint32) << 16
    given = np.concatenate([top, top | 1, top | 0x8000]).view(np.float32)
    native = Native(*(program(kind, [f32], d, lambda x: x, kind) for kind in KINDS))
    for kind in KINDS:
        check(f"{kind} f32 -> {d}", [given], run(native, kind, [given], [f32], d), cast_as_numpy_should(given, f32, d))


@pytest.mark.parametrize("d", STORAGE, ids=str)
def test_storage_types_lie_in_memory_as_written(d: DType) -> None:
    """The bytes are those that one packs by hand, and what is loaded and stored again stays."""
    codes = np.resize(np.arange(1 << d.bits, dtype=np.uint8), max(64, 1 << d.bits))
    packed = pack_codes(codes, d) if d.bits < 8 else codes
    native = Native(*(program(kind, [d], d, lambda x: x, kind) for kind in KINDS))
    is_nan = np.isnan(codes.view(d.numpy()).astype(np.float32)) if d.bits == 8 else np.zeros(len(codes), bool)
    for kind in KINDS:
        out = np.zeros_like(packed)
        assert native.call(kind, [packed, out], [len(codes)]) == 0
        assert np.array_equal(out[~is_nan] if d.bits == 8 else out, packed[~is_nan] if d.bits == 8 else packed)
        assert not is_nan.any() or set(out[is_nan]) == {np.array(np.nan, d.numpy()).view(np.uint8)[()]}


# Operators.


def shift(left: bool) -> Callable[..., Array]:
    """A shift; by too much or a negative number everything is shifted out."""

    def shifted(a: Array, b: Array) -> Array:
        bits = 8 * a.dtype.itemsize
        inside = (b >= 0) & (b < bits)
        count = np.where(inside, b, 0 if left else bits - 1).astype(a.dtype)
        plain = np.left_shift(a, count) if left else np.right_shift(a, count)
        return np.where(inside | ((a.dtype.kind == "i") & (not left)), plain, 0).astype(a.dtype)

    return shifted


def extreme(least: bool) -> Callable[..., Array]:
    """min or max; -0.0 is below +0.0, about which numpy says nothing."""

    def chosen(a: Array, b: Array) -> Array:
        plain = np.minimum(a, b) if least else np.maximum(a, b)
        if a.dtype.kind in "biu":
            return plain
        other = np.where(np.signbit(a) == least, a, b)
        return np.where((a == 0) & (b == 0), other, plain).astype(a.dtype)

    return chosen


ANY: dict[type[Expr], Callable[..., Array]] = {
    E.Eq: np.equal,
    E.Ne: np.not_equal,
    E.Lt: np.less,
    E.Le: np.less_equal,
    E.Min: extreme(True),
    E.Max: extreme(False),
}
NUMBERS: dict[type[Expr], Callable[..., Array]] = {E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply}
INTEGERS: dict[type[Expr], Callable[..., Array]] = {
    E.FloorDiv: np.floor_divide,  # by zero 0, and min // -1 is min: numpy's too, with a warning
    E.FloorMod: np.remainder,
    E.BitAnd: np.bitwise_and,
    E.BitOr: np.bitwise_or,
    E.BitXor: np.bitwise_xor,
    E.Shl: shift(True),
    E.Shr: shift(False),
}
BOOLS: dict[type[Expr], Callable[..., Array]] = {E.And: np.logical_and, E.Or: np.logical_or}
UNARY: dict[Any, Callable[..., Array]] = {E.Neg: np.negative, "abs": np.abs}
ROUNDINGS: dict[Any, Callable[..., Array]] = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "sqrt": np.sqrt}


def operators(d: DType) -> dict[Any, tuple[int, Callable[..., Array]]]:
    """The operators of a dtype: how many operands, and numpy's word for it."""
    if d is bool_:
        return {**{k: (2, f) for k, f in (ANY | BOOLS).items()}, E.Not: (1, np.logical_not)}
    two = ANY | NUMBERS | (INTEGERS if d.is_int else {E.Div: np.divide})
    one = UNARY | ({E.BitNot: np.invert} if d.is_int else ROUNDINGS)
    return {**{k: (2, f) for k, f in two.items()}, **{k: (1, f) for k, f in one.items()}}


def operand_values(d: DType) -> Array:
    """All values of 8-bit types; a few dozen of the others, all pairs of which are tried."""
    if d.bits <= 8:
        return np.unique(all_codes(d))
    if d.is_int:
        some = [
            0,
            1,
            2,
            3,
            7,
            10,
            100,
            d.bits - 1,
            d.bits,
            d.bits + 1,
            127,
            128,
            d.max,
            d.max - 1,
            d.max // 2,
            d.max // 3,
            1 << (d.bits // 2),
        ]
        return np.array([*some, *(d.wrap(-v) for v in some), d.min], d.numpy())
    with np.errstate(over="ignore"):
        limits = {f16: (65504.0, 2.0**-24), bf16: (3.3895e38, 2.0**-133), f32: (3.4028234e38, 2.0**-149), f64: (1.797e308, 5e-324)}[d]
        some = [0.0, *limits, limits[1] * 3, 0.1, 0.3, 0.5, 1.0, 1.5, 2.5, 3.4999, 7.0, 127.5, 1000.7, 2048.0, 65519.9, 2.0**31, np.inf]
        noise = np.random.default_rng(d.code).standard_normal(20) * 10.0 ** np.arange(-10, 10)
        return np.array([*some, *(-v for v in some), *noise, np.nan]).astype(d.numpy())


@pytest.mark.parametrize("d", COMPUTE, ids=str)
def test_every_operator(d: DType) -> None:
    given = operand_values(d)
    pairs = [np.repeat(given, len(given)), np.tile(given, len(given))]

    def node(op: Any, *x: Expr) -> Expr:
        return E.Call(op, *x) if isinstance(op, str) else op(*x)

    table = operators(d)
    result = {op: node(op, *(Var("v", d) for _ in range(n))).dtype for op, (n, _) in table.items()}
    names = {op: op if isinstance(op, str) else op.__name__ for op in table}
    funcs = [
        program(f"{kind}_{names[op]}", [d] * n, result[op], lambda *x, op=op: node(op, *x), kind)
        for (op, (n, _)), kind in itertools.product(table.items(), KINDS)
    ]
    native = Native(*funcs)
    for op, (n, reference) in table.items():
        with np.errstate(all="ignore"):
            expected = reference(*pairs[:n]).astype(result[op].numpy())
        for kind in KINDS:
            check(f"{kind} {names[op]}", pairs, run(native, f"{kind}_{names[op]}", pairs[:n], [d] * n, result[op]), expected)


@pytest.mark.parametrize("d", [f32, f64], ids=str)
def test_fma_is_exact_before_it_is_rounded(d: DType) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(1500).astype(d.numpy()) for _ in range(2))
    c = np.where(rng.random(1500) < 0.5, -(a * b), rng.standard_normal(1500)).astype(d.numpy())
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
    expected = np.array([nearest(e, d) for e in exact], d.numpy())
    native = Native(*(program(kind, [d] * 3, d, E.Fma, kind) for kind in KINDS))
    for kind in KINDS:
        check(f"{kind} fma", [a, b, c], run(native, kind, [a, b, c], [d] * 3, d), expected)


def nearest(e: Fraction, d: DType) -> Any:
    """The float that is nearest to a fraction of moderate size."""
    if e == 0:
        return d.numpy().type(0.0)
    digits = 24 if d is f32 else 53
    exponent = 0
    size = abs(e)
    while size >= 2**digits:
        size, exponent = size / 2, exponent + 1
    while size < 2 ** (digits - 1):
        size, exponent = size * 2, exponent - 1
    return d.numpy().type(float(round(size)) * 2.0**exponent * (1 if e > 0 else -1))  # Python rounds fractions half to even
