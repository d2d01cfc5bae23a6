"""What each optimization is worth on MiniLM-L6 and on the decoder layer of the examples: time and workspace with all, and without each.

    python benchmarks/switches.py [--rounds 3] [--only "without fuse"]

Optimizations are left out by `PLIANT_DISABLE`. The weights of MiniLM are literals, which are packed for the kernels that read them
(`choose_layouts`); those of the decoder layer are arguments, which are read as they lie.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from contest import Times, contest
from decoder_layer import decoder_layer, prefill_arguments, random_weights
from minilm import batch, load

TOKENS = 128
WITHOUT = ("fuse", "choose_layouts", "combine_matmuls", "plan", "lift_constants", "simplify", "common_subexpressions")
THREADS = 2
Model = tuple[Any, Callable[[], object]]  # a compiled program, and a call of it


def minilm(threads: int) -> Model:
    """The sentence embedder and a run of one text."""
    import pliant

    f: Any = pliant.compile(load(), threads=threads)
    given = batch([TOKENS])
    return f, lambda: f(*given)


def decoder(threads: int) -> Model:
    """The layer of a decoder and a prefill."""
    import pliant

    f: Any = pliant.compile(decoder_layer, threads=threads)
    given = prefill_arguments(random_weights(), TOKENS)
    return f, lambda: f(**given)


MODELS = {"MiniLM": minilm, "decoder layer": decoder}


def milliseconds(without: str, threads: int = THREADS) -> dict[str, float]:
    """The time of the shortest of some runs of each model."""
    os.environ["PLIANT_DISABLE"] = without
    return {name: shortest(make(threads)[1]) for name, make in MODELS.items()}


def shortest(run: Callable[[], object]) -> float:
    """Milliseconds of the shortest of 50 runs."""
    found = float("inf")
    for _ in range(50):
        begin = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - begin)
    return found * 1e3


def workspace(without: str) -> dict[str, float]:
    """MiB of temporaries of each model."""
    os.environ["PLIANT_DISABLE"] = without
    dims = {"MiniLM": {"b": 1, "n": TOKENS}, "decoder layer": {"t": TOKENS, "b": 1, "p": 2, "pages": 2}}
    return {name: make(THREADS)[0].workspace(**dims[name]) / 2**20 for name, make in MODELS.items()}


CONTESTANTS = {
    "all": partial(milliseconds, ""),
    **{f"without {name}": partial(milliseconds, name) for name in WITHOUT},
    "on one thread": partial(milliseconds, "", 1),
    **{f"workspace {name}".rstrip(): partial(workspace, name) for name in ("", "plan", "fuse")},
}


def report(times: Times) -> None:
    """How many times as long each takes, and the workspace with and without the memory plan and fusion."""
    for model in MODELS:
        usual = min(times.get(f"all, {model}", [float("nan")]))
        for name in [c for c in CONTESTANTS if not c.startswith("workspace") and f"{c}, {model}" in times]:
            print(f"{f'{model} {name}':54} {min(times[f'{name}, {model}']) / usual:9.2f} x")
        for name in [c for c in CONTESTANTS if c.startswith("workspace") and f"{c}, {model}" in times]:
            what = name.replace("workspace ", "workspace without ")
            print(f"{f'{model}, {what}':54} {min(times[f'{name}, {model}']):9.2f} MiB")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, f"ms, {TOKENS} tokens", report, listed=lambda name: not name.startswith("workspace"))
