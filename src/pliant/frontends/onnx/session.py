"""A model that is run with what ONNX users pass and get: arrays in the order and under the names of the model, sequences as lists.

    session = Session("model.onnx", interpreted)
    outputs = session.run({"input.1": x})

Most models are compiled once, for all shapes. Where an input of a model decides ranks or shapes in a way that must be known when it is
imported (a number of repeats, a list of axes), a program is made for each value of that input: `session.fixed` names such inputs. Where
dims must be known (the length of a sequence is one), a program is made for each of the shapes: `session.shaped`. A program that takes
something for granted about dims is not used for shapes where that does not hold: these get one of their own. Tensors of texts are worked on
by the host, between programs (`texts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...dtype import DType, pack, unpack
from ...graph.node import Function, Tensor
from ...program import Program
from ...support.errors import ShapeError, UnsupportedError
from ...sym.expr import Expr, Var, free_vars
from ...sym.semantics import evaluate
from .importer import Importer, Output
from .node_context import NeededError
from .reader import Model, read_model
from .texts import Staged, text_stages

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
        stages = text_stages(self.model)
        self._staged = None if stages is None else Staged(self.model, stages, lambda part: Session(part, compile, fallback), fallback)
        self._programs: dict[Any, tuple[Function, list[Output], Run, list[Expr]]] = {}
        if not self.fixed and self._staged is None:
            self._attempt({})

    def _attempt(self, values: Mapping[str, Any], shaped: bool = False) -> Any:
        """The program with these inputs fixed, and for these shapes alone where `shaped`; None where more must be fixed."""
        shapes = {n: np.shape(a) for n, a in values.items() if n not in self.fixed} if self.shaped or shaped else {}
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
        self._programs[key] = (function, importer.outputs, self._compile(Program.of(function)), importer.assumed)
        return self._programs[key]

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The results, in the order of the model."""
        names = [i.name for i in self.inputs]
        unknown, missing = [n for n in feeds if n not in names], [n for n in names if n not in feeds]
        if unknown or missing:
            what = f'the model has no input "{unknown[0]}"' if unknown else f'input "{missing[0]}" is missing'
            raise ShapeError(what, facts=[f"its inputs are {', '.join(names)}"])
        if self._staged is not None:
            return self._staged.run(feeds)
        found, special = None, False
        while found is None:
            found = self._attempt(feeds, special)
            given = [feeds[n] for n in names if n not in self.fixed]
            if found is not None and not special and not _holds(found[0], found[3], given):
                found, special = None, True
        function, outputs, run, _ = found
        results = run([_passed(a, p.annotation) for a, p in zip(given, function.params, strict=True)])
        elements = [_returned(a, r.annotation) for a, r in zip(results, function.results, strict=True)]
        return [o.take(elements) for o in outputs]


def _holds(function: Function, assumed: list[Expr], given: list[Any]) -> bool:
    """Whether what a program takes for granted about dims is true of these arrays; what only a run tells is checked there."""
    env: dict[Any, int] = {}
    for p, a in zip(function.params, given, strict=True):
        if isinstance(p.annotation, Tensor) and len(p.annotation.shape) == np.ndim(a):
            env.update((n, size) for n, size in zip(p.annotation.shape, np.shape(a), strict=True) if isinstance(n, Var))
    return all(evaluate(e, env) for e in assumed if all(v in env for v in free_vars(e)))


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
