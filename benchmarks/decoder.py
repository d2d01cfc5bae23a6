"""The decoder layer of examples/decoder_layer.py against the same in numpy, and against the machine's FMA rate.

python benchmarks/decoder.py [--rounds 5]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import pliant
from contest import Times, contest, ratio
from decoder_layer import FFN, HEAD, HEADS, KV_HEADS, WIDTH, best_time, decoder_layer, no_past, prefill_arguments, random_weights, reference
from pliant.machine_peak import fma_rate

TOKENS = (1, 16, 128, 300)


def flops(tokens: int) -> float:
    """Of the seven matrix products (attention and the rest add a few percent)."""
    return 2.0 * tokens * (2 * WIDTH * HEADS * HEAD + 2 * WIDTH * KV_HEADS * HEAD + 3 * WIDTH * FFN)


def limit(tokens: int) -> float:
    """Milliseconds that these operations take at the FMA rate of 2 threads."""
    return flops(tokens) / fma_rate(2, seconds=1.0) * 1e3


def ours(tokens: int, threads: int) -> float:
    """Milliseconds of the compiled layer."""
    layer: Any = pliant.compile(decoder_layer, threads=threads)
    arguments = prefill_arguments(random_weights(), tokens)
    return best_time(lambda: layer(**arguments), 1.0) * 1e3


def in_numpy(tokens: int) -> float:
    """Milliseconds of the layer in plain numpy (its matrix products run on all cores)."""
    weights = random_weights()
    x = prefill_arguments(weights, tokens)["x"]
    return best_time(lambda: reference(x, weights, no_past(np.float32), np.float32), 1.0) * 1e3


def compile_time() -> float:
    """Milliseconds to compile the layer without a cache."""
    begin = time.perf_counter()
    pliant.compile(decoder_layer, cache=False)
    return (time.perf_counter() - begin) * 1e3


CONTESTANTS = {
    **{f"pliant, {n} tokens, 2 threads": (lambda n=n: ours(n, 2)) for n in TOKENS},
    **{f"pliant, {n} tokens, 1 thread": (lambda n=n: ours(n, 1)) for n in (1, 128)},
    **{f"numpy, {n} tokens": (lambda n=n: in_numpy(n)) for n in TOKENS},
    "FMA limit, 128 tokens, 2 threads": lambda: limit(128),
    "cold compile": compile_time,
}


def report(times: Times) -> None:
    """The ratios."""
    for n in TOKENS:
        ratio(times, f"pliant, {n} tokens, 2 threads", f"numpy, {n} tokens", f"faster than numpy, {n} tokens")
    ratio(times, "pliant, 128 tokens, 2 threads", "FMA limit, 128 tokens, 2 threads", "share of the FMA limit, 128 tokens")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, "ms", report)
