"""MiniLM-L6 (examples/minilm.py) against torch, eager and compiled with dynamic shapes, and against the machine's FMA rate; 2 threads.

    python benchmarks/minilm.py [--rounds 2] [--only torch.compile]

Each contestant compiles once and then runs every size, a second each. torch.compile needs a C++ compiler, and is left out where there
is none; its first run on a machine takes half a minute longer, since nothing is in its cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from contest import Times, contest, ratio
from minilm import FFN, HEADS, LAYERS, WIDTH, batch, load, weights_file

SIZES = {"1 x 17": [17], "1 x 64": [64], "1 x 128": [128], "1 x 311": [311], "8 x 128": [128] * 8}
THREADS = 2


def best(run: Callable[[], object], seconds: float = 1.0) -> float:
    """Milliseconds of the shortest run; runs before the clock starts warm everything up."""
    run(), run()
    found, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - begin)
    return found * 1e3


def timed(run: Callable[[Any, Any], object], arguments: Callable[[list[int]], tuple[Any, Any]]) -> dict[str, float]:
    """Milliseconds of each batch."""
    given = {size: arguments(lengths) for size, lengths in SIZES.items()}
    return {size: best(partial(run, *both)) for size, both in given.items()}


def ours() -> dict[str, float]:
    """Milliseconds of each batch."""
    import pliant

    f: Any = pliant.compile(load(), threads=THREADS)
    return timed(f, batch)


def bert(double: bool = False) -> Callable[[Any, Any], Any]:
    """The same model in torch, with the mean over tokens."""
    import torch
    import transformers
    from safetensors.torch import load_file

    torch.set_num_threads(THREADS)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": FFN}
    body = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False).eval()
    body.load_state_dict(load_file(weights_file()), strict=False)
    body = body.double() if double else body

    def embed(ids: Any, mask: Any) -> Any:
        states = body(input_ids=ids, attention_mask=mask).last_hidden_state
        seen = mask.to(states.dtype)[:, :, None]
        return torch.nn.functional.normalize((states * seen).sum(1) / seen.sum(1).clamp(min=1e-9), dim=1)

    return embed


def eager() -> dict[str, float]:
    """Milliseconds of each batch in torch."""
    import torch

    embed = bert()
    with torch.inference_mode():
        return timed(embed, tensors)


def compiled() -> dict[str, float]:
    """Milliseconds of each batch in torch, compiled once for every shape (it has met others before)."""
    import torch

    embed: Callable[[Any, Any], Any] = torch.compile(bert(), dynamic=True)
    with torch.no_grad():
        for before in ([33], [47, 21]):
            embed(*tensors(before))
        return timed(embed, tensors)


def tensors(lengths: list[int]) -> tuple[Any, Any]:
    """The batch for torch."""
    import torch

    ids, mask = map(torch.from_numpy, batch(lengths))
    return ids, mask


def limit() -> dict[str, float]:
    """Milliseconds that the matrix products take at the machine's FMA rate."""
    from pliant.machine_peak import fma_rate

    rate = fma_rate(THREADS, seconds=1.0)
    return {size: LAYERS * products(lengths) / rate * 1e3 for size, lengths in SIZES.items()}


def products(lengths: list[int]) -> float:
    """Operations of the matrix products of a layer, attention included."""
    n, tokens = max(lengths), max(lengths) * len(lengths)
    return 2.0 * tokens * (4 * WIDTH * WIDTH + 2 * WIDTH * FFN) + 4.0 * tokens * n * WIDTH


def error() -> dict[str, float]:
    """The largest error against torch in float64, in millionths, ours and torch's."""
    import torch

    import pliant

    f: Any = pliant.compile(load(), threads=THREADS)
    exact, single = bert(double=True), bert()
    found = {}
    for size, lengths in SIZES.items():
        with torch.inference_mode():
            true, theirs = (embed(*tensors(lengths)).numpy() for embed in (exact, single))
        for who, made in (("pliant", f(*batch(lengths))), ("torch", theirs)):
            found[f"{who}, {size}"] = float(np.abs(made - true).max()) * 1e6
    return found


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
    command = [sys.executable, "-c", script, *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    return (time.perf_counter() - begin) * 1e3


CONTESTANTS = {
    "pliant": ours,
    "torch": eager,
    "torch.compile": compiled,
    "FMA limit": limit,
    "error": error,
    "cold compile": cold_compile,
    "warm start of a process": warm_start,
}


def report(times: Times) -> None:
    """The ratios, and the errors."""
    for size in SIZES:
        for peer in ("torch", "torch.compile"):
            ratio(times, f"pliant, {size}", f"{peer}, {size}", f"faster than {peer}, {size}")
        ratio(times, f"FMA limit, {size}", f"pliant, {size}", f"times the FMA limit, {size}")
        ratio(times, f"error, torch, {size}", f"error, pliant, {size}", f"times the error of torch in float32, {size}")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, "ms", report, listed=lambda name: not name.startswith("error"))
