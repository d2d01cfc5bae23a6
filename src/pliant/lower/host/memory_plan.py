"""Memory planning by liveness: assigns each temporary of a host program an offset in one workspace, as a formula over the dims.

Temporaries with overlapping lifetimes must not overlap in memory. A plan is an order in which temporaries are stacked. Each one begins
above all earlier temporaries of the order that are alive together with it. So an offset is a maximum of sums of sizes, which is valid for
all values of the dims. Candidate orders come from packing the temporaries at sampled points of the contract, where sizes are numbers; the
order of the offsets there is a valid plan everywhere. The planner takes the order with the smallest workspace relative to the largest live
set, over all points.

    a: n*1024 bytes, steps 0..1      c above nothing      offset 0
    b: n*4096 bytes, steps 1..2      a above nothing      offset 0
    c: n*512 bytes,  steps 2..3      b above a, c         offset max(n*1024, n*512) = n*1024        workspace n*5120
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product as combinations
from typing import Any

import numpy as np

from ...dtype import i64
from ...support.record import dataclass
from ...sym.expr import Const, Dim, Expr, Max, Var, free_vars
from ...sym.facts import EMPTY, Facts
from ...sym.prove import prove
from ...sym.relations import facts_of
from ...sym.semantics import evaluate
from ...sym.simplify import simplify

ALIGNMENT = 64  # bytes: a cache line, and the widest vector (AVX-512), so no vector of an aligned temporary straddles two lines
Point = dict[Var, int]
Values = np.ndarray[Any, np.dtype[np.int64]]  # one number per sampled point
_ZERO = Const(0, i64)


@dataclass(frozen=True, slots=True)
class Temporary:
    """A record of a temporary: its size in bytes, and the first and last step of the host program in which it is alive."""

    bytes: Expr
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A memory plan: the offset of each temporary, and the size of the workspace, as formulas over the dims."""

    offsets: tuple[Expr, ...]  # for each temporary, in bytes
    size: Expr  # bytes


def aligned(size: Expr) -> Expr:
    """`size` rounded up to the alignment of the workspace."""
    return simplify((size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)


def plan_memory(temporaries: Sequence[Temporary], share: bool = True, relations: Sequence[Expr] = ()) -> Plan:
    """Returns the offset of each temporary in one workspace; those alive at the same time never overlap. Without `share` none overlap.

    `relations` are conditions between dims that hold in every call: a size that is never the larger one needs no room of its own.
    """
    sizes = [aligned(t.bytes) for t in temporaries]
    if not share:
        return _one_after_the_other(sizes)
    points = sample_points(sizes, relations)
    at_points = _at_points(list(dict.fromkeys(sizes)), points)
    near = _alive_together(temporaries)
    order = _best(temporaries, near, [at_points[size] for size in sizes])
    return _stacked(order, near, sizes, facts_of(relations))


def _one_after_the_other(sizes: Sequence[Expr]) -> Plan:
    ends: list[Expr] = [_ZERO]
    for size in sizes:
        ends.append(simplify(ends[-1] + size))
    return Plan(tuple(ends[:-1]), ends[-1])


def _stacked(order: Sequence[int], near: Sequence[set[int]], sizes: Sequence[Expr], facts: Facts) -> Plan:
    """Returns the plan in which temporaries are placed in this order, each above all earlier ones that are alive with it."""
    offsets: list[Expr] = [_ZERO] * len(sizes)
    ends: dict[int, Expr] = {}
    rank = {t: k for k, t in enumerate(order)}
    for t in order:
        below = [u for u in near[t] if u in ends]
        # A temporary below another one of `below` ends no higher than that one begins, so it cannot decide the maximum.
        highest = [u for u in below if not any(rank[w] > rank[u] and w in near[u] for w in below)]
        offsets[t] = largest([ends[u] for u in highest], facts) if highest else _ZERO
        ends[t] = simplify(offsets[t] + sizes[t])
    tops = [ends[t] for t in order if all(rank[u] < rank[t] for u in near[t])]
    return Plan(tuple(offsets), simplify(largest(tops, facts)) if tops else _ZERO)


def largest(sizes: Iterable[Expr], facts: Facts = EMPTY) -> Expr:
    """Returns the maximum of the sizes, without those that are provably not larger than another one."""
    candidates: list[Expr] = []
    for size in dict.fromkeys(sizes):
        if any(prove(size <= other, facts) for other in candidates):
            continue
        candidates = [other for other in candidates if not prove(other <= size, facts)] + [size]
    result = candidates[0]
    for size in candidates[1:]:
        result = Max(result, size)
    return result


def sample_points(sizes: Sequence[Expr], relations: Sequence[Expr] = (), limit: int = 36) -> list[Point]:
    """Returns at most `limit` points of the contract at which plans are compared: combinations of small, typical and large dims.

    Points that contradict `relations` are left out, unless all do.
    """
    points = _combined_points(sorted({v for size in sizes for v in free_vars(size)}, key=lambda v: v.payload), limit)
    known = [c for c in relations if points and free_vars(c) <= points[0].keys()]
    return [p for p in points if all(evaluate(c, p) for c in known)] or points


def _combined_points(dims: Sequence[Var], limit: int) -> list[Point]:
    """Returns combinations of typical values of the dims, at most `limit`."""
    choices = [_typical(d) for d in dims]
    count = 1
    for c in choices:
        count *= len(c)
    if count <= limit:
        return [dict(zip(dims, values, strict=True)) for values in combinations(*choices)]
    # Too many to take all: walk the choices with different odd strides, so that each value of a dim meets several values of the others.
    return [
        {d: c[(step * (2 * i + 1) + step // len(c)) % len(c)] for i, (d, c) in enumerate(zip(dims, choices, strict=True))}
        for step in range(limit)
    ]


def _typical(v: Var) -> list[int]:
    lo, hi, step = (v.min, v.max, v.multiple_of) if isinstance(v, Dim) else (0, 4096, 1)
    wanted = (1, 16, 64, 256, 1024, 4096)  # from a single row to long sequences; the contract clips them
    rounded = {min(max(lo, -(-w // step) * step), hi // step * step) for w in wanted}
    return sorted(rounded)


def _at_points(sizes: Sequence[Expr], points: Sequence[Point]) -> dict[Expr, Values]:
    """Returns the values of each size formula at all sampled points, as arrays."""
    env = {v: np.array([point[v] for point in points], np.int64) for v in points[0]}
    return {size: np.broadcast_to(np.asarray(evaluate(size, env), np.int64), (len(points),)) for size in sizes}


def largest_live_set(temporaries: Sequence[Temporary], values: Sequence[int]) -> int:
    """Returns the largest number of bytes alive at one step: a lower bound for every plan."""
    change: dict[int, int] = {}
    for t, v in zip(temporaries, values, strict=True):
        change[t.first] = change.get(t.first, 0) + v
        change[t.last + 1] = change.get(t.last + 1, 0) - v
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def _alive_together(temporaries: Sequence[Temporary]) -> list[set[int]]:
    """Returns for each temporary the set of temporaries whose lifetimes overlap with its own (the interference graph)."""
    near: list[set[int]] = [set() for _ in temporaries]
    alive: list[int] = []
    for t in sorted(range(len(temporaries)), key=lambda t: temporaries[t].first):
        alive = [u for u in alive if temporaries[u].last >= temporaries[t].first]
        for u in alive:
            near[t].add(u)
            near[u].add(t)
        alive.append(t)
    return near


def _best(temporaries: Sequence[Temporary], near: Sequence[set[int]], values: Sequence[Values]) -> list[int]:
    """Returns the candidate order that wastes least: smallest worst ratio of workspace to live set over the points, then smallest sum."""
    best: list[int] = []
    least_waste = (float("inf"), float("inf"))
    points = range(len(values[0]) if values else 0)
    least = np.array([max(1, largest_live_set(temporaries, [int(v[p]) for v in values])) for p in points])
    tried: set[tuple[int, ...]] = set()
    for p in points:
        sizes = [int(v[p]) for v in values]
        for first in _firsts(temporaries, sizes):
            order = _packed(first, near, sizes)
            if tuple(order) in tried:
                continue
            tried.add(tuple(order))
            ratios = _height(order, near, values) / least
            waste = float(ratios.max()), float(ratios.sum())
            if waste < least_waste:
                best, least_waste = order, waste
            if waste[0] <= 1:
                return best
    return best


def _firsts(temporaries: Sequence[Temporary], sizes: Sequence[int]) -> list[list[int]]:
    """Returns greedy packing orders: by peak memory during the lifetime (ties: longest-lived, or earliest), by size, by size x lifetime."""
    load = np.zeros(1 + max((t.last for t in temporaries), default=0), np.int64)
    for t, size in zip(temporaries, sizes, strict=True):
        load[t.first : t.last + 1] += size
    peak = [-int(load[t.first : t.last + 1].max()) for t in temporaries]
    life = [t.first - t.last for t in temporaries]
    everyone = range(len(sizes))
    return [
        sorted(everyone, key=lambda t: (peak[t], life[t], -sizes[t])),
        sorted(everyone, key=lambda t: (peak[t], temporaries[t].first)),
        sorted(everyone, key=lambda t: -sizes[t]),
        sorted(everyone, key=lambda t: sizes[t] * life[t]),
    ]


def _packed(order: Sequence[int], near: Sequence[set[int]], sizes: Sequence[int]) -> list[int]:
    """Best-fit packing: puts each temporary into the smallest gap that it fits into, else on top; returns them sorted by offset."""
    at: dict[int, int] = {}
    for t in order:
        top = 0
        gaps: list[tuple[int, int]] = []  # size, offset
        for low, high in sorted((at[u], at[u] + sizes[u]) for u in near[t] if u in at):
            if low - top >= sizes[t]:
                gaps.append((low - top, top))
            top = max(top, high)
        at[t] = min(gaps)[1] if gaps else top
    return sorted(order, key=at.__getitem__)


def _height(order: Sequence[int], near: Sequence[set[int]], values: Sequence[Values]) -> Values:
    """Returns the workspace size that an order of placement gives, at each of the sampled dims."""
    ends: dict[int, Values] = {}
    height = np.zeros_like(values[0])
    for t in order:
        offset = np.zeros_like(height)
        for u in near[t]:
            if u in ends:
                np.maximum(offset, ends[u], out=offset)
        ends[t] = offset + values[t]
        np.maximum(height, ends[t], out=height)
    return height
