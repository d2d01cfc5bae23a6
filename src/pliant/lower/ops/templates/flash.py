"""The core of flash attention (online softmax), in pieces: of the operator (`attention.py`) and of the paged KV cache (`llm/paged.py`).

Keys are visited in *tiles* of 64, and four tiles are a *range*. For the R rows that share keys (queries, and query heads of one KV head)
the result of a range is a *part*: accumulators, maxima and sums. Parts are merged in order, so the score matrix is never in memory:

    scores[R, 256] = q[R, :] @ keys[:, 256]        `dot_products`: a register tile for each group of columns; its user scales and masks
    best = max(scores);  p = exp(scores - best);  total = sum(p)                           `softmax_of_range`
    acc[R, :] = p @ values                         `add_weighted_values`: a register tile for each group of columns
    merged: top = the larger best; acc and total of both, times exp(best - top), are added         `merge_part`
    out[R, :] = acc / total                        `write_results`: zeros (or NaN) where nothing is seen

Tiles and ranges have fixed positions, and a row is computed by the same operations in a register tile and alone. A masked key has the score
-inf and adds an exact zero, and so does a part in which a row sees no key. So results depend neither on the other rows, nor on
which ranges are visited beside those that a row sees, nor on the number of threads. The sign of a zero result is cleared, because it
could depend on how many zeros were added.

The user of a piece says where things are. `query(r, d)`, `key(d, x)`, `weight(r, k)` and `value(k, x)` are expressions, `put` stores a
result, and buffers have leading indices of their own (`at`, a tuple). FLOAT is the type of all sums, EXP is the exponential: `exp`, or the
quicker `decay`.
"""

from __future__ import annotations

from typing import Any

from ....loop.inline import inline
from ....loop.script import alloc, unroll, vector
from ....sym.script import inf, muladd, select

TILE = 64  # keys of a tile; `_quarters` relies on its being four times LANES
RANGE = 4  # tiles of a range: the scores of 6 rows are 6 KiB, which stay in the L1 cache; in decoding a range is a unit of parallel work
LANES = 16  # width of the reductions of a row: f32 lanes of an AVX-512 vector
ROWS = (
    6  # rows of a register tile: 6 x 64 sums are 24 of 32 AVX-512 registers, 6 x 16 sums 12 of 16 AVX2 registers (`narrow_register_tiles`)
)


@inline
def dot_products(R: int, D: int, COLUMNS: int, FLOAT: Any, groups: Any, query: Any, key: Any, put: Any) -> None:
    """Calls `put(r, x, q[r, :] @ keys[:, x])` for the first `groups` groups of COLUMNS keys of a tile."""
    for c in range(groups):
        dots = alloc((R, COLUMNS), FLOAT, scope="register")
        for r in unroll(R):
            for x in vector(COLUMNS):
                dots[r, x] = 0.0
        for d in range(D):
            for r in unroll(R):
                for x in vector(COLUMNS):
                    dots[r, x] = muladd(query(r, d), key(d, c * COLUMNS + x), dots[r, x])
        for r in unroll(R):
            for x in vector(COLUMNS):
                put(r, c * COLUMNS + x, dots[r, x])


@inline
def softmax_of_range(R: int, EXP: Any, start: Any, stop: Any, score: Any, of: Any, lanes: Any, best: Any, total: Any, at: Any) -> None:
    """Replaces `score[*of, r, j, x]` by exp(score - maximum) for the tiles j in start..stop; maxima and sums go to `best` and `total`.

    Each step runs for all rows before the next step, so that the rows hide each other's latency.
    """
    for r in unroll(R):
        for x in vector(LANES):
            lanes[r, x] = -inf
    for j in range(start, stop):
        for r in unroll(R):
            for x in vector(LANES):
                lanes[r, x] = max(lanes[r, x], _quarters(_larger, score, of, r, j, x))
    _reduce_lanes(R, _larger, lanes)
    for r in unroll(R):
        best[*at, r] = lanes[r, 0]
        for x in vector(LANES):
            lanes[r, x] = 0.0
    for j in range(start, stop):
        for r in unroll(R):
            top = best[*at, r]
            safe = select(top == -inf, 0.0, top)
            for c in range(TILE // LANES):  # all 64 at once would be 4 to 8 registers for each step of an exponential: they spill
                for x in vector(LANES):
                    score[*of, r, j, c * LANES + x] = EXP(score[*of, r, j, c * LANES + x] - safe)
            for x in vector(LANES):
                lanes[r, x] = lanes[r, x] + _quarters(_sum, score, of, r, j, x)
    _reduce_lanes(R, _sum, lanes)
    for r in unroll(R):
        total[*at, r] = lanes[r, 0]


@inline
def add_weighted_values(R: int, E: int, W: int, FLOAT: Any, count: Any, weight: Any, value: Any, acc: Any, at: Any) -> None:
    """Computes `acc += p @ values` for the first `count` keys of a tile, W columns at once."""
    for c in range(E // W):
        mixed = alloc((R, W), FLOAT, scope="register")
        for r in unroll(R):
            for x in vector(W):
                mixed[r, x] = acc[*at, r, c * W + x]
        for k in range(count):
            for r in unroll(R):
                for x in vector(W):
                    mixed[r, x] = muladd(weight(r, k), value(k, c * W + x), mixed[r, x])
        for r in unroll(R):
            for x in vector(W):
                acc[*at, r, c * W + x] = mixed[r, x]


@inline
def clear_sums(R: int, E: int, acc: Any, best: Any, total: Any, at: Any) -> None:
    """Makes the accumulators, maxima and sums those of no keys."""
    for r in range(R):
        best[*at, r] = -inf
        total[*at, r] = 0.0
        for x in vector(E):
            acc[*at, r, x] = 0.0


@inline
def merge_part(
    R: int, E: int, EXP: Any, acc: Any, best: Any, total: Any, at: Any, all_acc: Any, all_best: Any, all_total: Any, to: Any
) -> None:
    """Merges a part into the accumulators, maxima and sums of the ranges before it."""
    for r in range(R):
        old = all_best[*to, r]
        own = best[*at, r]
        new = max(old, own)
        safe = select(new == -inf, 0.0, new)
        shrink = EXP(old - safe)
        weight = EXP(own - safe)
        all_best[*to, r] = new
        all_total[*to, r] = muladd(all_total[*to, r], shrink, total[*at, r] * weight)
        for x in vector(E):
            all_acc[*to, r, x] = muladd(all_acc[*to, r, x], shrink, acc[*at, r, x] * weight)


@inline
def write_results(r: Any, E: int, zeros: Any, acc: Any, total: Any, at: Any, put: Any) -> None:
    """Calls `put(x, acc[r, x] / total[r])` for a row; a row that sees no key gives zeros if the condition `zeros` holds, else NaN."""
    divisor = select(zeros and total[*at, r] == 0.0, 1.0, total[*at, r])
    for x in vector(E):
        put(x, acc[*at, r, x] / divisor + 0.0)  # -0.0 + 0.0 is 0.0


@inline
def _quarters(join: Any, score: Any, of: Any, r: Any, j: Any, x: Any) -> Any:
    """Reduces the 64 scores of a row to one value per lane."""
    return join(
        join(score[*of, r, j, x], score[*of, r, j, x + LANES]),
        join(score[*of, r, j, x + 2 * LANES], score[*of, r, j, x + 3 * LANES]),
    )


@inline
def _reduce_lanes(R: int, join: Any, lanes: Any) -> None:
    """Reduces the lanes of each row into lane 0, as a tree."""
    for half in (8, 4, 2, 1):
        for r in unroll(R):
            for x in vector(half):
                lanes[r, x] = join(lanes[r, x], lanes[r, x + half])


@inline
def _larger(a: Any, b: Any) -> Any:
    return max(a, b)


@inline
def _sum(a: Any, b: Any) -> Any:
    return a + b
