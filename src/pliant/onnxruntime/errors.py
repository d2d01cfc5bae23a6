"""The exceptions of onnxruntime's native module, each also an error of Pliant, and the translation of ours to them.

    try:
        session.run(None, {"x": x})
    except ort.capi.onnxruntime_pybind11_state.InvalidArgument: ...     # or pliant.ShapeError: it is both

An application may match the text of a status, so messages begin as onnxruntime's do: `[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : `.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from ..support.errors import CancelledError, Error, ModelFileError, ShapeError, UnsupportedError


class _Status(Error):
    """The base of errors with a status code: the message begins `[ONNXRuntimeError] : `, then the code and the name of the status."""

    code: ClassVar[int] = 1
    status: ClassVar[str] = "FAIL"

    def __init__(self, what: str, **parts: Any) -> None:
        super().__init__(f"[ONNXRuntimeError] : {self.code} : {self.status} : {what}", **parts)


class Fail(_Status):
    """Raised when a run was told to terminate, and when an array is asked of a value that is no tensor."""


class InvalidArgument(_Status, ShapeError):
    """Raised for a name that the model does not have, and for a value whose type or shape does not fit; it is a ShapeError, too."""

    code, status = 2, "INVALID_ARGUMENT"


class NoSuchFile(_Status, ModelFileError, builtins.FileNotFoundError):
    """Raised for a model file that is not there; it is a FileNotFoundError, too."""

    code, status = 3, "NO_SUCHFILE"


class NoModel(_Status):
    """Raised by onnxruntime for a session without a model; never raised here."""

    code, status = 4, "NO_MODEL"


class EngineError(_Status):
    """Raised by onnxruntime for a failure of an engine; never raised here."""

    code, status = 5, "ENGINE_ERROR"


class RuntimeException(_Status, RuntimeError):
    """Raised by onnxruntime when a run fails in a kernel; never raised here, where such failures have other classes."""

    code, status = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(_Status, ModelFileError):
    """Raised for a file, or bytes, that cannot be read as an ONNX model."""

    code, status = 7, "INVALID_PROTOBUF"


class ModelLoaded(_Status):
    """Raised by onnxruntime for a session that has a model already; never raised here."""

    code, status = 8, "MODEL_LOADED"


class NotImplemented(_Status, UnsupportedError):
    """Raised for an operator or a feature that Pliant does not have; it is an UnsupportedError, too, and not Python's constant."""

    code, status = 9, "NOT_IMPLEMENTED"


class InvalidGraph(_Status, ModelFileError):
    """Raised by a session for a model that violates the rules of ONNX, in place of the ModelFileError or ShapeError of the importer."""

    code, status = 10, "INVALID_GRAPH"


class EPFail(_Status):
    """Raised by onnxruntime for a failure of an execution provider; never raised here."""

    code, status = 11, "EP_FAIL"


class ModelLoadCanceled(_Status, CancelledError):
    """Raised by onnxruntime if loading is canceled; never raised here."""

    code, status = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(_Status):
    """Raised by onnxruntime for a model that must be compiled ahead; never raised here."""

    code, status = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(_Status):
    """Raised by onnxruntime for a thing that is not found; never raised here."""

    code, status = 14, "NOT_FOUND"


class DeviceReset(_Status):
    """Raised by onnxruntime when a device was reset; never raised here."""

    code, status = 15, "DEVICE_RESET"


EXCEPTIONS: tuple[type[Error], ...] = (
    DeviceReset, EngineError, EPFail, Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, ModelLoadCanceled, ModelLoaded,
    ModelRequiresCompilation, NoModel, NoSuchFile, NotFound, NotImplemented, RuntimeException,
)  # fmt: skip
# A class of ours -> that of onnxruntime, while a model is loaded and while it runs; the first that fits.
_LOADING: tuple[tuple[type[Error], type[Error]], ...] = (
    (UnsupportedError, NotImplemented), (ModelFileError, InvalidGraph), (ShapeError, InvalidGraph),
)  # fmt: skip
_RUNNING: tuple[tuple[type[Error], type[Error]], ...] = (
    (UnsupportedError, NotImplemented), (ModelFileError, InvalidGraph), (ShapeError, InvalidArgument),
)  # fmt: skip


@contextmanager
def translated(loading: bool = False) -> Iterator[None]:
    """Context manager that raises errors of Pliant as those of onnxruntime; others, and those of a class without a counterpart, pass.

    UnsupportedError becomes NotImplemented, and ModelFileError InvalidGraph. ShapeError becomes InvalidGraph while a model is loaded
    (`loading`), else InvalidArgument.
    """
    try:
        yield
    except _Status:
        raise
    except Error as error:
        counterpart = next((theirs for ours, theirs in (_LOADING if loading else _RUNNING) if isinstance(error, ours)), None)
        if counterpart is None:
            raise
        raise counterpart(error.what, notes=error.places, facts=error.facts, help=error.help) from error
