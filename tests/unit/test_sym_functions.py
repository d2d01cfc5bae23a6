"""Expanded functions against numpy in double (exp of doubles: long double), in units of the last place, and at the edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from pliant.dtype import f16, f32, f64, i32
from pliant.support.errors import UnsupportedError
from pliant.sym.expr import EXPANDED_FUNCTIONS, Add, Call, Mul, Var, walk
from pliant.sym.functions import definition, expand
from pliant.sym.semantics import evaluate

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


def run(fn: str, x: np.ndarray) -> np.ndarray:
    v = Var("x", f64 if x.dtype == np.float64 else f16 if x.dtype == np.float16 else f32)
    return evaluate(Call(fn, v), {v: x})


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(-np.abs(x)), 1.0) / (1.0 + np.exp(-np.abs(x)))


def positive(f: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: f(np.abs(x))


CASES: list[tuple[str, Callable[[np.ndarray], np.ndarray], np.ndarray, float]] = [
    ("exp", np.exp, grid(-104, 88.8), 1.5),
    ("exp", np.exp, magnitudes(-140, 6), 1.5),
    ("log", np.log, np.abs(magnitudes(-149, 127)), 1.5),
    ("log", np.log, grid(0.5, 2.0), 1.5),
    ("sigmoid", sigmoid, grid(-103, 103), 2.5),
    ("sigmoid", sigmoid, magnitudes(-140, 6), 2.5),
    ("tanh", np.tanh, grid(-10, 10), 2.0),
    ("tanh", np.tanh, magnitudes(-149, 6), 2.0),
    ("erf", np.vectorize(math.erf), grid(-4.5, 4.5), 1.5),
    ("erf", np.vectorize(math.erf), magnitudes(-140, 6)[::4], 1.5),
    ("rsqrt", lambda x: 1 / np.sqrt(x), np.abs(magnitudes(-149, 127)), 1.5),
    ("sin", np.sin, grid(-1e5, 1e5), 2.0),
    ("cos", np.cos, grid(-1e5, 1e5), 2.0),
    ("sin", np.sin, magnitudes(-149, 29.9), 2.0),
    ("cos", np.cos, magnitudes(-149, 29.9), 2.0),
    ("sin", np.sin, (np.arange(1, 60000) * (np.pi / 2)).astype(np.float32), 2.0),
    ("cos", np.cos, (np.arange(1, 60000) * (np.pi / 2)).astype(np.float32), 2.0),
]


@pytest.mark.parametrize(("fn", "reference", "x", "limit"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_accuracy(fn: str, reference: Callable[[np.ndarray], np.ndarray], x: np.ndarray, limit: float) -> None:
    assert ulps(run(fn, x), reference(x.astype(np.float64))) <= limit


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="no long double to compare with")
def test_exp_of_doubles() -> None:
    x = np.concatenate([RNG.uniform(-745, 709.7, N), np.linspace(-1, 1, N), -np.exp2(RNG.uniform(-60, 0, N))])
    assert ulps(run("exp", x), np.exp(x.astype(np.longdouble))) <= 1.5


EDGES = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (88.73, INF), (-103.9, 2.0**-149), (-104.5, 0.0), (1e30, INF)],
    "log": [(0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN), (NAN, NAN), (1.0, 0.0), (2.0**-149, math.log(2.0**-149))],
    "sigmoid": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), (200.0, 1.0), (-200.0, 0.0)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (100.0, 1.0), (1e-40, 1e-40)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (10.0, 1.0)],
    "rsqrt": [(0.0, INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN), (4.0, 0.5)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e30, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e30, NAN)],
}


@pytest.mark.parametrize("fn", EXPANDED_FUNCTIONS)
def test_edges(fn: str) -> None:
    for x, want in EDGES[fn]:
        got = run(fn, np.array([x], np.float32))
        np.testing.assert_array_equal(got, np.array([want], np.float32), err_msg=f"{fn}({x})")
        assert math.isnan(want) or np.signbit(got[0]) == np.signbit(np.float32(want))


@pytest.mark.parametrize("fn", EXPANDED_FUNCTIONS)
def test_half_is_the_rounded_f32_result(fn: str) -> None:
    x = np.arange(0, 65536, 7, dtype=np.uint16).view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(run(fn, x), run(fn, x.astype(np.float32)).astype(np.float16))


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


def test_unsupported_dtype_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="`exp` of i32"):
        expand(Call("exp", Var("x", i32)))
