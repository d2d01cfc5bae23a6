"""Weight packing: chooses memory layouts of constant operands for the kernels that read them, so that packing runs once, not at every call.

    c = matmul(x, w)        ->        w_packed = pack(w);  c = matmul(x, w_packed)          # w a literal, or computed from literals

The layout is an index map chosen by the rule that will schedule the reader (`Rule.layouts`). `transform_layout` applies it to the reader,
and all readers that choose the same map share one packed weight. `lift_constants` moves the packing to load time.
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
    """Returns the function with its weights packed for the target; the layout of each is a decision `<value>.pack`."""
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
    """Yields the calls that copy operands into packed layouts, where they are still missing, then the call `n` over packed operands.

    Records the packed values in `packed`; each layout is a decision of `layouts`.
    """
    func, args = with_casts_inside(func_of(n.callee)), list(n.args)
    operands = [p.value for p in func.params if p.role != "out"]
    values = {b: v for b, v in zip(operands, args, strict=True) if isinstance(b, Buffer) and isinstance(v, g.Value) and v in known}

    def choose(buffer: Buffer, packing: Packing) -> IndexMap | None:
        if buffer not in values:
            return None
        decide = layouts.about(values[buffer].name, target)
        why = "columns of a pack: one vector serves tiles of any width, several vectors make fewer memory streams; 0 leaves it unpacked"
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
            packed_value = g.Value(f"{value.name}_packed", g.Tensor(buffer.dtype, layout.shape))
            packed[key] = packed_value
            yield _pack(value, packed_value, layout, n)
        args[position] = packed[key]
        func, _ = transform_layout(func, buffer.name, map_, 0)
    yield n.with_(callee=callee_of(func), args=tuple(args)) if args != list(n.args) else n


def _pack(value: g.Value, made: g.Value, layout: Layout, reader: g.CallLoop) -> g.CallLoop:
    """Returns a call that copies a tensor into a packed layout; padding is zero."""
    t = value.tensor

    def element(place: Indices, _: Indices, read: Read) -> Expr:
        there = layout.is_element(place)
        value_there = read(0, *layout.inverse(place))
        return Select(there, value_there, Const(0, value_there.dtype)) if layout.has_padding() else value_there

    stage = Stage("packed", t.dtype, layout.shape, element)
    func, _ = func_of_stages("pack", (Buffer("x0", t.dtype, t.shape),), (stage,), 1)
    return g.CallLoop(outs=(made,), origin=reader.origin, span=reader.span, callee=callee_of(func), args=(value,), dims=())
