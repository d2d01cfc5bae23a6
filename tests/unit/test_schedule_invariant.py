"""Programs that once were scheduled wrongly: each schedule keeps the meaning (`schedule_invariant`), or is refused with a reason.

A case is the arguments, the loops with the blocks, and the steps; `LOOPS` is bound to the loops of block "y".
"""

from __future__ import annotations

import numpy as np
import pytest

from pliant.interp.loop import run_loop
from pliant.loop.stmt import Func
from pliant.schedule import Schedule, default_schedule
from pliant.support.errors import ScheduleError
from pliant.target import target
from schedule_invariant import check_schedule
from schedule_kernels import parse


def program(params: str, body: str, most: int = 2**31 - 1) -> Func:
    """The program of these parameters and statements."""
    dims = "".join(f'{d} = dim("{d}", max={most})\n' for d in "nmp")
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return parse(f"{dims}@kernel\ndef f({params}) -> None:\n{lines}")


def scheduled(func: Func, steps: str) -> Schedule:
    """The program after some steps, in which `i`, `j`, `k` are the loops of block "y"."""
    s = Schedule(func)
    exec(steps, {"s": s, **dict(zip("ijk", s.loops("y"), strict=False))})
    return s


def row_sums(where: str = "", params: str = "x: Tensor[f32, 3, 12], y: InOut[f32, 3]") -> Func:
    """Sums of rows, of those elements that a predicate lets through."""
    return program(
        params,
        f"""
for i, j in grid(3, 12):
    with block("y", "SR", i, j) as (vi, vk):
        {where and f"where({where})"}
        with init():
            y[vi] = 0.0
        y[vi] += x[vi, vk]
""",
    )


PREDICATES = ["vk % 3 != 1", "vk % 3 != 1 and vi < 2", "vk % 3 != vi", "vk != 7 and vk % 3 != vi and vi < 2"]
FACTORED = [
    's.rfactor("y", j, i)',
    's.rfactor("y", j)',
    'o, p = s.split(j, 5); s.rfactor("y", p, i)',
    'o, p = s.split(j, 5); s.rfactor("y", o, i)',
    'o, p = s.split(j, 4); s.rfactor("y", p, i); s.rfactor("y", o, i)',
    's.rfactor("y", j, i); s.rfactor("y_sum", s.loops("y_sum")[1], i)',
    's.rfactor("y", j, i); s.decompose_reduction("y", s.loops("y")[1])',
    'o, p = s.split(i, 2); s.rfactor("y", j, o)',
    's.reorder(j, i); s.rfactor("y", j)',
    'o, p = s.split(i, 2); s.cache_write("y", o)',
]


@pytest.mark.parametrize("where", PREDICATES)
@pytest.mark.parametrize("steps", FACTORED)
def test_lanes_that_a_predicate_leaves_out_are_not_summed(where: str, steps: str) -> None:
    check_schedule(row_sums(where), scheduled(row_sums(where), steps))


def refused(func: Func, steps: str) -> str:
    """What a schedule says that does not do the last of some steps; the program is as it was before that one."""
    *before, last = steps.split("; ")
    s = Schedule(func)
    names = {"s": s, **dict(zip("ijk", s.loops("y"), strict=False))}
    exec("; ".join(before), names)
    program = s.program
    with pytest.raises(ScheduleError) as refusal:
        exec(last, names)
    assert s.program is program
    check_schedule(func, s)
    return refusal.value.what


def test_a_reduction_begins_with_its_first_element_only_at_its_own_loop() -> None:
    """A block whose lanes are its reduction has no reduction iterator left."""
    steps = 's.rfactor("y", j); i, j = s.loops("y"); s.begin_reduction("y", {})'
    for loop in "ij":
        assert f"loop `{loop}` feeds no reduction iterator" in refused(row_sums(), steps.format(loop))


# parameters, statements, steps
REDUCTIONS = {
    "lanes of a loop that does not begin at 0": (
        "x: Tensor[f32, n, 12], y: Out[f32, n]",
        """
for i in range(n):
    for j in range(3, 11):
        with block("y", "SR", i, j) as (vi, vk):
            where(vk % 4 != 1)
            with init():
                y[vi] = 0.0
            y[vi] += x[vi, vk]
""",
        's.rfactor("y", j, i)',
    ),
    "lanes of a loop that has none": (
        "x: Tensor[f32, n, 12], y: Out[f32, n]",
        """
for i, j in grid(n, 0):
    with block("y", "SR", i, j) as (vi, vk):
        with init():
            y[vi] = 1.0
        y[vi] += x[vi, vk]
""",
        's.rfactor("y", j, i)',
    ),
}


@pytest.mark.parametrize("case", REDUCTIONS)
def test_reductions_keep_the_meaning(case: str) -> None:
    params, body, steps = REDUCTIONS[case]
    func = program(params, body)
    check_schedule(func, scheduled(func, steps))


# parameters, statements, steps of which the last is refused, a part of the reason
REFUSED_REDUCTIONS = {
    "a buffer that is allocated inside": (
        "x: Tensor[f32, 3, 12], y: Out[f32, 3]",
        """
for i, j in grid(3, 12):
    with block("y", "SR", i, j) as (vi, vk):
        with init():
            y[vi] = 0.0
        y[vi] += x[vi, vk]
""",
        's.rfactor("y", j, i); s.decompose_reduction("y", i)',
        "`y_lanes` is allocated inside of it",
    ),
    "another block in the loop": (
        "x: Tensor[f32, 4, 12], y: Out[f32, 4], z: Out[f32, 4, 12]",
        """
for i, j in grid(4, 12):
    with block("y", "SR", i, j) as (vi, vk):
        with init():
            y[vi] = 0.0
        y[vi] += x[vi, vk]
    with block("z", "SS", i, j) as (vi, vj):
        z[vi, vj] = x[vi, vj]
""",
        's.begin_reduction("y", j)',
        "it is not alone in loop `j`",
    ),
    "a bare statement in the loop": (
        "x: Tensor[f32, 4, 12], y: Out[f32, 4], z: Out[f32, 4, 12]",
        """
for i, j in grid(4, 12):
    with block("y", "SR", i, j) as (vi, vk):
        with init():
            y[vi] = 0.0
        y[vi] += x[vi, vk]
    z[i, j] = x[i, j]
""",
        's.begin_reduction("y", j)',
        "it is not alone in loop `j`",
    ),
    "an init that reads what the loop writes": (
        "x: Tensor[f32, 4, 12], y: Out[f32, 4], z: InOut[f32, 4]",
        """
for i in range(4):
    with block("z", "S", i) as vi:
        z[vi] = x[vi, 0]
    for j in range(12):
        with block("y", "SR", i, j) as (vi, vk):
            with init():
                y[vi] = z[vi]
            y[vi] += x[vi, vk]
""",
        's.decompose_reduction("y", i)',
        "block `z` inside of it uses the same buffer",
    ),
    "a bare statement that uses the sum": (
        "x: Tensor[f32, 4, 12], y: InOut[f32, 4], z: Out[f32, 4]",
        """
for i in range(4):
    z[i] = y[i]
    for j in range(12):
        with block("y", "SR", i, j) as (vi, vk):
            with init():
                y[vi] = 0.0
            y[vi] += x[vi, vk]
""",
        's.decompose_reduction("y", i)',
        "a statement outside of blocks uses `y`",
    ),
    "a loop that reduces everything again": (
        "x: Tensor[f32, 4, 12], y: Out[f32, 4]",
        """
for i, t, j in grid(4, 2, 12):
    with block("y", "SR", i, j) as (vi, vk):
        with init():
            y[vi] = 0.0
        y[vi] += x[vi, vk]
""",
        's.decompose_reduction("y", i)',
        "it begins anew in every iteration of loop `t`",
    ),
    "a loop that reduces every element again": (
        "x: Tensor[f32, 4, 12], y: Out[f32, 4]",
        """
for i, j, t in grid(4, 12, 2):
    with block("y", "SR", i, j) as (vi, vk):
        with init():
            y[vi] = 0.0
        y[vi] += x[vi, vk]
""",
        's.begin_reduction("y", j)',
        "every iteration of loop `t` reduces that element",
    ),
}


@pytest.mark.parametrize("case", REFUSED_REDUCTIONS)
def test_reductions_are_refused(case: str) -> None:
    params, body, steps, reason = REFUSED_REDUCTIONS[case]
    assert reason in refused(program(params, body), steps)


def in_place() -> Func:
    """Rows that are changed where they lie."""
    return program(
        "x: Tensor[f32, n, 8], y: InOut[f32, n, 8]",
        """
for i, j in grid(n, 8):
    with block("y", "SS", i, j) as (vi, vj):
        y[vi, vj] = y[vi, vj] * 2.0 + x[vi, vj]
""",
    )


IN_PLACE = [
    's.cache_write("y", i)',
    's.cache_write("y", j)',
    'o, p = s.split(i, 4); s.cache_write("y", o)',
    'o, p = s.split(j, 3); s.cache_write("y", o)',
    's.vectorize(j); s.cache_write("y", j)',
    's.parallel(i); s.cache_write("y", i, scope="workspace")',
    's.cache_write("y", i); s.cache_write("y", i); s.parallel(i)',
    's.cache_write("y", i); s.cache_write("y_read", i)',
]


@pytest.mark.parametrize("steps", IN_PLACE)
def test_a_tile_begins_with_what_its_block_works_on(steps: str) -> None:
    check_schedule(in_place(), scheduled(in_place(), steps))


CACHES = {
    "a block that may not write": (
        "x: Tensor[f32, n, m], y: InOut[f32, n]",
        """
for i, j in grid(n, m):
    with block("y", "SO", i, j) as (vi, vk):
        y[vi] = x[vi, vk]
""",
        's.cache_write("y", i)',
    ),
    "a block that a predicate may keep from writing": (
        "x: Tensor[f32, n, 4], y: InOut[f32, n]",
        """
for i, j in grid(n, 4):
    with block("y", "SO", i, j) as (vi, vk):
        where(vk + vi < 3)
        y[vi] = x[vi, vk]
""",
        's.cache_write("y", i)',
    ),
    "a copy before loops that have no iteration": (
        "b: Tensor[f32, p, 8], y: InOut[f32, n, 8]",
        """
for i, j, k in grid(n, 8, p):
    with block("y", "SSO", i, j, k) as (vi, vj, vk):
        y[vi, vj] = y[vi, vj] + b[0, vj]
""",
        's.cache_read("y", "b", i)',
    ),
    "a copy of a place that is looked up where a condition holds": (
        "x: Tensor[f32, n], t: Tensor[i64, n], y: Out[f32, n + 2]",
        """
for i in range(n + 2):
    with block("y", "S", i) as vi:
        y[vi] = select(1 <= vi and vi < n + 1, x[t[vi - 1] % n], 2.0)
""",
        's.cache_read("y", "x", i)',
    ),
    "a copy of a place of which one arm is looked up": (
        "x: Tensor[f32, n], t: Tensor[i64, n], y: Out[f32, n + 2]",
        """
for i in range(n + 2):
    with block("y", "S", i) as vi:
        y[vi] = select(0 < n, x[select(vi < n, t[vi], 3) % n], 2.0)
""",
        's.cache_read("y", "x", i)',
    ),
    "a copy of a place that is looked up below a guard": (
        "x: Tensor[f32, n], t: Tensor[i64, n], y: Out[f32, n]",
        """
for i in range(n):
    with block("y", "S", i) as vi:
        y[vi] = x[t[vi] % n]
""",
        'o, p = s.split(i, 4); s.cache_read("y", "x", p)',
    ),
}


@pytest.mark.parametrize("case", CACHES)
def test_caches_keep_the_meaning(case: str) -> None:
    params, body, steps = CACHES[case]
    func = program(params, body)
    check_schedule(func, scheduled(func, steps))


REFUSED_CACHES = {
    "a condition between": (
        "x: Tensor[f32, 6], y: InOut[f32, 6]",
        """
for i in range(6):
    if i < 3:
        with block("y", "S", i) as vi:
            y[vi] = x[vi]
""",
        's.cache_write("y")',
        "there is a condition between its loops and it",
    ),
    "a triangle": (
        "x: Tensor[f32, 6, 6], y: InOut[f32, 6]",
        """
for i in range(6):
    for j in range(i):
        with block("y", "SR", j, i) as (vj, vk):
            with init():
                y[vj] = 0.0
            y[vj] += x[vj, vk]
""",
        's.cache_write("y")',
        "the range of loop `j` depends on what is inside of the tile",
    ),
    "a bare statement that reads the result": (
        "x: Tensor[f32, 6], y: InOut[f32, 6], z: Out[f32, 6]",
        """
for i in range(6):
    with block("y", "S", i) as vi:
        y[vi] = x[vi]
    z[i] = y[i]
""",
        's.cache_write("y")',
        "a statement outside of blocks uses `y`",
    ),
    "a bare statement that writes the operand": (
        "x: InOut[f32, 6], y: Out[f32, 6]",
        """
for i in range(6):
    x[i] = x[i] * 2.0
    with block("y", "S", i) as vi:
        y[vi] = x[vi]
""",
        's.cache_read("y", "x")',
        "a statement outside of blocks writes `x`",
    ),
    "another name of the result": (
        "x: Tensor[f32, 6], y: InOut[f32, 6], z: Out[f32, 6]",
        """
v = view(y[0], (6,))
for i in range(6):
    with block("y", "S", i) as vi:
        y[vi] = x[vi]
    with block("z", "S", i) as vi:
        z[vi] = v[vi]
""",
        's.cache_write("y")',
        "`y` has another name",
    ),
    "another name of the operand": (
        "x: InOut[f32, 6], y: Out[f32, 6]",
        """
v = view(x[0], (6,))
for i in range(6):
    with block("v", "S", i) as vi:
        v[vi] = 1.0
    with block("y", "S", i) as vi:
        y[vi] = x[vi]
""",
        's.cache_read("y", "x")',
        "`x` has another name",
    ),
    "a predicate that changes": (
        "x: Tensor[f32, 6], z: InOut[f32, 6], y: InOut[f32, 6]",
        """
for i in range(6):
    with block("y", "S", i) as vi:
        where(z[vi] > 0.0)
        y[vi] = x[vi]
    with block("z", "S", i) as vi:
        z[vi] = -z[vi]
""",
        's.cache_write("y")',
        "depends on `z`, which is written there",
    ),
    "lanes that share memory": (
        "x: Tensor[f32, n, m], y: Out[f32, n, m]",
        """
for i, j in grid(n, m):
    with block("y", "SS", i, j) as (vi, vj):
        y[vi, vj] = x[vi, vj]
""",
        's.vectorize(j); s.cache_write("y", j, scope="workspace")',
        "the lanes of vector loop `j` would share it",
    ),
    "lanes that share a copy": (
        "x: Tensor[f32, n, m], y: Out[f32, n, m]",
        """
for i, j in grid(n, m):
    with block("y", "SS", i, j) as (vi, vj):
        y[vi, vj] = x[vi, vj]
""",
        's.vectorize(j); s.cache_read("y", "x", j, scope="workspace")',
        "the lanes of vector loop `j` would share it",
    ),
    "lanes whose memory is put elsewhere": (
        "x: Tensor[f32, n, m], y: Out[f32, n, m]",
        """
for i, j in grid(n, m):
    with block("y", "SS", i, j) as (vi, vj):
        y[vi, vj] = x[vi, vj]
""",
        's.vectorize(j); s.cache_read("y", "x", j); s.set_scope("y", "x_copy", "workspace")',
        "the lanes of vector loop `j` would share it",
    ),
    "an end that is not known": (
        "x: Tensor[f32, 6, 6], y: InOut[f32, 6, 6]",
        """
for i in range(6):
    for j in range(i):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = x[vi, vj]
""",
        's.parallel(j); s.cache_write("y", j, scope="workspace")',
        "how many iterations loop `j` has is not known before",
    ),
}


@pytest.mark.parametrize("case", REFUSED_CACHES)
def test_caches_are_refused(case: str) -> None:
    params, body, steps, reason = REFUSED_CACHES[case]
    assert reason in refused(program(params, body), steps)


def doubled() -> Func:
    """A map over two dims."""
    return program(
        "x: Tensor[f32, n, m], y: Out[f32, n, m]",
        """
for i, j in grid(n, m):
    with block("y", "SS", i, j) as (vi, vj):
        y[vi, vj] = x[vi, vj] * 2.0
""",
    )


GUARDS = [
    "o, p = s.split(j, 4); s.blockize(p); s.split(p, 3)",
    "o, p = s.split(j, 4); s.blockize(p); s.split(o, 3); s.split(p, 3)",
    "o, p = s.split(j, 4); s.blockize(p); q, r = s.split(p, 3); s.partition(q)",
    "o, p = s.split(j, 6); s.blockize(p); q, r = s.split(p, 4); s.blockize(r); s.split(r, 3)",
    "o, p = s.split(j, 4); q, r = s.split(i, 4); s.reorder(q, o, r, p); s.blockize(r); s.split(r, 3); s.split(p, 3)",
    "o, p = s.split(j, 4); q, r = s.split(i, 4); s.reorder(q, o, r, p); s.blockize(r); s.split(s.fuse(r, p), 5)",
]


@pytest.mark.parametrize("steps", GUARDS)
def test_guards_inside_of_blocks_are_about_their_iterators(steps: str) -> None:
    check_schedule(doubled(), scheduled(doubled(), steps))


@pytest.mark.parametrize("steps", ["o, p = s.split(i, 1); s.parallel(p)", "o, p = s.split(i, 1); s.parallel(p); s.vectorize(j)"])
def test_one_iteration_may_run_in_any_order(steps: str) -> None:
    check_schedule(doubled(), scheduled(doubled(), steps))


EXTENTS = [("n + 2", "m + 2"), ("n", "m + p"), ("m + p", "n"), ("(n + 3) // 4", "(m + 3) // 4"), ("n", "m", "p"), ("n + 2", "m + 3", "p")]


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("before", ["", "s.blockize(i); "])
def test_loops_over_sums_of_dims_are_fused(extents: tuple[str, ...], before: str) -> None:
    """The product of the extents is divided by each of them, and none is 0 where there is an iteration."""
    loops, shape = ", ".join("ijk"[: len(extents)]), ", ".join(extents)
    func = program(
        f"x: Tensor[f32, {shape}], y: Out[f32, {shape}]",
        f"""
for {loops} in grid({shape}):
    with block("y", "{"S" * len(extents)}", {loops}) as ({loops.replace(", ", "_, ")}_):
        y[{loops.replace(", ", "_, ")}_] = x[{loops.replace(", ", "_, ")}_] * 2.0
""",
        most=4096,
    )
    sizes = [{v.name: n for v, n in zip(func.symbols, some, strict=False)} for some in ((0, 1, 2), (3, 2, 1), (1, 0, 0), (5, 4, 3))]
    check_schedule(func, scheduled(func, f"{before}s.fuse({loops})"), sizes)


def test_loops_whose_product_may_overflow_are_not_fused() -> None:
    """Also where a block is around them."""
    func = program(
        "x: Tensor[f32, n, m, p], y: Out[f32, n, m, p]",
        """
for i, j, k in grid(n, m, p):
    with block("y", "SSS", i, j, k) as (vi, vj, vk):
        y[vi, vj, vk] = x[vi, vj, vk] * 2.0
""",
    )
    for steps in ("s.fuse(i, j, k)", "s.blockize(i); s.fuse(i, j, k)"):
        s = Schedule(func)
        with pytest.raises(ScheduleError, match="the iterators of block `y` would not be independent"):
            exec(steps, {"s": s, **dict(zip("ijk", s.loops("y"), strict=True))})


PARTS = {
    "a reduction that has nothing to sum still begins": (
        "x: Tensor[f32, 8, 4], y: Out[f32, 8]",
        """
for i, k in grid(8, 4):
    with block("y", "SR", i, k) as (vi, vk):
        where(vi + vk < 5)
        with init():
            y[vi] = 0.0
        y[vi] += x[vi, vk]
""",
        "s.partition(i)",
    ),
    "a statement outside of blocks has no predicate": (
        "x: Tensor[f32, 8], y: InOut[f32, 8], z: Out[f32, 8]",
        """
for i in range(8):
    with block("y", "S", i) as vi:
        where(vi < 5)
        y[vi] = x[vi]
    z[i] = x[i]
""",
        "s.partition(i)",
    ),
    "a loop that feeds both kinds begins the sums of its rest": (
        "x: Tensor[f32, 5, 4], y: Out[f32, 5]",
        """
for t in range(20):
    with block("y", "SR", t // 4, t % 4) as (vi, vk):
        with init():
            y[vi] = 0.0
        y[vi] += x[vi, vk]
""",
        's.split(i, 8, tail="cut")',
    ),
    "a loop of constant extent that begins at a dim is unrolled": (
        "x: Tensor[f32, n + 4], y: Out[f32, n + 4]",
        """
for i in range(n + 4):
    with block("y", "S", i) as vi:
        y[vi] = x[vi] * 2.0
for i in range(n, n + 4):
    with block("z", "S", i) as vi:
        y[vi] = x[vi] + 1.0
""",
        's.unroll(s.loops("z")[0])',
    ),
    "a loop that is seen to have no iteration is unrolled": (
        "x: Tensor[f32, 4 * n], y: Out[f32, 4 * n]",
        """
for i, j in grid((4 * n + 3) // 4, 4):
    with block("y", "S", i * 4 + j) as vi:
        where(vi < 4 * n)
        y[vi] = x[vi] * 2.0
""",
        "main, rest = s.partition(i); s.unroll(rest)",
    ),
    "a predicate is not looked up where a guard fails": (
        "x: Tensor[f32, n], t: Tensor[i64, n], y: InOut[f32, n]",
        """
for i in range(n):
    with block("y", "S", i) as vi:
        where(t[vi] > 0)
        y[vi] = x[vi]
""",
        "s.split(i, 4)",
    ),
}


@pytest.mark.parametrize("case", PARTS)
def test_parts_of_loops_keep_the_meaning(case: str) -> None:
    params, body, steps = PARTS[case]
    func = program(params, body)
    check_schedule(func, scheduled(func, steps))


REFUSED_MOVES = {
    "a producer reads what goes on to change": (
        "x: Tensor[f32, 8], v: InOut[f32, 1], y: Out[f32, 8]",
        """
t = alloc((8,), f32)
for i in range(8):
    with block("v", "O", i) as vi:
        v[0] = v[0] + x[vi]
    with block("t", "S", i) as vi:
        t[vi] = v[0]
for i in range(8):
    with block("y", "S", i) as vi:
        y[vi] = t[vi]
""",
        's.compute_inline("t")',
        "block `v` goes on to change `v`, which it reads",
    ),
    "a consumer reads what comes later": (
        "x: Tensor[f32, 8], y: Out[f32, 8]",
        """
z = alloc((8,), f32)
t = alloc((8,), f32)
for i in range(8):
    with block("z", "S", i) as vi:
        z[vi] = x[vi]
    with block("t", "S", i) as vi:
        t[vi] = x[vi] * 2.0
for i in range(8):
    with block("y", "S", i) as vi:
        y[vi] = t[vi] + z[7 - vi]
""",
        's.reverse_compute_inline("y")',
        "block `z` goes on to write",
    ),
    "a consumer under a condition": (
        "x: Tensor[f32, n], y: InOut[f32, n]",
        """
t = alloc((n,), f32)
for i in range(n):
    with block("t", "S", i) as vi:
        t[vi] = x[vi] * 2.0
if n > 6:
    for i in range(n):
        with block("y", "S", i) as vi:
            y[vi] = t[vi] + 1.0
""",
        's.reverse_compute_inline("y")',
        "it stands under a condition",
    ),
    "a consumer that would run twice": (
        "x: Tensor[f32, 8], y: InOut[f32, 8]",
        """
t = alloc((8,), f32)
for i in range(8):
    with block("t0", "S", i) as vi:
        t[vi] = 1.0
for i in range(8):
    with block("t", "S", i) as vi:
        t[vi] = x[vi] * 2.0
for i in range(8):
    with block("y", "S", i) as vi:
        y[vi] = y[vi] + t[vi]
""",
        's.reverse_compute_inline("y")',
        "is written more than once",
    ),
    "a result that is still read": (
        "x: Tensor[f32, 8], y: InOut[f32, 8], u: Out[f32, 8]",
        """
t = alloc((8,), f32)
for i in range(8):
    with block("u", "S", i) as vi:
        u[vi] = y[7 - vi]
    with block("t", "S", i) as vi:
        t[vi] = x[vi] * 2.0
for i in range(8):
    with block("y", "S", i) as vi:
        y[vi] = t[vi] + 1.0
""",
        's.reverse_compute_inline("y")',
        "block `u` uses `y` before it",
    ),
    "a part that the loop does not make": (
        "x: Tensor[f32, 8], t: InOut[f32, 8], y: Out[f32, 8]",
        """
for i in range(5):
    with block("t", "S", i) as vi:
        t[vi] = x[vi] * 2.0
for i in range(8):
    with block("y", "S", i) as vi:
        y[vi] = t[vi] + 1.0
""",
        's.reverse_compute_at("y", s.loops("t")[0])',
        "is also written by the caller",
    ),
    "a consumer that is moved out of its condition": (
        "x: Tensor[f32, n], y: InOut[f32, n]",
        """
t = alloc((n,), f32)
for i in range(n):
    with block("t", "S", i) as vi:
        t[vi] = x[vi] * 2.0
if n > 6:
    for i in range(n):
        with block("y", "S", i) as vi:
            y[vi] = t[vi] + 1.0
""",
        's.reverse_compute_at("y", s.loops("t")[0])',
        "it stands under a condition",
    ),
    "a loop that may not run": (
        "x: Tensor[f32, n], t: InOut[f32, n], y: InOut[f32, n]",
        """
if n > 6:
    for i in range(n):
        with block("t", "S", i) as vi:
            t[vi] = x[vi] * 2.0
for i in range(n):
    with block("y", "S", i) as vi:
        y[vi] = t[vi] + 1.0
""",
        's.reverse_compute_at("y", s.loops("t")[0])',
        "the loop stands under a condition",
    ),
    "a producer that is moved out of its condition": (
        "x: Tensor[f32, n], y: Out[f32, n]",
        """
t = alloc((n,), f32)
if n > 3:
    for i in range(n):
        with block("t", "S", i) as vi:
            t[vi] = x[3]
for i in range(n):
    with block("y", "S", i) as vi:
        y[vi] = select(n > 3, t[vi], 1.0)
""",
        's.compute_at("t", s.loops("y")[0])',
        "it stands under a condition",
    ),
    "values that are rounded on their way": (
        "x: Tensor[i32, 8], y: Out[i32, 8]",
        """
t = alloc((8,), i4)
for i in range(8):
    with block("t", "S", i) as vi:
        t[vi] = cast(i8, x[vi] * 3)
for i in range(8):
    with block("y", "S", i) as vi:
        y[vi] = cast(i32, t[vi])
""",
        's.compute_inline("t")',
        "is rounded to i4",
    ),
    "values that are rounded before they are used": (
        "x: Tensor[i32, 8], y: Out[i32, 8]",
        """
t = alloc((8,), i4)
for i in range(8):
    with block("t", "S", i) as vi:
        t[vi] = cast(i8, x[vi] * 3)
for i in range(8):
    with block("y", "S", i) as vi:
        y[vi] = cast(i32, t[vi])
""",
        's.reverse_compute_inline("y")',
        "is rounded to i4",
    ),
    "a consumer of a part": (
        "x: Tensor[f32, 8], y: InOut[f32, 8]",
        """
t = alloc((8,), f32)
for i in range(8):
    with block("t", "S", i) as vi:
        t[vi] = x[vi] * 2.0
for i in range(5):
    with block("y", "S", i) as vi:
        y[vi] = t[vi] + 1.0
""",
        's.reverse_compute_at("y", s.loops("t")[0])',
        "it does not write all of `y`",
    ),
    "lanes around the loop would each write all of it": (
        "x: Tensor[f32, 4], y: Out[f32, 4, 16]",
        """
t = alloc((4,), f32)
for i in range(4):
    with block("t", "S", i) as vi:
        t[vi] = x[vi] * 2.0
for i, j in grid(4, 16):
    with block("y", "SS", i, j) as (vi, vj):
        y[vi, vj] = t[vi]
""",
        's.vectorize(j); s.reorder(j, i); s.compute_at("t", i)',
        "different iterations of `j` write the same elements of `t`, and loop `j` is vector",
    ),
}


@pytest.mark.parametrize("case", REFUSED_MOVES)
def test_moves_are_refused(case: str) -> None:
    params, body, steps, reason = REFUSED_MOVES[case]
    assert reason in refused(program(params, body), steps)


@pytest.mark.parametrize("size", [1, 3])
def test_a_reduction_whose_elements_are_all_left_out_still_begins(size: int) -> None:
    """The condition is on one of the iterators that it reduces over, which has one value; the other one has one or several."""
    func = program(
        f"x: Tensor[f32, {size}], y: Out[f32, 1]",
        f"""
for i, k, l in grid(1, 1, {size}):
    with block("y", "SRR", i, k, l) as (vi, vk, vl):
        where(1 <= vk)
        with init():
            y[vi] = 3.0
        y[vi] += x[vl]
""",
    )
    y = np.zeros(1, np.float32)
    run_loop(default_schedule(func, target("native"))[0], [np.ones(size, np.float32), y], [])
    assert y[0] == 3.0


@pytest.mark.parametrize(
    "steps", ["s.split(j, None, 2)", "s.split(j, 5)", 's.split(j, None, 3, tail="cut")', "s.fuse(*s.split(j, None, 2))"]
)
def test_the_init_runs_where_a_reduction_loop_never_does(steps: str) -> None:
    func = program(
        "x: Tensor[f32, 3, 12], y: InOut[f32, 3]",
        """
for i in range(3):
    for j in range(4, 4):
        with block("y", "SR", i, j) as (vi, vk):
            with init():
                y[vi] = 0.0
            y[vi] += x[vi, vk]
""",
    )
    s = scheduled(func, steps)
    y = np.full(3, 7, np.float32)
    run_loop(s.func, [np.ones((3, 12), np.float32), y], [])
    assert y.tolist() == [0, 0, 0]
    check_schedule(func, s)


def test_an_init_runs_also_where_the_predicate_leaves_out_every_term() -> None:
    """The part of the predicate that is about reduced iterators is no fact in the init: lanes were left uninitialized."""
    func = parse("""
n = dim("n", max=64)
@kernel
def f(x: Tensor[i32, n, 8], y: Out[i32, n]) -> None:
    for i, j, k in grid(n, 2, 4):
        with block("y", "SRR", i, j, k) as (vi, vj, vk):
            where(vj * 4 + vk < 1)
            with init():
                y[vi] = 0
            y[vi] += x[vi, vj * 4 + vk]
""")
    s = Schedule(func)
    s.rfactor("y", s.loops("y")[2], scope="workspace")
    s.transform_layout("y_lanes", "lambda a, b: (b // 8, a, b % 8)", block="y")
    check_schedule(func, s)


@pytest.mark.parametrize(
    ("loops", "values"),
    [
        ("for i, k in grid(n, 4):", "i, k"),
        ("for k, i in grid(4, n):", "i, k"),
        ("for i in range(n):", "i, 1"),
        ("for j in range(n * 4):", "j // 4, j % 4"),
    ],
)
def test_a_sum_of_no_terms_is_its_init(loops: str, values: str) -> None:
    """Wherever the init runs: before the loops, in every instance, or where the reduced iterator is 0, which the predicate leaves out."""
    func = parse(f"""
n = dim("n")
@kernel
def f(x: Tensor[i32, n, 4], y: Out[i32, n]) -> None:
    {loops}
        with block("y", "SR", {values}) as (vi, vk):
            where(vk % 3 == 1 and vi + vk < 3)
            with init():
                y[vi] = 0
            y[vi] += x[vi, vk]
""")
    x, y = np.arange(1, 25, dtype=np.int32).reshape(6, 4), np.full(6, -7, np.int32)
    run_loop(func, [x, y], [6])
    assert y.tolist() == [2, 6, 0, 0, 0, 0]
    check_schedule(func, Schedule(func))


CONTROL = {
    "a condition that an earlier iteration changes": (
        """
for i in range(8):
    if p[7 - i] > 0:
        with block("y", "S", i) as vi:
            p[vi] = cast(i32, x[vi])
""",
        ["s.parallel(i)", "s.vectorize(i)"],
    ),
    "a range that an earlier iteration changes": (
        """
for i in range(8):
    for j in range(min(4, max(0, p[7 - i]))):
        with block("y", "SS", i, j) as (vi, vj):
            p[vi * 8 + vj] = cast(i32, x[vj])
""",
        ["s.parallel(i)", "s.reorder(j, i)", "s.fuse(i, j)", "s.split(j, 3)", "s.loop_partition(j, 2, None)"],
    ),
    "a range that the first loop changes": (
        """
for i in range(8):
    with block("y", "S", i) as vi:
        p[vi] = cast(i32, x[vi])
for i in range(8):
    for j in range(min(4, max(0, p[7 - i]))):
        with block("z", "SR", i, j) as (vi, vj):
            with init():
                z[vi] = 0.0
            z[vi] += x[vj]
""",
        ['s.join(i, s.loops("z")[0])'],
    ),
    "a range that the second loop changes": (
        """
for i in range(8):
    for j in range(min(4, max(0, p[7 - i]))):
        with block("y", "SR", i, j) as (vi, vj):
            with init():
                z[vi] = 0.0
            z[vi] += x[vj]
for i in range(8):
    with block("p", "S", i) as vi:
        p[vi] = cast(i32, x[vi])
""",
        ['s.join(i, s.loops("p")[0])'],
    ),
}


@pytest.mark.parametrize(("case", "steps"), [(case, steps) for case, (_, refusals) in CONTROL.items() for steps in refusals])
def test_what_control_reads_is_not_written_in_another_order(case: str, steps: str) -> None:
    func = program("x: Tensor[f32, 8], p: InOut[i32, 64], z: InOut[f32, 8]", CONTROL[case][0])
    with pytest.raises(ScheduleError, match="writes `p`, which the range of a loop or a condition reads"):
        scheduled(func, steps)


def test_a_range_between_joined_loops_is_read_when_it_was() -> None:
    func = program(
        "x: Tensor[f32, 8], p: InOut[i32, 8], z: InOut[f32, 8], w: Out[f32, 8]",
        """
for i in range(8):
    with block("y", "S", i) as vi:
        p[vi] = cast(i32, x[vi])
for i in range(min(4, max(0, p[7]))):
    with block("z", "S", i) as vi:
        z[vi] = x[vi]
for i in range(8):
    with block("w", "S", i) as vi:
        w[vi] = x[vi]
""",
    )
    assert "the range of a loop reads `p`" in refused(func, 's.join(i, s.loops("w")[0])')


def test_ranges_that_read_what_only_others_write_do_not_matter() -> None:
    func = program(
        "x: Tensor[f32, 8], p: Tensor[i32, 8], z: InOut[f32, 8]",
        """
for i in range(8):
    for j in range(min(4, max(0, p[7 - i]))):
        with block("y", "SR", i, j) as (vi, vj):
            with init():
                z[vi] = 0.0
            z[vi] += x[vj]
""",
    )
    check_schedule(func, scheduled(func, "s.parallel(i); s.split(j, 3)"))
