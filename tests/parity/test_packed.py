"""Elements below a byte where it is more than moving values: threads, reductions, views, own memory, arguments of programs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_codegen_stmts import loop

import pliant
from native_loops import Lifted, Native
from pliant import Out, Tensor, block, cast, compile, dim, function, grid, i4, kernel, u4
from pliant.dtype import ALL, DType, i8, pack, u8, unpack
from pliant.interp.graph import run_graph
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import NAMED_COMBINERS, Alloc, Func, Param, Reduce, Seq, Stmt, Store, View
from pliant.loop.verify import verify
from pliant.support.errors import Error, InternalError, ShapeError
from pliant.sym.expr import Expr, Var, const

f8 = pliant.f8e4m3fn
i, j, n, m = (Var(name) for name in "ijnm")
SMALL = [d for d in ALL.values() if d.bits < 8]
rows = dim("rows")
width = dim("width", multiple_of=2)


def quantized(shape: tuple[Expr, ...], d: DType, body: Any) -> Func:
    """A program that writes y from x, both of one shape."""
    x, y = Buffer("x", i8 if d.kind != "u" else u8, shape), Buffer("y", d, shape)
    return Func("f", (Param(x), Param(y, "inout")), body(x, y))


def is_parallel(func: Func) -> bool:
    return "ptr %ctx, i64 %begin, i64 %end" in Native(func).module.text


# Threads.


@pytest.mark.parametrize("columns", [2, 8, 30])
def test_threads_own_the_bytes_of_their_rows(columns: int) -> None:
    func = quantized(
        (n, const(columns)), ALL["i4"], lambda x, y: loop(i, n, loop(j, columns, Store(y, (i, j), x.load(i, j)), "vector"), "parallel")
    )
    verify(func)
    assert is_parallel(func)
    x = np.random.default_rng(0).integers(-8, 8, (5000, columns)).astype(np.int8)
    packed = np.zeros((5000, columns // 2), np.uint8)
    assert Native(func).call("f", [x, packed], [5000], threads=2) == 0
    assert np.array_equal(unpack(packed, "i4").astype(np.int8), x)


def shared(stride: int, count: int) -> Func:
    """Iteration i writes `count` elements from `stride * i` on."""
    x, y = Buffer("x", u8, (n,)), Buffer("y", ALL["u4"], (n,))
    store: Stmt = Store(y, (i * stride + j,), x.load(i * stride + j))
    return Func("f", (Param(x), Param(y, "inout")), loop(i, n // stride, loop(j, count, store), "parallel"))


@pytest.mark.parametrize(("stride", "count", "parallel"), [(4, 4, True), (4, 2, True), (2, 2, True), (3, 3, False), (5, 1, False)])
def test_a_loop_whose_iterations_may_share_bytes_runs_serially(stride: int, count: int, parallel: bool) -> None:
    func = shared(stride, count)
    verify(func)
    assert is_parallel(func) == parallel
    x = np.random.default_rng(1).integers(0, 16, 6000).astype(np.uint8)
    packed = np.zeros(3000, np.uint8)
    assert Native(func).call("f", [x, packed], [6000], threads=2) == 0
    places = (np.arange(6000 // stride)[:, None] * stride + np.arange(count)).ravel()
    expected = np.zeros(6000, np.uint8)
    expected[places] = x[places]
    assert np.array_equal(unpack(packed, "u4").astype(np.uint8), expected)


def test_neighbors_in_one_byte_are_refused() -> None:
    with pytest.raises(InternalError, match="iterations of the parallel loop `i` write the same byte of `y`"):
        verify(shared(1, 1))

    with pytest.raises(Error, match="write the same byte of `q`") as caught:

        @kernel
        def _pack(x: Tensor[pliant.u8, rows], q: Out[u4, rows]) -> None:
            for k in pliant.parallel(rows):
                q[k] = x[k]

    assert "split the loop by 2" in str(caught.value)


def test_lanes_may_share_bytes() -> None:
    """A reduction by lanes into packed elements, aligned and not."""
    for start in (0, 1):
        x, y = Buffer("x", i8, (n,)), Buffer("y", ALL["i4"], (n + 2,))
        add = Reduce(NAMED_COMBINERS["add"], (y.load(i + start),), (x.load(i),))
        func = Func("f", (Param(x), Param(y, "inout")), loop(i, n, add, "vector"))
        given, before = (np.random.default_rng(k).integers(-8, 8, 46 + 2 * k).astype(np.int8) for k in range(2))
        packed = pack(before, "i4")
        assert Native(func).call("f", [given, packed], [46]) == 0
        total = before.copy()
        total[start : start + 46] += given
        assert np.array_equal(unpack(packed, "i4"), total.astype(ml_dtypes.int4))


# Memory of the program's own.


@pytest.mark.parametrize("d", SMALL, ids=str)
@pytest.mark.parametrize("scope", ["stack", "workspace", "register"])
def test_packed_memory_of_odd_sizes(d: DType, scope: Any) -> None:
    """Each iteration of a parallel loop rounds its row through memory of its own: three elements, no whole bytes."""
    wide = Buffer("t", d, (const(3),)).load(const(0)).dtype
    x, y = Buffer("x", wide, (n, const(3))), Buffer("y", wide, (n, const(3)))
    row = Buffer("row", d, (const(3),), scope=scope)
    fill = loop(j, 3, Store(row, (j,), x.load(i, j)), "unroll")
    back = loop(j, 3, Store(y, (i, const(2) - j), row.load(const(2) - j)), "unroll")
    func = Func("f", (Param(x), Param(y, "out")), loop(i, n, Seq((Alloc(row), fill, back)), "parallel"))
    verify(func)
    given = (np.random.default_rng(3).integers(0, 100, (301, 3)) * (0.07 if d.is_float else 1)).astype(wide.numpy())
    found = np.zeros_like(given)
    assert Lifted([func], 1).call(func, [given, found], [301], threads=2) == 0
    assert np.array_equal(found, given.astype(d.numpy()).astype(wide.numpy()))


def test_a_view_begins_at_a_whole_byte() -> None:
    y, part = Buffer("y", ALL["u4"], (n, const(6))), Buffer("part", ALL["u4"], (const(4),))
    x = Buffer("x", u8, (n, const(4)))

    def viewed(start: Expr) -> Func:
        fill = loop(j, 4, Store(part, (j,), x.load(i, j)), "vector")
        return Func("f", (Param(x), Param(y, "inout")), loop(i, n, Seq((View(part, y, (i, start)), fill))))

    given = np.random.default_rng(4).integers(0, 16, (9, 4)).astype(np.uint8)
    packed = np.zeros((9, 3), np.uint8)
    assert Native(viewed(const(2))).call("f", [given, packed], [9]) == 0
    assert np.array_equal(unpack(packed, "u4").astype(np.uint8)[:, 2:], given)
    with pytest.raises(Error, match="does not start at a whole byte"):
        run_loop(viewed(const(1)), [given, packed])


# Whole programs.


@kernel
def dequantize(q: Tensor[u4, rows, width], scale: Tensor[f8, rows], y: Out[pliant.f32, rows, width]) -> None:
    for r, c in grid(rows, width):
        with block("dequantize", "SS", r, c) as (vr, vc):
            y[vr, vc] = cast(pliant.f32, q[vr, vc]) * scale[vr]


@kernel
def quantize(x: Tensor[pliant.f32, rows, width], q: Out[i4, rows, width]) -> None:
    for r, c in grid(rows, width):
        with block("quantize", "SS", r, c) as (vr, vc):
            q[vr, vc] = cast(pliant.i8, x[vr, vc])


@function
def both(q: Tensor[u4, rows, width], scale: Tensor[f8, rows]):  # type: ignore[no-untyped-def]
    y = dequantize(q, scale)
    return y, quantize(y)


@pytest.mark.parametrize("shape", [(3, 6), (5, 64), (1, 2), (7, 130), (4, 0)])
def test_packed_arguments_and_results(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    q = rng.integers(0, 16, shape).astype(ml_dtypes.uint4)
    scale = rng.standard_normal(shape[0]).astype(ml_dtypes.float8_e4m3fn)
    compiled = compile(both)
    y, z = compiled(pack(q, "u4"), scale)
    expected = q.astype(np.float32) * scale.astype(np.float32)[:, None]
    assert np.array_equal(y, expected)
    assert z.shape == (shape[0], shape[1] // 2) and z.dtype == np.uint8
    assert np.array_equal(unpack(z, "i4"), np.trunc(expected).astype(np.int8).astype(ml_dtypes.int4))
    given = np.zeros_like(z)
    assert np.array_equal(compiled(pack(q, "u4"), scale.view(np.uint8), out=(None, given))[1], z)
    from_interpreter = run_graph(both.graph, [pack(q, "u4"), scale])
    assert np.array_equal(from_interpreter[0], y) and np.array_equal(from_interpreter[1], z)


def test_wrong_packed_arguments_are_named() -> None:
    compiled = compile(both)
    scale = np.ones(3, ml_dtypes.float8_e4m3fn)
    packed = np.zeros((3, 4), np.uint8)
    with pytest.raises(ShapeError, match="its dtype is int8, expected u4") as caught:
        compiled(packed.astype(np.int8), scale)
    assert 'pack(q, "u4")' in str(caught.value)
    with pytest.raises(ShapeError, match="`q` is not contiguous"):
        compiled(packed[:, ::2], scale)
    with pytest.raises(ShapeError, match=r"its shape is \(3, 6\), expected \(3, 8\)"):
        compiled(packed, scale, out=(None, packed[:, :3].copy()))
    with pytest.raises(ShapeError, match="it shares memory with argument `q`"):
        compiled(packed, scale, out=(None, packed))
    with pytest.raises(ShapeError, match="must be a multiple of 2"):
        pack(np.zeros((2, 3)), "u4")


def test_rows_of_results_are_whole_bytes() -> None:
    free = dim("free")

    @kernel
    def flags(x: Tensor[pliant.f32, free], q: Out[pliant.u2, free]) -> None:
        for k in range(free):
            q[k] = cast(pliant.u8, x[k])

    @function
    def program(x: Tensor[pliant.f32, free]):  # type: ignore[no-untyped-def]
        return flags(x)

    compiled = compile(program)
    assert np.array_equal(unpack(compiled(np.arange(8, dtype=np.float32) % 4), "u2").astype(int), np.arange(8) % 4)
    with pytest.raises(ShapeError, match="output `result`: its last dim is 6, which is no multiple of 4"):
        compiled(np.zeros(6, np.float32))


def test_a_schedule_does_not_make_neighbors_parallel() -> None:
    s = pliant.Schedule(quantize)
    r, c = s.loops("quantize")
    with pytest.raises(pliant.ScheduleError, match="write the same byte of `q`"):
        s.parallel(c)
    s.parallel(r)


# Literals.


def test_literals_below_a_byte_in_graph_programs(tmp_path: Any) -> None:
    table = np.array([[1, -2, 3, 4], [5, -6, 7, -8]], np.int8)

    @function
    def f(x: Tensor[pliant.f32, rows, 4]) -> Tensor[pliant.f32, rows, 4]:
        codes = pliant.ops.constant([[1, -2, 3, 4], [5, -6, 7, -8]], dtype=i4)
        return x * 2.0 + pliant.ops.sum(pliant.ops.dequantize_linear(codes, 0.5), axis=0)

    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    want = x * 2 + table.sum(0) / 2
    compiled = compile(f)
    compiled.save(tmp_path / "f.pliant")
    again = pliant.parse(str(pliant.api.program_of(f)))
    for program in (compiled, pliant.load(tmp_path / "f.pliant"), compile(again), compile(f, checked=True)):
        np.testing.assert_allclose(program(x), want, rtol=1e-5)
    np.testing.assert_allclose(run_graph(f.graph, [x])[0], want, rtol=1e-5)
