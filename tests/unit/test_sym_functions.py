"""Expanded functions in f32, in both forms, against numpy in double, in units of the last place; in both widths at the edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pliant.dtype import DType, f16, f32, f64, i32
from pliant.support.errors import UnsupportedError
from pliant.sym.expr import Add, Call, Fma, Mul, MulAdd, Var
from pliant.sym.function_names import EXPANDED_FUNCTIONS, FUNCTIONS, UNFUSED
from pliant.sym.functions import TABLE, definition, expand
from pliant.sym.semantics import evaluate
from pliant.sym.unfuse import unfuse
from pliant.sym.walk import walk

INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(7)
N = 200_000


def ulps(got: np.ndarray, want: np.ndarray) -> float:
    """The largest error in units of the last place of the exact result."""
    kind = got.dtype.type
    with np.errstate(over="ignore"):
        near = want.astype(kind)
    room = np.isfinite(near)
    np.testing.assert_array_equal(got[~room], near[~room])
    unit = np.spacing(np.maximum(np.abs(near[room]), np.finfo(kind).tiny)).astype(want.dtype)
    return float(np.max(np.abs(got[room].astype(want.dtype) - want[room]) / unit))


def grid(lo: float, hi: float) -> np.ndarray:
    return np.concatenate([np.linspace(lo, hi, N), RNG.uniform(lo, hi, N)]).astype(np.float32)


def magnitudes(lo: float, hi: float) -> np.ndarray:
    sizes = np.exp2(RNG.uniform(lo, hi, N)).astype(np.float32)
    return np.concatenate([sizes, -sizes])


def run(fn: str, *args: np.ndarray) -> np.ndarray:
    dtype = f64 if args[0].dtype == np.float64 else f16 if args[0].dtype == np.float16 else f32
    params = [Var(name, dtype) for name in "xy"[: len(args)]]
    return evaluate(Call(fn, *params), dict(zip(params, args, strict=True)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(-np.abs(x)), 1.0) / (1.0 + np.exp(-np.abs(x)))


Reference = Callable[[np.ndarray], np.ndarray]
QUARTERS = (np.arange(1, 60000) * (np.pi / 2)).astype(np.float32)
UNITS = np.concatenate([s * (1 - np.abs(magnitudes(-24, -1))) for s in (1, -1)]).astype(np.float32)  # near 1 and -1
FAR_QUARTERS = (RNG.integers(60000, 6 * 10**8, 60000) * (np.pi / 2)).astype(np.float32)
ANGLES = [grid(-1e5, 1e5), magnitudes(-149, 29.9), QUARTERS, FAR_QUARTERS]
CASES: dict[str, tuple[Reference, list[np.ndarray]]] = {
    "exp": (np.exp, [grid(-104, 88.8), magnitudes(-140, 6)]),
    "exp2": (np.exp2, [grid(-150, 128.1), grid(-1, 1), magnitudes(-140, 7)]),
    "expm1": (np.expm1, [grid(-20, 88.8), grid(-1, 1), magnitudes(-149, 6)]),
    "decay": (lambda x: np.where(x < -87.69, 0.0, np.exp(x)), [grid(-87.68, 0), grid(-1, 0), grid(-2000, -87.7)]),
    "log": (np.log, [np.abs(magnitudes(-149, 127)), grid(0.5, 2.0)]),
    "log1p": (np.log1p, [np.abs(magnitudes(-149, 127)), grid(-0.999, 2.0), -np.abs(magnitudes(-149, -0.01))]),
    "sigmoid": (sigmoid, [grid(-103, 103), magnitudes(-140, 6)]),
    "tanh": (np.tanh, [grid(-10, 10), grid(-0.7, 0.7), magnitudes(-149, 6)]),
    "erf": (np.vectorize(math.erf), [grid(-4.5, 4.5)[::2], magnitudes(-140, 6)[::4]]),
    "rsqrt": (lambda x: 1 / np.sqrt(x), [np.abs(magnitudes(-149, 127))]),
    "sin": (np.sin, ANGLES),
    "cos": (np.cos, ANGLES),
    "tan": (np.tan, ANGLES),
    "log2": (np.log2, [np.abs(magnitudes(-149, 127)), grid(0.5, 2.0), np.exp2(np.arange(-149, 128)).astype(np.float32)]),
    "log10": (np.log10, [np.abs(magnitudes(-149, 127)), grid(0.5, 2.0)]),
    "asin": (np.arcsin, [grid(-1, 1), magnitudes(-149, -0.01), UNITS]),
    "acos": (np.arccos, [grid(-1, 1), magnitudes(-149, -0.01), UNITS]),
    "atan": (np.arctan, [grid(-4, 4), magnitudes(-149, 127)]),
    "sinh": (np.sinh, [grid(-89.3, 89.3), grid(-1, 1), magnitudes(-149, 6)]),
    "cosh": (np.cosh, [grid(-89.3, 89.3), grid(-1, 1), magnitudes(-149, 6)]),
    "asinh": (np.arcsinh, [grid(-4, 4), magnitudes(-149, 127)]),
    "acosh": (np.arccosh, [grid(1, 4), np.abs(magnitudes(0, 127))]),
    "atanh": (np.arctanh, [grid(-0.999, 0.999), magnitudes(-149, -0.01), UNITS[np.abs(UNITS) < 1]]),
}


def both(*functions: str) -> list[str]:
    """The functions, and their forms without fma."""
    return [*functions, *(UNFUSED[fn] for fn in functions if fn in UNFUSED)]


def named(form: str) -> str:
    """The function of which something is a form."""
    return form.partition(".")[0]


def bound(form: str) -> float:
    """The largest error that is promised of a form, in f32."""
    known = TABLE[named(form)]
    return known.ulp32 if form == named(form) else known.unfused32


def test_every_function_of_one_argument_has_a_case() -> None:
    assert set(CASES) == {fn for fn, count in EXPANDED_FUNCTIONS.items() if count == 1} == {*TABLE} - {"pow", "fmod", "atan2"}


@pytest.mark.parametrize("fn", both(*CASES))
def test_error_in_f32(fn: str) -> None:
    reference, samples = CASES[named(fn)]
    for x in samples:
        assert ulps(run(fn, x), reference(x.astype(np.float64))) <= bound(fn)


@pytest.mark.parametrize("fn", both("pow"))
def test_error_of_pow_in_f32(fn: str) -> None:
    for x, y in ((np.abs(magnitudes(-149, 127)), grid(-1, 1)), (grid(0.1, 10), grid(-60, 60)), (grid(0.99, 1.01), magnitudes(0, 13))):
        assert ulps(run(fn, x, y), np.power(x.astype(np.float64), y.astype(np.float64))) <= bound(fn)


@pytest.mark.parametrize("fn", both("atan2"))
def test_error_of_atan2_in_f32(fn: str) -> None:
    for y, x in ((grid(-3, 3), grid(-3, 3)[::-1]), (magnitudes(-60, 60), RNG.permutation(magnitudes(-60, 60)))):
        assert ulps(run(fn, y, x), np.arctan2(y.astype(np.float64), x.astype(np.float64))) <= bound(fn)


@pytest.mark.parametrize("fn", both("atan2"))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_edges_of_atan2(kind: type, fn: str) -> None:
    """All octants and all pairs of zeros, infinities and NaN, with the signs of C99."""
    edge = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN], kind)
    y, x = (a.ravel() for a in np.meshgrid(edge, edge))
    got, want = run(fn, y, x), np.arctan2(y.astype(np.float64), x.astype(np.float64)).astype(kind)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


def odd(*pairs: tuple[float, float]) -> list[tuple[float, float]]:
    """The pairs, and those of the opposite argument and the opposite value."""
    return [*pairs, *((-x, -y) for x, y in pairs)]


TINY = {np.float32: 2.0**-149, np.float64: 2.0**-1074}
ANGLE_EDGES = odd((INF, NAN), (1e30, NAN), (2.0**45, NAN), (NAN, NAN))


def edges(fn: str, kind: type) -> list[tuple[float, float]]:
    """Arguments and values, exact or rounded, for functions of one argument."""
    tiny, wide = TINY[kind], kind is np.float64
    least, most = (-745.1, 709.79) if wide else (-103.9, 88.73)
    top = float(np.finfo(kind).max)
    at_zero = odd((0.0, 0.0), (tiny, tiny))
    powers = [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e30, INF), (-1e30, 0.0)]
    table = {
        "exp": [*powers, (most, INF), (least, tiny), (least - 1, 0.0)],
        "exp2": [*powers, (5.0, 32.0), (-126.0, 2.0**-126), (1024.0, INF), (math.log2(tiny), tiny), (math.log2(tiny) - 1, 0.0)],
        "expm1": [*at_zero, (INF, INF), (-INF, -1.0), (NAN, NAN), (-100.0, -1.0), (most, INF)],
        "decay": [(0.0, 1.0), (-0.0, 1.0), (-INF, 0.0), (NAN, NAN), (-1e30, 0.0), (least, 0.0)],
        "log": [(0.0, -INF), (-0.0, -INF), (INF, INF), (NAN, NAN), (1.0, 0.0), (tiny, math.log(tiny)), (top, math.log(top))]
        + [(x, NAN) for x in (-1.0, -INF, -tiny, -top)],
        "log1p": [*at_zero, (INF, INF), (-1.0, -INF), (-1.5, NAN), (-INF, NAN), (NAN, NAN), (top, math.log(top))],
        "sigmoid": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), (800.0, 1.0), (-800.0, 0.0), (least, tiny)],
        "tanh": [*at_zero, *odd((INF, 1.0), (100.0, 1.0), (3e-42, 3e-42), (NAN, NAN))],
        "erf": odd((0.0, 0.0), (INF, 1.0), (10.0, 1.0), (NAN, NAN)),
        "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN), (4.0, 0.5)],
        "sin": at_zero + ANGLE_EDGES,
        "cos": [(0.0, 1.0), (-0.0, 1.0), (tiny, 1.0), *ANGLE_EDGES],
        "tan": at_zero + ANGLE_EDGES,
        "log2": [(0.0, -INF), (-0.0, -INF), (INF, INF), (NAN, NAN), (1.0, 0.0), (tiny, math.log2(tiny)), (8.0, 3.0), (-1.0, NAN)],
        "log10": [(0.0, -INF), (-0.0, -INF), (INF, INF), (NAN, NAN), (1.0, 0.0), (1000.0, 3.0), (1e10, 10.0), (-INF, NAN)],
        "asin": [*at_zero, *odd((1.0, math.pi / 2), (1.1, NAN), (INF, NAN), (NAN, NAN))],
        "acos": [(1.0, 0.0), (-1.0, math.pi), (0.0, math.pi / 2), (-0.0, math.pi / 2), (1.1, NAN), (-1.1, NAN), (INF, NAN), (NAN, NAN)],
        "atan": [*at_zero, *odd((INF, math.pi / 2), (1e30, math.pi / 2), (1.0, math.pi / 4), (NAN, NAN))],
        "sinh": [*at_zero, *odd((INF, INF), (1000.0, INF), (NAN, NAN))],
        "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (-1000.0, INF), (NAN, NAN)],
        "asinh": [*at_zero, *odd((INF, INF), (NAN, NAN), (top, math.log(top) + math.log(2.0)))],
        "acosh": [(1.0, 0.0), (INF, INF), (0.5, NAN), (-INF, NAN), (-5.0, NAN), (NAN, NAN), (top, math.log(top) + math.log(2.0))],
        "atanh": [*at_zero, *odd((1.0, INF), (1.5, NAN), (INF, NAN), (NAN, NAN))],
    }
    return table[fn]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("fn", both(*CASES))
def test_edges(fn: str, kind: type) -> None:
    for x, want in edges(named(fn), kind):
        got = run(fn, np.array([x], kind))
        np.testing.assert_array_equal(got, np.array([want], kind), err_msg=f"{fn}({x})")
        assert math.isnan(want) or np.signbit(got[0]) == np.signbit(kind(want)), f"{fn}({x})"


# C99, F.9.4.4: x, y, x^y.
NOT_ODD, ODD, BIG = (2.0, 0.5, 1e10, 2.5, 2.0**60), (1.0, 3.0, 4194305.0), (1.5, 2.0, 1e30)
POW_EDGES = [
    *((x, y, x) for x in (0.0, -0.0, INF, -INF) for y in ODD),
    *((x, -y, math.copysign(INF, x)) for x in (0.0, -0.0) for y in ODD),
    *((x, -y, math.copysign(0.0, x)) for x in (INF, -INF) for y in ODD),
    *((x, y, 0.0) for x in (0.0, -0.0) for y in (*NOT_ODD, INF)),
    *((x, -y, INF) for x in (0.0, -0.0) for y in (*NOT_ODD, INF)),
    *((x, y, INF) for x in (INF, -INF) for y in (*NOT_ODD, INF)),
    *((x, -y, 0.0) for x in (INF, -INF) for y in (*NOT_ODD, INF)),
    *((-1.0, y, 1.0) for y in (INF, -INF)),
    *((1.0, y, 1.0) for y in (NAN, INF, -INF, 0.0, 2.5, 1e30)),
    *((x, y, 1.0) for x in (NAN, INF, -INF, 0.0, -0.0, 2.0, -2.5) for y in (0.0, -0.0)),
    *((x, y, NAN) for x in (-2.0, -0.5, -1e-30) for y in (0.5, -2.5)),
    *((s * x, y, INF if y > 0 else 0.0) for x in BIG for s in (1, -1) for y in (INF, -INF)),
    *((s / x, y, 0.0 if y > 0 else INF) for x in BIG for s in (1, -1) for y in (INF, -INF)),
    *((NAN, y, NAN) for y in (1.0, INF, -2.0, NAN)),
    *((x, NAN, NAN) for x in (0.0, -1.0, 2.0, INF, -INF)),
    (-2.0, 3.0, -8.0), (-2.0, 4.0, 16.0), (-2.0, -1.0, -0.5), (10.0, 2.0, 100.0), (2.0, -149.0, 2.0**-149),
    (-8.0, 2001.0, -INF), (-8.0, -2001.0, -0.0),
]  # fmt: skip


@pytest.mark.parametrize("fn", both("pow"))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_edges_of_pow(kind: type, fn: str) -> None:
    x, y, want = (np.array(column, kind) for column in zip(*POW_EDGES, strict=True))
    got = run(fn, x, y)
    np.testing.assert_array_equal(got, want)
    real = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(want[real]))


@pytest.mark.parametrize("fn", both("fmod"))
@pytest.mark.parametrize(("kind", "low", "high"), [(np.float32, -149, 128), (np.float64, -1074, 1024)])
def test_fmod_is_exact(kind: type, low: int, high: int, fn: str) -> None:
    for least, most in ((low, high), (-20, 60), (low, low + 80)):
        x, y = ((np.exp2(RNG.uniform(least, most, 5000)) * RNG.choice([-1, 1], 5000)).astype(kind) for _ in range(2))
        y = np.where(y == 0, kind(1), y)
        want = np.array([math.fmod(float(a), float(b)) for a, b in zip(x, y, strict=True)], kind)
        np.testing.assert_array_equal(run(fn, x, y), want)


@pytest.mark.parametrize("fn", both("fmod"))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_edges_of_fmod(kind: type, fn: str) -> None:
    tiny, most = TINY[kind], float(np.finfo(kind).max)
    cases = [(0.0, 1.0, 0.0), (-0.0, 1.0, -0.0), (5.0, INF, 5.0), (-5.0, -INF, -5.0), (INF, 1.0, NAN), (1.0, 0.0, NAN), (1.0, -0.0, NAN)]
    cases += [(NAN, 1.0, NAN), (1.0, NAN, NAN), (0.0, 0.0, NAN), (INF, INF, NAN), (6.0, 3.0, 0.0), (-6.0, 3.0, -0.0), (5.5, -2.0, 1.5)]
    cases += [(most, tiny, 0.0), (tiny, most, tiny), (3 * tiny, 2 * tiny, tiny), (-most, 3.0, math.fmod(-most, 3.0)), (0.0, INF, 0.0)]
    x, y, want = (np.array(column, kind) for column in zip(*cases, strict=True))
    got = run(fn, x, y)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


@pytest.mark.parametrize("fn", both(*EXPANDED_FUNCTIONS))
def test_half_is_the_rounded_f32_result(fn: str) -> None:
    x = np.arange(0, 65536, 7, dtype=np.uint16).view(np.float16)
    args = [x, x[::-1]][: EXPANDED_FUNCTIONS[named(fn)]]
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(run(fn, *args), run(fn, *(a.astype(np.float32) for a in args)).astype(np.float16))


def test_expand_leaves_no_call_but_primitive_ones() -> None:
    x = Var("x", f32)
    e = expand(Mul(Call("tanh", Call("exp", x)), Add(Call("sqrt", x), x)))
    calls = {node.payload for node in walk(e) if isinstance(node, Call)}
    assert calls == {"sqrt", "abs"}
    samples = np.linspace(0, 3, 50).astype(np.float32)
    once = run("tanh", run("exp", samples)) * (np.sqrt(samples) + samples)
    np.testing.assert_array_equal(evaluate(e, {x: samples}), once)


def test_expand_returns_what_needs_no_expansion() -> None:
    x = Var("x", f32)
    e = Add(Call("sqrt", x), x)
    assert expand(e) is e
    assert definition("exp", f32)[1] is definition("exp", f32)[1]


@pytest.mark.parametrize("d", [f32, f64, f16], ids=str)
def test_a_form_without_fma_has_none(d: DType) -> None:
    for fn in EXPANDED_FUNCTIONS:
        assert any(isinstance(node, Fma) for node in walk(definition(fn, d)[1])) == (fn in UNFUSED), fn
        assert not any(isinstance(node, Fma) for node in walk(definition(UNFUSED.get(fn, fn), d)[1])), fn


def test_unfuse_leaves_what_must_be_rounded_once() -> None:
    a, b, c = (Var(name, f32) for name in "abc")
    e = Fma(a, b, MulAdd(Call("exp", a), b, Call("sqrt", Call("rsqrt", c))))
    assert str(unfuse(e)) == "fma(a, b, exp(a, fused=False) * b + sqrt(rsqrt(c)))"
    assert unfuse(unfuse(e)) is unfuse(e)
    plain = Add(Fma(a, b, c), Call("abs", c))
    assert unfuse(plain) is plain


def test_muladd_is_fma_until_it_is_unfused() -> None:
    a, b, c = (Var(name, f32) for name in "abc")
    values = dict(zip((a, b, c), RNG.standard_normal((3, 1000)).astype(np.float32), strict=True))
    once, twice = evaluate(MulAdd(a, b, c), values), evaluate(unfuse(MulAdd(a, b, c)), values)
    np.testing.assert_array_equal(once, evaluate(Fma(a, b, c), values))
    np.testing.assert_array_equal(twice, values[a] * values[b] + values[c])
    assert (once != twice).any()


def table_text() -> str:
    """The table of docs/functions.md."""
    rows = ["| function | f32 | f64 | f32, no fma | f64, no fma | remarks |", "|---|---|---|---|---|---|"]
    for fn, count in sorted(FUNCTIONS.items()):
        known = TABLE.get(fn)
        errors = (known.ulp32, known.ulp64, known.unfused32, known.unfused64) if known else (EXACT[fn][0],) * 4
        shown = ["exact" if e == 0.0 else str(e) for e in errors]
        rows.append(f"| `{fn}({', '.join('xy'[:count])})` | {' | '.join(shown)} | {known.remark if known else EXACT[fn][1]} |")
    return "\n".join(rows)


EXACT = {
    **dict.fromkeys(("abs", "floor", "ceil", "trunc"), (0.0, "")),
    "round": (0.0, "halves to even"),
    "sqrt": (0.5, "correctly rounded"),
}


def test_the_table_of_the_docs_is_that_of_the_code() -> None:
    assert table_text() in (Path(__file__).parents[2] / "docs" / "functions.md").read_text()


def test_unsupported_dtype_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="`exp` of i32"):
        expand(Call("exp", Var("x", i32)))
