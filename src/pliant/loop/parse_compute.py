"""Parser of `compute`, the shorthand that defines a tensor by the formula of its elements: one block in its loops.

    t = compute((n, m), lambda i, j: a[i, j] * 2.0)                           # a new buffer in the workspace
    compute(c, lambda i, j: sum_over(lambda k: a[i, k] * b[k, j], 128))       # all of an existing one, with a reduction

The second line is parsed as

    for i, j, k in grid(n, 256, 128):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
"""

from __future__ import annotations

import ast
from math import inf

from ..dtype import DType, bool_, i64
from ..support.errors import counted
from ..support.record import dataclass
from ..sym.expr import Const, Expr, Var
from .buffer import Buffer
from .parse_stmt import StmtParser
from .stmt import NAMED_COMBINERS, Alloc, Block, For, Iter, IterKind, Reduce, Stmt, Store, seq

OVER = {"sum_over": "add", "prod_over": "mul", "min_over": "min", "max_over": "max"}  # word -> combiner


def identity(combiner: str, dtype: DType) -> Const:
    """The identity element of a reduction, from which it starts."""
    if combiner in ("add", "mul"):
        return Const(combiner == "mul", dtype)
    if dtype.is_float:
        return Const(inf if combiner == "min" else -inf, dtype)
    return Const(dtype.max if combiner == "min" else dtype.min, dtype)


@dataclass(slots=True)
class _Formula:
    """A parsed `compute`: the iterators of the new tensor, the extents of all iterators, and the formula of an element."""

    iters: list[Iter]
    extents: list[Expr]
    value: Expr
    combiner: str = ""


class ComputeParser(StmtParser):
    """Parses the statement `compute`, which defines a tensor by a formula for its elements."""

    def define(self, node: ast.Assign, target: ast.Name, value: ast.expr) -> Stmt:
        """Parses `t = compute((n, m), lambda i, j: ...)`, or another definition."""
        bound = self.find(target.id)
        if not isinstance(value, ast.Call) or self.word(value) != "compute" or bound is not None:
            return super().define(node, target, value)
        return self.compute_new(node, target, value)

    def compute_new(self, node: ast.Assign, target: ast.Name, call: ast.Call) -> Stmt:
        """Parses `t = compute((n, m), lambda i, j: ...)` into an allocation and a loop nest."""
        self.arguments(call, 2)
        shape = self.shape(call.args[0])
        formula = self.formula(call.args[1], target.id, shape, None)
        buffer = Buffer(target.id, formula.value.dtype, shape, scope="workspace")
        self.bind(target, target.id, buffer, "buffer", fixed=self.independent(shape))
        return seq(Alloc(buffer, span=self.span(node)), self.loops(node, buffer, formula))

    def compute_into(self, node: ast.Expr, call: ast.Call) -> Stmt:
        """Parses `compute(c, lambda i, j: ...)` into a loop nest."""
        self.arguments(call, 2)
        buffer = self.buffer(call.args[0])
        self.writable(call.args[0], buffer)
        return self.loops(node, buffer, self.formula(call.args[1], buffer.name, buffer.shape, buffer.load().dtype))

    def formula(self, node: ast.expr, name: str, shape: tuple[Expr, ...], expect: DType | None) -> _Formula:
        """Parses the lambda of a `compute`; its arguments become the iterators of the block. Raises an Error for other forms."""
        self.blocks.append(name)
        with self.scope(repeated=True):
            function = self.function_of(node, len(shape), f"`{name}` has {counted(len(shape), 'dimension')}")
            iters = [self.iterator(a, "S") for a in function.args.args]
            word, over = self.word(function.body), function.body
            if word in OVER and isinstance(over, ast.Call):
                extents = [self.index(a) for a in over.args[1:]]
                inner = self.function_of(over.args[0], len(extents), f"`{word}` runs over {counted(len(extents), 'extent')}")
                iters += [self.iterator(a, "R") for a in inner.args.args]
                value = self.expr(inner.body, expect)
                if value.dtype is bool_:
                    raise self.error(inner.body, "bools are not reduced", help="cast(i64, x) counts them")
                parsed = _Formula(iters, [*shape, *extents], value, OVER[word])
            else:
                parsed = _Formula(iters, list(shape), self.expr(function.body, expect))
        self.blocks.pop()
        return parsed

    def function_of(self, node: ast.expr, count: int, why: str) -> ast.Lambda:
        """Returns the node as a lambda; raises an error if it is none, or does not have `count` arguments (`why` says why it must)."""
        if not isinstance(node, ast.Lambda):
            raise self.error(node, "a formula is a lambda", help="compute((n, m), lambda i, j: x[i, j])")
        if len(node.args.args) != count:
            raise self.error(node, f"{why}, the lambda has {counted(len(node.args.args), 'argument')}")
        return node

    def iterator(self, arg: ast.arg, kind: IterKind) -> Iter:
        """Makes an iterator for an argument of a lambda, and binds the argument's name to it."""
        iterator = Iter(Var(f"v{arg.arg}"), kind, Var(arg.arg))
        self.bind(arg, arg.arg, iterator.var, "iterator")
        return iterator

    def loops(self, node: ast.stmt, buffer: Buffer, formula: _Formula) -> Stmt:
        """Builds the loop nest with one block that computes a buffer by a formula; a reduction gets an init with the neutral element."""
        place = buffer.load(*(i.var for i in formula.iters if i.kind == "S"))
        span = self.span(node)
        if formula.combiner:
            init = Store(buffer, place.indices, identity(formula.combiner, place.dtype), span=span)
            body: Stmt = Reduce(NAMED_COMBINERS[formula.combiner], (place,), (formula.value,), span=span)
            result: Stmt = Block(buffer.name, tuple(formula.iters), body, init, span=span)
        else:
            result = Block(buffer.name, tuple(formula.iters), Store(buffer, place.indices, formula.value, span=span), span=span)
        for i, extent in zip(reversed(formula.iters), reversed(formula.extents), strict=True):
            assert isinstance(i.value, Var)
            result = For(i.value, Const(0, i64), extent, "serial", result, span=span)
        return result
