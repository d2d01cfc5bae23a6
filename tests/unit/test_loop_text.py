"""Loop programs as text: every construct survives printing and reading, and golden files show how programs look.

`PLIANT_UPDATE=1` writes the golden files anew.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from pliant.dtype import ALL, DType, bool_, f32, i32, i64, u8
from pliant.loop import stmt
from pliant.loop.attributes import SCHEDULED
from pliant.loop.buffer import Buffer, Load
from pliant.loop.parse import parse_module
from pliant.loop.printer import print_func
from pliant.loop.stmt import (
    NAMED_COMBINERS,
    Alloc,
    Block,
    Call,
    Check,
    For,
    Func,
    If,
    Iter,
    Let,
    Param,
    Reduce,
    Region,
    Seq,
    Stmt,
    Store,
    While,
    walk_stmts,
)
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.sym import expr as E
from pliant.sym.expr import Const, Dim, Expr, Var

GOLDEN = Path(__file__).parent.parent / "golden"
GOLDENS = sorted(p.stem for p in GOLDEN.glob("loop_*.py"))


def round_trip(func: Func) -> Func:
    """The function printed and read; it has to be the same, and to print the same."""
    text = print_func(func)
    again = parse_module(text)[func.name]
    assert_same(func, again)
    assert print_func(again) == text
    return again


# Golden files: Python files that print as they stand.


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_prints_as_it_stands(name: str) -> None:
    file = GOLDEN / f"{name}.py"
    source = file.read_text(encoding="utf-8")
    main = list(parse_module(source).values())[-1]
    verify(main)
    text = print_func(round_trip(main))
    if os.environ.get("PLIANT_UPDATE") == "1":
        file.write_text(text, encoding="utf-8")
    assert text == source


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_is_an_importable_file(name: str) -> None:
    file = GOLDEN / f"{name}.py"
    read = parse_module(file.read_text(encoding="utf-8"))
    imported = runpy.run_path(str(file))
    for key, func in read.items():
        assert_same(func, imported[key].func)


def test_goldens_cover_the_statements() -> None:
    seen = {type(s) for n in GOLDENS for f in parse_module((GOLDEN / f"{n}.py").read_text()).values() for s in walk_stmts(f.body)}
    assert seen == {v for v in vars(stmt).values() if isinstance(v, type) and issubclass(v, Stmt) and v is not Stmt}


# Programs made by hand, where text is most likely to go wrong.

K, J = Var("i"), Var("j")
ZERO = Const(0, i64)


def func(body: Stmt, *buffers: Buffer, scalars: tuple[Var, ...] = ()) -> Func:
    return Func("f", (*(Param(s) for s in scalars), *(Param(b, "inout") for b in buffers)), body)


def one(value: Expr, dtype: DType, *variables: Var, loads: tuple[Buffer, ...] = ()) -> Func:
    """A function that stores `value`, which may use scalar parameters and buffers."""
    out = Buffer("out", dtype, (Const(1, i64),))
    return func(Store(out, (ZERO,), value), out, *loads, scalars=variables)


def c(value: float, d: DType = i64) -> Const:
    return Const(value, d)


A, B = Var("a"), Var("b")
F = Var("x", f32)
P = Var("p", bool_)
EXPRESSIONS: list[Expr] = [
    E.Add(A, E.Add(B, A)),
    E.Sub(A, E.Sub(B, A)),
    E.Sub(E.Sub(A, B), c(1)),
    E.Mul(E.Add(A, c(1)), E.Sub(B, c(-2))),
    E.FloorDiv(E.FloorMod(A, B), E.FloorDiv(A, B)),
    E.Neg(E.Neg(A)),
    E.Neg(c(3)),
    E.Neg(c(-3)),
    E.Mul(c(-1), A),
    E.Mul(A, c(-1)),
    E.Neg(E.Mul(A, B)),
    E.Mul(E.Neg(A), B),
    E.BitNot(E.BitAnd(A, E.BitOr(B, E.BitXor(A, c(7))))),
    E.Shl(A, E.Shr(B, c(2))),
    E.Add(c(2), c(3)),
    E.Mul(E.Add(c(2), c(3)), c(4)),
    E.Min(E.Max(A, B), c(3)),
    E.Min(c(1), c(2)),
    E.Min(E.Min(c(1), c(2)), c(3)),
    E.Select(P, c(1), c(0)),
    E.Select(E.Lt(A, B), E.Select(P, c(1), c(0)), A),
    E.Select(E.Not(E.And(P, E.Or(P, E.Not(P)))), A, B),
    E.Select(E.And(E.And(P, P), E.And(P, P)), A, B),
    E.Select(E.Eq(E.Lt(A, B), E.Le(B, A)), A, B),
    E.Select(E.Eq(P, E.TRUE), A, B),
    E.Select(E.Lt(c(1), c(2)), A, B),
    E.Select(E.Not(E.TRUE), A, B),
    E.Select(E.Ne(E.Select(P, c(1), c(0)), c(1)), A, B),
    E.Select(E.Ne(E.Select(P, c(1, i32), c(0, i32)), c(1, i32)), A, B),
    E.Cast(i64, c(3, i32)),
    E.Cast(i64, A),
    E.Cast(i64, E.Select(P, c(1, i32), c(0, i32))),
    E.Cast(i64, E.Add(E.Cast(i32, A), c(1, i32))),
    E.Cast(i64, E.TRUE),
    E.Cast(i64, E.Cast(bool_, A)),
    E.Cast(i64, c(2.5, f32)),
    E.Bitcast(i64, E.Cast(ALL["f64"], A)),
    E.Call("abs", E.Sub(A, B)),
    E.Call("abs", c(-3)),
    c(2**63 - 1),
    c(-(2**63)),
]
FLOATS: list[Expr] = [
    E.Add(F, c(1, f32)),
    E.Div(c(1, f32), F),
    E.Div(c(1, f32), c(3, f32)),
    E.Fma(F, c(2, f32), c(-0.0, f32)),
    E.Fma(c(1, f32), c(2, f32), c(3, f32)),
    E.Call("exp", E.Neg(F)),
    E.Call("sqrt", c(2, f32)),
    E.Call("exp", E.Call("floor", E.Select(P, c(1, f32), c(0, f32)))),
    c(float("inf"), f32),
    c(float("-inf"), f32),
    c(float("nan"), f32),
    c(-0.0, f32),
    c(0.1, f32),
    c(1e-45, f32),
    c(3.4028235e38, f32),
    E.Mul(F, c(float("-inf"), f32)),
    E.Select(E.Lt(c(0.5, f32), c(0.25, f32)), F, c(1.5, f32)),
    E.Select(E.Lt(F, E.Select(P, c(1, f32), c(0, f32))), F, F),
    E.Min(F, E.Max(c(0, f32), F)),
]


@pytest.mark.parametrize("value", EXPRESSIONS + FLOATS, ids=str)
def test_expression(value: Expr) -> None:
    made = one(value, value.dtype, A, B, F, P)
    again = round_trip(made).body
    assert isinstance(again, Store)
    assert again.value.dtype is value.dtype
    # As the value of a let, where nothing says which dtype is wanted.
    t = Var("t", value.dtype)
    out = Buffer("out", value.dtype, (c(1),))
    round_trip(func(Seq((Let(t, value), Store(out, (ZERO,), t))), out, scalars=(A, B, F, P)))


@pytest.mark.parametrize("d", ALL.values(), ids=str)
def test_literals_of_every_dtype(d: DType) -> None:
    b = Buffer("b", d, (c(4),))
    value = Load(b, (ZERO,))
    literal = Const(1, value.dtype)
    body = Seq((Store(b, (c(1),), value), Store(b, (c(2),), literal), Let(Var("t", value.dtype), literal)))
    round_trip(func(body, b))


def test_index_of_another_integer_type() -> None:
    k = Buffer("k", i32, (c(4),))
    x = Buffer("x", f32, (c(4),))
    made = func(Store(x, (E.Cast(i64, Load(k, (ZERO,))),), Load(x, (E.Cast(i64, E.Add(Load(k, (ZERO,)), c(1, i32))),))), x, k)
    assert "x[k[0]] = x[k[0] + 1]" in print_func(made)
    round_trip(made)


@pytest.mark.parametrize("name", list(NAMED_COMBINERS))
def test_named_reductions_and_their_stores(name: str) -> None:
    d = bool_ if name in ("and", "or") else f32
    x, y = Buffer("x", d, (c(4),)), Buffer("y", d, (c(4),))
    target, value = Load(x, (ZERO,)), Load(y, (c(1),))
    values = (value, value) if name == "fma" else (value,)
    reduce = round_trip(func(Reduce(NAMED_COMBINERS[name], (target,), values), x, y)).body
    assert isinstance(reduce, Reduce) and reduce.combiner.name == name
    if name in ("add", "mul"):
        return
    node = {"min": E.Min, "max": E.Max, "and": E.And, "or": E.Or}.get(name)
    same_value = E.Fma(value, value, target) if node is None else node(target, value)
    store = round_trip(func(Store(x, (ZERO,), same_value), x, y)).body
    assert isinstance(store, Store)


def test_boolean_reduction_of_a_comparison() -> None:
    x, y = Buffer("x", bool_, (c(4),)), Buffer("y", f32, (c(4),))
    value = E.Or(E.Lt(Load(y, (ZERO,)), Load(y, (c(1),))), Load(x, (c(1),)))
    round_trip(func(Reduce(NAMED_COMBINERS["or"], (Load(x, (ZERO,)),), (value,)), x, y))


def test_names_that_clash_or_are_no_names() -> None:
    n, other = Dim("n"), Dim("n", max=8)
    x, y = Buffer("for", f32, (n,)), Buffer("x.1", f32, (other,))
    i, inner = Var("i"), Var("i")
    loop = For(i, ZERO, n, "serial", For(inner, ZERO, other, "parallel", Store(y, (inner,), Load(x, (i,)))))
    made = Func("f", (Param(x), Param(y, "out"), Param(Var("grid", f32)), Param(Var("2", f32))), loop)
    text = print_func(made)
    assert 'n = dim("n")' in text and 'n_1 = dim("n", max=8)' in text
    assert "for_1: Tensor" in text and "x_1: Out" in text and "grid_1: f32, v2: f32" in text
    assert "for i_1 in parallel(n_1):" in text
    round_trip(made)


def test_regions() -> None:
    n = Dim("n")
    x = Buffer("x", f32, (n, c(8), c(8), n, n))
    v = Var("v")
    starts = (v, c(0), c(3), E.Mul(v, c(4)), c(2))
    extents = (c(1), c(8), c(4), E.Sub(n, v), n)
    block = Block("b", (Iter(v, "S", K),), Store(x, (v, ZERO, ZERO, ZERO, ZERO), c(0, f32)), reads=(), writes=(Region(x, starts, extents),))
    made = Func("f", (Param(x, "out"),), For(K, ZERO, n, "serial", block))
    assert "writes(x[v, 0:8, 3:7, v * 4 : v * 4 + (n - v), 2 : 2 + n])" in print_func(made)
    round_trip(made)


def test_annotations_and_attributes() -> None:
    x = Buffer("x", f32, (c(4),))
    notes = {"text": 'a "b"', "tuple": (1, (2.5,), None), "dict": {"k": [True]}, "a.b": -1}
    loop = For(K, ZERO, c(4), "serial", Block("b", (), Store(x, (ZERO,), c(0, f32)), annotations=notes), notes)
    made = Func("f", (Param(x, "out"),), loop, SCHEDULED)
    assert "@kernel(scheduled=True)" in print_func(made)
    again = round_trip(made)
    assert again.attrs == SCHEDULED
    assert isinstance(again.body, For) and dict(again.body.annotations) == notes


def test_sequences_are_joined_and_may_be_empty() -> None:
    x = Buffer("x", f32, (c(4),))
    store = Store(x, (ZERO,), c(0, f32))
    round_trip(func(Seq((store, Seq((store, Seq(()))))), x))
    round_trip(func(If(E.Lt(A, B), Seq(()), Seq(())), x, scalars=(A, B)))
    round_trip(func(For(K, ZERO, c(4), "serial", Seq(())), x))
    round_trip(func(Block("b", (), Seq(()), init=store), x))


def test_grid_stops_where_bounds_depend_on_outer_loops() -> None:
    n = Dim("n")
    x = Buffer("x", f32, (n, n))
    triangle = For(K, ZERO, n, "serial", For(J, ZERO, K, "serial", Store(x, (K, J), c(0, f32))))
    text = print_func(Func("f", (Param(x, "inout"),), triangle))
    assert "for i in range(n):\n        for j in range(i):" in text
    round_trip(Func("f", (Param(x, "inout"),), triangle))


def test_calls_of_functions_that_share_a_name() -> None:
    n = Dim("n")
    x, y = Buffer("x", f32, (n,)), Buffer("y", f32, (n,))
    inner = Func("f", (Param(x, "inout"),), Store(x, (ZERO,), c(1, f32)))
    outer = Func("f", (Param(y, "inout"),), Seq((Call(inner, (y,), (n,)), Call(inner, (y,), (E.Sub(n, c(0)),)))))
    text = print_func(outer)
    assert "f_1(y)\n" in text and "f_1(y, dims=(n - 0,))" in text
    round_trip(outer)


def test_scalar_parameter_in_a_shape() -> None:
    m = Var("m")
    x = Buffer("x", f32, (m, E.Add(m, c(1))), (E.Add(m, c(2)), c(1)))
    made = Func("f", (Param(m), Param(x, "inout")), Store(x, (ZERO, ZERO), c(0, f32)))
    assert "def f(m: i64, x: InOut[f32, m, m + 1, strides(m + 2, 1)])" in print_func(made)
    round_trip(made)


def test_message_of_a_check() -> None:
    check = Check(E.Lt(A, B), 'it\'s "{0}"\n\\', (E.Cast(i64, c(3, i32)), A), "é", "shape")
    again = round_trip(func(check, Buffer("x", f32, ()), scalars=(A, B))).body
    assert isinstance(again, Check)
    assert (again.message, again.help, again.kind) == (check.message, check.help, check.kind)


def test_rank_zero() -> None:
    x = Buffer("x", f32, ())
    made = func(
        Seq((Store(x, (), c(1, f32)), While(E.Lt(Load(x, ()), c(9, f32)), Reduce(NAMED_COMBINERS["add"], (Load(x, ()),), (Load(x, ()),))))),
        x,
    )
    assert "x[()] += x[()]" in print_func(made)
    round_trip(made)


def test_stack_buffer_with_strides() -> None:
    b = Buffer("t", u8, (c(4), c(4)), (c(8), c(1)), "register")
    made = func(Seq((Alloc(b), Store(b, (ZERO, ZERO), c(0, u8)))), Buffer("x", f32, ()))
    assert 't = alloc((4, 4), u8, scope="register", strides=(8, 1))' in print_func(made)
    round_trip(made)


def test_repr_of_a_broken_program_still_prints() -> None:
    x = Buffer("x", f32, (c(4),))
    assert "lost__not_in_scope" in repr(func(Store(x, (Var("lost"),), c(0, f32)), x))
