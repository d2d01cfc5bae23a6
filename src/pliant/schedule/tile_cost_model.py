"""Analytic cost model for register tiles of products and convolutions: the cycles of every candidate tile, term by term (a roofline).

    work = Gemm(rows=128, columns=1536, depth=384)
    model = Tiles.that_fit(target, work)                # 74 tiles for 32 registers
    cost = model.cost(work, threads=2)                  # arrays: an entry for each tile
    cost.cycles.argmin()

The model follows how the rules run a workload (`workloads.py`, `library/`): panels of some vectors of columns and tiles of rows, smaller
ones for the remainders, shared out among threads. In a tile, a step of the sum loads vectors and single elements, and does
`rows * vectors` multiply-adds.

Each term is the cycles that one thread would take if nothing else had to be done. The longest term hides most of the others, never all.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..support.record import dataclass
from ..target import Target
from ..target.throughput import Throughput, throughput
from .workloads import Gemm, Tiling

if TYPE_CHECKING:
    import numpy as np

# Constants of the model. They affect only the default tile, not which tiles are legal.
UNHIDDEN = 0.1  # share of every term but the longest that out-of-order execution does not hide
ABOUT = 0.02  # relative difference of cycles below which the model treats tiles as equal
START = 12  # cycles to enter and leave a tile


class Cost(NamedTuple):
    """The estimated cycles of one thread for each candidate tile, as arrays by term; `busy` is the used share of the threads' time."""

    compute: np.ndarray[Any, Any]  # multiply-adds
    loads: np.ndarray[Any, Any]  # loads from the L1 cache
    latency: np.ndarray[Any, Any]  # each sum waits for its own previous multiply-add
    l2: np.ndarray[Any, Any]  # transfers from the L2 into the L1 cache
    l3: np.ndarray[Any, Any]  # transfers from the L3 into the L2 cache
    edges: np.ndarray[Any, Any]  # starting tiles and writing them back
    busy: np.ndarray[Any, Any]
    cycles: np.ndarray[Any, Any]
    least: float  # lower bound: multiply-adds alone, on all threads


class Sizes(NamedTuple):
    """The candidate numbers of rows, and of vectors of columns, for a register tile."""

    rows: Sequence[int]
    vectors: Sequence[int]


ANY = Sizes(range(1, 29), range(1, 9))  # up to 28 rows of one vector: with two more registers they fill the 32 of the largest machines


@dataclass(frozen=True, slots=True)
class Tiles:
    """Candidate register tiles as two arrays: the rows, and the vectors of columns, of each."""

    target: Target
    rows: np.ndarray[Any, Any]
    vectors: np.ndarray[Any, Any]

    @staticmethod
    def that_fit(target: Target, work: Gemm, sizes: Sizes = ANY, spare: int = 0) -> Tiles:
        """Return all tiles of some sizes whose registers, plus `spare`, fit the machine; at least the smallest tile."""
        import numpy as np

        rows, vectors = (x.ravel() for x in np.meshgrid(sizes.rows, sizes.vectors, indexing="ij"))
        needed = work.registers(rows, vectors) + spare
        fit = needed <= max(target.n_vector_registers, int(needed.min()))
        return Tiles(target, rows[fit], vectors[fit])

    def cost(self, work: Gemm, threads: int = 2) -> Cost:
        """Estimate the cycles of every candidate tile for a workload on this machine."""
        import numpy as np

        rate, lanes = throughput(self.target), self._lanes(work)
        columns = -(-work.columns // lanes)  # in vectors
        vectors, rows = np.minimum(self.vectors, columns), np.minimum(self.rows, max(work.rows, 1))
        tiling = Tiling(rows, vectors, -(-columns // vectors), -(-work.rows // rows), lanes * work.wide)
        units = work.units(tiling, threads)
        busy = units / (threads * -(-units // threads))
        share = work.batch / threads / busy  # of the whole that the slowest thread does

        steps, moved = _Steps(rate, tiling, work, columns), work.traffic(tiling, self.target.caches)
        compute, loads, latency = (t * work.depth * share for t in (steps.multiply_adds, steps.loads, steps.latency))
        l2, l3 = moved.l2 / rate.l2 * share, moved.l3 / rate.l3 * share
        edges = tiling.panels * tiling.tiles * (START + 2 * rows * vectors / rate.loads) * share
        longest = np.maximum.reduce([compute, loads, latency, l2, l3])
        cycles = longest + UNHIDDEN * (compute + loads + latency + l2 + l3 - longest) + edges
        least = work.batch * work.rows * work.columns * work.depth / (lanes * rate.multiply_adds * threads)
        return Cost(compute, loads, latency, l2, l3, edges, busy, cycles, least)

    def _lanes(self, work: Gemm) -> int:
        return max(1, self.target.vector_bits // (8 * work.size))

    def best(self, works: tuple[Gemm, ...], threads: int = 2) -> int:
        """Return the index of the tile that is fastest in the mean over workloads, each relative to its lower bound.

        Of tiles that are about as fast, it is one without a narrower last panel, then the largest, then the one of most vectors.
        """
        import numpy as np

        costs = [self.cost(w, threads) for w in works]
        slower = sum(c.cycles / max(c.least, 1e-9) for c in costs)
        assert isinstance(slower, np.ndarray)
        # Among tiles about as good as the best, prefer one without a narrower last panel, which needs code of its own; then the largest.
        good = np.flatnonzero(slower <= slower.min() * (1 + ABOUT))

        def merit(n: int) -> tuple[bool, int, int]:
            rows, vectors = int(self.rows[n]), int(self.vectors[n])
            return all(w.columns % (vectors * self._lanes(w)) == 0 for w in works), rows * vectors, vectors

        return max(good.tolist(), key=merit)


@dataclass(frozen=True, slots=True)
class Choice:
    """A record of the register tile that the cost model chooses, and text that names the deciding terms."""

    rows: int
    vectors: int
    text: str


@functools.lru_cache(maxsize=256)  # variants of a kernel, and kernels of similar layers, ask the same question
def choose_tile(target: Target, works: tuple[Gemm, ...], sizes: Sizes = ANY, spare: int = 0, threads: int = 2) -> Choice:
    """Return the fastest register tile in the mean over the workloads, among those that fit the registers.

    Its text shows the terms of the last one.
    """
    tiles = Tiles.that_fit(target, works[-1], sizes, spare)
    n = tiles.best(works, threads)
    cost = tiles.cost(works[-1], threads)
    rows, vectors = int(tiles.rows[n]), int(tiles.vectors[n])
    share = {name: float(term[n]) / float(cost.cycles[n]) for name, term in zip(Cost._fields[:6], cost[:6], strict=True)}
    terms = ", ".join(f"{name} {part:.0%}" for name, part in share.items())
    work = works[-1]
    among = f"the best of {len(tiles.rows)} tiles" if len(tiles.rows) > 1 else "the only tile"
    times = f", {work.batch} times," if work.batch > 1 else ""
    text = (
        f"by the model {among}: {work.registers(rows, vectors)} of {target.n_vector_registers} registers, for"
        f" {work.rows}x{work.columns}x{work.depth}{times} on {threads} threads {cost.least / float(cost.cycles[n]):.0%} of the"
        f" multiply-add rate ({terms}, threads busy {float(cost.busy[n]):.0%})"
    )
    return Choice(rows, vectors, text)


def legal_tiles(target: Target, work: Gemm, sizes: Sizes = ANY, spare: int = 0) -> tuple[tuple[int, int], ...]:
    """Return rows and vectors of all tiles of some sizes whose registers, plus `spare`, fit the machine; at least the smallest tile."""
    needed = {(r, v): work.registers(r, v) + spare for r in sizes.rows for v in sizes.vectors}
    room = max(target.n_vector_registers, min(needed.values()))
    return tuple(tile for tile, registers in needed.items() if registers <= room)


PLAIN_SUMS = 8  # most sums of a plain tile: as many hide the latency of two FMA units


def plain_tile(tiles: Sequence[tuple[int, int]], rows: int | None, vectors: int | None) -> tuple[int, int] | None:
    """Return the tile of a domain for `effort="fast"`: the largest that needs one body, because it leaves no remainder.

    A tile has at most PLAIN_SUMS sums. `rows` and `vectors` are the size of the result; None if it is dynamic. A domain has for a dynamic
    number of vectors only those counts that divide it, and for dynamic rows only one row leaves no remainder. Return None if the domain has
    no such tile.
    """
    whole = [
        (r, v)
        for r, v in tiles
        if r * v <= PLAIN_SUMS and (r == 1 or (rows is not None and rows % r == 0)) and (v == 1 or vectors is None or vectors % v == 0)
    ]
    return max(whole, key=lambda tile: (tile[0] * tile[1], tile[1]), default=None)


class _Steps:
    """The estimated cycles of one step of the sum, over all tiles of a workload together, the smaller tiles at both ends included."""

    def __init__(self, rate: Throughput, tiling: Tiling, work: Gemm, columns: int) -> None:
        rows, vectors, *_, width = tiling
        self.multiply_adds, self.loads, self.latency = 0.0, 0.0, 0.0
        for r, many_rows in ((rows, work.rows // rows), (work.rows % rows, 1)):
            for v, many_vectors in ((vectors, columns // vectors), (columns % vectors, 1)):
                many = many_rows * many_vectors * ((r > 0) & (v > 0))
                whole, single = work.loads(r, v, width)
                self.multiply_adds += many * r * v / rate.multiply_adds
                self.loads += many * (whole / rate.loads + single / rate.broadcasts)
                self.latency += many * rate.latency
