"""Canonicalization of expressions: `simplify(e, facts)` returns the same value in one canonical, usually shorter form.

Integers become sums of products (`poly`), with floor divisions and remainders simplified (`divmod`), and comparisons decided or put into
one form (`compare`); the rest is the rule table (`rules`). The result has the value of `e` for all values of the variables that the facts
allow, wraparound included; a load may disappear but none appears. It is deterministic (terms are sorted by name and structure) and
idempotent, and is memoized in the facts.

    >>> i, j = Var("i"), Var("j"); f = Facts().with_range(i, 0, 9).with_range(j, 0, 3)
    >>> simplify((i * 4 + j) // 4 + (i * 4 + j) % 4, f)
    i + j
"""

from __future__ import annotations

from collections.abc import Callable

from ..dtype import DType, bf16, bool_
from . import expr as E
from .bounds import DEEP, int_range
from .compare import equal, extreme, less, unequal
from .divmod import floordiv, floormod, merge
from .expr import FALSE, TRUE, Const, Expr, Var, free_vars
from .facts import EMPTY, Facts
from .function_names import PRIMITIVE_FUNCTIONS
from .poly import RING, Poly, poly_of, reduce_coefficients, replace, to_expr
from .rules import BY_HEAD
from .walk import depth, walk

GUARDED = 12  # a deeper arm is simplified without its condition, because nested conditions cost the square of the depth
ROUNDS = 8  # rewriting ends long before this; the limit only catches rules that loop


def simplify(e: Expr, facts: Facts = EMPTY) -> Expr:
    """Returns `e` in canonical form, of equal value wherever the facts hold."""
    cache = facts.cache("simplify")
    result: Expr | None = cache.get(e)
    if result is None:
        if depth(e) > DEEP:
            for node in walk(e):
                if node not in cache and not (type(node) in RING and node.dtype.is_int):
                    _to_the_end(node, facts)
        result = _to_the_end(e, facts)
    return result


def _to_the_end(e: Expr, facts: Facts) -> Expr:
    """Rewrites `e` until nothing changes; returns the result and memoizes it."""
    result, previous = e, None
    for _ in range(ROUNDS):
        if result is previous:
            break
        result, previous = _visit(result, facts), result
    cache = facts.cache("simplify")
    cache.put(e, result)
    cache.put(result, result)
    return result


def _visit(e: Expr, facts: Facts) -> Expr:
    """Makes one round of rewriting: simplifies the operands, then the node."""
    if type(e) is Const:
        return e
    if isinstance(e, Var):
        return _replaced(e, facts)
    if type(e) in RING and e.dtype.is_int:
        return _replaced(_ring(e, facts), facts)
    if isinstance(e, (E.Select, E.And, E.Or)):
        args = _guarded(e, facts)
    else:
        args = tuple(simplify(a, facts) for a in e.args)
    result = _implied(args, type(e), facts) if isinstance(e, (E.And, E.Or)) else None
    if result is None:
        result = _local(e.with_args(args), facts)
    return _replaced(result, facts)


def _implied(args: tuple[Expr, ...], kind: type[Expr], facts: Facts) -> Expr | None:
    """`a and b` is b if b implies a; `a or b` is b if a implies b. Not if b loads from memory, because a may guard the load.

    Returns None if that is not proven.
    """
    a, b = args
    if isinstance(a, Const) or isinstance(b, Const) or free_vars(a).isdisjoint(free_vars(b)) or not _pure(b):
        return None
    first, second = (b, a) if kind is E.And else (a, b)
    return b if simplify(second, facts.with_condition(first)) is TRUE else None


def _pure(e: Expr) -> bool:
    """True if `e` does not read memory: all of its nodes are from the grammar of sym/expr.py."""
    return all(type(node).__module__ == E.__name__ for node in walk(e))


def _replaced(e: Expr, facts: Facts) -> Expr:
    """Returns the value that the facts know for `e`, or `e` itself."""
    instead = facts.equal.get(e)
    if instead is not None:
        return simplify(instead, facts)
    if e.dtype is bool_ and e in facts.known:
        return TRUE if facts.known[e] else FALSE
    if e.dtype.is_int and type(e) is not Const:
        lo, hi = int_range(e, facts)
        if lo == hi:
            return Const(lo, e.dtype)
    return e


def _guarded(e: Expr, facts: Facts) -> tuple[Expr, ...]:
    """The operands of a select, `and` or `or`; those evaluated only under the first are simplified under it, unless they are deep."""
    first = simplify(e.args[0], facts)
    if isinstance(first, Const):
        return (first, *(simplify(a, facts) for a in e.args[1:]))
    rest: list[Expr] = []
    for i, a in enumerate(e.args[1:]):
        positive = isinstance(e, E.And) or (isinstance(e, E.Select) and i == 0)
        if not a.args or depth(a) > GUARDED or free_vars(a).isdisjoint(free_vars(first)):
            rest.append(simplify(a, facts))
        else:
            rest.append(simplify(a, facts.with_condition(first if positive else E.Not(first))))
    return (first, *rest)


def _local(e: Expr, facts: Facts) -> Expr:
    """Simplifies one node whose operands are simplified already: constant folding, rewrite rules, arithmetic."""
    if e.args and all(type(a) is Const for a in e.args):
        folded = fold(e)
        if folded is not None:
            return folded
    for rule in BY_HEAD.get(type(e), ()):
        changed = rule.apply(e, facts)
        if changed is not None:
            return simplify(changed, facts) if changed.args else changed
    if (e.args and e.args[0].dtype.is_int) or e.dtype.is_int:
        step = _INTEGER.get(type(e))
        if step is not None:
            return step(e, facts)
    return e


def fold(e: Expr) -> Expr | None:
    """The literal value of a node over literals; None if it is not folded at compile time."""
    kind = type(e)
    if kind in E._FOLD and e.args[0].dtype.is_int:
        value = E._FOLD[kind](e.args[0].payload, e.args[1].payload)
        return Const(value, e.dtype)
    known = kind in BY_HEAD or kind in (E.Cast, E.Bitcast, E.Call, E.Fma, E.MulAdd, E.Neg, E.BitNot, E.Div, E.Eq, E.Ne, E.Le)
    if not known or bf16 in (e.dtype, e.args[0].dtype) or (kind is E.Call and e.payload not in PRIMITIVE_FUNCTIONS):
        return None
    from .semantics import apply, const_value, literal

    value = apply(e, [const_value(a) for a in e.args if isinstance(a, Const)])
    return literal(value, e.dtype)


def _ring(e: Expr, facts: Facts) -> Expr:
    """A sum of products over simplified atoms; intermediate sums are not simplified one by one."""
    p = poly_of(e)
    if p == {(e,): 1}:  # a product with too many terms to expand
        e = e.with_args(tuple(simplify(a, facts) for a in e.args))
        p = poly_of(e)
    for atom in dict.fromkeys(a for m in p for a in m if a is not e):
        simple = simplify(atom, facts)
        if simple is not atom:
            p = replace(p, atom, poly_of(simple))
    return to_expr(reduce_coefficients(merge(p, facts), e.dtype), e.dtype)


def _as_expr(found: Poly | Expr, d: DType, facts: Facts) -> Expr:
    """Returns a polynomial as an expression, after merging quotients with remainders; an expression unchanged."""
    if isinstance(found, Expr):
        return found
    return to_expr(reduce_coefficients(merge(found, facts), d), d)


def _cast(e: Expr, facts: Facts) -> Expr:
    """Removes casts that change nothing, and the inner one of two casts if its type holds every value."""
    a = e.args[0]
    if e.dtype is a.dtype:
        return a
    if type(a) is E.Cast and not a.args[0].dtype.is_float and a.dtype.is_int:
        inner = a.args[0]
        lo, hi = int_range(inner, facts)
        if a.dtype.min <= lo and hi <= a.dtype.max:
            return simplify(E.Cast(e.dtype, inner), facts)
    return e


_INTEGER: dict[type[Expr], Callable[[Expr, Facts], Expr]] = {
    E.FloorDiv: lambda e, facts: _as_expr(floordiv(e.args[0], e.args[1], facts), e.dtype, facts),
    E.FloorMod: lambda e, facts: _as_expr(floormod(e.args[0], e.args[1], facts), e.dtype, facts),
    E.Min: lambda e, facts: extreme(E.Min, e.args[0], e.args[1], facts),
    E.Max: lambda e, facts: extreme(E.Max, e.args[0], e.args[1], facts),
    E.Lt: lambda e, facts: less(e.args[0], e.args[1], True, facts),
    E.Le: lambda e, facts: less(e.args[0], e.args[1], False, facts),
    E.Eq: lambda e, facts: equal(e.args[0], e.args[1], facts),
    E.Ne: lambda e, facts: unequal(e.args[0], e.args[1], facts),
    E.Cast: _cast,
}
