"""Deduction: subsumption, broadcasting, binding of callees, and what each operator results in; expected shapes are written by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pliant import ops
from pliant.dtype import bool_, f16, f32, f64, i32, i64, u8
from pliant.graph.annotation import Fit, subsumes
from pliant.graph.builder import Builder
from pliant.graph.deduce import Deduction, deduce_call
from pliant.graph.node import Annotation, Callee, Function, Parameter, Scalar, Shape, Tensor, Tuple, Value
from pliant.support.errors import Error, ShapeError
from pliant.sym.expr import Cast, Dim, Expr, Var, const, free_vars
from pliant.sym.facts import EMPTY
from pliant.sym.semantics import evaluate

n, m, t = Dim("n"), Dim("m"), Dim("t")
q = Dim("q", 2, 64, 2)


def tensor(*shape: Expr | int, dtype: Any = f32, state: bool = False) -> Tensor:
    """A tensor annotation."""
    return Tensor(dtype, tuple(s if isinstance(s, Expr) else const(s) for s in shape), state)


def assert_means(conditions: Sequence[Expr], texts: Sequence[str]) -> None:
    """The conditions hold exactly where the texts, as Python, do."""
    assert len(conditions) == len(texts)
    for condition, text in zip(conditions, texts, strict=True):
        names = sorted(free_vars(condition), key=lambda v: v.name)
        for numbers in itertools.product((0, 1, 2, 3, 4, 6, 63, 64, 65, 66), repeat=len(names)):
            values = dict(zip(names, numbers, strict=True))
            expected = eval(text, {v.name: k for v, k in values.items()})
            assert bool(evaluate(condition, values)) == expected, (condition, values)


# Subsumption.


@pytest.mark.parametrize(
    ("expected", "found", "fit"),
    [
        (tensor(n, 4), tensor(n, 4), Fit.HOLDS),
        (tensor(n + n), tensor(n * 2), Fit.HOLDS),
        (tensor(n, 4), tensor(m, 4), Fit.CHECK),
        (tensor(n, 4), tensor(n, 5), Fit.IMPOSSIBLE_DIMS),
        (tensor(n), tensor(n + 1), Fit.IMPOSSIBLE_DIMS),
        (tensor(1), tensor(q), Fit.IMPOSSIBLE_DIMS),  # q is at least 2
        (tensor(7), tensor(q), Fit.IMPOSSIBLE_DIMS),  # q is even
        (tensor(n), tensor(n, 1), Fit.IMPOSSIBLE),
        (tensor(n), tensor(n, dtype=f64), Fit.IMPOSSIBLE),
        (tensor(n, state=True), tensor(n), Fit.IMPOSSIBLE),
        (tensor(n), Scalar(f32), Fit.IMPOSSIBLE),
        (Scalar(i64), Scalar(i64, n), Fit.HOLDS),
        (Scalar(i64, n), Scalar(i64), Fit.IMPOSSIBLE),
        (Scalar(i64, n), Scalar(i64, m), Fit.CHECK),
        (Shape((n, const(4))), Shape((n, m)), Fit.CHECK),
        (Tuple((tensor(n), tensor(m))), Tuple((tensor(n), tensor(4))), Fit.CHECK),
        (Tuple((tensor(n), tensor(3))), Tuple((tensor(m), tensor(4))), Fit.IMPOSSIBLE_DIMS),
        (Tuple((tensor(n),)), Tuple(()), Fit.IMPOSSIBLE),
    ],
)
def test_subsumption(expected: Annotation, found: Annotation, fit: Fit) -> None:
    assert subsumes(expected, found).fit is fit


def test_facts_turn_a_check_into_an_answer() -> None:
    assert subsumes(tensor(n), tensor(m), EMPTY.with_equal(n, m)).fit is Fit.HOLDS
    assert subsumes(tensor(n), tensor(m), EMPTY.with_condition(m < n)).fit is Fit.IMPOSSIBLE_DIMS


# Broadcasting.


@pytest.mark.parametrize(
    ("a", "b", "shape", "condition"),
    [
        ((n, 4), (4,), "(n, 4)", None),
        ((n, 1), (1, m), "(n, m)", None),
        ((3, 1, 5), (4, 1), "(3, 4, 5)", None),
        ((), (n,), "(n)", None),
        ((0,), (1,), "(0)", None),
        ((n,), (4,), "(4)", "n == 4 or n == 1"),
        ((4,), (n,), "(4)", "4 == n or n == 1"),
        ((n,), (q,), "(q)", "n == q or n == 1"),
        ((q,), (n,), "(q)", "q == n or n == 1"),
        ((n,), (m,), "(select(n == 1, m, n))", "n == m or n == 1 or m == 1"),
        ((n * 2,), (n + n,), "(n * 2)", None),
        ((0,), (n,), "(0)", "0 == n or n == 1"),
    ],
)
def test_broadcasting(a: tuple[Any, ...], b: tuple[Any, ...], shape: str, condition: str | None) -> None:
    d = Deduction("add")
    found = d.broadcast(tensor(*a).shape, tensor(*b).shape)
    assert f"({', '.join(map(str, found))})" == shape
    assert_means([r.cond for r in d.requires], [condition] if condition else [])


@pytest.mark.parametrize(("a", "b"), [((3,), (4,)), ((q,), (63,)), ((q,), (q + 2,)), ((0,), (2,))])
def test_broadcasting_refuses(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    d = Deduction("add")
    with pytest.raises(ShapeError, match="cannot be broadcast"):
        d.broadcast(tensor(*a).shape, tensor(*b).shape)


# Calls.


def callee(*params: Parameter, symbols: tuple[Var, ...]) -> Callee:
    """A loop program's signature."""
    return Callee("kernel", params, symbols, None)


def values(*annotations: Annotation) -> tuple[Value, ...]:
    """Arguments of these annotations."""
    return tuple(Value(f"a{k}", a) for k, a in enumerate(annotations))


def test_call_binds_and_substitutes() -> None:
    k = callee(
        Parameter("x", f32, (n, m)),
        Parameter("y", f32, (m, n * 2)),
        Parameter("c", f32, (t,), "inout"),
        Parameter("z", f32, (n + m,), "out"),
        symbols=(n, m, t),
    )
    d = Deduction("kernel", values(tensor(3, q), tensor(q, 6), tensor(n, state=True)))
    outs, dims = deduce_call(d, k)
    assert [str(o) for o in outs] == ["State[f32, n]", "Tensor[f32, q + 3]"]
    assert list(map(str, dims)) == ["3", "q", "n"]
    assert d.requires == []


def test_call_checks_what_it_cannot_decide() -> None:
    k = callee(Parameter("x", f32, (n,)), Parameter("y", f32, (n,)), symbols=(n,))
    d = Deduction("kernel", values(tensor(m), tensor(t)))
    deduce_call(d, k)
    assert_means([r.cond for r in d.requires], ["t == m"])
    assert (d.requires[0].message, d.requires[0].values) == ("kernel: dim 0 of argument `y` is {0}, n = {1} is expected", (t, m))


def test_call_checks_the_contract() -> None:
    k = callee(Parameter("x", f32, (q,)), symbols=(q,))
    d = Deduction("kernel", values(tensor(m)))
    deduce_call(d, k)
    assert_means([r.cond for r in d.requires], ["m >= 2 and m <= 64 and m % 2 == 0"])
    with pytest.raises(ShapeError, match=r"dim 0 of argument `x` is 65, and the contract says q in 2\.\.64 step 2"):
        deduce_call(Deduction("kernel", values(tensor(65))), k)


def test_call_takes_scalars_into_shapes() -> None:
    size = Var("size")
    k = callee(Parameter("size", i64, None, "in", size), Parameter("z", f32, (size * 2,), "out"), symbols=())
    d = Deduction("kernel", values(Scalar(i64, n)))
    assert [str(o) for o in deduce_call(d, k)[0]] == ["Tensor[f32, n * 2]"]
    with pytest.raises(ShapeError, match="dim `size` cannot be found from the arguments"):
        deduce_call(Deduction("kernel", values(Scalar(i64))), k)


def test_call_refuses_unbound_symbols() -> None:
    k = callee(Parameter("x", f32, (n * 2,)), symbols=(n,))
    with pytest.raises(ShapeError, match="dim `n` cannot be found from the arguments"):
        deduce_call(Deduction("kernel", values(tensor(6))), k)
    outs, dims = deduce_call(Deduction("kernel", values(tensor(6))), k, (const(3),))
    assert (outs, dims) == ((), (const(3),))


def test_function_defines_fresh_dims() -> None:
    inner = Builder("inner")
    x = inner.param("x", tensor(n, 4))
    inner_dim = Dim("u", 1, 9)
    with inner:
        y = inner.match_cast(x, tensor(inner_dim, 4))
    function = inner.finish([y])
    outer = Builder("outer")
    a = outer.param("a", tensor(m, 4))
    first, second = outer.call_function(function, [a])[0], outer.call_function(function, [a])[0]
    u, v = first.tensor.shape[0], second.tensor.shape[0]
    assert isinstance(u, Dim) and (u.name, u.min, u.max) == ("u", 1, 9)
    assert len({u, v, inner_dim}) == 3
    assert {u, v} <= outer.dims


def test_a_call_can_name_the_dims_that_it_defines() -> None:
    inner = Builder("inner")
    x = inner.param("x", tensor(n, 4))
    with inner:
        y = inner.match_cast(x, tensor(Dim("u"), 4))
    function = inner.finish([y])
    outer, v = Builder("outer"), Dim("v")
    a = outer.param("a", tensor(m, 4))
    (found,) = outer.call_function(function, [a], [tensor(v, 4)])
    assert found.tensor.shape == (v, const(4)) and v in outer.dims
    with pytest.raises(ShapeError, match="inner does not return what is said"):
        outer.call_function(function, [a], [tensor(v, 5)])


# Operators.


def deduced(call: Callable[..., Any], *annotations: Annotation) -> tuple[str, list[Expr]]:
    """What the call results in, and what is checked."""
    builder = Builder("f")
    params = [builder.param(f"x{k}", a) for k, a in enumerate(annotations)]
    with builder:
        result = call(*params)
    function: Function = builder.finish([result])
    return str(result.annotation), [r.cond for node in function.nodes for r in node.requires]


GOOD: list[tuple[Callable[..., Any], tuple[Annotation, ...], str, list[str]]] = [
    (ops.add, (tensor(n, 4), tensor(4)), "Tensor[f32, n, 4]", []),
    (ops.add, (tensor(n), Scalar(f32)), "Tensor[f32, n]", []),
    (ops.mul, (Scalar(f32), Scalar(f32)), "f32", []),
    (ops.sub, (Scalar(i64, n), Scalar(i64, m)), "Scalar[i64, n - m]", []),
    (lambda x: ops.div(x, 2), (tensor(n),), "Tensor[f32, n]", []),
    (ops.less, (tensor(n), tensor(n)), "Tensor[bool, n]", []),
    (ops.logical_not, (tensor(n, dtype=bool_),), "Tensor[bool, n]", []),
    (ops.where, (tensor(n, 1, dtype=bool_), tensor(m), tensor(1)), "Tensor[f32, n, m]", []),
    (lambda x: ops.cast(x, "float16"), (tensor(n),), "Tensor[f16, n]", []),
    (ops.silu, (tensor(n, dtype=f16),), "Tensor[f16, n]", []),
    (ops.gelu, (tensor(),), "Tensor[f32]", []),
    (ops.exp, (tensor(n, state=True),), "Tensor[f32, n]", []),
    (ops.sum, (tensor(n, m),), "Tensor[f32]", []),
    (lambda x: ops.max(x, axis=-1), (tensor(n, m),), "Tensor[f32, n]", []),
    (lambda x: ops.mean(x, axis=(0, 1), keepdims=True), (tensor(n, m),), "Tensor[f32, 1, 1]", []),
    (ops.softmax, (tensor(n, m),), "Tensor[f32, n, m]", []),
    (ops.rms_norm, (tensor(n, 64), tensor(64)), "Tensor[f32, n, 64]", []),
    (ops.rms_norm, (tensor(n, 64), tensor(m)), "Tensor[f32, n, 64]", ["m == 64"]),
    (ops.matmul, (tensor(n, 64), tensor(64, m)), "Tensor[f32, n, m]", []),
    (ops.matmul, (tensor(n, t), tensor(m, 8)), "Tensor[f32, n, 8]", ["t == m"]),
    (ops.matmul, (tensor(n, 1, 3, 4), tensor(m, 4, 5)), "Tensor[f32, n, m, 3, 5]", []),
    (ops.linear, (tensor(n, t, 64), tensor(128, 64), tensor(128)), "Tensor[f32, n, t, 128]", []),
    (lambda x: ops.reshape(x, (n, 8, -1)), (tensor(n, 64),), "Tensor[f32, n, 8, 8]", []),
    (lambda x: ops.reshape(x, (-1,)), (tensor(n, m, 2),), "Tensor[f32, m * n * 2]", []),
    (lambda x: ops.reshape(x, (-1, 8)), (tensor(q * 8, q),), "Tensor[f32, q * q, 8]", []),
    (lambda x, y: ops.reshape(x, (m, 2)), (tensor(n), tensor(m)), "Tensor[f32, m, 2]", ["n == m * 2"]),
    (lambda x: ops.permute(x, (1, 0)), (tensor(n, m),), "Tensor[f32, m, n]", []),
    (lambda x: ops.slice(x, 0, 1), (tensor(8),), "Tensor[f32, 7]", []),
    (lambda x: ops.slice(x, 0, 1, None, 3), (tensor(8),), "Tensor[f32, 3]", []),
    (lambda x: ops.slice(x, 0, 1), (tensor(q),), "Tensor[f32, q - 1]", []),
    (lambda x: ops.slice(x, 0, 0, 4), (tensor(n),), "Tensor[f32, 4]", ["n >= 4"]),
    (lambda x, y: ops.concat([x, y]), (tensor(n, 4), tensor(m, 4)), "Tensor[f32, m + n, 4]", []),
    (lambda x, y: ops.concat([x, y], axis=-1), (tensor(n, 4), tensor(m, 4)), "Tensor[f32, n, 8]", ["m == n"]),
    (ops.take, (tensor(100, 8), tensor(n, 2, dtype=i32)), "Tensor[f32, n, 2, 8]", []),
    (ops.rotary_embedding, (tensor(n, 3, 64), tensor(n, dtype=i64)), "Tensor[f32, n, 3, 64]", []),
    (ops.rotary_embedding, (tensor(n, 3, 64), tensor(m, dtype=i64)), "Tensor[f32, n, 3, 64]", ["m == n"]),
    (lambda x: ops.full([x.tensor.shape[0], 2], True, bool), (tensor(n),), "Tensor[bool, n, 2]", []),
    (lambda x: ops.cast(x.tensor.shape[0], f32), (tensor(n),), "Scalar[f32, cast(f32, n)]", []),
]  # fmt: skip


@pytest.mark.parametrize("case", GOOD, ids=lambda c: c[2])
def test_operator_results(case: tuple[Callable[..., Any], tuple[Annotation, ...], str, list[str]]) -> None:
    call, annotations, shape, checks = case
    found, conditions = deduced(call, *annotations)
    assert found == shape
    assert_means(conditions, checks)


BAD: list[tuple[Callable[..., Any], tuple[Annotation, ...], str]] = [
    (ops.add, (tensor(3), tensor(4)), "add: dims 3 and 4"),
    (ops.add, (tensor(3), tensor(3, dtype=f64)), "add of f32 and f64: nothing is cast implicitly"),
    (ops.add, (tensor(3, dtype=bool_), tensor(3, dtype=bool_)), "add is for numbers"),
    (ops.less, (tensor(3, dtype=bool_), tensor(3, dtype=bool_)), "less is for numbers"),
    (ops.div, (tensor(3, dtype=i32), tensor(3, dtype=i32)), "div is for floats"),
    (ops.floor_divide, (tensor(3), tensor(3)), "floor_divide is for integers"),
    (ops.logical_and, (tensor(3), tensor(3)), "logical_and is for bools"),
    (ops.exp, (Shape((n,)),), "exp takes tensors, and `x0` is a shape"),
    (ops.tanh, (tensor(3, dtype=i32),), "tanh is for floats"),
    (lambda x: ops.gelu(x, approximate="quick"), (tensor(3),), 'gelu has no form "quick"'),
    (ops.where, (tensor(3), tensor(3), tensor(3)), "the condition `x0` is f32, not bool"),
    (lambda x: ops.cast(x, "i4"), (tensor(3),), "it is a storage type"),
    (ops.sum, (tensor(3, dtype=bool_),), "sum of bools"),
    (ops.mean, (tensor(3, dtype=i32),), "mean is for floats"),
    (lambda x: ops.sum(x, axis=(0, -1)), (tensor(3),), "an axis is given twice"),
    (lambda x: ops.sum(x, axis=1.5), (tensor(3),), "an axis is an integer"),
    (lambda x: ops.softmax(x, axis=1), (tensor(3),), "axis 1 of a tensor with 1 dim"),
    (ops.rms_norm, (tensor(n, 64), tensor(32)), "the weight has 32 elements, a row of `x0` 64"),
    (ops.matmul, (tensor(n, 64), tensor(32, m)), "64 columns of `x0` meet 32 rows of `x1`"),
    (ops.matmul, (tensor(3, n, 4), tensor(2, 4, n)), "matmul: dims 3 and 2"),
    (ops.linear, (tensor(n, 64), tensor(128, 32)), "64 columns of `x0` meet 32 columns of the weight"),
    (ops.linear, (tensor(n, 64), tensor(128, 64), tensor(64)), "the bias has 64 elements, the weight 128 rows"),
    (lambda x: ops.reshape(x, (4, 4)), (tensor(15),), "15 elements"),
    (lambda x: ops.reshape(x, (-1, -1)), (tensor(15),), "more than one extent is -1"),
    (lambda x: ops.reshape(x, (2.5,)), (tensor(15),), "a dim or an integer is expected, not 2.5"),
    (lambda x: ops.permute(x, (0, 0)), (tensor(3, 4),), "are no order of 2 dims"),
    (lambda x: ops.slice(x, 0, 3, 2), (tensor(8),), "3:2 is not within the 8 elements"),
    (lambda x: ops.slice(x, 0, 0, 8, -1), (tensor(8),), "-8 elements from 0 in steps of -1 are not within the 8 elements"),
    (lambda x, y: ops.concat([x, y]), (tensor(n, 4), tensor(n, 5)), "dim 1 of `x1` is 5, that of `x0` 4"),
    (lambda x, y: ops.concat([x, y]), (tensor(n, 4), tensor(n)), "`x1` has 1 dim, 2 expected"),
    (lambda x: ops.concat(x), (tensor(n),), "concat takes a list of tensors"),
    (ops.take, (tensor(3), tensor(2)), "the indices `x1` are f32, not integers"),
    (ops.rotary_embedding, (tensor(n, 64), tensor(n, dtype=i64)), "`x0` has 2 dims, 3 expected"),
    (ops.rotary_embedding, (tensor(n, 2, 64), tensor(n)), "the positions `x1` are f32, not integers"),
    (lambda x: ops.full([2], "a"), (tensor(3),), "the value is a number"),
    (lambda x: ops.add(x, 300), (tensor(3, dtype=u8),), "300 is no value of u8"),
]  # fmt: skip


@pytest.mark.parametrize("case", BAD, ids=lambda c: c[2][:30])
def test_operator_refuses(case: tuple[Callable[..., Any], tuple[Annotation, ...], str]) -> None:
    call, annotations, what = case
    with pytest.raises(Error) as caught:
        deduced(call, *annotations)
    assert what in caught.value.what


def test_cast_of_dims_is_known() -> None:
    builder = Builder("f")
    builder.param("x", tensor(n))
    with builder:
        found = ops.cast(n, f32)
    assert found.annotation == Scalar(f32, Cast(f32, n))
