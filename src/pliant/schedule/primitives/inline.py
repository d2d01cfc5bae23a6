"""Producer and consumer fusion: compute_inline and reverse_compute_inline.

`compute_inline` computes an elementwise producer where its value is read. `reverse_compute_inline` computes an elementwise consumer (an
epilogue) where its input is written. Both remove the buffer between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from ...loop.analysis.block_kind import elementwise
from ...loop.analysis.nests import (
    Access,
    accesses,
    allocation,
    bare_uses,
    base_facts,
    blocks,
    facts_at,
    loaded,
    loops_above,
    path_to,
    plain_iters,
    readers,
    repeats,
    visible,
    writers,
)
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Alloc, Block, For, Func, Replacer, Seq, Stmt, Store, walk_stmts
from ...sym.expr import TRUE, Expr, Var, substitute
from ...sym.prove import prove, prove_equal
from ...sym.region import lower, upper
from ...sym.walk import walk
from ..cursor import EMPTY, Edit, Forward
from ..dependence import contains_stmt, written_later
from ..errors import refuse
from ..invariants import legal


@legal
def compute_inline(func: Func, block: Block) -> tuple[Func, Forward]:
    """Compute an elementwise producer where its value is read, and remove its buffer.

    Raises a ScheduleError if its inputs change in between, or if it is not elementwise.

        t = alloc((n,), f32)
        for i in range(n):
            with block("t", "S", i) as vi:
                t[vi] = v[vi] * 2.0
        for i_1 in range(n):
            with block("w", "S", i_1) as vi:
                w[vi] = t[vi] + 1.0

    -> `s.compute_inline("t")`

        for i_1 in range(n):
            with block("w", "S", i_1) as vi:
                w[vi] = v[vi] * 2.0 + 1.0
    """
    what = f"cannot inline block `{block.name}` into its readers"
    store = _one_store(func, block, what)
    iters = plain_iters(store.indices, block)
    if iters is None or len(iters) != len(block.iters):
        raise refuse(
            f"{what}: what it stores is not indexed by its iterators, each once",
            func,
            (block, f"stores {store.buffer.name}[{', '.join(map(str, store.indices))}]"),
        )
    alloc = _own_buffer(func, block, store.buffer, what)
    if store.buffer.dtype.storage:
        raise refuse(f"{what}: what `{store.buffer.name}` holds is rounded to {store.buffer.dtype}", func, (block, "rounds"))
    if any(isinstance(e, Load) and e.buffer is store.buffer for e in walk(store.value)):
        raise refuse(f"{what}: it reads the buffer it writes", func, (block, "this block"))
    if block.predicate is not TRUE:
        raise refuse(f"{what}: it has a predicate", func, (block, f"where {block.predicate}"))
    bare = bare_uses(func)
    shared = next((e.buffer for e in walk(store.value) if isinstance(e, Load) and e.buffer in bare.writes), None)
    if store.buffer in bare.reads or shared is not None:
        reason = (
            f"statements outside of blocks use `{store.buffer.name}`"
            if shared is None
            else f"`{shared.name}`, which it reads, is written outside of blocks"
        )
        raise refuse(f"{what}: {reason}", func, (block, "this block"))
    users = readers(func, store.buffer)
    if not users:
        raise refuse(f"{what}: nobody reads `{store.buffer.name}`", func, (block, "this block"))
    order = blocks(func.body)
    for b in users:
        if order.index(b) < order.index(block):
            raise refuse(
                f"{what}: block `{b.name}` reads `{store.buffer.name}` before it is written", func, (b, "reads"), (block, "writes")
            )
        if any(a.buffer is store.buffer and len(a.indices) != len(iters) for a in accesses(b)):
            raise refuse(f"{what}: block `{b.name}` passes `{store.buffer.name}` to a call", func, (b, "this block"))
    _check_unchanged(func, block, store.value, order, what)
    hidden = next(((b, x) for b in users for x in loaded(store.value) if not visible(func, x, b)), None)
    if hidden is not None:
        raise refuse(f"{what}: `{hidden[1].name}`, which it reads, is not allocated there", func, (block, "reads"), (hidden[0], "a reader"))
    value = store.value

    def load(e: Load) -> Expr | None:
        return substitute(value, dict(zip(iters, e.indices, strict=True))) if e.buffer is store.buffer else None

    edit = Edit(func)
    for b in users:
        replacer = Replacer(loads=load)
        new = b.with_(
            body=replacer.stmt(b.body),
            init=None if b.init is None else replacer.stmt(b.init),
            predicate=replacer.expr(b.predicate),
            reads=None,
            writes=None,
        )
        edit.replace(b, new)
        edit.move(b, new)
    _remove(func, edit, block, alloc, f"block `{block.name}` was inlined")
    return edit.done()


@legal
def reverse_compute_inline(func: Func, block: Block) -> tuple[Func, Forward]:
    """Compute an elementwise consumer (an epilogue) where its input is written, and remove the buffer between.

    The writer must store final values. A reduction step does not; cache_write gives a reduction a write-back block. Raises a ScheduleError
    if these conditions do not hold.

        t = alloc((n,), f32)
        for i in range(n):
            with block("t", "S", i) as vi:
                t[vi] = v[vi] * 2.0
        for i_1 in range(n):
            with block("w", "S", i_1) as vi:
                w[vi] = t[vi] + 1.0

    -> `s.reverse_compute_inline("w")`

        for i in range(n):
            with block("t", "S", i) as vi:
                w[vi] = v[vi] * 2.0 + 1.0
    """
    what = f"cannot inline block `{block.name}` into the writer of its input"
    store = _one_store(func, block, what)
    reads = [
        (e.buffer, e.indices)
        for e in walk(store.value)
        if isinstance(e, Load) and allocation(func, e.buffer) is not None and e.buffer is not store.buffer
    ]
    candidates = [
        (buffer, iters)
        for buffer, indices in reads
        if (iters := plain_iters(indices, block)) is not None and len(iters) == len(block.iters)
    ]
    reasons: list[str] = []
    for buffer, iters in dict(candidates).items():
        reason = _why_not(func, block, store, buffer, iters)
        if reason is None:
            return _fold(func, block, store, buffer, iters)
        reasons.append(reason)
    if not candidates:
        reasons.append("it reads no buffer of the program at its iterators, each once")
    raise refuse(
        f"{what}: {reasons[0]}",
        func,
        (block, "this block"),
        facts=reasons[1:],
        help="cache_write gives a reduction a write-back block that an epilogue can go into",
    )


def _why_not(func: Func, block: Block, store: Store, buffer: Buffer, iters: list[Var]) -> str | None:
    """Return why a consumer cannot be fused into the writers of `buffer`; None if it can."""
    if block.predicate is not TRUE:
        return f"it has the predicate {block.predicate}"
    if any(not isinstance(s, (For, Seq)) for s in path_to(func, block)):
        return "it stands under a condition"
    if buffer.dtype.storage:
        return f"what `{buffer.name}` holds is rounded to {buffer.dtype}"
    bare = bare_uses(func)
    used = next((b for b in (buffer, store.buffer) if b in bare.reads), None) or next(
        (a.buffer for a in accesses(block) if a.buffer in bare.writes), None
    )
    if used is not None:
        return f"statements outside of blocks use `{used.name}`"
    if [b for b in readers(func, buffer) if b is not block]:
        return f"others read `{buffer.name}` too"
    if any(isinstance(e, Load) and e.buffer is buffer and tuple(e.indices) != tuple(iters) for e in walk(store.value)):
        return f"it reads `{buffer.name}` at several places"
    makers = writers(func, buffer)
    order = blocks(func.body)
    if not makers or any(order.index(b) > order.index(block) for b in makers):
        return f"`{buffer.name}` is not written before it"
    out = allocation(func, store.buffer)
    inner = loops_above(func, out) if out is not None else []
    if any(x not in loops_above(func, b) for b in makers for x in inner):
        return f"`{store.buffer.name}`, which it writes, is allocated inside loop `{inner[-1].var.name}`"
    for b in makers:
        if elementwise(b) is None:
            return f"block `{b.name}` writes `{buffer.name}` step by step: an epilogue is applied after the reduction, not in it"
        for a in accesses(block):
            if not visible(func, a.buffer, b) and not (a.write and a.buffer is store.buffer):
                return f"`{a.buffer.name}`, which it uses, is not allocated where block `{b.name}` is"
            later = [x for x in writers(func, a.buffer) if order.index(x) > order.index(b) and x is not block and x not in makers]
            if not a.write and a.buffer is not buffer and later:
                return f"it reads `{a.buffer.name}`, which block `{later[0].name}` writes only after block `{b.name}`"
        assert isinstance(b.body, Store)
        there = dict(zip(iters, b.body.indices, strict=True))
        for e in walk(store.value):
            if isinstance(e, Load) and e.buffer is not buffer:
                read = Access(e.buffer, tuple(substitute(i, there) for i in e.indices), False, b)
                again = _overwriter(func, b, read)
                if again is not None:
                    return f"it reads `{e.buffer.name}`, which block `{again.name}` goes on to write after block `{b.name}`"
    once = all(_apart(func, a, b) for a, b in combinations(makers, 2))
    if store.buffer in loaded(store.value) and not (once and not any(repeats(func, b, x) for b in makers for x in loops_above(func, b))):
        return f"`{buffer.name}` is written more than once, and it changes `{store.buffer.name}` each time"
    around = loops_above(func, makers[0])
    between = order[order.index(blocks(around[0])[0] if around else makers[0]) : order.index(block)]
    user = next((x for x in between if any(a.buffer is store.buffer for a in accesses(x))), None)
    if user is not None:
        return f"block `{user.name}` uses `{store.buffer.name}` before it"
    return _domain_differs(func, block, buffer, iters)


def _domain_differs(func: Func, block: Block, buffer: Buffer, iters: list[Var]) -> str | None:
    """Return why the block does not run over all of the buffer, each element once; None if it does."""
    facts = facts_at(func, block)
    of = {x.var: x for x in loops_above(func, block)}
    value = {i.var: i.value for i in block.iters}
    for v, extent in zip(iters, buffer.shape, strict=True):
        loop = of.get(value[v])  # type: ignore[call-overload]
        if loop is None or not prove_equal(loop.start, extent - extent, facts) or not prove_equal(loop.stop, extent, facts):
            return f"it does not run over all of `{buffer.name}` with one loop for each dimension (`{v.name}` = {value[v]} of {extent})"
    unused = set(of) - {value[v] for v in iters}
    if unused:
        return f"loop `{next(iter(unused)).name}` around it repeats it"
    return None


def _fold(func: Func, block: Block, store: Store, buffer: Buffer, iters: list[Var]) -> tuple[Func, Forward]:
    """Fuse an elementwise consumer into every block that writes its input buffer, which disappears; return the program and the Forward."""
    edit = Edit(func)
    for b in writers(func, buffer):
        assert isinstance(b.body, Store)
        written = b.body
        replacer = Replacer(dict(zip(iters, written.indices, strict=True)), loads=_value_for(buffer, written.value))
        body = written.with_(buffer=store.buffer, indices=tuple(replacer.expr(e) for e in store.indices), value=replacer.expr(store.value))
        new = b.with_(body=body, reads=None, writes=None)
        edit.replace(b, new)
        edit.move(b, new)
    alloc = allocation(func, buffer)
    assert alloc is not None
    _remove(func, edit, block, alloc, f"block `{block.name}` was inlined")
    out = allocation(func, store.buffer)
    if out is not None and _comes_after(func, out, writers(func, buffer)[0]):
        edit.replace(out, EMPTY)  # its allocation must precede its new writer, so it takes the place of the removed buffer's
        edit.replace(alloc, out.with_())
    return edit.done()


def _value_for(buffer: Buffer, value: Expr) -> Callable[[Load], Expr | None]:
    return lambda e: value if e.buffer is buffer else None


def _comes_after(func: Func, s: Stmt, other: Stmt) -> bool:
    return next(x for x in walk_stmts(func.body) if x is s or x is other) is other


def _one_store(func: Func, block: Block, what: str) -> Store:
    s = block.body
    if not isinstance(s, Store) or block.init is not None or any(i.kind != "S" for i in block.iters):
        raise refuse(f"{what}: it is not one store over S iterators", func, (block, "this block"))
    return s


def _own_buffer(func: Func, block: Block, buffer: Buffer, what: str) -> Alloc:
    alloc = allocation(func, buffer)
    if alloc is None:
        raise refuse(f"{what}: it writes `{buffer.name}`, a parameter of the program", func, (block, "this block"))
    other = next((b for b in writers(func, buffer) if b is not block), None)
    if other is not None:
        raise refuse(f"{what}: block `{other.name}` writes `{buffer.name}` too", func, (block, "this block"), (other, "the other writer"))
    return alloc


def _check_unchanged(func: Func, block: Block, value: Expr, order: list[Block], what: str) -> None:
    """Raise if something that the producer reads changes before the consumer would read it."""
    for e in walk(value):
        if isinstance(e, Load):
            later = next((b for b in writers(func, e.buffer) if order.index(b) > order.index(block)), None)
            if later is not None:
                raise refuse(
                    f"{what}: block `{later.name}` changes `{e.buffer.name}`, which it reads", func, (block, "reads"), (later, "writes")
                )
            again = _overwriter(func, block, Access(e.buffer, e.indices, False, block))
            if again is not None:
                reason = f"block `{again.name}` goes on to change `{e.buffer.name}`, which it reads"
                raise refuse(f"{what}: {reason}", func, (block, "reads"), (again, "writes"))


def _apart(func: Func, first: Block, second: Block) -> bool:
    """True if two blocks provably write different elements, as a main loop and its tail do: one's range ends before the other's begins."""
    ranges = []
    for b in (first, second):
        own = {x.var for x in loops_above(func, b)}
        facts = facts_at(func, b)
        place = next(a for a in accesses(b) if a.write).over_loops()
        ranges.append([(lower(e, facts, own), upper(e, facts, own)) for e in place])
    known = base_facts(func)
    return any(prove(p[1] < q[0], known) or prove(q[1] < p[0], known) for p, q in zip(*ranges, strict=True))


def _overwriter(func: Func, block: Block, read: Access) -> Block | None:
    """Return another block that may write, in a later iteration of a loop around both, what `block` reads by `read`; None if there is none.

    Loops around the buffer's allocation do not count: each of their iterations has the memory for itself.
    """
    alloc = allocation(func, read.buffer)
    own = path_to(func, alloc) if alloc is not None else []  # each iteration of these loops has the memory for itself
    for w in writers(func, read.buffer):
        for x in loops_above(func, block) if w is not block else ():
            if x not in own and contains_stmt(x, w) and written_later(func, x, w, read):
                return w
    return None


def _remove(func: Func, edit: Edit, block: Block, alloc: Alloc, reason: str) -> None:
    """Remove a block, the loops around it alone, and its buffer from the program."""
    gone: list[Stmt] = [block]
    for s in reversed(path_to(func, block)):
        if blocks(s) != [block]:
            break
        gone.append(s)
    edit.replace(block, EMPTY)
    edit.replace(alloc, EMPTY)
    edit.kill(gone, reason)
