"""Every operator, cast and function, on edge values: native code, scalar and over lanes, equals `sym/semantics.py` bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from levels import runnable
from native_loops import Native, same_bits
from pliant.dtype import DType, bf16, bool_, dtype, f16, f32, f64, i64
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import For, Func, Param, Store
from pliant.sym import expr as E
from pliant.sym.expr import Const, Expr, Var
from pliant.sym.function_names import EXPANDED_FUNCTIONS, UNFUSED
from pliant.sym.semantics import evaluate

DTYPES = ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"]
TARGETS = runnable("native", "llvm:x86-64-v2", "llvm:x86-64")


def edges(d: DType) -> np.ndarray[Any, Any]:
    """Values where something may go wrong."""
    if d is bool_:
        return np.array([False, True])
    if d.is_int:
        some = [0, 1, 2, 3, 7, 8, 31, 100, d.bits - 1, d.bits, d.max, d.max - 1, d.max // 2, d.max // 3]
        some += [d.min, d.min + 1, d.min // 2, -1, -2, -7, -8] if d.kind == "i" else [d.max - 7]
        return np.array(some, dtype=d.numpy())
    limits = {f16: (65504.0, 2.0**-24), bf16: (3.3895e38, 2.0**-133), f32: (3.4028234e38, 2.0**-149), f64: (1.7976931348623157e308, 5e-324)}
    top, least = limits[d]
    positive = [
        0.0,
        least,
        least * 3,
        0.3,
        0.5,
        1.0,
        1.5,
        2.5,
        3.4999,
        127.5,
        255.9,
        1000.7,
        32768.0,
        65519.9,
        2.0**31,
        2.0**63,
        top,
        np.inf,
    ]
    with np.errstate(over="ignore"):
        return np.array([*positive, *(-v for v in positive), np.nan]).astype(d.numpy())


def operations(d: DType, a: Var, b: Var, c: Var) -> Iterator[Expr]:
    """Every node over operands of the dtype."""
    if d is bool_:
        yield from (kind(a, b) for kind in (E.And, E.Or, E.Eq, E.Ne, E.Lt, E.Le, E.Min, E.Max))
        yield E.Not(a)
    else:
        yield from (kind(a, b) for kind in (E.Add, E.Sub, E.Mul, E.Min, E.Max, E.Eq, E.Ne, E.Lt, E.Le))
        yield E.Neg(a)
        yield from (E.Call(fn, a) for fn in ("abs", "floor", "ceil", "round", "trunc"))
    yield E.Select(E.Eq(a, b), b, c)
    if d.is_int:
        for kind in (E.FloorDiv, E.FloorMod, E.BitAnd, E.BitOr, E.BitXor, E.Shl, E.Shr):
            yield kind(a, b)
            yield from (kind(a, Const(n, d)) for n in (0, 1, 3, 7, 8, d.bits - 1) if n <= d.max)
            if d.kind == "i":
                yield from (kind(a, Const(n, d)) for n in (-1, -3, -8))
        yield E.BitNot(a)
    if d.is_float:
        yield E.Div(a, b)
        for number in (0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), float("nan")):
            yield E.Max(a, Const(number, d))
            yield E.Min(Const(number, d), a)
        yield E.Call("sqrt", a)
        yield from (kind(a, b, c) for kind in (E.Fma, E.MulAdd))
    yield from (E.Cast(dtype(to), a) for to in DTYPES)
    yield from (E.Bitcast(dtype(to), a) for to in DTYPES if dtype(to).bits == d.bits and bool_ not in (dtype(to), d))


def elementwise(name: str, e: Expr, variables: tuple[Var, ...], kind: str) -> Func:
    """`out[i] = e` where the variables are the elements of inputs."""
    n, i = Var("n"), Var("i")
    buffers = [Buffer(v.name, v.dtype, (n,)) for v in variables]
    out = Buffer("out", e.dtype, (n,))
    value = E.substitute(e, {v: b.load(i) for v, b in zip(variables, buffers, strict=True)})
    return Func(name, (*map(Param, buffers), Param(out, "out")), For(i, Const(0, i64), n, kind, Store(out, (i,), value)))


@pytest.mark.parametrize(("name", "to"), [(n, t) for n in DTYPES for t in TARGETS if t == "native" or "f" in n])
def test_every_operator(name: str, to: str) -> None:
    d = dtype(name)
    variables = tuple(Var(v, d) for v in "abc")
    pairs = list(itertools.product(edges(d), repeat=2))
    third = np.resize(np.roll(edges(d), 5), len(pairs))
    inputs = [np.array([p[0] for p in pairs], d.numpy()), np.array([p[1] for p in pairs], d.numpy()), third]
    cases = list(operations(d, *variables))
    funcs = [elementwise(f"{kind}{n}", e, variables, kind) for n, e in enumerate(cases) for kind in ("serial", "vector")]
    native = Native(*funcs, level=1, to=to)
    values = dict(zip(variables, inputs, strict=True))
    for (n, e), kind in itertools.product(enumerate(cases), ("serial", "vector")):
        out = np.zeros(len(pairs), e.dtype.numpy())
        assert native.call(f"{kind}{n}", [*inputs, out], [len(pairs)]) == 0
        expected = np.broadcast_to(evaluate(e, values), out.shape)
        if not same_bits(out, expected):
            at = next(k for k in range(len(pairs)) if not same_bits(out[k : k + 1], expected[k : k + 1]))
            found = ", ".join(repr(v[at]) for v in inputs)
            pytest.fail(f"{kind} {e} of {found}: {out[at]!r}, expected {expected[at]!r}")


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("d", [f32, f64, f16, bf16], ids=str)
def test_fma_of_random_bits(d: DType, to: str) -> None:
    """Numbers of all sizes, cancellation and rounding at the limits included."""
    rng = np.random.default_rng(5)
    count = 4000
    a, b, c = (rng.integers(0, 2**d.bits, count, np.uint64).astype(f"u{d.itemsize}").view(d.numpy()) for _ in range(3))
    with np.errstate(all="ignore"):
        near = -(a.astype(np.float64) * b.astype(np.float64))
        c[::2] = near.astype(d.numpy())[::2]  # what is left is the rounding error of the product
        small = rng.standard_normal((3, count)).astype(d.numpy())
        a[::3], b[::3], c[::3] = small[:, ::3]
    variables = tuple(Var(v, d) for v in "abc")
    e = E.Fma(*variables)
    native = Native(*(elementwise(kind, e, variables, kind) for kind in ("serial", "vector")), to=to)
    expected = evaluate(e, dict(zip(variables, (a, b, c), strict=True)))
    for kind in ("serial", "vector"):
        out = np.zeros(count, d.numpy())
        native.call(kind, [a, b, c, out], [count])
        wrong = [k for k in range(count) if not same_bits(out[k : k + 1], expected[k : k + 1])]
        assert not wrong, f"{kind}: {len(wrong)} differ, first fma({a[wrong[0]]!r}, {b[wrong[0]]!r}, {c[wrong[0]]!r})"


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("source", [f32, f64, i64], ids=str)
def test_rounding_to_half_types(source: DType, to: str) -> None:
    """Casts round once, also from types with many more digits."""
    rng = np.random.default_rng(7)
    if source.is_float:
        base = rng.standard_normal(3000) * 2.0 ** rng.integers(-30, 20, 3000)
        ties = np.round(base * 4096) / 4096  # many lie in the middle between two f16 or bf16
        a = np.concatenate([base, ties, ties + 1e-9]).astype(source.numpy())
    else:
        shifted = rng.integers(-(2**62), 2**62, 3000) >> rng.integers(0, 62, 3000)
        a = np.concatenate([shifted, (shifted >> 8) << 8 | 128, (shifted >> 40) << 40 | 1])
    x = Var("x", source)
    cases = {f"{kind}{d}": (E.Cast(d, x), kind) for d in (f16, bf16) for kind in ("serial", "vector")}
    native = Native(*(elementwise(name, e, (x,), kind) for name, (e, kind) in cases.items()), to=to)
    for name, (e, _) in cases.items():
        out = np.zeros(len(a), e.dtype.numpy())
        native.call(name, [a, out], [len(a)])
        assert same_bits(out, evaluate(e, {x: a})), name


@pytest.mark.parametrize("kind", ["serial", "vector"])
@pytest.mark.parametrize("d", [f32, f64, f16, bf16], ids=str)
def test_expanded_functions(d: DType, kind: str) -> None:
    a = np.concatenate([edges(d), np.linspace(-100, 100, 333).astype(d.numpy())])
    other = np.random.default_rng(3).permutation(a)
    x, y = Var("x", d), Var("y", d)
    for fn in (*EXPANDED_FUNCTIONS, *UNFUSED.values()):
        e = E.Call(fn, *(x, y)[: EXPANDED_FUNCTIONS[fn.partition(".")[0]]])
        out = np.zeros(len(a), d.numpy())
        assert Native(elementwise("f", e, (x, y), kind)).call("f", [a, other, out], [len(a)]) == 0
        assert same_bits(out, evaluate(e, {x: a, y: other})), fn
