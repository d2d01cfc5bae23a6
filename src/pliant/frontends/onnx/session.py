"""Runs an ONNX model with the conventions of ONNX: inputs by name, outputs in model order, sequences as lists.

    session = Session("model.onnx", interpreted)
    outputs = session.run({"input.1": x})

Most models are compiled once, for all shapes. There are three exceptions:
- If the value of an input must be known at import time (a number of repeats, a list of axes), one program is compiled for each value;
  `session.fixed` lists these inputs.
- If dims must be known (e.g. because one is the length of a sequence), one program is compiled for each shape (`session.shaped`).
- If a program assumes conditions on dims, shapes that violate them get a program of their own.
String tensors are processed on the host, between programs (`texts.py`).
"""

from __future__ import annotations

import threading
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
MOST_PROGRAMS = 64  # the most programs kept in memory, for different values of fixed inputs; the oldest is dropped


class Session:
    """An ONNX model with its compiled programs, which it compiles as calls need them.

    Most models need one program for all shapes. If an input's value or dims must be known at import time, there is one program for each
    value or shape.
    """

    def __init__(self, source: Any, compile: Compile, fallback: bool = False) -> None:
        self.model: Model = source if isinstance(source, Model) else read_model(source)
        self._compile, self._fallback = compile, fallback
        weights = {t.name for t in self.model.proto.graph.initializer}
        self.inputs = [i for i in self.model.proto.graph.input if i.name not in weights]
        self.outputs = [o.name for o in self.model.proto.graph.output]
        self.fixed: list[str] = [i.name for i in self.inputs if i.type.WhichOneof("value") != "tensor_type"]
        self.shaped = False
        self._lock = threading.Lock()  # of what `_attempt` changes
        stages = text_stages(self.model)
        self._staged = None if stages is None else Staged(self.model, stages, lambda part: Session(part, compile, fallback), fallback)
        self._programs: dict[Any, tuple[Function, list[Output], Run, list[Expr]]] = {}
        if not self.fixed and self._staged is None:
            self._attempt({})

    def _attempt(self, values: Mapping[str, Any], shaped: bool = False) -> Any:
        """Imports and compiles the model with the fixed inputs (and the shapes, if `shaped`), unless that was done before.

        Returns the function, its outputs, the compiled program and its assumptions; None if more inputs had to be fixed, which it then
        records.
        """
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
        """Runs the model; returns its outputs in order. Raises ShapeError if an input is missing or unknown."""
        names = [i.name for i in self.inputs]
        unknown, missing = [n for n in feeds if n not in names], [n for n in names if n not in feeds]
        if unknown or missing:
            what = f'the model has no input "{unknown[0]}"' if unknown else f'input "{missing[0]}" is missing'
            raise ShapeError(what, facts=[f"its inputs are {', '.join(names)}"])
        if self._staged is not None:
            return self._staged.run(feeds)
        with self._lock:
            (function, outputs, run, _), arguments = self._found(feeds, names)
        results = run([_passed(a, p.annotation) for a, p in zip(arguments, function.params, strict=True)])
        elements = [_returned(a, r.annotation) for a, r in zip(results, function.results, strict=True)]
        return [o.take(elements) for o in outputs]

    def _found(self, feeds: Mapping[str, Any], names: list[str]) -> tuple[Any, list[Any]]:
        """Returns the program for these inputs, and its arguments."""
        program, special = None, False
        while program is None:
            program = self._attempt(feeds, special)
            if program is None:  # more inputs are fixed now, which may be enough
                special = False
            arguments = [feeds[n] for n in names if n not in self.fixed]
            if program is not None and not special and not _holds(program[0], program[3], arguments):
                program, special = None, True
        return program, arguments


def _holds(function: Function, assumed: list[Expr], given: list[Any]) -> bool:
    """True if the dims of these arrays satisfy the program's assumptions; data-dependent assumptions are checked at run time."""
    env: dict[Any, int] = {}
    for p, a in zip(function.params, given, strict=True):
        if isinstance(p.annotation, Tensor) and len(p.annotation.shape) == np.ndim(a):
            env.update((n, size) for n, size in zip(p.annotation.shape, np.shape(a), strict=True) if isinstance(n, Var))
    return all(evaluate(e, env) for e in assumed if all(v in env for v in free_vars(e)))


def interpreted(program: Program) -> Run:
    """Returns a function that runs the program by the interpreter: slow, and the reference for its semantics."""
    from ...interp.graph import run_graph

    return lambda arguments: run_graph(program.entry, arguments)


def _key(value: Any) -> Any:
    """Returns a hashable key of an input value: dtype, shape and bytes."""
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    return None if value is None else (str(np.asarray(value).dtype), np.shape(value), np.asarray(value).tobytes())


def _passed(value: Any, annotation: Any) -> Array:
    """Converts an argument to the form that programs take: contiguous, with sub-byte elements packed.

    Raises UnsupportedError for what is no tensor.
    """
    dtype: DType = annotation.dtype
    array = np.asarray(value)
    if not isinstance(annotation, Tensor):
        raise UnsupportedError(f"a value that is {annotation} cannot be passed")
    if dtype.bits < 8:
        return pack(array, dtype)
    own = array.dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")  # ml_dtypes: one per byte, but the program takes bytes
    array = array.astype(np.float32).astype(dtype.numpy()) if own else array
    return array if array.flags.c_contiguous else array.copy(order="C")


def _returned(array: Any, annotation: Any) -> Array:
    """Converts a result of a program to the user's form: sub-byte elements are unpacked."""
    dtype: DType = annotation.dtype
    return unpack(array, dtype) if dtype.bits < 8 else np.asarray(array)
