"""One decoder layer of a language model: prefill, decode and ragged batches from one compiled program.

    python examples/decoder_layer.py

The layer is written once, with operators (`ops`), loop programs (`@kernel`) and the cache as linear state. It is ragged and
paged: `tokens` of all sequences stand one after the other, keys and values lie in pages of 64 that a page table finds. The
compiled program is then checked against plain numpy for prefills, decoding steps and mixed batches, and timed.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import pliant
from pliant import (
    InOut,
    Out,
    State,
    Tensor,
    alloc,
    cast,
    check,
    dim,
    exp,
    f32,
    fma,
    function,
    i32,
    i64,
    inf,
    kernel,
    ops,
    parallel,
    unroll,
    vector,
)

WIDTH, HEADS, KV_HEADS, HEAD, FFN, PAGE = 576, 9, 3, 64, 1536, 64
BASE, EPS = 100000.0, 1e-5
GROUP, SCALE, LANES = HEADS // KV_HEADS, HEAD**-0.5, 16

t = dim("t", min=1, max=8192)  # tokens of this step, of all sequences
b = dim("b", min=1, max=256)  # sequences
p = dim("p", min=1, max=1024)  # pages that a sequence may have
pages = dim("pages", min=1, max=65536)  # pages in the cache


@kernel
def sequence_of(seq_start: Tensor[i32, b + 1], kv_len: Tensor[i32, b], positions: Tensor[i32, t], sequence: Out[i32, t]) -> None:
    """Which sequence each token belongs to; refuses offsets that are not in order or positions beyond the cached length."""
    end = cast(i64, seq_start[b])
    check(seq_start[0] == 0 and end == t, "seq_start runs from {0} to {1}, not from 0 to {2}", seq_start[0], end, t)
    for s in range(b):
        first = cast(i64, seq_start[s])
        last = cast(i64, seq_start[s + 1])
        check(first >= 0 and first <= last and last <= t, "sequence {0} is tokens {1} to {2} of {3}", s, first, last, t)
        for i in range(first, last):
            check(positions[i] >= 0 and positions[i] < kv_len[s], "token {0} is at {1}, beyond {2}", i, positions[i], kv_len[s])
            sequence[i] = cast(i32, s)


@kernel
def append(
    new: Tensor[f32, t, KV_HEADS, HEAD],
    positions: Tensor[i32, t],
    sequence: Tensor[i32, t],
    page_table: Tensor[i32, b, p],
    cache: InOut[f32, pages, KV_HEADS, PAGE, HEAD],
) -> None:
    """Writes the new keys (or values) to their places in the pages."""
    for i in range(t):
        at = cast(i64, positions[i])
        s = cast(i64, sequence[i])
        check(s >= 0 and s < b, "token {0} is of sequence {1}, there are {2}", i, s, b)
        check(at >= 0 and at // PAGE < p, "position {0} is beyond the {1} pages of its sequence", at, p)
        page = cast(i64, page_table[s, at // PAGE])
        check(page >= 0 and page < pages, "page {0} is not in the cache of {1} pages", page, pages)
        for h in range(KV_HEADS):
            for d in vector(HEAD):
                cache[page, h, at % PAGE, d] = new[i, h, d]


@kernel(scheduled=True)
def attention(
    q: Tensor[f32, t, HEADS, HEAD],
    keys: Tensor[f32, pages, KV_HEADS, PAGE, HEAD],
    values: Tensor[f32, pages, KV_HEADS, PAGE, HEAD],
    positions: Tensor[i32, t],
    sequence: Tensor[i32, t],
    page_table: Tensor[i32, b, p],
    out: Out[f32, t, HEADS, HEAD],
) -> None:
    """Grouped-query attention of each token over the pages of its sequence, up to its own position; one pass, no n x n buffer."""
    for i in parallel(t):
        keys_seen = cast(i64, positions[i]) + 1
        s = cast(i64, sequence[i])
        check(s >= 0 and s < b, "token {0} is of sequence {1}, there are {2}", i, s, b)
        check((keys_seen + PAGE - 1) // PAGE <= p, "{0} keys are more than {1} pages hold", keys_seen, p)
        for h in range(HEADS):
            acc = alloc((HEAD,), f32, scope="stack")
            best = alloc((1,), f32, scope="stack")
            total = alloc((1,), f32, scope="stack")
            score = alloc((PAGE,), f32, scope="stack")
            lanes = alloc((LANES,), f32, scope="stack")
            best[0] = -inf
            total[0] = 0.0
            for d in vector(HEAD):
                acc[d] = 0.0
            for j in range((keys_seen + PAGE - 1) // PAGE):
                page = cast(i64, page_table[s, j])
                check(page >= 0 and page < pages, "page {0} is not in the cache of {1} pages", page, pages)
                left = keys_seen - j * PAGE
                count = min(left, cast(i64, PAGE))
                old = best[0]
                for k in range(count):
                    for x in vector(LANES):
                        lanes[x] = q[i, h, x] * keys[page, h // GROUP, k, x]
                    for c in unroll(1, HEAD // LANES):
                        for x in vector(LANES):
                            lanes[x] = fma(q[i, h, c * LANES + x], keys[page, h // GROUP, k, c * LANES + x], lanes[x])
                    for x in vector(8):
                        lanes[x] += lanes[x + 8]
                    for x in vector(4):
                        lanes[x] += lanes[x + 4]
                    score[k] = ((lanes[0] + lanes[2]) + (lanes[1] + lanes[3])) * SCALE
                    best[0] = max(best[0], score[k])
                shrink = exp(old - best[0])
                total[0] *= shrink
                for d in vector(HEAD):
                    acc[d] *= shrink
                for k in vector(count):
                    score[k] = exp(score[k] - best[0])
                for k in range(count):
                    total[0] += score[k]
                    for d in vector(HEAD):
                        acc[d] = fma(score[k], values[page, h // GROUP, k, d], acc[d])
            for d in vector(HEAD):
                out[i, h, d] = acc[d] / total[0]


@function
def decoder_layer(
    x: Tensor[f32, t, WIDTH],
    positions: Tensor[i32, t],
    seq_start: Tensor[i32, b + 1],
    kv_len: Tensor[i32, b],
    page_table: Tensor[i32, b, p],
    norm1: Tensor[f32, WIDTH],
    wq: Tensor[f32, WIDTH, HEADS * HEAD],
    wk: Tensor[f32, WIDTH, KV_HEADS * HEAD],
    wv: Tensor[f32, WIDTH, KV_HEADS * HEAD],
    wo: Tensor[f32, HEADS * HEAD, WIDTH],
    norm2: Tensor[f32, WIDTH],
    w_gate: Tensor[f32, WIDTH, FFN],
    w_up: Tensor[f32, WIDTH, FFN],
    w_down: Tensor[f32, FFN, WIDTH],
    keys: State[f32, pages, KV_HEADS, PAGE, HEAD],
    values: State[f32, pages, KV_HEADS, PAGE, HEAD],
) -> tuple[Tensor[f32, t, WIDTH], State[f32, pages, KV_HEADS, PAGE, HEAD], State[f32, pages, KV_HEADS, PAGE, HEAD]]:
    """Norm, attention over the cache, norm, gated feed-forward; two residuals."""
    sequence = sequence_of(seq_start, kv_len, positions)
    h = ops.rms_norm(x, norm1, eps=EPS)
    q = ops.rotary_embedding(ops.reshape(h @ wq, (t, HEADS, HEAD)), positions, base=BASE)
    k = ops.rotary_embedding(ops.reshape(h @ wk, (t, KV_HEADS, HEAD)), positions, base=BASE)
    v = ops.reshape(h @ wv, (t, KV_HEADS, HEAD))
    keys = append(k, positions, sequence, page_table, keys)
    values = append(v, positions, sequence, page_table, values)
    a = attention(q, keys, values, positions, sequence, page_table)
    x = x + ops.reshape(a, (t, WIDTH)) @ wo
    h = ops.rms_norm(x, norm2, eps=EPS)
    x = x + (ops.silu(h @ w_gate) * (h @ w_up)) @ w_down
    return x, keys, values


Weights = dict[str, np.ndarray[Any, Any]]


def random_weights(seed: int = 0) -> Weights:
    """Weights of the layer, scaled so that values stay near one."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray[Any, Any]:
        made: np.ndarray[Any, Any] = (rng.standard_normal((rows, columns)) * rows**-0.5).astype(np.float32)
        return made

    kv = KV_HEADS * HEAD
    return {
        "norm1": rng.uniform(0.5, 1.5, WIDTH).astype(np.float32),
        "wq": matrix(WIDTH, HEADS * HEAD),
        "wk": matrix(WIDTH, kv),
        "wv": matrix(WIDTH, kv),
        "wo": matrix(HEADS * HEAD, WIDTH),
        "norm2": rng.uniform(0.5, 1.5, WIDTH).astype(np.float32),
        "w_gate": matrix(WIDTH, FFN),
        "w_up": matrix(WIDTH, FFN),
        "w_down": matrix(FFN, WIDTH),
    }


class Cache:
    """The pages of some sequences, and who owns which: the host side of paging."""

    def __init__(self, pages: int, slots: int, sequences: int) -> None:
        self.keys = np.zeros((pages, KV_HEADS, PAGE, HEAD), np.float32)
        self.values = np.zeros((pages, KV_HEADS, PAGE, HEAD), np.float32)
        self.table = np.zeros((sequences, slots), np.int32)
        self.length = np.zeros(sequences, np.int32)
        self.free = list(np.random.default_rng(7).permutation(pages))

    def step(self, counts: dict[int, int]) -> dict[str, np.ndarray[Any, Any]]:
        """The index arrays of a step that adds `counts[s]` tokens to each sequence s, with pages taken as needed."""
        order = sorted(counts)
        positions = []
        for s in order:
            first, last = int(self.length[s]), int(self.length[s]) + counts[s]
            for slot in range(-(-first // PAGE), -(-last // PAGE)):
                self.table[s, slot] = self.free.pop()
            positions.append(np.arange(first, last, dtype=np.int32))
            self.length[s] = last
        return {
            "positions": np.concatenate(positions),
            "seq_start": np.cumsum([0] + [counts[s] for s in order], dtype=np.int32),
            "kv_len": np.ascontiguousarray(self.length[order]),
            "page_table": np.ascontiguousarray(self.table[order]),
        }


def reference(x: np.ndarray[Any, Any], w: Weights, past: tuple[Any, Any], dtype: Any = np.float64) -> tuple[Any, tuple[Any, Any]]:
    """The layer in plain numpy for the new tokens of one sequence, given its past keys and values; returns these extended."""
    x = x.astype(dtype, copy=False)
    w = {name: a.astype(dtype, copy=False) for name, a in w.items()}
    start = len(past[0])

    def norm(v: Any, weight: Any) -> Any:
        return v / np.sqrt(np.mean(v * v, axis=-1, keepdims=True) + dtype(EPS)) * weight

    angle = (np.arange(start, start + len(x))[:, None] * BASE ** (-np.arange(0, HEAD, 2) / HEAD))[:, None, :]
    cos, sin = np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)

    def rotate(v: Any) -> Any:
        left, right = v[..., : HEAD // 2], v[..., HEAD // 2 :]
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)

    h = norm(x, w["norm1"])
    q = rotate((h @ w["wq"]).reshape(-1, HEADS, HEAD))
    keys = np.concatenate([past[0], rotate((h @ w["wk"]).reshape(-1, KV_HEADS, HEAD))])
    values = np.concatenate([past[1], (h @ w["wv"]).reshape(-1, KV_HEADS, HEAD)])
    score = np.einsum("ihd,jhd->hij", q, np.repeat(keys, GROUP, axis=1)) * dtype(SCALE)
    visible = np.arange(len(keys))[None, :] <= np.arange(start, start + len(x))[:, None]
    score = np.where(visible, score, -np.inf)
    score = np.exp(score - score.max(axis=-1, keepdims=True))
    score /= score.sum(axis=-1, keepdims=True)
    a = np.einsum("hij,jhd->ihd", score, np.repeat(values, GROUP, axis=1))
    x = x + a.reshape(-1, WIDTH) @ w["wo"]
    h = norm(x, w["norm2"])
    gate = h @ w["w_gate"]
    return x + (gate / (1 + np.exp(-gate)) * (h @ w["w_up"])) @ w["w_down"], (keys, values)


def no_past(dtype: Any = np.float64) -> tuple[Any, Any]:
    """The keys and values of a sequence that has none."""
    return np.zeros((0, KV_HEADS, HEAD), dtype), np.zeros((0, KV_HEADS, HEAD), dtype)


def run_steps(layer: Any, w: Weights, steps: list[dict[int, int]], sequences: int, seed: int = 1) -> tuple[list[Any], list[Any]]:
    """Runs the steps (tokens to add to each sequence) natively and in numpy; the results of both, step by step."""
    rng = np.random.default_rng(seed)
    cache = Cache(pages=64, slots=16, sequences=sequences)
    past = [no_past() for _ in range(sequences)]
    ours, theirs = [], []
    for counts in steps:
        index = cache.step(counts)
        x = rng.standard_normal((sum(counts.values()), WIDTH)).astype(np.float32)
        y, *_ = layer(x=x, **index, **w, keys=cache.keys, values=cache.values)
        ours.append(y)
        expected, at = [], 0
        for s in sorted(counts):
            part, past[s] = reference(x[at : at + counts[s]], w, past[s])
            expected.append(part)
            at += counts[s]
        theirs.append(np.concatenate(expected))
    return ours, theirs


def worst(ours: list[Any], theirs: list[Any]) -> float:
    """The largest difference, in units of the largest expected value."""
    return max(float(np.abs(a - e).max() / np.abs(e).max()) for a, e in zip(ours, theirs, strict=True))


def best_time(call: Any, seconds: float = 0.5) -> float:
    """The shortest of the calls that fit into about `seconds`."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def prefill_arguments(w: Weights, tokens: int) -> dict[str, Any]:
    """The arguments of a prefill of one sequence."""
    cache = Cache(pages=64, slots=16, sequences=1)
    x = np.random.default_rng(3).standard_normal((tokens, WIDTH)).astype(np.float32)
    return {"x": x, **cache.step({0: tokens}), **w, "keys": cache.keys, "values": cache.values}


def main() -> None:
    """Compiles the layer, checks it, times it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="check fewer lengths")
    quick = parser.parse_args().quick
    start = time.perf_counter()
    layer = pliant.compile(decoder_layer)
    print(f"compiled in {time.perf_counter() - start:.2f} s, for every shape of this contract:")
    print(layer.contract)
    w = random_weights()
    lengths = [1, 2, 17, 64, 65] if quick else [1, 2, 3, 5, 16, 17, 63, 64, 65, 100, 128, 129, 255, 300]
    runs = {
        f"prefill of {lengths[0]}..{lengths[-1]} tokens": [[{0: n}] for n in lengths],
        "prefill of 100, then 40 decoding steps": [[{0: 100}, *([{0: 1}] * 40)]],
        "three sequences, joined, decoded, extended": [[{0: 70}, {0: 1, 1: 33, 2: 5}, {0: 1, 1: 1, 2: 1}, {0: 2, 2: 64}]],
    }
    for name, cases in runs.items():
        error = max(worst(*run_steps(layer, w, steps, 3)) for steps in cases)
        print(f"{name}: largest difference from float64 numpy {error:.1e} of the largest value")
        if error > 2e-5:
            raise SystemExit("the layer is wrong")
    for tokens in (1, 16, 128):
        arguments = prefill_arguments(w, tokens)
        ours = best_time(lambda arguments=arguments: layer(**arguments))
        theirs = best_time(lambda arguments=arguments: reference(arguments["x"], w, no_past(np.float32), np.float32))
        flops = 2 * tokens * (2 * WIDTH * HEADS * HEAD + 2 * WIDTH * KV_HEADS * HEAD + 3 * WIDTH * FFN)
        speed = f"{ours * 1e3:7.3f} ms ({flops / ours / 1e9:5.0f} GFLOP/s)"
        print(f"{tokens:4} tokens: {speed}, numpy {theirs * 1e3:7.3f} ms: {theirs / ours:.1f} x")


if __name__ == "__main__":
    main()
