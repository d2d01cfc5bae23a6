"""Imports PyTorch modules as graph programs.

p = pliant.from_torch(model, (x,), dynamic_shapes={"x": {0: "batch"}})
f = pliant.compile(p)
y = f(x)                        # torch in, torch out

Needs the package torch (the extra `torch`), which is imported when a module is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...program import Program
from .registry import rule

__all__ = ["from_torch", "read_pt2", "rule"]


def from_torch(model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None) -> Program:
    """Imports `model`, a PyTorch module or an ExportedProgram, and returns its program; `args` and `kwargs` are examples of its arguments.

    `dynamic_shapes` says which dims are dynamic, as for `torch.export.export`; a text is the name of a dim: `{"x": {0: "batch"}}`. The
    weights are those of the module, without a copy: the program sees what is written to them later. Raises UnsupportedError for what is
    not supported, with all operators that are missing, and an Error if torch is not installed.
    """
    from ...support.errors import Error, InternalError

    _load_torch()
    from .program import imported

    try:
        return Program.of(imported(model, tuple(args), dict(kwargs or {}), dynamic_shapes))
    except Error as error:
        if os.environ.get("PLIANT_DEBUG") == "1" or isinstance(error, InternalError):
            raise
        raise error.with_traceback(None) from None


def read_pt2(path: str) -> Program:
    """Imports the ExportedProgram in a `.pt2` file, and returns its program.

    Raises ModelFileError for a file that torch cannot read, UnsupportedError for what is not supported, with all operators that are
    missing, and an Error if torch is not installed.
    """
    from ...support.errors import ModelFileError

    torch = _load_torch()
    try:
        program = torch.export.load(path)
    except Exception as problem:
        raise ModelFileError(f"torch: {path} cannot be read: {type(problem).__name__}: {str(problem)[:300]}") from None
    return from_torch(program)


def _load_torch() -> Any:
    """Imports torch; raises with advice if it is missing."""
    try:
        import torch
    except ModuleNotFoundError as problem:
        if problem.name != "torch":
            raise
        from ...support.errors import Error
        from ...support.install_hint import install_hint

        raise Error("the package torch is not installed", help=install_hint("torch")) from None
    return torch
