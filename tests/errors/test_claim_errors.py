"""What the kinds of a block's iterators claim: wrong claims are errors at the user's line, which say which kind to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import InOut, Out, Tensor, alloc, block, combine, dim, f32, grid, i64, init, kernel, u8, view, where
from pliant.support.errors import Error, InternalError

n, m = dim("n"), dim("m")


def carried() -> Any:
    @kernel
    def f(x: Tensor[f32, n], y: InOut[f32, n]) -> None:
        for i in range(n - 1):
            with block("y", "S", i + 1) as a:
                y[a] = x[a] + y[a - 1]  # here

    return f


def carried_by_a_name() -> Any:
    @kernel
    def f(x: Tensor[f32, n], y: InOut[f32, n]) -> None:
        for i in range(n - 1):
            with block("y", "S", i + 1) as a:
                last = y[a - 1]  # here
                y[a] = x[a] + last

    return f


def one_place() -> Any:
    @kernel
    def f(x: Tensor[f32, n], y: Out[f32, 1]) -> None:
        for i in range(n):
            with block("y", "S", i) as a:
                y[0] = x[a]  # here

    return f


def sum_over_space() -> Any:
    @kernel
    def f(x: Tensor[f32, n, m], y: InOut[f32, n]) -> None:
        for i, j in grid(n, m):
            with block("y", "SS", i, j) as (a, b):
                y[a] += x[a, b]  # here

    return f


def scatter() -> Any:
    @kernel
    def f(x: Tensor[f32, n], at: Tensor[i64, n], y: InOut[f32, m]) -> None:
        for i in range(n):
            with block("y", "S", i) as a:
                y[at[a]] = x[a]  # here

    return f


def overlapping_pairs() -> Any:
    @kernel
    def f(x: Tensor[f32, n], y: InOut[f32, n + 1]) -> None:
        for i in range(n):
            with block("y", "S", i) as a:
                y[a] = x[a]
                y[a + 1] = x[a]  # here

    return f


def overlapping_views() -> Any:
    @kernel
    def f(x: Tensor[f32, n], y: InOut[f32, n + 1]) -> None:
        for i in range(n):
            with block("y", "S", i) as a:
                pair = view(y[a], (2,))
                for k in range(2):
                    pair[k] = x[a]  # here

    return f


def strides_that_meet() -> Any:
    @kernel
    def f(x: Tensor[f32, n, 4], y: InOut[f32, n + 4]) -> None:
        rows = view(y[0], (n, 4), strides=(1, 1))
        for i, j in grid(n, 4):
            with block("y", "SS", i, j) as (a, b):
                rows[a, b] = x[a, b]  # here

    return f


def bytes_of_numbers() -> Any:
    @kernel
    def f(x: Tensor[f32, n], y: InOut[u8, n + 3]) -> None:
        for i in range(n):
            with block("y", "S", i) as a:
                number = view(y[a], (1,), dtype=f32)
                number[0] = x[a]  # here

    return f


def remainder() -> Any:
    @kernel
    def f(x: Tensor[f32, n], y: InOut[f32, 4]) -> None:
        for i in range(n):
            with block("y", "S", i) as a:
                y[a % 4] = x[a]  # here

    return f


def last_one_wins() -> Any:
    @kernel
    def f(x: Tensor[f32, n, m], y: InOut[f32, n]) -> None:
        for i, k in grid(n, m):
            with block("y", "SR", i, k) as (a, b):
                y[a] = x[a, b]  # here

    return f


def first_one_begins() -> Any:
    @kernel
    def f(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
        for i, k in grid(n, m):
            with block("y", "SR", i, k) as (a, b):
                if b == 0:
                    y[a] = 0.0  # here
                y[a] += x[a, b]

    return f


def histogram() -> Any:
    @kernel
    def f(at: Tensor[i64, n], y: InOut[f32, m]) -> None:
        for i in range(n):
            with block("y", "R", i) as a:
                y[at[a]] += 1.0  # here

    return f


def reads_its_sum() -> Any:
    @kernel
    def f(x: Tensor[f32, n, m], y: InOut[f32, n], z: InOut[f32, n]) -> None:
        for i, k in grid(n, m):
            with block("y", "SR", i, k) as (a, b):
                y[a] += x[a, b]
                z[a] += y[a]  # here

    return f


def two_ways() -> Any:
    @kernel
    def f(x: Tensor[f32, n, m], y: InOut[f32, n]) -> None:
        for i, k in grid(n, m):
            with block("y", "SR", i, k) as (a, b):
                y[a] += x[a, b]
                y[a] *= 0.5  # here

    return f


MISTAKES = {
    carried: ("reads elements of `y` that instances of other `a` write", "`y[a]` and reads `y[a - 1]`", 'write "O" for `a`'),
    carried_by_a_name: ("reads elements of `y` that instances of other `a` write", "`y[a]` and reads `y[a - 1]`", 'write "O" for `a`'),
    one_place: ("may write one element of `y`", "`y[0]` does not depend on `a`", 'or "R", and combine: y[0] += ...'),
    sum_over_space: ("may write one element of `y`", "`y[a]` does not depend on `b`", 'write "R" for `b`'),
    scatter: ("may write one element of `y`", "`y[at[a]]` depends on data", 'write "O" for `a`'),
    overlapping_pairs: ("may write one element of `y`", "`y[a", 'write "O" for `a`'),
    overlapping_views: ("may write one element of `pair`", "`pair[k]`", 'write "O" for `a`'),
    strides_that_meet: ("may write one element of `rows`", "`rows[a, b]`", 'write "O" for `a`'),
    bytes_of_numbers: ("may write one element of `number`", "`number[0]`", 'write "O" for `a`'),
    remainder: ("may write one element of `y`", "`y[a % 4]`", 'write "O" for `a`'),
    last_one_wins: ("stores to `y` for every `b`, which is reduced over", "`y[a]`", "combine: y[a] += ..."),
    first_one_begins: ("stores to `y` for every `b`, which is reduced over", "`y[a]`", "combine: y[a] += ..."),
    histogram: ("depends on the reduction iterator `a`", "`y[at[a]]`", 'write "O" for `a`'),
    reads_its_sum: ("reads `y`, which it reduces into", "`y[a]`", "combine(lambda"),
    two_ways: ("combines `y` in two ways", "`mul`", 'write "O"'),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_claim_is_an_error_at_its_line(mistake: Any) -> None:
    what, fact, help_ = MISTAKES[mistake]
    with pytest.raises(Error) as info:
        mistake()
    error = info.value
    assert not isinstance(error, InternalError)
    assert what in error.what and any(fact in f for f in error.facts) and help_ in error.help, str(error)
    assert error.where is not None and Path(error.where.file) == Path(__file__)
    if mistake is not overlapping_pairs:  # either of two lines
        assert "# here" in Path(__file__).read_text().splitlines()[error.where.line - 1]


# What looks like it and is right.


@kernel
def halve(x: InOut[f32, n]) -> None:
    for i in range(n):
        with block("x", "S", i) as a:
            x[a] *= 0.5


@kernel
def halves_of_a_row(x: InOut[f32, 2, n]) -> None:
    for i in range(n):
        with block("x", "S", i) as a:
            x[0, a] = x[0, a] + x[1, a]


@kernel
def from_the_other_half(x: InOut[f32, 16]) -> None:
    for i in range(8):
        with block("x", "S", i) as a:
            x[a] = x[a] + x[a + 8]


@kernel
def pairs(x: Tensor[f32, n], y: InOut[f32, n * 2]) -> None:
    for i in range(n):
        with block("y", "S", i) as a:
            pair = view(y[a * 2], (2,))
            for k in range(2):
                pair[k] = x[a]


@kernel
def with_init(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        with block("y", "S", i) as a:
            with init():
                y[a] = 1.0
            y[a] += x[a]


@kernel
def own_memory(x: Tensor[f32, n, 4], y: Out[f32, n]) -> None:
    for i in range(n):
        t = alloc((4,), f32)
        for j in range(4):
            with block("t", "SS", i, j) as (a, b):
                t[b] = x[a, b] * 2.0
        for j in range(4):
            with block("y", "SR", i, j) as (a, b):
                with init():
                    y[a] = 0.0
                y[a] += t[b]


@kernel
def only_the_first(x: Tensor[f32, n], y: InOut[f32, 1]) -> None:
    for i in range(n):
        with block("y", "S", i) as a:
            where(a == 0)
            y[0] = x[a]


@kernel
def pages(x: Tensor[f32, n], at: Tensor[i64, 1], y: InOut[f32, 64]) -> None:
    for i in range(n):
        with block("y", "S", i) as a:
            where(at[0] >= 0 and at[0] + a < 64)
            y[at[0] + a] = x[a]


def test_right_claims_are_taken_and_keep_their_results() -> None:
    x = np.arange(16, dtype=np.float32)
    y = x.copy()
    halve(y)
    assert (y == x * 0.5).all()
    y = x.reshape(2, 8).copy()
    halves_of_a_row(y)
    assert (y[0] == x[:8] + x[8:]).all()
    y = x.copy()
    from_the_other_half(y)
    assert (y[:8] == x[:8] + x[8:]).all()
    y = np.zeros(32, np.float32)
    pairs(x, y)
    assert (y == np.repeat(x, 2)).all()
    assert (with_init(x) == x + 1).all()
    assert (own_memory(x.reshape(4, 4)) == x.reshape(4, 4).sum(1) * 2).all()
    y = np.full(1, -1, np.float32)
    only_the_first(x, y)
    assert y[0] == 0
    y = np.zeros(64, np.float32)
    pages(x, np.array([5]), y)
    assert (y[5:21] == x).all()


@kernel
def largest(x: Tensor[f32, n, m], y: Out[f32, n], z: Out[i64, n]) -> None:
    for i, k in grid(n, m):
        with block("y", "SR", i, k) as (a, b):
            with init():
                y[a] = -1.0
                z[a] = -1
            y[a], z[a] = combine(lambda p, q, r, s: (max(p, r), q if p >= r else s), (y[a], z[a]), (x[a, b], b))


def test_programs_with_right_claims_are_read_back() -> None:
    for k in (halve, halves_of_a_row, from_the_other_half, pairs, with_init, own_memory, only_the_first, pages, largest):
        again = pliant.parse(str(k))
        assert str(again) == str(k)
        assert again.kernels[0].name == k.func.name


WRONG = """n = dim("n")


@kernel
def f(x: Tensor[f32, 4], y: Out[f32, 4]) -> None:
    for i in range(9):
        y[i] = x[i]
"""


def test_wrong_text_is_refused_at_its_line() -> None:
    with pytest.raises(Error, match="out of range") as info:
        pliant.parse(WRONG, "wrong.py")
    assert info.value.where is not None and (info.value.where.file, info.value.where.line) == ("wrong.py", 7)
    for text, what in (("", "there is no function"), ("x = \ud800", "cannot be encoded"), ("x = " + "-" * 2000 + "1", "too deeply")):
        with pytest.raises(Error, match=what) as info:
            pliant.parse(text, "wrong.py")
        assert info.value.where is not None and info.value.where.file == "wrong.py"
