"""Deduction of operators on indices, order, selection, slices and quantization: static, symbolic and wrong inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pliant import ops
from pliant.dtype import ALL, DType, bool_, f16, f32, i8, i32, i64, u8
from pliant.graph.builder import Builder
from pliant.graph.node import Annotation, Scalar, Tensor
from pliant.graph.verify import verify
from pliant.support.errors import Error
from pliant.sym.expr import Dim, Expr, const

n, m, k, u = Dim("n"), Dim("m"), Dim("k"), Dim("u")


def tensor(*shape: int | Expr, dtype: DType = f32, state: bool = False) -> Tensor:
    return Tensor(dtype, tuple(const(e) if isinstance(e, int) else e for e in shape), state)


def index(*shape: int | Expr) -> Tensor:
    return tensor(*shape, dtype=i64)


def deduced(call: Callable[..., Any], *annotations: Annotation) -> tuple[list[str], list[str]]:
    """The annotations of the results of a call, and what is checked at run time."""
    builder = Builder("case")
    params = [builder.param(f"x{i}", a) for i, a in enumerate(annotations)]
    with builder:
        result = call(*params)
    made = list(result) if isinstance(result, tuple) else [result]
    function = builder.finish(made)
    verify(function)
    return [str(v.annotation) for v in made], [str(r.cond) for node in function.nodes for r in node.requires]


GOOD: list[tuple[Callable[..., Any], tuple[Annotation, ...], list[str], list[str]]] = [
    (ops.gather, (tensor(5, 4), index(2, 4)), ["Tensor[f32, 2, 4]"], []),
    (ops.gather, (tensor(n, m), index(k, m)), ["Tensor[f32, k, m]"], []),
    (ops.gather, (tensor(n, m), index(n, k)), ["Tensor[f32, n, k]"], ["k <= m"]),
    (ops.gather_nd, (tensor(n, m, 3), index(k, 2)), ["Tensor[f32, k, 3]"], []),
    (lambda x, i: ops.gather_nd(x, i, batch_dims=1), (tensor(n, m, 3), index(k, 1)), ["Tensor[f32, k, 3]"], ["k == n"]),
    (ops.scatter, (tensor(n, 4), index(m, 4), tensor(m, 4)), ["Tensor[f32, n, 4]"], []),
    (ops.scatter, (tensor(n, 4, state=True), index(m, 4), tensor(m, 4)), ["State[f32, n, 4]"], []),
    (ops.scatter_nd, (tensor(n, m), index(k, 1), tensor(k, m)), ["Tensor[f32, n, m]"], []),
    (ops.scatter_nd, (tensor(n, m, state=True), index(k, 2), tensor(n)), ["State[f32, n, m]"], ["n == k"]),
    (ops.index_put, (tensor(n, m, 2), tensor(2), index(k, 1), index(3)), ["Tensor[f32, n, m, 2]"], []),
    (ops.embedding, (tensor(100, 8), tensor(n, m, dtype=u8)), ["Tensor[f32, n, m, 8]"], []),
    (ops.reverse_sequence, (tensor(n, m), index(m)), ["Tensor[f32, n, m]"], []),
    (ops.cumsum, (tensor(n, m, dtype=f16),), ["Tensor[f16, n, m]"], []),
    (ops.cummax, (tensor(n, m),), ["Tensor[f32, n, m]", "Tensor[i64, n, m]"], []),
    (ops.sort, (tensor(n, m, dtype=i8),), ["Tensor[i8, n, m]", "Tensor[i64, n, m]"], []),
    (ops.argsort, (tensor(n),), ["Tensor[i64, n]"], []),
    (lambda x: ops.topk(x, 3), (tensor(n, 8),), ["Tensor[f32, n, 3]", "Tensor[i64, n, 3]"], []),
    (lambda x: ops.topk(x, 3), (tensor(n, m),), ["Tensor[f32, n, 3]", "Tensor[i64, n, 3]"], ["m >= 3"]),
    (ops.searchsorted, (tensor(n), tensor(m, k)), ["Tensor[i64, m, k]"], []),
    (lambda x: ops.nonzero(x, count=u), (tensor(n, m, dtype=bool_),), ["Tensor[i64, u, 2]"], []),
    (
        lambda x: ops.unique(x, count=u),
        (tensor(n, m),),
        ["Tensor[f32, u]", "Tensor[i64, u]", f"Tensor[i64, {n * m}]".replace("n * m", "m * n"), "Tensor[i64, u]"],
        [],
    ),
    (lambda x, c: ops.compress(x, c, axis=1, count=u), (tensor(n, m), tensor(m, dtype=bool_)), ["Tensor[f32, n, u]"], []),
    (lambda x, c: ops.masked_select(x, c, count=u), (tensor(n, m), tensor(n, m, dtype=bool_)), ["Tensor[f32, u]"], []),
    (lambda b, s: ops.non_max_suppression(b, s, 10, count=u), (tensor(1, n, 4), tensor(1, 80, n)), ["Tensor[i64, u, 3]"], []),
    (lambda x: ops.slice(x, 0, step=-1), (tensor(n, 2),), ["Tensor[f32, n, 2]"], []),
    (lambda x: ops.slice(x, 0, step=-2), (tensor(7),), ["Tensor[f32, 4]"], []),
    (lambda x: ops.slice(x, 0, 5, 1, -2), (tensor(7),), ["Tensor[f32, 2]"], []),
    (lambda x, s: ops.slice(x, 0, stop=s, count=u), (tensor(n, 2), Scalar(i64)), ["Tensor[f32, u, 2]"], ["u == 0 or u - 1 < n"]),
    (lambda x: ops.prefix(x, 2), (tensor(3, n),), ["Tensor[f32, 2, n]"], []),
    (lambda x, c: ops.prefix(x, ops.bind_dim(c, u, most=n)), (tensor(n, 4), Scalar(i64)), ["Tensor[f32, u, 4]"], ["u <= n"]),
    (lambda x: ops.quantize_linear(x, 0.5, 3, dtype=i8), (tensor(n, m),), ["Tensor[i8, n, m]"], []),
    (lambda x, s: ops.quantize_linear(x, s, axis=0, dtype="i4"), (tensor(n, 8), tensor(m)), ["Tensor[i4, n, 8]"], ["m == n"]),
    (
        lambda x, s: ops.dequantize_linear(x, s, axis=1, block_size=32),
        (tensor(n, 64, dtype=ALL["u4"]), tensor(n, 2, dtype=f16)),
        ["Tensor[f16, n, 64]"],
        [],
    ),
    (ops.dynamic_quantize_linear, (tensor(n, m),), ["Tensor[u8, n, m]", "Tensor[f32]", "Tensor[u8]"], []),
]


@pytest.mark.parametrize("case", GOOD, ids=lambda c: f"{c[2][0]} {c[3]}")
def test_results(case: tuple[Callable[..., Any], tuple[Annotation, ...], list[str], list[str]]) -> None:
    call, annotations, results, checks = case
    found, conditions = deduced(call, *annotations)
    assert found == results
    assert len(conditions) >= len(checks)
    for wanted in checks:
        assert any(_same(c, wanted) for c in conditions), (conditions, wanted)


def _same(found: str, wanted: str) -> bool:
    """Whether two conditions mean the same for small values of the dims."""
    names = ("n", "m", "k", "u")
    points = [dict(zip(names, (a, b, c, d), strict=True)) for a in range(4) for b in range(4) for c in range(4) for d in range(4)]
    return all(bool(eval(found, {}, p)) == bool(eval(wanted, {}, p)) for p in points)


BAD: list[tuple[Callable[..., Any], tuple[Annotation, ...], str]] = [
    (ops.gather, (tensor(3, 4), tensor(3, 4)), "the indices `x1` are f32, not integers"),
    (ops.gather, (tensor(3, 4), index(3)), "`x1` has 1 dim, 2 expected"),
    (ops.gather, (tensor(3, 4), index(3, 5)), "dim 1 of `x1` is 5, that of `x0` only 4"),
    (ops.gather_nd, (tensor(3, 4), index(5, 3)), "3 indices stand together, and `x0` has 2 dims"),
    (ops.gather_nd, (tensor(3, 4), index(5, n)), "the last dim of the indices `x1` has to be a number"),
    (lambda x, i: ops.gather_nd(x, i, batch_dims=2), (tensor(3, 4), index(3, 1)), "batch_dims is 2"),
    (ops.scatter, (tensor(3, 4), index(2, 4), tensor(2, 5)), "dim 1 of `x2` is 5, that of `x1` 4"),
    (ops.scatter, (tensor(3, 4), index(2, 4), tensor(2, 4, dtype=f16)), "scatter of f16 into f32: nothing is cast implicitly"),
    (lambda *a: ops.scatter(*a, reduction="mean"), (tensor(3), index(2), tensor(2)), 'there is no reduction "mean"'),
    (lambda *a: ops.scatter(*a, reduction="add"), (tensor(3, dtype=bool_), index(2), tensor(2, dtype=bool_)), "no add of bool"),
    (ops.scatter_nd, (tensor(3, 4), index(5, 1), tensor(5, 3)), "dim 1 of the updates `x2` is 3, 4 is expected"),
    (ops.index_put, (tensor(3), tensor(1), index(2), index(2)), "2 indices into the 1 dims of `x0`"),
    (ops.index_put, (tensor(3, 4), tensor(5), index(2)), "index_put: dims 4 and 5"),
    (ops.reverse_sequence, (tensor(3, 4), index(3)), "`x1` has 3 lengths for 4 sequences"),
    (ops.cumsum, (tensor(3, dtype=bool_),), "cumsum of bool"),
    (lambda x: ops.topk(x, 4), (tensor(3),), "4 of the 3 elements along axis 0"),
    (ops.searchsorted, (tensor(3), tensor(2, dtype=i32)), "nothing is cast implicitly"),
    (ops.searchsorted, (tensor(2, 3), tensor(3, 1)), "dim 0 of `x1` is 3, that of `x0` 2"),
    (ops.nonzero, (tensor(),), "`x0` has no dims"),
    (lambda x: ops.nonzero(x, count=3), (tensor(3),), "a new dim is expected, not 3"),
    (lambda x: ops.nonzero(x, count=n), (tensor(n),), "dim `n` has a value already"),
    (lambda x: (ops.nonzero(x, count=u), ops.nonzero(x, count=u)), (tensor(n),), "dim `u` has a value already"),
    (ops.masked_select, (tensor(3), tensor(3)), "the mask `x1` is f32, not bool"),
    (ops.non_max_suppression, (tensor(1, 5, 3), tensor(1, 2, 5)), "a box of `x0` has 3 numbers"),
    (ops.non_max_suppression, (tensor(1, 5, 4), tensor(1, 2, 6)), "scores for 6 boxes, `x0` 5"),
    (lambda x: ops.slice(x, 0, step=0), (tensor(3),), "a step is an integer that is not 0"),
    (lambda x: ops.strided_slice(x, 0, 2, 3), (tensor(4),), "3 elements from 2 in steps of 1 are not within the 4 elements of axis 0"),
    (lambda x: ops.prefix(x, 5), (tensor(4),), "5 is not within the 4 elements of axis 0"),
    (lambda x: ops.bind_dim(x, u, most=3), (Scalar(f32),), "is f32, and a dim is i64"),
    (lambda x: ops.bind_dim(x, u), (Scalar(i64),), "`most` is missing"),
    (lambda x: ops.quantize_linear(x, 0.5, dtype=i64), (tensor(3),), "codes are not i64"),
    (lambda x: ops.quantize_linear(x, 0.5), (tensor(3, dtype=u8),), "quantize_linear of u8"),
    (lambda x, s: ops.quantize_linear(x, s, axis=0), (tensor(3, 4), tensor(4)), "dim 0 of `x1` is 4, 3 is expected"),
    (lambda x, s: ops.quantize_linear(x, s, axis=1, block_size=2), (tensor(3, 8), tensor(3, 3)), "is for 3 blocks of 2, and there are 8"),
    (
        lambda x, z: ops.quantize_linear(x, 0.5, z, dtype=i8),
        (tensor(3), tensor(dtype=u8)),
        "the zero point `x1` is u8, and the codes are i8",
    ),
    (ops.dynamic_quantize_linear, (tensor(3, dtype=f16),), "dynamic_quantize_linear of f16, f32 is expected"),
]


@pytest.mark.parametrize("case", BAD, ids=lambda c: c[2])
def test_mistakes(case: tuple[Callable[..., Any], tuple[Annotation, ...], str]) -> None:
    call, annotations, message = case
    with pytest.raises(Error) as caught:
        deduced(call, *annotations)
    assert message in caught.value.what


def test_state_that_a_scatter_consumed_is_gone() -> None:
    builder = Builder("case")
    state = builder.param("state", tensor(4, 2, state=True))
    places, rows = builder.param("places", index(3, 1)), builder.param("rows", tensor(3, 2))
    with builder:
        ops.scatter_nd(state, places, rows)
        with pytest.raises(Error, match="state `state` is used after it was consumed"):
            ops.exp(state)
