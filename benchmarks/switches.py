"""What each optimisation is worth on MiniLM-L6 (examples/minilm.py): time and workspace of one batch with all of them, and without each.

python benchmarks/switches.py [--rounds 3]
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from contest import Times, contest
from minilm import batch, load

LENGTHS = [128]
WITHOUT = ("fuse", "choose_layouts", "combine_matmuls", "plan", "lift_constants", "simplify", "common_subexpressions")
THREADS = 2


def program(without: str, threads: int = THREADS) -> Any:
    """The model compiled without an optimisation."""
    import pliant

    os.environ["PLIANT_DISABLE"] = without
    return pliant.compile(load(), threads=threads)


def milliseconds(without: str, threads: int = THREADS) -> float:
    """The time of the shortest of some runs."""
    import time

    f, (ids, mask) = program(without, threads), batch(LENGTHS)
    found = float("inf")
    for _ in range(50):
        begin = time.perf_counter()
        f(ids, mask)
        found = min(found, time.perf_counter() - begin)
    return found * 1e3


def report(times: Times) -> None:
    """How many times as long each takes, and the workspace with and without the memory plan."""
    usual = min(times["all"])
    for name, rounds in times.items():
        print(f"{name:54} {min(rounds) / usual:9.2f} x")
    for without in ("", "plan", "fuse"):
        used = program(without).workspace(b=1, n=LENGTHS[0])
        print(f"{f'workspace without {without}' if without else 'workspace':54} {used / 2**20:9.2f} MiB")


CONTESTANTS = {
    "all": partial(milliseconds, ""),
    **{f"without {name}": partial(milliseconds, name) for name in WITHOUT},
    "with one thread": partial(milliseconds, "", 1),
}

if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, unit="ms, 1 x 128 tokens", report=report)
