"""`pliant run MODEL`: runs a model on arrays, images, random numbers or zeros; shows its outputs, time and FLOP rate."""

from __future__ import annotations

import argparse
import time
from typing import Any

from . import Usage, progress
from .model_options import add_dims, add_quantize, batch_dims, feeds, fresh, has_state, read_dims, read_inputs, single_values
from .output_files import check_place, json_text, write_npz, written


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant run` to the parser."""
    parser.add_argument("model", help="an .onnx, .pt2 or .pliant file")
    add_dims(parser)
    add_quantize(parser)
    help_ = "a .npy or .npz file, an image, random, zeros or a number"
    parser.add_argument("-i", "--input", action="append", default=[], metavar="NAME=SOURCE", help=help_)
    parser.add_argument("-o", "--output", help="write the outputs to this .npz file")
    parser.add_argument("--repeat", type=int, default=5, help="number of timed runs; the best time is shown (default: 5)")
    parser.add_argument("--threads", type=int, help="number of threads")
    parser.add_argument("--profile", action="store_true", help="show the time of each kernel")
    parser.add_argument("--report", metavar="FILE", help="write a report with times to this .html file")
    parser.add_argument("--fallback", action="store_true", help="run unsupported operators in Python")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant run`: runs the model and prints its outputs and timing; returns the exit code.

    Raises Usage for wrong options and inputs.
    """
    from ..api import compile, program_of
    from ..frontends.onnx import from_onnx
    from ..graph.node import Tensor

    if options.repeat < 1:
        raise Usage(f"--repeat {options.repeat}: it runs at least once")
    for path, suffix in ((options.output, ".npz"), (options.report, ".html")):
        if path:
            check_place(path, suffix)
    program = from_onnx(options.model, fallback=True) if options.fallback else program_of(options.model)
    inputs = {p.name: p.annotation for p in program.entry.params if isinstance(p.annotation, Tensor)}
    dims = single_values(read_dims(options.dim), "run")
    arrays = feeds(inputs, read_inputs(options.input, list(inputs)), dims, batch_dims(inputs))
    exact = program
    if options.quantize:
        from ..quantized import quantize

        program = quantize(program, options.quantize)
    executable = compile(program, threads=options.threads, progress=True)
    progress("")
    results, times = executable.run(fresh(arrays, inputs)), []
    for _ in range(options.repeat):
        again = fresh(arrays, inputs)
        start = time.perf_counter()
        executable.run(again)
        times.append(time.perf_counter() - start)
    if options.output:
        with written(options.output) as file:
            write_npz(file, results)
    symbols = executable.symbols_of(arrays)
    operations = executable.cost(**symbols).operations
    outputs = [_facts(n, a) for n, a in results.items()]
    facts = {"outputs": outputs, "seconds": min(times), "operations": operations, "dims": symbols}
    if options.quantize:
        from ..quantized import quantization_errors

        for shown, error in zip(outputs, quantization_errors(exact, program, arrays, options.threads), strict=True):
            shown |= {"largest_error": error.largest, "relative_error": error.relative}
    profile = None
    if options.profile or options.report:
        profile = executable.profile(runs=None if has_state(inputs) else options.repeat, **fresh(arrays, inputs))
    if options.report:
        with written(options.report) as file:
            executable.report(file)
    profile = profile if options.profile else None
    if options.json:
        print(json_text(facts | ({} if profile is None else {"kernels": _kernels(profile)})))
    else:
        print(_text(facts), *([] if profile is None else [profile]), sep="\n")
    return 0


def _kernels(profile: Any) -> list[dict[str, Any]]:
    """Returns the time of each kernel of a run, the slowest first."""
    kernels = profile.by_kernel().items()
    return [{"name": name, "calls": len(all_), "seconds": sum(x.duration for x in all_) / 1e9} for name, all_ in kernels]


def _facts(name: str, array: Any) -> dict[str, Any]:
    import numpy as np

    shown: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size:
        wide = array.astype(np.float64)
        shown |= {"min": float(wide.min()), "max": float(wide.max()), "mean": float(wide.mean())}
    return shown


def _text(facts: dict[str, Any]) -> str:
    lines = []
    for o in facts["outputs"]:
        range_ = f", {o['min']:.6g} to {o['max']:.6g}, mean {o['mean']:.6g}" if "min" in o else ""
        lines.append(f"{o['name']}: {o['dtype']} {tuple(o['shape'])}{range_}")
        if "largest_error" in o:
            lines.append(f"  at most {o['largest_error']:.3g} off what floats give, {100 * o['relative_error']:.3g} % of its size")
    if facts["dims"]:
        lines.append("at " + ", ".join(f"{name} = {n}" for name, n in facts["dims"].items()))
    rate = facts["operations"] / facts["seconds"] / 1e9
    return "\n".join([*lines, f"{facts['seconds'] * 1e3:.3f} ms, {rate:.1f} GFLOP/s"])
