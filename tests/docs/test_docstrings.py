"""The docstrings of what users call first name every parameter, in backticks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import pliant

FIRST: list[Callable[..., Any]] = [
    pliant.compile,
    pliant.load,
    pliant.export,
    pliant.parse,
    pliant.from_onnx,
    pliant.from_torch,
    pliant.autotune,
    pliant.quantize,
    pliant.explain,
    pliant.stages,
    pliant.Executable.run,
    pliant.Executable.profile,
    pliant.Executable.save,
    pliant.Executable.report,
    pliant.LLM.__init__,
    pliant.LLM.generate,
    pliant.LLM.stream,
    pliant.LLM.session,
    pliant.Embedder.__init__,
    pliant.Embedder.embed,
]


@pytest.mark.parametrize("function", FIRST, ids=lambda f: f.__qualname__)
def test_every_parameter_is_named(function: Callable[..., Any]) -> None:
    named = {word for span in re.findall(r"`([^`]+)`", function.__doc__ or "") for word in re.findall(r"\w+", span)}
    assert {*inspect.signature(function).parameters} - named - {"self"} == set()
