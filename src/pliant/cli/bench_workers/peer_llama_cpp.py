"""llama.cpp, through the package llama-cpp-python: how many tokens it reads and writes in a second."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

DECODED = 16  # tokens of a timed run


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Measures everything that is asked for."""
    llama_cpp = import_module("llama_cpp")
    room = max([*given["prompts"], *(c + DECODED + 1 for c in given["contexts"])]) + 1
    lm = llama_cpp.Llama(
        given["model"], n_ctx=room, n_batch=512, n_threads=given["threads"], n_threads_batch=given["threads"], verbose=False
    )
    words = lm.n_vocab()

    def prefill(count: int) -> float:
        tokens = [(7 * i + 3) % words for i in range(count)]

        def run() -> None:
            lm.reset()
            lm.eval(tokens)

        return count / best(run, given["seconds"])

    def decode(context: int) -> float:
        lm.reset()
        lm.eval([(7 * i + 3) % words for i in range(max(1, context))])

        def run() -> None:
            lm.n_tokens = max(1, context)
            for i in range(DECODED):
                lm.eval([(5 * i + 11) % words])

        return DECODED / best(run, given["seconds"])

    return {
        "prefill": {str(n): prefill(n) for n in given["prompts"]},
        "decode": {str(n): decode(n) for n in given["contexts"]},
        "version": llama_cpp.__version__,
    }


def best(run: Callable[[], None], seconds: float) -> float:
    """The shortest of the runs that fit into `seconds`; the first one warms up, and counts only where it takes longer than all of that."""
    found, runs, end = float("inf"), 0, float("inf")
    while runs < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        took, runs = time.perf_counter() - begin, runs + 1
        if runs == 1 and took > seconds:
            return took
        found = min(found, took) if runs > 1 else found
        end = begin + took + seconds if runs == 1 else end
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
