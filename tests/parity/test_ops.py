"""Each operator's stages against its numpy reference, on small odd shapes, static and symbolic, empty and without dims.

The stages are evaluated here, by `sym.semantics` alone: an element outside of its tensor reads as NaN (or a wild integer), which only
an arm that is not taken can hide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from pliant.dtype import DType, bf16, bool_, f16, f32, f64, i32, i64, u8
from pliant.graph import ops
from pliant.graph.builder import Builder
from pliant.graph.node import Const, Function, Op, Scalar, Tensor, Value
from pliant.graph.operators import TABLE, tensor_of
from pliant.graph.stage import Stage
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.sym import expr as E
from pliant.sym.expr import Dim, Expr, Var, const
from pliant.sym.semantics import apply, evaluate

SIZES = {"n": 3, "m": 5, "k": 4, "one": 1, "zero": 0}
COMBINERS = {"add": E.Add, "mul": E.Mul, "min": E.Min, "max": E.Max, "and": E.And, "or": E.Or}


class Element(Expr):
    """An element of an argument or of a stage."""

    __slots__ = ()

    def __new__(cls, source: Any, dtype: DType, indices: tuple[Expr, ...]) -> Element:
        return Expr.__new__(cls, dtype, source, indices)  # type: ignore[return-value]


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
        from pliant.dtype import dtype

        dtypes[k] = dtype(a.dtype)
    for stage in stages:
        shape = tuple(int(evaluate(e, env)) for e in stage.shape)
        extents = tuple(int(evaluate(e, env)) for e in stage.reduce)
        places = tuple(Var(f"i{d}") for d in range(len(shape)))
        points = tuple(Var(f"r{d}") for d in range(len(extents)))
        value = stage.value(places, points, read)
        assert value.dtype is stage.dtype
        grid = dict(zip(places, np.indices(shape, np.int64), strict=True))
        if not stage.reduce:
            result = evaluate(value, {**env, **grid}, load)
        else:
            assert stage.init is not None and stage.init.dtype is stage.dtype
            result = np.broadcast_to(evaluate(stage.init, env), shape)
            left, right = Var("a", stage.dtype), Var("b", stage.dtype)
            for point in itertools.product(*map(range, extents)):
                term = evaluate(value, {**env, **grid, **dict(zip(points, point, strict=True))}, load)
                result = apply(COMBINERS[stage.combiner](left, right), [result, term])
        named[stage.name] = np.broadcast_to(np.asarray(result), shape).astype(stage.dtype.numpy())
        dtypes[stage.name] = stage.dtype
    return [named[s.name] for s in stages[len(stages) - outs :]]


def by_stages(function: Function, arrays: Sequence[np.ndarray], env: dict[Var, int]) -> list[np.ndarray]:
    """The results of a function of operators, each computed by its stages."""
    values: dict[Value, np.ndarray] = dict(zip(function.params, arrays, strict=True))
    for node in function.nodes:
        if isinstance(node, Const):
            values[node.outs[0]] = node.array
            continue
        assert isinstance(node, Op)
        shapes = tuple(tensor_of(a.annotation) for a in node.args)
        stages = TABLE[node.op].stages(shapes, tuple(tensor_of(o.annotation) for o in node.outs), node.attrs)
        found = run_stages(stages, [values[a] for a in node.args], len(node.outs), env)
        values.update(zip(node.outs, found, strict=True))
    return [values[r] for r in function.results]


class Case(NamedTuple):
    """An operator call on tensors of these shapes (names of SIZES or numbers) and dtypes."""

    call: Callable[..., Any]
    shapes: tuple[tuple[str | int, ...], ...]
    dtypes: tuple[DType, ...] = (f32,)
    low: float = -3.0
    high: float = 3.0


UNARY = (
    "neg",
    "abs",
    "exp",
    "exp2",
    "expm1",
    "sigmoid",
    "silu",
    "relu",
    "tanh",
    "erf",
    "gelu",
    "sin",
    "cos",
    "tan",
    "floor",
    "ceil",
    "round",
    "trunc",
)
BINARY = ("add", "sub", "mul", "div", "minimum", "maximum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
MATRIX = ("n", "m")

CASES: dict[str, Case] = {name: Case(getattr(ops, name), (MATRIX,)) for name in UNARY}
CASES |= {f"{name}_f16": Case(getattr(ops, name), (MATRIX,), (f16,)) for name in UNARY if name not in ("sin", "cos", "tan")}
CASES |= {name: Case(getattr(ops, name), (MATRIX,), (f32,), 0.1, 9.0) for name in ("sqrt", "rsqrt", "log", "log1p")}
CASES |= {name: Case(getattr(ops, name), (MATRIX, MATRIX)) for name in BINARY}
CASES |= {f"{name}_broadcast": Case(getattr(ops, name), (("n", "one", "k"), ("m", 1))) for name in ("add", "mul", "less", "maximum")}
CASES |= {
    "exp_f64": Case(ops.exp, (MATRIX,), (f64,)),
    "sigmoid_f64": Case(ops.sigmoid, (MATRIX,), (f64,)),
    "gelu_f64": Case(ops.gelu, (MATRIX,), (f64,)),
    "pow": Case(ops.pow, (MATRIX, MATRIX), (f32, f32), 0.1, 4.0),
    "fmod": Case(ops.fmod, (MATRIX, MATRIX), (f32, f32)),
    "silu_bf16": Case(ops.silu, (MATRIX,), (bf16,)),
    "gelu_tanh": Case(lambda x: ops.gelu(x, approximate="tanh"), (MATRIX,)),
    "exp_no_dims": Case(ops.exp, ((),)),
    "exp_empty": Case(ops.exp, (("n", "zero"),)),
    "add_empty_with_one": Case(ops.add, (("zero", "m"), (1, "m"))),
    "add_symbols": Case(ops.add, (("n", "m"), ("one", "m"))),
    "add_symbols_other_way": Case(ops.add, (("one", "m"), ("n", "m"))),
    "add_number": Case(lambda x: ops.add(x, 1.5), (MATRIX,)),
    "number_sub": Case(lambda x: ops.sub(1, x), (MATRIX,), (i32,)),
    "add_wraps": Case(lambda x: ops.add(ops.mul(x, 100), 100), (MATRIX,), (u8,), 0, 255),
    "floor_divide": Case(ops.floor_divide, (MATRIX, MATRIX), (i32, i32), -9, 9),
    "remainder": Case(ops.remainder, (MATRIX, MATRIX), (i64, i64), -9, 9),
    "relu_int": Case(ops.relu, (MATRIX,), (i32,), -9, 9),
    "logical_and": Case(ops.logical_and, (MATRIX, MATRIX), (bool_, bool_), 0, 2),
    "logical_or": Case(ops.logical_or, (MATRIX, MATRIX), (bool_, bool_), 0, 2),
    "logical_not": Case(ops.logical_not, (MATRIX,), (bool_,), 0, 2),
    "where": Case(ops.where, (("n", 1), ("m",), MATRIX), (bool_, f32, f32), 0, 2),
    "where_numbers": Case(lambda x: ops.where(ops.less(x, 0.0), -1.0, x), (MATRIX,)),
    "cast_f32_i32": Case(lambda x: ops.cast(x, i32), (MATRIX,), (f32,), -5, 5),
    "cast_i64_f16": Case(lambda x: ops.cast(x, f16), (MATRIX,), (i64,), -5000, 5000),
    "cast_bool": Case(lambda x: ops.cast(x, "bool"), (MATRIX,), (i32,), -1, 2),
    "sum_all": Case(ops.sum, (MATRIX,)),
    "sum_axis": Case(lambda x: ops.sum(x, axis=0), (("n", "m", "k"),)),
    "sum_axes_kept": Case(lambda x: ops.sum(x, axis=(0, -1), keepdims=True), (("n", "m", "k"),)),
    "sum_no_axes": Case(lambda x: ops.sum(x, axis=()), (MATRIX,)),
    "sum_f16": Case(lambda x: ops.sum(x, axis=1), (MATRIX,), (f16,)),
    "sum_int": Case(lambda x: ops.sum(x, axis=1), (MATRIX,), (i32,), -9, 9),
    "sum_empty": Case(lambda x: ops.sum(x, axis=1), (("n", "zero"),)),
    "mean": Case(lambda x: ops.mean(x, axis=-1), (MATRIX,)),
    "mean_bf16": Case(lambda x: ops.mean(x, axis=-1, keepdims=True), (MATRIX,), (bf16,)),
    "max": Case(lambda x: ops.max(x, axis=1), (MATRIX,)),
    "max_int": Case(lambda x: ops.max(x, axis=0), (MATRIX,), (i32,), -9, -1),
    "max_empty": Case(lambda x: ops.max(x, axis=1), (("n", "zero"),)),
    "min": Case(ops.min, (MATRIX,)),
    "softmax": Case(ops.softmax, (MATRIX,)),
    "softmax_middle": Case(lambda x: ops.softmax(x, axis=1), (("n", "m", "k"),)),
    "softmax_f16": Case(ops.softmax, (MATRIX,), (f16,)),
    "softmax_large": Case(ops.softmax, (MATRIX,), (f32,), -500, 500),
    "rms_norm": Case(ops.rms_norm, (("n", "k", "m"), ("m",))),
    "rms_norm_f16": Case(lambda x, w: ops.rms_norm(x, w, eps=1e-3), (MATRIX, ("m",)), (f16, f16)),
    "rms_norm_empty": Case(ops.rms_norm, (("zero", "m"), ("m",))),
    "matmul": Case(ops.matmul, (("n", "k"), ("k", "m"))),
    "matmul_batch": Case(ops.matmul, ((2, "one", "n", "k"), ("m", "k", 2))),
    "matmul_f16": Case(ops.matmul, (("n", "k"), ("k", "m")), (f16, f16)),
    "matmul_int": Case(ops.matmul, (("n", "k"), ("k", "m")), (i32, i32), -9, 9),
    "matmul_empty_sum": Case(ops.matmul, (("n", "zero"), ("zero", "m"))),
    "matmul_empty_rows": Case(ops.matmul, (("zero", "k"), ("k", "m"))),
    "linear": Case(ops.linear, (("n", 2, "k"), ("m", "k"))),
    "linear_bias": Case(ops.linear, (("n", "k"), ("m", "k"), ("m",))),
    "linear_bias_f16": Case(ops.linear, (("n", "k"), ("m", "k"), ("m",)), (f16, f16, f16)),
    "reshape": Case(lambda x: ops.reshape(x, (x.tensor.shape[0], 2, -1)), (("n", "k"),)),
    "reshape_flat": Case(lambda x: ops.reshape(x, -1), (("n", "m", "k"),)),
    "reshape_tail": Case(lambda x: ops.reshape(x, (2, 2, x.tensor.shape[1])), ((4, "m"),)),
    "reshape_no_dims": Case(lambda x: ops.reshape(x, ()), ((1, 1),)),
    "reshape_empty": Case(lambda x: ops.reshape(x, (-1, 2)), (("zero", 4),)),
    "permute": Case(lambda x: ops.permute(x, (2, 0, 1)), (("n", "m", "k"),)),
    "permute_negative": Case(lambda x: ops.permute(x, (-1, 0)), (MATRIX,)),
    "slice": Case(lambda x: ops.slice(x, 0, 1, 3), ((4, "m"),)),
    "slice_open": Case(lambda x: ops.slice(x, axis=-1, start=1), ((4, 5),)),
    "slice_negative": Case(lambda x: ops.slice(x, 0, -3, -1), ((4, "m"),)),
    "slice_step": Case(lambda x: ops.slice(x, 1, 1, 5, 2), (("n", 6),)),
    "slice_to_dim": Case(lambda x, y: ops.slice(x, 0, 0, y.tensor.shape[0]), ((8,), ("n",))),
    "concat": Case(lambda x, y, z: ops.concat([x, y, z], axis=1), (("n", "m"), ("n", 2), ("n", "zero"))),
    "concat_one": Case(lambda x: ops.concat([x]), (MATRIX,)),
    "take": Case(ops.take, (("m", "k"), ("n", 2)), (f32, i64), 0, 3),
    "take_axis": Case(lambda x, i: ops.take(x, i, axis=1), (("n", "m"), ("k",)), (f32, i32), 0, 3),
    "take_scalar": Case(ops.take, (("m", "k"), ()), (f32, i32), 0, 3),
    "full": Case(lambda x: ops.add(ops.full(x.tensor.shape, 2.5), x), (MATRIX,)),
    "rotary": Case(ops.rotary_embedding, (("n", 2, 6), ("n",)), (f32, i64), 0, 99),
    "rotary_f16": Case(lambda x, p: ops.rotary_embedding(x, p, base=500.0), (("n", 2, 4), ("n",)), (f16, i32), 0, 9),
    "rotary_frequencies": Case(ops.rotary_embedding, (("n", 2, 4), ("n",), (2,)), (f32, i64, f32), 0, 50),
}


def arrays_of(case: Case, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Random arguments."""
    rng = np.random.default_rng(7)
    found = []
    for k, shape in enumerate(shapes):
        d = case.dtypes[k if k < len(case.dtypes) else 0]
        numbers = rng.uniform(case.low, case.high, shape) if d.is_float else rng.integers(int(case.low), int(case.high), shape)
        found.append(np.asarray(numbers).astype(d.numpy()))
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
    return builder.finish([result]), {dims[n]: SIZES[n] for n in dims}, shapes


TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-6, "float64": 1e-12}


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_stages_equal_the_reference(name: str, symbolic: bool) -> None:
    case = CASES[name]
    function, env, shapes = build(case, symbolic)
    verify(function)
    arrays = arrays_of(case, shapes)
    (expected,) = run_graph(function, arrays)
    (found,) = by_stages(function, arrays, env)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if expected.dtype.name in TOLERANCE:
        close = TOLERANCE[expected.dtype.name]
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=close, atol=close)
    else:
        np.testing.assert_array_equal(found, expected)


def test_every_operator_is_tried() -> None:
    tried = {n.op for case in CASES.values() for n in build(case, True)[0].nodes if isinstance(n, Op)}
    assert tried == TABLE.keys() - {"scalar"}


# The references themselves, against numbers worked out by other means.


def reference(call: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """The value of an operator call in the interpreter."""
    from pliant.dtype import dtype

    builder = Builder("case")
    params = [builder.param(f"x{k}", Tensor(dtype(a.dtype), tuple(map(const, a.shape)))) for k, a in enumerate(arrays)]
    with builder:
        result = call(*params)
    return run_graph(builder.finish([result]), arrays)[0]


def test_known_values() -> None:
    x = np.array([[3.0, 4.0]], np.float32)
    np.testing.assert_allclose(reference(lambda v: ops.rms_norm(v, np.array([1, 2], np.float32), eps=0.0), x), [[0.8485281, 2.2627417]])
    np.testing.assert_allclose(reference(ops.softmax, np.log(np.array([[1, 2, 5]], np.float32))), [[0.125, 0.25, 0.625]], rtol=1e-6)
    np.testing.assert_allclose(reference(ops.gelu, np.array([1.0, -1.0], np.float32)), [0.8413447, -0.1586553], rtol=1e-6)
    np.testing.assert_allclose(reference(ops.silu, np.array([0.0, 1.0], np.float32)), [0.0, 0.7310586], rtol=1e-6)
    weight, bias = np.array([[1, 2], [3, 4]], np.float32), np.array([10, 20], np.float32)
    np.testing.assert_array_equal(reference(ops.linear, x, weight, bias), [[21, 45]])


def test_rotary_turns_pairs() -> None:
    x = np.array([[[1.0, 0.0, 0.0, 1.0]]], np.float32)  # pairs (0, 2) and (1, 3)
    quarter = np.array([np.pi / 2, np.pi], np.float32)
    turned = reference(lambda v: ops.rotary_embedding(v, np.array([1]), quarter), x)
    np.testing.assert_allclose(turned, [[[0, 0, 1, -1]]], atol=1e-6)


def test_take_refuses_negative_indices() -> None:
    from pliant.support.errors import Error

    with pytest.raises(Error, match="index -1 is negative"):
        reference(lambda v: ops.take(v, np.array([-1])), np.ones((3, 2), np.float32))


def test_scalars_stay_on_the_host() -> None:
    builder = Builder("case")
    eps = builder.param("eps", Scalar(f32))
    n = Dim("n")
    builder.param("x", Tensor(f32, (n,)))
    with builder:
        known = ops.add(n, 1)
        unknown = ops.mul(eps, 2.0)
    assert isinstance(known.annotation, Scalar) and str(known.annotation.value) == "n + 1"
    assert unknown.annotation == Scalar(f32)
    found = run_graph(builder.finish([known, unknown]), [0.25, np.zeros(6, np.float32)])
    assert [float(v) for v in found] == [7.0, 0.5]
