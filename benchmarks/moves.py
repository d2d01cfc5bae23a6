"""What moves memory and computes little: maps and broadcasts, permutes, copies of parts, gathers, scans, sorts, pools, resizes.

python benchmarks/moves.py [--rounds 3] [--part permute] [--contestant …]

Ours, torch and numpy with 2 threads (PLIANT_NUM_THREADS says otherwise), all sizes of ours dynamic but for channels; and the machine's
limit, a copy by a plain loop of ours of as many bytes as a case reads and writes. Results are made anew by every call, as users call
these, in memory that the process keeps: fresh pages would cost more than what is measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pliant
from contest import Figures, Times, contest
from pliant import Tensor, bool_, dim, f16, f32, f64, function, i64, ops, u8
from pliant.machine_peak import best_time

THREADS = int(os.environ.get("PLIANT_NUM_THREADS", "2"))
SECONDS = float(os.environ.get("PLIANT_BENCH_SECONDS", "0.15"))  # of each case
a, b, c, d, e = (dim(name) for name in "abcde")
Array = Any
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**32)}  # what is freed stays with the process


@dataclass(frozen=True)
class Case:
    """A program of ours, the same in torch and in numpy, and arguments."""

    program: Any
    torch: Callable[..., object] | None
    numpy: Callable[..., object] | None
    arguments: Sequence[Callable[[np.random.Generator], Array]]


CASES: dict[str, Case] = {}


def case(name: str, torch: Callable[..., object] | None, numpy: Callable[..., object] | None, *arguments: Any) -> Callable[[Any], Any]:
    """Enters a program of ours into the table, with what it is in torch (whose module is the first argument) and in numpy."""

    def enter(program: Any) -> Any:
        CASES[name] = Case(program, torch, numpy, arguments)
        return program

    return enter


def floats(*shape: int, dtype: Any = np.float32) -> Callable[[np.random.Generator], Array]:
    """Random numbers of that shape."""
    return lambda rng: rng.standard_normal(shape).astype(dtype)


def integers(*shape: int, below: int, dtype: Any = np.int64) -> Callable[[np.random.Generator], Array]:
    """Random numbers from 0."""
    return lambda rng: rng.integers(0, below, shape).astype(dtype)


def copied(x: Array) -> Array:
    """An array in C order of its own."""
    return np.array(x, order="C")


# maps and broadcasts


@case("map 4M", lambda t, x: x * 2.0, lambda x: x * np.float32(2), floats(2048, 2048))
@function
def map_flat(x: Tensor[f32, a, b]) -> Tensor[f32, a, b]:
    return x * 2.0


@case("map of 4 dims, rows of 7", lambda t, x, y: x + y, np.add, floats(64, 64, 128, 7), floats(64, 64, 128, 7))
@function
def map_narrow(x: Tensor[f32, a, b, c, d], y: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, c, d]:
    return x + y


@case(
    "map u8 to f32",
    lambda t, x: x.float() * (1 / 255),
    lambda x: x * np.float32(1 / 255),
    integers(4, 3, 512, 512, below=256, dtype=np.uint8),
)
@function
def map_bytes(x: Tensor[u8, a, b, c, d]) -> Tensor[f32, a, b, c, d]:
    return ops.cast(x, f32) * (1 / 255)


@case("map f16", lambda t, x: x * 2.0, lambda x: x * np.float16(2), floats(2048, 2048, dtype=np.float16))
@function
def map_half(x: Tensor[f16, a, b]) -> Tensor[f16, a, b]:
    return x * 2.0


@case("compare to bool", lambda t, x, y: x < y, np.less, floats(2048, 2048), floats(2048, 2048))
@function
def compare(x: Tensor[f32, a, b], y: Tensor[f32, a, b]) -> Tensor[bool_, a, b]:
    return ops.less(x, y)


@case("bias of columns", lambda t, x, y: x + y, np.add, floats(4096, 768), floats(768))
@function
def bias_columns(x: Tensor[f32, a, b], y: Tensor[f32, b]) -> Tensor[f32, a, b]:
    return x + y


@case("bias of columns, rows of 20", lambda t, x, y: x + y, np.add, floats(200000, 20), floats(20))
@function
def bias_narrow(x: Tensor[f32, a, b], y: Tensor[f32, b]) -> Tensor[f32, a, b]:
    return x + y


@case("bias of rows", lambda t, x, y: x + y, np.add, floats(4096, 768), floats(4096, 1))
@function
def bias_rows(x: Tensor[f32, a, b], y: Tensor[f32, a, 1]) -> Tensor[f32, a, b]:
    return x + y


@case("bias of channels, 56x56", lambda t, x, y: x + y, np.add, floats(16, 64, 56, 56), floats(64, 1, 1))
@function
def bias_channels(x: Tensor[f32, a, 64, c, d], y: Tensor[f32, 64, 1, 1]) -> Tensor[f32, a, 64, c, d]:
    return x + y


@case("bias of channels, 7x7", lambda t, x, y: x + y, np.add, floats(32, 2048, 7, 7), floats(2048, 1, 1))
@function
def bias_small_images(x: Tensor[f32, a, 2048, c, d], y: Tensor[f32, 2048, 1, 1]) -> Tensor[f32, a, 2048, c, d]:
    return x + y


# permutes


@case("permute 4096x1024", lambda t, x: x.t().contiguous(), lambda x: copied(x.T), floats(4096, 1024))
@function
def transpose(x: Tensor[f32, a, b]) -> Tensor[f32, b, a]:
    return ops.permute(x, (1, 0))


@case("permute 1009x2003", lambda t, x: x.t().contiguous(), lambda x: copied(x.T), floats(1009, 2003))
@function
def transpose_odd(x: Tensor[f32, a, b]) -> Tensor[f32, b, a]:
    return ops.permute(x, (1, 0))


@case("permute 2048x2048 u8", lambda t, x: x.t().contiguous(), lambda x: copied(x.T), integers(2048, 2048, below=256, dtype=np.uint8))
@function
def transpose_bytes(x: Tensor[u8, a, b]) -> Tensor[u8, b, a]:
    return ops.permute(x, (1, 0))


@case("permute 2048x2048 f16", lambda t, x: x.t().contiguous(), lambda x: copied(x.T), floats(2048, 2048, dtype=np.float16))
@function
def transpose_half(x: Tensor[f16, a, b]) -> Tensor[f16, b, a]:
    return ops.permute(x, (1, 0))


@case("permute 1024x2048 f64", lambda t, x: x.t().contiguous(), lambda x: copied(x.T), floats(1024, 2048, dtype=np.float64))
@function
def transpose_double(x: Tensor[f64, a, b]) -> Tensor[f64, b, a]:
    return ops.permute(x, (1, 0))


@case(
    "permute NCHW to NHWC, 64 channels",
    lambda t, x: x.permute(0, 2, 3, 1).contiguous(),
    lambda x: copied(x.transpose(0, 2, 3, 1)),
    floats(8, 64, 56, 56),
)
@function
def channels_last(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, c, d, b]:
    return ops.permute(x, (0, 2, 3, 1))


@case(
    "permute NHWC to NCHW, 64 channels",
    lambda t, x: x.permute(0, 3, 1, 2).contiguous(),
    lambda x: copied(x.transpose(0, 3, 1, 2)),
    floats(8, 56, 56, 64),
)
@function
def channels_first(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, d, b, c]:
    return ops.permute(x, (0, 3, 1, 2))


@case(
    "permute NHWC to NCHW, 3 channels u8",
    lambda t, x: x.permute(0, 3, 1, 2).contiguous(),
    lambda x: copied(x.transpose(0, 3, 1, 2)),
    integers(4, 512, 512, 3, below=256, dtype=np.uint8),
)
@function
def image_first(x: Tensor[u8, a, b, c, 3]) -> Tensor[u8, a, 3, b, c]:
    return ops.permute(x, (0, 3, 1, 2))


@case(
    "permute NCHW to NHWC, 3 channels",
    lambda t, x: x.permute(0, 2, 3, 1).contiguous(),
    lambda x: copied(x.transpose(0, 2, 3, 1)),
    floats(4, 3, 512, 512),
)
@function
def image_last(x: Tensor[f32, a, 3, c, d]) -> Tensor[f32, a, c, d, 3]:
    return ops.permute(x, (0, 2, 3, 1))


@case(
    "permute 0213, rows of 64",
    lambda t, x: x.permute(0, 2, 1, 3).contiguous(),
    lambda x: copied(x.transpose(0, 2, 1, 3)),
    floats(8, 512, 12, 64),
)
@function
def heads(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, c, b, d]:
    return ops.permute(x, (0, 2, 1, 3))


@case("permute 210", lambda t, x: x.permute(2, 1, 0).contiguous(), lambda x: copied(x.T), floats(128, 160, 192))
@function
def reverse_axes(x: Tensor[f32, a, b, c]) -> Tensor[f32, c, b, a]:
    return ops.permute(x, (2, 1, 0))


@case("permute 102, rows of 5", lambda t, x: x.permute(1, 0, 2).contiguous(), lambda x: copied(x.transpose(1, 0, 2)), floats(640, 640, 5))
@function
def swap_narrow(x: Tensor[f32, a, b, c]) -> Tensor[f32, b, a, c]:
    return ops.permute(x, (1, 0, 2))


# copies of parts


@case(
    "part: concat along 0", lambda t, x, y: t.cat([x, y], 0), lambda x, y: np.concatenate([x, y], 0), floats(1500, 1024), floats(1500, 1024)
)
@function
def concat_rows(x: Tensor[f32, a, c], y: Tensor[f32, b, c]) -> Tensor[f32, a + b, c]:
    return ops.concat([x, y], 0)


@case(
    "part: concat along 1", lambda t, x, y: t.cat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), floats(1500, 1024), floats(1500, 700)
)
@function
def concat_columns(x: Tensor[f32, a, b], y: Tensor[f32, a, c]) -> Tensor[f32, a, b + c]:
    return ops.concat([x, y], 1)


@case(
    "part: concat channels",
    lambda t, x, y: t.cat([x, y], 1),
    lambda x, y: np.concatenate([x, y], 1),
    floats(8, 64, 40, 40),
    floats(8, 128, 40, 40),
)
@function
def concat_channels(x: Tensor[f32, a, 64, d, e], y: Tensor[f32, a, 128, d, e]) -> Tensor[f32, a, 192, d, e]:
    return ops.concat([x, y], 1)


@case(
    "part: concat along 1 of columns",
    lambda t, x, y: t.cat([x, y], 1),
    lambda x, y: np.concatenate([x, y], 1),
    floats(200000, 4),
    floats(200000, 1),
)
@function
def concat_narrow(x: Tensor[f32, a, b], y: Tensor[f32, a, c]) -> Tensor[f32, a, b + c]:
    return ops.concat([x, y], 1)


@case(
    "part: pad images",
    lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1)),
    lambda x: np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))),
    floats(8, 64, 56, 56),
)
@function
def pad_images(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, c + 2, d + 2]:
    return ops.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))


@case(
    "part: reflect images",
    lambda t, x: t.nn.functional.pad(x, (3, 3, 3, 3), mode="reflect"),
    lambda x: np.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3)), "reflect"),
    floats(8, 64, 56, 56),
)
@function
def reflect_images(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, c + 6, d + 6]:
    return ops.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3)), mode="reflect")


@case("part: slice of columns", lambda t, x: x[:, 100:900].contiguous(), lambda x: copied(x[:, 100:900]), floats(3000, 1024))
@function
def slice_columns(x: Tensor[f32, a, 1024]) -> Tensor[f32, a, 800]:
    return ops.slice(x, 1, 100, 900)


@case("part: every second column", lambda t, x: x[:, ::2].contiguous(), lambda x: copied(x[:, ::2]), floats(3000, 2048))
@function
def slice_steps(x: Tensor[f32, a, 2048]) -> Tensor[f32, a, 1024]:
    return ops.slice(x, 1, 0, 2048, 2)


@case("part: flip columns", lambda t, x: x.flip(1), lambda x: copied(x[:, ::-1]), floats(3000, 1024))
@function
def flip_columns(x: Tensor[f32, a, b]) -> Tensor[f32, a, b]:
    return ops.flip(x, 1)


@case("part: pixel shuffle", lambda t, x: t.nn.functional.pixel_shuffle(x, 2), None, floats(8, 64, 56, 56))
@function
def shuffle(x: Tensor[f32, a, 64, c, d]) -> Tensor[f32, a, 16, c * 2, d * 2]:
    return ops.pixel_shuffle(x, 2)


# gathers and scatters


@case("gather rows of 384", lambda t, w, i: w[i], lambda w, i: w[i], floats(30000, 384), integers(4096, below=30000))
@function
def gather_rows(w: Tensor[f32, a, b], i: Tensor[i64, c]) -> Tensor[f32, c, b]:
    return ops.take(w, i, 0)


@case("gather rows of 8", lambda t, w, i: w[i], lambda w, i: w[i], floats(30000, 8), integers(100000, below=30000))
@function
def gather_narrow(w: Tensor[f32, a, b], i: Tensor[i64, c]) -> Tensor[f32, c, b]:
    return ops.take(w, i, 0)


@case("gather columns", lambda t, w, i: w[:, i], lambda w, i: w[:, i], floats(3000, 1024), integers(700, below=1024))
@function
def gather_columns(w: Tensor[f32, a, b], i: Tensor[i64, c]) -> Tensor[f32, a, c]:
    return ops.take(w, i, 1)


@case(
    "gather along 1 (take_along)",
    lambda t, w, i: t.gather(w, 1, i),
    lambda w, i: np.take_along_axis(w, i, 1),
    floats(3000, 1024),
    integers(3000, 512, below=1024),
)
@function
def take_along(w: Tensor[f32, a, b], i: Tensor[i64, a, c]) -> Tensor[f32, a, c]:
    return ops.gather(w, i, 1)


def _put(x: Array, i: Array, u: Array) -> Array:
    y = x.copy()
    y[i] = u
    return y


@case(
    "scatter rows of 384", lambda t, x, i, u: x.index_copy(0, i, u), _put, floats(8000, 384), integers(2000, below=8000), floats(2000, 384)
)
@function
def scatter_rows(x: Tensor[f32, a, b], i: Tensor[i64, c], u: Tensor[f32, c, b]) -> Tensor[f32, a, b]:
    return ops.scatter_nd(x, ops.unsqueeze(i, 1), u)


def _add_at(x: Array, i: Array, u: Array) -> Array:
    y = x.copy()
    np.add.at(y, i, u)
    return y


@case(
    "scatter-add rows of 384",
    lambda t, x, i, u: x.index_add(0, i, u),
    _add_at,
    floats(8000, 384),
    integers(2000, below=8000),
    floats(2000, 384),
)
@function
def scatter_add(x: Tensor[f32, a, b], i: Tensor[i64, c], u: Tensor[f32, c, b]) -> Tensor[f32, a, b]:
    return ops.scatter_nd(x, ops.unsqueeze(i, 1), u, reduction="add")


# scans and sorts


@case("scan: cumsum along rows", lambda t, x: x.cumsum(1), lambda x: x.cumsum(1), floats(2048, 1024))
@function
def cumsum_rows(x: Tensor[f32, a, b]) -> Tensor[f32, a, b]:
    return ops.cumsum(x, 1)


@case("scan: cumsum along columns", lambda t, x: x.cumsum(0), lambda x: x.cumsum(0), floats(2048, 1024))
@function
def cumsum_columns(x: Tensor[f32, a, b]) -> Tensor[f32, a, b]:
    return ops.cumsum(x, 0)


@case("scan: cumsum i64 of one row", lambda t, x: x.cumsum(0), lambda x: x.cumsum(0), integers(1000000, below=10))
@function
def cumsum_one(x: Tensor[i64, a]) -> Tensor[i64, a]:
    return ops.cumsum(x, 0)


@case("scan: cummax along rows", lambda t, x: x.cummax(1), None, floats(2048, 1024))
@function
def cummax_rows(x: Tensor[f32, a, b]) -> tuple[Tensor[f32, a, b], Tensor[i64, a, b]]:
    return ops.cummax(x, 1)


@case(
    "sort rows of 1000",
    lambda t, x: x.sort(dim=1, stable=True),
    lambda x: (np.sort(x, 1), np.argsort(x, 1, kind="stable")),
    floats(256, 1000),
)
@function
def sort_rows(x: Tensor[f32, a, b]) -> tuple[Tensor[f32, a, b], Tensor[i64, a, b]]:
    return ops.sort(x, 1)


@case(
    "sort one row of 200000", lambda t, x: x.sort(dim=0, stable=True), lambda x: (np.sort(x), np.argsort(x, kind="stable")), floats(200000)
)
@function
def sort_one(x: Tensor[f32, a]) -> tuple[Tensor[f32, a], Tensor[i64, a]]:
    return ops.sort(x, 0)


@case(
    "sort i64 rows of 1000",
    lambda t, x: x.sort(dim=1, stable=True),
    lambda x: (np.sort(x, 1), np.argsort(x, 1, kind="stable")),
    integers(256, 1000, below=10**6),
)
@function
def sort_integers(x: Tensor[i64, a, b]) -> tuple[Tensor[i64, a, b], Tensor[i64, a, b]]:
    return ops.sort(x, 1)


@case(
    "sort columns", lambda t, x: x.sort(dim=0, stable=True), lambda x: (np.sort(x, 0), np.argsort(x, 0, kind="stable")), floats(1000, 256)
)
@function
def sort_columns(x: Tensor[f32, a, b]) -> tuple[Tensor[f32, a, b], Tensor[i64, a, b]]:
    return ops.sort(x, 0)


@case("sort: topk 5 of 32000", lambda t, x: x.topk(5), None, floats(64, 32000))
@function
def topk_few(x: Tensor[f32, a, b]) -> tuple[Tensor[f32, a, 5], Tensor[i64, a, 5]]:
    return ops.topk(x, 5)


@case("sort: topk 50 of 1000", lambda t, x: x.topk(50), None, floats(1024, 1000))
@function
def topk_some(x: Tensor[f32, a, b]) -> tuple[Tensor[f32, a, 50], Tensor[i64, a, 50]]:
    return ops.topk(x, 50)


@case("sort: topk 300 of 8400", lambda t, x: x.topk(300), None, floats(16, 8400))
@function
def topk_many(x: Tensor[f32, a, b]) -> tuple[Tensor[f32, a, 300], Tensor[i64, a, 300]]:
    return ops.topk(x, 300)


# pools and resizes


@case("pool: max 2x2", lambda t, x: t.nn.functional.max_pool2d(x, 2), None, floats(8, 64, 56, 56))
@function
def max_pool_2(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, (c - 2) // 2 + 1, (d - 2) // 2 + 1]:
    return ops.max_pool(x, (2, 2))


@case("pool: max 3x3 step 2, padded", lambda t, x: t.nn.functional.max_pool2d(x, 3, 2, 1), None, floats(8, 64, 112, 112))
@function
def max_pool_3(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, (c - 1) // 2 + 1, (d - 1) // 2 + 1]:
    return ops.max_pool(x, (3, 3), stride=2, padding=1)


@case("pool: max 5x5 step 1, padded, 20x20", lambda t, x: t.nn.functional.max_pool2d(x, 5, 1, 2), None, floats(8, 128, 20, 20))
@function
def max_pool_5(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, c, d]:
    return ops.max_pool(x, (5, 5), stride=1, padding=2)


@case("pool: avg 2x2", lambda t, x: t.nn.functional.avg_pool2d(x, 2), None, floats(8, 64, 56, 56))
@function
def avg_pool_2(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, (c - 2) // 2 + 1, (d - 2) // 2 + 1]:
    return ops.avg_pool(x, (2, 2))


@case("resize: nearest x2", lambda t, x: t.nn.functional.interpolate(x, scale_factor=2), None, floats(4, 64, 40, 40))
@function
def nearest(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, c * 2, d * 2]:
    return ops.resize(x, scales=(1, 1, 2, 2), mode="nearest", coordinates="asymmetric", nearest="floor")


@case("resize: linear x2", lambda t, x: t.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), None, floats(4, 64, 40, 40))
@function
def linear(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, c * 2, d * 2]:
    return ops.resize(x, scales=(1, 1, 2, 2), mode="linear")


@case("resize: linear to 224x224", lambda t, x: t.nn.functional.interpolate(x, (224, 224), mode="bilinear"), None, floats(4, 3, 480, 640))
@function
def linear_down(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, b, 224, 224]:
    return ops.resize(x, sizes=(a, b, 224, 224), mode="linear")


@function
def copy(x: Tensor[f32, a]) -> Tensor[f32, a]:
    return x * 1.0


def given(name: str) -> list[Array]:
    """The arguments of a case."""
    rng = np.random.default_rng(0)
    return [make(rng) for make in CASES[name].arguments]


def microseconds(run: Callable[[], object]) -> float:
    """Of the best run."""
    return best_time(run, SECONDS) * 1e6


def chosen() -> list[str]:
    """The cases whose names begin with what PLIANT_BENCH_CASES says."""
    return [name for name in CASES if name.startswith(os.environ.get("PLIANT_BENCH_CASES", ""))]


def ours() -> Figures:
    found: Figures = {}
    for name in chosen():
        f, args = pliant.compile(CASES[name].program, threads=THREADS), given(name)
        found[name] = microseconds(lambda f=f, args=args: f(*args))
    return found


def in_torch() -> Figures:
    import torch

    torch.set_num_threads(THREADS)
    found: Figures = {}
    for name in chosen():
        run, args = CASES[name].torch, [torch.from_numpy(x) for x in given(name)]
        if run is not None:
            found[name] = microseconds(lambda run=run, args=args: run(torch, *args))
    return found


def in_numpy() -> Figures:
    found: Figures = {}
    for name in chosen():
        run, args = CASES[name].numpy, given(name)
        if run is not None:
            found[name] = microseconds(lambda run=run, args=args: run(*args))
    return found


def limit() -> Figures:
    """A copy of as many bytes as each case reads and writes."""
    f: Any = pliant.compile(copy, threads=THREADS)
    found: Figures = {}
    for name in chosen():
        x = np.ones(max(moved(name) // 8, 1), np.float32)
        found[name] = microseconds(lambda x=x: f(x))
    return found


def moved(name: str) -> int:
    """Bytes that a case reads and writes: of what is picked only as many as are picked."""
    args = given(name)
    results = CASES[name].program(*args)
    written = sum(r.nbytes for r in (results if isinstance(results, tuple) else (results,)))
    picked = name.startswith("gather")
    return int(written * 2 + args[1].nbytes if picked else written + sum(x.nbytes for x in args))


CONTESTANTS = {"pliant": ours, "torch": in_torch, "numpy": in_numpy, "copy": limit}


def report(times: Times) -> None:
    """Ours, and how many times as long the others take."""
    print(f"{'ours in microseconds; how many times faster than':48} {'ours':>9} {'torch':>7} {'numpy':>7} {'copy':>7}")
    for name in CASES:
        mine = times.get(f"pliant, {name}")
        if mine:
            cells = [_ratio(times.get(f"{who}, {name}"), mine) for who in ("torch", "numpy", "copy")]
            print(f"{name:48} {min(mine):9.0f} {' '.join(cells)}")


def _ratio(theirs: list[float] | None, mine: list[float]) -> str:
    return f"{min(theirs) / min(mine):7.2f}" if theirs else f"{'–':>7}"


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, f"microseconds, {THREADS} threads", report, listed=lambda name: False, env=KEPT)
