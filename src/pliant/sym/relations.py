"""Relations between dims that users declare: `dim("m", le=n)`, `dim("n", eq=2 * m)`.

A declaration belongs to the dim that it names. A function whose parameters define the dims takes the relations over as conditions
(`graph.builder`), checks them on entry and relies on them.

    m = dim("m", le=n)             conditions(m)  ->  (m <= n,)
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from ..dtype import i64
from .expr import Const, Eq, Expr, Le, Max, Min, Var, free_vars
from .facts import EMPTY, Facts

KINDS = ("le", "ge", "eq")  # the keywords of `dim`: the dim is at most, at least, equal to an expression of other dims
_BUILD: dict[str, Callable[[Expr, Expr], Expr]] = {"le": lambda d, e: Le(d, e), "ge": lambda d, e: Le(e, d), "eq": lambda d, e: Eq(d, e)}
# The other side only, not the whole condition: that would refer to the key, which would then live forever.
_declared: WeakKeyDictionary[Var, tuple[tuple[str, Expr], ...]] = WeakKeyDictionary()


def declare(dim: Var, relations: Iterable[tuple[str, Expr]]) -> None:
    """Records the relations of a new dim: pairs of a keyword of KINDS and an expression of older dims."""
    pairs = tuple(relations)
    if pairs:
        _declared[dim] = pairs


def conditions(dim: Var) -> tuple[Expr, ...]:
    """Returns what the declaration of a dim says about it and other dims, as conditions."""
    return tuple(_BUILD[kind](dim, e) for kind, e in _declared.get(dim, ()))


def facts_of(relations: Iterable[Expr]) -> Facts:
    """Returns the facts that all of the conditions hold."""
    facts = EMPTY
    for condition in relations:
        facts = facts.with_condition(condition)
    return facts


def relation_text(condition: Expr) -> str:
    """Returns a relation as a user writes it: `m <= n`, `n == 2 * m`."""
    a, b = condition.args
    return f"{a} {'==' if isinstance(condition, Eq) else '<='} {b}"


Stated = tuple[str, Expr]  # a keyword of KINDS, and the expression of other dims


def declarations(relations: Iterable[Expr]) -> tuple[dict[Var, list[Stated]], list[Expr]]:
    """Returns what each dim has to declare so that all relations are declared, and the relations that no dim can declare.

    A dim can declare a relation in which it stands alone, unless the other dims depend on its own declaration: `2 * m <= 3 * k` is no
    declaration of one dim.
    """
    stated: dict[Var, list[Stated]] = {}
    others: list[Expr] = []
    sides = [(r, _sides(r)) for r in dict.fromkeys(relations)]
    for relation, choices in sorted(sides, key=lambda pair: len(pair[1])):  # those without a choice first
        for dim, kind, e in choices:
            if not any(_depends(v, dim, stated) for v in free_vars(e)):
                stated.setdefault(dim, []).append((kind, e))
                break
        else:
            others.append(relation)
    return stated, others


def _sides(relation: Expr) -> list[tuple[Var, str, Expr]]:
    """The ways in which one dim can declare a relation, the youngest dim first."""
    a, b = relation.args
    both = [(a, "eq", b), (b, "eq", a)] if isinstance(relation, Eq) else [(a, "le", b), (b, "ge", a)]
    alone = [(v, kind, e) for v, kind, e in both if isinstance(v, Var) and v not in free_vars(e)]
    return sorted(alone, key=lambda side: -side[0].payload[1])


def _depends(dim: Var, on: Var, stated: Mapping[Var, list[Stated]]) -> bool:
    """True if a dim is `on`, or its declaration mentions a dim that depends on it."""
    return dim is on or any(_depends(v, on, stated) for _, e in stated.get(dim, ()) for v in free_vars(e))


_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def parse_side(node: ast.expr, scope: Mapping[str, object]) -> Any:
    """Evaluates the expression of a declaration in text, of dims in `scope` and integers; raises ValueError for anything else."""
    match node:
        case ast.Constant(int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(name) if isinstance(scope.get(name), Expr):
            return scope[name]
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](parse_side(left, scope), parse_side(right, scope))
        case ast.UnaryOp(ast.USub(), operand):
            return -parse_side(operand, scope)
        case ast.Call(ast.Name("min" | "max" as name), [left, right], []):
            sides = [s if isinstance(s, Expr) else Const(s, i64) for s in (parse_side(left, scope), parse_side(right, scope))]
            return (Min if name == "min" else Max)(*sides)
        case ast.Tuple(elts):
            return tuple(parse_side(e, scope) for e in elts)
    raise ValueError(f"`{ast.unparse(node)}` is no expression of dims that are declared before it")


def parse_keywords(call: ast.Call, scope: Mapping[str, object]) -> dict[str, Any]:
    """Returns the keywords of a declaration in text: literals, and for those of KINDS expressions of dims in `scope`."""
    return {k.arg: parse_side(k.value, scope) if k.arg in KINDS else ast.literal_eval(k.value) for k in call.keywords if k.arg}
