"""What a selection does not take is not read: inputs lie between pages that may not be touched."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pliant
from pliant import Out, Tensor, dim, f32, kernel, parallel, select, vector

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are protected with Linux's mprotect")

n = dim("n", min=1, max=4096)


def between_guards(a: NDArray[Any], at_start: bool) -> NDArray[Any]:
    """A copy of an array at the start, or at the end, of pages with untouchable ones around."""
    page = mmap.PAGESIZE
    size = -(-a.nbytes // page) * page
    memory = mmap.mmap(-1, size + 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (address, address + page + size):
        assert libc.mprotect(ctypes.c_void_p(guard), page, 0) == 0
    start = page if at_start else page + size - a.nbytes
    found = np.frombuffer(memory, a.dtype, a.size, start).reshape(a.shape)
    found[:] = a
    return found


@kernel(scheduled=True)
def joined(a: Tensor[f32, 256], b: Tensor[f32, n], y: Out[f32, 1024]) -> None:
    """`a`, then `b`, then zeros: the inner selection's own condition does not keep its reads inside of `b`."""
    for i in parallel(64):
        for x in vector(16):
            y[i * 16 + x] = select(i * 16 + x < 256, a[i * 16 + x], select(i * 16 + x - 256 < n, b[i * 16 + x - 256], 0.0))


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("count", [1, 100, 768])
def test_an_inner_selection_reads_what_both_conditions_allow(count: int, at_start: bool) -> None:
    a, b = np.arange(256, dtype=np.float32), np.arange(count, dtype=np.float32) + 1000
    found = pliant.compile(joined)(between_guards(a, at_start), between_guards(b, at_start))
    assert np.array_equal(found, np.concatenate([a, b, np.zeros(1024 - 256 - count, np.float32)]))
