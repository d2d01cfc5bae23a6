"""What applications import from onnxruntime's native module: its exceptions, options and values."""

from pliant.onnxruntime.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtMemType,
)  # fmt: skip
from pliant.onnxruntime.environment import (
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
from pliant.onnxruntime.errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)  # fmt: skip
from pliant.onnxruntime.metadata import ModelMetadata, NodeArg
from pliant.onnxruntime.options import RunOptions, SessionOptions
from pliant.onnxruntime.session import InferenceSession
from pliant.onnxruntime.values import IOBinding as SessionIOBinding
from pliant.onnxruntime.values import OrtDevice, OrtValue, OrtValueVector

__all__ = [
    "DeviceReset", "EPFail", "EngineError", "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel", "InferenceSession",
    "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "ModelLoadCanceled", "ModelLoaded", "ModelMetadata",
    "ModelRequiresCompilation", "NoModel", "NoSuchFile", "NodeArg", "NotFound", "NotImplemented", "OrtAllocatorType", "OrtDevice",
    "OrtDeviceMemoryType", "OrtMemType", "OrtValue", "OrtValueVector", "RunOptions", "RuntimeException", "SessionIOBinding",
    "SessionOptions", "disable_telemetry_events", "enable_telemetry_events", "get_all_providers", "get_available_providers",
    "get_build_info", "get_device", "get_version_string", "has_collective_ops", "set_default_logger_severity",
    "set_default_logger_verbosity", "set_seed",
]  # fmt: skip
