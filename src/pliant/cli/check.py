"""`pliant check MODEL`: compares a model with another runtime node by node: the first operator that differs, and how the error grows.

First the interpreter computes every value of the model, and each is compared relative to its largest element. The interpreter defines the
meaning of operators and needs no compile time. Then the model is compiled, and its outputs are compared. With `--compiled`, compiled code
computes every single value instead, which takes minutes for a large model. With `--save`, the first node that differs is written as a
model, with its inputs. With `--accuracy fast` the model is compiled as by `pliant.compile(…, accuracy="fast")`, and the errors of its
outputs are those that it costs.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import Usage, choose, progress
from .model_options import add_dims, batch_dims, feeds, read_dims, read_inputs, single_values
from .output_files import check_place, json_text, written

if TYPE_CHECKING:
    from ..frontends.onnx.compare import Row


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant check` to the parser."""
    parser.add_argument("model", help="an .onnx file")
    add_dims(parser)
    parser.add_argument("-i", "--input", action="append", default=[], metavar="NAME=SOURCE", help="a .npy file, an image, random or zeros")
    parser.add_argument("--against", default="", help="onnxruntime or reference (default: the first that is installed)")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3, help="largest error, relative to the largest element of a value (default: 1e-3)"
    )
    parser.add_argument("--accuracy", default="full", help="full or fast: how the model is compiled; tells the error of fast")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--interpret", action="store_true", help="use only the interpreter; compile nothing")
    how.add_argument("--compiled", action="store_true", help="compute every value with compiled code; slow for large models")
    parser.add_argument("--save", help="write the first node that differs to this file, as a model")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant check`: compares a model's values with another runtime; returns 1 if something differs.

    With `--save`, writes the first node that differs to a file. Raises Usage for a tolerance that is no error.
    """
    from ..frontends.onnx.compare import compare_nodes, compare_outputs, single_node
    from ..frontends.onnx.inputs import tensor_type
    from ..frontends.onnx.session import Session, interpreted
    from ..onnx_backend import compiled

    compile_it = partial(compiled, accuracy=choose(options.accuracy, ["full", "fast"], "accuracy"))
    if options.against:
        choose(options.against, ["onnxruntime", "reference"], "runtime")
    if not 0 <= options.tolerance < float("inf"):
        raise Usage(f"--tolerance {options.tolerance:g}: an error is at least 0", "write --tolerance 0 to see every difference")
    if options.save:
        check_place(options.save)
    session = Session(options.model, interpreted)
    dims: dict[str, Any] = {}
    inputs = {i.name: tensor_type(i.type, i.name, dims) for i in session.inputs}
    values = single_values(read_dims(options.dim), "check")
    arrays = feeds(inputs, read_inputs(options.input, list(inputs)), values, batch_dims(inputs))
    progress(f"comparing {options.model}")
    compared = compare_nodes(session.model, arrays, options.against, compile_it if options.compiled else interpreted)
    wrong = next((r for r in compared.rows if not r.error <= options.tolerance), None)
    outputs: tuple[Row, ...] = ()
    if wrong is None and not options.interpret and not options.compiled:
        progress(f"compiling {options.model}")
        outputs = compare_outputs(session.model, arrays, compared.expected, compile_it)
    progress("")
    off = next((r for r in outputs if not r.error <= options.tolerance), None)
    if wrong is not None and options.save:
        with written(options.save) as path:
            Path(path).write_bytes(single_node(session.model, wrong.value, {**compared.expected, **arrays}).SerializeToString())
    if options.json:
        rows, last = ([{"node": r.node, "op": r.op, "value": r.value, "error": r.error} for r in part] for part in (compared.rows, outputs))
        print(json_text({"against": compared.against, "nodes": rows, "first": None if wrong is None else wrong.value, "compiled": last}))
    else:
        print("\n".join([_text(compared, wrong, options), *_compiled(outputs, off)]))
    return 0 if wrong is None and off is None else 1


def _compiled(outputs: tuple[Row, ...], off: Row | None) -> list[str]:
    """Returns lines of text about the errors of the compiled model's outputs."""
    lines = [f'compiled, output "{r.value}" is off by {r.error:.2e}' for r in outputs]
    return [*lines, "the interpreter is right, and compiled code is not: --compiled finds the first node"] if off is not None else lines


def _text(found: Any, wrong: Any, options: argparse.Namespace) -> str:
    worst, lines = 0.0, []
    for r in found.rows:
        if r.error > 2 * worst:
            worst = r.error
            lines.append(f"  {r.error:9.2e}  {r.op}  {r.node or r.value}")
    head = f"{len(found.rows)} values compared with {found.against}" + ("; the error grows at" if lines else "")
    if wrong is None:
        return "\n".join([head, *lines, f"no value differs by more than {options.tolerance:g}"])
    last = f'the first that differs: node "{wrong.node or wrong.value}" ({wrong.op}), its result "{wrong.value}" by {wrong.error:.2e}'
    return "\n".join([head, *lines, last, *([f"written to {options.save}"] if options.save else [])])
