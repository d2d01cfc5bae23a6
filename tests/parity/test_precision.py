"""How far sums, means, norms, pools, products and functions are from float64: in the class of numpy's pairwise sums, whatever the layout.

`benchmarks/precision.py` compares with numpy, torch and onnxruntime over more sizes and seeds. Here the bounds are numbers, about twice
what was found over 20 seeds; a sum of 6400 terms in one piece is off by 20 to 40.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from error_cases import CASES, FUNCTIONS

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
)  # 1.5 roundings at the most


def worst(name: str, size: int, program: Any, seeds: range = SEEDS) -> float:
    """The largest error over the seeds."""
    compiled = pliant.compile(program)
    case = (CASES | FUNCTIONS)[name]
    return max(case.error(np.asarray(compiled(*arrays)), arrays) for arrays in (case.arrays(size, seed) for seed in seeds))


def bound(name: str) -> float:
    """The largest error that is allowed."""
    if name.startswith("product along"):  # every product rounds, in whatever order: by sqrt(n) / 3 on average, of several rows
        return float(np.sqrt(SIZE))
    if name == "pools of 7x7":  # a chain of 49 terms, as in torch
        return 7.0
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


@pytest.mark.parametrize(
    ("name", "size", "known"),
    [("variance of everything", 1000, False), ("variance of everything", 65536, True), ("sum of squares of everything", 65536, True)],
)
def test_sums_of_pieces_are_in_f64(name: str, size: int, known: bool) -> None:
    """The only piece of one short row, and the sums of several."""
    assert worst(name, size, CASES[name].program(size if known else None), range(20)) < 0.7


@pytest.mark.parametrize("size", [16, 17])
def test_short_sums_of_known_length_are_no_chain(size: int) -> None:
    """Parts of eight terms, then f64."""
    assert worst("sum along columns", size, CASES["sum along columns"].program(size)) < 1.1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_of_functions(name: str) -> None:
    """In units of eps times the result: a unit in the last place is one to two of these halves."""
    assert worst(name, FUNCTIONS[name].least, FUNCTIONS[name].program(None)) < (0.75 if name in NEAR else 4.0)
