"""The memory plan: temporaries of a host program assigned to slots of one workspace.

Two temporaries may share a slot when they are never alive at the same step. A slot is as large as the largest of its members,
a symbolic maximum; the slots stand one after the other, so every offset is a sum of slot sizes and every size is a formula
of the dims. Which temporaries share is decided by evaluating candidates at sampled points of the contract: several orders
are tried, and the one whose workspace is smallest, relative to the largest live set, over all points is taken.

    a: n*1024 bytes, steps 0..1      slot 0: a, c      offset 0                  size max(n*1024, n*512) = n*1024
    b: n*4096 bytes, steps 1..2      slot 1: b         offset n*1024
    c: n*512 bytes,  steps 2..3      workspace n*5120
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product as combinations

from ..dtype import i64
from ..support.record import dataclass
from ..sym.expr import Const, Dim, Expr, Max, Var, free_vars
from ..sym.facts import Facts
from ..sym.prove import prove
from ..sym.semantics import evaluate
from ..sym.simplify import simplify

ALIGNMENT = 64
Point = dict[Var, int]


@dataclass(frozen=True, slots=True)
class Temporary:
    """Memory that a host program needs from step `first` to step `last`, both included."""

    bytes: Expr
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each temporary lies, and the size of it all, as formulas."""

    offsets: tuple[Expr, ...]  # for each temporary, in bytes
    slots: tuple[int, ...]  # for each temporary, the number of its slot
    size: Expr  # bytes


def aligned(size: Expr) -> Expr:
    """`size` rounded up to the alignment of the workspace."""
    return simplify((size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)


def plan_memory(temporaries: Sequence[Temporary], share: bool = True) -> Plan:
    """Assigns the temporaries to slots; each to one of its own where they do not `share`."""
    sizes = [aligned(t.bytes) for t in temporaries]
    points = sample_points(sizes)
    at_points = {size: [_at(size, point) for point in points] for size in dict.fromkeys(sizes)}
    values = [at_points[size] for size in sizes]
    members = _best(temporaries, values) if share else [[t] for t in range(len(temporaries))]
    offset: Expr = Const(0, i64)
    offsets: list[Expr] = [offset] * len(temporaries)
    slot_of = [0] * len(temporaries)
    for number, slot in enumerate(members):
        for t in slot:
            offsets[t], slot_of[t] = offset, number
        offset = simplify(offset + largest([sizes[t] for t in slot]))
    return Plan(tuple(offsets), tuple(slot_of), offset)


def largest(sizes: Iterable[Expr]) -> Expr:
    """The maximum of some sizes; those proven not above another one are left out."""
    kept: list[Expr] = []
    for size in dict.fromkeys(sizes):
        if any(prove(size <= other, Facts()) for other in kept):
            continue
        kept = [other for other in kept if not prove(other <= size, Facts())] + [size]
    result = kept[0]
    for size in kept[1:]:
        result = Max(result, size)
    return result


def sample_points(sizes: Sequence[Expr], limit: int = 32) -> list[Point]:
    """Points of the contract at which plans are compared: small, typical and large values of each dim, mixed."""
    dims = sorted({v for size in sizes for v in free_vars(size)}, key=lambda v: v.payload)
    choices = [_typical(d) for d in dims]
    count = 1
    for c in choices:
        count *= len(c)
    if count <= limit:
        return [dict(zip(dims, values, strict=True)) for values in combinations(*choices)]
    # Too many to take all: walk the choices with coprime strides, so that each value of each dim is met with several of the others.
    return [
        {d: c[(step * (2 * i + 1) + step // len(c)) % len(c)] for i, (d, c) in enumerate(zip(dims, choices, strict=True))}
        for step in range(limit)
    ]


def _typical(v: Var) -> list[int]:
    lo, hi, step = (v.min, v.max, v.multiple_of) if isinstance(v, Dim) else (0, 4096, 1)
    wanted = (1, 16, 128, 1024, 4096)
    rounded = {min(max(lo, -(-w // step) * step), hi // step * step) for w in wanted}
    return sorted(rounded)


def _at(size: Expr, point: Point) -> int:
    return int(evaluate(size, point))


def largest_live_set(temporaries: Sequence[Temporary], values: Sequence[int]) -> int:
    """The most memory that is alive at one step, which no plan can go below."""
    change: dict[int, int] = {}
    for t, v in zip(temporaries, values, strict=True):
        change[t.first] = change.get(t.first, 0) + v
        change[t.last + 1] = change.get(t.last + 1, 0) - v
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


@dataclass(slots=True)
class _Slot:
    """Temporaries that share memory: the steps at which one of them is alive, as bits, and their largest size at each point."""

    members: list[int]
    busy: int
    sizes: list[int]

    def add(self, t: int, steps: int, sizes: list[int]) -> None:
        self.members.append(t)
        self.busy |= steps
        self.sizes = list(map(max, self.sizes, sizes))

    def fit(self, sizes: list[int]) -> tuple[int, int]:
        """How much the slot would grow, and how much of it would be spare, over all points."""
        difference = [mine - have for mine, have in zip(sizes, self.sizes, strict=True)]
        return sum(d for d in difference if d > 0), -sum(d for d in difference if d < 0)


def _best(temporaries: Sequence[Temporary], values: list[list[int]]) -> list[list[int]]:
    """The assignment, of those that are tried, that wastes the least."""
    steps = [(1 << (t.last + 1)) - (1 << t.first) for t in temporaries]
    points = range(len(values[0]) if values else 0)
    least = [max(1, largest_live_set(temporaries, [v[p] for v in values])) for p in points]
    orders = [sorted(range(len(values)), key=lambda t: -values[t][p]) for p in points] + [list(range(len(values)))]
    unique = {tuple(o): o for o in orders}.values()
    made = [_assign(o, steps, values, tight) for o in unique for tight in (False, True)]
    return [slot.members for slot in min(made, key=lambda slots: _waste(slots, least))]


def _waste(slots: list[_Slot], least: list[int]) -> float:
    """The worst ratio, over the sampled points, of the plan's size to the largest live set; then the sum of them."""
    ratios = [sum(slot.sizes[p] for slot in slots) / size for p, size in enumerate(least)]
    return max(ratios, default=0.0) + sum(ratios) / 1e6


def _assign(order: Sequence[int], steps: list[int], values: list[list[int]], tight: bool) -> list[_Slot]:
    """Each temporary, in order, in the first slot that is free while it is alive, or in the one that it fits best."""
    slots: list[_Slot] = []
    for t in order:
        free = [slot for slot in slots if not slot.busy & steps[t]]
        if not free:
            slots.append(_Slot([t], steps[t], values[t]))
            continue
        chosen = min(free, key=lambda slot: slot.fit(values[t])) if tight else free[0]
        chosen.add(t, steps[t], values[t])
    return slots
