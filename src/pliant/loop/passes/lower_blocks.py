"""Lowers blocks to plain statements: iterators are replaced by their values, predicates become ifs, and inits move to where they run.

An init runs for each value of the spatial iterators, just before the outermost loop that feeds a reduction iterator; also when that
loop has no iterations:

    for i in range(n):                           for i in range(n):
        for k in range(m):                           c[i] = 0.0
            block(S i, R k):              ->         for k in range(m):
                init: c[i] = 0.0                         c[i] = c[i] + a[i, k]
                c[i] = c[i] + a[i, k]

Loops inside of that one that feed spatial iterators are repeated around the init. If the outermost loop feeds a spatial iterator too (or
the bounds of a repeated loop depend on a loop that is not repeated), the init stays in the block's instance, under the condition that
every reduction iterator is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from ...support.record import dataclass
from ...sym.conditions import all_of, conjuncts
from ...sym.expr import TRUE, Const, Eq, Expr, Not, Var, free_vars, substitute
from ..stmt import Block, For, Func, If, Let, Replacer, Stmt, map_children, seq


def lower_blocks(func: Func) -> Func:
    """Returns the function without blocks: iterators are replaced by their values, predicates and inits become plain statements."""
    return func.with_body(_lower(func.body, _Around()))


@dataclass(slots=True)
class _Around:
    """The context of a statement: loops and conditions around it, lets in scope, and inits that wait to be placed before a loop."""

    path: list[For | Expr] = field(default_factory=list)
    lets: dict[Var, Expr] = field(default_factory=dict)  # over loop variables only
    let_depth: dict[Var, int] = field(default_factory=dict)  # the length of the path where the let is
    waiting: dict[For, list[Stmt]] = field(default_factory=dict)


def _lower(s: Stmt, around: _Around) -> Stmt:
    """Returns the statement without blocks; inits that wait for one of its loops are put before that loop."""
    if isinstance(s, Block):
        return _lower_block(s, around)
    if isinstance(s, Let):
        around.lets[s.var] = substitute(s.value, around.lets)
        around.let_depth[s.var] = len(around.path)
    if isinstance(s, For):
        around.path.append(s)
        lowered = map_children(s, lambda x: _lower(x, around))
        around.path.pop()
        inits = around.waiting.pop(s, [])
        return seq(*inits, lowered) if inits else lowered
    if isinstance(s, If):
        then = _lower_under(s.cond, s.then, around)
        orelse = _lower_under(Not(s.cond), s.orelse, around) if s.orelse is not None else None
        return s if then is s.then and orelse is s.orelse else s.with_(then=then, orelse=orelse)
    return map_children(s, lambda x: _lower(x, around))


def _lower_under(condition: Expr, s: Stmt, around: _Around) -> Stmt:
    """Returns the statement without blocks, where a condition around it holds."""
    around.path.append(condition)
    lowered = _lower(s, around)
    around.path.pop()
    return lowered


def _lower_block(block: Block, around: _Around) -> Stmt:
    """Returns a block as plain statements; its init may instead be left in `around.waiting`, to be placed before an outer loop."""
    bind = Replacer({i.var: i.value for i in block.iters})
    predicate = bind.expr(block.predicate)
    # The iterators of a block hide the loops around it, so inits of inner blocks cannot move out of it.
    body = bind.stmt(_lower(block.body, _Around()))
    first = None if block.init is None else _place_init(block, bind.stmt(_lower(block.init, _Around())), bind, around)
    if first is None:
        return _under(predicate, body, block)
    begins = bind.expr(block.init_predicate)
    if begins is predicate:
        return _under(predicate, seq(first, body), block)
    return seq(_under(begins, first, block), _under(predicate, body, block))


def _under(condition: Expr, s: Stmt, block: Block) -> Stmt:
    """Returns an `if` around `s`, or `s` itself if the condition is true."""
    return s if condition is TRUE else If(condition, s, span=block.span)


def _place_init(block: Block, init: Stmt, bind: Replacer, around: _Around) -> Stmt | None:
    """Places the init before the first loop that feeds the reduction and returns None, or returns what the instance itself runs first.

    That is the init itself without such a loop, and the init under "all reduction iterators are 0" if the loops cannot be separated.
    """
    reducing = [i.value for i in block.iters if i.kind != "S"]
    feeds_reduction = _fed_by(reducing, around)
    feeds_space = _fed_by((i.value for i in block.iters if i.kind == "S"), around)
    at = next((n for n, p in enumerate(around.path) if isinstance(p, For) and p.var in feeds_reduction), None)
    if at is None:
        return init
    inside = around.path[at:]
    loops = [p for p in inside if isinstance(p, For)]
    hidden = {p.var for p in loops if p.var not in feeds_space}
    entangled = any(p.var not in hidden and not hidden.isdisjoint(_fed_by((p.start, p.stop), around)) for p in loops)
    if loops[0].var in feeds_space or entangled:
        return If(all_of(*(Eq(value, Const(0, value.dtype)) for value in reducing)), init, span=block.span)
    nest = init
    for c in reversed(conjuncts(block.init_predicate)):
        nest = _guarded(bind.expr(c), nest, hidden, around)
    fresh: dict[Var, Expr] = {}
    for p in reversed(inside):
        if not isinstance(p, For):
            nest = _guarded(p, nest, hidden, around)
        elif p.var not in hidden:
            new = Var(p.var.name, p.var.dtype)
            fresh[p.var] = new
            nest = p.with_(var=new, body=nest)
    # The init runs before the lets that are inside of the loop, so it uses their values instead.
    inner_lets = {v: substitute(value, fresh) for v, value in around.lets.items() if around.let_depth[v] > at}
    around.waiting.setdefault(loops[0], []).append(Replacer({**inner_lets, **fresh}).stmt(nest))
    return None


def _guarded(condition: Expr, s: Stmt, hidden: set[Var], around: _Around) -> Stmt:
    """`s` under the condition, unless the condition depends on loops that are not around `s`."""
    return s if condition is TRUE or not hidden.isdisjoint(_vars(condition, around)) else If(condition, s)


def _fed_by(values: Iterable[Expr], around: _Around) -> set[Var]:
    """Returns the loop variables that the values depend on, directly or through lets."""
    return {v for value in values for v in _vars(value, around)}


def _vars(e: Expr, around: _Around) -> frozenset[Var]:
    """Returns the variables that an expression depends on, after lets are substituted."""
    return free_vars(substitute(e, around.lets))
