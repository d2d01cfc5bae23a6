"""Operand layouts that the default rules want, for operands whose contents can be rearranged before the program runs (weights).

    wanted_layouts(func, target)      # {b: lambda k, n: (n // 16, k, n % 16)} for c[i, j] += a[i, k] * b[k, j]

Each rule says which layouts an operand may have, and which it prefers (`Rule.layouts`): packs of columns (`packing.py`), or words of
neighboring rows for integer dot-product instructions, `(n // 16, k // 4, n % 16, k % 4)`. All readers of a tensor share its layout, so
the layout is a decision about the tensor, and `choose` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...loop.analysis.block_kind import elementwise
from ...loop.analysis.nests import allocation, blocks, readers
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Func
from ...sym.expr import Cast
from ...sym.index_map import IndexMap
from ...target import Target
from ..schedule import Schedule
from .channels import channel_packs
from .packing import right_side
from .record import Packing, tried
from .table import rules_for
from .units import without_units

Choose = Callable[[Buffer, Packing], IndexMap | None]  # returns None to keep the layout as it is


def wanted_layouts(func: Func, target: Target, choose: Choose | None = None) -> dict[Buffer, IndexMap]:
    """Return the layouts that the rules want for parameters; `choose` picks one of each packing, else the rule's default holds.

    Empty for a program that is scheduled already.
    """
    if func.attrs.scheduled:
        return {}
    packings: dict[Buffer, Packing] = {}
    rules = [r.layouts for r in rules_for(target) if r.layouts is not None]
    for b in blocks(func.body):
        packings.update(next((of_block for layouts in rules if (of_block := layouts(func, b, target)) is not None), {}))
    return _chosen(packings, choose)


def operand_layouts(func: Func, known: set[Buffer], target: Target, choose: Choose) -> dict[Buffer, IndexMap]:
    """Return the wanted layouts of parameters. If activations have the NCHWc layout, only of literals, whose contents are `known`.

    `choose` picks a layout from each packing, or None to keep it unpacked.
    """
    squeezed = without_units(func)
    own = dict(zip(squeezed.func.buffers, func.buffers, strict=True))
    if not func.attrs.layouts:
        return squeezed.layouts(wanted_layouts(squeezed.func, target, lambda b, p: choose(own[b], p)))
    literals = {b for b in squeezed.func.buffers if own[b] in known}  # activations already have the NCHWc layout
    return squeezed.layouts(_chosen(dict(channel_packs(squeezed.func, literals, target)), lambda b, p: choose(own[b], p)))


def _chosen(asked: Mapping[Buffer, Packing], choose: Choose | None) -> dict[Buffer, IndexMap]:
    """Return the index map chosen for each tensor, by `choose` or by the rule's default; tensors that keep their layout are left out."""
    maps = {b: p.maps.get(p.default) if choose is None else choose(b, p) for b, p in asked.items()}
    return {b: m for b, m in maps.items() if m is not None}


def with_casts_inside(func: Func) -> Func:
    """Return the program with casts of tensors inlined into the one product that reads them, so that weights are packed in their own dtype.

    A program that is scheduled already is returned as it is.
    """
    if func.attrs.scheduled:
        return func
    s = Schedule(func)
    for b in blocks(func.body):
        store = elementwise(b)
        if store is None or allocation(func, store.buffer) is None or not isinstance(store.value, Cast):
            continue
        users = readers(func, store.buffer)
        if isinstance(store.value.args[0], Load) and len(users) == 1 and right_side(users[0]) is not None:
            tried(partial(s.compute_inline, b.name))
    return s.program
