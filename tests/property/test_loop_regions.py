"""Regions cover every access: what lies outside of the boxes that are read does not matter, what lies outside of those that
are written does not change. Tried on one iteration of the outermost loop of random programs, with its variable as a parameter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counts import seeds
from generate_loops import Generator, clone, make_arguments
from generate_values import Scope
from pliant.dtype import f32, i32, i64
from pliant.interp.loop import run_loop
from pliant.loop.analysis.regions import regions, symbol_facts
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Block, For, Func, Param, Region
from pliant.sym.expr import Var
from pliant.sym.semantics import evaluate

BATCH = 50


def one_stage(seed: int) -> tuple[Func, For] | None:
    """A program of one stage, and its outermost loop."""
    g = Generator(seed)
    reads = [Buffer(f"x{n}", g.pick([f32, i32, i64]), g.shape(g.random.randint(1, 2))) for n in range(2)]
    out = Buffer("y", f32, g.shape(g.random.randint(1, 2)))
    body = g.pick([g.map_, g.reduction, g.plain, g.accumulate, g.tiled, g.blocked])(out, Scope(reads=reads))
    holder = Buffer("holder", f32, tuple(g.dims))
    func = Func("f", (*(Param(b) for b in reads), Param(holder), Param(out, "inout")), body)
    return (func, body) if isinstance(body, For) else None


def inside(box: Region, values: dict[Var, Any], shape: tuple[int, ...], memory: dict[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements of a buffer are in a box; where that is depends on memory in a gather."""
    mask = np.zeros(shape, bool)

    def load(e: Any, indices: Any) -> Any:
        at = tuple(int(i) for i in indices)
        return memory[e.buffer][at] if all(0 <= i < n for i, n in zip(at, memory[e.buffer].shape, strict=True)) else e.dtype.numpy().type(0)

    starts = [int(evaluate(e, values, load)) for e in box.starts]
    ends = [a + int(evaluate(e, values, load)) for a, e in zip(starts, box.extents, strict=True)]
    mask[tuple(slice(max(a, 0), max(b, 0)) for a, b in zip(starts, ends, strict=True))] = True
    return mask


@pytest.mark.parametrize("first", seeds(200, 20_000, BATCH))
def test_boxes_cover_every_access(first: int) -> None:
    for seed in range(first, first + BATCH):
        made = one_stage(seed)
        if made is None:
            continue
        func, loop = made
        found = regions(loop.body, symbol_facts(func).with_loop(loop.var, loop.extent, loop.start))
        once = func.with_(params=(*func.params, Param(loop.var)), body=loop.body)
        arguments, dims = make_arguments(func, seed)
        symbols = dict(zip(func.symbols, dims, strict=True))
        memory = {p.value: a for p, a in zip(func.params, arguments, strict=True)}
        start, stop = (int(evaluate(e, symbols)) for e in (loop.start, loop.stop))
        for at in sorted({start, (start + stop) // 2, stop - 1} & set(range(start, stop))):
            values = {**symbols, loop.var: at}
            if isinstance(loop.body, Block):  # its boxes are over its iterators
                values |= {i.var: int(evaluate(i.value, values)) for i in loop.body.iters}
            read = {r.buffer: r for r in found.reads}
            written = {r.buffer: r for r in found.writes}
            other = [clone(a) for a in arguments]
            for p, a in zip(func.params, other, strict=True):
                box = read.get(p.value)  # type: ignore[call-overload]
                a[~inside(box, values, a.shape, memory) if box is not None else ...] = 1
            before = [clone(a) for a in other]
            run_loop(once, [*(mine := [clone(a) for a in arguments]), at], dims)
            run_loop(once, [*other, at], dims)
            for p, old, a, b in zip(func.params, before, mine, other, strict=True):
                box = written.get(p.value)  # type: ignore[call-overload]
                touched = inside(box, values, b.shape, memory) if box is not None else np.zeros(b.shape, bool)
                assert np.array_equal(old[~touched], b[~touched], equal_nan=b.dtype.kind == "f"), f"{p.value} at {at} of\n{func}"
                if p.role == "inout":
                    changed = touched & ~((b == old) | ((b != b) & (old != old)))
                    assert np.array_equal(a[changed], b[changed], equal_nan=True), f"{p.value} at {at} of\n{func}"
