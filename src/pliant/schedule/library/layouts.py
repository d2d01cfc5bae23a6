"""How the default rules would like operands to lie in memory, if someone can see to it before the program runs.

    wanted_layouts(func, target)      # {b: lambda k, n: (n // 16, k, n % 16)} for c[i, j] += a[i, k] * b[k, j]

Each rule says how an operand may lie, and what it would take (`Rule.layouts`): packs of columns (`packing.py`), or words of neighboring
rows for instructions that multiply small integers, `(n // 16, k // 4, n % 16, k % 4)`. The layout of a tensor is a decision about that
tensor, which everybody who reads it shares; `choose` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...loop.analysis.nests import allocation, blocks, readers
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Func
from ...sym.expr import Cast
from ...sym.index_map import IndexMap
from ...target import Target
from ..plain_nest import elementwise
from ..schedule import Schedule
from .channels import channel_packs
from .packing import right_side
from .record import Packing, tried
from .table import rules_for
from .units import without_units

Choose = Callable[[Buffer, Packing], IndexMap | None]  # None: as it is


def wanted_layouts(func: Func, target: Target, choose: Choose | None = None) -> dict[Buffer, IndexMap]:
    """The parameters that are only read, by one product, and how they should lie."""
    if func.attrs.scheduled:
        return {}
    asked: dict[Buffer, Packing] = {}
    rules = [r.layouts for r in rules_for(target) if r.layouts is not None]
    for b in blocks(func.body):
        asked.update(next((packings for layouts in rules if (packings := layouts(func, b, target)) is not None), {}))
    return _chosen(asked, choose)


def operand_layouts(func: Func, known: set[Buffer], target: Target, choose: Choose) -> dict[Buffer, IndexMap]:
    """How the parameters of a program should lie of which the contents are `known` before it runs; the rules see it without units."""
    squeezed = without_units(func)
    own = dict(zip(squeezed.func.buffers, func.buffers, strict=True))
    if not func.attrs.layouts:
        return squeezed.layouts(wanted_layouts(squeezed.func, target, lambda b, p: choose(own[b], p)))
    literals = {b for b in squeezed.func.buffers if own[b] in known}  # images are in blocks of channels
    return squeezed.layouts(_chosen(dict(channel_packs(squeezed.func, literals, target)), lambda b, p: choose(own[b], p)))


def _chosen(asked: Mapping[Buffer, Packing], choose: Choose | None) -> dict[Buffer, IndexMap]:
    """The maps of tensors that are not to stay as they are."""
    maps = {b: p.maps.get(p.default) if choose is None else choose(b, p) for b, p in asked.items()}
    return {b: m for b, m in maps.items() if m is not None}


def with_casts_inside(func: Func) -> Func:
    """The program with casts of parameters computed where a product reads them: weights are then read, and packed, in their own dtype."""
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
