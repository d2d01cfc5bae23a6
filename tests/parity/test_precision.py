"""How far sums, means, norms, pools, products and functions are from float64: in the class of numpy's pairwise sums, whatever the layout.

`benchmarks/precision.py` compares with numpy, torch and onnxruntime over more sizes and seeds. Here the bounds are numbers, about twice
what was found over 20 seeds; a sum of 6400 terms in one piece is off by 20 to 40.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from error_cases import CASES, EPS, FUNCTIONS
from levels import runnable
from pliant import ops
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor
from pliant.sym.expr import const

SEEDS = range(4)
SOFT = 8.0  # units of results that exp is a part of: its argument is rounded, too
SUMMED = 3.0
SIZE = 6400
NEAR = (
    "exp",
    "log",
    "log1p",
    "sqrt",
    "erf",
    "atan",
    "asin",
    "acos",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "sin",
    "cos",
)  # 1.5 roundings at the most
LESS_NEAR = {"expm1": 0.85, "tan": 1.8}


def worst(name: str, size: int, program: Any, seeds: range = SEEDS, to: str = "native") -> float:
    """The largest error over the seeds."""
    compiled = pliant.compile(program, target=to)
    case = (CASES | FUNCTIONS)[name]
    return max(case.error(np.asarray(compiled(*arrays)), arrays) for arrays in (case.arrays(size, seed) for seed in seeds))


def bound(name: str) -> float:
    """The largest error that is allowed."""
    if name.startswith("product along"):  # every product rounds, in whatever order: by sqrt(n) / 3 on average, of several rows
        return float(np.sqrt(SIZE))
    return SOFT if "softmax" in name else SUMMED


@pytest.mark.parametrize("name", CASES)
def test_errors_of_any_size(name: str) -> None:
    case = CASES[name]
    assert worst(name, min(max(SIZE, case.least), case.most), case.program(None)) < bound(name)


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("mean", "matrix", "row", "norm"))])
def test_errors_of_a_known_size(name: str) -> None:
    assert worst(name, SIZE, CASES[name].program(SIZE)) < bound(name)


@pytest.mark.parametrize("name", ["mean along rows", "mean along columns", "sum of everything", "product with a vector"])
def test_errors_of_a_million_terms(name: str) -> None:
    assert worst(name, 1_000_000, CASES[name].program(None)) < SUMMED


@pytest.mark.parametrize("where", ["along rows", "along columns", "of everything", "of an image", "of images, each channel", "of places"])
@pytest.mark.parametrize("what", ["sum", "mean", "variance"])
def test_totals_are_nearly_exact(what: str, where: str) -> None:
    """The last additions are in f64: hardly more is lost than by rounding the exact result, which costs half a unit at the most."""
    assert worst(f"{what} {where}", SIZE, CASES[f"{what} {where}"].program(None)) < 0.75


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("where", ["along rows", "along columns", "of everything", "of an image", "of places"])
def test_variances_of_few_numbers_are_rounded_once(where: str, known: bool) -> None:
    """Errors of few terms do not cancel each other: in f32 they are 0.9 along rows, and 1.6 along columns."""
    case = CASES[f"variance {where}"]
    assert worst(f"variance {where}", 17, case.program(17 if known else None)) < 0.51


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("where", ["along columns", "of places", "of an image in blocks of channels"])
def test_variances_along_columns_have_totals_of_few_terms(where: str, known: bool) -> None:
    """Parts of 4 terms, then f64; with groups of 32 terms in f32, as in other sums, they are off by up to 0.94 units."""
    case = CASES[f"variance {where}"]
    assert worst(f"variance {where}", 128, case.program(128 if known else None), range(20)) < 0.75


@pytest.mark.parametrize(
    ("name", "size", "known"),
    [("variance of everything", 1000, False), ("variance of everything", 65536, True), ("sum of squares of everything", 65536, True)],
)
def test_sums_of_pieces_are_in_f64(name: str, size: int, known: bool) -> None:
    """The only piece of one short row, and the sums of several."""
    assert worst(name, size, CASES[name].program(size if known else None), range(20)) < 0.7


@pytest.mark.parametrize("to", runnable("native", "llvm:x86-64-v3", "llvm:x86-64-v2"))
@pytest.mark.parametrize("name", ["sum along columns", "sum of an image in blocks of channels"])
@pytest.mark.parametrize("size", [16, 17, 49])
def test_short_sums_of_known_length_are_no_chain(name: str, size: int, to: str) -> None:
    """Parts of eight terms, then f64, also where no rule but the fallback takes them: several blocks of channels."""
    assert worst(name, size, CASES[name].program(size), to=to) < 1.15


@pytest.mark.parametrize("to", runnable("native", "llvm:x86-64-v3"))
@pytest.mark.parametrize("window", [(7, 7), (5, 5), (1, 49), (8, 3)])
def test_windows_are_summed_in_parts(window: tuple[int, int], to: str) -> None:
    """As chains they are off by 2.3 to 4.7 units."""
    builder = Builder("pool")
    image = builder.param("x", Tensor(f32, (const(2), const(3), const(9), const(120))))
    with builder:
        result = ops.avg_pool(image, window, stride=1)
    x = np.abs(np.random.default_rng(1).standard_normal((2, 3, 9, 120))).astype(np.float32)
    exact = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), window, (2, 3)).mean((4, 5))
    assert np.max(np.abs(pliant.compile(builder.finish([result]), target=to)(x) / exact - 1)) / EPS < 2.0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_of_functions(name: str) -> None:
    """In units of eps times the result: a unit in the last place is one to two of these halves."""
    assert worst(name, FUNCTIONS[name].least, FUNCTIONS[name].program(None)) < (0.75 if name in NEAR else LESS_NEAR.get(name, 4.0))
