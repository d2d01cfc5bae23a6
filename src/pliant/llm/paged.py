"""Attention over a cache in pages, as loop programs: one kernel, no matrix of all scores, any number of sequences of any lengths.

The cache of all layers is two tensors: keys [layers, pages, kv_heads, d, 64] and values [layers, pages, kv_heads, 64, d]. Keys lie
transposed inside of a page, so that the scores of 64 keys are vectors, for one query as for many. A *tile* is a few neighbouring
tokens of one sequence; with the heads that share keys it makes the rows of two small matrix products for each page, summed in registers:

    scores[r, 64] = q[r, :] @ keys[:, 64]      p = exp(scores - best so far)      out[r, :] = out[r, :] * shrink + p[r, 64] @ values[64, :]

Pages are visited in order, and what a row does is the same in a tile and alone: so results do not depend on how a prompt is cut into
steps, on who else is in the batch, or on threads.

    k = Paged(heads=9, kv_heads=3, size=64, window=0, cache=f16)
    first, length, sequence = k.tiles(seq_start, kv_len, positions)
    keys, values = k.append(…); a = k.attend(q, keys, values, layer, positions, sequence, first, length, page_table)
"""

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
    fma,
    i32,
    i64,
    inf,
    kernel,
    parallel,
    select,
    tanh,
    unroll,
    vector,
)

PAGE = 64
LANES = 16
ROWS = 6  # of a tile: with 64 columns their sums fill the registers

t = dim("t", min=1, max=8192)  # tokens of a step, of all sequences
b = dim("b", min=1, max=256)  # sequences
p = dim("p", min=1, max=4096)  # pages that a sequence may have
pages = dim("pages", min=1, max=1 << 20)  # pages in the cache
layers = dim("layers", min=1, max=512)


@dataclass(frozen=True)
class Paged:
    """The kernels of one shape of attention; `window` 0 means that every key before a token is seen, `cap` bounds the scores smoothly."""

    heads: int
    kv_heads: int
    size: int  # of a head
    scale: float
    window: int = 0
    cap: float = 0.0
    cache: Any = f16

    @property
    def group(self) -> int:
        """Query heads that share keys and values."""
        return self.heads // self.kv_heads

    @property
    def tokens(self) -> int:
        """Tokens of a whole tile."""
        return _at_least_one(ROWS // self.group)

    @functools.cached_property
    def tiles(self) -> Any:
        """The tiles of a step, and which sequence each token belongs to."""
        return _tiles(self.tokens)

    @functools.cached_property
    def append(self) -> Any:
        """Puts the new keys and values of a layer into the cache."""
        return _append(self.kv_heads, self.size, self.cache)

    @functools.cached_property
    def attend(self) -> Any:
        """What each token gathers from the values of its sequence."""
        many, one = (_rows(self, tokens) for tokens in (self.tokens, 1))
        return _attend(self, many, one)


def _at_least_one(n: int) -> int:
    return n if n > 1 else 1


@functools.cache
def _tiles(TOKENS: int) -> Any:
    @kernel(scheduled=True)
    def tiles(
        seq_start: Tensor[i32, b + 1],
        kv_len: Tensor[i32, b],
        positions: Tensor[i32, t],
        first: Out[i32, t],
        length: Out[i32, t],
        sequence: Out[i32, t],
    ) -> None:
        """Tiles of up to TOKENS neighbouring tokens; refuses offsets out of order and positions beyond the cached length."""
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
def _append(KV_HEADS: int, SIZE: int, CACHE: Any) -> Any:
    @kernel(scheduled=True)
    def append(
        k: Tensor[f32, t, KV_HEADS, SIZE],
        v: Tensor[f32, t, KV_HEADS, SIZE],
        layer: i64,
        positions: Tensor[i32, t],
        sequence: Tensor[i32, t],
        page_table: Tensor[i32, b, p],
        keys: InOut[CACHE, layers, pages, KV_HEADS, SIZE, PAGE],
        values: InOut[CACHE, layers, pages, KV_HEADS, PAGE, SIZE],
    ) -> None:
        """Writes new keys and values to their places in the pages."""
        check(layer >= 0 and layer < layers, "there is no layer {0} in a cache of {1}", layer, layers)
        for i in range(t):
            at = cast(i64, positions[i])
            s = cast(i64, sequence[i])
            check(s >= 0 and s < b, "token {0} is of sequence {1}, there are {2}", i, s, b)
            check(at >= 0 and at // PAGE < p, "position {0} is beyond the {1} pages of its sequence", at, p)
            page = cast(i64, page_table[s, at // PAGE])
            check(page >= 0 and page < pages, "page {0} is not in the cache of {1} pages", page, pages)
            for h in range(KV_HEADS):
                for d in range(SIZE):
                    keys[layer, page, h, d, at % PAGE] = cast(CACHE, k[i, h, d])
                for d in vector(SIZE):
                    values[layer, page, h, at % PAGE, d] = cast(CACHE, v[i, h, d])

    return append


def _rows(shape: Paged, tokens: int) -> Any:
    """The kernel of `tokens` neighbouring tokens of one sequence, for the heads that share one head of keys."""
    H, KV, D = shape.heads, shape.kv_heads, shape.size
    CACHE: Any = shape.cache
    GROUP, R, SCALE, WINDOW, CAP = shape.group, tokens * shape.group, shape.scale, shape.window, shape.cap
    W = max(w for w in range(8, min(D, PAGE) + 1, 8) if D % w == 0)  # columns of the result that are summed together
    CHUNKS = D // W
    TOKENS = tokens

    @kernel(scheduled=True)
    def rows(
        q: Tensor[f32, t, H, D],
        keys: Tensor[CACHE, layers, pages, KV, D, PAGE],
        values: Tensor[CACHE, layers, pages, KV, PAGE, D],
        layer: i64,
        positions: Tensor[i32, t],
        page_table: Tensor[i32, b, p],
        s: i64,
        i: i64,
        h: i64,
        out: InOut[f32, t, H, D],
    ) -> None:
        check(i >= 0 and i + TOKENS <= t and h >= 0 and h < KV and s >= 0 and s < b, "tile {0} of head {1} is not there", i, h)
        check(layer >= 0 and layer < layers, "there is no layer {0} in a cache of {1}", layer, layers)
        seen = cast(i64, positions[i + (TOKENS - 1)]) + 1
        check((seen + PAGE - 1) // PAGE <= p, "{0} keys are more than {1} pages hold", seen, p)
        acc = alloc((R, D), f32, scope="stack")
        best = alloc((R,), f32, scope="stack")
        total = alloc((R,), f32, scope="stack")
        shrink = alloc((R,), f32, scope="stack")
        score = alloc((R, PAGE), f32, scope="stack")
        lanes = alloc((R, LANES), f32, scope="stack")
        for r in unroll(R):
            best[r] = -inf
            total[r] = 0.0
            for d in vector(D):
                acc[r, d] = 0.0
        oldest = cast(i64, positions[i]) + 1 - WINDOW
        begin = select(WINDOW > 0 and oldest > 0, oldest // PAGE, 0)
        for j in range(begin, (seen + PAGE - 1) // PAGE):
            page = cast(i64, page_table[s, j])
            check(page >= 0 and page < pages, "page {0} is not in the cache of {1} pages", page, pages)
            dots = alloc((R, PAGE), f32, scope="register")
            for r in unroll(R):
                for x in vector(PAGE):
                    dots[r, x] = 0.0
            for d in range(D):
                for r in unroll(R):
                    for x in vector(PAGE):
                        dots[r, x] = fma(q[i + r // GROUP, h * GROUP + r % GROUP, d], cast(f32, keys[layer, page, h, d, x]), dots[r, x])
            for r in unroll(R):
                place = cast(i64, positions[i + r // GROUP])
                for x in vector(PAGE):
                    value = select(CAP > 0.0, tanh(dots[r, x] * SCALE / select(CAP > 0.0, CAP, 1.0)) * CAP, dots[r, x] * SCALE)
                    at = j * PAGE + x
                    score[r, x] = select(at <= place and (WINDOW == 0 or at > place - WINDOW), value, -inf)
            for r in unroll(R):
                for x in vector(LANES):
                    lanes[r, x] = max(max(score[r, x], score[r, x + 16]), max(score[r, x + 32], score[r, x + 48]))
                for x in vector(8):
                    lanes[r, x] = max(lanes[r, x], lanes[r, x + 8])
                for x in vector(4):
                    lanes[r, x] = max(lanes[r, x], lanes[r, x + 4])
                top = max(max(lanes[r, 0], lanes[r, 1]), max(lanes[r, 2], lanes[r, 3]))
                old = best[r]
                new = max(old, top)
                safe = select(new == -inf, 0.0, new)
                best[r] = new
                shrink[r] = exp(old - safe)
                for x in vector(PAGE):
                    score[r, x] = exp(score[r, x] - safe)
                for x in vector(LANES):
                    lanes[r, x] = (score[r, x] + score[r, x + 16]) + (score[r, x + 32] + score[r, x + 48])
                for x in vector(8):
                    lanes[r, x] = lanes[r, x] + lanes[r, x + 8]
                for x in vector(4):
                    lanes[r, x] = lanes[r, x] + lanes[r, x + 4]
                total[r] = fma(total[r], shrink[r], (lanes[r, 0] + lanes[r, 1]) + (lanes[r, 2] + lanes[r, 3]))
            left = seen - j * PAGE
            count = min(left, cast(i64, PAGE))
            for c in range(CHUNKS):
                part = alloc((R, W), f32, scope="register")
                for r in unroll(R):
                    for x in vector(W):
                        part[r, x] = acc[r, c * W + x] * shrink[r]
                for k in range(count):
                    for r in unroll(R):
                        for x in vector(W):
                            part[r, x] = fma(score[r, k], cast(f32, values[layer, page, h, k, c * W + x]), part[r, x])
                for r in unroll(R):
                    for x in vector(W):
                        acc[r, c * W + x] = part[r, x]
        for r in unroll(R):
            for d in vector(D):
                out[i + r // GROUP, h * GROUP + r % GROUP, d] = acc[r, d] / total[r]

    return rows


def _attend(shape: Paged, many: Any, one: Any) -> Any:
    H, KV, D, TOKENS = shape.heads, shape.kv_heads, shape.size, shape.tokens
    CACHE: Any = shape.cache

    @kernel(scheduled=True)
    def attend(
        q: Tensor[f32, t, H, D],
        keys: Tensor[CACHE, layers, pages, KV, D, PAGE],
        values: Tensor[CACHE, layers, pages, KV, PAGE, D],
        layer: i64,
        positions: Tensor[i32, t],
        sequence: Tensor[i32, t],
        first: Tensor[i32, t],
        length: Tensor[i32, t],
        page_table: Tensor[i32, b, p],
        out: Out[f32, t, H, D],
    ) -> None:
        """Attention of all tokens: a whole tile at once, the tokens of a smaller one after each other."""
        for work in parallel(t * KV):
            tile = work // KV
            h = work % KV
            start = cast(i64, first[tile])
            count = cast(i64, length[tile])
            check(start >= 0 and count >= 0 and start + count <= t, "tile {0} is tokens {1} to {2}", tile, start, start + count)
            if count == TOKENS:
                s = cast(i64, sequence[start])
                many(q, keys, values, layer, positions, page_table, s, start, h, out, dims=(t, layers, pages, b, p))
            else:
                for i in range(start, start + count):
                    s = cast(i64, sequence[i])
                    one(q, keys, values, layer, positions, page_table, s, i, h, out, dims=(t, layers, pages, b, p))

    return attend
