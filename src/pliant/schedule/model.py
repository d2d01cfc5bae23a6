"""The analytic model: what every register tile of a sum of products would cost, term by term, all tiles at once.

    work = Product(rows=128, columns=1536, depth=384)
    model = Tiles.that_fit(target, most_rows=28)        # 74 tiles for 32 registers
    cost = model.cost(work, threads=2)                  # arrays: an entry for each tile
    cost.cycles.argmin()

The work is done as the rules do it (`library/matmul.py`): panels of some vectors of columns, shared out among threads; in a panel, tiles
of rows and a smaller tile for those that remain; in a tile, a step of the sum is `vectors` loads, `rows` broadcasts and
`rows * vectors` multiply-adds.

A term is the cycles that one thread would take if nothing else had to be done. What takes longest hides most of the rest, never all.
Rows of a that lie a large power of two apart meet in few sets of the first cache: where a tile has more of them than fit there, each
element is fetched with its whole line again.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ..support.record import dataclass
from ..target import Target
from ..target.throughput import Throughput, throughput

if TYPE_CHECKING:
    import numpy as np

UNHIDDEN = 0.1  # the part of every term but the longest that shows
ABOUT = 0.02  # what the model cannot tell apart
START = 12  # cycles to begin a tile and to leave it
WAYS = 8  # lines of a set of the first cache
PAGE = 4096  # bytes of a way: addresses this far apart share a set


@dataclass(frozen=True, slots=True)
class Product:
    """A sum of products: c[rows, columns] += a[rows, depth] * b[depth, columns], `batch` times; sizes of elements in bytes."""

    rows: int
    columns: int
    depth: int
    batch: int = 1
    size: int = 4  # of an element of the result, which vectors are made of
    wide: int = 4  # of an element of b


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


@dataclass(frozen=True, slots=True)
class Tiles:
    """Candidates: rows, and vectors of columns, of each tile."""

    target: Target
    rows: np.ndarray[Any, Any]
    vectors: np.ndarray[Any, Any]

    @staticmethod
    def that_fit(target: Target, most_rows: int = 28, most_vectors: int = 8, spare: int = 0) -> Tiles:
        """All tiles whose sums, with a vector of each column, one element of a and `spare` more, fit the registers."""
        import numpy as np

        rows, vectors = (x.ravel() for x in np.meshgrid(np.arange(1, most_rows + 1), np.arange(1, most_vectors + 1), indexing="ij"))
        fit = (rows * vectors + vectors + 1 + spare <= target.n_vector_registers) | ((rows == 1) & (vectors == 1))
        return Tiles(target, rows[fit], vectors[fit])

    def cost(self, work: Product, threads: int = 2) -> Cost:
        """The terms of each tile for this work."""
        import numpy as np

        rate, caches = throughput(self.target), self.target.caches
        lanes = self._lanes(work)
        columns = -(-work.columns // lanes)  # in vectors
        vectors = np.minimum(self.vectors, columns)
        rows = np.minimum(self.rows, max(work.rows, 1))
        panels, tiles = -(-columns // vectors), -(-work.rows // rows)
        units = np.where(work.batch * panels >= 2 * threads, work.batch * panels, work.batch * panels * tiles)
        busy = units / (threads * -(-units // threads))
        share = work.batch / threads / busy  # of the whole that the slowest thread does

        steps = _Steps(rate, rows, vectors, work.rows, columns)
        panel = work.depth * vectors * lanes * work.wide
        left = rows * work.depth * work.wide
        again = panels * np.maximum(tiles - 1, 0) * panel  # bytes of panels that are read once more
        whole_left = work.rows * work.depth * work.wide
        l2 = again * (panel + left > caches.l1) + panels * whole_left * self._refetched(rows, work)
        l3 = again * (panel + left > caches.l2) + panels * panel + panels * whole_left * (whole_left > caches.l2)
        edges = panels * tiles * (START + 2 * rows * vectors / rate.loads)
        compute, loads, latency = (t * work.depth * share for t in (steps.multiply_adds, steps.loads, steps.latency))
        l2, l3, edges = l2 / rate.l2 * share, l3 / rate.l3 * share, edges * share
        longest = np.maximum.reduce([compute, loads, latency, l2, l3])
        cycles = longest + UNHIDDEN * (compute + loads + latency + l2 + l3 - longest) + edges
        least = work.batch * work.rows * work.columns * work.depth / (lanes * rate.multiply_adds * threads)
        return Cost(compute, loads, latency, l2, l3, edges, busy, cycles, least)

    def _lanes(self, work: Product) -> int:
        return max(1, self.target.vector_bits // (8 * work.size))

    def _refetched(self, rows: np.ndarray[Any, Any], work: Product) -> np.ndarray[Any, Any]:
        """How many times what is read of a tile's rows comes from the second cache."""
        import numpy as np

        places = PAGE // math.gcd(work.depth * work.wide, PAGE)
        return np.where(rows > WAYS * places, self.target.caches.line // work.wide, 1)

    def best(self, works: tuple[Product, ...], threads: int = 2) -> int:
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
def choose_tile(
    target: Target, works: tuple[Product, ...], most_rows: int, most_vectors: int = 8, spare: int = 0, threads: int = 2
) -> Choice:
    """The fastest register tile for the works in the mean; its terms are those of the last work."""
    tiles = Tiles.that_fit(target, most_rows, most_vectors, spare)
    n = tiles.best(works, threads)
    cost = tiles.cost(works[-1], threads)
    rows, vectors = int(tiles.rows[n]), int(tiles.vectors[n])
    share = {name: float(term[n]) / float(cost.cycles[n]) for name, term in zip(Cost._fields[:6], cost[:6], strict=True)}
    terms = ", ".join(f"{name} {part:.0%}" for name, part in share.items())
    work, used = works[-1], rows * vectors + vectors + 1
    text = (
        f"by the model the best of {len(tiles.rows)} tiles: {used} of {target.n_vector_registers} registers, for"
        f" {work.rows}x{work.columns}x{work.depth} on {threads} threads {cost.least / float(cost.cycles[n]):.0%} of the multiply-add rate"
        f" ({terms}, threads busy {float(cost.busy[n]):.0%})"
    )
    return Choice(rows, vectors, text)


class _Steps:
    """What a step of the sum costs for all tiles of the work together, the smaller ones at both ends too."""

    def __init__(self, rate: Throughput, rows: Any, vectors: Any, all_rows: int, all_vectors: int) -> None:
        self.multiply_adds, self.loads, self.latency = 0.0, 0.0, 0.0
        for r, many_rows in ((rows, all_rows // rows), (all_rows % rows, 1)):
            for v, many_vectors in ((vectors, all_vectors // vectors), (all_vectors % vectors, 1)):
                many = many_rows * many_vectors * ((r > 0) & (v > 0))
                self.multiply_adds += many * r * v / rate.multiply_adds
                self.loads += many * (v / rate.loads + r / rate.broadcasts)
                self.latency += many * rate.latency
