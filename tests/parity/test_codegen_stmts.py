"""Each kind of statement in native code, against numpy or a calculation by hand."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from levels import runnable
from native_loops import Native, run
from pliant.codegen.llvm import generate
from pliant.dtype import dtype, f32, f64, i32, i64, u8
from pliant.loop.attributes import FuncAttrs
from pliant.loop.buffer import Buffer
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
    Seq,
    Stmt,
    Store,
    View,
    While,
)
from pliant.runtime.ctx import Code, Profile
from pliant.support.errors import InternalError, UnsupportedError
from pliant.sym import expr as E
from pliant.sym.expr import Cast, Expr, Fma, Lt, Select, Var, const
from pliant.target import target

LENGTHS = [0, 1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 64, 97]
n, m = Var("n"), Var("m")
i, j, k = Var("i"), Var("j"), Var("k")


def loop(var: Var, stop: Expr | int, body: Stmt, kind: str = "serial", **annotations: Any) -> For:
    return For(var, const(0), stop if isinstance(stop, Expr) else const(stop), kind, body, annotations)


def func(body: Stmt, *params: Buffer | Var, out: tuple[Buffer, ...] = (), name: str = "f", **attrs: Any) -> Func:
    return Func(name, (*(Param(p) for p in params), *(Param(b, "inout") for b in out)), body, FuncAttrs(**attrs))


def vector(name: str, d: str = "f32", size: Expr = n) -> Buffer:
    return Buffer(name, dtype(d), (size,))


def random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


# Vector loops.

a, b, y = vector("a"), vector("b"), vector("y")


@pytest.mark.parametrize("to", runnable("native", "llvm:x86-64-v3", "llvm:x86-64-v2"))
def test_vector_loop_of_any_length(to: str) -> None:
    f = func(loop(i, n, Store(y, (i,), Fma(a.load(i), b.load(i), const(1.0, f32))), "vector"), a, b, out=(y,))
    native = Native(f, to=to)
    for length in LENGTHS:
        x, z, result = random(length), random(length)[::-1].copy(), np.full(length + 8, 7, np.float32)
        assert native.call("f", [x, z, result], [length]) == 0
        np.testing.assert_array_equal(result[:length], (x.astype("f8") * z + 1).astype("f4"))
        assert (result[length:] == 7).all(), "nothing is written after the end"


@pytest.mark.parametrize("length", LENGTHS)
def test_vector_loop_of_constant_length(length: int) -> None:
    f = func(loop(i, length, Store(y, (i,), a.load(i) + b.load(i)), "vector"), a, b, out=(y,))
    x, z, result = random(length), random(length) * 2, np.zeros(length, np.float32)
    run(f, [x, z, result], [length])
    np.testing.assert_array_equal(result, x + z)


@pytest.mark.parametrize("d", ["bool", "i8", "u16", "f16", "bf16", "i64"])
def test_vector_loop_of_other_elements(d: str) -> None:
    p, q = vector("p", d), vector("q", d)
    f = func(loop(i, n, Store(q, (i,), p.load(i)), "vector"), p, out=(q,))
    native = Native(f)
    for length in LENGTHS:
        x = (np.arange(length) % 3 == 1).astype(dtype(d).numpy())
        result = np.zeros(length, x.dtype)
        native.call("f", [x, result], [length])
        np.testing.assert_array_equal(result, x)


@pytest.mark.parametrize("kind", ["serial", "vector"])
def test_strided_and_reversed_lanes(kind: str) -> None:
    wide = Buffer("wide", f32, (n, const(3)))
    for index, expected in (
        (wide.load(i, const(1)), lambda x: x[:, 1]),
        (wide.load(n - 1 - i, const(0)), lambda x: x[::-1, 0]),
        (a.load(n - 1 - i), lambda x: x[::-1, 2]),
    ):
        f = func(loop(i, n, Store(y, (i,), index), kind), wide, a, out=(y,))
        native = Native(f)
        for length in LENGTHS:
            x, result = random(length, 3), np.zeros(length, np.float32)
            native.call("f", [x, x[:, 2].copy(), result], [length])
            np.testing.assert_array_equal(result, expected(x))


def test_backward_store() -> None:
    for extent in (n, const(16)):
        f = func(loop(i, extent, Store(y, (extent - 1 - i,), a.load(i)), "vector"), a, out=(y,))
        x, result = random(16), np.zeros(16, np.float32)
        run(f, [x, result], [16])
        np.testing.assert_array_equal(result, x[::-1])


@pytest.mark.parametrize("index_type", ["i32", "i64", "u8"])
def test_gather_and_scatter(index_type: str) -> None:
    at = vector("at", index_type)
    body = Seq((Store(y, (i,), a.load(Cast(i64, at.load(i)))), Store(b, (Cast(i64, at.load(i)),), a.load(i))))
    native = Native(func(loop(i, n, body, "vector"), a, at, out=(y, b)))
    for length in LENGTHS:
        order = np.random.default_rng(length).permutation(length).astype(dtype(index_type).numpy())
        x, gathered, scattered = random(length), np.zeros(length, np.float32), np.zeros(length, np.float32)
        native.call("f", [x, order, gathered, scattered], [length])
        np.testing.assert_array_equal(gathered, x[order])
        np.testing.assert_array_equal(scattered[order], x)


@pytest.mark.parametrize("kind", ["serial", "vector"])
def test_select_does_not_read_the_other_arm(kind: str) -> None:
    """Elements before the first and after the last are far outside of the memory."""
    inside = E.And(E.Le(const(0), i - 100000), Lt(i - 100000, m))
    small = Buffer("a", f32, (m,))
    e = Select(inside, small.load(i - 100000), const(-1.0, f32))
    x, result = random(5), np.zeros(200000, np.float32)
    run(func(loop(i, n, Store(y, (i,), e), kind), small, out=(y,)), [x, result], [5, 200000])
    expected = np.full(200000, -1, np.float32)
    expected[100000:100005] = x
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", ["serial", "vector"])
def test_logic_reads_its_right_side_only_if_needed(kind: str) -> None:
    flags, out = vector("flags", "bool", m), vector("out", "bool")
    both = E.And(Lt(i, m), flags.load(i * 1000000))
    either = E.Or(E.Le(m, i), flags.load(i * 1000000))
    for e, expected in ((both, [True, False, False]), (either, [True, True, True])):
        result = np.zeros(3, np.bool_)
        run(func(loop(i, n, Store(out, (i,), e), kind), flags, out=(out,)), [np.array([True]), result], [1, 3])
        assert list(result) == expected


def test_if_inside_of_lanes() -> None:
    body = If(Lt(const(0.0, f32), a.load(i)), Store(y, (i,), a.load(i)), If(Lt(i, const(5)), Store(y, (i,), const(9.0, f32))))
    native = Native(func(loop(i, n, body, "vector"), a, out=(y,)))
    for length in LENGTHS:
        x, result = random(length), np.full(length, 7, np.float32)
        native.call("f", [x, result], [length])
        np.testing.assert_array_equal(result, np.where(x > 0, x, np.where(np.arange(length) < 5, 9, 7)))


def test_loop_and_lets_inside_of_lanes() -> None:
    w = Buffer("w", f32, (m, n))
    t = Var("t", f32)
    inner = loop(k, m, Seq((Let(t, w.load(k, j)), Reduce(NAMED_COMBINERS["add"], (y.load(j),), (t * t,)))))
    f = func(loop(j, n, Seq((Store(y, (j,), const(0.0, f32)), inner)), "vector"), w, out=(y,))
    x, result = random(4, 19), np.zeros(19, np.float32)
    run(f, [x, result], [4, 19])
    expected = np.zeros(19, np.float32)
    for row in x:
        expected += row * row
    np.testing.assert_array_equal(result, expected)


def test_lanes_that_meet_are_serial() -> None:
    """All lanes add to one element: in order, as the serial loop does."""
    one = Buffer("one", f32, (const(1),))
    f = func(loop(i, n, Reduce(NAMED_COMBINERS["add"], (one.load(const(0)),), (a.load(i),)), "vector"), a, out=(one,))
    x, result = random(1000), np.zeros(1, np.float32)
    run(f, [x, result], [1000])
    expected = np.float32(0)
    for v in x:
        expected += v
    assert result[0] == expected


def test_register_tile() -> None:
    rows, columns = 3, 12
    p, q, c = Buffer("p", f32, (const(rows), n)), Buffer("q", f32, (n, const(columns))), Buffer("c", f32, (const(rows), const(columns)))
    acc = Buffer("acc", f32, (const(rows), const(columns)), scope="register")
    ii, jj = Var("ii"), Var("jj")
    body = Seq(
        (
            Alloc(acc),
            loop(i, rows, loop(j, columns, Store(acc, (i, j), const(0.0, f32)), "vector"), "unroll"),
            loop(
                k,
                n,
                loop(i, rows, loop(j, columns, Store(acc, (i, j), Fma(p.load(i, k), q.load(k, j), acc.load(i, j))), "vector"), "unroll"),
            ),
            loop(ii, rows, loop(jj, columns, Store(c, (ii, jj), acc.load(ii, jj)), "unroll"), "unroll"),
        )
    )
    x, w = random(rows, 20), random(20, columns) * 3
    result = np.zeros((rows, columns), np.float32)
    run(func(body, p, q, out=(c,)), [x, w, result], [20])
    expected = np.zeros((rows, columns), np.float64)
    for step in range(20):
        expected = (x[:, step, None].astype("f8") * w[step] + expected).astype("f4").astype("f8")
    np.testing.assert_array_equal(result, expected.astype("f4"))


def test_register_buffers_need_constant_indices() -> None:
    acc = Buffer("acc", f32, (const(4),), scope="register")
    body = Seq((Alloc(acc), loop(k, 4, Store(acc, (k,), const(0.0, f32)))))
    with pytest.raises(UnsupportedError, match=r"register buffer `acc` is indexed by `k`") as error:
        generate([func(body, out=(y,))], target("native"))
    assert "unroll" in error.value.help


def test_unrolling_too_much_is_refused() -> None:
    body = loop(i, 100, loop(j, 100, Store(y, (i + j,), const(0.0, f32)), "unroll"), "unroll")
    with pytest.raises(UnsupportedError, match="unrolling loop `j` gives 10000 copies"):
        generate([func(body, out=(y,))], target("native"))
    with pytest.raises(UnsupportedError, match="its extent `n` is no constant"):
        generate([func(loop(i, n, Store(y, (i,), const(0.0, f32)), "unroll"), out=(y,))], target("native"))


@pytest.mark.parametrize("kind", ["serial", "vector"])
def test_deep_expressions(kind: str) -> None:
    """A sum of a thousand loads, one inside of the other."""
    wide = Buffer("wide", f32, (n, const(3)))
    e: Expr = wide.load(i, const(0))
    for term in range(1, 1000):
        e = E.Add(e, wide.load(i, const(term % 3))) if term % 2 else E.Mul(const(0.5, f32), e)
    x, result = random(11, 3), np.zeros(11, np.float32)
    run(func(loop(i, n, Store(y, (i,), e), kind), wide, out=(y,)), [x, result], [11])
    expected = x[:, 0].copy()
    for term in range(1, 1000):
        expected = expected + x[:, term % 3] if term % 2 else expected * np.float32(0.5)
    np.testing.assert_array_equal(result, expected)


# Blocks, reductions.


def test_empty_reduction_gives_what_init_says() -> None:
    x = Buffer("x", f32, (n, m))
    vi, vk = Var("vi"), Var("vk")

    def sum_block() -> Block:
        init = Store(y, (vi,), const(5.0, f32))
        add = Reduce(NAMED_COMBINERS["add"], (y.load(vi),), (x.load(vi, vk),))
        return Block("sum", (Iter(vi, "S", i), Iter(vk, "R", k)), add, init)

    for body in (loop(i, n, loop(k, m, sum_block())), loop(k, m, loop(i, n, sum_block()))):
        native = Native(func(body, x, out=(y,)))
        for columns in (0, 1, 4):
            data, result = np.ones((3, columns), np.float32), np.full(3, 99, np.float32)
            native.call("f", [data, result], [3, columns])
            np.testing.assert_array_equal(result, [5 + columns] * 3)


def test_argmax_by_a_combiner_of_pairs() -> None:
    best, where = Buffer("best", f32, (const(1),)), Buffer("where", i64, (const(1),))
    l0, l1, r0, r1 = Var("l0", f32), Var("l1"), Var("r0", f32), Var("r1")
    better = E.Or(Lt(r0, l0), E.And(E.Eq(r0, l0), Lt(l1, r1)))
    combiner = Combiner("argmax", (l0, l1), (r0, r1), (Select(better, l0, r0), Select(better, l1, r1)))
    zero = const(0)
    body = Seq(
        (
            Store(best, (zero,), const(-np.inf, f32)),
            Store(where, (zero,), const(-1)),
            loop(i, n, Reduce(combiner, (best.load(zero), where.load(zero)), (a.load(i), i))),
        )
    )
    x, top, at = random(50), np.zeros(1, np.float32), np.zeros(1, np.int64)
    run(func(body, a, out=(best, where)), [x, top, at], [50])
    assert (top[0], at[0]) == (x.max(), x.argmax())


# While, views, stack, scalars.


def test_while_and_stack() -> None:
    """Collatz steps of a number, counted in memory of the frame."""
    state, result = Buffer("state", i64, (const(2),), scope="stack"), Buffer("result", i64, (const(1),))
    start = Var("start", i32)
    zero, one = const(0), const(1)
    value = state.load(zero)
    step = Select(E.Eq(value % 2, const(0)), value // 2, value * 3 + 1)
    body = Seq(
        (
            Alloc(state),
            Store(state, (zero,), Cast(i64, start)),
            Store(state, (one,), zero),
            While(E.Ne(value, one), Seq((Store(state, (zero,), step), Store(state, (one,), state.load(one) + 1)))),
            Store(result, (zero,), state.load(one)),
        )
    )
    out = np.zeros(1, np.int64)
    run(func(body, start, out=(result,)), [np.int32(27), out])
    assert out[0] == 111


def test_scalars_of_every_kind() -> None:
    names = ["bool", "i8", "u8", "i32", "i64", "u64", "f16", "f32", "f64"]
    scalars = [Var(f"s_{d}", dtype(d)) for d in names]
    outs = tuple(Buffer(f"o_{d}", dtype(d), (const(1),)) for d in names)
    body = Seq(tuple(Store(o, (const(0),), s) for o, s in zip(outs, scalars, strict=True)))
    values = [True, -7, 250, -(2**31), -(2**63), 2**63 - 1, 0.333, 0.1, 0.1]
    given = [np.array(v, dtype(d).numpy())[()] for v, d in zip(values, names, strict=True)]
    results = [np.zeros(1, dtype(d).numpy()) for d in names]
    run(func(body, *scalars, out=outs), [*given, *results])
    assert [r[0] for r in results] == given


def test_views_of_bytes() -> None:
    raw, part = Buffer("raw", u8, (n,)), Buffer("part", f32, (const(4),))
    body = Seq((View(part, raw, (const(64),)), loop(i, 4, Store(part, (i,), Cast(f32, i)), "vector")))
    data = np.zeros(128, np.uint8)
    run(func(body, out=(raw,)), [data], [128])
    np.testing.assert_array_equal(data[64:80].view(np.float32), [0, 1, 2, 3])
    assert not data[:64].any() and not data[80:].any()


# Parallel loops.


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("grain", [1, 7, 1000, None])
def test_parallel_loop(threads: int, grain: int | None) -> None:
    x, result = Buffer("x", f32, (n, m)), Buffer("result", f32, (n,))
    own = Buffer("own", f32, (const(1),), scope="stack")
    factor = Var("factor", f64)
    zero = const(0)
    body = Seq(
        (
            Alloc(own),
            Store(own, (zero,), const(0.0, f32)),
            loop(k, m, Reduce(NAMED_COMBINERS["add"], (own.load(zero),), (x.load(i, k),)), "parallel"),
            Store(result, (i,), own.load(zero) * Cast(f32, factor)),
        )
    )
    f = func(For(i, const(2), n, "parallel", body, {} if grain is None else {"grain": grain}), x, factor, out=(result,))
    native = Native(f)
    for rows in (0, 1, 2, 3, 50, 333):
        data, out = random(rows, 9), np.full(rows, 7, np.float32)
        assert native.call("f", [data, 0.5, out], [rows, 9], threads=threads) == 0
        expected = np.zeros(rows, np.float32)
        for column in data.T:
            expected = expected + column
        expected = expected * np.float32(0.5)
        expected[:2] = 7
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_failure_inside_of_a_parallel_loop(threads: int) -> None:
    body = Seq((Check(E.Ne(i, const(40)), "iteration {0}", (i, n)), Store(y, (i,), const(1.0, f32))))
    native = Native(func(loop(i, n, body, "parallel", grain=4), out=(y,)))
    assert native.call("f", [np.zeros(100, np.float32)], [100], threads=threads) == Code.CHECK
    assert list(native.ctx.error)[:4] == [Code.CHECK, 0, 40, 100]
    assert native.call("f", [np.zeros(30, np.float32)], [30], threads=threads) == 0


# Calls, checks, cancel, host programs.


def copy_func() -> Func:
    p, q, size = vector("p"), vector("q"), Var("scale", f32)
    return func(loop(i, n, Store(q, (i,), p.load(i) * size)), p, size, out=(q,), name="copy")


def test_call_passes_buffers_symbols_and_scalars() -> None:
    f = func(Seq((Call(copy_func(), (a, const(2.0, f32), y), (n,)), Call(copy_func(), (y, const(3.0, f32), b), (n,)))), a, out=(y, b))
    x, first, second = random(9), np.zeros(9, np.float32), np.zeros(9, np.float32)
    run(f, [x, first, second], [9])
    np.testing.assert_array_equal(second, x * 2 * np.float32(3))


def test_call_answers_the_failure_of_its_callee() -> None:
    check = Check(Lt(n, const(10)), "{0} is too much", (n,), kind="shape")
    callee = func(Seq((check, Store(y, (const(0),), const(1.0, f32)))), out=(y,), name="callee")
    outer = func(Seq((Call(callee, (y,), (n,)), Store(y, (const(1),), const(2.0, f32)))), out=(y,))
    native = Native(outer)
    data = np.zeros(20, np.float32)
    assert native.call("f", [data], [20]) == Code.CHECK
    assert native.module.sites[native.ctx.error[1]] is check
    assert native.ctx.error[2] == 20 and not data.any()
    assert native.call("f", [data[:5].copy()], [5]) == 0


def test_sites_are_numbered_in_order() -> None:
    checks = [Check(E.Ne(n, const(v)), f"not {v}") for v in (3, 5, 8)]
    native = Native(func(Seq((*checks, Store(y, (const(0),), const(1.0, f32)))), out=(y,)))
    for site, value in enumerate((3, 5, 8)):
        assert native.call("f", [np.zeros(8, np.float32)], [value]) == Code.CHECK
        assert native.ctx.error[1] == site
        assert native.module.sites[site].message == f"not {value}"


def test_cancel_stops_an_outer_loop() -> None:
    x = Buffer("x", f32, (n, m))
    native = Native(func(loop(i, n, loop(j, m, Store(x, (i, j), const(1.0, f32)))), out=(x,)))
    data = np.zeros((4, 4), np.float32)
    native.cancel.value = 1
    assert native.call("f", [data], [4, 4]) == Code.CANCELLED
    assert native.ctx.error[0] == Code.CANCELLED and not data.any()
    native.cancel.value = 0
    assert native.call("f", [data], [4, 4]) == 0 and data.all()


def test_cancel_is_seen_inside_of_a_chunk() -> None:
    """A parallel loop of one iteration, with loops in it that would not end soon."""
    x = Buffer("x", f32, (n, m))
    inner = loop(j, m, loop(k, m, Store(x, (i, k), const(1.0, f32))))
    native = Native(func(loop(i, n, loop(Var("r"), m, inner), "parallel"), out=(x,)))
    data = np.zeros((1, 4), np.float32)
    native.cancel.value = 1
    assert native.call("f", [data], [1, 4]) == Code.CANCELLED and not data.any()


def host_program() -> Func:
    """y = a * 6 by two launches, through the workspace."""
    work = Buffer("work", u8, (n * 4,), scope="workspace")
    part = Buffer("part", f32, (n,), scope="workspace")
    body = Seq(
        (
            Alloc(work),
            View(part, work, (const(0),)),
            Call(copy_func(), (a, const(2.0, f32), part), (n,)),
            Call(copy_func(), (part, const(3.0, f32), y), (n,)),
        )
    )
    return func(body, a, out=(y,), name="run", host=True)


def test_host_program_uses_the_workspace() -> None:
    native = Native(host_program())
    x, result = random(11), np.zeros(11, np.float32)
    assert native.call("run", [x, result], [11], workspace=44) == 0
    np.testing.assert_array_equal(result, x * 2 * np.float32(3))
    assert native.call("run", [x, result], [11], workspace=43) == Code.NO_MEMORY
    native.cancel.value = 1
    assert native.call("run", [x, result], [11], workspace=44) == Code.CANCELLED


def test_profile_hook_sees_each_launch() -> None:
    native = Native(host_program())
    assert native.module.kernels == ("copy",)
    events: list[tuple[int, int]] = []
    hook = Profile(lambda ctx, kernel, phase: events.append((kernel, phase)))
    native.profile = ctypes.cast(hook, ctypes.c_void_p).value
    native.call("run", [random(3), np.zeros(3, np.float32)], [3], workspace=64)
    assert events == [(0, 0), (0, 1)] * 2


def test_workspace_elsewhere_is_a_defect() -> None:
    t = Buffer("t", f32, (n,), scope="workspace")
    with pytest.raises(InternalError, match="workspace buffer `t` was not lifted"):
        generate([func(Seq((Alloc(t), Store(y, (const(0),), const(0.0, f32)))), out=(y,))], target("native"))


def test_bool_memory_is_a_byte() -> None:
    flags, out = vector("flags", "bool"), vector("out", "bool")
    f = func(loop(i, n, Store(out, (i,), E.Not(flags.load(i))), "vector"), flags, out=(out,))
    given = np.array([0, 1, 1, 0, 1], np.bool_)
    result = np.zeros(5, np.bool_)
    run(f, [given, result], [5])
    assert list(result.view(np.uint8)) == [1, 0, 0, 1, 0]
