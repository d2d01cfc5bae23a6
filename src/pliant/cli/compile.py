"""`pliant compile MODEL -o FILE`: compiles a model to a `.pliant` artifact, which `pliant.load` opens without compiling."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from . import Usage, progress
from .model_options import add_dims, add_quantize, read_dims, small_feeds
from .output_files import check_place


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant compile` to the parser."""
    parser.add_argument("model", help="an .onnx, .pt2 or .pliant file")
    parser.add_argument("-o", "--output", help="file to write (default: next to the model)")
    parser.add_argument("--target", help="additional targets, T or T,T…; `pliant export --help` lists the names")
    add_dims(parser)
    add_quantize(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant compile`: compiles the model and writes the artifact; returns the exit code.

    Raises Usage if the artifact would replace the model.
    """
    from ..api import compile, program_of
    from ..target import target as find_target

    dims = read_dims(options.dim)
    file = options.output or str(Path(options.model).with_suffix(".pliant"))
    if Path(file).resolve() == Path(options.model).resolve():
        raise Usage(f"`{file}` is the model itself", "name another file with -o")
    check_place(file)
    targets = options.target.split(",") if options.target else []
    for name in targets:
        find_target(name)  # report a wrong name before reading the model, which may take long
    progress(f"compiling {options.model}")
    start = time.perf_counter()
    program = program_of(options.model)
    source = _quantized(program, options.quantize)
    executable = compile(source, dims=dims, progress=True)
    executable.save(file, targets=targets)  # also compiles for the additional targets
    seconds = time.perf_counter() - start
    facts = {"file": file, "bytes": Path(file).stat().st_size, "seconds": round(seconds, 3), "contract": str(executable.contract)}
    errors = _errors(program, source, dims) if options.quantize else []
    progress("")
    if options.json:
        print(json.dumps(facts | {"errors": [dict(zip(("name", "largest", "relative"), e, strict=True)) for e in errors]}))
        return 0
    print(f"{facts['contract']}\n{file}: {facts['bytes']} bytes, compiled in {seconds:.1f} s")
    for name, largest, relative in errors:
        print(f"{name}: at most {largest:.3g} off, {100 * relative:.3g} % of its size (on random inputs)")
    return 0


def _quantized(program: Any, weights: str | None) -> Any:
    from ..quantized import quantize

    return program if weights is None else quantize(program, weights)


def _errors(program: Any, source: Any, dims: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Returns the quantization error of each output, on random inputs of a small shape."""
    from ..graph.node import Tensor
    from ..quantized import quantization_errors

    inputs = {p.name: p.annotation for p in program.entry.params if isinstance(p.annotation, Tensor)}
    arrays = small_feeds(inputs, dims)
    return [(e.name, e.largest, e.relative) for e in quantization_errors(program, source, arrays)]
