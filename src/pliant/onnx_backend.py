"""Pliant as an ONNX backend: `prepare`, `run_model`, `run_node`, `supports_device`, as the ONNX test suite calls them.

    import pliant.onnx_backend as backend
    y, = backend.run_model(model, [x])
    rep = backend.prepare(model); rep.run([x])

`prepare(model, interpret=True)` runs the program in the interpreter, without compiling it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .frontends.onnx.session import Session, interpreted
from .support.errors import Error, ShapeError


def compiled(program: Any, threads: int | None = None, **options: Any) -> Any:
    """Compiles a program with options of `pliant.compile`; returns a function from a list of arrays to a list of arrays."""
    from .api import compile

    executable = compile(program, threads=threads, **options)

    def run(arguments: list[Any]) -> list[Any]:
        results = executable(*arguments)
        return list(results) if isinstance(results, tuple) else [results]

    return run


class BackendRep:
    """A prepared ONNX model, as ONNX's backend test suite runs it."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Returns the results for inputs in the order of the model, or by name; raises ShapeError for another number of inputs."""
        names = [i.name for i in self.session.inputs]
        if isinstance(inputs, dict):
            feeds = inputs
        else:
            arrays = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
            if len(arrays) != len(names):
                raise ShapeError(f"{len(arrays)} inputs are given, the model has {len(names)}", facts=[f"they are {', '.join(names)}"])
            feeds = dict(zip(names, arrays, strict=True))
        return tuple(self.session.run(feeds))


def is_compatible(model: Any, device: str = "CPU", **kwargs: Any) -> bool:
    """True if the model can be imported."""
    try:
        prepare(model, device, interpret=True)
    except Error:
        return False
    return True


def prepare(model: Any, device: str = "CPU", interpret: bool = False, **kwargs: Any) -> BackendRep:
    """Returns a prepared model that can be run repeatedly; `interpret` runs it in the interpreter.

    Raises an Error for devices other than the CPU.
    """
    if not supports_device(device):
        raise Error(f"device `{device}` is not supported", help='the device is "CPU"')
    return BackendRep(Session(model, interpreted if interpret else compiled))


def run_model(model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
    """Compiles and runs an ONNX model; returns its results for inputs in its order."""
    return prepare(model, device, **kwargs).run(inputs)


def run_node(node: Any, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **kwargs: Any) -> tuple[Any, ...]:
    """Returns the results of one node; `opset_version` defaults to the newest one."""
    return run_model(_model_of(node, list(inputs), kwargs.pop("opset_version", None)), inputs, device, **kwargs)


def supports_device(device: str) -> bool:
    """True for the CPU, the only supported device."""
    return device.split(":")[0] == "CPU"


def _model_of(node: Any, inputs: list[Any], version: int | None) -> Any:
    """Returns an ONNX model of one node whose inputs have the types of the arrays. Raises ShapeError for another number of inputs."""
    import numpy as np

    from .dtype import dtype
    from .frontends.onnx.dtypes import number_of
    from .frontends.onnx.reader import load_onnx

    onnx = load_onnx()
    names = [n for n in node.input if n]
    if len(names) != len(inputs):
        raise ShapeError(f"{len(inputs)} inputs are given, the node has {len(names)}")
    arrays = [np.asarray(a) for a in inputs]
    helper = onnx.helper
    kinds = [onnx.TensorProto.STRING if a.dtype.kind in "OUS" else number_of(dtype(a.dtype)) for a in arrays]
    infos = [helper.make_tensor_value_info(n, kind, a.shape) for n, kind, a in zip(names, kinds, arrays, strict=True)]
    outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
    graph = helper.make_graph([node], "node", infos, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version or onnx.defs.onnx_opset_version())])
