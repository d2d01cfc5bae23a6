"""Programs with one bug each: the verifier refuses them, or checked mode finds the bug while they run, and says what and where it is.

A case is the text of a program in which `«wrong|right»` stands for the bug and its correction. The wrong one has to fail with an error
at the line of the bug (or the line that ends in `#!`, where a bug shows elsewhere) that says the given text; the right one has to
verify and run.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import pliant
from pliant.loop.verify import verify

HEAD = """from pliant import *
n = dim("n")
m = dim("m")
p = dim("p")
b = dim("b")
"""

Array = np.ndarray[Any, Any]


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def grid(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


class Case(NamedTuple):
    """A program with a bug: what its error says, and the arguments for which it shows."""

    name: str
    says: str
    text: str
    arguments: list[Any]

    def program(self, which: int) -> str:
        """The text with the wrong (0) or the right (1) side of the bug."""
        return re.sub(r"«([^|»]*)\|([^»]*)»", lambda found: found.group(which + 1), self.text)

    def line(self) -> int:
        """The line where the error has to be."""
        lines = (HEAD + self.text).splitlines()
        marked = [i for i, line in enumerate(lines, 1) if line.endswith("#!")]
        return (marked or [i for i, line in enumerate(lines, 1) if "«" in line])[0]


X = grid(5)

CASES = [
    Case("a loop too long", "`x[i]`", """
@kernel
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(«n + 1|n»):
        y[i] = x[i]  #!
""", [X]),
    Case("an index moved by one", "`x[i + 1]`", """
@kernel
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[«i + 1|i»]
""", [X]),
    Case("an index before the first", "`x[i - 1]`", """
@kernel
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[«i - 1|max(i - 1, 0)»]
""", [X]),
    Case("a gather by what was given", "`x[idx[i]]` is out of range in `f`: the index is 7, the extent is 5", """
@kernel
def f(x: Tensor[f32, n], idx: Tensor[i64, m], y: Out[f32, m]) -> None:
    for i in range(m):
        y[i] = x[«idx[i]|min(max(idx[i], 0), n - 1)»]
""", [X, i64(1, 7, 2)]),
    Case("a gather by a negative index, in parallel", "`x[idx[i]]` is out of range in `f`: the index is -1, the extent is 5", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n], idx: Tensor[i64, m], y: Out[f32, m]) -> None:
    for i in parallel(m, grain=1):
        y[i] = x[«idx[i]|min(max(idx[i], 0), n - 1)»]
""", [X, i64(1, 4, 0, 3, -1, 2)]),
    Case("a scatter out of range", "`y[idx[i]]` is out of range in `f`: the index is 5, the extent is 5", """
@kernel
def f(x: Tensor[f32, m], idx: Tensor[i64, m], y: InOut[f32, n]) -> None:
    for i in range(m):
        if «idx[i] <= n|idx[i] < n»:
            y[idx[i]] = x[i]  #!
""", [f32(1, 2, 3), i64(0, 5, 2), np.zeros(5, np.float32)]),
    Case("a missing predicate", "`x[vi]` is out of range", """
@kernel
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for io in range((n + 7) // 8):
        for ii in range(8):
            with block("y", "S", io * 8 + ii) as vi:
                where(«vi < n + 8|vi < n»)
                y[vi] = x[vi]  #!
""", [X]),
    Case("a tail that stops early", "output `y` of `f` is not completely written: nothing is stored to `y[4]`", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:  #!
    for io in range(n // 4):
        for ii in vector(4):
            y[io * 4 + ii] = x[io * 4 + ii]
    for i in range(n // 4 * 4, «n - 1|n»):
        y[i] = x[i]
""", [X]),
    Case("a tail that goes on", "`x[i]`", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for io in range(n // 4):
        for ii in vector(4):
            y[io * 4 + ii] = x[io * 4 + ii]
    for i in range(n // 4 * 4, «(n + 3) // 4 * 4|n»):
        y[i] = x[i]  #!
""", [X]),
    Case("a wrong stride", "`x[i * (m + 1) + j]`", """
@kernel
def f(like: Tensor[f32, n, m], x: Tensor[f32, p], y: Out[f32, n, m]) -> None:
    check(p == n * m, "{0}", p)
    for i, j in grid(n, m):
        y[i, j] = x[i * «(m + 1)|m» + j]
""", [grid(2, 3), grid(6)]),
    Case("indices exchanged", "`x[j, i]`", """
@kernel
def f(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    for i, j in grid(n, m):
        y[i, j] = x[«j, i|i, j»]
""", [grid(2, 3)]),
    Case("an accumulator without a first value", "`acc`", """
@kernel
def f(x: Tensor[f32, n], y: Out[f32, 1]) -> None:
    acc = alloc((1,), f32, scope="stack")
    «pass|acc[0] = 0.0»
    for i in range(n):
        acc[0] += x[i]  #!
    y[0] = acc[0]
""", [X]),
    Case("a reduction without init", "`y`", """
@kernel
def f(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    for i, k in grid(n, m):
        with block("y", "SR", i, k) as (vi, vk):
            «pass|with init(): y[vi] = 0.0»
            y[vi] += x[vi, vk]  #!
""", [grid(2, 3)]),
    Case("stack memory that is partly written", "`t[i]` is read in `f` and was never written: the element is `t[7]`", """
@kernel(scheduled=True)
def f(x: Tensor[f32, 8], y: Out[f32, 8]) -> None:
    t = alloc((8,), f32, scope="stack")
    for i in range(«7|8»):
        t[i] = x[i]
    for i in range(8):
        y[i] = t[i]  #!
""", [grid(8)]),
    Case("register lanes that are partly written", "`t[j]` is read in `f` and was never written: the element is `t[4]`", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n, 8], y: Out[f32, n, 8]) -> None:
    for i in parallel(n):
        t = alloc((8,), f32, scope="register")
        for j in vector(«4|8»):
            t[j] = x[i, j]
        for j in unroll(8):
            y[i, j] = t[j]  #!
""", [grid(3, 8)]),
    Case("memory written under a condition", "`t[0]` is read in `f` and was never written", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in parallel(n):
        t = alloc((1,), f32, scope="stack")
        «if x[i] > 2.0: t[0] = x[i]|t[0] = x[i]»
        y[i] = t[0]  #!
""", [X]),
    Case("workspace that is partly written", "`t[i]` is read in `f` and was never written: the element is `t[2]`", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    t = alloc((n,), f32)
    for i in range(«n // 2|n»):
        t[i] = x[i]
    for i in range(n):
        y[i] = t[i]  #!
""", [X]),
    Case("an output that a later block reads too soon", "`y[i]` is read in `f` and was never written: the element is `y[1]`", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n], y: Out[f32, n], z: Out[f32, n]) -> None:
    for i in range(n):
        if «i % 2 == 0|i >= 0»:
            y[i] = x[i]
    for i in range(n):
        z[i] = y[i]  #!
    for i in range(n):
        y[i] = x[i]
""", [X]),
    Case("a view that starts too late", "view `v` leaves the memory of `x` in `f`: it takes the elements 2 to 5, there are 5", """
@kernel
def f(x: Tensor[f32, n], y: Out[f32, 4]) -> None:
    check(n >= 4, "too short")
    v = view(x[«n - 3|n - 4»], (4,))
    for i in range(4):
        y[i] = v[i]
""", [X]),
    Case("a view of a wrong stride", "view `v` leaves the memory of `x` in `f`: it takes the elements 0 to 16, there are 6", """
@kernel
def f(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    check(m > 0, "empty")
    v = view(x[0, 0], (n,), strides=(«m * 4|m»,))
    for i in range(n):
        y[i] = v[i]
""", [grid(3, 2)]),
    Case("a typed view of too few bytes", "view `v` leaves the memory of `t` in `f`: it takes the elements 0 to 23, there are 20", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    t = alloc((n * 4,), u8)
    v = view(t[0], («n + 1|n»,), dtype=f32)
    for i in range(n):
        v[i] = x[i]
    for i in range(n):
        y[i] = v[i]
""", [X]),
    Case("a call with other dims", "argument `b` of `copy` does not fit in `f`: extent 0 of `y` is 3, 5 is expected", """
@kernel
def copy(a: Tensor[f32, n], b: Out[f32, n]) -> None:
    for i in range(n):
        b[i] = a[i]

@kernel
def f(x: Tensor[f32, m], like: Tensor[f32, p], y: Out[f32, «p|m»]) -> None:
    copy(x, y)  #!
""", [X, f32(1, 2, 3)]),
    Case("a callee that leaves a part of its output", "output `b` of `copy` is not completely written: nothing is stored to `b[4]`", """
@kernel
def copy(a: Tensor[f32, n], b: Out[f32, n]) -> None:
    for i in range(«n - 1|n»):
        b[i] = a[i]

@kernel
def f(x: Tensor[f32, m], y: Out[f32, m]) -> None:
    copy(x, y)  #!
""", [X]),
    Case("a division by a dim that is 0", "`i % m` divides by zero in `f`: `i` is 0", """
@kernel
def f(x: Tensor[f32, n], like: Tensor[f32, m], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i % «m|max(m, 1)» % n]
""", [X, f32()]),
    Case("a division of given numbers", "`a[i] // c[i]` divides by zero in `f`: `a[i]` is 9, `c[i]` is 0", """
@kernel
def f(a: Tensor[i32, n], c: Tensor[i32, n], y: Out[i32, n]) -> None:
    for i in range(n):
        y[i] = «a[i] // c[i]|select(c[i] != 0, a[i] // c[i], 0)»
""", [np.array([8, 9], np.int32), np.array([2, 0], np.int32)]),
    Case("an index that overflows", "the index computation `idx[i] * 4611686018427387904` overflows i64 in `f`", """
@kernel
def f(x: Tensor[f32, n], idx: Tensor[i64, m], y: Out[f32, m]) -> None:
    for i in range(m):
        y[i] = x[«idx[i] * 4611686018427387904|idx[i] * 4» // 4 % n]
""", [X, i64(1, 4)]),
    Case("an index of i32 that overflows", "the index computation `idx[i] + 2147483647` overflows i32 in `f`", """
@kernel
def f(x: Tensor[f32, n], idx: Tensor[i32, m], y: Out[f32, m]) -> None:
    for i in range(m):
        y[i] = x[cast(i64, «idx[i] + 2147483647|idx[i]») % n]
""", [X, np.array([0, 1], np.int32)]),
    Case("a slot outside of its page", "`k[cast(i64, table[t // 16]), t % 17]`", """
@kernel
def f(k: Tensor[f32, p, 16], table: Tensor[i32, b], like: Tensor[f32, n], y: Out[f32, n]) -> None:
    check(n <= b * 16, "{0} tokens", n)
    for t in range(n):
        check(table[t // 16] >= 0 and cast(i64, table[t // 16]) < p, "page {0}", cast(i64, table[t // 16]))
        y[t] = k[cast(i64, table[t // 16]), t % «17|16»]
""", [grid(3, 16), np.array([2, 0], np.int32), grid(20)]),
    Case("a wrong page index", "`table[t // 15]` is out of range", """
@kernel
def f(k: Tensor[f32, p, 16], table: Tensor[i32, b], like: Tensor[f32, n], y: Out[f32, n]) -> None:
    check(n <= b * 16, "{0} tokens", n)
    for t in range(n):
        y[t] = k[cast(i64, table[t // «15|16»]), t % 16]
""", [grid(3, 16), np.array([2, 0], np.int32), grid(32)]),
    Case("a page that is not there", "`k[cast(i64, table[t // 16]), t % 16]` is out of range in `f`: index 0 is 3, the extent is 3", """
@kernel
def f(k: Tensor[f32, p, 16], table: Tensor[i32, b], like: Tensor[f32, n], y: Out[f32, n]) -> None:
    check(n <= b * 16, "{0} tokens", n)
    for t in range(n):
        page = cast(i64, table[t // 16])
        y[t] = «k[cast(i64, table[t // 16]), t % 16]|select(page < p, k[page, t % 16], 0.0)»
""", [grid(3, 16), np.array([2, 3], np.int32), grid(32)]),
    Case("a neighbor guarded one too far", "`x[i + 1]`", """
@kernel
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = select(i «<=|<» n - 1, x[i + 1], 0.0)
""", [X]),
    Case("a guard after what it guards", "`x[idx[i]]` is out of range in `f`: the index is 5, the extent is 5", """
@kernel
def f(x: Tensor[f32, n], idx: Tensor[i64, m], y: Out[bool, m]) -> None:
    for i in range(m):
        y[i] = «x[idx[i]] > 1.0 and idx[i] < n|idx[i] < n and x[idx[i]] > 1.0»
""", [X, i64(0, 5)]),
    Case("a search that does not end", "`x[at[0]]` is out of range in `f`: the index is 5, the extent is 5", """
@kernel
def f(x: Tensor[f32, n], y: Out[i64, 1]) -> None:
    at = alloc((1,), i64, scope="stack")
    at[0] = 0
    while «x[at[0]] < 9.0|at[0] < n and x[at[0]] < 9.0»:
        at[0] += 1
    y[0] = at[0]
""", [X]),
    Case("parallel iterations that write one place", "`y`", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in parallel(n):
        y[«0|i»] = x[i]
""", [X]),
    Case("a reduction over a parallel loop", "a reduction over the parallel loop `k`", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = 0.0
        for k in «parallel|range»(m):
            y[i] += x[i, k]  #!
""", [grid(2, 3)]),
    Case("lanes that write one place", "a reduction over the vector loop `j`", """
@kernel(scheduled=True)
def f(x: Tensor[f32, n, 8], y: Out[f32, n]) -> None:
    for i in range(n):
        acc = alloc((1,), f32, scope="stack")
        acc[0] = 0.0
        for j in «vector|range»(8):
            acc[0] += x[i, j]  #!
        y[i] = acc[0]
""", [grid(2, 8)]),
    Case("an index of an argmax that has no first value", "`at`", """
@kernel
def f(x: Tensor[f32, n], best: Out[f32, 1], at: Out[i64, 1]) -> None:
    best[0] = -inf
    «pass|at[0] = 0»
    for i in range(n):
        best[0], at[0] = combine(lambda a, j, c, k: (select(c > a, c, a), select(c > a, k, j)), (best[0], at[0]), (x[i], i))  #!
""", [X]),
]  # fmt: skip


def run(case: Case, which: int, as_it_stands: bool) -> Any:
    """Verifies the program and runs it in checked mode."""
    text = HEAD + case.program(which)
    program = pliant.parse(text.replace("@kernel\n", "@kernel(scheduled=True)\n") if as_it_stands else text, "program.py")
    for func in program.kernels:
        verify(func)
    f = pliant.compile(program, checked=True, threads=2, cache=False)
    return f(*(a.copy() for a in case.arguments))


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_the_bug_is_found(case: Case) -> None:
    with pytest.raises(pliant.Error) as caught:
        run(case, 0, as_it_stands=True)
    assert case.says in caught.value.what
    assert caught.value.where is not None
    assert (caught.value.where.file, caught.value.where.line) == ("program.py", case.line())


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_the_bug_is_found_after_scheduling(case: Case) -> None:
    """Schedules change what an index looks like, not where it stands in the source."""
    with pytest.raises(pliant.Error) as caught:
        run(case, 0, as_it_stands=False)
    assert caught.value.where is not None
    assert (caught.value.where.file, caught.value.where.line) == ("program.py", case.line())


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_the_corrected_program_runs(case: Case) -> None:
    run(case, 1, as_it_stands=False)
    run(case, 1, as_it_stands=True)


def test_there_are_enough_bugs() -> None:
    assert len({c.name for c in CASES}) >= 25
