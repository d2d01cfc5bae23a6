"""The analytic model: what every register tile of a sum of products would cost, term by term, all tiles at once.

    work = Product(rows=128, columns=1536, depth=384)
    model = Tiles.that_fit(target, work)                # 74 tiles for 32 registers
    cost = model.cost(work, threads=2)                  # arrays: an entry for each tile
    cost.cycles.argmin()

The work (`workloads.py`: products, convolutions, windows) is done as the rules do it (`library/`): panels of some vectors of columns and
tiles of rows, with smaller ones for what remains, shared out among threads; in a tile, a step of the sum is loads of vectors and of single
elements, and `rows * vectors` multiply-adds.

A term is the cycles that one thread would take if nothing else had to be done. What takes longest hides most of the rest, never all.
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

# Terms of the model: they choose the default of a tile, and none of the tiles that others may ask for.
UNHIDDEN = 0.1  # the part of every term but the longest that shows
ABOUT = 0.02  # what the model cannot tell apart
START = 12  # cycles to begin a tile and to leave it


class Cost(NamedTuple):
    """Cycles of one thread for each tile, by term; `cycles` is what they come to, `busy` the share of the threads' time that is used."""

    compute: np.ndarray[Any, Any]  # multiply-adds
    loads: np.ndarray[Any, Any]  # what the sum's steps load from the first cache
    latency: np.ndarray[Any, Any]  # sums that wait for themselves
    l2: np.ndarray[Any, Any]  # bytes from the second cache into the first
    l3: np.ndarray[Any, Any]
    edges: np.ndarray[Any, Any]  # beginning tiles, and writing them
    busy: np.ndarray[Any, Any]
    cycles: np.ndarray[Any, Any]
    least: float  # multiply-adds alone, on all threads


class Sizes(NamedTuple):
    """The numbers of rows, and of vectors, that a tile may have."""

    rows: Sequence[int]
    vectors: Sequence[int]


ANY = Sizes(range(1, 29), range(1, 9))


@dataclass(frozen=True, slots=True)
class Tiles:
    """Candidates: rows, and vectors of columns, of each tile."""

    target: Target
    rows: np.ndarray[Any, Any]
    vectors: np.ndarray[Any, Any]

    @staticmethod
    def that_fit(target: Target, work: Gemm, sizes: Sizes = ANY, spare: int = 0) -> Tiles:
        """All tiles of some sizes whose sums, with what a step needs besides and `spare` more, fit the registers; at least the smallest."""
        import numpy as np

        rows, vectors = (x.ravel() for x in np.meshgrid(sizes.rows, sizes.vectors, indexing="ij"))
        needed = work.registers(rows, vectors) + spare
        fit = needed <= max(target.n_vector_registers, int(needed.min()))
        return Tiles(target, rows[fit], vectors[fit])

    def cost(self, work: Gemm, threads: int = 2) -> Cost:
        """The terms of each tile for this work."""
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
        """The tile that is the fastest in the mean over works, each weighed by the least time it could take."""
        import numpy as np

        costs = [self.cost(w, threads) for w in works]
        slower = sum(c.cycles / max(c.least, 1e-9) for c in costs)
        assert isinstance(slower, np.ndarray)
        # Of tiles about as good as the best: one that leaves no narrower panel, which would need code of its own; then the largest.
        good = np.flatnonzero(slower <= slower.min() * (1 + ABOUT))

        def merit(n: int) -> tuple[bool, int, int]:
            rows, vectors = int(self.rows[n]), int(self.vectors[n])
            return all(w.columns % (vectors * self._lanes(w)) == 0 for w in works), rows * vectors, vectors

        return max(good.tolist(), key=merit)


@dataclass(frozen=True, slots=True)
class Choice:
    """The tile that the model takes, and the terms that decided."""

    rows: int
    vectors: int
    text: str


@functools.lru_cache(maxsize=256)  # variants of a kernel, and kernels of like layers, ask the same
def choose_tile(target: Target, works: tuple[Gemm, ...], sizes: Sizes = ANY, spare: int = 0, threads: int = 2) -> Choice:
    """The fastest register tile for the works in the mean; its terms are those of the last work."""
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
    """Rows and vectors of all tiles of some sizes that fit the registers: those among which the model chooses."""
    needed = {(r, v): work.registers(r, v) + spare for r in sizes.rows for v in sizes.vectors}
    room = max(target.n_vector_registers, min(needed.values()))
    return tuple(tile for tile, registers in needed.items() if registers <= room)


class _Steps:
    """What a step of the sum costs for all tiles of the work together, the smaller ones at both ends too."""

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
