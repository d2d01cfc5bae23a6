"""The swap: from then on, `import onnxruntime` in this process gives `pliant.onnxruntime`."""

from __future__ import annotations

import sys
from importlib import import_module

_MODULES = ("", ".capi", ".capi._pybind_state", ".capi.onnxruntime_pybind11_state", ".capi.onnxruntime_inference_collection")


def install() -> None:
    """Makes `import onnxruntime` give `pliant.onnxruntime` in this process; what has imported onnxruntime already keeps what it has."""
    own = __name__.rpartition(".")[0]
    for name in [m for m in sys.modules if m.partition(".")[0] == "onnxruntime"]:
        del sys.modules[name]
    for suffix in _MODULES:
        sys.modules["onnxruntime" + suffix] = import_module(own + suffix)
