"""Emits the nodes of a graph function as statements of the host program: kernel calls, views, host scalars, branches.

A kernel call writes its results to fresh memory. A reshape, a contiguous slice and a concatenation are views where possible. A graph `if`
becomes an `if` statement whose branches write to the same buffers; loops are in `while_loops.py`.

    t = ops.silu(x); y = ops.reshape(t, (n * 64,))      ->      silu(x, t, dims=(n,)); y = view(t[0, 0], (n * 64,))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dtype import bool_
from ...graph import node as g
from ...graph.node import is_state
from ...graph.op_table import TABLE
from ...graph.operators import tensor_of
from ...graph.stage import Stage
from ...loop.buffer import Buffer
from ...loop.stmt import Call, Check, If, Let, Seq, Stmt, Store, View, seq
from ...support.errors import UnsupportedError
from ...support.record import dataclass
from ...sym.expr import Const, Expr, Max, Ne, Var, substitute
from ...sym.simplify import simplify
from ..callee import func_of
from .argument_checks import const
from .contiguous_copies import Range
from .host_memory import Memory, is_view, zeros
from .scalar_checks import scalar_checks, size_checks
from .state_versions import versions
from .while_loops import emit_while

if TYPE_CHECKING:
    from ...graph.ops.dynamic_dims import BindAttrs  # for annotations only: a module imports an operator only if it uses it


@dataclass(slots=True)
class NodeEmitter(Memory):
    """Emits the host statements of graph nodes in order; each node is one step in the lifetimes of temporaries."""

    def nodes(self, nodes: Sequence[g.Node]) -> list[Stmt]:
        """Returns the statements of the nodes in order, with their checks; each node is one step of the lifetimes.

        Raises UnsupportedError for a node that cannot be compiled.
        """
        stmts: list[Stmt] = []
        for n in nodes:
            self.step += 1
            stmts += [Check(r.cond, r.message, r.values, r.help, "shape", r.span) for r in n.requires]
            known = len(self.temps)
            if isinstance(n, g.Const):
                continue
            if is_view(n):
                node_stmts = self.view(n)
            elif n.outs and n.outs[0] in self.places.views:
                node_stmts = self.range_view(n.outs[0], self.places.views[n.outs[0]])
            elif n.outs and n.outs[0] in self.places.joined:
                node_stmts = self.join(n.outs[0])
            elif isinstance(n, g.CallLoop):
                node_stmts = self.call(n)
            elif isinstance(n, g.If):
                stmts += self.branch(n)
                continue
            elif isinstance(n, g.While):
                stmts += emit_while(self, n)
                continue
            elif isinstance(n, g.Op) and n.op == "bind_dim":
                node_stmts = self.bind(n, n.attrs)
            elif isinstance(n, g.Op) and isinstance(n.outs[0].annotation, g.Scalar):
                node_stmts = self.host_scalar(n, n.outs[0].annotation)
            else:
                raise UnsupportedError(f"{type(n).__name__} cannot be compiled yet", where=n.span)
            stmts += [*self.poison_new(known), *node_stmts, *self.poison_dead()]
        return stmts

    def host_scalar(self, n: g.Op, out: g.Scalar) -> list[Stmt]:
        """Returns the statements of an operator on host scalars, and sets its value.

        The value is an expression over dims if it is known, else a variable of a let with the operator's formula. In checked mode checks
        come first.
        """
        if out.value is not None:
            self.values[n.outs[0]] = out.value
            return size_checks(n, out.value) if self.checked else []
        args = [self.scalar(a) for a in n.args]
        make = TABLE[n.op].stages
        assert make is not None
        (stage,) = make(tuple(tensor_of(a.annotation) for a in n.args), (tensor_of(out),), n.attrs)
        assert isinstance(stage, Stage)
        formula = stage.value
        checks = scalar_checks(n, lambda given: formula((), (), lambda k, *_: given[int(k)]), args) if self.checked else []
        return [*checks, self.let(n.outs[0], formula((), (), lambda k, *_: args[int(k)]))]

    def let(self, value: g.Value, e: Expr) -> Stmt:
        """Returns a let that evaluates a host scalar now, and makes its variable the value.

        The memory that it is read from may be reused before its first use.
        """
        var = Var(value.name, e.dtype)
        self.values[value] = var
        return Let(var, e)

    def view(self, n: g.Node) -> list[Stmt]:
        """Returns the statements of a reshape, and sets its value: an alias if possible, else a copy.

        Strided sources are copied, and so is state that is updated later. A scalar is stored into a new buffer.
        """
        value, out = g.node_args(n)[0], n.outs[0]
        if isinstance(value.annotation, g.Scalar):
            self.values[out] = buffer = self.fresh(out)
            return [Store(buffer, zeros(buffer), self.scalar(value))]
        source = self.buffer(value)
        if out in self.placed:
            self.values[out] = self.part(self.placed[out], out.name, out.tensor.shape)
            return []
        # A view of state must not show later in-place updates, so it is a copy.
        later = is_state(value) and not is_state(out) and value in self.consumed
        if later or (source.strides is not None and not is_state(out)):
            self.values[out] = buffer = self.fresh(out)
            same = Buffer(value.name, source.dtype, source.shape, scope=buffer.scope)
            return [View(same, buffer, zeros(buffer)), self.copy_tensor(source, same)]
        if source.shape == out.tensor.shape:
            self.values[out] = source
            return []
        buffer = Buffer(out.name, source.dtype, out.tensor.shape, out.tensor.strides, source.scope)
        self.values[out] = self.in_home_of(source, buffer)
        return [View(buffer, source, zeros(source))]

    def range_view(self, out: g.Value, r: Range) -> list[Stmt]:
        """Returns the views for a value that is a contiguous range of another value, so that nothing is copied."""
        views: list[View] = []
        buffer = self.cut(self.buffer(r.source), r.start, out.name, out.tensor.shape, views)
        self.values[out] = buffer
        return [*views]

    def cut(self, source: Buffer, start: Expr, name: str, shape: tuple[Expr, ...], views: list[View]) -> Buffer:
        """Returns a view of `source` with the given shape that begins at element `start`; appends the view statements to `views`."""
        buffer = Buffer(name, source.dtype, shape, scope=source.scope)
        views.append(View(buffer, self.flattened(source, views), (start,)))
        return self.in_home_of(source, buffer)

    def join(self, out: g.Value) -> list[Stmt]:
        """Returns the statements of a concatenated value: copies of only the parts that their producers did not write in place."""
        whole, stmts = self.joined(out), []
        for r in self.places.joined[out]:
            views: list[View] = []
            source = self.cut(self.buffer(r.source), r.start, r.source.name, (r.count,), views)
            target = self.cut(whole, r.at, out.name, (r.count,), views)
            stmts += [*views, self.copy_tensor(source, target)]
        return stmts

    def call(self, n: g.CallLoop) -> list[Stmt]:
        """Returns a kernel call, after copies of strided arguments to contiguous temporaries if the kernel needs that.

        Sets the values of its results; updated state stays in its memory.
        """
        func = func_of(n.callee)
        dims = dict(zip(func.symbols, n.dims, strict=True))
        inputs, outs = iter(n.args), iter(n.outs)
        args: list[Buffer | Expr] = []
        before: list[Stmt] = []
        after: list[Stmt] = []
        for p in func.params:
            if p.role == "out":
                assert isinstance(p.value, Buffer)
                out = next(outs)
                self.values[out] = target = self.fresh(out)
                args.append(self.strided(p.value, target, dims, before, after))
                continue
            value = next(inputs)
            if isinstance(p.value, Buffer):
                assert isinstance(value, g.Value)
                source = self.buffer(value)
                if p.role == "inout":
                    self.values[next(outs)] = source
                elif source.strides is not None and p.value.strides is None:
                    plain = self.temporary(value.name, g.Tensor(source.dtype, source.shape))
                    before.append(self.copy_tensor(source, plain))
                    source = plain
                args.append(source)
            else:
                args.append(self.scalar(value))
        call = Call(func, tuple(args), n.dims, n.span)
        self.launched[call] = n
        return [*before, call, *after]

    def strided(self, p: Buffer, target: Buffer, dims: dict[Var, Expr], before: list[Stmt], after: list[Stmt]) -> Buffer:
        """Returns the buffer that a kernel writes an output to.

        It is `target`, or a temporary if the kernel declares other strides; `after` then copies it to `target`.
        """
        strides = tuple(simplify(substitute(e, dims)) for e in p.strides) if p.strides is not None else None
        if strides is None or all(a is simplify(b) for a, b in zip(strides, target.element_strides(), strict=True)):
            return target
        last: Expr = const(0)
        for e, s in zip(target.shape, strides, strict=True):
            last = last + Max(e - const(1), const(0)) * s
        whole = self.temporary(f"{target.name}_whole", g.Tensor(target.dtype, (simplify(last + const(1)),)))
        strided = Buffer(target.name, target.dtype, target.shape, strides, scope="workspace")
        before.append(View(strided, whole, zeros(whole)))
        after.append(self.copy_tensor(strided, target))
        return strided

    def bind(self, n: g.Op, attrs: BindAttrs) -> list[Stmt]:
        """Returns the statements that bind a computed number to a run-time dim, with its checks (operator `bind_dim`)."""
        self.values[n.outs[0]] = attrs.dim
        return self.sizes.bind(attrs.dim, attrs.most, self.scalar(n.args[0]), n.span)

    def branch(self, n: g.If) -> list[Stmt]:
        """Returns the statements of an `if`: both branches write their results to the same buffers; updated state stays in its memory."""
        cond = self.scalar(n.cond)
        cond = cond if cond.dtype is bool_ else Ne(cond, Const(0, cond.dtype))
        states = {new: old for old, new in versions(n)}
        known = len(self.temps)
        targets: list[Buffer | None] = []
        for out in n.outs:
            if out in states:
                self.values[out] = self.buffer(states[out])
                targets.append(None)
            else:
                buffer = self.fresh(out)
                self.values[out] = buffer
                targets.append(buffer)
        poison_new = self.poison_new(known)
        then, orelse = (self.branch_body(b, targets) for b in (n.then, n.orelse))
        self.step += 1
        for out in n.outs:
            self.buffer(out)
        lets = [self.let(out, self.scalar(out)) for out in n.outs if isinstance(out.annotation, g.Scalar)]
        return [*poison_new, If(cond, then, orelse, n.span), *lets, *self.poison_dead()]

    def branch_body(self, b: g.Body, targets: list[Buffer | None]) -> Stmt:
        """Returns the statements of a branch; results go straight to their targets if possible, else they are copied."""
        defined = {out: n for n in b.nodes for out in n.outs}
        for result, target in zip(b.results, targets, strict=True):
            if target is not None:
                self.place(result, target, defined)
        stmts = self.nodes(b.nodes)
        for result, target in zip(b.results, targets, strict=True):
            if target is not None:
                stmts += self.copy(result, target)
        return seq(*stmts) if stmts else Seq(())
