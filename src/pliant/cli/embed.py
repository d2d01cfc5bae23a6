"""`pliant embed [TEXT…]`: makes vectors of texts by an embedding model.

    pliant embed "a cat on a mat" "a kitten on a rug"
    pliant embed -m my-bert/ -o vectors.npy < lines.txt

Vectors go to stdout, one per line with spaces between the numbers, as numpy.loadtxt reads them. Without texts, each line of stdin is one.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from . import Usage, progress

DEFAULT = "minilm"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant embed` to the parser."""
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="the texts; without any, each line of stdin is one")
    parser.add_argument(
        "-m",
        "--model",
        metavar="MODEL",
        default=DEFAULT,
        help=f"a name from `pliant models list`, or a checkpoint folder of transformers (default: {DEFAULT})",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the vectors to a .npy file instead, f32[texts, width]")
    parser.add_argument("--truncate", action="store_true", help="cut texts that are longer than the model reads")
    parser.add_argument("--threads", type=int, metavar="N", help="number of threads")
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant embed`: prints or writes the vectors; returns the exit code. Raises Usage for wrong options, or if there is no text."""
    if options.threads is not None and options.threads < 1:
        raise Usage(f"--threads is {options.threads}; at least one is needed")
    if options.output is not None and Path(options.output).suffix != ".npy":
        raise Usage(f"--output is `{options.output}`, and vectors are written to a .npy file")
    texts = options.texts or _lines()
    import numpy as np

    from ..llm.embedder import Embedder
    from .chat import remark

    model = Embedder(options.model, threads=options.threads, offline=options.offline, progress=progress, announce=remark)
    progress("")
    vectors = model.embed(texts, truncate=options.truncate)
    if options.output is not None:
        np.save(options.output, vectors)
    if options.json:
        facts = {"model": options.model, "width": model.width, "texts": len(texts)}
        print(json.dumps(facts | ({"file": options.output} if options.output else {"vectors": vectors.tolist()})))
    elif options.output is None:
        print("\n".join(" ".join(f"{x:.9g}" for x in row) for row in vectors.tolist()))
    return 0


def _lines() -> list[str]:
    """Returns the lines of stdin that have text; raises Usage if there is none, or if stdin is a terminal."""
    found = [] if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read().decode("utf-8", "replace").splitlines()
    texts = [line for line in found if line.strip()]
    if not texts:
        raise Usage("there is nothing to embed: no TEXT, and nothing comes through stdin")
    return texts
