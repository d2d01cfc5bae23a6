"""Weights lie as the kernels that read them like best: what is known before the program runs is packed once, not at every call.

    c = matmul(x, w)        ->        w_packed = pack(w);  c = matmul(x, w_packed)          # w a literal, or computed from literals

The layout is an index map chosen by the rules that will schedule the reader (`Rule.layouts`), applied to the reader by
`transform_layout`, and shared by all readers of a weight that want the same. `lift_constants` has packing done when a program is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...graph import node as g
from ...graph.stage import Indices, Read, Stage
from ...loop.buffer import Buffer
from ...schedule.decisions import Decisions, OfKernel
from ...schedule.library import Packing, operand_layouts, with_casts_inside
from ...schedule.primitives.layout import transform_layout
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Select
from ...sym.index_map import IndexMap, Layout
from ...target import Target
from ..callee import callee_of, func_of
from ..ops.lower_ops import func_of_stages
from .lift_constants import known_values


def choose_layouts(function: g.Function, target: Target, decisions: Decisions | None = None) -> g.Function:
    """The function with its weights packed for the target; how each lies is a decision `<value>.pack`, which all of its readers share."""
    known = known_values(function)
    layouts = (decisions or Decisions()).of_kernel(function.name)
    packed: dict[tuple[g.Value, str], g.Value] = {}
    nodes: list[g.Node] = []
    for n in function.nodes:
        if isinstance(n, g.CallLoop):
            nodes += _packed(n, known, packed, target, layouts)
        else:
            nodes.append(n)
    return function.with_(nodes=tuple(nodes)) if packed else function


def _packed(
    n: g.CallLoop, known: set[g.Value], packed: dict[tuple[g.Value, str], g.Value], target: Target, layouts: OfKernel
) -> Iterator[g.Node]:
    """The call with operands in the layouts it wants, after the packing of those that nobody has packed yet."""
    func, args = with_casts_inside(func_of(n.callee)), list(n.args)
    operands = [p.value for p in func.params if p.role != "out"]
    values = {b: v for b, v in zip(operands, args, strict=True) if isinstance(b, Buffer) and isinstance(v, g.Value) and v in known}

    def choose(buffer: Buffer, packing: Packing) -> IndexMap | None:
        if buffer not in values:
            return None
        decide = layouts.about(values[buffer].name, target)
        why = "columns of a pack: those of a vector serve tiles of any width, those of several make fewer streams; 0 is as it is"
        pack = decide("pack", (0, *packing.maps), packing.default, reorders=packing.reorders, kind="layout", why=why)
        return packing.maps.get(pack)

    wanted = operand_layouts(func, set(values), target, choose)
    for position, buffer in enumerate(operands):
        if not isinstance(buffer, Buffer) or buffer not in wanted:
            continue
        value, map_ = values[buffer], wanted[buffer]
        layout = map_.layout(buffer.shape)
        assert not isinstance(layout, Refusal), layout
        key = (value, str(map_))
        if key not in packed:
            made = g.Value(f"{value.name}_packed", g.Tensor(buffer.dtype, layout.shape))
            packed[key] = made
            yield _pack(value, made, layout, n)
        args[position] = packed[key]
        func, _ = transform_layout(func, buffer.name, map_, 0)
    yield n.with_(callee=callee_of(func), args=tuple(args)) if args != list(n.args) else n


def _pack(value: g.Value, made: g.Value, layout: Layout, reader: g.CallLoop) -> g.CallLoop:
    """The call that brings a tensor into a layout, zeros in between."""
    t = value.tensor

    def element(place: Indices, _: Indices, read: Read) -> Expr:
        there = layout.is_element(place)
        found = read(0, *layout.inverse(place))
        return Select(there, found, Const(0, found.dtype)) if layout.has_padding() else found

    stage = Stage("packed", t.dtype, layout.shape, element)
    func, _ = func_of_stages("pack", (Buffer("x0", t.dtype, t.shape),), (stage,), 1)
    return g.CallLoop(outs=(made,), origin=reader.origin, span=reader.span, callee=callee_of(func), args=(value,), dims=())
