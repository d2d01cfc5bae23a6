"""The operators of graph programs by name, as functions to be called inside a `@function`: `ops.matmul(x, w)`, `ops.silu(x)`, …

This module is `pliant.ops`. Each operator is declared in a file of `graph/ops/`; names are those of core ATen and ONNX. The stub beside
this file, `opset.pyi`, imports each name from its file: type checkers read it, and so does this module, so `ops.matmul` imports
`ops/linalg.py` and what that needs, and no other family. `python tools/list_operators.py` generates the stub from the declarations.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
# `from .ops.linalg import matmul as matmul` -> {"matmul": ".ops.linalg"}
_FILES = {words[3]: words[1] for words in map(str.split, _STUB.splitlines()) if words[:1] == ["from"]}

__all__ = sorted(_FILES)  # noqa: PLE0605


def import_operator(name: str) -> None:
    """Imports the file that declares an operator; does nothing for a name that is none."""
    if name in _FILES:
        import_module(_FILES[name], __package__)


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'pliant.ops' has no attribute {name!r}")
    function = getattr(import_module(_FILES[name], __package__), name)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return __all__
