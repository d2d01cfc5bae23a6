"""Walks over expressions: every node once, bottom-up folds memoized on the nodes, and rewriting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .hash_consing import memo_of

if TYPE_CHECKING:
    from .expr import Expr


def walk(e: Expr) -> Iterator[Expr]:
    """Yields every distinct node of `e`, operands before the nodes that use them."""
    if not e.args:  # most calls are about a constant or a variable
        yield e
        return
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(e, False)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif node not in seen:
            seen.add(node)
            if not node.args:
                yield node
                continue
            stack.append((node, True))
            for a in reversed(node.args):  # a loop: for one or two operands, a generator takes longer to start
                if a not in seen:
                    stack.append((a, False))


def depth(e: Expr) -> int:
    """Returns the number of nodes on the longest path down from `e` (memoized)."""
    levels: int = fold_up(e, "depth", lambda node, below: 1 + max(below, default=0))
    return levels


def fold_up(e: Expr, name: str, combine: Callable[[Expr, list[Any]], Any]) -> Any:
    """Bottom-up fold: returns `combine(node, results of its operands)` at `e`, memoized on each node under `name`.

    It is iterative, because expressions may be deep.
    """
    memo = e.memo
    if memo is not None and name in memo:
        return memo[name]
    stack, result = [e], None
    while stack:
        node = stack[-1]
        below: list[Any] = []
        missing = False
        for a in node.args:
            memo = a.memo
            if memo is None or name not in memo:
                stack.append(a)
                missing = True
            else:
                below.append(memo[name])
        if not missing:
            result = memo_of(node)[name] = combine(node, below)
            stack.pop()
    return result


def rewrite(e: Expr, leaf: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None) -> Expr:
    """Returns `e` rebuilt bottom-up, with every node replaced for which `leaf(node)` returns an expression.

    Nothing inside such a node is visited. Returns the same object if nothing changes. `memo` maps nodes to results.
    """
    memo = {} if memo is None else memo
    result = memo.get(e)
    if result is None:
        result = leaf(e)
        if result is None:
            result = e.with_args(tuple([rewrite(a, leaf, memo) for a in e.args])) if e.args else e
        memo[e] = result
    return result
