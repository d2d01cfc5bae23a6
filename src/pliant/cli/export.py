"""`pliant export MODEL --target T -o DIR`: exports a model to files that run without Pliant: a library, C source, a WebAssembly module."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from . import Usage, progress
from .model_options import add_dims, add_quantize, read_dims


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant export` to the parser."""
    parser.add_argument(
        "model", help="an .onnx, .pt2 or .pliant file; for `--target web` also a language model: a name, a .gguf file, or hf:org/repo"
    )
    parser.add_argument("--target", required=True, help="target machine, a name from the table below")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder to write to")
    parser.add_argument("--name", help="base name of the files and functions (default: the model's name)")
    add_dims(parser)
    add_quantize(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = targets_text()


def targets_text() -> str:
    """Returns the table of target names for the help text."""
    from ..target import OSES, TABLE

    rows = [(row.form, ", ".join(row.examples), row.means) for row in TABLE]
    rows = [("" if n and row[0] == rows[n - 1][0] else row[0], row[1], row[2]) for n, row in enumerate(rows)]
    widths = [max(len(row[n]) for row in rows) for n in (0, 1)]
    lines = [f"  {form:{widths[0]}}  {examples:{widths[1]}}  {means}" for form, examples, means in rows]
    return "\n".join(
        [
            "targets: a name, then +FEATURE as LLVM spells it, then @OS (default: that of this machine)",
            *lines,
            f"  @OS         {', '.join(OSES)}",
        ]
    )


def run(options: argparse.Namespace) -> int:
    """Runs `pliant export`: compiles the model and writes the files; returns the exit code."""
    from ..api import program_of
    from ..exporting import export
    from ..llm.page import export_page, speaks
    from ..target import target

    machine = target(options.target)  # report a wrong name before reading the model, which may take long
    dims = read_dims(options.dim)
    progress(f"compiling {options.model} for {machine}")
    start = time.perf_counter()
    if machine.kind == "web" and speaks(options.model):
        if dims or options.quantize:
            raise Usage("a language model has no dims to set, and is quantized as its file is")
        files = export_page(options.model, options.output, name=options.name, progress=progress)
    else:
        program = program_of(options.model)
        if options.quantize:
            from ..quantized import quantize

            program = quantize(program, options.quantize)
        files = export(program, machine, options.output, dims=dims, name=options.name or Path(options.model).stem)
    seconds = time.perf_counter() - start
    progress("")
    sizes = {str(file): file.stat().st_size for file in files}
    if options.json:
        print(json.dumps({"target": machine.name, "files": sizes, "seconds": round(seconds, 3)}))
        return 0
    for file, size in sizes.items():
        print(f"{file}: {size} bytes")
    return 0
