"""blockize: turns a loop with everything in it into one block, whose iterators are the loops outside.

The inner block keeps its iterators and its name. An instruction can replace the outer block (`tensorize`), and it can be moved and
reordered as one unit.
"""

from __future__ import annotations

from ...dtype import i64
from ...loop.analysis.nests import block_names, blocks, bound_value, constant_extent, facts_at, fed_by, loop_facts, loops_above, loops_in
from ...loop.stmt import Block, For, Func, Iter, Replacer, Seq, Stmt, seq
from ...support.record import dataclass
from ...sym.bounds import int_range
from ...sym.expr import Const, Expr, Var, free_vars
from ...sym.facts import Facts
from ...sym.poly import Poly, poly_of, to_expr
from ...sym.prove import prove_equal
from ...sym.simplify import simplify
from ..cursor import Edit, Forward, fresh_name
from ..dependence import bare_statement
from ..errors import refuse
from ..invariants import legal
from .blockize_group import blockize_group


@dataclass(frozen=True, slots=True)
class Halves:
    """A record that splits an iterator's value into outer * size + inner: the number of the tile, and the position inside it."""

    outer: Expr | None
    size: Expr
    inner: Expr


@legal
def blockize(func: Func, *at: For | Block) -> tuple[Func, Forward]:
    """Make one block `…_o` of a loop with everything inside; its iterators say which tile of the old block's iterators it is.

    If the loop contains one block, its iterators are split into tiles: the part that outer loops feed, in steps of the part that inner
    loops feed. An init becomes loops of its own in the init of the new block. Several blocks (in a loop, or named: `s.blockize("t", "u")`),
    with the loops around them alone, become one block whose iterators are the loops around them: S if their iterations are independent,
    else O. Raises a ScheduleError if a block would not cover whole tiles.

        for i, j_0, k in grid(n, 4, 8):
            for j_1 in range(4):
                with block("c", "SSR", i, j_0 * 4 + j_1, k) as (vi, vj, vk):
                    with init():
                        c[vi, vj] = 0.0
                    c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.blockize(j_1)`

        for i, j_0, k in grid(n, 4, 8):
            with block("c_o", "SSR", i, j_0, k) as (vi_o, vj_o, vk_o):
                with init():
                    for j_1 in range(4):
                        with block("c_init", "SS", vi_o, vj_o * 4 + j_1) as (vi, vj):
                            c[vi, vj] = 0.0
                for j_1 in range(4):
                    with block("c", "SSR", vi_o, vj_o * 4 + j_1, vk_o) as (vi, vj, vk):
                        c[vi, vj] += a[vi, vk] * b[vk, vj]
    """
    if not at or len(set(at)) != len(at):
        raise refuse("cannot make a block: name a loop, or blocks, each once", func, *((x, "") for x in dict.fromkeys(at)))
    what = f"cannot make a block of {', '.join(f'loop `{x.var.name}`' if isinstance(x, For) else f'block `{x.name}`' for x in at)}"
    loop, inside = at[0], blocks(at[0])
    if len(at) > 1 or isinstance(loop, Block) or len(inside) > 1:
        return blockize_group(func, at, what)
    bare = bare_statement(loop)
    if not inside or bare is not None:
        reason = "there is a statement outside of blocks in it" if bare is not None else "there is no block in it"
        raise refuse(f"{what}: {reason}", func, (loop, "this loop"))
    block = inside[0]
    inner = loops_in(loop)
    _check_chain(func, loop, inner, block, what)
    halves = {i.var: _halves(func, loop, inner, block, i, what) for i in block.iters}
    outer_iters: list[Iter] = []
    values: dict[Var, Expr] = {}
    for i in block.iters:
        h = halves[i.var]
        value = h.inner
        if h.outer is not None:
            v = Var(f"{i.var.name}_o")
            outer_iters.append(Iter(v, i.kind, h.outer))
            value = v * h.size + h.inner if not _is(h.size, 1) else v + h.inner if not _is(h.inner, 0) else v
        values[i.var] = value
    edit = Edit(func)
    new = block.with_(iters=tuple(Iter(i.var, i.kind, values[i.var]) for i in block.iters), init=None, reads=None, writes=None)
    names = block_names(func)
    begun = any(i.kind != "S" for i in outer_iters)
    if not begun:
        new = new.with_(init=block.init)
    init = _init_nest(block, inner, values, names) if begun and block.init is not None else None
    body: Stmt = new
    for x in reversed(inner):
        body = x.with_(body=body)
        edit.move(x, body)
    outer = Block(fresh_name(f"{block.name}_o", names), tuple(outer_iters), body, init, span=block.span)
    edit.move(block, new)
    edit.replace(loop, outer)
    return edit.done(made=(outer,))


def _check_chain(func: Func, loop: For, inner: list[For], block: Block, what: str) -> None:
    """Raise unless the loops are one perfect nest down to the block, none parallel, with ranges from 0 that no outer loop changes."""
    outside = {x.var for x in loops_above(func, loop)}
    for x, below in zip(inner, [*inner[1:], block], strict=True):
        body = x.body.body[0] if isinstance(x.body, Seq) and len(x.body.body) == 1 else x.body
        if body is not below:
            raise refuse(f"{what}: the loops in it are not one nest", func, (x, "more than one statement inside"))
        if (free_vars(x.start) | free_vars(x.stop)) & outside or not _is(x.start, 0):
            raise refuse(f"{what}: the range of loop `{x.var.name}` is not from 0 to a fixed end", func, (x, f"{x.start}..{x.stop}"))
        if x.kind == "parallel":
            raise refuse(f"{what}: loop `{x.var.name}` is parallel", func, (x, "parallel"))


def _is(e: Expr, number: int) -> bool:
    return isinstance(e, Const) and e.value == number


def _halves(func: Func, loop: For, inner: list[For], block: Block, it: Iter, what: str) -> Halves:
    """Return the tile and the position inside it of an iterator's value; raise if it has no such form."""
    facts = facts_at(func, loop)
    for x in inner:
        facts = loop_facts(facts, x)
    own = {x.var for x in inner}
    near: Poly = {}
    far: Poly = {}
    for m, c in poly_of(bound_value(it.value, facts)).items():
        vars_ = {v for a in m for v in free_vars(a)}
        if vars_ & own and vars_ - own - set(func.symbols):
            raise refuse(f"{what}: in `{it.var.name}` = {it.value} loops inside and outside are mixed", func, (block, f"= {it.value}"))
        (near if vars_ & own else far)[m] = c
    place = to_expr(near, i64)
    extents = [constant_extent(func, x) for x in inner if x.var in free_vars(place)]
    low, high = int_range(place, facts)
    size: Expr = Const(high + 1, i64)
    if any(e is None for e in extents) or low != 0:
        whole = next((x for x in inner if place is x.var), None)
        if whole is None:
            raise refuse(f"{what}: the part of `{it.var.name}` inside has no constant size", func, (block, f"{it.var.name} = {it.value}"))
        size = whole.stop
    tile = bound_value(to_expr(far, i64), facts)
    if _is(tile, 0) and near:
        return Halves(None, size, place)
    if not near:
        return Halves(tile, Const(1, i64), Const(0, i64))
    if not prove_equal(tile % size, Const(0, i64), facts):
        raise refuse(
            f"{what}: `{it.var.name}` = {it.value} does not go on in steps of {size}, which is what the loops inside run through",
            func,
            (block, f"{it.var.name} = {it.value}"),
            help="split the loops so that the inner parts are whole tiles",
        )
    return Halves(_quotient(tile, size, facts), size, place)


def _quotient(tile: Expr, size: Expr, facts: Facts) -> Expr:
    """Return `tile / size`, which has no remainder; term by term if possible, so that loops of one iteration stay visible."""
    terms = poly_of(tile)
    if isinstance(size, Const) and all(c % size.value == 0 for c in terms.values()):
        return to_expr({m: int(c // size.value) for m, c in terms.items()}, i64)
    return simplify(tile // size, facts)


def _init_nest(block: Block, inner: list[For], values: dict[Var, Expr], names: set[str]) -> Stmt:
    """Return the init of a reduction as a block of its own, in copies of those inner loops that feed S (spatial) iterators."""
    loops = [x for x in inner if fed_by(block, x) & {"S"}]
    fresh: dict[Var, Expr] = {x.var: Var(x.var.name) for x in loops}
    spatial = [i for i in block.iters if i.kind == "S"]
    own: dict[Var, Expr] = {i.var: Var(i.var.name) for i in spatial}
    replacer = Replacer({**fresh})
    iters = tuple(Iter(_var(own[i.var]), "S", replacer.expr(values[i.var])) for i in spatial)
    rename = Replacer(own)
    assert block.init is not None
    predicate = rename.expr(block.init_predicate)
    nest: Stmt = Block(fresh_name(f"{block.name}_init", names), iters, rename.stmt(block.init), predicate=predicate)
    for x in reversed(loops):
        nest = For(_var(fresh[x.var]), x.start, x.stop, x.kind, nest, x.annotations)
    return seq(nest)


def _var(e: Expr) -> Var:
    assert isinstance(e, Var)
    return e
