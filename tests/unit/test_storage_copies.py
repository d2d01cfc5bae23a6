"""Copies of buffers of storage types: as they are, as they are loaded, and wider; and the rule of transposes, which makes such copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from native_loops import Lifted
from pliant.dtype import ALL, DType, pack
from pliant.interp.loop import run_loop
from pliant.loop.buffer import loaded_dtype
from pliant.loop.parse import parse_module
from pliant.loop.stmt import Func
from pliant.loop.verify import verify
from pliant.schedule import Schedule, default_schedule
from pliant.support.errors import ScheduleError
from pliant.target import target

STORAGE = [d for d in ALL.values() if d.storage]
ROWS, COLUMNS = 36, 20
WIDER = {"i8": "i16", "u8": "i32", "f32": "f64"}
COPIES = {
    "cache_read": lambda s, dtype: s.cache_read("y", "x", s.loops("y")[0], scope="stack", dtype=dtype),
    "cache_read in another order": lambda s, dtype: s.cache_read("y", "x", order=(1, 0), dtype=dtype),
    "reindex": lambda s, dtype: s.reindex("y", "x", dtype=dtype),
}


def turned(d: DType, result: str, value: str = "x[vj, vi]") -> Func:
    """The columns of codes as rows."""
    text = f"""
from pliant import Out, Tensor, block, cast, grid, kernel, max, {", ".join(sorted({d.name, result, "f32"}))}
@kernel
def turned(x: Tensor[{d}, {ROWS}, {COLUMNS}], y: Out[{result}, {COLUMNS}, {ROWS}]) -> None:
    for i, j in grid({COLUMNS}, {ROWS}):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = {value}
"""
    return parse_module(text)["turned"]


def codes(d: DType) -> Any:
    """Every code of a storage type that is a number, as an argument has them."""
    found = np.random.default_rng(0).integers(0, 1 << d.bits, (ROWS, COLUMNS)).astype(np.uint8).view(d.numpy())
    found = np.where(np.isfinite(found.astype(np.float32)), found, np.zeros_like(found))
    return pack(found, d) if d.bits < 8 else found


def results(func: Func, d: DType) -> list[Any]:
    """The result of the interpreter, and that of native code."""
    result = func.buffers[1].dtype
    made = [np.full(result.array_shape((COLUMNS, ROWS)), 1, np.uint8).astype(result.array_dtype()) for _ in range(2)]
    run_loop(func, [codes(d), made[0]])
    assert Lifted([func], level=0).call(func, [codes(d), made[1]], []) == 0
    return [m.view(np.uint8) for m in made]


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("d", STORAGE, ids=str)
def test_copies_hold_what_is_loaded(d: DType, how: str) -> None:
    loaded = loaded_dtype(d).name
    for result, value in [(d.name, "x[vj, vi]"), ("f32", "cast(f32, x[vj, vi])" if loaded != "f32" else "max(x[vj, vi], 0.5)")]:
        func = turned(d, result, value)
        verify(func)
        expected = results(func, d)[0]
        for dtype in (None, d.name, loaded, WIDER[loaded]):
            s = Schedule(func)
            COPIES[how](s, dtype)
            verify(s.func)
            assert f"), {dtype or d}" in str(s.func)
            assert all(np.array_equal(found, expected) for found in results(s.func, d)), dtype


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("d", STORAGE, ids=str)
def test_copies_that_would_lose_values_are_refused(d: DType, how: str) -> None:
    for other in [x for x in STORAGE if x is not d] + [ALL["u8" if d.kind == "i" else "i8"], ALL["bool"]]:
        with pytest.raises(ScheduleError, match=f"as {other}: there are values of {d} that it does not hold"):
            COPIES[how](Schedule(turned(d, d.name)), other.name)


@pytest.mark.parametrize("machine", ["native", "llvm:x86-64-v3"])
@pytest.mark.parametrize("d", STORAGE, ids=str)
def test_tiles_are_turned_as_they_are_loaded(d: DType, machine: str) -> None:
    loaded = loaded_dtype(d).name
    for result, value in [(d.name, "x[vj, vi]"), ("f32", "cast(f32, x[vj, vi])" if loaded != "f32" else "max(x[vj, vi], 0.5)")]:
        func = turned(d, result, value)
        scheduled, why = default_schedule(func, target(machine))
        verify(scheduled)
        assert "transpose: `y` in tiles" in why and f'{loaded}, scope="register"' in str(scheduled)
        assert all(np.array_equal(found, results(func, d)[0]) for found in results(scheduled, d))
