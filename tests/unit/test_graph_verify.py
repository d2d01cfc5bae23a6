"""The verifier: each rule of the grammar is broken once, by hand, and found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pliant import ops
from pliant.dtype import bool_, f32, f64, i64
from pliant.graph.builder import Builder
from pliant.graph.node import (
    Body,
    Callee,
    CallFunction,
    CallLoop,
    Function,
    If,
    MatchCast,
    Node,
    Op,
    Parameter,
    Scalar,
    Tensor,
    Value,
    While,
)
from pliant.graph.ops.shape import ScalarAttrs, ShapeAttrs
from pliant.graph.verify import verify
from pliant.support.errors import Error, InternalError
from pliant.sym.expr import Dim, const

n, m, u = Dim("n"), Dim("m"), Dim("u")
VECTOR = Tensor(f32, (n,))
STATE = Tensor(f32, (n,), state=True)
UPDATE = Callee("update", (Parameter("c", f32, (u,), "inout"),), (u,), None)
X, C = Value("x", VECTOR), Value("c", STATE)
FLAG = Value("flag", Scalar(bool_))


def f(*nodes: Node, results: tuple[Value, ...] = (X,), params: tuple[Value, ...] = (X, C, FLAG)) -> Function:
    """A function of these nodes."""
    return Function("f", params, nodes, results)


def op(name: str, *args: Value, out: Any = VECTOR, attrs: Any = None) -> Op:
    """An operator node."""
    return Op(outs=(Value(name, out),), op=name, args=args, attrs=attrs)


def update(value: Value, out: Any = STATE) -> CallLoop:
    """A call that consumes state."""
    return CallLoop(outs=(Value("c1", out),), callee=UPDATE, args=(value,), dims=(n,))


EXP = op("exp", X)
UPDATED = update(C)
OTHER = update(C)
CAST = MatchCast(outs=(Value("y", Tensor(f32, (m,))),), value=X, defines=(m,))
COND = Op(outs=(Value("cond", Scalar(bool_)),), op="logical_not", args=(FLAG,))
PARAM, COND_PARAM = Value("p", VECTOR), Value("p", VECTOR)
STEP = op("silu", PARAM)


def loop(**changes: Any) -> While:
    """A loop over `x`, perhaps broken."""
    fields: dict[str, Any] = {
        "outs": (Value("w", VECTOR),),
        "init": (X,),
        "cond": Body((COND_PARAM,), (), (FLAG,)),
        "body": Body((PARAM,), (STEP,), STEP.outs),
    }
    return While(**(fields | changes))


def branch(then: Body, orelse: Body, *outs: Value) -> If:
    """A choice by the flag."""
    return If(outs=outs, cond=FLAG, then=then, orelse=orelse)


GOOD: dict[str, Function] = {
    "operator": f(EXP, results=EXP.outs),
    "state": f(UPDATED, results=UPDATED.outs),
    "match_cast": f(CAST, op("exp", CAST.outs[0], out=Tensor(f32, (m,))), results=CAST.outs),
    "branches": f(branch(Body((), (EXP,), EXP.outs), Body((), (), (X,)), Value("r", VECTOR))),
    "branches_consume": f(branch(Body((), (UPDATED,), UPDATED.outs), Body((), (OTHER,), OTHER.outs), Value("r", STATE))),
    "loop": f(loop()),
    "read_then_consume": f(op("exp", C), UPDATED, results=UPDATED.outs),
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    verify(GOOD[name])


BAD: dict[str, tuple[Function, str]] = {
    "undefined": (f(op("exp", Value("z", VECTOR))), "`z` is used where it is not defined"),
    "used_before": (f(op("silu", EXP.outs[0]), EXP), "`exp` is used where it is not defined"),
    "result_undefined": (f(results=EXP.outs), "`exp` is used where it is not defined"),
    "defined_twice": (f(EXP, EXP), "`exp` is defined twice"),
    "parameter_twice": (f(params=(X, X)), "`x` is defined twice"),
    "out_of_a_branch": (
        f(branch(Body((), (EXP,), ()), Body((), (), ())), results=EXP.outs),
        "`exp` is used where it is not defined",
    ),
    "unknown_operator": (f(op("expp", X)), "there is no operator `expp`"),
    "arity": (f(op("exp", X, X)), "`exp` has 2 arguments"),
    "wrong_annotation": (f(op("exp", X, out=Tensor(f32, (n + 1,)))), r"deduction gives Tensor\[f32, n\]"),
    "wrong_dtype": (f(op("exp", X, out=Tensor(f64, (n,)))), r"deduction gives Tensor\[f32, n\]"),
    "lost_state": (f(update(C, VECTOR)), r"deduction gives State\[f32, n\]"),
    "impossible": (f(op("logical_not", X)), "deduction fails: logical_not is for bools"),
    "missing_check": (f(op("reshape", X, out=Tensor(f32, (const(4),)), attrs=ShapeAttrs((const(4),)))), "a run-time check is missing"),
    "dim_in_annotation": (f(params=(X, Value("y", Tensor(f32, (m * 2,))))), "dim `m` is used before it is defined"),
    "dim_in_attribute": (f(op("scalar", out=Scalar(i64, m), attrs=ScalarAttrs(m))), "dim `m` is used before it is defined"),
    "dim_before_match_cast": (
        f(op("scalar", out=Scalar(i64, m), attrs=ScalarAttrs(m)), CAST),
        "dim `m` is used before it is defined",
    ),
    "match_cast_of_another": (f(replace(CAST, defines=())), "defines other variables than it says"),
    "consumed_twice": (f(UPDATED, OTHER), "state `c` is used after it was consumed"),
    "read_after": (f(UPDATED, op("exp", C)), "state `c` is used after it was consumed"),
    "returned_after": (f(UPDATED, results=(C,)), "state `c` is used after it was consumed"),
    "one_branch_consumes": (
        f(branch(Body((), (UPDATED,), ()), Body((), (), ()))),
        "the branches consume different state",
    ),
    "used_after_branches": (
        f(branch(Body((), (UPDATED,), ()), Body((), (OTHER,), ())), results=(C,)),
        "state `c` is used after it was consumed",
    ),
    "branches_count": (
        f(branch(Body((), (), (X,)), Body((), (), ()), Value("r", VECTOR))),
        "the branches have different numbers of results",
    ),
    "branches_disagree": (
        f(branch(Body((), (), (X,)), Body((), (), (FLAG,)), Value("r", VECTOR))),
        "deduction fails: the branches disagree",
    ),
    "condition": (f(replace(loop(), cond=Body((COND_PARAM,), (), (X,)))), "deduction fails: a condition is one bool"),
    "loop_count": (f(loop(init=())), "a loop carries different numbers of values"),
    "loop_changes": (f(loop(body=Body((PARAM,), (), (FLAG,)))), "`p` changes from round to round"),
    "loop_consumes": (f(loop(body=Body((PARAM,), (UPDATED,), (PARAM,)))), "state `c` is consumed in every round of a loop"),
    "condition_consumes": (f(loop(cond=Body((COND_PARAM,), (UPDATED,), (FLAG,)))), "is consumed in every round of a loop"),
    "symbol": (f(replace(UPDATED, dims=(n + 1,))), "deduction fails: update: dim 0 of argument `c`"),
    "no_state": (f(update(X)), "deduction fails: update: argument `c` does not fit: it is not state"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    function, what = BAD[name]
    with pytest.raises(InternalError, match=what):
        verify(function)


def test_literals() -> None:
    b = Builder("f")
    b.literal(np.ones((2, 3), np.float32))
    found = b.finish([])
    verify(found)
    with pytest.raises(InternalError, match="a literal is not what its annotation says"):
        verify(found.with_(nodes=(found.nodes[0].with_(array=np.ones((3, 2), np.float32)),)))


def test_functions_of_one_name() -> None:
    inner = Function("f", (X,), (), (X,))
    y = Value("y", VECTOR)
    call = CallFunction(outs=(Value("r", VECTOR),), function=inner, args=(y,))
    with pytest.raises(InternalError, match="two functions are named `f`"):
        verify(Function("f", (y,), (call,), call.outs))


# The builder refuses the same things, as a user's mistakes.


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda b, x, c: (b.call_loop(UPDATE, [c]), ops.exp(c)), "state `c` is used after it was consumed"),
        (lambda b, x, c: b.call_loop(UPDATE, [x]), "it is not state"),
        (lambda b, x, c: b.call_loop(UPDATE, []), "update takes 1 argument, 0 given"),
        (lambda b, x, c: ops.full([m], 1.0), "dim `m` is used before it is defined"),
        (lambda b, x, c: b.call_library("s", [x], [Tensor(f32, (m,))]), "dim `m` is used before it is defined"),
    ],
)
def test_builder_refuses(build: Callable[..., Any], what: str) -> None:
    b = Builder("f")
    x, c = b.param("x", VECTOR), b.param("c", STATE)
    with b, pytest.raises(Error, match=what):
        build(b, x, c)


def test_names_are_unique() -> None:
    b = Builder("f")
    x = b.param("exp", VECTOR)
    with b:
        values = [ops.exp(x) for _ in range(3)]
    assert [v.name for v in values] == ["exp_1", "exp_2", "exp_3"]


def test_origins_are_kept() -> None:
    b = Builder("f")
    x = b.param("x", VECTOR)
    b.origin = ("layers.0.mlp",)
    with b:
        y = ops.exp(x)
    assert b.finish([y]).nodes[0].origin == ("layers.0.mlp",)


def test_the_grammar_page_names_the_nodes() -> None:
    from pliant.graph import node

    assert node.__doc__ is not None
    page = node.__doc__[: node.__doc__.index("annotation a")]
    assert set(re.findall(r"[=|] ([A-Z]\w+)\(", page)) == {c.__name__ for c in Node.__subclasses__()} | {"Function", "Program"}
