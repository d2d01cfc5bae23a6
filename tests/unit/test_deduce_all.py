"""Deduction of every operator, over its cases: what numpy gives, with numbers and with dims; and operands of other dtypes, ranks and
sizes, each of which is either refused by a message that names the operator or an operand, or deduced as numpy says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from op_cases import CASES, SIZES, Case, arrays_of, build
from pliant.dtype import ALL, bool_, f16, f32, i32
from pliant.graph.node import Function, Op, Scalar, Tensor, Value
from pliant.interp.graph import run_graph
from pliant.support.errors import Error, InternalError
from pliant.sym.expr import Var
from pliant.sym.semantics import evaluate
from random_operators import cases_of

CHOSEN = sorted({name for names in cases_of().values() for name in names[:2]})
KINDS = (bool_, i32, f16, f32, ALL["f8e4m3fn"])
TOLERANT = ["arange", "cast", "linspace", "reshape", "tile"]  # which take every tensor, or none; what they refuse is in other arguments


def shown(value: Value, env: dict[Var, int]) -> str:
    """The annotation of a result with numbers for dims; what only a run tells is a question mark."""
    a = value.annotation
    if isinstance(a, Scalar):
        return f"scalar {a.dtype}"
    assert isinstance(a, Tensor)
    known = ["?" if not set(env) >= _vars(e) else str(int(evaluate(e, env))) for e in a.shape]
    return f"{a.dtype}[{', '.join(known)}]"


def _vars(e: object) -> set[Var]:
    from pliant.sym.expr import Expr, free_vars

    assert isinstance(e, Expr)
    return set(free_vars(e))


@pytest.mark.parametrize("name", CASES)
def test_dims_stand_for_numbers(name: str) -> None:
    """A case over dims has the annotation of the same case over numbers, once the dims are these numbers."""
    (static, env, shapes), (symbolic, dims, _) = build(CASES[name], False), build(CASES[name], True)
    assert [shown(r, dims) for r in symbolic.results] == [shown(r, env) for r in static.results]
    for value, found in zip(static.results, run_graph(static, arrays_of(CASES[name], shapes)), strict=True):
        if isinstance(value.annotation, Tensor) and "?" not in shown(value, env) and value.tensor.dtype.bits >= 8:
            assert shown(value, env) == f"{value.tensor.dtype}[{', '.join(map(str, found.shape))}]"
            assert found.dtype == value.tensor.dtype.numpy()


@pytest.mark.parametrize("name", CASES)
def test_empty_dims(name: str) -> None:
    """Each dim of a case may have no elements: the result is what was deduced, or the case says what it needs."""
    case = CASES[name]
    function, _, _ = build(case, True)
    for empty in {s for shape in case.shapes for s in shape if isinstance(s, str)}:
        if any(d.bits < 8 for d in case.dtypes):
            continue
        sizes = SIZES | {empty: 0}
        _run(function, case, [tuple(sizes[s] if isinstance(s, str) else s for s in shape) for shape in case.shapes])


def mutations(case: Case) -> Iterator[Case]:
    """The case with one of its operands changed."""
    shapes = [tuple(SIZES[s] if isinstance(s, str) else s for s in shape) for shape in case.shapes]
    reads_dims = not {"dim", "shape"}.isdisjoint(case.call.__code__.co_names)  # the case itself needs as many dims as there are
    dtypes = [case.dtypes[k if k < len(case.dtypes) else 0] for k in range(len(shapes))]
    for k, shape in enumerate(shapes):
        for dtype in KINDS:
            if dtype is not dtypes[k]:
                yield case._replace(shapes=tuple(shapes), dtypes=(*dtypes[:k], dtype, *dtypes[k + 1 :]))
        others = [
            *([] if reads_dims else [shape[1:], ()]),
            (2, *shape),
            *(tuple(n + (i == j) for j, n in enumerate(shape)) for i in range(len(shape))),
        ]
        for other in others:
            if other != shape:
                yield case._replace(shapes=(*shapes[:k], other, *shapes[k + 1 :]), dtypes=tuple(dtypes))


def refusal(case: Case) -> str | None:
    """What is said against a case; None where it is deduced, and the interpreter then finds what was deduced, or refuses the numbers."""
    try:
        function, _, shapes = build(case, False)
    except InternalError:
        raise
    except Error as error:
        return error.what
    _run(function, case, shapes)
    return None


def _run(function: Function, case: Case, shapes: list[tuple[int, ...]]) -> None:
    if any(d.bits < 8 for d in case.dtypes):
        return
    try:
        with np.errstate(all="ignore"):
            run_graph(function, arrays_of(case, shapes))
    except InternalError:
        raise
    except Error:
        return


@pytest.mark.parametrize("name", CHOSEN)
def test_other_operands(name: str) -> None:
    case = CASES[name]
    used = {n.op for n in build(case, False)[0].nodes if isinstance(n, Op)}
    for other in mutations(case):
        said = refusal(other)
        named = said is None or "`" in said or re.match(r"\w+: ", said) or any(op in said for op in used)
        assert named, f"{other.shapes} of {other.dtypes}: {said}"


def test_every_operator_refuses_something() -> None:
    tolerant = [op for op, names in cases_of().items() if all(refusal(m) is None for name in names[:2] for m in mutations(CASES[name]))]
    assert sorted(tolerant) == TOLERANT
