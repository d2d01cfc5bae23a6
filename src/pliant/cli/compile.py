"""`pliant compile MODEL -o FILE`: a model as a `.pliant` artifact, which `pliant.load` opens without compiling."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from . import progress
from .model_options import add_dims, read_dims


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("model", help="an .onnx or .pliant file")
    parser.add_argument("-o", "--output", help="the artifact to write; beside the model if not said")
    add_dims(parser)
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(options: argparse.Namespace) -> int:
    """Compiles, and writes the artifact."""
    from ..api import compile

    dims = read_dims(options.dim)
    target = options.output or str(Path(options.model).with_suffix(".pliant"))
    progress(f"compiling {options.model}")
    start = time.perf_counter()
    executable = compile(options.model, dims=dims)
    seconds = time.perf_counter() - start
    executable.save(target)
    progress("")
    facts = {"file": target, "bytes": Path(target).stat().st_size, "seconds": round(seconds, 3), "contract": str(executable.contract)}
    print(json.dumps(facts) if options.json else f"{facts['contract']}\n{target}: {facts['bytes']} bytes, compiled in {seconds:.1f} s")
    return 0
