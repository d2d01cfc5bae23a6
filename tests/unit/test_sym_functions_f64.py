"""Expanded functions of f64, in both forms, against mpmath, in units of the last place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pliant.dtype import f64
from pliant.sym.expr import Call, Var
from pliant.sym.function_names import EXPANDED_FUNCTIONS, UNFUSED
from pliant.sym.functions import TABLE
from pliant.sym.semantics import evaluate

mpmath = pytest.importorskip("mpmath")
RNG = np.random.default_rng(11)
N = 1500
MP = mpmath.mp.clone()
MP.prec = 160


def uniform(low: float, high: float) -> np.ndarray:
    return RNG.uniform(low, high, N)


def magnitudes(low: float, high: float) -> np.ndarray:
    return np.exp2(RNG.uniform(low, high, N))


def both(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, -x])


ANGLES = [
    uniform(-10, 10),
    both(magnitudes(-1074, 44.9)),
    np.arange(1, N) * (np.pi / 2),
    RNG.integers(1, 2**29, N) * (np.pi / 2),
    RNG.integers(2**29, 2**44, N) * (np.pi / 2),
]
CASES: dict[str, tuple[Callable[..., object], list[np.ndarray | tuple[np.ndarray, np.ndarray]]]] = {
    "exp": (MP.exp, [uniform(-745.1, 709.7), uniform(-1, 1)]),
    "exp2": (lambda x: MP.power(2, x), [uniform(-1074, 1023.9), uniform(-1, 1)]),
    "expm1": (MP.expm1, [uniform(-40, 709.7), uniform(-1, 1), both(magnitudes(-1074, 3))]),
    "decay": (MP.exp, [uniform(-708.3, 0), uniform(-1, 0), -magnitudes(-1074, 0)]),
    "log": (MP.log, [magnitudes(-1074, 1024), uniform(0.5, 2), 1 + both(magnitudes(-50, -2))]),
    "log1p": (MP.log1p, [magnitudes(-1074, 1024), uniform(-0.999, 2), -magnitudes(-1074, -0.01), both(magnitudes(-60, -2))]),
    "sigmoid": (lambda x: 1 / (1 + MP.exp(-x)), [uniform(-745, 745), uniform(-20, 20)]),
    "tanh": (MP.tanh, [uniform(-20, 20), uniform(-1, 1), both(magnitudes(-1074, 4))]),
    "erf": (MP.erf, [uniform(-6, 6), uniform(-1.2, 1.2), both(magnitudes(-1000, 3))]),
    "rsqrt": (lambda x: 1 / MP.sqrt(x), [magnitudes(-1074, 1024)]),
    "sin": (MP.sin, ANGLES),
    "cos": (MP.cos, ANGLES),
    "tan": (MP.tan, ANGLES),
    "log2": (lambda x: MP.log(x, 2), [magnitudes(-1074, 1024), uniform(0.5, 2), 1 + both(magnitudes(-50, -2))]),
    "log10": (lambda x: MP.log(x, 10), [magnitudes(-1074, 1024), uniform(0.5, 2), 1 + both(magnitudes(-50, -2))]),
    "asin": (MP.asin, [uniform(-1, 1), both(magnitudes(-1074, -0.01)), both(1 - magnitudes(-50, -1)), uniform(0.45, 0.55)]),
    "acos": (MP.acos, [uniform(-1, 1), both(magnitudes(-1074, -0.01)), both(1 - magnitudes(-50, -1)), uniform(0.45, 0.55)]),
    "atan": (MP.atan, [uniform(-4, 4), both(magnitudes(-1074, 1023)), uniform(0.4, 0.44), uniform(2.3, 2.5)]),
    "sinh": (MP.sinh, [uniform(-710, 710), uniform(-1, 1), both(magnitudes(-1074, 5)), uniform(708, 710.4)]),
    "cosh": (MP.cosh, [uniform(-710, 710), uniform(-1, 1), both(magnitudes(-1074, 5)), uniform(708, 710.4)]),
    "asinh": (MP.asinh, [uniform(-3, 3), both(magnitudes(-1074, 1023)), both(magnitudes(20, 35))]),
    "acosh": (MP.acosh, [uniform(1, 3), magnitudes(0, 1023), 1 + magnitudes(-51, -1), magnitudes(20, 35)]),
    "atanh": (MP.atanh, [uniform(-1, 1), both(magnitudes(-1074, -0.01)), both(1 - magnitudes(-50, -1))]),
    "atan2": (
        MP.atan2,
        [
            (uniform(-3, 3), uniform(-3, 3)),
            (magnitudes(-500, 500), both(magnitudes(-500, 500))[::2]),
            (-magnitudes(-4, 4), both(magnitudes(-4, 4))[::2]),
        ],
    ),
    "pow": (
        MP.power,
        [
            (magnitudes(-1074, 1024), uniform(-1, 1)),
            (uniform(0.1, 10), uniform(-300, 300)),
            (1 + RNG.choice([-1, 1], N) * magnitudes(-40, -2), magnitudes(0, 40)),
        ],
    ),
}


def ulps(got: float, want: object) -> float:
    """The error in units of the last place; where the value overflows, infinity is right."""
    if abs(want) > MP.mpf(2) ** 1024 * (1 - MP.mpf(2) ** -54):
        return 0.0 if np.isinf(got) else np.inf
    exponent = max(MP.frexp(want)[1] - 53, -1074)
    return float(abs(MP.mpf(got) - want) / MP.mpf(2) ** exponent)


def test_every_function_has_a_case() -> None:
    assert {*CASES, "fmod"} == set(EXPANDED_FUNCTIONS)


@pytest.mark.parametrize("fn", [*CASES, *(UNFUSED[fn] for fn in CASES if fn in UNFUSED)])
def test_error_in_f64(fn: str) -> None:
    name = fn.partition(".")[0]
    reference, samples = CASES[name]
    most = TABLE[name].ulp64 if fn == name else TABLE[name].unfused64
    for sample in samples:
        args = sample if isinstance(sample, tuple) else (sample,)
        params = [Var(name, f64) for name in "xy"[: len(args)]]
        got = evaluate(Call(fn, *params), dict(zip(params, args, strict=True)))
        errors = [ulps(float(g), reference(*map(MP.mpf, map(float, a)))) for g, *a in zip(got, *args, strict=True)]
        worst = int(np.argmax(errors))
        assert errors[worst] <= most, (errors[worst], [float(a[worst]) for a in args])
