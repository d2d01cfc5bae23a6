"""Flash attention for `scaled_dot_product_attention`: tiles of 6 queries visit the keys range by range, with the pieces of `flash.py`.

    turned[h, t, :, 64] = a tile of keys, transposed                                     once for all queries
    for each head and tile of queries, in parallel:
        for each range of keys that one of them sees:
            scores, masked; their softmax; p @ values                                    a part
            merged into the parts before it
        out = acc / total

Queries are scaled when they are copied: the rounding errors of their elements average out in a score, that of a scaled score would not.
A single remaining query (decoding) has code for one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....dtype import DType
from ....graph.ops.attention import AttentionAttrs, capped, masked_score, seen
from ....graph.ops.elementwise import project
from ....graph.ops.reduce import accumulator
from ....loop.buffer import Buffer
from ....loop.inline import Inline, compile_time, inline
from ....loop.script import alloc, parallel, unroll, vector
from ....sym.conditions import all_of
from ....sym.expr import Call, Cast, Const, Div, Expr, product
from ....sym.script import decay, inf, select
from .build import ONE, Site
from .flash import (
    LANES,
    RANGE,
    ROWS,
    TILE,
    add_weighted_values,
    clear_sums,
    dot_products,
    merge_part,
    softmax_of_range,
    write_results,
)

COLUMNS = 32  # of a register tile: 12 of 32 AVX-512 registers are as many as its latency needs, and short sequences have few columns


def flash(site: Site) -> Inline:
    """Builds `scaled_dot_product_attention` for a constant head_dim.

    It transposes the keys into tiles, then runs tiles of queries in parallel.
    """
    k = site.buffer(1)
    (HEADS, N, _), (KV_HEADS, M, D) = _sizes(site.buffer(0)), _sizes(k)
    FLOAT = _float(site)
    many, alone = _tile(site, ROWS), _tile(site, 1)

    @inline
    def attention() -> None:
        turned = alloc((KV_HEADS, (M + (TILE - 1)) // TILE, D, TILE), FLOAT)
        # Both loops are parallel: threads divide the inner one if the outer one has a single iteration.
        for h in parallel(KV_HEADS):
            for t in parallel((M + (TILE - 1)) // TILE):
                for x in range(TILE):
                    for d in range(D):
                        turned[h, t, d, x] = select(t * TILE + x < M, _element(k, h, t * TILE + x, d), 0.0)
        for h in parallel(HEADS):
            for tile in parallel((N + (ROWS - 1)) // ROWS):
                first = tile * ROWS
                if N - first == 1:
                    alone(turned, h, first)
                else:
                    many(turned, h, first)

    program: Inline = attention
    return program


def flash_moved(site: Site) -> tuple[Buffer, ...]:
    """Returns the operands whose memory order is free: queries and keys, which are copied once, and the result, which is written once.

    Values are read again by each tile.
    """
    return site.buffer(0), site.buffer(1), site.outs[0]


def _tile(site: Site, R: int) -> Any:
    """Returns the code of a tile of R adjacent queries of a head; rows beyond the last query repeat it, and are not stored."""
    q, v, out, attrs = site.buffer(0), site.buffer(2), site.outs[0], site.attrs
    (_, N, D), (KV_HEADS, M, E) = _sizes(q), _sizes(v)
    WINDOW, CAUSAL, OFFSET, SCALE = attrs.window or 0, attrs.is_causal, attrs.offset, _scale(site)
    GROUP, SHARED = _group(q, v), q.ndim > 2 and q.shape[-3] is not v.shape[-3]
    scores, mixed, FLOAT, NAN = _scores(site, R), _mixed(site, R), _float(site), attrs.nan_if_unseen

    @inline
    def tile(turned: Any, h: Any, first: Any) -> None:
        queries = alloc((R, D), FLOAT, scope="stack")
        score = alloc((R, RANGE, TILE), FLOAT, scope="stack")
        lanes = alloc((R, LANES), FLOAT, scope="stack")
        acc = alloc((2, R, E), FLOAT, scope="stack")  # 0: the merged parts, 1: a part
        best = alloc((2, R), FLOAT, scope="stack")
        total = alloc((2, R), FLOAT, scope="stack")
        kv = h // GROUP if SHARED else h
        last = first if R == 1 else min(first + (R - 1), N - 1)
        stop = min(M, max(last + OFFSET + 1, 0)) if CAUSAL else M  # the end of the keys that some row sees
        # `stop` is at most M; minima that repeat it let the proofs of bounds succeed.
        tiles = min((stop + (TILE - 1)) // TILE, (M + (TILE - 1)) // TILE) if CAUSAL else (M + (TILE - 1)) // TILE
        begin = max(first + OFFSET - (WINDOW - 1), 0) // TILE if WINDOW > 0 else 0  # the first tile that some row sees
        for r in unroll(R):
            for x in vector(D):
                queries[r, x] = _element(q, h, min(first + r, last), x) * SCALE
        clear_sums(R, E, acc, best, total, (0,))
        if M > 0 and kv < KV_HEADS:  # the proofs of bounds need it
            for number in range(begin // RANGE, (stop + (RANGE * TILE - 1)) // (RANGE * TILE)):
                part = min(number - begin // RANGE, 1)  # the first part needs no merging: it is the sum
                here = max(begin, number * RANGE)
                end = min(number * RANGE + RANGE, tiles)
                for t in range(here, end):
                    scores(turned, queries, score, h, kv, first, last, t, t - number * RANGE, stop - t * TILE)
                softmax_of_range(R, decay, here - number * RANGE, end - number * RANGE, score, (), lanes, best, total, (part,))
                for r in unroll(R):
                    for x in vector(E):
                        acc[part, r, x] = 0.0
                for t in range(here, end):
                    mixed(score, acc, part, kv, t, t - number * RANGE, stop - t * TILE)
                if part == 1:
                    merge_part(R, E, decay, acc, best, total, (1,), acc, best, total, (0,))
        for r in unroll(R):
            if first + r < N:
                _write_row(out, acc, total, E, not NAN or M == 0, h, first, r)

    return tile


def _scores(site: Site, R: int) -> Any:
    """Returns the code that computes the masked scores of tile `t` of the keys, of which `left` are seen by some row."""
    attrs: AttentionAttrs = site.attrs
    CAUSAL, OFFSET, WINDOW, MASKED = attrs.is_causal, attrs.offset, attrs.window or 0, len(site.args) == 4
    D, FLOAT = _sizes(site.buffer(0))[-1], _float(site)

    @compile_time
    def visible(row: Expr, key: Expr) -> Expr:
        return all_of(*seen(attrs, row, key))

    @compile_time
    def bounded(score: Expr) -> Expr:
        return capped(attrs, score)

    @compile_time
    def masked(score: Expr, h: Expr, row: Expr, key: Expr) -> Expr:
        """A score with the mask operand applied: added, or -inf where a boolean mask is False."""
        q = site.buffer(0)
        shape = site.args[3].shape if isinstance(site.args[3], Buffer) else ()
        at = (*_unflattened(h, q.shape[:-2]), row, key)
        mask = site.read(3, *project(shape, (*q.shape[:-1], site.buffer(1).shape[-2]), at))
        return masked_score(attrs, score, mask)

    @inline
    def scores(turned: Any, queries: Any, score: Any, h: Any, kv: Any, first: Any, last: Any, t: Any, j: Any, left: Any) -> None:
        def query(r: Any, d: Any) -> Any:
            return queries[r, d]

        def key(d: Any, x: Any) -> Any:
            return turned[kv, t, d, x]

        def put(r: Any, x: Any, dot: Any) -> None:
            score[r, j, x] = bounded(dot)

        def apply_mask(r: Any, x: Any) -> None:
            score[r, j, x] = masked(score[r, j, x], h, min(first + r, last), t * TILE + x)

        # Columns beyond the last key are not computed: they are hidden below.
        dot_products(R, D, COLUMNS, FLOAT, (min(left, TILE) + (COLUMNS - 1)) // COLUMNS, query, key, put)
        if MASKED:
            if left >= TILE:  # a loop of constant length has no tail
                for r in unroll(R):
                    for x in vector(TILE):
                        apply_mask(r, x)
            else:
                for r in unroll(R):
                    for x in vector(left):
                        apply_mask(r, x)
        # Hide what causal order, the window and the end of the keys hide from some row.
        if left < TILE or (CAUSAL and first + OFFSET < t * TILE + (TILE - 1)) or (WINDOW > 0 and t * TILE <= last + OFFSET - WINDOW):
            for r in unroll(R):
                for x in vector(TILE):
                    score[r, j, x] = select(x < left and visible(min(first + r, last), t * TILE + x), score[r, j, x], -inf)

    return scores


def _mixed(site: Site, R: int) -> Any:
    """Returns the code that adds p @ values of a tile, of which `left` keys are seen by some row, to the accumulators of a part."""
    v = site.buffer(2)
    (_, M, E), FLOAT, CAUSAL = _sizes(v), _float(site), site.attrs.is_causal
    W = next(w for w in (COLUMNS, 16, 8) if E % w == 0)

    @inline
    def mixed(score: Any, acc: Any, part: Any, kv: Any, t: Any, j: Any, left: Any) -> None:
        def weight(r: Any, k: Any) -> Any:
            return score[r, j, k]

        def value(k: Any, x: Any) -> Any:
            return _element(v, kv, min(t * TILE + k, M - 1) if CAUSAL else t * TILE + k, x)

        add_weighted_values(R, E, W, FLOAT, min(left, TILE), weight, value, acc, (part,))

    return mixed


@inline
def _write_row(out: Any, acc: Any, total: Any, E: int, zeros: Any, h: Any, first: Any, r: Any) -> None:
    """Writes the results of row `r` of a tile, divided by the row's sum, rounded to the dtype of `out`."""

    def put(x: Any, result: Any) -> None:
        out[*_place(out, h, first + r, x)] = _narrow(out, result)

    write_results(r, E, zeros, acc, total, (0,), put)


@compile_time
def _element(of: Buffer, h: Expr, row: Expr, x: Expr) -> Expr:
    """An element of an operand seen as [heads, rows, width], in the type of sums: all leading dims are flattened into one."""
    return _cast(accumulator(of.dtype), of.load(*_unflattened(h, of.shape[:-2]), row, x))


@compile_time
def _place(of: Buffer, h: Expr, row: Expr, x: Expr) -> tuple[Expr, ...]:
    """The indices of an element of an operand seen as [heads, rows, width]."""
    return *_unflattened(h, of.shape[:-2]), row, x


@compile_time
def _narrow(to: Buffer, e: Expr) -> Expr:
    return _cast(to.dtype, e)


def _cast(dtype: DType, e: Expr) -> Expr:
    return e if e.dtype is dtype else Cast(dtype, e)


def _unflattened(flat: Expr, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Returns the indices of the element of `shape` with a row-major index."""
    indices: list[Expr] = []
    for extent in reversed(shape[1:]):
        indices.append(flat % extent)
        flat = flat // extent
    return tuple(reversed([*indices, flat][: len(shape)]))


def _group(q: Buffer, k: Buffer) -> Expr:
    """Returns the number of query heads of a KV head (grouped-query attention); 1 for operands without heads."""
    return q.shape[-3] // k.shape[-3] if q.ndim > 2 else ONE


def _float(site: Site) -> Any:
    """Returns the type of scores, sums and accumulators: f32 also for 16-bit floats."""
    return accumulator(site.buffer(0).dtype)


def _scale(site: Site) -> Expr:
    scale, dtype = site.attrs.scale, _float(site)
    return Const(scale, dtype) if scale is not None else Div(Const(1.0, dtype), Call("sqrt", Cast(dtype, site.buffer(0).shape[-1])))


def _sizes(b: Buffer) -> tuple[Any, Any, Any]:
    """Returns the sizes of an operand seen as [heads, rows, width]; the width is a Python number."""
    assert isinstance(b.shape[-1], Const)
    return product(b.shape[:-2]), b.shape[-2], int(b.shape[-1].value)
