"""Worker that measures llama.cpp (package llama-cpp-python): prefill and decode rates."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

DECODED = 16  # tokens per timed run: long enough to time well, short enough that the context length hardly changes


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Measures llama.cpp on a language model: returns the rates for all prompt and context lengths of the request."""
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
    """Returns the time in seconds of the fastest run within `seconds`; makes at least three runs.

    The first is a warm-up, and counts only if it alone takes longer than `seconds`: then it is the only one.
    """
    fastest, runs, end = float("inf"), 0, float("inf")
    while runs < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        took, runs = time.perf_counter() - begin, runs + 1
        if runs == 1 and took > seconds:
            return took
        fastest = min(fastest, took) if runs > 1 else fastest
        end = begin + took + seconds if runs == 1 else end
    return fastest


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
