"""The table of `docs/tuning.md`: schedules as Ansor's sketch rules and AutoTVM's templates for CPUs make them are in the space.

Each is written by hand with primitives here, and found in the space of the modules that the table names, by its decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pliant.loop.structural import assert_same
from pliant.schedule import Schedule
from pliant.schedule.auto_tensorize import auto_tensorize
from pliant.target import target
from pliant.tune import Module, Space
from pliant.tune.modules import compute_location, inline, rfactor, tensor_tiling, threads_and_vectors, tiling
from search_spaces import chain, dense, dense_relu, depthwise, int8_dense, norms

AVX2 = target("x86-64-v3")
PAGE = Path(__file__).parent.parent.parent / "docs" / "tuning.md"


def always_inline() -> Schedule:
    s = Schedule(chain)
    s.compute_inline("t")
    i, j = s.loops("y")
    s.vectorize(j)
    s.parallel(i)
    return s


def compute_at_root_or_loop() -> Schedule:
    s = Schedule(chain)
    i, j = s.loops("y")
    s.compute_at("t", i)
    s.vectorize(s.loops("t")[-1])
    s.parallel(i)
    s.vectorize(j)
    return s


def in_registers(s: Schedule, block: str, rows: int, vectors: int, unroll: int = 1) -> None:
    """Multi-level tiling SSRS with a write cache: a tile of rows x vectors of 8 lanes in registers."""
    s.contract(block)
    i, j, k = s.loops(block)
    i_0, i_1 = s.split(i, None, rows)
    j_0, j_1, j_2 = s.split(j, None, vectors, 8)
    i_0, i_2 = s.split(i_0, 2, 16 // rows // 2)
    j_0, j_3 = s.split(j_0, 1, 64 // (8 * vectors))
    s.reorder(i_0, j_0, i_2, j_3, k, i_1, j_1, j_2)
    written = s.cache_write(block, j_3, scope="register")
    for b in (block, written):
        *_, row, vector, lane = s.loops(b)
        s.unroll(row)
        s.unroll(vector)
        s.vectorize(lane)
    s.decompose_reduction(block, k)
    if unroll > 1:
        s.unroll(s.split(k, None, unroll)[1])
    s.parallel(s.fuse(i_0, j_0, i_2, j_3))


def multi_level_tiling() -> Schedule:
    s = Schedule(dense)
    in_registers(s, "c", 4, 2, unroll=4)
    return s


def multi_level_tiling_with_fusion() -> Schedule:
    s = Schedule(dense_relu)
    in_registers(s, "c", 2, 4)
    s.reverse_compute_inline("y")
    return s


def reduction_factorization() -> Schedule:
    s = Schedule(norms)
    i, k = s.loops("y")
    _, lane = s.split(k, None, 8)
    s.rfactor("y", lane, i)
    s.vectorize(lane)
    s.parallel(i)
    return s


def depthwise_template() -> Schedule:
    """`depthwise_conv2d_NCHWc.x86`: channels are lanes, a tile of neighbors is in registers."""
    s = Schedule(depthwise)
    s.contract("y")
    i, j, c, p, q = s.loops("y")
    j_0, j_1 = s.split(j, 2, 4)
    c_0, c_1, c_2 = s.split(c, 1, 2, 8)
    i_0, i_1 = s.split(i, 6, 1)
    s.reorder(i_0, j_0, c_0, p, q, i_1, j_1, c_1, c_2)
    written = s.cache_write("y", c_0, scope="register")
    for b in ("y", written):
        *_, row, neighbor, vector, lane = s.loops(b)
        for h in (row, neighbor, vector):
            s.unroll(h)
        s.vectorize(lane)
    s.decompose_reduction("y", p)
    s.parallel(s.fuse(i_0, j_0, c_0))
    return s


def int8_template() -> Schedule:
    """`dense_int8.x86`: an instruction that multiplies and adds bytes, two tiles of the result in registers, rows in two levels."""
    s = Schedule(int8_dense)
    done = auto_tensorize(s, "c", "avx2.dot_u8s8", 2)
    i, j = s.loops(done)[:2]
    i_0, i_1 = s.split(i, 3, 2)
    j_0, j_1 = s.split(j, 3, 1)
    s.reorder(i_0, j_0, i_1, j_1)
    return s


TILE = {"c.lane": 1, "c.whole": 0, "c.outer0": (2, 2), "c.read0": 0, "c.read1": 0}
CASES: Mapping[str, tuple[Any, Callable[[], Schedule], Sequence[Module], Mapping[str, Any]]] = {
    "always inline": (chain, always_inline, (inline, threads_and_vectors), {"t.inline": 0}),
    "compute location": (chain, compute_at_root_or_loop, (compute_location, threads_and_vectors), {"t.location": 1}),
    "multi-level tiling": (
        dense,
        multi_level_tiling,
        (tiling("SSRS"), threads_and_vectors),
        {**TILE, "c.vectors": 2, "c.rows0": 4, "c.outer1": (1, 4), "c.unroll": 4},
    ),
    "multi-level tiling with fusion": (
        dense_relu,
        multi_level_tiling_with_fusion,
        (tiling("SSRS"), threads_and_vectors),
        {**TILE, "c.vectors": 4, "c.rows0": 2, "c.outer0": (2, 4), "c.outer1": (1, 2), "c.unroll": 1},
    ),
    "`depthwise_conv2d_NCHWc.x86`": (
        depthwise,
        depthwise_template,
        (tiling("SRS"), threads_and_vectors),
        {"y.lane": 2, "y.vectors": 2, "y.rows0": 1, "y.rows1": 4, "y.read0": 0, "y.read1": 0, "y.whole": 0, "y.unroll": 1},
    ),
    "`dense_int8.x86`": (
        int8_dense,
        int8_template,
        (tensor_tiling,),
        {"c.tensor_tiling": 0, "c.tiles": 2, "c.tile0_0": (3, 2), "c.tile0_1": (3, 1)},
    ),
    "reduction factorization": (norms, reduction_factorization, (rfactor, threads_and_vectors), {"y.rfactor": 0, "y.lanes": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_schedule_is_in_the_space(name: str) -> None:
    kernel, by_hand, modules, decisions = CASES[name]
    space = Space(modules, bits="any")
    assert_same(space.schedule(kernel, decisions, AVX2).program, by_hand().program)
    (row,) = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {name} |")]
    assert f"`{modules[0].name.removesuffix('_SSRS').removesuffix('_SRS')}" in row, "the page names the module"
