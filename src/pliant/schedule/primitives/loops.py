"""Primitives on whole loops: fuse, reorder, unroll, vectorize, parallel, annotate, unannotate, add_unit_loop.

Each is a pure function `(func, loop, …) -> (func, forward)`; `forward.made` holds the loops it made, in the order of the results of the
`Schedule` method. Loops that feed only S iterators may run in any order. Only `reorder` changes the order of a reduction, and then it
declares the change of rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from ...dtype import i64
from ...loop.analysis.nests import blocks, bound_value, constant_extent, facts_at, fed_by, loop_facts, loops_above, loops_in
from ...loop.buffer import Buffer
from ...loop.stmt import Alloc, Block, For, Func, Reduce, Stmt, Store, walk_stmts, zero
from ...loop.verify_memory import check_memory
from ...support.errors import Error
from ...sym.expr import Const, Expr, Var, free_vars, product
from ...sym.facts import DIM_MAX
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..cursor import Edit, Forward, Mover
from ..dependence import Conflict, bare_statement, cross_dependence, dependence
from ..errors import check_serial, refuse
from ..invariants import legal

MAX_UNROLL = 256  # more copies of a body than this make code that LLVM takes long to compile, and that leaves the instruction cache


@legal
def fuse(func: Func, *loops: For) -> tuple[Func, Forward]:
    """Fuse perfectly nested loops into one that runs over the product of their extents.

    `i` becomes `f // m`, and `j` becomes `f % m`. Raises a ScheduleError unless each loop is all of the body of the one before, and if they
    feed both S and R iterators of a block.

        for i, j in grid(n, m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = x[vi, vj] * 2.0

    -> `s.fuse(i, j)`

        for i_j in range(m * n):
            with block("y", "SS", i_j // m, i_j % m) as (vi, vj):
                y[vi, vj] = x[vi, vj] * 2.0
    """
    if len(loops) < 2:
        raise refuse("cannot fuse fewer than two loops", func, *((x, "") for x in loops))
    for x in loops:
        check_serial(func, x, "fuse")
    for outer, inner in itertools.pairwise(loops):
        if outer.body is not inner:
            raise refuse(
                f"cannot fuse loops `{outer.var.name}` and `{inner.var.name}`: the inner one is not all of the outer one's body",
                func,
                (outer, "outer"),
                (inner, "inner"),
                help="reorder brings loops of one nest next to each other",
            )
        for x in loops:
            if x.var in free_vars(inner.start) | free_vars(inner.stop):
                raise refuse(
                    f"cannot fuse loops `{outer.var.name}` and `{inner.var.name}`: the inner extent depends on `{x.var.name}`",
                    func,
                    (inner, f"extent {inner.extent}"),
                )
    for b in blocks(loops[-1].body):
        if b.init is not None and len({k for x in loops for k in fed_by(b, x)}) > 1:
            raise refuse(
                f"cannot fuse loops that feed S and R iterators of block `{b.name}`: its init would not run where the reduction is empty",
                func,
                *((x, f"feeds {', '.join(sorted(fed_by(b, x)))}") for x in loops),
                help="decompose_reduction takes the init out",
            )
    edit = Edit(func)
    extents = [simplify(x.extent, facts_at(func, x)) for x in loops]
    for x, e in zip(loops, extents, strict=True):
        if not prove(zero() <= e, facts_at(func, loops[0])):
            raise refuse(f"cannot fuse loop `{x.var.name}`: its extent may be negative", func, (x, f"extent {e}"))
    var = Var("_".join(x.var.name for x in loops))
    stop = simplify(product(tuple(extents)), facts_at(func, loops[0]))
    facts = facts_at(func, loops[0]).with_range(var, 0, stop - 1)
    values: dict[Var, Expr] = {}
    rest: Expr = var
    for x, e in zip(reversed(loops[1:]), reversed(extents[1:]), strict=True):
        values[x.var] = bound_value(x.start + rest % e, facts)
        rest = rest // e
    values[loops[0].var] = bound_value(loops[0].start + rest, facts)
    new = For(var, zero(), stop, "serial", Mover(edit.moved, values, facts=facts).stmt(loops[-1].body), span=loops[0].span)
    edit.replace(loops[0], new)
    for x in loops:
        edit.move(x, new)
    return edit.done(made=(new,))


@legal
def reorder(func: Func, *loops: For) -> tuple[Func, Forward]:
    """Put loops of one nest into the given order, outermost first; unnamed loops between them stay in place.

    Raises a ScheduleError if the range of a loop depends on one that would be inside of it.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.reorder(k, i)`

        for k, j, i in grid(8, 16, n):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]
    """
    chain = _chain(func, loops)
    named = [x for x in chain if x in loops]
    order = iter(loops)
    wanted = [next(order) if x in loops else x for x in chain]
    seen: set[Var] = {x.var for x in chain}
    for x in wanted:
        inner = (free_vars(x.start) | free_vars(x.stop)) & seen
        if inner:
            raise refuse(
                f"cannot reorder: the range of loop `{x.var.name}` depends on `{next(iter(inner)).name}`, which would be inside of it",
                func,
                (x, f"range {x.start}..{x.stop}"),
            )
        seen.discard(x.var)
    rounding = _check_order(func, chain, wanted, named)
    edit = Edit(func)
    body: Stmt = chain[-1].body
    for x in reversed(wanted):
        body = x.with_(body=body)
        edit.move(x, body)
    edit.replace(chain[0], body)
    reordered = tuple(edit.moved[x] for x in loops)
    return edit.done(made=reordered, rounding=rounding)


def _chain(func: Func, loops: Sequence[For]) -> list[For]:
    """Return the loops from the outermost to the innermost of `loops`, with the unnamed ones between.

    Raise unless they are a perfect nest.
    """
    if len(set(loops)) != len(loops) or not loops:
        raise refuse("cannot reorder: give each loop once", func, *((x, "") for x in dict.fromkeys(loops)))
    depth = {x: len(loops_above(func, x)) for x in loops}
    by_depth = sorted(loops, key=lambda x: depth[x])
    chain = [by_depth[0]]
    while chain[-1] is not by_depth[-1]:
        body = chain[-1].body
        if not isinstance(body, For):
            raise refuse(
                f"cannot reorder: loops `{by_depth[0].var.name}` and `{by_depth[-1].var.name}` are not one nest",
                func,
                *((x, "") for x in loops),
                facts=[f"the body of `{chain[-1].var.name}` is not one loop"],
            )
        chain.append(body)
    missing = [x for x in loops if x not in chain]
    if missing:
        raise refuse(f"cannot reorder: loop `{missing[0].var.name}` is not in the nest of `{by_depth[0].var.name}`", func, (missing[0], ""))
    return chain


def _check_order(func: Func, before: list[For], after: list[For], named: list[For]) -> str:
    """Raise if the order changes the meaning; return how it changes the rounding, "" if not at all."""
    inside = blocks(before[-1].body)
    moved = [x for n, x in enumerate(before) if after[n] is not x]
    if not moved:
        return ""
    if len(inside) != 1 or bare_statement(before[-1].body) is not None:
        for x in moved:
            conflict = cross_dependence(func, x) if len(inside) > 1 else Conflict(x, "its body is not made of blocks")
            if conflict is not None:
                raise refuse(f"cannot reorder loop `{x.var.name}`: {conflict.reason}", func, (x, "this loop"), (conflict.at, "here"))
    rounding = ""
    for b in inside:
        feeding = [x for x in before if fed_by(b, x) - {"S"}]
        if feeding == [x for x in after if x in feeding]:
            continue
        if any("O" in fed_by(b, x) for x in feeding):
            raise refuse(f"cannot reorder: block `{b.name}` has an ordered iterator", func, (b, "its instances keep their order"))
        rounding = rounding or reassociation(func, b)
    return rounding


def reassociation(func: Func, b: Block) -> str:
    """Return how another order of a block's reduction changes its results, "" if not at all; raise if the block forbids it."""
    for s in walk_stmts(b.body):
        exact = not isinstance(s, (Reduce, Store)) or (
            isinstance(s, Reduce)
            and (s.combiner.name in ("min", "max", "and", "or") or all(not t.dtype.is_float for t in s.targets))
            and not s.combiner.left
        )
        if not exact:
            if not b.annotations.get("reassociate", True):
                raise refuse(
                    f"cannot change the order in which block `{b.name}` sums: it is annotated reassociate=False", func, (b, "this block")
                )
            return f"block `{b.name}` sums in another order"
    return ""


@legal
def unroll(func: Func, loop: For) -> tuple[Func, Forward]:
    """Unroll a loop of constant extent, at most MAX_UNROLL; a range that does not consist of constants is shifted to start at 0.

    Raises a ScheduleError for other extents.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.unroll(k)`

        for i, j in grid(n, 16):
            for k in unroll(8):
                with block("c", "SSR", i, j, k) as (vi, vj, vk):
                    with init():
                        c[vi, vj] = 0.0
                    c[vi, vj] += a[vi, vk] * b[vk, vj]
    """
    extent = constant_extent(func, loop)
    if extent is None or extent > MAX_UNROLL:
        raise refuse(
            f"cannot unroll loop `{loop.var.name}`: its extent is {'not a constant' if extent is None else f'more than {MAX_UNROLL}'}",
            func,
            (loop, f"extent {loop.extent}"),
            help="split the loop by a small constant and unroll the inner one",
        )
    if isinstance(loop.start, Const) and isinstance(loop.stop, Const):
        return _with_kind(func, loop, "unroll")
    # The code generator unrolls constant ranges only, so a dynamic start moves into the uses of the variable.
    check_serial(func, loop, "unroll")
    edit = Edit(func)
    moved = For(Var(loop.var.name), zero(), Const(extent, i64), "unroll", loop.body, dict(loop.annotations), loop.span)
    facts = loop_facts(facts_at(func, loop), moved)
    new = moved.with_(body=Mover(edit.moved, {loop.var: loop.start + moved.var}, facts=facts).stmt(loop.body))
    edit.replace(loop, new)
    edit.move(loop, new)
    return edit.done()


@legal
def vectorize(func: Func, loop: For) -> tuple[Func, Forward]:
    """Run the independent iterations of an innermost loop as vector lanes; a dynamic extent is strip-mined with a masked tail.

    Raises a ScheduleError if there are loops inside, or iterations are not independent.

        for i, j in grid(n, m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = x[vi, vj] * 2.0

    -> `s.vectorize(j)`

        for i in range(n):
            for j in vector(m):
                with block("y", "SS", i, j) as (vi, vj):
                    y[vi, vj] = x[vi, vj] * 2.0
    """
    if loops_in(loop.body) or any(isinstance(s, For) for b in blocks(loop.body) for s in walk_stmts(b)):
        raise refuse(
            f"cannot vectorize loop `{loop.var.name}`: there are loops inside of it",
            func,
            (loop, "this loop"),
            help="reorder it to the innermost place",
        )
    _check_independent(func, loop, "vectorize")
    return _with_kind(func, loop, "vector")


@legal
def parallel(func: Func, loop: For, grain: int | None = None) -> tuple[Func, Forward]:
    """Run the independent iterations of a loop on threads; `grain` is the fewest iterations that a thread takes at a time.

    Raises a ScheduleError if a loop around or inside is parallel already, or iterations are not independent.

        for i, j in grid(n, m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = x[vi, vj] * 2.0

    -> `s.parallel(i, grain=8)`

        for i in parallel(n, grain=8):
            for j in range(m):
                with block("y", "SS", i, j) as (vi, vj):
                    y[vi, vj] = x[vi, vj] * 2.0
    """
    nested = next((x for x in (*loops_above(func, loop), *loops_in(loop.body)) if x.kind == "parallel"), None)
    outside = next((x for x in loops_above(func, loop) if x.kind in ("vector", "unroll")), None)
    if nested is not None or outside is not None:
        other = nested or outside
        assert other is not None
        raise refuse(
            f"cannot run loop `{loop.var.name}` in parallel: loop `{other.var.name}` is {other.kind} already",
            func,
            (loop, "this loop"),
            (other, f"{other.kind} already"),
            help="fuse the two loops and make the result parallel" if nested else "",
        )
    _check_independent(func, loop, "run in parallel", own_workspace=True)
    _check_workspace(func, loop)
    _check_grain(func, loop, loop.annotations.get("grain") if grain is None else grain)
    annotations = dict(loop.annotations) if grain is None else {**loop.annotations, "grain": grain}
    result = _with_kind(func, loop, "parallel", annotations)
    if any(t.dtype.bits < 8 for t in _written(loop)):  # two threads must not write into the same byte
        try:
            check_memory(result[0])
        except Error as error:
            raise refuse(f"cannot run loop `{loop.var.name}` in parallel: {error.what}", func, (loop, "this loop")) from None
    return result


def _check_grain(func: Func, loop: For, grain: object) -> None:
    """Raise if `grain`, the iterations that a thread takes at a time, is neither None nor an integer from 1 on."""
    if grain is not None and not (type(grain) is int and 1 <= grain <= DIM_MAX):
        raise refuse(
            f"cannot hand out {grain!r} iterations of loop `{loop.var.name}` together",
            func,
            (loop, "this loop"),
            help="a grain is 1 or more",
        )


def _written(s: Stmt) -> list[Buffer]:
    """Return the buffers that stores and reductions in `s` write."""
    stores = [x.buffer for x in walk_stmts(s) if isinstance(x, Store)]
    return [*stores, *(t.buffer for x in walk_stmts(s) if isinstance(x, Reduce) for t in x.targets)]


@legal
def annotate(func: Func, at: For | Block, key: str, value: Any) -> tuple[Func, Forward]:
    """Attach an annotation to a loop or a block; the value None removes it.

    Raises a ScheduleError for a value other than numbers, texts and tuples of them.

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0

    -> `s.annotate("w", "hint", 1)`

        for i in range(n):
            with block("w", "S", i) as vi:
                annotate(hint=1)
                w[vi] = v[vi] * 2.0
    """
    what = f"cannot annotate {f'loop `{at.var.name}`' if isinstance(at, For) else f'block `{at.name}`'}"
    if not isinstance(key, str):
        raise refuse(f"{what}: the name of an annotation is a text, not {key!r}", func, (at, "here"))
    if not _is_literal(value):
        raise refuse(f"{what} with {key}={value!r}: an annotation is a number, a text, or a tuple of these", func, (at, "here"))
    if isinstance(at, For) and key == "grain":
        _check_grain(func, at, value)
    annotations = {k: v for k, v in at.annotations.items() if k != key} | ({} if value is None else {key: value})
    edit = Edit(func)
    new = at.with_(annotations=annotations)
    edit.replace(at, new)
    edit.move(at, new)
    return edit.done()


@legal
def unannotate(func: Func, at: For | Block, key: str) -> tuple[Func, Forward]:
    """Remove an annotation from a loop or a block.

    Raises a ScheduleError if there is none of this name.

        for i in range(n):
            with block("w", "S", i) as vi:
                annotate(hint=1, note=2)
                w[vi] = v[vi] * 2.0

    -> `s.unannotate("w", "hint")`

        for i in range(n):
            with block("w", "S", i) as vi:
                annotate(note=2)
                w[vi] = v[vi] * 2.0
    """
    if key not in at.annotations:
        shown = f"loop `{at.var.name}`" if isinstance(at, For) else f"block `{at.name}`"
        remarks = ", ".join(f"`{k}`" for k in at.annotations) or "none"
        raise refuse(f"cannot remove {key!r} from {shown}: there is no such annotation", func, (at, "here"), facts=[f"it has {remarks}"])
    return annotate(func, at, key, None)


@legal
def add_unit_loop(func: Func, at: For | Block) -> tuple[Func, Forward]:
    """Put a loop of one iteration around a loop or a block, so that later steps of a schedule find a loop there.

    Raises a ScheduleError inside of a vector loop.

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0

    -> `s.add_unit_loop("w")`

        for i, u in grid(n, 1):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0
    """
    lanes = next((x for x in loops_above(func, at) if x.kind == "vector"), None)
    if lanes is not None:
        shown = f"loop `{at.var.name}`" if isinstance(at, For) else f"block `{at.name}`"
        raise refuse(f"cannot put a loop around {shown}: it would be inside of vector loop `{lanes.var.name}`", func, (lanes, "vector"))
    edit = Edit(func)
    new = For(Var("u"), zero(), Const(1, i64), "serial", at, span=at.span)
    edit.replace(at, new)
    return edit.done(made=(new,))


def _is_literal(value: object) -> bool:
    """True if a value can be printed and parsed back in a program or trace: None, a finite number, a text, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))


def _with_kind(func: Func, loop: For, kind: str, annotations: dict[str, Any] | None = None) -> tuple[Func, Forward]:
    check_serial(func, loop, {"unroll": "unroll", "vector": "vectorize"}.get(kind, "run in parallel"))
    edit = Edit(func)
    new = loop.with_(kind=kind, annotations=dict(loop.annotations) if annotations is None else annotations)
    edit.replace(loop, new)
    edit.move(loop, new)
    return edit.done()


def _check_workspace(func: Func, loop: For) -> None:
    """Raise if the workspace that all iterations need together is not known before the loop."""
    own = [s.buffer for s in walk_stmts(loop.body) if isinstance(s, Alloc) and s.buffer.scope == "workspace"]
    known = {*func.symbols, *func.scalars}
    odd = next((v.name for b in own for e in (*b.shape, loop.extent) for v in free_vars(e) if v not in known), None)
    if odd is not None:
        raise refuse(
            f"cannot run loop `{loop.var.name}` in parallel: how much workspace its iterations need depends on `{odd}`",
            func,
            (loop, "here"),
        )


def _check_independent(func: Func, loop: For, verb: str, *, own_workspace: bool = False) -> None:
    """Raise a ScheduleError if iterations of the loop depend on each other; with `own_workspace`, each has its own workspace buffers."""
    conflict = dependence(func, loop, own_workspace=own_workspace)
    if conflict is not None:
        raise refuse(f"cannot {verb} loop `{loop.var.name}`: {conflict.reason}", func, (loop, "this loop"), (conflict.at, "here"))
