"""Pliant: a compiler for machine-learning models with symbolic (dynamic) shapes.

    from pliant import Out, Tensor, dim, f32, kernel
    n = dim("n")

    @kernel
    def double(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        for i in range(n):
            y[i] = x[i] * 2.0

    double(np.ones(5, np.float32))

Names are imported lazily, when they are first used, so that `import pliant` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PLACES = {
    ".api": "Function Kernel compile function kernel parse",
    ".artifact": "load",
    ".autotuning": "TuningResult autotune",
    ".explanation": "explain",
    ".exporting": "export",
    ".kernel_kind": "KernelKind kind",
    ".program": "Program",
    ".quantized": "quantization_errors quantize",
    ".own_instructions": "DeclaredInstruction instruction",
    ".own_operators": "Operator operator",
    ".stepping": "lower_until stages",
    ".templates": "Template template",
    ".tune": "tune",
    ".video": "video",
    ".dtype": "DType",
    ".frontends.onnx": "from_onnx",
    ".frontends.torch": "from_torch",
    ".graph.opset": "ops",
    ".llm.embedder": "Embedder",
    ".llm.lm": "LLM",
    ".nn": "nn",
    ".graph.ops.calls": "match_cast",
    ".graph.patterns": "register_library unregister_library",
    ".loop.script": (
        "alloc annotate block check combine compute gpu grid init max_over min_over parallel prod_over reads serial sum_over "
        "unroll vector view where writes"
    ),
    ".sym.script": (
        "acos acosh asin asinh atan atan2 atanh bitcast cast ceil cos cosh decay erf exp exp2 expm1 floor fma fmod inf log log10 log1p "
        "log2 muladd nan rsqrt select sigmoid sin sinh sqrt tan tanh trunc"
    ),
    ".sym.spec": "InOut Out State Tensor bf16 bool_ dim f16 f32 f4e2m1 f64 f8e4m3 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 i16 i2 i32 "
    "i4 i64 i8 strides u16 u2 u32 u4 u64 u8",
    ".runtime.executable": "Executable",
    ".runtime.threads": "set_threads threads",
    ".schedule.auto_tensorize": "auto_tensorize",
    ".schedule.library": "rule unregister_rule",
    ".schedule.schedule": "Schedule",
    ".support.refusal": "Refusal",
    ".support.errors": "CancelledError Error InternalError ModelFileError ScheduleError ShapeError UnsupportedError",
}
_HOME = {name: place for place, names in _PLACES.items() for name in names.split()}

if TYPE_CHECKING:
    from . import nn, tune, video
    from .api import Function, Kernel, compile, function, kernel, parse
    from .artifact import load
    from .autotuning import TuningResult, autotune
    from .dtype import DType
    from .explanation import explain
    from .exporting import export
    from .frontends.onnx import from_onnx
    from .frontends.torch import from_torch
    from .graph import opset as ops
    from .graph.ops.calls import match_cast
    from .graph.patterns import register_library, unregister_library
    from .kernel_kind import KernelKind, kind
    from .llm.embedder import Embedder
    from .llm.lm import LLM
    from .loop.script import *
    from .own_instructions import DeclaredInstruction, instruction
    from .own_operators import Operator, operator
    from .program import Program
    from .quantized import quantization_errors, quantize
    from .runtime.executable import Executable
    from .runtime.threads import set_threads, threads
    from .schedule.auto_tensorize import auto_tensorize
    from .schedule.library import rule, unregister_rule
    from .schedule.schedule import Schedule
    from .stepping import lower_until, stages
    from .support.errors import CancelledError, Error, InternalError, ModelFileError, ScheduleError, ShapeError, UnsupportedError
    from .support.refusal import Refusal
    from .sym.script import *
    from .sym.spec import *
    from .templates import Template, template

__all__ = [
    "LLM",
    "CancelledError",
    "DType",
    "DeclaredInstruction",
    "Embedder",
    "Error",
    "Executable",
    "Function",
    "InOut",
    "InternalError",
    "Kernel",
    "KernelKind",
    "ModelFileError",
    "Operator",
    "Out",
    "Program",
    "Refusal",
    "Schedule",
    "ScheduleError",
    "ShapeError",
    "State",
    "Template",
    "Tensor",
    "TuningResult",
    "UnsupportedError",
    "acos",
    "acosh",
    "alloc",
    "annotate",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "auto_tensorize",
    "autotune",
    "bf16",
    "bitcast",
    "block",
    "bool_",
    "cast",
    "ceil",
    "check",
    "combine",
    "compile",
    "compute",
    "cos",
    "cosh",
    "decay",
    "dim",
    "erf",
    "exp",
    "exp2",
    "explain",
    "expm1",
    "export",
    "f4e2m1",
    "f8e4m3",
    "f8e4m3fn",
    "f8e4m3fnuz",
    "f8e5m2",
    "f8e5m2fnuz",
    "f8e8m0",
    "f16",
    "f32",
    "f64",
    "floor",
    "fma",
    "fmod",
    "from_onnx",
    "from_torch",
    "function",
    "gpu",
    "grid",
    "i2",
    "i4",
    "i8",
    "i16",
    "i32",
    "i64",
    "inf",
    "init",
    "instruction",
    "kernel",
    "kind",
    "load",
    "log",
    "log1p",
    "log2",
    "log10",
    "lower_until",
    "match_cast",
    "max_over",
    "min_over",
    "muladd",
    "nan",
    "nn",
    "operator",
    "ops",
    "parallel",
    "parse",
    "prod_over",
    "quantization_errors",
    "quantize",
    "reads",
    "register_library",
    "rsqrt",
    "rule",
    "select",
    "serial",
    "set_threads",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "stages",
    "strides",
    "sum_over",
    "tan",
    "tanh",
    "template",
    "threads",
    "trunc",
    "tune",
    "u2",
    "u4",
    "u8",
    "u16",
    "u32",
    "u64",
    "unregister_library",
    "unregister_rule",
    "unroll",
    "vector",
    "video",
    "view",
    "where",
    "writes",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    place = _HOME.get(name)
    if place is None:
        raise AttributeError(f"module 'pliant' has no attribute {name!r}")
    module = import_module(place, __name__)
    value = module if name in ("nn", "ops", "tune", "video") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
