"""The native part of onnxruntime, by the names under which applications import it.

These modules import by absolute names: they may be loaded as `onnxruntime.capi` too, and their classes must be the same ones.
"""

from pliant.onnxruntime.capi import _pybind_state, onnxruntime_inference_collection, onnxruntime_pybind11_state

__all__ = ["_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state"]
