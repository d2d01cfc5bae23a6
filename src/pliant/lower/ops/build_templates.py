"""Lowers operators with a template to calls of the loop program that the template builds (docs/design/0007-operator-templates.md).

If a result has data-dependent dims, the loop program fills memory of the largest possible size and counts. The count becomes the dim, and
the result is the counted prefix of that memory:

    y = ops.nonzero(x, count=u)     ->      y_all, u_count = call nonzero(x)          # Tensor[i64, n*m, 2], Tensor[i64]
                                            u = ops.bind_dim(u_count, u, most=n*m)
                                            y = ops.prefix(y_all, u)                  # Tensor[i64, u, 2]
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtype import i64
from ...graph import node as g
from ...graph.annotation import substitute_annotation
from ...graph.deduce import Deduction
from ...graph.op_table import TABLE, node_defines, updated_state
from ...graph.operators import tensor_of
from ...graph.ops.dynamic_dims import BindAttrs, PrefixAttrs
from ...loop.attributes import FuncAttrs
from ...loop.buffer import Buffer
from ...loop.stmt import For, Func, Param, walk_stmts
from ...sym.expr import Expr, Var
from ..callee import callee_of
from .lower_ops import Lowering, free_variables, sources_of
from .templates import Site, build, moved, promoted


def lower_template(n: g.Op, lowering: Lowering) -> tuple[g.Node, ...]:
    """Returns the call of the loop program that the template of an operator builds, and the nodes that turn its counts into dims.

    A result of data-dependent size is written at its capacity; a `prefix` node takes the counted part of it.
    """
    op, dims = TABLE[n.op], node_defines(n)
    most = op.capacity(tuple(tensor_of(a.annotation) for a in n.args), n.attrs) if op.capacity is not None else ()
    limits = dict(zip(dims, most, strict=True))
    full = tuple(_at_capacity(out, limits) for out in n.outs)
    counts = tuple(g.Value(f"{d.name}_count", g.Tensor(i64, ())) for d in dims)
    in_place = updated_state(n) is not None
    call = _call(n, lowering, full, counts, in_place)
    nodes: list[g.Node] = [call]
    for dim, limit, count in zip(dims, most, counts, strict=True):
        out = g.Value(dim.name, g.Scalar(i64, dim))
        nodes.append(g.Op(op="bind_dim", args=(count,), attrs=BindAttrs(dim, limit), outs=(out,), origin=n.origin, span=n.span))
    for out, whole in zip(n.outs, full, strict=True):
        if whole is not out:
            attrs = PrefixAttrs(out.tensor.shape[0])
            d = Deduction("prefix", (whole,), span=n.span)
            TABLE["prefix"].deduce(d, attrs)
            nodes.append(
                g.Op(op="prefix", args=(whole,), attrs=attrs, outs=(out,), requires=tuple(d.requires), origin=n.origin, span=n.span)
            )
    return tuple(nodes)


def _contiguous(source: Buffer | Expr) -> Buffer | Expr:
    """Returns the argument without strides: templates may view it under another shape, so the host program makes a contiguous copy."""
    return Buffer(source.name, source.dtype, source.shape) if isinstance(source, Buffer) and source.strides is not None else source


def _at_capacity(out: g.Value, limits: dict[Var, Expr]) -> g.Value:
    """Returns the value that the loop program writes: the result itself, or one of the largest size that it may have."""
    whole = substitute_annotation(out.annotation, limits)
    return out if whole == out.annotation else g.Value(f"{out.name}_all", whole)


def _call(n: g.Op, lowering: Lowering, full: Sequence[g.Value], counts: Sequence[g.Value], in_place: bool) -> g.CallLoop:
    """Returns the call of the template's program; sites with equal arguments share one program.

    With `in_place`, the first argument is updated and may be strided; others are taken as contiguous.
    """
    sources = sources_of(n, lowering.numbers)
    taken = [s if in_place and k == 0 else _contiguous(s) for k, s in enumerate(sources)]
    callee, extra, values = lowering.once(n, lambda: _program(n, taken, full, counts, in_place))
    args = tuple(a for a in n.args if a not in lowering.numbers)
    dims = tuple(values.get(v, v) for v in callee.symbols)
    return g.CallLoop(
        outs=(*full, *counts), requires=n.requires, origin=n.origin, span=n.span, callee=callee, args=(*args, *extra), dims=dims
    )


def _program(
    n: g.Op, sources: Sequence[Buffer | Expr], full: Sequence[g.Value], counts: Sequence[g.Value], in_place: bool
) -> tuple[g.Callee, tuple[Var, ...], dict[Var, Expr]]:
    """Returns the loop program of a template, its additional scalar arguments, and the values of the sizes that became symbols.

    With `in_place`, the first source is also the result.
    """
    outs = [Buffer(f"y{k}", v.tensor.dtype, v.tensor.shape) for k, v in enumerate(full)]
    counters = [Buffer(f"count{k}", i64, ()) for k in range(len(counts))]
    if in_place:
        state = sources[0]
        assert isinstance(state, Buffer)
        outs[0] = state
    dims = node_defines(n)
    counted = {b.name: counters[dims.index(e)].name for b, out in zip(outs, n.outs, strict=True) for e in out.tensor.shape[:1] if e in dims}
    site, values = promoted(TABLE[n.op].template, Site(n.op, tuple(sources), tuple(outs), tuple(counters), n.attrs))
    body = build(TABLE[n.op].template, site)
    inputs = [Param(s, "inout" if in_place and k == 0 else "in") for k, s in enumerate(site.args) if isinstance(s, Buffer | Var)]
    written = [Param(b, "out") for b in (*site.outs[in_place:], *counters)]
    # A template with loops that are not serial brings its own schedule; the default rules schedule templates of blocks.
    shared = any(isinstance(s, For) and s.kind != "serial" for s in walk_stmts(body))
    attrs = FuncAttrs(scheduled=shared, counted=counted, moved=tuple(b.name for b in moved(TABLE[n.op].template, site)))
    known = Func(n.op, (*inputs, *written), body, attrs)
    extra = tuple(v for v in free_variables(body) if v not in known.symbols and v not in known.scalars)
    return callee_of(known.with_(params=(*inputs, *(Param(v) for v in extra), *written))), extra, values
