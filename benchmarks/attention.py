"""Flash attention of the operator and of the paged KV cache: time on one thread, and error against numpy in f64.

The time is the best of many calls. To compare two commits, run it in turns from two working trees: `PYTHONPATH=<tree>/src`.

python benchmarks/attention.py [--target llvm:x86-64-v3] [--only paged]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import pliant
from pliant import Tensor, dim, f16, f32, function, ops
from pliant.llm.kv_cache import PAGE
from pliant.llm.paged import Paged

b, n, m = dim("b"), dim("n"), dim("m")
Case = tuple[Callable[[], Any], np.ndarray[Any, Any]]  # a call, and its result in f64
SECONDS = 0.3  # for each case


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def truth(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Attention of [heads, n, d] by its formula in f64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (x.repeat(len(q) // len(x), axis=0) for x in (k, v))
    scores = np.where(seen, q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def operator(target: str, heads: int, kv: int, d: int, rows: int, keys: int, causal: bool = False) -> Case:
    """A case of `scaled_dot_product_attention`."""

    @function
    def plain(q: Tensor[f32, b, heads, n, d], k: Tensor[f32, b, kv, m, d], v: Tensor[f32, b, kv, m, d]) -> Tensor[f32, b, heads, n, d]:
        return ops.scaled_dot_product_attention(q, k, v)

    @function
    def ordered(q: Tensor[f32, b, heads, n, d], k: Tensor[f32, b, kv, m, d], v: Tensor[f32, b, kv, m, d]) -> Tensor[f32, b, heads, n, d]:
        return ops.scaled_dot_product_attention(q, k, v, is_causal=True, offset=m - n)

    f = pliant.compile(ordered if causal else plain, target=target, threads=1)
    q, k, v = random(1, heads, rows, d), random(1, kv, keys, d, seed=1), random(1, kv, keys, d, seed=2)
    seen = np.arange(keys) <= np.arange(rows)[:, None] + keys - rows if causal else True
    return lambda: f(q, k, v)[0], truth(q[0], k[0], v[0], seen)


def paged(target: str, heads: int, kv: int, d: int, tokens: int, before: int) -> Case:
    """A case of the paged KV cache: a step of `tokens` after `before` others of one sequence."""
    shape = Paged(heads, kv, d, d**-0.5, cache=f16)
    f = pliant.compile(shape.attend, target=target, threads=1)
    keys = before + tokens
    count = -(-keys // PAGE)
    k, v = (random(count * PAGE, kv, d, seed=s).astype(np.float16) for s in (1, 2))
    pages = []
    for rows, order in ((k, (0, 2, 3, 1)), (v, (0, 2, 1, 3))):
        whole = np.zeros((-(-count // shape.run) * shape.run, *rows.reshape(count, PAGE, kv, d).transpose(order).shape[1:]), np.float16)
        whole[:count] = rows.reshape(count, PAGE, kv, d).transpose(order)
        pages.append(whole.reshape(-1, 1, shape.run, *whole.shape[1:]))
    q, places = random(tokens, heads, d), np.arange(before, keys, dtype=np.int32)
    first, length, sequence = np.zeros((3, tokens), np.int32)
    for tile, start in enumerate(range(0, tokens, shape.tokens)):
        first[tile], length[tile] = start, min(shape.tokens, tokens - start)
    table = np.arange(count, dtype=np.int32)[None]
    wanted = truth(*(x.transpose(1, 0, 2) for x in (q, k[:keys], v[:keys])), np.arange(keys) <= places[:, None])
    sinks = np.full(heads, -np.inf, np.float32)
    return lambda: f(q, *pages, 0, places, sequence, first, length, table, sinks), wanted.transpose(1, 0, 2)


SQUARES = [(d, size) for d in (32, 64) for size in (17, 128, 311)]
HEADS = ((9, 3, 64), (32, 8, 128))  # query heads, KV heads, head_dim
CASES: dict[str, Callable[[str], Case]] = {
    **{f"operator 12 x {d}, n = m = {size}": partial(operator, heads=12, kv=12, d=d, rows=size, keys=size) for d, size in SQUARES},
    "operator 12 x 64, n = 1, m = 2048": partial(operator, heads=12, kv=12, d=64, rows=1, keys=2048),
    "operator 9/3 x 64, causal 512": partial(operator, heads=9, kv=3, d=64, rows=512, keys=512, causal=True),
    **{f"paged {h}/{kv} x {d}, prefill 512": partial(paged, heads=h, kv=kv, d=d, tokens=512, before=0) for h, kv, d in HEADS},
    **{f"paged {h}/{kv} x {d}, after 2048": partial(paged, heads=h, kv=kv, d=d, tokens=1, before=2048) for h, kv, d in HEADS},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="native")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    options = parser.parse_args()
    print(f"{'':38} {'µs':>9} {'rms error':>10} {'largest':>10}")
    for name, make in CASES.items():
        if options.only in name:
            call, wanted = make(options.target)
            error = np.abs(call() - wanted)
            best, end = float("inf"), time.perf_counter() + SECONDS
            while (start := time.perf_counter()) < end:
                call()
                best = min(best, time.perf_counter() - start)
            print(f"{name:38} {best * 1e6:9.1f} {np.sqrt(np.mean(error**2)):10.2e} {error.max():10.2e}")


if __name__ == "__main__":
    main()
