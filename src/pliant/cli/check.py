"""`pliant check MODEL`: a model node by node against another runtime: the first operator that differs, and how the error grows.

Every value of the model is compared, relative to its largest element. With `--save`, the first node that differs is written as a model of
its own, with the inputs that it had.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from . import choose, progress
from .model_options import add_dims, feeds, read_dims, read_inputs


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("model", help="an .onnx file")
    add_dims(parser)
    parser.add_argument("-i", "--input", action="append", default=[], metavar="NAME=SOURCE", help="a .npy file, an image, random or zeros")
    parser.add_argument("--against", default="", help="onnxruntime or reference; the first that is installed if not said")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="the largest error, relative to the largest element of a value")
    parser.add_argument("--interpret", action="store_true", help="by the interpreter, without compiling")
    parser.add_argument("--save", help="writes the first node that differs as a model")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(options: argparse.Namespace) -> int:
    """Compares, and answers 1 where something differs."""
    from ..frontends.onnx.compare import compare_nodes, single_node
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
    found = compare_nodes(session.model, given, options.against, interpreted if options.interpret else compiled)
    progress("")
    wrong = next((r for r in found.rows if not r.error <= options.tolerance), None)
    if wrong is not None and options.save:
        with open(options.save, "wb") as file:
            file.write(single_node(session.model, wrong.value, {**found.expected, **given}).SerializeToString())
    if options.json:
        rows = [{"node": r.node, "op": r.op, "value": r.value, "error": r.error} for r in found.rows]
        print(json.dumps({"against": found.against, "nodes": rows, "first": None if wrong is None else wrong.value}))
    else:
        print(_text(found, wrong, options))
    return 0 if wrong is None else 1


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
