"""Turns several sibling blocks into one block: the part of `blockize` that takes more than one block."""

from __future__ import annotations

from ...loop.analysis.nests import accesses, block_around, block_names, blocks, fed_by, index, loops_above, path_to
from ...loop.stmt import Alloc, Block, For, Func, If, Iter, IterKind, Let, Seq, Stmt, seq, walk_stmts
from ...sym.expr import Expr, Var
from ..cursor import Edit, Forward, Mover, fresh_name
from ..dependence import bare_statement, contains_stmt, dependence
from ..errors import refuse


def blockize_group(func: Func, at: tuple[For | Block, ...], what: str) -> tuple[Func, Forward]:
    """Make one block of the sibling statements that contain the given loops and blocks; its iterators are the loops around them.

    An iterator is S if the iterations of its loop are independent, else O, and so are all iterators inside it. Raises a ScheduleError for a
    reduction whose init runs before one of the loops outside: the init would run in every instance.
    """
    first = at[0]
    nested = block_around(func, first)
    if nested is not None:
        raise refuse(f"{what}: it is inside of block `{nested.name}`", func, (first, "here"), (nested, "this block"))
    scope, parts = _siblings(func, at, what)
    inside = [b for s in parts for b in blocks(s)]
    _check_parts(func, at, parts, inside, what)
    loops = loops_above(func, parts[0])
    kinds = _kinds(func, loops)
    iters = tuple(Iter(Var(f"v{x.var.name}"), kind, x.var) for x, kind in zip(loops, kinds, strict=True))
    edit = Edit(func)
    values: dict[Var, Expr] = {x.var: i.var for x, i in zip(loops, iters, strict=True)}
    body = seq(*(Mover(edit.moved, values).stmt(s) for s in parts))
    outer = Block(fresh_name(f"{inside[0].name}_o", block_names(func)), iters, body, span=inside[0].span)
    if isinstance(scope, Seq) and scope is not parts[0]:
        begin = scope.body.index(parts[0])
        new = Seq((*scope.body[:begin], outer, *scope.body[begin + len(parts) :]))
        edit.replace(scope, new if len(new.body) > 1 else outer)
        for s in (*scope.body[:begin], *scope.body[begin + len(parts) :]):
            edit.move(s, s)
    else:
        edit.replace(parts[0], outer)
    return edit.done(made=(outer,))


def _siblings(func: Func, at: tuple[For | Block, ...], what: str) -> tuple[Stmt, tuple[Stmt, ...]]:
    """Return the sequence that contains all of them, and its statements from the first to the last of them; raise if one is around another.

    A single statement that is in no sequence is returned as both.
    """
    paths = [[*path_to(func, x), x] for x in at]
    depth = 0
    while all(len(p) > depth + 1 for p in paths) and len({p[depth + 1] for p in paths}) == 1:
        depth += 1
    scope = paths[0][depth]
    if not isinstance(scope, Seq) or any(len(p) <= depth + 1 for p in paths):
        if len(at) == 1:
            return at[0], (at[0],)
        raise refuse(f"{what}: one of them is around another", func, *((x, "") for x in at))
    places = sorted(scope.body.index(p[depth + 1]) for p in paths)
    return scope, scope.body[places[0] : places[-1] + 1]


def _check_parts(func: Func, at: tuple[For | Block, ...], parts: tuple[Stmt, ...], inside: list[Block], what: str) -> None:
    """Raise unless there are only loops and the named blocks, no init runs before an outer loop, and no other block uses their memory."""
    bare = next((x for s in parts if (x := bare_statement(s)) is not None), None)
    if bare is not None:
        raise refuse(f"{what}: there is a statement outside of blocks in it", func, (bare, "here"), (at[0], ""))
    other = next((b for b in inside if not any(contains_stmt(x, b) for x in at)), None)
    if other is not None:
        raise refuse(f"{what}: block `{other.name}` stands in the same loops, and is not one of them", func, (other, "this block"))
    odd = next((x for s in parts for x in walk_stmts(s) if isinstance(x, (If, Let))), None)
    if odd is not None:
        raise refuse(f"{what}: there is more than loops and blocks in it", func, (at[0], ""))
    shared = next((x for s in parts for x in walk_stmts(s) if isinstance(x, For) and x.kind == "parallel"), None)
    if shared is not None:
        raise refuse(f"{what}: loop `{shared.var.name}` is parallel", func, (shared, "parallel"))
    own = {x.buffer for s in parts for x in walk_stmts(s) if isinstance(x, Alloc)}
    others = (b for b in index(func.body).all_blocks if not any(contains_stmt(s, b) for s in parts))
    user = next((b for b in others if own & {a.buffer for a in accesses(b)}), None)
    if user is not None:
        raise refuse(f"{what}: block `{user.name}` uses memory that is allocated in it", func, (user, "this block"))
    outside = loops_above(func, parts[0])
    for b in inside:
        late = next((x for x in outside if fed_by(b, x) - {"S"}), None)
        if b.init is not None and late is not None:
            raise refuse(
                f"{what}: the init of block `{b.name}` runs before loop `{late.var.name}`",
                func,
                (late, "feeds a reduction iterator"),
                help="decompose_reduction takes the init out",
            )


def _kinds(func: Func, loops: list[For]) -> list[IterKind]:
    """Return S for outer loops with independent iterations, and O from the first dependent loop on.

    Dependences of an inner loop are tested within one iteration of the outer ones, so its independence does not hold across them.
    """
    kinds: list[IterKind] = []
    for x in loops:
        kinds.append("S" if "O" not in kinds and dependence(func, x) is None else "O")
    return kinds
