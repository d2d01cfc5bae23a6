"""A drop-in replacement for the Python API of onnxruntime, backed by compiled programs.

    import pliant.onnxruntime as ort
    session = ort.InferenceSession("model.onnx")
    y, = session.run(None, {"x": x})

Options without effect are accepted, with one warning each.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from . import __version__
from .frontends.onnx.dtypes import schema_name
from .frontends.onnx.session import Session
from .onnx_backend import compiled
from .support.errors import ShapeError

__all__ = [
    "ExecutionMode", "GraphOptimizationLevel", "InferenceSession", "NodeArg", "RunOptions", "SessionOptions", "__version__",
    "get_available_providers", "get_device",
]  # fmt: skip
_SAID: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _SAID:
        _SAID.add(text)
        warnings.warn(f"pliant.onnxruntime: {text}", stacklevel=3)


class _Options:
    """The base of option objects: any attribute may be set; unknown ones have no effect and warn once."""

    _known: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._known:
            _say_once(f"the option {type(self).__name__}.{name} does nothing here")
        object.__setattr__(self, name, value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Accepts a session setting; it has no effect, and warns once."""
        _say_once(f"the session setting {key!r} does nothing here")


class SessionOptions(_Options):
    """The options of a session: `intra_op_num_threads` has an effect, the rest is only accepted."""

    _known = ("intra_op_num_threads",)

    def __init__(self) -> None:
        self.intra_op_num_threads = 0


class RunOptions(_Options):
    """The options of a run: accepted, but without effect."""


class GraphOptimizationLevel:
    """The levels of optimization, accepted for compatibility; every program is optimized."""

    ORT_DISABLE_ALL, ORT_ENABLE_BASIC, ORT_ENABLE_EXTENDED, ORT_ENABLE_ALL = 0, 1, 2, 99


class ExecutionMode:
    """The modes of execution, accepted for compatibility; kernels run in sequence, each with all threads."""

    ORT_SEQUENTIAL, ORT_PARALLEL = 0, 1


class NodeArg:
    """A record of an input or output of a model: its name, type, and shape, with symbolic dims as names."""

    def __init__(self, name: str, type: str, shape: list[Any]) -> None:
        self.name, self.type, self.shape = name, type, shape

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class InferenceSession:
    """A compiled model, with the interface of onnxruntime's class of this name."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        names = [p if isinstance(p, str) else p[0] for p in providers or ()]
        for name in names:
            if name != "CPUExecutionProvider":
                _say_once(f"the provider {name} is not here: the CPU is used")
        for name in kwargs:
            _say_once(f"the argument {name} does nothing here")
        threads = sess_options.intra_op_num_threads or None if sess_options is not None else None
        self._session = Session(path_or_bytes, lambda program: compiled(program, threads))
        for name in self._session.fixed:
            _say_once(f"a program is compiled for each value of the input {name!r}, which decides shapes")

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None) -> list[Any]:
        """Returns the outputs with these names, all of them if None or empty; raises ShapeError for an unknown name."""
        results = dict(zip(self._session.outputs, self._session.run(input_feed), strict=True))
        unknown = [n for n in output_names or () if n not in results]
        if unknown:
            raise ShapeError(f'the model has no output "{unknown[0]}"', facts=[f"its outputs are {', '.join(results)}"])
        return [results[n] for n in (output_names or results)]

    def get_inputs(self) -> list[NodeArg]:
        """Returns the inputs in the order of the model."""
        return [_node_arg(i) for i in self._session.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Returns the outputs in the order of the model."""
        return [_node_arg(o) for o in self._session.model.proto.graph.output]

    def get_providers(self) -> list[str]:
        """Returns the execution providers in use."""
        return get_available_providers()


def _node_arg(info: Any) -> NodeArg:
    from .frontends.onnx.dtypes import dtype_of, type_name

    tensor = info.type.tensor_type
    of = dtype_of(tensor.elem_type)
    shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    return NodeArg(info.name, f"tensor({type_name(tensor.elem_type)})" if of is None else schema_name(of), shape)


def get_available_providers() -> list[str]:
    """Returns the execution providers: only the CPU."""
    return ["CPUExecutionProvider"]


def get_device() -> str:
    """Returns the device: the CPU."""
    return "CPU"
