"""rolling_buffer: computes a producer row by row beside its reader, in a circular buffer of the rows that are still read."""

from __future__ import annotations

from ...dtype import i64
from ...loop.analysis.nests import Access, accesses, allocation, base_facts, block_names, facts_at, loop_facts, loops_above, path_to
from ...loop.buffer import Buffer
from ...loop.stmt import Block, For, Func, Iter, Replacer, Stmt, Store, seq
from ...sym.conditions import all_of
from ...sym.expr import Const, Expr, Var, free_vars, substitute
from ...sym.prove import prove, prove_equal
from ...sym.simplify import simplify
from ..cursor import EMPTY, Edit, Forward, compose, fresh_name
from ..dependence import linear
from ..errors import refuse
from ..invariants import legal
from ..ranges import Range, covering_range
from .layout import Relayout
from .move import check_readers, movable, moved


@legal
def rolling_buffer(func: Func, block: Block, loop: For) -> tuple[Func, Forward]:
    """Compute a producer inside `loop`, only the rows that earlier iterations have not computed, into a circular buffer.

    Each iteration reads a window of rows that advances by a constant step. A block `…_first` computes the rows of the first window, except
    those of its last step, before the loop. A new row overwrites one that is no longer read, so the rows are ordered (O).

        t = alloc((n + 2,), f32)
        for i in range(n + 2):
            with block("t", "S", i) as vi:
                t[vi] = b[0, 0] + 1.0
        for i_1 in range(n):
            with block("w", "S", i_1) as vi:
                w[vi] = t[vi] + t[vi + 2]

    -> `s.rolling_buffer("t", i_1)`

        t = alloc((3,), f32)
        for vi in range(2):
            with block("t_first", "O", vi) as vi_1:
                t[vi_1 % 3] = b[0, 0] + 1.0
        for i_1 in range(n):
            for vi in range(1):
                with block("t", "O", i_1 + vi + 2) as vi_1:
                    t[vi_1 % 3] = b[0, 0] + 1.0
            with block("w", "S", i_1) as vi:
                w[vi] = t[vi % 3] + t[(vi + 2) % 3]
    """
    what, target = movable(func, block, loop, after=True)
    what = f"cannot roll the buffer of block `{block.name}` at loop `{loop.var.name}`"
    if not isinstance(block.body, Store) or any(i.kind != "S" for i in block.iters):
        raise refuse(
            f"{what}: it is not one store at S iterators", func, (block, "this block"), help="decompose_reduction takes an init out"
        )
    if loops_above(func, loop) or loop.kind != "serial" or not prove_equal(loop.start, Const(0, i64)):
        raise refuse(f"{what}: it is not an outermost serial loop from 0 on", func, (loop, "this loop"))
    alloc = allocation(func, target.buffer)
    if alloc is None or alloc in path_to(func, loop) or not all(x is func.body for x in path_to(func, alloc)):
        raise refuse(f"{what}: `{target.buffer.name}` is not allocated by the program, outside of all loops", func, (block, "this block"))
    users = check_readers(func, block, loop, target, what)
    places = [a for b in users for a in accesses(b) if a.buffer is target.buffer and not a.write]
    ranges = [covering_range(func, loop, places, d, target.buffer) for d in range(target.buffer.ndim)]
    d, step, window = _rolled(func, loop, target, ranges, what)
    begin = simplify(substitute(ranges[d].lo, {loop.var: Const(0, i64)}))
    fresh = Range(simplify(ranges[d].lo + (window - step)), Const(step, i64), True)
    first, forward = moved(func, block, loop, target, [*ranges[:d], fresh, *ranges[d + 1 :]], front=True, what=what)
    early = _first_rows(func, block, target, ranges, d, begin, window - step)
    edit = Edit(first)
    rows, around = forward(block), forward(loop)
    assert isinstance(rows, Block) and isinstance(around, For)
    ordered = rows.with_(iters=tuple(Iter(i.var, "O", i.value) if i.var is target.indices[d] else i for i in rows.iters))
    inner = Edit(Func("", (), around))
    inner.replace(rows, ordered)
    inner.move(rows, ordered)
    body = inner.done()[0].body
    edit.moved.update(inner.moved)
    edit.replace(around, seq(early, body))
    edit.move(around, body)
    second, placed = edit.done(made=(early,))
    third, folded = _folded(second, target.buffer, d, window)
    return third, compose(compose(forward, placed), folded)


def _rolled(func: Func, loop: For, target: Access, ranges: list[Range], what: str) -> tuple[int, int, int]:
    """Return the dimension along which the window advances, its step, and its length; raise unless windows overlap and stay in bounds."""
    moving = [d for d, r in enumerate(ranges) if loop.var in free_vars(r.lo) | free_vars(r.extent)]
    parts = linear(ranges[moving[0]].lo, loop.var) if len(moving) == 1 else None
    extent = ranges[moving[0]].extent if moving else None
    step = None if parts is None or set(parts[0]) != {()} else int(parts[0][()])
    if step is None or step < 1 or not isinstance(extent, Const):
        shown = ", ".join(f"from {r.lo} on, {r.extent}" for r in ranges)
        raise refuse(f"{what}: what an iteration reads is no window that advances by a constant step", func, (loop, f"reads {shown}"))
    d, window = moving[0], int(extent.value)
    if window <= step:
        raise refuse(
            f"{what}: windows of {window} in steps of {step} do not overlap", func, (loop, "this loop"), help="compute_at, then compact"
        )
    facts = loop_facts(facts_at(func, loop), loop)
    r = ranges[d]
    if not prove(Const(0, i64) <= r.lo, facts) or not prove(r.lo + window <= target.buffer.shape[d], facts):
        raise refuse(f"{what}: its windows may go beyond `{target.buffer.name}`", func, (loop, f"from {r.lo} on, {window}"))
    return d, step, window


def _first_rows(func: Func, block: Block, target: Access, ranges: list[Range], d: int, begin: Expr, count: int) -> Stmt:
    """Return the nest for the rows of the first window that no iteration computes; it stays in bounds if the loop runs zero times."""
    of = dict(zip(target.indices, range(target.buffer.ndim), strict=True))
    facts = base_facts(func)
    loops: list[For] = []
    iters: list[Iter] = []
    limits: list[Expr] = []
    for i in block.iters:
        k = of[i.var]
        lo, n = (begin, Const(count, i64)) if k == d else (ranges[k].lo, ranges[k].extent)
        x = For(Var(i.var.name), Const(0, i64), n, "serial", EMPTY)
        loops.append(x)
        facts = loop_facts(facts, x)
        own = Var(i.var.name)
        value = simplify(lo + x.var, facts)
        limits += [] if prove(Const(0, i64) <= value, facts) else [Const(0, i64) <= own]
        limits += [] if prove(value < target.buffer.shape[k], facts) else [own < target.buffer.shape[k]]
        iters.append(Iter(own, "O" if k == d else "S", value))
    rename = Replacer({i.var: own.var for i, own in zip(block.iters, iters, strict=True)})
    name = fresh_name(f"{block.name}_first", block_names(func))
    nest: Stmt = Block(name, tuple(iters), rename.stmt(block.body), predicate=all_of(*limits), annotations=block.annotations)
    for x in reversed(loops):
        nest = x.with_(body=nest)
    return nest


def _folded(func: Func, old: Buffer, axis: int, window: int) -> tuple[Func, Forward]:
    """Return the program with only `window` rows of a buffer: row r becomes row r % window."""
    shape = tuple(Const(window, i64) if d == axis else n for d, n in enumerate(old.shape))
    edit = Edit(func)
    new = Buffer(old.name, old.dtype, shape, None, old.scope)

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(i % window if d == axis else i for d, i in enumerate(indices))

    edit.replaced[func.body] = Relayout(edit.moved, old, new, place).stmt(func.body)
    return edit.done()
