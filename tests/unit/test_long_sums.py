"""Long sums are summed in parts: equal terms, whose rounding errors all have one sign, do not add up to more than a few units."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from native_loops import Lifted
from pliant import Tensor, dim, f32, function, ops
from pliant.interp.loop import run_loop
from pliant.schedule import Schedule
from pliant.schedule.library import default_family
from pliant.schedule.library.accumulate import MANY, PRODUCTS, SUMS, WINDOWS, cuts_of
from pliant.sym.expr import free_vars
from pliant.sym.semantics import evaluate
from pliant.target import target
from schedule_kernels import parse

n, k = dim("n", max=64), dim("k")
h, w = dim("h"), dim("w")
TERM, WEIGHT = np.float32(0.02158), np.float32(0.02)
EXACT = float(TERM) * float(WEIGHT)  # one product, in double precision
CENTRE = np.zeros((16, 16, 3, 3), np.float32)
CENTRE[np.arange(16), np.arange(16), 1, 1] = 1  # a convolution that changes nothing


@function
def product(x: Tensor[f32, n, 1024], w: Tensor[f32, 1024, 40]) -> Tensor[f32, n, 40]:
    return x @ w


@function
def odd_product(x: Tensor[f32, n, 1031], w: Tensor[f32, 1031, 40]) -> Tensor[f32, n, 40]:
    return x @ w


@function
def any_product(x: Tensor[f32, n, k], w: Tensor[f32, k, 40]) -> Tensor[f32, n, 40]:
    return x @ w


@function
def mean_of_rows(x: Tensor[f32, 5, k]) -> Tensor[f32, 5]:
    return ops.mean(x, axis=1)


@function
def row(x: Tensor[f32, 1, k], w: Tensor[f32, k, 512]) -> Tensor[f32, 1, 512]:
    return x @ w


@function
def convolution(x: Tensor[f32, n, 128, 5, 5], w: Tensor[f32, 32, 128, 3, 3]) -> Tensor[f32, n, 32, 3, 3]:
    return ops.conv(x, w)


@function
def classifier(x: Tensor[f32, n, 1024, 1, 1], w: Tensor[f32, 300, 1024, 1, 1]) -> Tensor[f32, n, 300, 1, 1]:
    return ops.conv(x, w)


@pytest.mark.parametrize(
    ("what", "x", "w", "terms"),
    [
        (product, (5, 1024), (1024, 40), 1024),
        (odd_product, (5, 1031), (1031, 40), 1031),
        (any_product, (5, 1024), (1024, 40), 1024),
        (any_product, (5, 100_003), (100_003, 40), 100_003),
        (row, (1, 5000), (5000, 512), 5000),
        (convolution, (2, 128, 5, 5), (32, 128, 3, 3), 1152),
        (classifier, (3, 1024, 1, 1), (300, 1024, 1, 1), 1024),
    ],
    ids=["product", "odd", "any", "any, long", "row", "convolution", "classifier"],
)
def test_equal_terms(what: object, x: tuple[int, ...], w: tuple[int, ...], terms: int) -> None:
    found = pliant.compile(what)(np.full(x, TERM), np.full(w, WEIGHT))
    assert np.max(np.abs(found.astype(np.float64) / (terms * EXACT) - 1)) < 1e-6  # in one piece 1024 are off by 5e-6


@function
def mean_in_blocks(x: Tensor[f32, 1, 16, h, w]) -> Tensor[f32, 1, 16, 1, 1]:
    return ops.global_avg_pool(ops.conv(x, ops.constant(CENTRE), padding=1))


@function
def mean_of_columns(x: Tensor[f32, h, w]) -> Tensor[f32, w]:
    return ops.mean(x, axis=0)


@function
def variance_of_channels(x: Tensor[f32, n, 8, h, w]) -> Tensor[f32, 8]:
    return ops.var(x, axis=(0, 2, 3), correction=0)


@function
def norm_of_images(x: Tensor[f32, n, 3, h, w]) -> Tensor[f32, n, 3, h, w]:
    return ops.layer_norm(x, axis=1)


@function
def norm_of_groups(x: Tensor[f32, n, 8, h, w]) -> Tensor[f32, n, 8, h, w]:
    return ops.group_norm(x, groups=2)


@pytest.mark.parametrize(("height", "width"), [(80, 80), (3, 5), (1, 6400), (6400, 1), (131, 257)])
def test_means_of_images_in_blocks_of_channels(height: int, width: int) -> None:
    """The layout that images between convolutions have: a mean over 80x80 was off by 1.4e-5 in one piece."""
    x = np.random.default_rng(0).random((1, 16, height, width), np.float32)
    found = pliant.compile(mean_in_blocks)(x).astype(np.float64)
    assert np.max(np.abs(found / x.astype(np.float64).mean((2, 3), keepdims=True) - 1)) < 4e-7


@pytest.mark.parametrize("rows", [1, 31, 33, 512, 6401, 20000])
def test_means_of_columns(rows: int) -> None:
    x = np.random.default_rng(1).random((rows, 13), np.float32)
    found = pliant.compile(mean_of_columns)(x).astype(np.float64)
    assert np.max(np.abs(found / x.astype(np.float64).mean(0) - 1)) < 4e-7


def test_variances_of_channels() -> None:
    x = np.random.default_rng(2).random((4, 8, 50, 70), np.float32)
    found = pliant.compile(variance_of_channels)(x).astype(np.float64)
    assert np.max(np.abs(found / x.astype(np.float64).var((0, 2, 3)) - 1)) < 4e-7


@pytest.mark.parametrize(("what", "channels", "groups"), [(norm_of_images, 3, 1), (norm_of_groups, 8, 2)])
def test_norms_of_images(what: object, channels: int, groups: int) -> None:
    x = np.random.default_rng(3).random((2, channels, 90, 70), np.float32)
    rows = x.astype(np.float64).reshape(2, groups, -1)
    want = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(pliant.compile(what)(x), want.reshape(x.shape), atol=1e-6)


def test_a_row_alone_equals_the_row_in_a_batch() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((9, 1024)).astype(np.float32), rng.standard_normal((1024, 40)).astype(np.float32)
    for f in (pliant.compile(product), pliant.compile(any_product)):
        np.testing.assert_array_equal(f(x, w), np.concatenate([f(x[r : r + 1], w) for r in range(9)]))


def test_the_number_of_threads_does_not_change_a_sum() -> None:
    x = np.random.default_rng(0).standard_normal((300_000, 3)).astype(np.float32)
    np.testing.assert_array_equal(pliant.compile(mean_of_columns, threads=1)(x), pliant.compile(mean_of_columns, threads=2)(x))


SUMS_OF_ROWS = """
n = dim("n")
m = dim("m")
@kernel
def sums(x: Tensor[f32, n, m], y: Out[f32, {result}]) -> None:
    add = alloc((n,), f32)
    for i, j in grid(n, m):
        with block("add", "SR", i, j) as (vi, vj):
            with init():
                add[vi] = 0.0
            add[vi] += x[vi, vj]
"""
HALVED = """
    for i in range(n):
        with block("y", "S", i) as vi:
            y[vi] = add[vi] * 0.5
"""
SCALED = """
    for i, j in grid(n, m):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = x[vi, vj] * add[vi]
"""


def test_rows_that_are_one_part_have_a_program_of_their_own() -> None:
    """Short rows add their lanes in f32, long ones in f64 (design 0025); both are as near to the exact sum as pairwise sums are."""
    short, long = default_family(parse(SUMS_OF_ROWS.format(result="n") + HALVED), target("native")).variants
    [m] = free_vars(short.guard)
    assert evaluate(short.guard, {m: 4096}) and not evaluate(short.guard, {m: 4097})
    rng = np.random.default_rng(5)
    for length in (0, 1, 63, 200, 4095, 4096):
        x = rng.standard_normal((3, length)).astype(np.float32)
        results = []
        for variant in (short, long):
            y, sizes = np.empty(3, np.float32), {"n": 3, "m": length}
            dims = [sizes[v.name] for v in variant.func.symbols]
            assert Lifted([variant.func], level=0).call(variant.func, [x, y], dims, threads=1) == 0
            results.append(y)
        exact, scale = x.astype(np.float64).sum(axis=1) / 2, np.abs(x.astype(np.float64)).sum(axis=1) / 2
        for y in results:
            assert (np.abs(y - exact) <= np.finfo(np.float32).eps * scale).all()


def test_both_programs_of_rows_have_memory_of_their_own() -> None:
    """What lies between the sum and the result is workspace in each of them."""
    mean = pliant.compile(mean_of_rows, cache=False)
    for length in (3, 9000):
        x = np.random.default_rng(0).standard_normal((5, length)).astype(np.float32)
        np.testing.assert_allclose(mean(x), x.astype(np.float64).mean(axis=1), rtol=1e-5, atol=1e-5)


def test_rows_that_are_stored_have_one_program() -> None:
    """What a kernel computes for each element takes so long that a part more or less is not worth a second program."""
    assert len(default_family(parse(SUMS_OF_ROWS.format(result="n, m") + SCALED), target("native")).variants) == 1


@pytest.mark.parametrize("extents", [[1024], [6625], [1031], [2**20], [8, 16, 3, 3], [80, 80], [3, 7, 1000]])
@pytest.mark.parametrize("how", [PRODUCTS, SUMS])
def test_parts_are_short_and_few(extents: list[int | None], how: object) -> None:
    """Chains of terms, of parts and of groups are all short."""
    lengths, left = [], list(extents)
    for cut in cuts_of(extents, how):  # type: ignore[arg-type]
        steps = left[cut.at] or 0
        lengths.append(cut.size * int(np.prod([e or 1 for e in left[cut.at + 1 :]])))
        left = [*left[: cut.at], -(-steps // cut.size)]
    assert all(length <= 2 * how.part or n > 0 for n, length in enumerate(lengths))  # type: ignore[attr-defined]
    assert int(np.prod([e or 1 for e in left])) <= max(4 * MANY, round(np.prod([e or 1 for e in extents]) ** (1 / 3)))


@pytest.mark.parametrize(("extents", "cuts"), [([None], 2), ([None, None], 3), ([1, None], 2), ([None, 8, 3, 3], 2)])
def test_sums_of_unknown_length_are_cut_again(extents: list[int | None], cuts: int) -> None:
    assert len(cuts_of(extents)) == cuts


@pytest.mark.parametrize(("extents", "part"), [([7, 7], 7), ([5, 5], 5), ([49], 7), ([3, 3, 3], 9), ([8, 8], 8), ([17], 0), ([23, 2], 0)])
def test_windows_have_equal_parts_or_none(extents: list[int], part: int) -> None:
    cuts = cuts_of(extents, WINDOWS)
    assert [c.size * int(np.prod(extents[c.at + 1 :])) for c in cuts] == ([part] if part else [])


KERNEL = """
n = dim("n")
m = dim("m")
@kernel
def f(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    for i, k in grid(n, m):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                y[vi] = 1.0
            where(vk % 3 != 1)
            y[vi] += x[vi, vk]
"""


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 16, 23])
def test_parts_of_any_length_under_a_predicate(levels: int, size: int) -> None:
    """Parts begin with 0, the sum with its init; a part that the predicate leaves empty, or that does not exist, adds nothing."""
    s = Schedule(parse(KERNEL))
    _, loop = s.loops("y")
    outer, *inner = s.split(loop, None, *([2, 4] if levels == 2 else [4]))
    total = s.sum_in_parts("y", inner[0] if levels == 2 else outer)
    if levels == 2:
        s.sum_in_parts(total, outer)
    x = np.random.default_rng(size).integers(-9, 9, (5, size)).astype(np.float32)  # sums of small whole numbers are exact
    y = np.full(5, np.nan, np.float32)
    run_loop(s.func, [x, y])
    np.testing.assert_array_equal(y, 1 + x[:, np.arange(size) % 3 != 1].sum(1))
    np.testing.assert_array_equal(pliant.compile(s)(x), y)
