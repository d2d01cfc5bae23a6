"""The interpreter of loop programs, statement by statement, against numpy and hand calculation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pliant.dtype import ALL, f32, i64, u8
from pliant.interp.loop import run_loop
from pliant.interp.memory import allocate
from pliant.loop.buffer import Buffer
from pliant.loop.parse import parse_module
from pliant.loop.stmt import Alloc, Block, For, Func, If, Iter, Let, Param, Store, View, seq
from pliant.support.errors import Error, ShapeError
from pliant.sym import expr as E
from pliant.sym.expr import Const, Dim, Var

HEAD = """
from pliant import *
n = dim("n")
m = dim("m")
"""
MODES: list[dict[str, Any]] = [{}, {"lanes": False}, {"order": "shuffled", "seed": 3}]
each_mode = pytest.mark.parametrize("mode", MODES, ids=["lanes", "serial", "shuffled"])


def program(text: str, name: str = "f") -> Func:
    """The kernel `name` of a text."""
    return parse_module(HEAD + text)[name]


def constant(value: int) -> Const:
    return Const(value, i64)


# Reductions and their inits.

SUM = """
@kernel
def f(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    for {order} in grid({extents}):
        with block("y", "SR", i, j) as (vi, vj):
            with init():
                y[vi] = 10.0
            y[vi] += x[vi, vj]
"""


@each_mode
@pytest.mark.parametrize(("order", "extents"), [("i, j", "n, m"), ("j, i", "m, n")])
@pytest.mark.parametrize("shape", [(3, 4), (3, 0), (0, 4), (1, 1)])
def test_init_runs_once_for_each_output_also_when_the_sum_is_empty(order: str, extents: str, shape: tuple[int, int], mode: Any) -> None:
    func = program(SUM.format(order=order, extents=extents))
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    y = np.empty(shape[0], np.float32)
    run_loop(func, [x, y], **mode)
    assert y.tolist() == (10 + x.sum(1)).tolist()


def test_the_order_of_a_sum_is_the_order_of_the_loop() -> None:
    x = np.array([[1e8, 1.0, -1e8, 1.0]], np.float32)
    y = np.empty(1, np.float32)
    run_loop(program(SUM.format(order="i, j", extents="n, m").replace("10.0", "0.0")), [x, y])
    assert y[0] == 1.0  # ((1e8 + 1) - 1e8) + 1 where 1e8 + 1 rounds to 1e8


@each_mode
@pytest.mark.parametrize(("rows", "columns"), [(5, 7), (4, 8), (1, 1)])
def test_predicates_guard_instances_and_inits(rows: int, columns: int, mode: Any) -> None:
    func = program("""
@kernel
def f(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    for io in range((n + 3) // 4):
        for jo in range((m + 1) // 2):
            for ii in range(4):
                for ji in range(2):
                    with block("y", "SR", io * 4 + ii, jo * 2 + ji) as (vi, vj):
                        where(vi < n and vj < m)
                        with init():
                            y[vi] = 0.0
                        y[vi] += x[vi, vj]
""")
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    y = np.empty(rows, np.float32)
    run_loop(func, [x, y], **mode)
    assert y.tolist() == x.sum(1).tolist()


@each_mode
def test_an_init_in_the_instance_where_one_loop_feeds_both(mode: Any) -> None:
    func = program("""
@kernel
def f(x: Tensor[f32, n, 3], y: Out[f32, n]) -> None:
    for g in range(n * 3):
        with block("y", "SR", g // 3, g % 3) as (vi, vj):
            with init():
                y[vi] = 1.0
            y[vi] += x[vi, vj]
""")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    y = np.empty(4, np.float32)
    run_loop(func, [x, y], **mode)
    assert y.tolist() == (1 + x.sum(1)).tolist()


@each_mode
def test_a_lambda_reduces_tuples(mode: Any) -> None:
    func = program("""
@kernel
def f(x: Tensor[f32, n, m], best: Out[f32, n], at: Out[i64, n]) -> None:
    for i, j in grid(n, m):
        with block("best", "SR", i, j) as (vi, vj):
            with init():
                best[vi] = -inf
                at[vi] = -1
            best[vi], at[vi] = combine(
                lambda a, c, b, d: (select(a < b, b, a), select(a < b, d, c)), (best[vi], at[vi]), (x[vi, vj], vj)
            )
""")
    x = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    best, at = np.empty(5, np.float32), np.empty(5, np.int64)
    run_loop(func, [x, best, at], **mode)
    assert best.tolist() == x.max(1).tolist()
    assert at.tolist() == x.argmax(1).tolist()


# Other statements.


@each_mode
def test_while_let_if_and_register_memory(mode: Any) -> None:
    func = program("""
@kernel
def f(x: Tensor[i64, n], y: Out[i64, n]) -> None:
    for i in parallel(n):
        a = alloc((2,), i64, scope="register")
        a[0] = x[i]
        a[1] = 0
        while a[0] != 1 and a[1] < 1000:
            half = a[0] // 2
            if a[0] % 2 == 0:
                a[0] = half
            else:
                a[0] = a[0] * 3 + 1
            a[1] += 1
        y[i] = a[1]
""")
    x = np.array([1, 2, 7, 27, 97], np.int64)
    y = np.empty(5, np.int64)
    run_loop(func, [x, y], **mode)
    assert y.tolist() == [0, 1, 16, 111, 118]  # lengths of Collatz sequences


@each_mode
def test_loop_bounds_that_differ_between_iterations(mode: Any) -> None:
    func = program("""
@kernel
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in parallel(n):
        a = alloc((1,), f32, scope="stack")
        a[0] = 0.0
        for j in range(i, n):
            a[0] += x[j]
        y[i] = a[0]
""")
    x = np.arange(6, dtype=np.float32)
    y = np.empty(6, np.float32)
    run_loop(func, [x, y], **mode)
    assert y.tolist() == [15, 15, 14, 12, 9, 5]


@each_mode
def test_an_ordered_block_reads_what_it_wrote(mode: Any) -> None:
    func = program("""
@kernel
def f(x: Tensor[i32, n, m], y: Out[i32, n, m]) -> None:
    for i, j in grid(n, m):
        with block("y", "SO", i, j) as (vi, vj):
            y[vi, vj] = x[vi, vj] + select(vj > 0, y[vi, vj - 1], 0)
""")
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    y = np.empty_like(x)
    run_loop(func, [x, y], **mode)
    assert y.tolist() == x.cumsum(1).tolist()


@each_mode
def test_calls_pass_buffers_scalars_and_dims(mode: Any) -> None:
    func = program("""
@kernel
def scale(x: Tensor[f32, m], y: Out[f32, m], by: f32) -> None:
    for i in range(m):
        y[i] = x[i] * by

@kernel
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    t = alloc((n,), f32)
    scale(x, t, 2.0)
    scale(t, y, 3.0)
""")
    x = np.arange(5, dtype=np.float32)
    y = np.empty(5, np.float32)
    run_loop(func, [x, y], **mode)
    assert y.tolist() == (6 * x).tolist()


def test_a_view_of_bytes_at_an_odd_place() -> None:
    n = Dim("n")
    raw = Buffer("raw", u8, (n,))
    inside = Buffer("inside", f32, (constant(2),), (constant(2),))
    y = Buffer("y", f32, (constant(2),))
    i = Var("i")
    body = seq(View(inside, raw, (constant(3),)), For(i, constant(0), constant(2), "serial", Store(y, (i,), inside.load(i))))
    func = Func("f", (Param(raw), Param(y, "out")), body)
    data = np.zeros(24, np.uint8)
    data[3:15] = np.frombuffer(np.array([1.5, 9.0, -2.5], np.float32).tobytes(), np.uint8)
    out = np.empty(2, np.float32)
    run_loop(func, [data, out])
    assert out.tolist() == [1.5, -2.5]
    with pytest.raises(Error, match="view `inside` leaves the memory of `raw`"):
        run_loop(func, [data[:12], out])


def test_parameters_with_strides() -> None:
    n, s = Dim("n"), Var("s")
    x = Buffer("x", f32, (n,), (s,))
    y = Buffer("y", f32, (n,))
    i = Var("i")
    func = Func("f", (Param(x), Param(y, "out")), For(i, constant(0), n, "serial", Store(y, (i,), x.load(i))))
    data = np.arange(10, dtype=np.float32)
    for part in (data[::3], data[::-2]):
        out = np.empty(len(part), np.float32)
        run_loop(func, [part, out])
        assert out.tolist() == part.tolist()


@pytest.mark.parametrize("name", ["i4", "u4", "i2", "u2", "f4e2m1", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0"])
@pytest.mark.parametrize("lanes", [True, False])
def test_storage_types_are_widened_on_load_and_packed_on_store(name: str, lanes: bool) -> None:
    dtype = ALL[name]
    count = 16
    x, z = Buffer("x", dtype, (constant(count),)), Buffer("z", dtype, (constant(count),))
    y = Buffer("y", x.load(constant(0)).dtype, (constant(count),))
    i, v = Var("i"), Var("v")
    body = seq(Store(y, (v,), x.load(v)), Store(z, (v,), x.load(v)))
    func = Func(
        "f",
        (Param(x), Param(y, "out"), Param(z, "out")),
        For(i, constant(0), constant(count), "serial", Block("y", (Iter(v, "S", i),), body)),
    )
    packed = np.random.default_rng(1).integers(0, 256, count * dtype.bits // 8).astype(np.uint8)
    if name == "f8e5m2":
        packed &= 0x7B  # no NaN or infinity: their payload may change on the way
    elif name == "f8e4m3fn":
        packed &= 0x77
    elif name.endswith("fnuz") or name == "f8e8m0":
        packed &= 0x7F
    y_, z_ = np.empty(count, y.dtype.numpy()), np.zeros_like(packed)
    run_loop(func, [packed, y_, z_], lanes=lanes)
    if dtype.bits < 8:
        codes = np.array([(int(b) >> s) & ((1 << dtype.bits) - 1) for b in packed for s in range(0, 8, dtype.bits)], np.uint8)
    else:
        codes = packed
    ml = getattr(ml_dtypes, dtype.long_name)
    expected = codes.view(ml).astype(np.float32) if dtype.is_float else widened(codes, dtype)
    assert y_.tolist() == expected.tolist()
    assert z_.tolist() == packed.tolist()


def widened(codes: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """Codes as signed or unsigned numbers."""
    values = codes.astype(np.int64)
    return np.where(values >> (dtype.bits - 1), values - (1 << dtype.bits), values) if dtype.kind == "i" else values


# Memory.


def test_undefined_memory_reads_as_poison() -> None:
    func = program("""
@kernel
def f(x: Tensor[f32, n], y: Out[f32, n], z: Out[i32, n]) -> None:
    t = alloc((n,), f32)
    u = alloc((n,), i32)
    for i in range(n):
        if i == 0:
            t[i] = x[i]
            u[i] = 1
    for i in range(n):
        y[i] = t[i]
        z[i] = u[i]
""")
    y, z = np.zeros(2, np.float32), np.zeros(2, np.int32)
    run_loop(func, [np.ones(2, np.float32), y, z])
    assert y[0] == 1 and np.isnan(y[1])
    assert z.tolist() == [1, np.frombuffer(b"\xab" * 4, np.int32)[0]]


def test_outputs_are_undefined_on_entry() -> None:
    func = program("""
@kernel
def f(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        if x[i] > 0.0:
            y[i] = 1.0
""")
    y = np.zeros(2, np.float32)
    run_loop(func, [np.array([1.0, -1.0], np.float32), y])
    assert y[0] == 1 and np.isnan(y[1])


def test_allocations_have_scope_sizes_and_poison() -> None:
    memory = allocate("t", ALL["u4"], (3,))
    memory.array[1] = 9
    assert int(memory.array[1]) == 9
    assert memory.raw.size == 2


@pytest.mark.parametrize("lanes", [True, False])
def test_an_index_out_of_range_is_named(lanes: bool) -> None:
    func = program("""
@kernel
def f(x: Tensor[f32, n], y: Out[f32, n, 2]) -> None:
    for i in range(n):
        with block("y", "S", i) as vi:
            y[vi, 0] = x[vi]
            y[vi, 1] = x[vi + 1]
""")
    with pytest.raises(Error) as caught:
        run_loop(func, [np.zeros(3, np.float32), np.zeros((3, 2), np.float32)], lanes=lanes)
    assert caught.value.what == "index [3] is outside of `x`, which has shape [3]"
    assert caught.value.where is not None and "x[vi + 1]" in caught.value.where.text
    assert caught.value.facts == ["index 0 is 3, and dim 0 has 3 elements"]


def test_negative_indices_are_out_of_range() -> None:
    func = program("@kernel\ndef f(x: Tensor[f32, n], y: Out[f32, n]) -> None:\n    for i in range(n):\n        y[i - 1] = x[i]\n")
    with pytest.raises(Error, match=r"index \[-1\] is outside of `y`"):
        run_loop(func, [np.zeros(3, np.float32), np.zeros(3, np.float32)])


@each_mode
def test_an_arm_that_is_not_taken_is_not_read(mode: Any) -> None:
    func = program("""
@kernel
def f(x: Tensor[f32, n], y: Out[f32, m], z: Out[bool_, m]) -> None:
    for i in parallel(m):
        y[i] = select(i < n, x[i], -1.0)
        z[i] = i < n and x[i] > 0.0 or i >= n
""")
    y, z = np.empty(5, np.float32), np.empty(5, bool)
    run_loop(func, [np.ones(3, np.float32), y, z], **mode)
    assert y.tolist() == [1, 1, 1, -1, -1]
    assert z.all()
    run_loop(func, [np.ones(0, np.float32), y, z], **mode)
    assert y.tolist() == [-1] * 5


def test_lanes_that_write_one_element_are_run_in_order() -> None:
    func = program("""
@kernel
def f(x: Tensor[i64, n], y: InOut[i64, 4], z: InOut[i64, 1]) -> None:
    for i in vector(n):
        y[x[i] % 4] += 1
    for i in vector(n):
        z[0] += x[i]
""")
    x = np.array([0, 1, 1, 5, 7, 3, 2, 2], np.int64)
    y, z = np.zeros(4, np.int64), np.zeros(1, np.int64)
    run_loop(func, [x, y, z])
    assert y.tolist() == [1, 3, 2, 2]
    assert z[0] == x.sum()


def test_lanes_with_memory_of_their_own_are_run_in_order_too() -> None:
    func = program("""
@kernel
def f(x: Tensor[i64, n], y: InOut[i64, 4]) -> None:
    for i in vector(n):
        a = alloc((2,), i64, scope="stack")
        a[i % 2] = x[i]
        y[a[i % 2] % 4] += a[i % 2]
""")
    x = np.array([0, 1, 1, 5, 7, 3, 2, 2], np.int64)
    y = np.zeros(4, np.int64)
    run_loop(func, [x, y])
    assert y.tolist() == [0, 7, 4, 10]


def test_a_let_keeps_the_value_that_memory_had() -> None:
    func = program("""
@kernel
def f(x: InOut[f32, n], y: InOut[f32, n]) -> None:
    for i in parallel(n):
        t = x[i]
        x[i] = y[i]
        y[i] = t
""")
    x, y = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    run_loop(func, [x, y])
    assert (x.tolist(), y.tolist()) == ([3, 4], [1, 2])


def test_a_condition_is_read_before_the_branches_change_it() -> None:
    func = program("""
@kernel
def f(done: InOut[bool_, n], stop: InOut[i64, n], y: InOut[i64, n]) -> None:
    for i in parallel(n):
        if done[i]:
            done[i] = False
            y[i] += 1
        else:
            y[i] += 10
        for k in range(0, stop[i]):
            stop[i] = 0
            y[i] += 100
""")
    done, stop, y = np.array([True, False, True]), np.array([1, 3, 0], np.int64), np.zeros(3, np.int64)
    for lanes in (True, False):
        mine = [done.copy(), stop.copy(), y.copy()]
        run_loop(func, mine, lanes=lanes)
        assert mine[2].tolist() == [101, 310, 1]


def test_shuffled_order_shows_a_loop_that_is_not_parallel() -> None:
    i = Var("i")
    x = Buffer("x", i64, (Dim("n"),))
    body = If(E.Lt(constant(0), i), Store(x, (i,), x.load(i - 1) + 1))
    func = Func("f", (Param(x, "inout"),), For(i, constant(0), x.shape[0], "parallel", body))
    serial, shuffled = np.zeros(50, np.int64), np.zeros(50, np.int64)
    run_loop(func, [serial], lanes=False)
    run_loop(func, [shuffled], order="shuffled", seed=1)
    assert serial.tolist() == list(range(50))
    assert shuffled.tolist() != serial.tolist()


def test_i64_arithmetic_wraps() -> None:
    v, i = Var("v"), Var("i")
    x, y = Buffer("x", i64, (constant(1),)), Buffer("y", i64, (constant(3),))
    a = x.load(constant(0))
    values = (E.Add(v, v), E.Mul(E.Mul(v, v), v), E.Neg(E.Sub(v, constant(1))))
    body = seq(Let(v, a), *(Store(y, (constant(n),), e) for n, e in enumerate(values)))
    func = Func("f", (Param(x), Param(y, "out")), For(i, constant(0), constant(1), "serial", body))
    big, out = np.array([2**62 + 12345], np.int64), np.empty(3, np.int64)
    run_loop(func, [big, out])
    with np.errstate(all="ignore"):
        assert out.tolist() == [int((big + big)[0]), int((big * big * big)[0]), int((1 - big)[0])]


# What a program is called with.

COPY = "@kernel\ndef f(x: Tensor[f32, n, n * 2], y: Out[f32, n]) -> None:\n    for i in range(n):\n        y[i] = x[i, i]\n"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([np.zeros((2, 4), np.float32)], "`f` takes 2 arguments, 1 given"),
        ([np.zeros((2, 4), np.float64), np.zeros(2, np.float32)], "`x` is of dtype float64 where f32 is expected"),
        ([np.zeros((2, 5), np.float32), np.zeros(2, np.float32)], r"`x` has shape \[2, 5\] where \[n, n \* 2\] is expected"),
        ([np.zeros((2, 4), np.float32), np.zeros(3, np.float32)], r"`y` has shape \[3\] where \[n\] is expected"),
        ([np.zeros(8, np.float32), np.zeros(2, np.float32)], r"`x` has 1 dim where \[n, n \* 2\] is expected"),
        ([np.zeros((4, 2), np.float32).T, np.zeros(2, np.float32)], r"`x` has strides \[1, 2\] where \[4, 1\] are expected"),
        ([[1.0], np.zeros(2, np.float32)], "`x` must be a numpy array, not list"),
    ],
)
def test_arguments_that_do_not_fit(arguments: list[Any], what: str) -> None:
    with pytest.raises(ShapeError, match=what):
        run_loop(program(COPY), arguments)


def test_dims_are_found_from_formulas() -> None:
    func = program("@kernel\ndef f(x: Tensor[f32, n * 2 + 1], y: Out[i64]) -> None:\n    y[()] = n\n")
    y = np.empty((), np.int64)
    run_loop(func, [np.zeros(7, np.float32), y])
    assert y == 3
    with pytest.raises(ShapeError, match="dim `n` of `f` cannot be found"):
        run_loop(func, [np.zeros(6, np.float32), y])


def test_a_dim_outside_of_its_contract() -> None:
    n = Dim("n", min=1, max=8, multiple_of=2)
    x = Buffer("x", f32, (n,))
    func = Func("f", (Param(x, "inout"),), seq(Alloc(Buffer("t", f32, (n,)))))
    with pytest.raises(ShapeError) as caught:
        run_loop(func, [np.zeros(3, np.float32)])
    assert caught.value.facts == ["contract: n in 1..8 step 2"]


@each_mode
def test_a_check_fails_with_its_message(mode: Any) -> None:
    func = program("""
@kernel
def f(x: Tensor[i64, n], y: Out[i64, n]) -> None:
    for i in parallel(n):
        check(x[i] < 10, "entry {0} is {1}", i, x[i])
        y[i] = x[i]
""")
    run_loop(func, [np.array([1, 2], np.int64), np.empty(2, np.int64)], **mode)
    with pytest.raises(Error) as caught:
        run_loop(func, [np.array([1, 12, 3], np.int64), np.empty(3, np.int64)], **mode)
    assert caught.value.what == "entry 1 is 12"
    assert caught.value.where is not None and "check(" in caught.value.where.text
