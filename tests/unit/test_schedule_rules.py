"""The default rules: what they make of kernels (golden files), native results, and a row alone equals the row in a batch.

`PLIANT_UPDATE=1` writes the golden files anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native_loops import Lifted
from pliant.interp.loop import run_loop
from pliant.schedule import default_schedule
from pliant.schedule.library.matmul import Extents, tile_size
from pliant.target import target
from schedule_kernels import KERNELS, kernel, make_arguments, parse

GOLDEN = Path(__file__).parent.parent / "golden"
GOLDENS = ["batched", "chain", "columns", "recurrence", "rms_norm", "scan", "scatter_rows", "softmax", "stencil", "transpose"]
V3 = target("llvm:x86-64-v3")


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str) -> None:
    func, why = default_schedule(kernel(name), V3)
    text = f'"""{why}."""\n\n{func}'
    file = GOLDEN / f"schedule_{name}.txt"
    if os.environ.get("PLIANT_UPDATE") == "1":
        file.write_text(text)
    assert text == file.read_text()


def test_a_scheduled_program_is_returned_as_it_is() -> None:
    func, _ = default_schedule(kernel("chain"), V3)
    again, why = default_schedule(func, V3)
    assert again is func and "as it stands" in why


def test_the_epilogue_is_in_the_write_back() -> None:
    func, why = default_schedule(kernel("epilogue"), V3)
    assert "with `out` in its write-back" in why
    assert " = alloc((n" not in str(func)  # nothing between the sum and the result


def test_tiles_fit_the_registers() -> None:
    for name in ("llvm:x86-64-v2", "llvm:x86-64-v3", "llvm:x86-64-v4", "llvm:cortex-a76", "wasm+simd128"):
        t = target(name)
        for dtype in (kernel("matmul").buffers[0].dtype, kernel("transpose").buffers[0].dtype):
            tile, _ = tile_size(t, Extents(None, None, None, dtype, dtype))
            vectors = tile.columns // tile.lanes
            assert tile.rows * vectors + vectors + 1 <= t.n_vector_registers


@pytest.fixture(scope="module")
def natives() -> tuple[dict[str, Any], Lifted]:
    funcs = {name: default_schedule(kernel(name), target("native"))[0] for name in KERNELS}
    return funcs, Lifted(list(funcs.values()), level=2)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_native_equals_the_interpreter(name: str, natives: tuple[dict[str, Any], Lifted]) -> None:
    funcs, native = natives
    func = funcs[name]
    for n, size in enumerate((0, 1, 5, 9, 17, 67)):
        dims = {v.name: (size, 3, 19)[m] + m * n for m, v in enumerate(func.symbols)}
        arguments = make_arguments(func, dims, seed=n)
        expected = [a.copy() for a in arguments]
        values = [dims[v.name] for v in func.symbols]
        run_loop(func, expected, values)
        for threads in (1, 2):
            found = [a.copy() for a in arguments]
            assert native.call(func, found, values, threads) == 0
            for a, b in zip(expected, found, strict=True):
                assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", ["matmul", "panels", "epilogue", "softmax", "rms_norm", "transposed"])
def test_a_row_alone_equals_the_row_in_a_batch(name: str, natives: tuple[dict[str, Any], Lifted]) -> None:
    funcs, native = natives
    func = funcs[name]
    fixed = {"m": 37, "p": 45}
    dims = [23 if v.name == "n" else fixed[v.name] for v in func.symbols]
    whole = make_arguments(func, {v.name: d for v, d in zip(func.symbols, dims, strict=True)})
    assert native.call(func, whole, dims) == 0
    one = [1 if v.name == "n" else d for v, d in zip(func.symbols, dims, strict=True)]
    batched = [any(v.name == "n" for v in b.shape if hasattr(v, "name")) for b in func.buffers]
    for row in range(23):
        mine = [a[row : row + 1].copy() if rows else a for a, rows in zip(whole, batched, strict=True)]
        result = mine[-1].copy()
        mine[-1][...] = 0
        assert native.call(func, mine, one) == 0
        assert mine[-1].tobytes() == result.tobytes()


def test_large_and_odd_products() -> None:
    text = KERNELS["matmul"].replace("12", "131").replace("40", "101")
    func, _ = default_schedule(parse(text), target("native"))
    native = Lifted([func], level=2)
    for n in (1, 7, 16, 50):
        a, b, c = make_arguments(func, {"n": n})
        assert native.call(func, [a, b, c], [n], threads=2) == 0
        np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [1, 2, 49, 65, 97, 193])
def test_one_column_more_than_panels(columns: int) -> None:
    func, why = default_schedule(parse(KERNELS["matmul"].replace("40", str(columns))), target("native"))
    assert columns == 1 or why.startswith("matmul: ")
    native = Lifted([func], level=1)
    for n in (1, 13, 40):
        a, b, c = make_arguments(func, {"n": n})
        assert native.call(func, [a, b, c], [n], threads=2) == 0
        np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_one_row_goes_through_the_matrix_as_it_lies() -> None:
    text = KERNELS["matmul"].replace("12", "45").replace("40", "1001")
    several = default_schedule(parse(text), target("native"))[0]
    one, why = default_schedule(parse(text.replace("[f32, n, ", "[f32, 1, ").replace("grid(n, ", "grid(1, ")), target("native"))
    assert "on the stack" in why
    one = one.with_(name="one")
    native = Lifted([several, one], level=1)
    a, b, c = make_arguments(several, {"n": 3})
    assert native.call(several, [a, b, c], [3]) == 0
    found = np.zeros_like(c[:1])
    assert native.call(one, [a[:1].copy(), b, found], [], threads=2) == 0
    assert found.tobytes() == c[:1].tobytes()
    expected = np.zeros_like(found)
    run_loop(one, [a[:1].copy(), b, expected], [])
    assert expected.tobytes() == found.tobytes()


def test_f16_is_widened_once() -> None:
    text = KERNELS["matmul"].replace("a: Tensor[f32,", "a: Tensor[f16,").replace("a[vi, vk]", "cast(f32, a[vi, vk])")
    func, _ = default_schedule(parse(text), target("native"))
    assert "a_reindex = alloc((n, 12), f32)" in str(func)
    native = Lifted([func], level=1)
    expected = make_arguments(func, {"n": 23})
    found = [x.copy() for x in expected]
    assert native.call(func, found, [23], threads=2) == 0
    run_loop(func, expected, [23])
    assert expected[2].tobytes() == found[2].tobytes()
    np.testing.assert_allclose(found[2], found[0].astype(np.float64) @ found[1], rtol=1e-4, atol=1e-4)


def test_crowded_panels_are_copied_where_there_are_many_rows() -> None:
    for columns, expected in ((1000, "matmul: "), (1024, "if n > 191: "), (2048, "if n > 63: ")):
        text = KERNELS["matmul"].replace("12", "1024").replace("40", str(columns))
        assert default_schedule(parse(text), target("llvm:znver4"))[1].startswith(expected)
