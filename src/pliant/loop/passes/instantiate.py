"""Inlining: the body of a loop program with parameters and symbols substituted, and fresh names for everything that it binds.

Func f(a: f32[n], b: f32[n]): for i in range(n): b[i] = a[i]
instantiate(f, (x, y), (m,))  ->  for i' in range(m): y[i'] = x[i']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...sym.expr import Expr, Var
from ..buffer import Buffer
from ..stmt import Alloc, Block, Combiner, For, Func, Iter, Let, Reduce, Replacer, Stmt, View


def instantiate(func: Func, args: Sequence[Buffer | Expr], dims: Sequence[Expr]) -> Stmt:
    """The body of `func` over `args` (one for each parameter), with its symbols set to `dims`."""
    variables: dict[Var, Expr] = dict(zip(func.symbols, dims, strict=True))
    buffers: dict[Buffer, Buffer] = {}
    for param, arg in zip(func.params, args, strict=True):
        if isinstance(param.value, Var):
            assert isinstance(arg, Expr)
            variables[param.value] = arg
        else:
            assert isinstance(arg, Buffer)
            buffers[param.value] = arg
    return _Instance(variables, buffers).stmt(func.body)


class _Instance(Replacer):
    """A Replacer that also renames bound variables and buffers, so that a function's body can be copied into another one."""

    def __init__(self, variables: dict[Var, Expr], buffers: dict[Buffer, Buffer]) -> None:
        super().__init__(variables, buffers)
        self.fresh_vars = variables
        self.fresh_buffers = buffers

    def renew(self, v: Var) -> Var:
        """Returns a fresh variable that replaces `v` from here on."""
        new = Var(v.name, v.dtype)
        self.fresh_vars[v] = new
        self._memo.clear()  # two consecutive loops may bind the same variable
        return new

    def renew_buffer(self, b: Buffer) -> Buffer:
        """Returns a fresh buffer that replaces `b` from here on."""
        shape = tuple(self.expr(e) for e in b.shape)
        strides = None if b.strides is None else tuple(self.expr(e) for e in b.strides)
        new = Buffer(b.name, b.dtype, shape, strides, b.scope)
        self.fresh_buffers[b] = new
        self._memo.clear()
        return new

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For():
                start, stop = self.expr(s.start), self.expr(s.stop)
                return replace(s, var=self.renew(s.var), start=start, stop=stop, body=self.stmt(s.body))
            case Block():
                values = [self.expr(i.value) for i in s.iters]
                iters = tuple(Iter(self.renew(i.var), i.kind, v) for i, v in zip(s.iters, values, strict=True))
                predicate = self.expr(s.predicate)  # it is a condition over the iterators
                return replace(
                    s,
                    iters=iters,
                    predicate=predicate,
                    init=None if s.init is None else self.stmt(s.init),
                    body=self.stmt(s.body),
                    reads=None if s.reads is None else tuple(self.region(r) for r in s.reads),
                    writes=None if s.writes is None else tuple(self.region(r) for r in s.writes),
                )
            case Let():
                value = self.expr(s.value)
                return replace(s, var=self.renew(s.var), value=value)
            case Alloc():
                return replace(s, buffer=self.renew_buffer(s.buffer))
            case View():
                source, place = self.buffers.get(s.source, s.source), tuple(self.expr(e) for e in s.start)
                return replace(s, buffer=self.renew_buffer(s.buffer), source=source, start=place)
            case Reduce(combiner=Combiner(left=left)) if left:
                c = s.combiner
                combiner = Combiner(
                    c.name,
                    tuple(self.renew(v) for v in c.left),
                    tuple(self.renew(v) for v in c.right),
                    tuple(self.expr(e) for e in c.result),
                )
                return super().stmt(replace(s, combiner=combiner))
        return super().stmt(s)
