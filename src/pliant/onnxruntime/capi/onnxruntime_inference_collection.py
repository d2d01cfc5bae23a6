"""The module in which onnxruntime defines its classes in Python."""

from pliant.onnxruntime.metadata import NodeArg
from pliant.onnxruntime.session import InferenceSession
from pliant.onnxruntime.session import InferenceSession as Session
from pliant.onnxruntime.values import IOBinding, OrtDevice, OrtValue

__all__ = ["IOBinding", "InferenceSession", "NodeArg", "OrtDevice", "OrtValue", "Session"]
