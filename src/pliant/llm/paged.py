"""Paged attention kernels: flash attention with online softmax over the paged KV cache, for a ragged batch of sequences of any length.

The KV cache of all layers is two tensors: keys [runs, layers, run, kv_heads, d, 64] and values [runs, layers, run, kv_heads, 64, d]. Pages
are grouped in runs of a few (`kv_cache.py`), so that a layer reads large contiguous pieces and the pages in use are close together. Keys
are transposed inside a page, so that the scores of 64 keys are vectors, for one query as for many. A *tile* is a few adjacent tokens of one
sequence. With the query heads that share a KV head (grouped-query attention), its rows make two small GEMMs per page, accumulated in
registers. A *range* is four consecutive pages, and the result of a tile for a range is a *part*; parts are merged in order. The pieces of
this computation are those of the operator as well (`lower/ops/templates/flash.py`).

Inside a range the loop over pages is outside the loop over heads, so memory is read sequentially. Steps of few tokens (decoding) run their
ranges in parallel (split-K, as in flash decoding); steps of many tokens (prefill) run tiles in parallel and merge their parts in sequence.
Ranges have fixed positions, and a row is computed by the same operations in a tile and alone. So results depend neither on how a prompt is
cut into steps, nor on the rest of the batch, nor on the number of threads.

    k = Paged(heads=9, kv_heads=3, head_dim=64, window=0, cache=f16)
    first, length, sequence = k.tiles(seq_start, kv_len, positions)
    keys, values = k.append(…); a = k.attend(q, keys, values, layer, positions, sequence, first, length, page_table, sinks)
"""

# Annotations of kernels are computed values here (types that several kernels share), which mypy does not accept as types.
# mypy: disable-error-code="valid-type,index"

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from .. import (
    InOut,
    Out,
    Tensor,
    alloc,
    cast,
    check,
    dim,
    exp,
    f16,
    f32,
    i32,
    i64,
    inf,
    kernel,
    parallel,
    select,
    tanh,
    unroll,
    vector,
    view,
)
from ..loop.inline import inline
from ..lower.ops.templates.flash import (
    LANES,
    RANGE,
    ROWS,
    add_weighted_values,
    dot_products,
    merge_part,
    softmax_of_range,
    write_results,
)
from .kv_cache import PAGE, STEP_PAGES, STEP_SEQUENCES, STEP_TOKENS, run_of

FEW = 8  # up to this many tokens, tiles alone would not keep all threads busy, so ranges run in parallel

t = dim("t", min=1, max=STEP_TOKENS)  # tokens of a step, of all sequences
b = dim("b", min=1, max=STEP_SEQUENCES)  # sequences
p = dim("p", min=1, max=STEP_PAGES)  # columns of the page table: pages of the longest sequence
runs = dim("runs", min=1, max=1 << 20)  # runs of pages in the cache
layers = dim("layers", min=1, max=512)
slots = dim("slots")  # parts that are stored until they are merged


@dataclass(frozen=True)
class Paged:
    """The kernels for one shape of attention; `window` 0 means no sliding window, `cap` above 0 soft-caps the scores."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    cap: float = 0.0
    cache: Any = f16

    @property
    def group(self) -> int:
        """The number of query heads per KV head."""
        return self.heads // self.kv_heads

    @property
    def run(self) -> int:
        """The number of pages of a run."""
        return run_of(self.kv_heads, self.head_dim, self.cache.itemsize)

    @property
    def tokens(self) -> int:
        """The number of tokens of a full tile."""
        return _at_least_one(ROWS // self.group)

    @functools.cached_property
    def tiles(self) -> Any:
        """The kernel that computes the tiles of a step and the sequence of each token."""
        return _tiles(self.tokens)

    @functools.cached_property
    def append(self) -> Any:
        """The kernel that writes the new keys and values of a layer into the cache."""
        return _append(self.kv_heads, self.head_dim, self.cache, self.run)

    @functools.cached_property
    def attend(self) -> Any:
        """The attention kernel for all tokens of a step."""
        return _attend(self, _tile(self, self.tokens), _tile(self, 1))

    @property
    def operands(self) -> tuple[Any, ...]:
        """The parameter types of queries (and results), keys, values, positions and the page table."""
        keys, values = ((runs, layers, self.run, self.kv_heads, *page) for page in ((self.head_dim, PAGE), (PAGE, self.head_dim)))
        heads = Tensor[f32, t, self.heads, self.head_dim]
        return heads, Tensor[self.cache, *keys], Tensor[self.cache, *values], Tensor[i32, t], Tensor[i32, b, p]

    def sums(self, tokens: int) -> tuple[Any, Any]:
        """Returns the parameter types of the softmax state of some tokens: the accumulators, and one number per row (maximum or sum)."""
        rows = tokens * self.group
        return InOut[f32, self.kv_heads, rows, self.head_dim], InOut[f32, self.kv_heads, rows]


def _at_least_one(n: int) -> int:
    return n if n > 1 else 1


@functools.cache
def _tiles(TOKENS: int) -> Any:
    """Returns the kernel that cuts a ragged batch into tiles."""

    @kernel(scheduled=True)
    def tiles(
        seq_start: Tensor[i32, b + 1],
        kv_len: Tensor[i32, b],
        positions: Tensor[i32, t],
        first: Out[i32, t],
        length: Out[i32, t],
        sequence: Out[i32, t],
    ) -> None:
        """Cuts sequences into tiles of up to TOKENS adjacent tokens; fails if offsets are out of order or positions beyond the length."""
        end = cast(i64, seq_start[b])
        check(seq_start[0] == 0 and end == t, "seq_start runs from {0} to {1}, not from 0 to {2}", seq_start[0], end, t)
        count = alloc((1,), i64, scope="stack")
        count[0] = 0
        for i in range(t):
            first[i] = cast(i32, 0)
            length[i] = cast(i32, 0)
        for s in range(b):
            start = cast(i64, seq_start[s])
            stop = cast(i64, seq_start[s + 1])
            check(start >= 0 and start <= stop and stop <= t, "sequence {0} is tokens {1} to {2} of {3}", s, start, stop, t)
            for i in range(start, stop):
                check(positions[i] >= 0 and positions[i] < kv_len[s], "token {0} is at {1}, beyond {2}", i, positions[i], kv_len[s])
                sequence[i] = cast(i32, s)
                if (i - start) % TOKENS == 0:
                    at = count[0]
                    check(at >= 0 and at < t, "there are more tiles than tokens")
                    first[at] = cast(i32, i)
                    left = stop - i
                    length[at] = cast(i32, min(left, cast(i64, TOKENS)))
                    count[0] = at + 1

    return tiles


@functools.cache
def _append(KV_HEADS: int, SIZE: int, CACHE: Any, RUN: int) -> Any:
    """Returns the kernel that appends keys and values to the paged cache."""

    @kernel(scheduled=True)
    def append(
        k: Tensor[f32, t, KV_HEADS, SIZE],
        v: Tensor[f32, t, KV_HEADS, SIZE],
        layer: i64,
        positions: Tensor[i32, t],
        sequence: Tensor[i32, t],
        page_table: Tensor[i32, b, p],
        keys: InOut[CACHE, runs, layers, RUN, KV_HEADS, SIZE, PAGE],
        values: InOut[CACHE, runs, layers, RUN, KV_HEADS, PAGE, SIZE],
    ) -> None:
        """Writes new keys and values to their pages."""
        check(layer >= 0 and layer < layers, "there is no layer {0} in a cache of {1}", layer, layers)
        for i in range(t):
            at = cast(i64, positions[i])
            s = cast(i64, sequence[i])
            check(s >= 0 and s < b, "token {0} is of sequence {1}, there are {2}", i, s, b)
            check(at >= 0 and at // PAGE < p, "position {0} is beyond the {1} pages of its sequence", at, p)
            page = cast(i64, page_table[s, at // PAGE])
            check(page >= 0 and page < runs * RUN, "page {0} is not in the cache of {1} pages", page, runs * RUN)
            run = page // RUN
            member = page % RUN
            for h in range(KV_HEADS):
                for d in range(SIZE):
                    keys[run, layer, member, h, d, at % PAGE] = cast(CACHE, k[i, h, d])
                for d in vector(SIZE):
                    values[run, layer, member, h, at % PAGE, d] = cast(CACHE, v[i, h, d])

    return append


@functools.cache
def _part(shape: Paged, tokens: int) -> Any:
    """Returns the kernel that computes a part: accumulators, maxima and sums of `tokens` adjacent tokens over a range, for all heads."""
    KV, R, D, TOKENS = shape.kv_heads, tokens * shape.group, shape.head_dim, tokens
    Q, KEYS, VALUES, PLACES, TABLE = shape.operands
    ACC, ROW = InOut[f32, slots, KV, R, D], InOut[f32, slots, KV, R]
    RUN, scores_of_page, add_page = shape.run, _scores_of_page(shape, tokens), _add_page(shape, tokens)

    @kernel(scheduled=True)
    def part(
        q: Q, keys: KEYS, values: VALUES, layer: i64, positions: PLACES, page_table: TABLE,
        s: i64, i: i64, number: i64, slot: i64, acc: ACC, best: ROW, total: ROW,
    ) -> None:  # fmt: skip
        check(i >= 0 and i + TOKENS <= t and s >= 0 and s < b and slot >= 0 and slot < slots, "token {0} of {1} is not there", i, s)
        check(layer >= 0 and layer < layers, "there is no layer {0} in a cache of {1}", layer, layers)
        seen = cast(i64, positions[i + (TOKENS - 1)]) + 1
        check((seen + PAGE - 1) // PAGE <= p and number >= 0, "{0} keys are more than {1} pages hold", seen, p)
        score = alloc((KV, R, RANGE, PAGE), f32, scope="stack")
        lanes = alloc((R, LANES), f32, scope="stack")
        begin = number * RANGE
        end = min(begin + RANGE, (seen + PAGE - 1) // PAGE)
        for j in range(begin, end):
            page = cast(i64, page_table[s, j])
            check(page >= 0 and page < runs * RUN, "page {0} is not in the cache of {1} pages", page, runs * RUN)
            for h in range(KV):
                scores_of_page(q, keys, layer, positions, i, page, h, score, j, begin)
        for h in range(KV):
            softmax_of_range(R, exp, 0, end - begin, score, (h,), lanes, best, total, (slot, h))
            for r in unroll(R):
                for x in vector(D):
                    acc[slot, h, r, x] = 0.0
        for j in range(begin, end):
            page = cast(i64, page_table[s, j])
            check(page >= 0 and page < runs * RUN, "page {0} is not in the cache of {1} pages", page, runs * RUN)
            for h in range(KV):
                add_page(values, layer, page, h, score, j, begin, seen, acc, slot)

    return part


def _scores_of_page(shape: Paged, tokens: int) -> Any:
    """Returns the code that computes the scores of a page, scaled, soft-capped and masked, for a KV head."""
    D, GROUP, R, SCALE, WINDOW, CAP, RUN = (
        shape.head_dim, shape.group, tokens * shape.group, shape.scale, shape.window, shape.cap, shape.run,
    )  # fmt: skip

    @inline
    def scores_of_page(q: Any, keys: Any, layer: Any, positions: Any, i: Any, page: Any, h: Any, score: Any, j: Any, begin: Any) -> None:
        def query(r: Any, d: Any) -> Any:
            return q[i + r // GROUP, h * GROUP + r % GROUP, d]

        def key(d: Any, x: Any) -> Any:
            return cast(f32, keys[page // RUN, layer, page % RUN, h, d, x])

        def put(r: Any, x: Any, dot: Any) -> None:
            (at := j * PAGE + x)
            (place := cast(i64, positions[i + r // GROUP]))
            (scaled := tanh(dot * SCALE / CAP) * CAP if CAP > 0.0 else dot * SCALE)
            score[h, r, j - begin, x] = select(at <= place and (WINDOW == 0 or at > place - WINDOW), scaled, -inf)

        dot_products(R, D, PAGE, f32, 1, query, key, put)

    return scores_of_page


def _add_page(shape: Paged, tokens: int) -> Any:
    """Returns the code that adds p @ values of a page to the accumulators of a part, for a KV head."""
    D, R, RUN = shape.head_dim, tokens * shape.group, shape.run
    W = max(w for w in range(8, min(D, PAGE) + 1, 8) if D % w == 0)  # columns of the register tile

    @inline
    def add_page(values: Any, layer: Any, page: Any, h: Any, score: Any, j: Any, begin: Any, seen: Any, acc: Any, slot: Any) -> None:
        def weight(r: Any, k: Any) -> Any:
            return score[h, r, j - begin, k]

        def value(k: Any, x: Any) -> Any:
            return cast(f32, values[page // RUN, layer, page % RUN, h, k, x])

        left = seen - j * PAGE
        count = min(left, cast(i64, PAGE))
        add_weighted_values(R, D, W, f32, count, weight, value, acc, (slot, h))

    return add_page


@functools.cache
def _begin(shape: Paged, tokens: int) -> Any:
    """Returns the kernel that initializes the softmax state with the attention sinks: each is a key with this score and the value 0.

    A model without sinks has the scores -inf: the first part that is merged replaces such a state exactly.
    """
    H, KV, GROUP, R, D = shape.heads, shape.kv_heads, shape.group, tokens * shape.group, shape.head_dim
    ACC, ROW, SINKS = Out[f32, KV, R, D], Out[f32, KV, R], Tensor[f32, H]

    @kernel(scheduled=True)
    def begin(sinks: SINKS, acc: ACC, best: ROW, total: ROW) -> None:
        for h in range(KV):
            for r in range(R):
                best[h, r] = sinks[h * GROUP + r % GROUP]
                total[h, r] = 1.0
                for x in vector(D):
                    acc[h, r, x] = 0.0

    return begin


@functools.cache
def _join(shape: Paged, tokens: int) -> Any:
    """Returns the kernel that merges a part into the softmax state of the ranges before it."""
    KV, R, D = shape.kv_heads, tokens * shape.group, shape.head_dim
    PARTS, NUMBERS = Tensor[f32, slots, KV, R, D], Tensor[f32, slots, KV, R]
    ACC, ROW = shape.sums(tokens)

    @kernel(scheduled=True)
    def join(acc: PARTS, best: NUMBERS, total: NUMBERS, slot: i64, all_acc: ACC, all_best: ROW, all_total: ROW) -> None:
        check(slot >= 0 and slot < slots, "part {0} is not there", slot)
        for h in range(KV):
            merge_part(R, D, exp, acc, best, total, (slot, h), all_acc, all_best, all_total, (h,))

    return join


@functools.cache
def _end(shape: Paged, tokens: int) -> Any:
    """Returns the kernel that divides the accumulators by the sums and writes the results."""
    H, KV, GROUP, R, D = shape.heads, shape.kv_heads, shape.group, tokens * shape.group, shape.head_dim
    ACC, ROW, RESULT = *shape.sums(tokens), Out[f32, tokens, H, D]

    @inline
    def write_row(acc: Any, total: Any, out: Any, h: Any, r: Any) -> None:
        def put(x: Any, result: Any) -> None:
            out[r // GROUP, h * GROUP + r % GROUP, x] = result

        write_results(r, D, True, acc, total, (h,), put)

    @kernel(scheduled=True)
    def end(acc: ACC, total: ROW, out: RESULT) -> None:
        for h in range(KV):
            for r in range(R):
                write_row(acc, total, out, h, r)

    return end


@functools.cache
def _tile(shape: Paged, tokens: int) -> Any:
    """Returns the kernel that processes all ranges of a tile in sequence (prefill)."""
    H, KV, R, D = shape.heads, shape.kv_heads, tokens * shape.group, shape.head_dim
    WINDOW, TOKENS, SINKS = shape.window, tokens, Tensor[f32, shape.heads]
    Q, KEYS, VALUES, PLACES, TABLE = shape.operands
    part, begin, join, end = (make(shape, tokens) for make in (_part, _begin, _join, _end))

    @kernel(scheduled=True)
    def tile(
        q: Q, keys: KEYS, values: VALUES, sinks: SINKS, layer: i64, positions: PLACES, page_table: TABLE, s: i64, i: i64,
        out: InOut[f32, t, H, D],
    ) -> None:  # fmt: skip
        check(i >= 0 and i + TOKENS <= t, "token {0} is not there", i)
        acc = alloc((1, KV, R, D), f32, scope="stack")
        best = alloc((1, KV, R), f32, scope="stack")
        total = alloc((1, KV, R), f32, scope="stack")
        all_acc = alloc((KV, R, D), f32, scope="stack")
        all_best = alloc((KV, R), f32, scope="stack")
        all_total = alloc((KV, R), f32, scope="stack")
        begin(sinks, all_acc, all_best, all_total)
        seen = cast(i64, positions[i + (TOKENS - 1)]) + 1
        oldest = cast(i64, positions[i]) + 1 - WINDOW
        first = select(WINDOW > 0 and oldest > 0, oldest // (RANGE * PAGE), 0)
        for number in range(first, (seen + RANGE * PAGE - 1) // (RANGE * PAGE)):
            part(q, keys, values, layer, positions, page_table, s, i, number, 0, acc, best, total, dims=(t, runs, layers, b, p, 1))
            join(acc, best, total, 0, all_acc, all_best, all_total, dims=(1,))
        own = view(out[i, 0, 0], (TOKENS, H, D))
        end(all_acc, all_total, own)

    return tile


def _attend(shape: Paged, many: Any, one: Any) -> Any:
    """Returns the attention kernel; `many` and `one` are the tile kernels for full tiles and single tokens."""
    H, KV, R, D, TOKENS = shape.heads, shape.kv_heads, shape.group, shape.head_dim, shape.tokens
    WINDOW, SINKS = shape.window, Tensor[f32, shape.heads]
    Q, KEYS, VALUES, PLACES, TABLE = shape.operands
    part, begin, join, end = (make(shape, 1) for make in (_part, _begin, _join, _end))

    @kernel(scheduled=True)
    def attend(
        q: Q, keys: KEYS, values: VALUES, layer: i64, positions: PLACES, sequence: PLACES, first: PLACES, length: PLACES,
        page_table: TABLE, sinks: SINKS, out: Out[f32, t, H, D],
    ) -> None:  # fmt: skip
        """Attention of all tokens: few tokens run ranges in parallel; many run tiles in parallel (an incomplete tile token by token).

        `first` and `length` are the first token and the number of tokens of each tile. The kernel `tiles` computes them.
        """
        ranges = (p + RANGE - 1) // RANGE
        acc = alloc((min(t, FEW) * ((p + RANGE - 1) // RANGE), KV, R, D), f32, scope="workspace")
        best = alloc((min(t, FEW) * ((p + RANGE - 1) // RANGE), KV, R), f32, scope="workspace")
        total = alloc((min(t, FEW) * ((p + RANGE - 1) // RANGE), KV, R), f32, scope="workspace")
        if t <= FEW:
            for work in parallel(t * ranges, grain=1):
                i = work // ranges
                number = work % ranges
                place = cast(i64, positions[i])
                if number * RANGE * PAGE <= place and (WINDOW == 0 or (number + 1) * RANGE * PAGE > place - WINDOW + 1):
                    s = cast(i64, sequence[i])
                    part(
                        q, keys, values, layer, positions, page_table, s, i, number, work, acc, best, total,
                        dims=(t, runs, layers, b, p, min(t, FEW) * ((p + RANGE - 1) // RANGE)),
                    )  # fmt: skip
            for i in parallel(t):
                all_acc = alloc((KV, R, D), f32, scope="stack")
                all_best = alloc((KV, R), f32, scope="stack")
                all_total = alloc((KV, R), f32, scope="stack")
                begin(sinks, all_acc, all_best, all_total)
                place = cast(i64, positions[i])
                for number in range(ranges):
                    if number * RANGE * PAGE <= place and (WINDOW == 0 or (number + 1) * RANGE * PAGE > place - WINDOW + 1):
                        join(
                            acc, best, total, i * ranges + number, all_acc, all_best, all_total,
                            dims=(min(t, FEW) * ((p + RANGE - 1) // RANGE),),
                        )  # fmt: skip
                own = view(out[i, 0, 0], (1, H, D))
                end(all_acc, all_total, own)
        else:
            for tile in parallel(t, grain=1):
                start = cast(i64, first[tile])
                count = cast(i64, length[tile])
                check(start >= 0 and count >= 0 and start + count <= t, "tile {0} is tokens {1} to {2}", tile, start, start + count)
                if count == TOKENS:
                    s = cast(i64, sequence[start])
                    many(q, keys, values, sinks, layer, positions, page_table, s, start, out, dims=(t, runs, layers, b, p))
                else:
                    for i in range(start, start + count):
                        s = cast(i64, sequence[i])
                        one(q, keys, values, sinks, layer, positions, page_table, s, i, out, dims=(t, runs, layers, b, p))

    return attend
