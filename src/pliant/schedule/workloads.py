"""What register tiles are chosen for: sums of products of four kinds, what a tile of each reads, and from which cache.

    Product(rows=128, columns=1536, depth=384)                          # c[i, j] += a[i, k] * b[k, j]
    Channels(rows=56, columns=64, depth=576, batch=56, taps=9)          # y[p, q, j] += x[c, p + a, q + b] * w[c, a, b, j], lanes are j
    Neighbors(rows=16, columns=160, depth=144, batch=160, taps=9)      # the same with lanes along q
    Overlapping(rows=112, columns=112, depth=9, batch=32, reach=3)      # y[c, p, q] += x[c, p + a, q + b] * w[c, a, b]

A tile has some rows by some vectors of columns. Methods take arrays with an entry for each tile, and answer for one batch: a product of
many, an image's row, an image. The analytic model (`tile_cost_model.py`) makes cycles of that.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..support.record import dataclass
from ..target.machine import Caches

WAYS = 8  # lines of a set of the first cache
PAGE = 4096  # bytes of a way: addresses this far apart share a set
LINE = 64
Numbers = Any  # an array with an entry for each tile


class Tiling(NamedTuple):
    """The work in tiles: rows and vectors of a tile, panels of vectors, tiles of rows in a panel; bytes of a vector's columns of b."""

    rows: Numbers
    vectors: Numbers
    panels: Numbers
    tiles: Numbers
    width: int


class Traffic(NamedTuple):
    """Bytes that come from the second cache into the first, and from the third into the second."""

    l2: Numbers
    l3: Numbers


@dataclass(frozen=True, slots=True)
class Gemm:
    """A sum of products: c[rows, columns] += a[rows, depth] * b[depth, columns], `batch` times; sizes of elements in bytes.

    Panels are shared out among threads, and tiles of rows too where panels are few. Rows of a that lie a large power of two apart meet in
    few sets of the first cache: where a tile has more of them than fit there, each element is fetched with its whole line again.
    """

    rows: int
    columns: int
    depth: int
    batch: int = 1
    size: int = 4  # of an element of the result, which vectors are made of
    wide: int = 4  # of an element of b

    def registers(self, rows: Numbers, vectors: Numbers) -> Numbers:
        """The registers of a tile: its sums, a vector of each column, one element of a."""
        return rows * vectors + vectors + 1

    def loads(self, rows: Numbers, vectors: Numbers, width: int) -> tuple[Numbers, Numbers]:
        """The vectors of `width` bytes, and the single elements, that a step of a tile's sum loads."""
        return vectors, rows

    def units(self, t: Tiling, threads: int) -> Numbers:
        """How many parts of the whole threads can take."""
        import numpy as np

        panels = self.batch * t.panels
        return np.where(panels >= 2 * threads, panels, panels * t.tiles)

    def traffic(self, t: Tiling, caches: Caches) -> Traffic:
        """A panel is read by all of its tiles, the rows of a for every panel."""
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
    """A convolution whose lanes are channels: rows are neighbors of an image's row, a batch is such a row, b the weights of all batches.

    Threads share panels and rows of images; those of one panel come one after the other. An element of the image is in `taps` products.
    """

    taps: int = 1

    def units(self, t: Tiling, threads: int) -> Numbers:
        """Rows of images, for each panel."""
        return self.batch * t.panels

    def traffic(self, t: Tiling, caches: Caches) -> Traffic:
        """A panel of weights is read by every tile of every batch, but once from the third cache."""
        panel, image = self.depth * t.vectors * t.width, self.rows * self.depth * self.wide / self.taps
        window = t.rows * self.depth * self.wide / self.taps
        l2 = t.panels * t.tiles * panel * (panel + window > caches.l1) + t.panels * image
        l3 = t.panels * panel * (1 / self.batch + t.tiles * (panel > caches.l2)) + t.panels * image * (image * self.batch > caches.l2)
        return Traffic(l2, l3)


@dataclass(frozen=True, slots=True)
class ConvOverRow(Gemm):
    """A convolution whose lanes are neighbors of an image's row: rows are channels, a their weights, b the part of the image.

    Threads share tiles of channels and rows of images; all vectors of a row are done with the same weights. Vectors that begin at
    any element lie across two lines, and `stride` of them are read for one.
    """

    taps: int = 1
    stride: int = 1

    def loads(self, rows: Numbers, vectors: Numbers, width: int) -> tuple[Numbers, Numbers]:
        """Vectors of the image, wherever they begin; an element of the weights for each channel."""
        return vectors * self.stride * across(width), rows

    def units(self, t: Tiling, threads: int) -> Numbers:
        """Rows of images, for each tile of channels."""
        return self.batch * t.tiles

    def traffic(self, t: Tiling, caches: Caches) -> Traffic:
        """The part of the image is read for every tile, all weights for every batch."""
        part = self.depth * t.panels * t.vectors * t.width * self.stride / self.taps
        weights = t.rows * self.depth * self.wide
        outside = part + weights > caches.l1
        l2 = t.tiles * (part + weights) * outside + part
        l3 = part * (part > caches.l2) * t.tiles + part
        return Traffic(l2, l3)


@dataclass(frozen=True, slots=True)
class SlidingWindow(Gemm):
    """A reduction of windows whose rows have parts in common; a batch is an image, a row of blocks of channels; `depth` elements are one.

    A window reaches over `reach` rows, the next one begins `stride` further. What rows have in common is loaded once; where there is
    no register for it any more it is so from the stack, which costs no more.
    """

    reach: int = 1
    stride: int = 1
    anywhere: bool = True  # vectors begin at any element

    def loads(self, rows: Numbers, vectors: Numbers, width: int) -> tuple[Numbers, Numbers]:
        """The vectors of all rows that a tile's windows cover, and a weight, of each step."""
        covered = ((rows - 1) * self.stride + self.reach) / self.reach
        return vectors * covered * (across(width) if self.anywhere else 1), 1

    def units(self, t: Tiling, threads: int) -> Numbers:
        """Tiles of rows."""
        return self.batch * t.tiles

    def traffic(self, t: Tiling, caches: Caches) -> Traffic:
        """The rows that a tile's windows cover; each row of the image once from the third cache."""
        row = t.panels * t.vectors * t.width
        return Traffic(t.tiles * ((t.rows - 1) * self.stride + self.reach) * row, self.rows * self.stride * row)


def across(width: int) -> float:
    """Loads that a vector of so many bytes is which begins at any element: one more where it lies across two lines."""
    return 1 + min(width / LINE, 1)
