"""The older name of the native module."""

from pliant.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
from pliant.onnxruntime.capi.onnxruntime_pybind11_state import __all__ as __all__
