"""Compares every intermediate value and output of a model with another runtime, for `pliant check`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...support.errors import Error, UnsupportedError
from ...support.record import dataclass
from .reader import Model, load_onnx
from .session import Compile, Session
from .tensors import with_data


@dataclass(frozen=True, slots=True)
class Row:
    """A record of one value of the comparison: the node that computes it, and the largest difference relative to the largest element."""

    node: str
    op: str
    value: str
    error: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing with another ONNX runtime: the errors of all values in model order, and the other runtime's values."""

    against: str
    rows: tuple[Row, ...]
    expected: Mapping[str, Any]


def compare_nodes(model: Model, feeds: Mapping[str, Any], against: str, compile: Compile) -> Comparison:
    """Runs the model in both runtimes with every intermediate value as an output, and compares them."""
    wide = load_onnx().ModelProto()
    wide.CopyFrom(model.proto)
    with_data(wide, model.folder)  # other runtimes get the model in memory, where it has no folder
    del wide.graph.output[:]
    producers = {name: node for node in wide.graph.node for name in node.output if name}
    for name in producers:
        wide.graph.output.add(name=name)
    session = Session(Model(wide, model.opsets, model.functions, model.folder, model.file), compile)
    ours = dict(zip(producers, session.run(feeds), strict=True))
    name, theirs = _other(wide, dict(feeds), against, list(producers))
    rows = tuple(Row(node.name, node.op_type, v, _error(ours[v], theirs[v])) for v, node in producers.items())
    return Comparison(name, rows, theirs)


def compare_outputs(model: Model, feeds: Mapping[str, Any], expected: Mapping[str, Any], compile: Compile) -> tuple[Row, ...]:
    """Runs the unchanged model (so that operators are fused) and compares its outputs with the expected ones."""
    session = Session(model, compile)
    producers = {name: node for node in model.proto.graph.node for name in node.output}
    results = zip(session.outputs, session.run(feeds), strict=True)
    return tuple(Row(producers[v].name, producers[v].op_type, v, _error(a, expected[v])) for v, a in results if v in producers)


def _other(model: Any, feeds: dict[str, Any], against: str, names: list[str]) -> tuple[str, dict[str, Any]]:
    """Runs the model by onnxruntime, or by onnx.reference; returns the name of the runtime and the values by name.

    Without `against`, onnxruntime is preferred if it is installed. Raises an Error if it is asked for and missing.
    """
    if against != "reference":
        try:
            import onnxruntime
        except ImportError:
            if against:
                raise Error("the package onnxruntime is not installed", help="pip install onnxruntime, or --against reference") from None
        else:

            def by_onnxruntime() -> Any:
                session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
                return session.run(names, feeds)

            return "onnxruntime", dict(zip(names, _asked("onnxruntime", by_onnxruntime), strict=True))
    from onnx.reference import ReferenceEvaluator

    results = _asked("onnx.reference", lambda: ReferenceEvaluator(model).run(names, feeds))
    return "onnx.reference", dict(zip(names, results, strict=True))


def _asked(runtime: str, run: Callable[[], Any]) -> Any:
    """Returns what another runtime computes; raises UnsupportedError with its words if it cannot run the model."""
    try:
        return run()
    except Exception as problem:
        other = "reference" if runtime == "onnxruntime" else "onnxruntime"
        facts = [f"{type(problem).__name__}: {str(problem)[:500]}"]
        raise UnsupportedError(f"{runtime} cannot run the model", facts=facts, help=f"--against {other}") from None


def _error(ours: Any, theirs: Any) -> float:
    """The largest difference divided by the largest element; infinite if shapes, types or non-finite elements differ."""
    if not isinstance(ours, np.ndarray) or not isinstance(theirs, np.ndarray):
        return 0.0 if type(ours) is type(theirs) else float("inf")
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(b[np.isfinite(b)]), initial=1e-30)
        apart = np.max(np.where(same, 0.0, np.abs(a - b)))
    return float("inf") if not np.isfinite(apart) else float(apart / largest)


def single_node(model: Model, value: str, values: Mapping[str, Any]) -> Any:
    """Returns an ONNX model with only the node that computes `value`, and its inputs as initializers."""
    onnx = load_onnx()
    node = next(n for n in model.proto.graph.node if value in n.output)
    weights = {t.name: t for t in model.proto.graph.initializer}
    names = [name for name in dict.fromkeys(node.input) if name]
    graph = onnx.GraphProto(name="one_node", node=[node])
    for name in names:
        graph.initializer.append(weights[name] if name in weights else onnx.numpy_helper.from_array(np.asarray(values[name]), name))
    graph.output.add(name=value)
    single = onnx.ModelProto(
        ir_version=model.proto.ir_version, opset_import=model.proto.opset_import, functions=model.proto.functions, graph=graph
    )
    with_data(single, model.folder)
    return single
