"""A drop-in replacement for the Python API of onnxruntime, backed by compiled programs.

    import pliant.onnxruntime as ort
    session = ort.InferenceSession("model.onnx")
    y, = session.run(None, {"x": x})

    python -m pliant.onnxruntime app.py         # runs an application that imports onnxruntime, unchanged

What has no effect is accepted; one line of the log says so for each session.
"""

from __future__ import annotations

from . import capi
from .enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtMemType,
)  # fmt: skip
from .environment import (
    API_VERSION as __version__,
)
from .environment import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)  # fmt: skip
from .install import install
from .metadata import ModelMetadata, NodeArg
from .options import RunOptions, SessionOptions
from .session import InferenceSession
from .values import IOBinding, OrtDevice, OrtValue

__all__ = [
    "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "IOBinding", "InferenceSession", "ModelMetadata", "NodeArg",
    "OrtAllocatorType", "OrtDevice", "OrtDeviceMemoryType", "OrtMemType", "OrtValue", "RunOptions", "SessionOptions", "__version__",
    "capi", "disable_telemetry_events", "enable_telemetry_events", "get_all_providers", "get_available_providers", "get_build_info",
    "get_device", "get_version_string", "has_collective_ops", "install", "set_default_logger_severity",
    "set_default_logger_verbosity", "set_seed",
]  # fmt: skip
