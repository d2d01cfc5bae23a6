"""Imports PyTorch modules as graph programs.

p = pliant.from_torch(model, (x,), dynamic_shapes={"x": {0: "batch"}})
f = pliant.compile(p)
y = f(x)                        # torch in, torch out

Needs the package torch (`pip install 'pliant[torch]'`), which is imported when a module is imported.
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
    not supported, with all operators that are missing.
    """
    from ...support.errors import Error, InternalError
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
    missing.
    """
    import torch

    from ...support.errors import ModelFileError

    try:
        program = torch.export.load(path)
    except Exception as problem:
        raise ModelFileError(f"torch: {path} cannot be read: {type(problem).__name__}: {str(problem)[:300]}") from None
    return from_torch(program)
