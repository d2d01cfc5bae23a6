"""Pattern kinds, regions and costs of loop programs, against what one reads off the program."""

from __future__ import annotations

import pytest

from pliant import Tensor, dim, f32, function, ops
from pliant.api import program_of
from pliant.loop.analysis.nest_kind import Kind, pattern_kind, reads_elementwise
from pliant.loop.analysis.operation_count import cost, stmt_cost
from pliant.loop.analysis.regions import Regions, regions, symbol_facts
from pliant.loop.parse import parse_module
from pliant.loop.stmt import Block, For, Func, walk_stmts
from pliant.program_cost import ProgramCost
from pliant.sym.semantics import evaluate

HEAD = """
from pliant import *
n = dim("n")
m = dim("m")
k = dim("k")
"""


def program(text: str) -> Func:
    """The only kernel of a text."""
    (func,) = parse_module(HEAD + "@kernel\n" + text).values()
    return func


MATMUL = """
def f(a: Tensor[f32, n, k], b: Tensor[f32, k, m], y: Out[f32, n, m]) -> None:
    for i, j, l in grid(n, m, k):
        with block("y", "SSR", i, j, l) as (vi, vj, vl):
            with init():
                y[vi, vj] = 0.0
            y[vi, vj] += a[vi, vl] * b[vl, vj]
"""
BIASED = """
def f(a: Tensor[f32, n, k], b: Tensor[f32, k, m], c: Tensor[f32, m], y: Out[f32, n, m]) -> None:
    t = alloc((n, m), f32)
    for i, j, l in grid(n, m, k):
        with block("t", "SSR", i, j, l) as (vi, vj, vl):
            with init():
                t[vi, vj] = 0.0
            t[vi, vj] += a[vi, vl] * b[vl, vj]
    for i, j in grid(n, m):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = max(t[vi, vj] + c[vj], 0.0)
"""
SOFTMAX = """
def f(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    top = alloc((n,), f32)
    total = alloc((n,), f32)
    for i, j in grid(n, m):
        with block("top", "SR", i, j) as (vi, vj):
            with init():
                top[vi] = -inf
            top[vi] = max(top[vi], x[vi, vj])
    for i, j in grid(n, m):
        with block("total", "SR", i, j) as (vi, vj):
            with init():
                total[vi] = 0.0
            total[vi] += exp(x[vi, vj] - top[vi])
    for i, j in grid(n, m):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = exp(x[vi, vj] - top[vi]) / total[vi]
"""


def mapped(value: str, target: str = "y[vi, vj]") -> str:
    """A program that maps over two dims."""
    return f"""
def f(x: Tensor[f32, n, m], t: Tensor[f32, m, n], c: Tensor[f32, m], index: Tensor[i64, n], y: Out[f32, n, m]) -> None:
    for i, j in grid(n, m):
        with block("y", "SS", i, j) as (vi, vj):
            {target} = {value}
"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (mapped("x[vi, vj] * 2.0"), Kind.ELEMENTWISE),
        (mapped("x[vi, vj] + c[vj]"), Kind.ELEMENTWISE),
        (mapped("1.0"), Kind.ELEMENTWISE),
        (mapped("c[vj]"), Kind.BROADCAST),
        (mapped("c[0]"), Kind.BROADCAST),
        (mapped("x[0, vj]"), Kind.BROADCAST),
        (mapped("t[vj, vi]"), Kind.INJECTIVE),
        (mapped("x[vi, m - 1 - vj]"), Kind.INJECTIVE),
        (mapped("x[vi, vj] + t[vj, vi]"), Kind.INJECTIVE),
        (mapped("x[index[vi], vj]"), Kind.GATHER),
        (mapped("x[vi, vj]", "y[index[vi], vj]"), Kind.SCATTER),
        (MATMUL, Kind.MATMUL),
        (MATMUL.replace("b[vl, vj]", "2.0"), Kind.REDUCTION),
        (MATMUL.replace("a[vi, vl] * b[vl, vj]", "a[vi, vl]"), Kind.REDUCTION),
        (BIASED, Kind.MATMUL),
        (BIASED.replace("t[vi, vj] + c", "t[n - 1 - vi, vj] + c"), Kind.OPAQUE),
        (SOFTMAX, Kind.REDUCTION),
        (SOFTMAX.replace('"SS"', '"SO"'), Kind.OPAQUE),
    ],
)
def test_the_kind_of_a_program(text: str, kind: Kind) -> None:
    assert pattern_kind(program(text)) is kind


def test_a_let_is_seen_through() -> None:
    text = MATMUL.replace(
        "            y[vi, vj] += a[vi, vl] * b[vl, vj]", "            w = a[vi, vl]\n            y[vi, vj] += w * b[vl, vj]"
    )
    assert pattern_kind(program(text)) is Kind.MATMUL


def test_stores_outside_of_blocks_are_opaque() -> None:
    assert pattern_kind(program("def f(y: Out[f32, n]) -> None:\n    for i in range(n):\n        y[i] = 1.0\n")) is Kind.OPAQUE


def test_which_arguments_are_read_where_is_written() -> None:
    func = program(mapped("x[vi, vj] + c[vj] + t[vj, vi]"))
    assert [reads_elementwise(func, p) for p in range(4)] == [True, False, False, False]


def shown(found: Regions) -> tuple[dict[str, str], dict[str, str]]:
    """The boxes as text: `x: i+4` is start and extent."""
    both = (
        {r.buffer.name: ", ".join(f"{a}:+{b}" for a, b in zip(r.starts, r.extents, strict=True)) for r in boxes}
        for boxes in (found.reads, found.writes)
    )
    return next(both), next(both)


def test_regions_of_a_block_are_over_its_iterators() -> None:
    func = program(MATMUL)
    block = next(s for s in walk_stmts(func.body) if isinstance(s, Block))
    reads, writes = shown(regions(block, symbol_facts(func)))
    assert reads == {"a": "vi:+1, vl:+1", "b": "vl:+1, vj:+1", "y": "vi:+1, vj:+1"}
    assert writes == {"y": "vi:+1, vj:+1"}


def test_regions_eliminate_the_loops_inside() -> None:
    func = program(MATMUL)
    loops = [s for s in walk_stmts(func.body) if isinstance(s, For)]
    reads, writes = shown(regions(loops[1], symbol_facts(func)))
    assert reads == {"a": "i:+1, 0:+k", "b": "0:+k, 0:+m", "y": "i:+1, 0:+m"}
    assert writes == {"y": "i:+1, 0:+m"}


def test_regions_of_windows_gathers_and_guards() -> None:
    func = program(
        """
def f(x: Tensor[f32, n], index: Tensor[i64, n], y: Out[f32, n, 4], z: Out[f32, n]) -> None:
    for i in range(n):
        for j in range(4):
            y[i, j] = select(i + j < n, x[i + j], 0.0)
        z[i] = select(i < n, y[index[i] % n, 1], 0.0)
"""
    )
    outer = next(s for s in walk_stmts(func.body) if isinstance(s, For))
    reads, writes = shown(regions(outer.body, symbol_facts(func).with_loop(outer.var, outer.stop)))
    assert reads["index"] == "i:+1"
    assert reads["y"] == "0:+n, 1:+1"
    assert reads["x"] in ("i:+min(n - i, 4)", "i:+min(i + 4, n) - i", "i:+min(4, n - i)", "i:+min(i + 3, n - 1) - i + 1")
    assert writes == {"y": "i:+1, 0:+4", "z": "i:+1"}


def test_a_condition_that_tells_a_dim_by_a_loop_is_no_bound() -> None:
    func = program("""
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for t in range(n):
        if n == t * 6 + 1:
            for i in range(n):
                y[i] = x[i]
""")
    found = regions(func.body, symbol_facts(func))
    assert [str(e) for e in (*found.reads[0].extents, *found.writes[0].extents)] == ["n", "n"]


def test_memory_of_its_own_is_no_region() -> None:
    func = program(SOFTMAX)
    reads, writes = shown(regions(func.body, symbol_facts(func)))
    assert (reads, writes) == ({"x": "0:+n, 0:+m"}, {"y": "0:+n, 0:+m"})


@pytest.mark.parametrize("size", [(3, 5, 7), (16, 16, 16)])
def test_the_cost_of_a_matmul(size: tuple[int, int, int]) -> None:
    func = program(MATMUL)
    c = cost(func)
    n, m, k = size
    env = {v: {"n": n, "m": m, "k": k}[v.name] for v in func.symbols}
    assert int(evaluate(c.operations, env)) == 2 * n * m * k
    assert int(evaluate(c.read, env)) == 4 * (n * k + k * m + n * m)
    assert int(evaluate(c.written, env)) == 4 * n * m


def test_a_gather_costs_what_it_reads() -> None:
    func = program("""
def f(table: Tensor[f32, 1000, 8], index: Tensor[i64, n], y: Out[f32, n, 8]) -> None:
    for i, j in grid(n, 8):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = table[index[vi], vj]
""")
    env = {func.symbols[0]: 10}
    assert int(evaluate(cost(func).read, env)) == 10 * 8 * 4 + 10 * 8
    assert int(evaluate(cost(func).operations, env)) == 0


def test_loops_that_end_at_a_let_are_counted_over_dims() -> None:
    func = program("""
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for t in range((n + 3) // 4):
        rows = min(n - t * 4, 4)
        for r in range(rows):
            y[t * 4 + r] = x[t * 4 + r] + 1.0
""")
    assert int(evaluate(cost(func).operations, {func.symbols[0]: 8})) == 8
    assert int(evaluate(cost(func).bytes, {func.symbols[0]: 8})) == 64


@pytest.mark.parametrize("n", [1, 64, 300, 1024])
def test_loops_from_a_maximum_to_a_minimum(n: int) -> None:
    """Tiles of 64, in groups of 4, as in flash attention: each loop over `t` has at most four of them."""
    func = program("""
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for number in range((n + 255) // 256):
        here = max(number * 4, 0)
        end = min((n + 63) // 64, number * 4 + 4)
        for t in range(here, end):
            y[t * 64] = x[t * 64] + 1.0
        for t in range(here - number * 4, end - number * 4):
            y[t] = x[t] * 2.0
""")
    c = cost(func)
    groups, tiles = -(-n // 256), -(-n // 64)
    assert c.exact and int(evaluate(c.operations, {func.symbols[0]: n})) == 2 * groups * min(tiles, 4)


def test_the_cost_of_attention_is_known() -> None:
    """Two products of every query with every key, in tiles: 256 are whole tiles of keys. The rest is the softmax."""
    d = dim("d", min=1)

    @function
    def attend(q: Tensor[f32, 1, 2, d, 32], k: Tensor[f32, 1, 2, d, 32], v: Tensor[f32, 1, 2, d, 32]) -> Tensor[f32, 1, 2, d, 32]:
        return ops.scaled_dot_product_attention(q, k, v)

    products = 2 * 2 * 2 * 256 * 256 * 32
    assert products < ProgramCost(program_of(attend))(d=256).operations < 2 * products


def test_the_cost_of_one_iteration() -> None:
    func = program(MATMUL)
    outer = next(s for s in walk_stmts(func.body) if isinstance(s, For))
    c = stmt_cost(outer.body, symbol_facts(func).with_loop(outer.var, outer.stop))
    env = dict.fromkeys(func.symbols, 4)
    assert int(evaluate(c.operations, env)) == 2 * 4 * 4
    assert int(evaluate(c.written, env)) == 4 * 4
