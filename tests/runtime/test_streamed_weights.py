"""Weights in a mapped file are packed as a stream: no more of the file is in memory at once than one kernel reads."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, nn, ops
from pliant.quantization.dequantize import dequantize
from pliant.quantization.formats import BY_NAME
from pliant.runtime import loading
from pliant.support.mapped import mapped_pages, mapping_of
from tiny_models import random_blocks

Q8 = BY_NAME["Q8_0"]
COUNT, ROWS, LENGTH = 16, 512, 2048
SIZE = ROWS * LENGTH // Q8.length * Q8.size  # bytes of a weight: 1.1 MB
LARGE_PAGE = 2 << 20  # the system may map a file in pieces of this size
STATUS = Path("/proc/self/status")
n = dim("n", min=1, max=64)


class Chain(nn.Module):
    """Several products, each with a weight of its own."""

    inputs = {"x": Tensor[f32, n, LENGTH]}

    def __init__(self, weights: np.ndarray[Any, Any]) -> None:
        self.weights = weights  # u8[count, rows, blocks, bytes]

    def forward(self, x: Any) -> Any:
        y = None
        for weight in self.weights:
            product = ops.block_linear(x, ops.constant(weight), format=Q8.name)
            y = product if y is None else y + product
        return y


def mapped(path: Path, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    path.write_bytes(data.tobytes())
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(memoryview(mapping), np.uint8).reshape(data.shape)


def file_pages() -> int:
    """Bytes of mapped files in memory."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("RssFile"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not STATUS.exists() or not hasattr(mmap, "MADV_DONTNEED"), reason="the system does not tell what is in memory")
def test_the_file_is_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    blocks = random_blocks(Q8, COUNT * ROWS * LENGTH, 0.02, rng).reshape(COUNT, ROWS, -1, Q8.size)
    weights = mapped(tmp_path / "weights", blocks)
    seen: list[int] = []

    def watched(arrays: Any) -> Callable[[], None] | None:
        release = mapped_pages(arrays)
        assert release is not None

        def record() -> None:
            before = file_pages()
            release()
            seen.append(before - file_pages())

        return record

    monkeypatch.setattr(loading, "mapped_pages", watched)
    f = pliant.compile(Chain(weights), threads=1)
    assert len(seen) > COUNT, "once before, and after each kernel"
    assert SIZE // 2 < max(seen) <= SIZE + 2 * LARGE_PAGE < COUNT * SIZE // 2, "each kernel reads one weight"
    x = rng.standard_normal((3, LENGTH)).astype(np.float32)
    exact = sum(x.astype(np.float64) @ dequantize(Q8, w.reshape(ROWS, -1)).astype(np.float64).T for w in blocks)
    assert np.abs(f(x) - exact).max() < 0.02 * np.abs(exact).max()


def test_only_read_only_mappings_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    with open(path, "r+b") as file:
        copied, shared = (mmap.mmap(file.fileno(), 0, access=a) for a in (mmap.ACCESS_COPY, mmap.ACCESS_READ))
    copied[5] = 7
    private, read_only = (np.frombuffer(memoryview(m), np.uint8) for m in (copied, shared))
    assert mapping_of(private) is copied and mapping_of(read_only[3:]) is shared and mapping_of(np.zeros(3)) is None
    assert mapped_pages([private, np.zeros(3)]) is None, "what was written to a private page would be lost"
    release = mapped_pages([private, read_only])
    if release is not None:
        release()
    assert private[5] == 7 and not read_only.any()
