"""Vector loops over every type: rows, strides, backwards, one element for all, gathers, scatters, masks, rests; against numpy's indexing.

Values are only moved, so what is expected is `x[places]`. What code comes out where it matters is read from the assembly.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_codegen_stmts import func, loop
from test_dtypes import all_codes, passed

from levels import runnable
from native_loops import Native, same_bits
from pliant.codegen.emit import emit_assembly
from pliant.codegen.llvm import generate
from pliant.dtype import ALL, DType, f32, i32, i64, unpack
from pliant.loop.buffer import Buffer
from pliant.loop.passes.settle_lanes import settle_lanes
from pliant.loop.stmt import NAMED_COMBINERS, For, Func, If, Param, Reduce, Store, walk_stmts
from pliant.sym.expr import Cast, Expr, FloorMod, Ne, Var, const
from pliant.target import target

Array = np.ndarray[Any, Any]
i, j, n, m = (Var(name) for name in "ijnm")
SIZE = 256  # elements of every buffer
COUNTS = (0, 1, 7, 8, 33, 64)
order = Buffer("order", i32, (const(SIZE),))
Place = Callable[[Any], Any]

# Where iteration i reads and writes, and which iterations run.
ACCESSES: dict[str, tuple[Place, Place]] = {
    "row": (lambda v: v, lambda v: v),
    "unaligned": (lambda v: v + 3, lambda v: v + 1),
    "strided read": (lambda v: v * 3 + 1, lambda v: v),
    "every second": (lambda v: v * 2 + 129, lambda v: v),  # up to the last element of 64
    "strided write": (lambda v: v, lambda v: v * 3 + 2),
    "backwards": (lambda v: 99 - v, lambda v: v),
    "written backwards": (lambda v: v, lambda v: 99 - v),
    "backwards in threes": (lambda v: 255 - v * 3, lambda v: 255 - v * 2),
    "one for all": (lambda v: v * 0 + 5, lambda v: v),
    "pairs": (lambda v: v // 2, lambda v: v),
}


def finite(d: DType) -> Array:
    """Values of a type that differ from their neighbors, without NaN."""
    codes = all_codes(d)
    if d.is_float:
        codes = codes[np.isfinite(codes.astype(np.float32))]
    return np.resize(codes[np.random.default_rng(1).permutation(len(codes))], SIZE)


def small(d: DType) -> Array:
    """Values for types of any size."""
    return finite(d) if d.bits <= 16 else (np.arange(SIZE) * 7 - 300).astype(d.numpy())


def copy(name: str, d: DType, read: Expr, write: Expr, condition: Expr | None = None) -> Func:
    """`for i in vector(n): y[write] = x[read]`."""
    x, y = Buffer("x", d, (const(SIZE),)), Buffer("y", d, (const(SIZE),))
    store = Store(y, (write,), x.load(read))
    body = loop(i, n, store if condition is None else If(condition, store), "vector")
    return Func(name, (Param(x), Param(order), Param(y, "inout"), Param(n)), body)


def moved(native: Native, name: str, d: DType, count: int, places: Array) -> tuple[Array, Array]:
    """What the program leaves in y, and y before it ran."""
    x, y = small(d), small(d)[::-1].copy()
    memory = passed(y, d).copy()
    assert native.call(name, [passed(x, d), places.astype(np.int32), memory, count]) == 0
    return unpack(memory, d) if d.bits < 8 else memory, y


def expected(d: DType, y: Array, read: Array, write: Array) -> Array:
    result = y.copy()
    result[write] = small(d)[read]
    return result


@pytest.mark.parametrize("to", runnable("native", "llvm:x86-64-v2"))
@pytest.mark.parametrize("d", ALL.values(), ids=str)
def test_every_access_of_every_type(d: DType, to: str) -> None:
    masked = Ne(FloorMod(i, const(3)), const(1))
    plain = [copy(name, d, read(i), write(i)) for name, (read, write) in ACCESSES.items()]
    native = Native(*plain, *(copy(f"{name}, masked", d, read(i), write(i), masked) for name, (read, write) in ACCESSES.items()), to=to)
    for (name, (read, write)), count in itertools.product(ACCESSES.items(), COUNTS):
        for which, run in ((name, np.arange(count)), (f"{name}, masked", np.arange(count)[np.arange(count) % 3 != 1])):
            found, before = moved(native, which, d, count, np.arange(SIZE))
            assert same_codes(found, expected(d, before, read(run), write(run)), d), f"{which}, {count} iterations"


@pytest.mark.parametrize("d", ALL.values(), ids=str)
def test_gathers_and_scatters_of_every_type(d: DType) -> None:
    places = np.random.default_rng(2).permutation(SIZE)
    at = Cast(i64, order.load(i))
    native = Native(copy("gather", d, at, i), copy("scatter", d, i, at))
    for count in COUNTS:
        run = np.arange(count)
        found, before = moved(native, "gather", d, count, places)
        assert same_codes(found, expected(d, before, places[run], run), d), f"gather of {count}"
        found, before = moved(native, "scatter", d, count, places)
        assert same_codes(found, expected(d, before, run, places[run]), d), f"scatter of {count}"


def same_codes(a: Array, b: Array, d: DType) -> bool:
    return same_bits(a, b) if not d.storage else bool(np.array_equal(a.view(np.uint8), b.view(np.uint8)))


# Reductions whose lanes are a symbolic number of elements apart.


def columns(strides: tuple[Expr, ...] | None, d: DType = f32) -> Func:
    """`for j in vector(n): y[j, i] += x[j, i]`: neighbors in a column."""
    x, y = Buffer("x", d, (n, m)), Buffer("y", d, (n, m), strides)
    add = Reduce(NAMED_COMBINERS["add"], (y.load(j, i),), (x.load(j, i),))
    return Func("f", (Param(x), Param(y, "inout")), loop(i, m, loop(j, n, add, "vector")))


def kinds_of(func: Func, name: str) -> list[str]:
    """What the loops of that variable are once lanes are settled."""
    return [s.kind for s in walk_stmts(settle_lanes(func).body) if isinstance(s, For) and s.var.name == name]


@pytest.mark.parametrize("to", runnable("native", "llvm:x86-64-v2"))
def test_a_column_is_reduced_by_lanes(to: str) -> None:
    assert kinds_of(columns(None), "j") == ["vector"], "that rows are apart follows from their having elements"
    native = Native(columns(None), to=to)
    assert "fadd <" in native.module.text
    for rows, width in ((0, 3), (1, 1), (5, 7), (16, 4), (37, 1)):
        x, y = (np.random.default_rng(k).standard_normal((rows, width)).astype(np.float32) for k in range(2))
        total = x + y
        assert native.call("f", [x, y], [rows, width]) == 0
        assert np.array_equal(y, total)


def test_rows_that_are_one_row_are_reduced_one_after_the_other() -> None:
    """A stride that is known only when the program runs, and is 0: every lane adds to the same element."""
    stride = Var("stride")
    func = columns((stride, const(1)), i32)
    assert kinds_of(func, "j") == ["vector", "serial"]
    native = Native(func)
    x = np.arange(20, dtype=np.int32).reshape(10, 2)
    for apart in (2, 0):
        y = np.zeros((10, 2), np.int32)
        assert native.call("f", [x, y], [10, 2, apart]) == 0
        assert np.array_equal(y if apart else y[0], x if apart else x.sum(axis=0))


# What the machine code is.


def instructions(body: Any, *inputs: Buffer, out: Buffer, to: str) -> str:
    machine = target(to)
    return emit_assembly(generate([func(body, *inputs, out=(out,))], machine).text, machine)


def test_gathers_of_small_tables_have_indices_of_32_bits() -> None:
    picks, y = Buffer("picks", i64, (n,)), Buffer("y", f32, (n,))
    for rows, wide in ((4096, False), (2**31, True)):
        table = Buffer("table", f32, (const(rows), const(64)))
        body = loop(i, n, Store(y, (i,), table.load(picks.load(i), const(3))), "vector")
        text = instructions(body, picks, table, out=y, to="llvm:x86-64-v4")
        assert ("vgatherqps" in text) == wide and ("vgatherdps" in text) != wide


@pytest.mark.parametrize("to", ["llvm:x86-64-v3", "llvm:x86-64-v4"])
def test_packed_and_small_elements_are_decoded_in_vectors(to: str) -> None:
    y = Buffer("y", f32, (n,))
    for d in (ALL["u4"], ALL["i4"], ALL["u2"], ALL["f8e4m3fn"], ALL["f8e5m2"], ALL["f4e2m1"], ALL["f8e4m3fnuz"]):
        q = Buffer("q", d, (n,))
        text = instructions(loop(i, n, Store(y, (i,), Cast(f32, q.load(i))), "vector"), q, out=y, to=to)
        assert re.search(r"vmov\w+\t%ymm\d+, \(", text), d
        assert "vpinsrb" not in text, d
        text = instructions(loop(i, n, Store(q, (i,), Cast(q.load(i).dtype, y.load(i))), "vector"), y, out=q, to=to)
        assert re.search(r"vcvttps2dq\t.*ymm|vpminud\t.*ymm", text), d
        assert "vpinsrb" not in text, d


def test_rests_are_masked_where_machines_can() -> None:
    x, y = Buffer("x", f32, (n,)), Buffer("y", f32, (n,))
    forwards = Store(y, (i,), x.load(i))
    backwards = Store(y, (n - 1 - i,), x.load(i))
    for store in (forwards, backwards):
        assert "vmaskmovps" in instructions(loop(i, n, store, "vector"), x, out=y, to="llvm:x86-64-v3")
    narrow, out = Buffer("narrow", ALL["i8"], (n,)), Buffer("out", ALL["i8"], (n,))
    text = instructions(loop(i, n, Store(out, (i,), narrow.load(i)), "vector"), narrow, out=out, to="llvm:x86-64-v4")
    assert re.search(r"vmovdqu8\t.*\{%k", text)
