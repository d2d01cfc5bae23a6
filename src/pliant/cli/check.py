"""`pliant check MODEL`: a model node by node against another runtime: the first operator that differs, and how the error grows.

Every value of the model is compared, relative to its largest element: by the interpreter, which is what operators mean and needs no time to
compile. Then the model is compiled as it is, and its outputs are compared. With `--compiled`, code is made for every single value
instead, which takes minutes for a large model. With `--save`, the first node that differs is written as a model of its own, with the
inputs that it had.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from . import choose, progress
from .model_options import add_dims, feeds, read_dims, read_inputs

if TYPE_CHECKING:
    from ..frontends.onnx.compare import Row


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("model", help="an .onnx file")
    add_dims(parser)
    parser.add_argument("-i", "--input", action="append", default=[], metavar="NAME=SOURCE", help="a .npy file, an image, random or zeros")
    parser.add_argument("--against", default="", help="onnxruntime or reference; the first that is installed if not said")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="the largest error, relative to the largest element of a value")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--interpret", action="store_true", help="nothing is compiled: node by node by the interpreter, and no more")
    how.add_argument("--compiled", action="store_true", help="every value by compiled code, which takes long for large models")
    parser.add_argument("--save", help="writes the first node that differs as a model")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(options: argparse.Namespace) -> int:
    """Compares, and answers 1 where something differs."""
    from ..frontends.onnx.compare import compare_nodes, compare_outputs, single_node
    from ..frontends.onnx.inputs import tensor_type
    from ..frontends.onnx.session import Session, interpreted
    from ..onnx_backend import compiled

    if options.against:
        choose(options.against, ["onnxruntime", "reference"], "runtime")
    session = Session(options.model, interpreted)
    dims: dict[str, Any] = {}
    inputs = {i.name: tensor_type(i.type, i.name, dims) for i in session.inputs}
    given = feeds(inputs, read_inputs(options.input, list(inputs)), read_dims(options.dim))
    progress(f"comparing {options.model}")
    found = compare_nodes(session.model, given, options.against, compiled if options.compiled else interpreted)
    wrong = next((r for r in found.rows if not r.error <= options.tolerance), None)
    outputs: tuple[Row, ...] = ()
    if wrong is None and not options.interpret and not options.compiled:
        progress(f"compiling {options.model}")
        outputs = compare_outputs(session.model, given, found.expected, compiled)
    progress("")
    off = next((r for r in outputs if not r.error <= options.tolerance), None)
    if wrong is not None and options.save:
        with open(options.save, "wb") as file:
            file.write(single_node(session.model, wrong.value, {**found.expected, **given}).SerializeToString())
    if options.json:
        rows, last = ([{"node": r.node, "op": r.op, "value": r.value, "error": r.error} for r in part] for part in (found.rows, outputs))
        print(json.dumps({"against": found.against, "nodes": rows, "first": None if wrong is None else wrong.value, "compiled": last}))
    else:
        print("\n".join([_text(found, wrong, options), *_compiled(outputs, off)]))
    return 0 if wrong is None and off is None else 1


def _compiled(outputs: tuple[Row, ...], off: Row | None) -> list[str]:
    """What there is to say of the outputs of the compiled model."""
    lines = [f'compiled, output "{r.value}" is off by {r.error:.2e}' for r in outputs]
    return [*lines, "the interpreter is right, and compiled code is not: --compiled finds the first node"] if off is not None else lines


def _text(found: Any, wrong: Any, options: argparse.Namespace) -> str:
    worst, lines = 0.0, []
    for r in found.rows:
        if r.error > 2 * worst:
            worst = r.error
            lines.append(f"  {r.error:9.2e}  {r.op}  {r.node or r.value}")
    head = f"{len(found.rows)} values compared with {found.against}; the error grows at"
    if wrong is None:
        return "\n".join([head, *lines, f"no value differs by more than {options.tolerance:g}"])
    last = f'the first that differs: node "{wrong.node or wrong.value}" ({wrong.op}), its result "{wrong.value}" by {wrong.error:.2e}'
    return "\n".join([head, *lines, last, *([f"written to {options.save}"] if options.save else [])])
