"""Imports ONNX models as graph programs.

p = pliant.from_onnx("model.onnx")       # every dynamic dim keeps its name
f = pliant.compile(p, dims={"batch": 1})

Needs the package onnx (the extra `onnx`), which is imported when a model is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...program import Program
from ...support.errors import InternalError
from .registry import rule

__all__ = ["from_onnx", "rule"]


def from_onnx(source: Any, *, values: Mapping[str, Any] | None = None, fallback: bool = False) -> Program:
    """Imports the ONNX model `source`, a path, bytes or a ModelProto, and returns its program.

    `values` fixes inputs of the model; they are constants then and not parameters. With `fallback`, unsupported operators run in Python by
    onnx.reference. Raises ModelFileError for an invalid model, UnsupportedError for what is not supported.
    """
    from ...graph.verify import verify
    from ...support.errors import Error
    from .importer import Importer
    from .reader import read_model

    try:
        function = Importer(read_model(source), values, fallback).run()
    except Error as error:
        if os.environ.get("PLIANT_DEBUG") == "1" or isinstance(error, InternalError):
            raise
        raise error.with_traceback(None) from None
    verify(function)
    return Program.of(function)
