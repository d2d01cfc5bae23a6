"""Expands reductions into loads, an operation and stores.

    c[i] += a[i]                                     ->      c[i] = c[i] + a[i]
    best[0], at[0] = combine(best[0], at[0], x, i)   ->      l0 = best[0]; l1 = at[0]; r0 = x; r1 = i
                                                             best_new = ...; at_new = ...
                                                             best[0] = best_new; at[0] = at_new

All operands are read and combined before any target is written. Vector loops must be serial before (`serial_loops`), because several
lanes may reduce into one target. Loops that a tensor instruction performs are left alone.
"""

from __future__ import annotations

from ...sym import expr as E
from ...sym.expr import Expr, Var, substitute
from ..stmt import Func, Let, Reduce, Seq, Stmt, Store, is_instruction, map_children

_NAMED: dict[str, type[E.Binary]] = {"add": E.Add, "mul": E.Mul, "min": E.Min, "max": E.Max, "and": E.And, "or": E.Or}


def plain_reductions(func: Func) -> Func:
    """Returns the function with its reductions expanded into loads, operations and stores, except inside of tensor instructions."""
    return func.with_body(_plain(func.body))


def _plain(s: Stmt) -> Stmt:
    """Returns the statement with its reductions expanded into loads, operations and stores."""
    if is_instruction(s):
        return s
    return as_stores(s) if isinstance(s, Reduce) else map_children(s, _plain)


def as_stores(s: Reduce) -> Stmt:
    """Returns the statements of a reduction: a store of one operation, or for a lambda, lets of its operands and results, then stores."""
    c = s.combiner
    if not c.result:
        (target,) = s.targets
        value: Expr = E.Fma(s.values[0], s.values[1], target) if c.name == "fma" else _NAMED[c.name](target, s.values[0])
        return Store(target.buffer, target.indices, value, s.span)
    operands = [Let(Var(v.name, v.dtype), e, s.span) for v, e in zip((*c.left, *c.right), (*s.targets, *s.values), strict=True)]
    names: dict[Var, Expr] = {v: x.var for v, x in zip((*c.left, *c.right), operands, strict=True)}
    results = [Let(Var(v.name, v.dtype), substitute(e, names), s.span) for v, e in zip(c.left, c.result, strict=True)]
    stores = [Store(t.buffer, t.indices, r.var, s.span) for t, r in zip(s.targets, results, strict=True)]
    return Seq((*operands, *results, *stores))
