"""`pliant report MODEL`: writes one page of HTML about a model as it is compiled and runs: times, layers, kernels, memory."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import Usage, progress
from .model_options import add_dims, batch_dims, example_dims, feeds, fresh, has_state, read_dims, read_inputs, single_values
from .output_files import check_place, json_text, written


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant report` to the parser."""
    parser.add_argument("model", help="an .onnx, .pt2 or .pliant file")
    parser.add_argument("-o", "--output", metavar="FILE", help="the .html file to write (default: the model's name with .html, here)")
    add_dims(parser)
    parser.add_argument("--quantize", choices=("int8", "int4"), help="quantize weights to 8 or 4 bits first")
    help_ = "a .npy or .npz file, an image, random, zeros or a number"
    parser.add_argument("-i", "--input", action="append", default=[], metavar="NAME=SOURCE", help=help_)
    parser.add_argument("--repeat", type=int, default=10, help="number of measured runs (default: 10)")
    parser.add_argument("--no-run", action="store_true", help="compile the model and do not run it: a page without times")
    parser.add_argument("--trace", metavar="FILE", help="also write the times to this .json file, for ui.perfetto.dev")
    parser.add_argument("--threads", type=int, help="number of threads")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant report`: compiles the model, measures it and writes the page; returns the exit code.

    Raises Usage for wrong options and inputs.
    """
    from ..api import compile, program_of
    from ..graph.node import Tensor

    if options.repeat < 1:
        raise Usage(f"--repeat {options.repeat}: it runs at least once", "--no-run writes a page without times")
    output = options.output or Path(options.model).stem + ".html"
    check_place(output, ".html")
    if options.trace:
        check_place(options.trace, ".json")
        if options.no_run:
            raise Usage("--trace has the times of a run, and --no-run runs nothing", "leave out one of them")
    program = program_of(options.model)
    if options.quantize:
        from ..quantized import quantize

        program = quantize(program, options.quantize)
    inputs = {p.name: p.annotation for p in program.entry.params if isinstance(p.annotation, Tensor)}
    arrays = None if options.no_run else _arrays(options, inputs)
    executable = compile(program, threads=options.threads, progress=True)
    progress("")
    facts: dict[str, Any] = {"file": output}
    profile = None
    if arrays is not None:
        profile = executable.profile(runs=None if has_state(inputs) else options.repeat, **fresh(arrays, inputs))
        facts |= {"dims": profile.dims, "runs": profile.runs}
        facts |= {"seconds": profile.wall * 1e-9, "median_seconds": statistics.median(profile.walls) * 1e-9}
    with written(output) as file:
        executable.report(file)
    if profile is not None and options.trace:
        with written(options.trace) as file:
            profile.save(file)
    print(json_text(facts) if options.json else _text(facts))
    return 0


def _arrays(options: argparse.Namespace, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays that the model is measured on; tells on stderr which dims have example values."""
    given = read_dims(options.dim)
    dims = single_values(given, "report")
    sources = read_inputs(options.input, list(inputs))
    examples = example_dims(inputs, dims | batch_dims(inputs)) | batch_dims(inputs)
    strange = next((other for other in given.values() if isinstance(other, str) and other not in examples), None)
    if strange is not None:
        raise Usage(f"the model has no dim `{strange}`", f"its dims are {', '.join(examples)}")
    arrays = feeds(inputs, sources, dims, examples)
    taken = {str(d): n for name, t in inputs.items() for d, n in zip(t.shape, arrays[name].shape, strict=True)}
    guessed = [f"{name} = {n}" for name, n in examples.items() if name not in dims and name.isidentifier() and taken.get(name) == n]
    if guessed:
        print(f"measured at {', '.join(guessed)}; --dim sets other sizes", file=sys.stderr)
    return arrays


def _text(facts: Mapping[str, Any]) -> str:
    if "seconds" not in facts:
        return f"{facts['file']}: not run"
    milliseconds, median = facts["seconds"] * 1e3, facts["median_seconds"] * 1e3
    return f"{facts['file']}: {milliseconds:.3f} ms, the fastest of {facts['runs']} runs (median {median:.3f} ms)"
