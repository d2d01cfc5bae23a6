"""Dependence analysis: may the iterations of a loop run in another order, or in parallel?

They may if no iteration writes an element that another iteration touches. Buffers allocated inside the loop are private to each iteration.
Instances of one block at different S points are independent by definition. So it remains to show that different iterations are different
S points, and that accesses of two blocks to one buffer stay within elements that each iteration owns:

    a[v * 6 + i], a[v * 6 + j] with i, j in 0..6     iteration v owns the elements v*6 .. v*6 + 5
    b[v // n, v % n]                                 together the two indices are v
    b[v // n * 6 + i, v % n] with i in 0..6          as are their digits
"""

from __future__ import annotations

from ..dtype import i64
from ..loop.analysis.nests import Access, accesses, at_most_once, blocks, bound_inside, facts_at, fed_by, index, loop_facts, loops_above
from ..loop.buffer import Buffer
from ..loop.stmt import Alloc, Block, Call, Check, For, Func, Reduce, Stmt, Store, While, children, walk_stmts
from ..support.record import dataclass
from ..sym.expr import Const, Expr, FloorDiv, FloorMod, Var, free_vars, product, substitute
from ..sym.facts import Facts
from ..sym.poly import Poly, add, poly_of, to_expr
from ..sym.prove import prove, prove_equal
from ..sym.simplify import simplify


@dataclass(frozen=True, slots=True)
class Conflict:
    """A record of a dependence between iterations: the reason as text, and the statement that shows it."""

    at: Stmt
    reason: str


def bare_statement(s: Stmt) -> Stmt | None:
    """Return the first statement that computes something outside of any block; None if there is none."""
    if isinstance(s, Block):
        return None
    if isinstance(s, (Store, Reduce, Call, Check, While)):
        return s
    return next((x for child in children(s) if (x := bare_statement(child)) is not None), None)


def dependence(func: Func, loop: For, *, own_workspace: bool = False) -> Conflict | None:
    """Return what forbids running the iterations of `loop` in any order; None if nothing does.

    Buffers allocated inside are private to each iteration. Workspace buffers are private only with `own_workspace`: iterations of parallel
    loops get workspace of their own, vector lanes do not.
    """
    bare = bare_statement(loop.body)
    if bare is not None:
        return Conflict(bare, "a statement outside of any block: nothing is known about what it depends on")
    if at_most_once(func, loop):
        return None
    inside = blocks(loop.body)
    for b in inside:
        fed = fed_by(b, loop)
        if "O" in fed:
            return Conflict(b, f"`{loop.var.name}` feeds an ordered iterator of block `{b.name}`")
        if "R" in fed:
            return Conflict(b, f"`{loop.var.name}` feeds a reduction iterator of block `{b.name}`")
    return _conflict(func, loop, inside, own_workspace)


def cross_dependence(func: Func, loop: For) -> Conflict | None:
    """Return what forbids reordering iterations of different blocks under `loop`; None if nothing does, as for a single block."""
    bare = bare_statement(loop.body)
    if bare is not None:
        return Conflict(bare, "a statement outside of any block: nothing is known about what it depends on")
    inside = blocks(loop.body)
    return _conflict(func, loop, inside) if len(inside) > 1 else None


def backward_dependence(func: Func, loop: For, first: list[Block], second: list[Block]) -> Conflict | None:
    """Return what forbids fusing all of `first`, then all of `second`, into iterations of `loop` that run both; None if nothing does."""
    if index(func.body).has_views:
        return Conflict(loop, "buffers may overlap: the program makes views")
    for b in first:
        for other in second:
            for w, a in _pairs(list(accesses(b)), list(accesses(other))):
                if not _separate(func, loop, w, a, later=True):
                    reason = f"block `{other.name}` touches elements of `{w.buffer.name}` that block `{b.name}` touches in later iterations"
                    return Conflict(other, reason)
    return None


def written_later(func: Func, loop: For, writer: Block, read: Access) -> bool:
    """True if `writer` may write, in later iterations of a loop around both, what `read` reads in this one."""
    return any(a.write and a.buffer is read.buffer and not _separate(func, loop, a, read, later=True) for a in accesses(writer))


def _conflict(func: Func, loop: For, inside: list[Block], own_workspace: bool = False) -> Conflict | None:
    if at_most_once(func, loop):
        return None
    scopes = ("stack", "register", "workspace") if own_workspace else ("stack", "register")
    private = {s.buffer for s in walk_stmts(loop.body) if isinstance(s, Alloc) and s.buffer.scope in scopes}
    if index(func.body).has_views:
        return Conflict(loop, "buffers may overlap: the program makes views")
    touched = [(b, [a for a in accesses(b) if a.buffer not in private]) for b in inside]
    for n, (b, own) in enumerate(touched):
        writes = _unique(a for a in own if a.write)
        if writes and fed_by(b, loop) != {"R"} and not _own_points(func, loop, b):
            for w in writes:
                for a in _unique(x for x in own if x.buffer is w.buffer):
                    if not _separate(func, loop, w, a):
                        return Conflict(b, f"different iterations of `{loop.var.name}` write the same elements of `{w.buffer.name}`")
        for other, theirs in touched[n + 1 :]:
            for w, a in _pairs(own, theirs):
                if not _separate(func, loop, w, a):
                    reason = f"block `{other.name}` touches elements of `{w.buffer.name}` that block `{b.name}` touches in other iterations"
                    return Conflict(other, reason)
    return None


def _unique(found: object) -> list[Access]:
    seen: dict[tuple[Buffer, tuple[Expr, ...], bool], Access] = {}
    for a in found:  # type: ignore[attr-defined]
        seen.setdefault((a.buffer, a.indices, a.write), a)
    return list(seen.values())


def _pairs(first: list[Access], second: list[Access]) -> list[tuple[Access, Access]]:
    return [(a, b) for a in _unique(first) for b in _unique(second) if a.buffer is b.buffer and (a.write or b.write)]


def _own_points(func: Func, loop: For, b: Block) -> bool:
    """True if different iterations of the loop are different points of the block's S iterators."""
    values = tuple(i.value for i in b.iters if i.kind == "S" and loop.var in free_vars(i.value))
    return bool(values) and separated(func, loop, b, values, b, values)


def _separate(func: Func, loop: For, w: Access, a: Access, later: bool = False) -> bool:
    if len(w.indices) != len(a.indices):
        return False  # a call touches the whole buffer
    return separated(func, loop, w.block, w.over_loops(), a.block, a.over_loops(), later)


def separated(func: Func, loop: For, b1: Block, first: tuple[Expr, ...], b2: Block, second: tuple[Expr, ...], later: bool = False) -> bool:
    """True if the elements `first` and `second` differ whenever they belong to different iterations of the loop.

    With `later`, only iterations of `first` after that of `second` count.
    """
    facts, renamed = _two_instances(func, loop, b1, b2)
    one = [simplify(e, facts) for e in first]
    two = [simplify(substitute(e, renamed), facts) for e in second]
    for p, q in (one, two), _leading_digits(one, two, loop.var, facts):
        if any(_owned(a, b, loop.var, facts, later) for a, b in _aligned(_joined(p, facts), _joined(q, facts))):
            return True
    return False


def _leading_digits(one: list[Expr], two: list[Expr], v: Var, facts: Facts) -> tuple[list[Expr], list[Expr]]:
    """Return the leading digits `d` of pairs of indices `d * c + rest` with rests in 0..c; they differ only if the indices do."""
    digits = [(_leading_digit(a, v, facts), _leading_digit(b, v, facts)) for a, b in zip(one, two, strict=True)]
    same = [x is not None and y is not None and x[1] == y[1] for x, y in digits]
    return (
        [x[0] if x is not None and ok else a for a, (x, _), ok in zip(one, digits, same, strict=True)],
        [y[0] if y is not None and ok else b for b, (_, y), ok in zip(two, digits, same, strict=True)],
    )


def _leading_digit(e: Expr, v: Var, facts: Facts) -> tuple[Expr, int] | None:
    """Return the leading digit of an index that contains `v`, and its weight; None if the index has no such form."""
    terms = poly_of(e)
    own = [(m, c) for m, c in terms.items() if any(v in free_vars(a) for a in m)]
    if len(own) != 1 or len(own[0][0]) != 1 or not isinstance(own[0][0][0], FloorDiv | FloorMod) or own[0][1] <= 1:
        return None
    (digit,), c = own[0]
    rest = to_expr({m: k for m, k in terms.items() if m is not own[0][0]}, i64)
    return (digit, int(c)) if prove(Const(0, i64) <= rest, facts) and prove(rest < c, facts) else None


def _two_instances(func: Func, loop: For, b1: Block, b2: Block) -> tuple[Facts, dict[Var, Expr]]:
    """Return facts about one instance of each block; loops around the second one inside `loop` get variables of their own."""
    facts = loop_facts(facts_at(func, loop), loop)
    renamed: dict[Var, Expr] = {}
    for block, rename in ((b1, False), (b2, True)):
        for v in bound_inside(block) if rename else ():
            renamed[v] = Var(v.name, v.dtype)
        for x in (*loops_above(func, block), *(s for s in walk_stmts(block) if isinstance(s, For))):
            if x is loop or not contains_stmt(loop, x):
                continue
            var = renamed.setdefault(x.var, Var(x.var.name, x.var.dtype)) if rename else x.var
            values = {i.var: i.value for i in block.iters}
            start, stop = (substitute(substitute(e, values), renamed) if rename else substitute(e, values) for e in (x.start, x.stop))
            facts = facts.with_range(var, start, stop - 1)
        # An init runs even where conditions on reduction iterators are false, so only the other conditions may be assumed.
        condition = block.predicate if block.init is None else block.init_predicate
        facts = facts.with_condition(substitute(substitute(condition, {i.var: i.value for i in block.iters}), renamed))
    return facts, renamed


def contains_stmt(outer: Stmt, inner: Stmt) -> bool:
    """True if `inner` is `outer` or inside it."""
    return any(x is inner for x in walk_stmts(outer))


Index = tuple[tuple[int, ...], Expr]  # the dimensions it combines, and its value


def _aligned(one: list[Index], two: list[Index]) -> list[tuple[Expr, Expr]]:
    of = dict(two)
    return [(e, of[dims]) for dims, e in one if dims in of]


def _joined(indices: list[Expr], facts: Facts) -> list[Index]:
    """Return the indices, and the numbers that several of them are the digits of, also if these are digits in turn."""
    joined: list[Index] = [((n,), e) for n, e in enumerate(indices)]
    seen: set[tuple[int, ...]] = set()
    while new := [i for i in _wholes(joined, facts) if i[0] not in seen]:
        seen.update(dims for dims, _ in new)
        joined += new
    return joined


def _wholes(known: list[Index], facts: Facts) -> list[Index]:
    """Return the expressions x of which several known indices are all the digits, `x // place % base`, as in i // 4 and i % 4."""
    digits: dict[Expr, list[tuple[tuple[int, ...], Expr, Expr | None]]] = {}
    for dims, e in known:
        for x, unit, base in _digit(e):
            digits.setdefault(x, []).append((dims, unit, base))
    wholes: list[Index] = []
    for x, parts in digits.items():
        parts.sort(key=lambda p: p[2] is not None)  # leading digits (without a base) first: they complete a number
        used: set[int] = set()
        place: Expr = Const(1, i64)
        while True:
            part = next((p for p in parts if used.isdisjoint(p[0]) and prove_equal(p[1], place, facts)), None)
            if part is None:
                break
            used.update(part[0])
            if part[2] is None:
                wholes.append((tuple(sorted(used)), x))
                break
            place = simplify(product((place, part[2])), facts)
    return wholes


def _digit(e: Expr) -> list[tuple[Expr, Expr, Expr | None]]:
    """Return all triples (x, place, base) with e = `x // place % base`; the base is None for a leading digit `x // place`."""
    one: Expr = Const(1, i64)
    if isinstance(e, FloorMod):
        x, base = e.args
        inner = [(x.args[0], x.args[1], base)] if isinstance(x, FloorDiv) else []
        return [(x, one, base), *inner]
    if isinstance(e, FloorDiv):
        return [(e.args[0], e.args[1], None)]
    return []


def _owned(p: Expr, q: Expr, v: Var, facts: Facts, later: bool) -> bool:
    """True if p(v) and q(v') differ for v != v' (or v > v' if `later`): both are c*v + rest, and the rests differ by less than c."""
    one, two = linear(p, v), linear(q, v)
    if one is None or two is None or one[0] != two[0] or not one[0]:
        return False
    c = to_expr(one[0], i64)
    difference = add(one[1], two[1], -1)
    d = to_expr(difference, i64)
    return prove(Const(0, i64) < c, facts) and (later or prove(d < c, facts)) and prove(Const(0, i64) - c < d, facts)


def linear(e: Expr, v: Var) -> tuple[Poly, Poly] | None:
    """Return `e` as c*v + rest with neither containing v; None if it is not linear in v."""
    c: Poly = {}
    rest: Poly = {}
    for m, k in poly_of(e).items():
        count = m.count(v)
        others = tuple(a for a in m if a is not v)
        if count > 1 or any(v in free_vars(a) for a in others):
            return None
        if count:
            c[others] = k
        else:
            rest[m] = k
    return c, rest
