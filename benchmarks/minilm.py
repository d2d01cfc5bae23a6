"""MiniLM-L6 (examples/minilm.py) against torch, eager and compiled with dynamic shapes, and against the machine's FMA rate; 2 threads.

python benchmarks/minilm.py [--rounds 5]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from contest import Times, contest, ratio
from minilm import FFN, HEADS, LAYERS, WIDTH, batch, load, weights_file

SIZES = {"1 x 17": [17], "1 x 64": [64], "1 x 128": [128], "1 x 311": [311], "8 x 128": [128] * 8}
THREADS = 2


def best(run: Callable[[], object], seconds: float = 2.0) -> float:
    """Milliseconds of the shortest run; runs before the clock starts warm everything up."""
    run(), run()
    found, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - begin)
    return found * 1e3


def ours(lengths: list[int]) -> float:
    """Milliseconds of one batch."""
    import pliant

    f: Any = pliant.compile(load(), threads=THREADS)
    ids, mask = batch(lengths)
    return best(lambda: f(ids, mask))


def bert() -> Any:
    """The same model in torch, with the mean over tokens."""
    import torch
    import transformers
    from safetensors.torch import load_file

    torch.set_num_threads(THREADS)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": FFN}
    body = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False).eval()
    body.load_state_dict(load_file(weights_file()), strict=False)

    def embed(ids: Any, mask: Any) -> Any:
        states = body(input_ids=ids, attention_mask=mask).last_hidden_state
        seen = mask.to(states.dtype)[:, :, None]
        return torch.nn.functional.normalize((states * seen).sum(1) / seen.sum(1).clamp(min=1e-9), dim=1)

    return embed


def eager(lengths: list[int]) -> float:
    """Milliseconds of one batch in torch."""
    import torch

    embed = bert()
    ids, mask = map(torch.from_numpy, batch(lengths))
    with torch.inference_mode():
        return best(lambda: embed(ids, mask))


def compiled(lengths: list[int]) -> float:
    """Milliseconds of one batch in torch, compiled once for every shape (it has met another shape before)."""
    import torch

    embed = torch.compile(bert(), dynamic=True)
    with torch.no_grad():
        for before in ([33], [47, 21]):
            embed(*map(torch.from_numpy, batch(before)))
        ids, mask = map(torch.from_numpy, batch(lengths))
        return best(lambda: embed(ids, mask))


def limit(lengths: list[int]) -> float:
    """Milliseconds that the matrix products take at the machine's FMA rate."""
    from pliant.measure import fma_rate

    n, tokens = max(lengths), max(lengths) * len(lengths)
    products = 2.0 * tokens * (4 * WIDTH * WIDTH + 2 * WIDTH * FFN) + 4.0 * tokens * n * WIDTH
    return LAYERS * products / fma_rate(THREADS, seconds=1.0) * 1e3


def cold_compile() -> float:
    """Milliseconds to compile the model without a cache."""
    import pliant

    model = load()
    begin = time.perf_counter()
    pliant.compile(model, cache=False)
    return (time.perf_counter() - begin) * 1e3


def warm_start() -> float:
    """Milliseconds from the start of a fresh process, in which the code is in the cache, to a program that can be called."""
    import pliant

    pliant.compile(load())
    script = "import sys; sys.path[:0] = sys.argv[1:]; import pliant, minilm; pliant.compile(minilm.load())"
    import subprocess
    import sys

    command = [sys.executable, "-c", script, *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    return (time.perf_counter() - begin) * 1e3


KINDS = {"pliant": ours, "torch": eager, "torch.compile": compiled, "FMA limit": limit}
CONTESTANTS = {
    **{f"{kind}, {size}": (lambda measure=measure, s=s: measure(s)) for size, s in SIZES.items() for kind, measure in KINDS.items()},
    "cold compile": cold_compile,
    "warm start of a process": warm_start,
}


def report(times: Times) -> None:
    """The ratios."""
    for size in SIZES:
        for peer in ("torch", "torch.compile"):
            ratio(times, f"pliant, {size}", f"{peer}, {size}", f"faster than {peer}, {size}")
        ratio(times, f"FMA limit, {size}", f"pliant, {size}", f"times the FMA limit, {size}")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, "ms", report)
