"""Workloads of the tile cost model (GEMM, convolution over channels or over a row, sliding window): what a tile of each reads from where.

    Gemm(rows=128, columns=1536, depth=384)                                # c[i, j] += a[i, k] * b[k, j]
    ConvOverChannels(rows=56, columns=64, depth=576, batch=56, taps=9)     # y[p, q, j] += x[c, p + a, q + b] * w[c, a, b, j], lanes are j
    ConvOverRow(rows=16, columns=160, depth=144, batch=160, taps=9)        # the same with lanes along q
    SlidingWindow(rows=112, columns=112, depth=9, batch=32, reach=3)       # y[c, p, q] += x[c, p + a, q + b] * w[c, a, b]

A tile has some rows by some vectors of columns. Methods take arrays with an entry for each tile, and return values for one batch: one of
many products, a row of an image, or an image. The analytic model (`tile_cost_model.py`) turns them into cycles.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..support.record import dataclass
from ..target.machine import Caches

WAYS = 8  # associativity of the L1 cache, assumed for all machines
PAGE = 4096  # bytes in one way of the L1 cache: addresses this far apart share a set
LINE = 64  # bytes of a cache line
Numbers = Any  # an array with an entry for each tile


class Tiling(NamedTuple):
    """A workload cut into tiles: rows and vectors of a tile, panels, row tiles per panel, and the bytes of b in one vector of columns."""

    rows: Numbers
    vectors: Numbers
    panels: Numbers
    tiles: Numbers
    width: int


class Traffic(NamedTuple):
    """The cache traffic of a workload in bytes: from the L2 into the L1 cache, and from the L3 into the L2 cache."""

    l2: Numbers
    l3: Numbers


@dataclass(frozen=True, slots=True)
class Gemm:
    """A matrix product c[rows, columns] += a[rows, depth] * b[depth, columns], `batch` times; element sizes in bytes.

    Threads share panels, and also tiles of rows if panels are few. Rows of a that are a large power of two apart map to few sets of the L1
    cache. If a tile has more of them than fit there, each element fetches its whole cache line again.
    """

    rows: int
    columns: int
    depth: int
    batch: int = 1
    size: int = 4  # bytes of an element of the result; vectors hold such elements
    wide: int = 4  # bytes of an element of b

    def registers(self, rows: Numbers, vectors: Numbers) -> Numbers:
        """Return the registers of a tile: its sums, one vector of b per column vector, and one broadcast element of a."""
        return rows * vectors + vectors + 1

    def loads(self, rows: Numbers, vectors: Numbers, width: int) -> tuple[Numbers, Numbers]:
        """Return the loads of vectors (of `width` bytes), and of single elements, in a step of a tile's sum."""
        return vectors, rows

    def units(self, t: Tiling, threads: int) -> Numbers:
        """Return the number of work items that threads share: panels, or tiles if there are few panels."""
        import numpy as np

        panels = self.batch * t.panels
        return np.where(panels >= 2 * threads, panels, panels * t.tiles)

    def traffic(self, t: Tiling, caches: Caches) -> Traffic:
        """Return the cache traffic: all tiles of a panel read that panel, and every panel reads the rows of a."""
        import numpy as np

        panel, left, whole = self.depth * t.vectors * t.width, t.rows * self.depth * self.wide, self.rows * self.depth * self.wide
        again = t.panels * np.maximum(t.tiles - 1, 0) * panel
        places = PAGE // math.gcd(self.depth * self.wide, PAGE)
        lines = np.where(t.rows > WAYS * places, caches.line // self.wide, 1)
        l2 = again * (panel + left > caches.l1) + t.panels * whole * lines
        l3 = again * (panel + left > caches.l2) + t.panels * panel + t.panels * whole * (whole > caches.l2)
        return Traffic(l2, l3)


@dataclass(frozen=True, slots=True)
class ConvOverChannels(Gemm):
    """A convolution with channels as lanes: rows are neighbors in an image row, a batch is an image row, b are the weights of all batches.

    Threads share panels and image rows; all rows of a panel run before the next panel. Each input element is reused by `taps` products.
    """

    taps: int = 1

    def units(self, t: Tiling, threads: int) -> Numbers:
        """Return the number of work items that threads share: image rows, for each panel."""
        return self.batch * t.panels

    def traffic(self, t: Tiling, caches: Caches) -> Traffic:
        """Return the cache traffic: every tile of every batch reads the panel of weights, which comes from the L3 cache once."""
        panel, image = self.depth * t.vectors * t.width, self.rows * self.depth * self.wide / self.taps
        window = t.rows * self.depth * self.wide / self.taps
        l2 = t.panels * t.tiles * panel * (panel + window > caches.l1) + t.panels * image
        l3 = t.panels * panel * (1 / self.batch + t.tiles * (panel > caches.l2)) + t.panels * image * (image * self.batch > caches.l2)
        return Traffic(l2, l3)


@dataclass(frozen=True, slots=True)
class ConvOverRow(Gemm):
    """A convolution with lanes along an image row: rows are channels, a their weights, b the part of the image.

    Threads share tiles of channels and image rows; all vectors of a row use the same weights. Unaligned vectors straddle two cache lines,
    and `stride` loads make one strided vector.
    """

    taps: int = 1
    stride: int = 1

    def loads(self, rows: Numbers, vectors: Numbers, width: int) -> tuple[Numbers, Numbers]:
        """Return the loads: unaligned vectors of the image, and one weight for each channel."""
        return vectors * self.stride * across(width), rows

    def units(self, t: Tiling, threads: int) -> Numbers:
        """Return the number of work items that threads share: image rows, for each tile of channels."""
        return self.batch * t.tiles

    def traffic(self, t: Tiling, caches: Caches) -> Traffic:
        """Return the cache traffic: every tile reads its part of the image, and every batch all weights."""
        part = self.depth * t.panels * t.vectors * t.width * self.stride / self.taps
        weights = t.rows * self.depth * self.wide
        outside = part + weights > caches.l1
        l2 = t.tiles * (part + weights) * outside + part
        l3 = part * (part > caches.l2) * t.tiles + part
        return Traffic(l2, l3)


@dataclass(frozen=True, slots=True)
class SlidingWindow(Gemm):
    """A reduction over windows that overlap along rows; a batch is an image or a row of NCHWc channel blocks; `depth` is the window's size.

    A window covers `reach` rows, and the next one begins `stride` rows further. Rows that windows share are loaded once. If registers run
    out, they are reloaded from the stack, which costs no more.
    """

    reach: int = 1
    stride: int = 1
    anywhere: bool = True  # loads are unaligned

    def loads(self, rows: Numbers, vectors: Numbers, width: int) -> tuple[Numbers, Numbers]:
        """Return the loads per step: vectors of all rows that a tile's windows cover, and one weight."""
        covered = ((rows - 1) * self.stride + self.reach) / self.reach
        return vectors * covered * (across(width) if self.anywhere else 1), 1

    def units(self, t: Tiling, threads: int) -> Numbers:
        """Return the number of work items that threads share: tiles of rows."""
        return self.batch * t.tiles

    def traffic(self, t: Tiling, caches: Caches) -> Traffic:
        """Return the cache traffic: the rows that a tile's windows cover; each image row comes from the L3 cache once."""
        row = t.panels * t.vectors * t.width
        return Traffic(t.tiles * ((t.rows - 1) * self.stride + self.reach) * row, self.rows * self.stride * row)


def across(width: int) -> float:
    """Return the expected cache-line accesses of an unaligned load of `width` bytes: 1 plus the chance of straddling a line."""
    return 1 + min(width / LINE, 1)
