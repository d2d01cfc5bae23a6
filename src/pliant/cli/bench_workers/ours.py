"""Worker that measures Pliant: prefill and decode rates, and the bytes and operations that a token needs."""

from __future__ import annotations

import json
import sys
from typing import Any

from .peer_llama_cpp import DECODED, best


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Measures Pliant on a language model: returns the rates for all prompt and context lengths of the request."""
    from ... import __version__
    from ...llm.engine import Engine
    from ...llm.model_file import open_model

    file = open_model(given["model"])
    room = max([*given["prompts"], *(c + DECODED + 1 for c in given["contexts"])]) + 1
    engine = Engine(file, threads=given["threads"], context=room)

    def prefill(count: int) -> float:
        tokens = [(7 * i + 3) % engine.vocab_size for i in range(count)]

        def run() -> None:
            sequence = engine.cache.open(())
            engine.feed(sequence, tokens)
            engine.cache.release(sequence)

        return count / best(run, given["seconds"])

    def decode(context: int) -> float:
        sequence = engine.cache.open(())
        engine.feed(sequence, [(7 * i + 3) % engine.vocab_size for i in range(max(1, context))])

        def run() -> None:
            engine.cache.shorten(sequence, max(1, context))
            for i in range(DECODED):
                engine.feed(sequence, [(5 * i + 11) % engine.vocab_size])

        rate = DECODED / best(run, given["seconds"])
        engine.cache.release(sequence)
        return rate

    return {
        "prefill": {str(n): prefill(n) for n in given["prompts"]},
        "decode": {str(n): decode(n) for n in given["contexts"]},
        "needs": needs(file, engine),
        "version": __version__,
    }


def needs(file: Any, engine: Any) -> dict[str, float]:
    """Returns the cost of a token: weight bytes read per decoded token, KV cache bytes per context token, operations per prompt token."""
    matrices = [t for t in file.tensors.values() if len(t.shape) == 2]
    tied = "output.weight" not in file.tensors
    layers = [t for t in matrices if t.name.startswith("blk.")]
    head = [t for t in matrices if t.name == ("token_embd.weight" if tied else "output.weight")]
    page = engine.cache.keys[0, :, 0]  # one page in all layers
    return {
        "bytes": float(sum(t.size for t in [*layers, *head])),
        "bytes_per_context": 2.0 * page.nbytes / page.shape[-1],
        "operations": 2.0 * sum(t.shape[0] * t.shape[1] for t in layers),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
