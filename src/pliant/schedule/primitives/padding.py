"""Padding primitives: pad rounds a block's extents up to multiples; decompose_padding separates a padded copy into fill and copy.

Instructions and tiles of constant size need extents that are multiples. Operands are copied into larger buffers with zeros around them,
the result is computed in a larger buffer, and the needed part is copied out.
"""

from __future__ import annotations

from ...dtype import i64
from ...loop.analysis.nests import accesses, block_names, blocks, facts_at, loops_above, plain_iters
from ...loop.buffer import Buffer, Load, loaded_dtype
from ...loop.stmt import Alloc, Block, For, Func, Iter, Reduce, Seq, Stmt, Store, seq, zero
from ...support.record import dataclass
from ...sym.conditions import all_of, conjuncts
from ...sym.expr import TRUE, Cast, Const, Expr, Le, Lt, Max, Min, Mul, Select, Var, free_vars
from ...sym.facts import DIM_MAX, Facts
from ...sym.poly import to_expr
from ...sym.prove import prove, prove_equal
from ...sym.simplify import simplify
from ...sym.walk import walk
from ..cursor import Edit, Forward, fresh_name
from ..dependence import linear
from ..errors import own_nest, refuse
from ..invariants import legal
from .cache_stages import redirected


@legal
def pad(func: Func, block: Block, *multiples: int) -> tuple[Func, Forward]:
    """Round the extents of a block's iterators up to multiples, one number for each; 1 leaves an iterator as it is.

    The block must be a sum of products, and padded operands must be indexed by its iterators. Operands get copies with zeros in the padding
    (`…_pad`). A padded result is computed in a buffer of its own (`…_pad`) and copied out by the block `…_cut`. Raises a ScheduleError if
    these conditions do not hold.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.pad("c", 1, 1, 3)`

        a_pad = alloc((n, 9), f32)
        for i, k in grid(n, 9):
            with block("a_pad", "SS", i, k) as (vi, vk):
                a_pad[vi, vk] = select(vk < 8, a[vi, vk], 0.0)
        b_pad = alloc((9, 16), f32)
        for k, j in grid(9, 16):
            with block("b_pad", "SS", k, j) as (vk, vj):
                b_pad[vk, vj] = select(vk < 8, b[vk, vj], 0.0)
        for i, j, k in grid(n, 16, 9):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a_pad[vi, vk] * b_pad[vk, vj]
    """
    what = f"cannot pad block `{block.name}`"
    if len(multiples) != len(block.iters) or any(type(m) is not int or not 1 <= m <= DIM_MAX for m in multiples):
        shown = ", ".join(i.var.name for i in block.iters)
        raise refuse(f"{what} to multiples of {multiples}: a positive number for each iterator is expected", func, (block, shown))
    target, operands = _einsum(func, block, what)
    nest = own_nest(func, block, what)
    root = next(iter(nest.values()), block)
    shared = next((x for x in loops_above(func, root) if x.kind == "parallel"), None)
    if shared is not None:
        raise refuse(f"{what}: the iterations of parallel loop `{shared.var.name}` would share the copies", func, (shared, "parallel"))
    facts = facts_at(func, root)
    new_stop = {i.var: _rounded(nest[i.var].stop, m, facts) for i, m in zip(block.iters, multiples, strict=True)}
    grown = {i.var: nest[i.var].stop for i in block.iters if new_stop[i.var] is not nest[i.var].stop}
    if not grown:
        raise refuse(f"{what}: every extent is a multiple already", func, *((x, f"extent {x.stop}") for x in nest.values()))
    bad = next((x for x in (*operands, target) if grown.keys() & free_vars_of(x.indices) and plain_iters(x.indices, block) is None), None)
    if bad is not None:
        reason = f"`{bad.buffer.name}` is not indexed by its iterators, each once"
        raise refuse(f"{what}: {reason}", func, (block, "this block"), help="reindex lets the iterators index an operand")
    _check_neutral(func, block, grown, operands, what)
    names = block_names(func)
    before: list[Stmt] = []
    new = block
    for operand in dict.fromkeys(operands):
        if grown.keys() & free_vars_of(operand.indices):
            copy, copy_stmts = _padded_copy(operand, nest, new_stop, grown, names)
            before += copy_stmts
            new = redirected(new, operand.buffer, copy, operand.indices)
    after: list[Stmt] = []
    if grown.keys() & free_vars_of(target.indices):
        shape = tuple(new_stop[v] for v in target.indices if isinstance(v, Var))
        copy = Buffer(f"{target.buffer.name}_pad", target.buffer.dtype, shape, None, "workspace")
        before.append(Alloc(copy))
        new = redirected(new, target.buffer, copy, target.indices)
        after.append(_copied(f"{block.name}_cut", target.buffer, copy, target.indices, nest, names))
    new = new.with_(reads=None, writes=None)
    edit = Edit(func)
    inner: Stmt = new
    for v, x in reversed(nest.items()):
        inner = x.with_(stop=new_stop[v], body=inner)
        edit.move(x, inner)
    edit.move(block, new)
    edit.replace(root, seq(*before, inner, *after))
    return edit.done(made=tuple(b for s in (*before, *after) for b in blocks(s)))


def free_vars_of(indices: tuple[Expr, ...]) -> set[Var]:
    """Return all variables that occur in the indices."""
    return {v for e in indices for v in free_vars(e)}


def _rounded(extent: Expr, multiple: int, facts: Facts) -> Expr:
    if multiple == 1 or prove_equal(extent % multiple, zero(), facts):
        return extent
    return simplify((extent + (multiple - 1)) // multiple * multiple, facts)


def _einsum(func: Func, block: Block, what: str) -> tuple[Load, list[Load]]:
    """Return the target of a sum of products, and its factors; raise if the block is none."""
    s = block.body
    if not isinstance(s, Reduce) or len(s.targets) != 1 or s.combiner.name not in ("add", "fma") or not isinstance(block.init, Store):
        raise refuse(f"{what}: it is not a sum with its init", func, (block, "this block"), help="do this before decompose_reduction")
    factors = [f for v in s.values for f in _factors(v)]
    operands = [f for f in factors if isinstance(f, Load)]
    if len(operands) != len(factors) or any(x.buffer is s.targets[0].buffer for x in operands):
        raise refuse(f"{what}: it does not sum products of operands", func, (block, "this block"))
    twice = next((x for x in operands if sum(y.buffer is x.buffer for y in set(operands)) > 1), None)
    if twice is not None:
        raise refuse(f"{what}: it reads `{twice.buffer.name}` at several places", func, (block, "this block"))
    if not isinstance(block.init.value, Const) or block.predicate is not TRUE:
        reason = "it has a predicate" if isinstance(block.init.value, Const) else "its init is no constant"
        raise refuse(f"{what}: {reason}", func, (block, "this block"))
    return s.targets[0], operands


def _factors(e: Expr) -> list[Expr]:
    """Return the factors of a product, looking through casts: a cast keeps zero zero."""
    if isinstance(e, Mul):
        return [f for a in e.args for f in _factors(a)]
    return _factors(e.args[0]) if isinstance(e, Cast) else [e]


def _check_neutral(func: Func, block: Block, grown: dict[Var, Expr], operands: list[Load], what: str) -> None:
    """Raise unless the terms in the padding are zero.

    For floats every factor must be zero there, because 0 * inf is NaN. And an init of -0.0 would become 0.0, because -0.0 + 0.0 is 0.0.
    """
    reducing = [i.var for i in block.iters if i.kind != "S" and i.var in grown]
    init = block.init.value if isinstance(block.init, Store) else None
    for v in reducing:
        inside = [v in free_vars_of(x.indices) for x in operands]
        floats = any(loaded_dtype(x.buffer.dtype).is_float for x in operands)
        if not (all(inside) if floats else any(inside)):
            raise refuse(f"{what}: what it sums is not zero in the padding of `{v.name}`", func, (block, "this block"))
        if floats and isinstance(init, Const) and str(float(init.value)) == "-0.0":
            raise refuse(f"{what}: its init is -0.0, which is no longer so when zeros are added", func, (block, "this block"))


def _padded_copy(
    operand: Load, nest: dict[Var, For], new_stop: dict[Var, Expr], grown: dict[Var, Expr], names: set[str]
) -> tuple[Buffer, list[Stmt]]:
    """Return a copy of an operand with zeros in its padding, and the statements that allocate and fill it.

    The operand is indexed by iterators alone, each once; the caller checks this. `names` gets the name of the block that fills the copy.
    """
    vars_ = [v for v in operand.indices if isinstance(v, Var)]
    copy = Buffer(f"{operand.buffer.name}_pad", operand.buffer.dtype, tuple(new_stop[v] for v in vars_), None, "workspace")
    loops = [For(Var(nest[v].var.name), zero(), new_stop[v], "serial", Seq(())) for v in vars_]
    iters = tuple(Iter(Var(v.name), "S", x.var) for v, x in zip(vars_, loops, strict=True))
    place = tuple(i.var for i in iters)
    within = all_of(*(i.var < grown[v] for i, v in zip(iters, vars_, strict=True) if v in grown))
    value = Select(within, Load(operand.buffer, place), Const(0, loaded_dtype(operand.buffer.dtype)))
    nested: Stmt = Block(fresh_name(copy.name, names), iters, Store(copy, place, value))
    for x in reversed(loops):
        nested = x.with_(body=nested)
    return copy, [Alloc(copy), nested]


def _copied(name: str, to: Buffer, copy: Buffer, indices: tuple[Expr, ...], nest: dict[Var, For], names: set[str]) -> Stmt:
    """Return a loop nest that copies the unpadded part of a padded result into its original buffer."""
    vars_ = [v for v in indices if isinstance(v, Var)]
    loops = [For(Var(nest[v].var.name), zero(), nest[v].stop, "serial", Seq(())) for v in vars_]
    iters = tuple(Iter(Var(v.name), "S", x.var) for v, x in zip(vars_, loops, strict=True))
    place = tuple(i.var for i in iters)
    nested: Stmt = Block(fresh_name(name, names), iters, Store(to, place, Load(copy, place)))
    for x in reversed(loops):
        nested = x.with_(body=nested)
    return nested


@dataclass(slots=True)
class _Range:
    """The range of a loop, start and stop, that conditions narrow one after the other."""

    start: Expr
    stop: Expr


@legal
def decompose_padding(func: Func, block: Block) -> tuple[Func, Forward]:
    """Separate a copy with padding, `select(bounds, value, constant)`: fill the whole buffer (`…_fill`), then copy what is in bounds.

    Raises a ScheduleError for other forms of the block.

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = select(vi < n - 2, v[vi], 0.0)

    -> `s.decompose_padding("w")`

        for i in range(n):
            with block("w_fill", "S", i) as vi:
                w[vi] = 0.0
        for i in range(n - 2):
            with block("w", "S", i) as vi:
                w[vi] = v[vi]
    """
    what = f"cannot take the padding of block `{block.name}` apart"
    store = block.body
    if (
        not isinstance(store, Store)
        or block.init is not None
        or not isinstance(store.value, Select)
        or not isinstance(store.value.args[2], Const)
        or block.predicate is not TRUE
    ):
        raise refuse(f"{what}: it does not store select(condition, value, constant)", func, (block, "this block"))
    iters = plain_iters(store.indices, block)
    if iters is None or len(iters) != len(block.iters) or any(i.kind != "S" for i in block.iters):
        raise refuse(f"{what}: it does not store at its iterators, each once", func, (block, "this block"))
    if any(a.buffer is store.buffer and not a.write for a in accesses(block)):
        raise refuse(f"{what}: it reads the buffer that it fills", func, (block, "this block"))
    condition, value, constant = store.value.args
    nest = own_nest(func, block, what)
    root = next(iter(nest.values()), block)
    facts = facts_at(func, root)
    ranges = {v: _Range(zero(), x.stop) for v, x in nest.items()}
    for c in conjuncts(condition):
        if not _narrow(c, ranges, facts):
            raise refuse(f"{what}: {c} is no bound of one iterator", func, (block, f"where {condition}"))
    fill = _fill(block, store, constant, nest, block_names(func))
    edit = Edit(func)
    new = block.with_(body=store.with_(value=value), reads=None, writes=None)
    inner: Stmt = new
    for v, x in reversed(nest.items()):
        inner = x.with_(start=ranges[v].start, stop=ranges[v].stop, body=inner)
        edit.move(x, inner)
    edit.move(block, new)
    edit.replace(root, seq(fill, inner))
    return edit.done(made=(blocks(fill)[0],))


def _narrow(condition: Expr, ranges: dict[Var, _Range], facts: Facts) -> bool:
    """Narrow the range of one iterator by a condition; return False if the condition is no bound of one iterator."""
    own = [v for v in free_vars(condition) if v in ranges]
    if not isinstance(condition, (Lt, Le)) or len(own) != 1 or any(isinstance(e, Load) for e in walk(condition)):
        return False
    v = own[0]
    a, b = condition.args
    parts = linear(simplify(a - b), v)
    if parts is None or parts[0] not in ({(): 1}, {(): -1}):
        return False
    rest = to_expr(parts[1], i64)
    closed = 1 if isinstance(condition, Le) else 0
    if parts[0][()] == 1:  # v + rest < 0
        stop = simplify(zero() - rest + closed, facts)
        ranges[v].stop = stop if prove(stop <= ranges[v].stop, facts) else simplify(Min(ranges[v].stop, stop), facts)
    else:  # rest < v
        start = simplify(rest + (1 - closed), facts)
        ranges[v].start = start if prove(ranges[v].start <= start, facts) else simplify(Max(ranges[v].start, start), facts)
    return True


def _fill(block: Block, store: Store, constant: Expr, nest: dict[Var, For], names: set[str]) -> Stmt:
    """Return a loop nest that stores a constant to every element that a block stores."""
    loops = {v: For(Var(x.var.name), zero(), x.stop, "serial", Seq(())) for v, x in nest.items()}
    iters = {i.var: Iter(Var(i.var.name), "S", loops[i.var].var) for i in block.iters}
    place = tuple(iters[v].var for v in store.indices if isinstance(v, Var))
    filled = Store(store.buffer, place, constant)
    nested: Stmt = Block(fresh_name(f"{block.name}_fill", names), tuple(iters.values()), filled, span=block.span)
    for x in reversed(loops.values()):
        nested = x.with_(body=nested)
    return nested
