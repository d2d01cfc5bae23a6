"""How large the tiles of sums are that are kept in registers: rows, and vectors.

tile_size(target, rows=56, vectors=4)      # Tile(14, 2)
"""

from __future__ import annotations

from ...support.record import dataclass
from ...target import Target

DYNAMIC_ROWS = 4  # the most neighbours in a tile where their number is not known: there is a body for each smaller tile, too
LATENCY = 8  # so many sums have to be in flight


@dataclass(frozen=True, slots=True)
class Tile:
    """Neighbours, and vectors of columns, whose sums are in registers together."""

    rows: int
    vectors: int


def tile_size(target: Target, rows: int | None, vectors: int, most_rows: int = 28) -> Tile:
    """The tile that is the least work in all."""
    sums = 28 if target.n_vector_registers >= 32 else 12 if target.n_vector_registers >= 16 else 4
    most = DYNAMIC_ROWS if rows is None else min(max(rows, 1), most_rows)
    tiles = [Tile(r, v) for v in range(1, min(4, vectors) + 1) for r in range(1, min(sums // v, most) + 1)]
    return min(tiles, key=lambda t: (_work(10 * DYNAMIC_ROWS if rows is None else rows, vectors, t), -t.rows))


def _work(rows: int, vectors: int, tile: Tile) -> int:
    """What a step of the sum costs for all tiles together, the smaller ones at both ends too."""
    return sum(
        many_rows * many_vectors * (1 + max(r * v, r + v, LATENCY))
        for r, many_rows in ((tile.rows, rows // tile.rows), (rows % tile.rows, 1))
        for v, many_vectors in ((tile.vectors, vectors // tile.vectors), (vectors % tile.vectors, 1))
        if r and v
    )
