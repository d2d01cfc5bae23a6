"""What a Python `for` of a graph function goes over: its rounds are known when the function is read, and it is unrolled.

    for w in weights: x = x @ w          ->  x = x @ weights[0]; x = x @ weights[1]; …
    for i, w in enumerate(weights): …        range, enumerate, zip, reversed; lists, tuples, dictionaries, arrays
    for row in x: …                          a tensor whose first dim is a number: x[0], x[1], …

The items are taken from Python's own containers; no user code runs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..sym.expr import Const, Expr
from .indexing import index_steps
from .node import Tensor, Value

if TYPE_CHECKING:
    from .parse_expr import Expressions

MOST_ROUNDS = 10_000  # each round is nodes of the program; more than this is a loop over data, which belongs into a kernel
PYTHON_ITERATORS: dict[str, object] = {"enumerate": enumerate, "zip": zip, "reversed": reversed}


def rounds(parser: Expressions, node: ast.expr) -> list[Any]:
    """Returns the items of `node`, which follows `in`; raises if they are not known when the function is read, or too many to unroll."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        target = parser.resolve(node.func)
        if target is range and not node.keywords:
            return _range(parser, node)
        if any(target is known for known in PYTHON_ITERATORS.values()):
            return _limited(parser, node, _combined(parser, node, target))
        if isinstance(getattr(target, "__self__", None), dict) and target.__name__ in ("items", "keys", "values"):
            return _limited(parser, node, list(target()))
    return _limited(parser, node, _items(parser, node, parser.evaluate(node)))


def list_comprehension(parser: Expressions, node: ast.ListComp) -> list[Any]:
    """Returns the list of `[f(w) for w in ws if c]`, whose names are its own; the conditions must be known when the function is read."""
    before = dict(parser.names)
    results: list[Any] = []

    def run(depth: int) -> None:
        if depth == len(node.generators):
            results.append(parser.evaluate(node.elt))
            return
        generator = node.generators[depth]
        for item in rounds(parser, generator.iter):
            bind(parser, generator.target, item)
            if all(_known(parser, test) for test in generator.ifs):
                run(depth + 1)

    run(0)
    parser.names = before
    return results


def bind(parser: Expressions, target: ast.expr, item: Any) -> None:
    """Assigns an item to the target of a loop: a name, or names in parentheses for an item of as many parts; raises if they do not fit."""
    if isinstance(target, ast.Name):
        parser.names[target.id] = item
        return
    if not isinstance(target, ast.Tuple | ast.List):
        raise parser.error(target, "only names can be assigned", help="a loop assigns to names")
    if not isinstance(item, tuple | list) or len(item) != len(target.elts):
        found = f"{len(item)} values" if isinstance(item, tuple | list) else "one value"
        raise parser.error(target, f"{len(target.elts)} names for {found}")
    for t, part in zip(target.elts, item, strict=True):
        bind(parser, t, part)


def _known(parser: Expressions, test: ast.expr) -> bool:
    """Returns the value of a condition; raises if it is not known when the function is read."""
    found = parser.evaluate(test)
    if not isinstance(found, bool):
        raise parser.error(
            test, "this condition is known only at run time", help="`if` of a comprehension chooses when the function is read"
        )
    return found


def _range(parser: Expressions, node: ast.Call) -> list[int]:
    """The numbers of `range(a, b, step)`; raises if one of them is no number that is known when the function is read."""
    numbers = []
    for arg in node.args:
        found = parser.evaluate(arg)
        if isinstance(found, Const) and found.dtype.is_int:
            found = found.value
        if isinstance(found, Value | Expr):
            raise parser.error(
                arg,
                f"`{ast.unparse(arg)}` is known only at run time",
                facts=["`for` is unrolled when the function is read"],
                help="use `while` for a number of rounds that only a run tells",
            )
        numbers.append(found)
    span: range = parser.located(node, lambda: range(*numbers))
    return _limited(parser, node, span)


def _combined(parser: Expressions, node: ast.Call, target: Callable[..., Any]) -> list[Any]:
    """Returns the items of a call of enumerate, zip or reversed."""
    if target is enumerate and len(node.args) == 2:
        start = parser.evaluate(node.args[1])
        pairs: Iterator[Any] = parser.located(node, lambda: enumerate(rounds(parser, node.args[0]), start))
        return list(pairs)
    parts = [rounds(parser, arg) for arg in node.args]
    options = {k.arg: parser.evaluate(k.value) for k in node.keywords if k.arg}
    items: list[Any] = parser.located(node, lambda: list(target(*parts, **options)))
    return items


def _items(parser: Expressions, node: ast.expr, found: Any) -> Any:
    """Returns the items of a container, of an array along its first axis, or of a tensor whose first dim is a number.

    Raises for anything else.
    """
    if isinstance(found, list | tuple | dict):
        return list(found)
    if isinstance(found, range) or (isinstance(found, np.ndarray) and found.ndim):
        return found
    if not isinstance(found, Value) or not isinstance(found.annotation, Tensor) or not found.annotation.shape:
        what = f"it is an object of type `{type(found).__name__}`"
        help_ = "a list, tuple or dictionary, an array, range, enumerate, zip and reversed can be gone through"
        raise parser.error(node, f"`{ast.unparse(node)}` has no items to go through", facts=[what], help=help_)
    extent = found.annotation.shape[0]
    if not isinstance(extent, Const):
        raise parser.error(
            node,
            f"`{ast.unparse(node)}` has {extent} rows, which only a run tells",
            facts=[f"it is {found.annotation}", "`for` is unrolled when the function is read"],
            help="use operators on all rows, a kernel, or `while`",
        )
    return [_row(parser, node, found, k) for k in _limited(parser, node, range(int(extent.value)))]


def _row(parser: Expressions, node: ast.expr, tensor: Value, k: int) -> Value:
    value = tensor
    for step in index_steps(tensor, [k]):
        value = parser.run(node, lambda step=step, value=value: step(value), [(node, value)], "")  # type: ignore[misc]
    return value


def _limited(parser: Expressions, node: ast.expr, items: Any) -> list[Any]:
    """The items as a list; raises if there are too many to unroll."""
    if len(items) > MOST_ROUNDS:
        raise parser.error(
            node,
            f"{len(items)} rounds are too many to unroll",
            facts=[f"the most is {MOST_ROUNDS}"],
            help="use `while` for loops at run time; loops over elements belong into kernels",
        )
    return list(items)
