"""The verifier on programs that no user wrote: an InternalError with the path; and programs that look dangerous but are right."""

# ruff: noqa: E501  (programs on one line)

from __future__ import annotations

import pytest

from pliant.dtype import bool_, f32, i32, i64
from pliant.loop.buffer import Buffer, Load
from pliant.loop.parse import parse_module
from pliant.loop.stmt import (
    NAMED_COMBINERS,
    Alloc,
    Block,
    Call,
    Check,
    Combiner,
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
    View,
    While,
)
from pliant.loop.verify import verify
from pliant.support.errors import Error, InternalError
from pliant.sym.expr import Add, Const, Dim, Lt, Mul, Var

N = Dim("n", min=1)
X = Buffer("x", f32, (N,))
Y = Buffer("y", f32, (N,))
FLAGS = Buffer("flags", bool_, (N,))
COUNTS = Buffer("counts", i32, (N,))
SCALAR = Var("scalar", f32)
PARAMS = (Param(X), Param(SCALAR), Param(Y, "out"), Param(FLAGS, "inout"), Param(COUNTS, "inout"))
ZERO, ONE = Const(0, i64), Const(1, i64)
REAL = Const(1.0, f32)
L, V, K, W = Var("i"), Var("v"), Var("k"), Var("w")


def loop(body: Stmt, var: Var = L, kind: str = "serial") -> For:
    return For(var, ZERO, N, kind, body)


def store(index: Var | Const = L) -> Store:
    return Store(Y, (index,), REAL)


def block(body: Stmt, *iters: Iter, init: Stmt | None = None) -> Block:
    return Block("b", iters, body, init)


SPATIAL = Iter(V, "S", L)
LOCAL = Buffer("t", f32, (N,), scope="workspace")
INNER = Func("inner", (Param(Buffer("a", f32, (N,))), Param(Buffer("b", f32, (N,)), "out")), Seq(()))

BROKEN: dict[str, tuple[Stmt, str]] = {
    "unbound variable": (store(), "`i` is used where it is not defined, in `f` at body"),
    "bound of an inner variable": (For(L, ZERO, K, "serial", loop(store(), K)), "`k` is used where it is not defined, in `f` at body"),
    "variable bound twice": (loop(loop(store())), "`i` is defined again inside of its own scope, in `f` at body.for i"),
    "buffer of an ended scope": (
        Seq((If(Lt(ZERO, N), Alloc(LOCAL)), Store(LOCAL, (ZERO,), REAL))),
        "`t` is used where it is not defined, in `f` at body.1",
    ),
    "buffer that nobody defines": (Store(LOCAL, (ZERO,), REAL), "`t` is used where it is not defined"),
    "store to an input": (loop(Store(X, (L,), REAL)), "`x` is an input and cannot be written, in `f` at body.for i"),
    "store through a view of an input": (
        Seq((View(LOCAL, X, (ZERO,)), Store(LOCAL, (ZERO,), REAL))),
        "`t` is an input and cannot be written",
    ),
    "rank": (Store(Y, (ZERO, ZERO), REAL), "`y` has 1 dimensions, 2 indices given"),
    "rank of a load": (Store(Y, (ZERO,), Load(X, ())), "`x` has 1 dimensions, 0 indices given"),
    "dtype of a value": (Store(Y, (ZERO,), Const(1, i32)), "the value stored to `y` is i32, not f32"),
    "dtype of an index": (Store(Y, (Const(1, i32),), REAL), "an index of `y` is i32, not i64"),
    "dtype of a bound": (For(L, ZERO, Const(1, i32), "serial", store()), "a bound of loop `i` is i32, not i64"),
    "dtype of a condition": (While(Load(X, (ZERO,)), store(ZERO)), "the condition is f32, not bool"),
    "dtype of a let": (Let(Var("t", f32), ONE), "the value of `t` is i64, not f32"),
    "kind of a loop": (loop(store(), kind="paralel"), 'there is no kind of loop "paralel"'),
    "kind of an iterator": (loop(block(store(V), Iter(V, "X", L))), 'iterator `v` of kind "X"'),  # type: ignore[arg-type]
    "loop variable in a block": (loop(block(store(), SPATIAL)), "`i` cannot be used in this block, in `f` at body.for i.block b"),
    "iterator of an outer block": (
        loop(block(Block("c", (Iter(W, "S", V),), store(V)), SPATIAL)),
        "`v` cannot be used in this block, in `f` at body.for i.block b.block c",
    ),
    "let of a loop in a block": (
        loop(Seq((Let(W, L), block(Store(Y, (W,), REAL), SPATIAL)))),
        "`w` cannot be used in this block",
    ),
    "reduction iterator in init": (
        loop(block(store(ZERO), Iter(V, "R", L), init=store(V))),
        "`v` cannot be used in this block, in `f` at body.for i.block b.init",
    ),
    "predicate": (loop(Block("b", (SPATIAL,), store(V), predicate=ONE)), "the predicate is i64, not bool"),
    "rank of a region": (loop(Block("b", (SPATIAL,), store(V), writes=(Region(Y, (), ()),))), "`y` has 1 dimensions, 0 indices given"),
    "dependent bindings": (
        loop(loop(block(store(V), Iter(V, "S", L), Iter(W, "S", Add(L, K))), K)),
        "the iterators of block `b` are not independent: the parts of `i + k` overlap",
    ),
    "bindings that are not affine": (
        loop(loop(block(store(V), Iter(V, "S", Mul(L, K))), K)),
        "the iterators of block `b` are not independent: `i * k` multiplies loop variables",
    ),
    "reduction of bools": (Reduce(NAMED_COMBINERS["add"], (Load(FLAGS, (ZERO,)),), (Load(FLAGS, (ZERO,)),)), "there is no reduction `add` of bool"),
    "fma of integers": (
        Reduce(NAMED_COMBINERS["fma"], (Load(COUNTS, (ZERO,)),), (Const(1, i32), Const(1, i32))),
        "there is no reduction `fma` of i32",
    ),
    "combiner of other types": (
        Reduce(Combiner("lambda", (V,), (W,), (V,)), (Load(COUNTS, (ZERO,)),), (Const(1, i32),)),
        "the left of the combiner do not fit its targets",
    ),
    "combiner that sees more": (
        loop(Reduce(Combiner("lambda", (V,), (W,), (L,)), (Load(Buffer("l", i64, ()), ()),), (ONE,))),
        "`l` is used where it is not defined",
    ),
    "allocation in global scope": (Alloc(Buffer("t", f32, (N,))), "`t` is allocated in scope global"),
    "stack of unknown size": (Alloc(Buffer("t", f32, (N,), scope="stack")), "`t` in scope stack has no constant size"),
    "strides": (Alloc(Buffer("t", f32, (N,), (ONE, ONE), "workspace")), "`t` has 2 strides for 1 dimension"),
    "dtype of a view": (View(Buffer("t", i32, (N,)), X, (ZERO,)), "view `t` of f32 is i32"),
    "values of a check": (Check(Lt(ZERO, N), "{0}", (REAL,)), "a value of the message is f32, not i64"),
    "arguments of a call": (Call(INNER, (X,), (N,)), "`inner` takes 2 arguments and 1 dim, not 1 and 1"),
    "written argument": (Call(INNER, (X, X), (N,)), "`x` is an input and cannot be written"),
    "shape of an argument": (Call(INNER, (X, Y), (Add(N, ONE),)), "argument `a` does not fit: n is not n + 1"),
    "read before write": (loop(Reduce(NAMED_COMBINERS["add"], (Load(Y, (L,)),), (REAL,))), "`y` is read before anything is written to it"),
    "race": (loop(store(ZERO), kind="parallel"), "every iteration of the parallel loop `i` writes the same place of `y`"),
    "race of a gpu loop": (loop(store(ZERO), kind="gpu.thread.x"), "every iteration of the gpu.thread.x loop `i` writes the same place of `y`"),
    "race of a call": (loop(Call(INNER, (X, Y), (N,)), kind="parallel"), "every iteration of the parallel loop `i` writes the same place of `y`"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    body, what = BROKEN[name]
    with pytest.raises(InternalError) as caught:
        verify(Func("f", PARAMS, body))
    assert what in caught.value.what
    assert "please report it" in str(caught.value)


HEAD = 'n = dim("n", min=1)\nm = dim("m")\n'

# Right, although a careless verifier would refuse it.
RIGHT = {
    "guarded neighbor": "def f(x: Tensor[f32, n], y: Out[f32, n]):\n for i in range(n):\n  y[i] = x[i + 1] if i + 1 < n else 0.0",
    "guard by an if": "def f(x: Tensor[f32, n], y: Out[f32, n]):\n for i in range(n):\n  y[i] = 0.0\n  if i > 0:\n   y[i] = x[i - 1]",
    "guard by and": "def f(x: InOut[f32, n]):\n for i in range(n):\n  if i + 1 < n and x[i + 1] > 0.0:\n   x[i] = 0.0",
    "guard by a check": "def f(x: Tensor[f32, n], y: Out[f32, m]):\n check(n == m, 'no')\n for i in range(m):\n  y[i] = x[i]",
    "guard by where": (
        "def f(x: Tensor[f32, n], y: Out[f32, n]):\n for i, j in grid((n + 3) // 4, 4):\n"
        "  with block('b', 'S', i * 4 + j) as v:\n   where(v < n)\n   y[v] = x[v]"
    ),
    "clamped": "def f(x: Tensor[f32, n], y: Out[f32, n]):\n for i in range(n):\n  y[i] = x[min(i + 1, n - 1)]",
    "index from data": "def f(k: Tensor[i32, m], x: Tensor[f32, n], y: Out[f32, m]):\n for i in range(m):\n  y[i] = x[k[i]]",
    "bounds from data": "def f(s: Tensor[i64, n], y: Out[f32, m]):\n for i in range(n - 1):\n  for j in range(s[i], s[i + 1]):\n   y[j] = 0.0",
    "index from a scalar": "def f(k: i64, x: InOut[f32, n]):\n x[k] = 0.0",
    "reversed": "def f(x: Tensor[f32, n], y: Out[f32, n]):\n for i in range(n):\n  y[n - 1 - i] = x[i]",
    "strided block": (
        "def f(y: Out[f32, n * 4]):\n for i, j in grid(n, 4):\n  with block('b', 'S', i * 4 + j) as v:\n   y[v] = 0.0"
    ),
    "loops that start later": (
        "def f(y: InOut[f32, n, 8]):\n for i in range(1, n):\n  for j in range(4, 8):\n"
        "   with block('b', 'SS', i, j) as (v, w):\n    y[v, w] = 0.0"
    ),
    "written by one iteration only": "def f(y: InOut[f32, n]):\n for i in parallel(n):\n  if i == 0:\n   y[0] = 1.0",
    "private memory of a parallel loop": (
        "def f(x: Tensor[f32, n, 8], y: Out[f32, n]):\n for i in parallel(n):\n  t = alloc((1,), f32, scope='stack')\n  t[0] = 0.0\n"
        "  for k in range(8):\n   t[0] += x[i, k]\n  y[i] = t[0]"
    ),
    "private memory of a parallel loop in a block": (
        "def f(x: Tensor[f32, n, 8], y: Out[f32, n]):\n for i in parallel(n):\n  t = alloc((1,), f32, scope='stack')\n"
        "  for k in range(8):\n   with block('t', 'SR', i, k) as (vi, vk):\n    with init():\n     t[0] = 0.0\n    t[0] += x[vi, vk]\n"
        "  with block('y', 'S', i) as vi:\n   y[vi] = t[0]"
    ),
    "view that moves with a parallel loop": (
        "def f(y: Out[f32, n, 8]):\n for i in parallel(n):\n  row = view(y[i, 0], (8,))\n  row[0] = 1.0"
    ),
    "scan": (
        "def f(x: Tensor[f32, n], y: Out[f32, n]):\n for i in range(n):\n  with block('y', 'O', i) as v:\n"
        "   y[v] = x[v] + select(v > 0, y[v - 1], 0.0)"
    ),
    "first value in the same loop": (
        "def f(x: Tensor[f32, n, 8], y: Out[f32, n]):\n for i in range(n):\n  for k in range(8):\n   if k == 0:\n    y[i] = 0.0\n   y[i] += x[i, k]"
    ),
    "first value through a view": "def f(y: Out[f32, n]):\n v = view(y, (n,))\n for i in range(n):\n  v[i] = 1.0\n  y[i] += 1.0",
    "reduction into lanes": (
        "def f(x: Tensor[f32, n, 8], y: Out[f32, 8]):\n for j in vector(8):\n  y[j] = 0.0\n for i in range(n):\n  for j in vector(8):\n   y[j] += x[i, j]"
    ),
    "empty loop": "def f(x: Tensor[f32, n], y: InOut[f32, n]):\n for i in range(0):\n  y[i + 5] = 0.0",
    "one name in two loops": "def f(y: InOut[f32, n]):\n for i in range(n):\n  y[i] = 0.0\n for i in range(n):\n  y[i] = 1.0",
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    for func in parse_module(HEAD + RIGHT[name]).values():
        verify(func)


# Wrong, each close to one of the above.
WRONG = {
    "guard that does not help": (
        "def f(x: Tensor[f32, n], y: Out[f32, n]):\n for i in range(n):\n  y[i] = x[i + 1] if i > 0 else 0.0",
        "for n = 2, i = 1: `i + 1` is 2, the extent is 2",
    ),
    "check of something else": (
        "def f(x: Tensor[f32, n], y: Out[f32, m]):\n check(n <= m, 'no')\n for i in range(m):\n  y[i] = x[i]",
        "for n = 3, m = 7, i = 6: `i` is 6, the extent is 3",
    ),
    "where that is too wide": (
        "def f(y: Out[f32, n]):\n for i, j in grid((n + 3) // 4, 4):\n  with block('b', 'S', i * 4 + j) as v:\n   where(v <= n)\n   y[v] = 0.0",
        "`v` is",
    ),
    "through a let": (
        "def f(y: InOut[f32, n]):\n for i in range(n):\n  j = i * 2\n  y[j] = 0.0",
        "for n = 2, i = 1: `j` is 2, the extent is 2",
    ),
    "dims that do not divide": (
        "def f(y: InOut[f32, n]):\n for i, j in grid(n, 2):\n  y[i * 2 + j] = 0.0",
        "for n = 1, i = 0, j = 1: `i * 2 + j` is 1, the extent is 1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    text, fact = WRONG[name]
    with pytest.raises(Error) as caught:
        verify(parse_module(HEAD + text)["f"])
    assert "is out of range" in caught.value.what
    assert fact in caught.value.facts[0]


def test_a_place_may_depend_on_a_parallel_loop_through_the_bounds_of_another() -> None:
    """Each iteration of `c` has a range of `i` of its own."""
    n, c, i = Dim("n"), Var("c"), Var("i")
    y = Buffer("y", f32, (n,))
    inner = For(i, c * 8, c * 8 + 8, "vector", Store(y, (i,), Const(0.0, f32)))
    verify(Func("f", (Param(y, "out"),), For(c, Const(0, i64), n // 8, "parallel", inner)))
