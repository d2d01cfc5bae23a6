"""A model that is run with what ONNX users pass and get: arrays in the order and under the names of the model, sequences as lists.

    session = Session("model.onnx", interpreted)
    outputs = session.run({"input.1": x})

Most models are compiled once, for all shapes. Where an input of a model decides ranks or shapes in a way that must be known when it is
imported (a number of repeats, a list of axes), a program is made for each value of that input: `session.fixed` names such inputs. Where
dims must be known (the length of a sequence is one), a program is made for each of the shapes: `session.shaped`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...dtype import DType, pack, unpack
from ...graph.node import Function, Tensor
from ...program import Program
from ...support.errors import ShapeError, UnsupportedError
from .importer import Importer, Output
from .reader import Model, read_model
from .site import NeededError

Array = np.ndarray[Any, Any]
Run = Callable[[list[Array]], list[Array]]
Compile = Callable[[Program], Run]
MOST_PROGRAMS = 64  # of different values of fixed inputs


class Session:
    """A model with its compiled programs; see the module."""

    def __init__(self, source: Any, compile: Compile, fallback: bool = False) -> None:
        self.model: Model = source if isinstance(source, Model) else read_model(source)
        self._compile, self._fallback = compile, fallback
        weights = {t.name for t in self.model.proto.graph.initializer}
        self.inputs = [i for i in self.model.proto.graph.input if i.name not in weights]
        self.outputs = [o.name for o in self.model.proto.graph.output]
        self.fixed: list[str] = [i.name for i in self.inputs if i.type.WhichOneof("value") != "tensor_type"]
        self.shaped = False
        self._programs: dict[Any, tuple[Function, list[Output], Run]] = {}
        if not self.fixed:
            self._attempt({})

    def _attempt(self, values: Mapping[str, Any]) -> Any:
        """The program with these inputs fixed; None where others must be fixed as well, which are then known."""
        shapes = {n: np.shape(a) for n, a in values.items() if n not in self.fixed} if self.shaped else {}
        key = (tuple((name, _key(values[name])) for name in self.fixed), tuple(shapes.values()))
        if key in self._programs:
            return self._programs[key]
        try:
            importer = Importer(self.model, {name: values[name] for name in self.fixed}, self._fallback)
            importer.shapes = shapes
            function = importer.run()
        except NeededError as error:
            if error.dims and not self.shaped:
                self.shaped = True
                return None
            new = [name for name in error.inputs if name not in self.fixed and name in {i.name for i in self.inputs}]
            if not new:
                raise
            self.fixed += new
            self._programs.clear()
            return None
        if len(self._programs) >= MOST_PROGRAMS:
            self._programs.pop(next(iter(self._programs)))
        self._programs[key] = (function, importer.outputs, self._compile(Program.of(function)))
        return self._programs[key]

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The results, in the order of the model."""
        names = [i.name for i in self.inputs]
        unknown, missing = [n for n in feeds if n not in names], [n for n in names if n not in feeds]
        if unknown or missing:
            what = f'the model has no input "{unknown[0]}"' if unknown else f'input "{missing[0]}" is missing'
            raise ShapeError(what, facts=[f"its inputs are {', '.join(names)}"])
        found = None
        while found is None:
            found = self._attempt(feeds)
        function, outputs, run = found
        given = [feeds[n] for n in names if n not in self.fixed]
        results = run([_passed(a, p.annotation) for a, p in zip(given, function.params, strict=True)])
        elements = [_returned(a, r.annotation) for a, r in zip(results, function.results, strict=True)]
        return [o.take(elements) for o in outputs]


def interpreted(program: Program) -> Run:
    """A program run by the interpreter: what it means, slowly."""
    from ...interp.graph import run_graph

    return lambda arguments: run_graph(program.entry, arguments)


def _key(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    return None if value is None else (str(np.asarray(value).dtype), np.shape(value), np.asarray(value).tobytes())


def _passed(value: Any, annotation: Any) -> Array:
    """An array as programs take it: elements below a byte are packed."""
    dtype: DType = annotation.dtype
    array = np.asarray(value)
    if not isinstance(annotation, Tensor):
        raise UnsupportedError(f"a value that is {annotation} cannot be passed")
    if dtype.bits < 8:
        return pack(array, dtype)
    own = array.dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")  # one in each byte, as bytes
    array = array.astype(np.float32).astype(dtype.numpy()) if own else array
    return array if array.flags.c_contiguous else array.copy(order="C")


def _returned(array: Any, annotation: Any) -> Array:
    dtype: DType = annotation.dtype
    return unpack(array, dtype) if dtype.bits < 8 else np.asarray(array)
