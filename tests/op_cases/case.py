"""What the case tables of operators are made of: a case, its function over static or symbolic dims, arguments, and the stages' meaning.

The stages are evaluated by `sym.semantics` alone: an element outside of its tensor reads as NaN (or a wild integer), which only
an arm that is not taken can hide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pliant.dtype import DType, f32, pack, unpack
from pliant.dtype import dtype as to_dtype
from pliant.graph.builder import Builder
from pliant.graph.node import Const, Function, MatchCast, Op, Scalar, Tensor, Value
from pliant.graph.op_table import TABLE, node_defines
from pliant.graph.operators import tensor_of
from pliant.graph.stage import Stage
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.loop.buffer import loaded_dtype
from pliant.lower.ops.lower_ops import lower_ops
from pliant.sym import expr as E
from pliant.sym.expr import Dim, Expr, Var, const
from pliant.sym.hash_consing import hash_consed
from pliant.sym.semantics import evaluate

SIZES = {"n": 3, "m": 5, "k": 4, "one": 1, "zero": 0, "b": 2, "c": 4, "h": 7, "w": 6}
COMBINERS = {"add": E.Add, "mul": E.Mul, "min": E.Min, "max": E.Max, "and": E.And, "or": E.Or}


class Element(Expr):
    """An element of an argument or of a stage."""

    __slots__ = ()

    def __new__(cls, source: Any, dtype: DType, indices: tuple[Expr, ...]) -> Element:
        return hash_consed(cls, dtype, source, indices)


def run_stages(stages: Sequence[Stage], args: Sequence[np.ndarray], outs: int, env: dict[Var, int]) -> list[np.ndarray]:
    """What the stages compute, by the meaning of expressions."""
    named: dict[Any, np.ndarray] = dict(enumerate(args))
    dtypes: dict[Any, DType] = {}

    def load(node: Expr, indices: Sequence[Any]) -> Any:
        array = named[node.payload]
        inside = np.array(True)
        for i, size in zip(indices, array.shape, strict=True):
            inside = inside & (np.asarray(i) >= 0) & (np.asarray(i) < size)
        if array.size == 0:
            assert not np.any(inside)
            return np.full(np.shape(inside), 77, array.dtype)
        clipped = tuple(np.clip(i, 0, size - 1) for i, size in zip(indices, array.shape, strict=True))
        wild = np.nan if array.dtype.kind == "f" else 77
        return np.where(inside, array[clipped], np.asarray(wild).astype(array.dtype))

    def read(which: int | str, *indices: Expr) -> Expr:
        return Element(which, dtypes[which], indices)

    for k, a in enumerate(args):
        dtypes[k] = loaded_dtype(to_dtype(a.dtype))
        named[k] = a.astype(dtypes[k].numpy())
    for stage in stages:
        shape = tuple(int(evaluate(e, env)) for e in stage.shape)
        extents = tuple(int(evaluate(e, env)) for e in stage.reduce)
        places = tuple(Var(f"i{d}") for d in range(len(shape)))
        points = tuple(Var(f"r{d}") for d in range(len(extents)))
        grid = dict(zip(places, np.indices(shape, np.int64), strict=True))
        value = stage.value(places, points, read)
        assert value.dtype is loaded_dtype(stage.dtype)
        if not stage.reduce:
            result = evaluate(value, {**env, **grid}, load)
        else:
            result = reduced(stage, value, shape, [{**env, **grid, **at} for at in points_of(points, extents)], load)
        named[stage.name] = np.broadcast_to(np.asarray(result), shape).astype(stage.dtype.numpy())
        dtypes[stage.name] = stage.dtype
    return [named[s.name] for s in stages[len(stages) - outs :]]


def points_of(points: Sequence[Var], extents: Sequence[int]) -> list[dict[Var, int]]:
    """The points of a reduction, in order."""
    return [dict(zip(points, point, strict=True)) for point in itertools.product(*map(range, extents))]


def reduced(stage: Stage, value: Expr, shape: tuple[int, ...], envs: list[dict[Var, Any]], load: Any) -> Any:
    """The init of a stage combined with its value at every point."""
    left, right = (Var(side, value.dtype) for side in "ab")
    joined = COMBINERS[stage.combiner](left, right)
    assert stage.init is not None and stage.init.dtype is value.dtype
    found: Any = np.broadcast_to(evaluate(stage.init, {}), shape)
    for env in envs:
        found = evaluate(joined, {left: found, right: evaluate(value, env, load)})
    return found


def by_stages(function: Function, arrays: Sequence[np.ndarray], env: dict[Var, int]) -> list[np.ndarray]:
    """The results of a function of operators, each computed by its stages."""
    values: dict[Value, np.ndarray] = dict(zip(function.params, arrays, strict=True))
    for node in function.nodes:
        if isinstance(node, Const):
            values[node.outs[0]] = node.array
            continue
        if isinstance(node, MatchCast):
            values[node.outs[0]] = values[node.value]
            continue
        assert isinstance(node, Op)
        make_stages = TABLE[node.op].stages
        if make_stages is None:
            found = by_program(function, node, values)
        else:
            stages = make_stages(
                tuple(tensor_of(a.annotation) for a in node.args), tuple(tensor_of(o.annotation) for o in node.outs), node.attrs
            )
            found = run_stages(stages, [elements(a.annotation, values[a]) for a in node.args], len(node.outs), env)
            found = [
                pack(a, o.tensor.dtype) if tensor_of(o.annotation).dtype.bits < 8 else a for o, a in zip(node.outs, found, strict=True)
            ]
        env.update(_new_dims(node, found))
        values.update(zip(node.outs, found, strict=True))
    return [values[r] for r in function.results]


def elements(annotation: Any, array: np.ndarray) -> np.ndarray:
    """The elements of an argument, unpacked where several are in a byte."""
    dtype = tensor_of(annotation).dtype
    return unpack(array, dtype) if dtype.bits < 8 else array


def by_program(function: Function, node: Op, values: dict[Value, np.ndarray]) -> list[np.ndarray]:
    """The results of an operator that has no stages: its loop program, interpreted."""
    params = tuple(dict.fromkeys((*function.params, *node.args)))
    alone = lower_ops(Function("alone", params, (node,), node.outs))
    verify(alone)
    return run_graph(alone, [values[p] for p in params])


def _new_dims(node: Op, found: Sequence[np.ndarray]) -> dict[Var, int]:
    """The values of dims that only the results of an operator tell."""
    shown: dict[Expr, int] = {}
    for out, array in zip(node.outs, found, strict=True):
        if isinstance(out.annotation, Scalar) and out.annotation.value is not None:
            shown[out.annotation.value] = int(array)
        elif isinstance(out.annotation, Tensor):
            shown.update(zip(out.tensor.shape, array.shape, strict=True))
    return {v: shown[v] for v in node_defines(node)}


class Case(NamedTuple):
    """An operator call on tensors of these shapes (names of SIZES or numbers) and dtypes."""

    call: Callable[..., Any]
    shapes: tuple[tuple[str | int, ...], ...]
    dtypes: tuple[DType, ...] = (f32,)
    low: float = -3.0
    high: float = 3.0
    checked: bool = True  # False: divides by zero, which checked mode refuses


def arrays_of(case: Case, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Random arguments."""
    rng = np.random.default_rng(7)
    found = []
    for k, shape in enumerate(shapes):
        d = case.dtypes[k if k < len(case.dtypes) else 0]
        numbers = rng.uniform(case.low, case.high, shape) if d.is_float else rng.integers(int(case.low), int(case.high), shape)
        made = np.asarray(numbers).astype(d.numpy())
        found.append(pack(made, d) if d.bits < 8 else made)
    return found


def build(case: Case, symbolic: bool) -> tuple[Function, dict[Var, int], list[tuple[int, ...]]]:
    """The case as a function; its dims symbols or numbers."""
    builder = Builder("case")
    dims = {name: Dim(name) for name in SIZES}
    params, shapes = [], []
    for k, shape in enumerate(case.shapes):
        sizes = tuple(SIZES[s] if isinstance(s, str) else s for s in shape)
        exprs = tuple(dims[s] if isinstance(s, str) and symbolic else const(size) for s, size in zip(shape, sizes, strict=True))
        params.append(builder.param(f"x{k}", Tensor(case.dtypes[k if k < len(case.dtypes) else 0], exprs)))
        shapes.append(sizes)
    with builder:
        result = case.call(*params)
    results = list(result) if isinstance(result, tuple) else [result]
    return builder.finish(results), {dims[n]: SIZES[n] for n in dims}, shapes
