"""What moves memory, against numpy: permutes, broadcasts, copies of parts, for all sizes of elements and odd, tiny and empty dims."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import call, compiled, without
from pliant import Out, Tensor, alloc, bool_, dim, f16, f32, f64, function, i32, i64, kernel, ops, u8, unroll, vector
from pliant.dtype import ALL, DType, pack, unpack
from pliant.interp.graph import run_graph

a, b, c, d = (dim(name) for name in "abcd")
p, q = (dim(name, multiple_of=4) for name in "pq")  # whole bytes of any storage type
SIZES = (0, 1, 3, 16, 17, 33, 67)
STORAGE = [t for t in ALL.values() if t.storage]


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    """Numbers that are different from their neighbors, in any dtype."""
    raw = np.random.default_rng(seed).integers(0, 127, shape)
    return (raw % 2).astype(np.bool_) if dtype is np.bool_ else raw.astype(dtype)


def square_of(dtype: Any) -> Any:
    @function
    def turn(x: Tensor[dtype, a, b]) -> Tensor[dtype, b, a]:  # type: ignore[valid-type]
        return ops.permute(x, (1, 0))

    return turn


@pytest.mark.parametrize(("dtype", "numpy"), [(u8, np.uint8), (bool_, np.bool_), (f16, np.float16), (i32, np.int32), (f64, np.float64)])
def test_transposes_of_any_size_and_dtype(dtype: Any, numpy: Any) -> None:
    f: Any = pliant.compile(square_of(dtype))
    for rows, columns in itertools.product(SIZES, SIZES):
        x = numbers((rows, columns), numpy)
        assert np.array_equal(f(x), x.T), (rows, columns)


@pytest.mark.parametrize("dtype", STORAGE, ids=str)
def test_transposes_of_storage_types(dtype: DType) -> None:
    @function
    def turn(x: Tensor[dtype, p, q]) -> Tensor[dtype, q, p]:  # type: ignore[valid-type]
        return ops.permute(x, (1, 0))

    f: Any = pliant.compile(turn)
    for rows, columns in itertools.product((0, 4, 16, 20, 36, 68), repeat=2):
        x = numbers((rows, columns), np.float32).astype(dtype.numpy())
        y = unpack(f(pack(x, dtype)), dtype) if dtype.bits < 8 else f(x)
        assert y.dtype == x.dtype and y.tobytes() == x.T.tobytes(), (rows, columns)


@pytest.mark.parametrize("steps", [without(), without("fuse")], ids=["fused", "apart"])
@pytest.mark.parametrize("dtype", [t for t in STORAGE if t.is_int], ids=str)
def test_codes_in_chains_are_transposed(dtype: DType, steps: Any) -> None:
    @function
    def f(x: Tensor[f32, p, q], y: Tensor[f32, q, 3]) -> tuple[Tensor[f32, q, p], Tensor[f32, p, 3], Tensor[f32, q, p]]:
        codes = ops.quantize_linear(x, 0.5, dtype=dtype)
        values = ops.dequantize_linear(codes, 0.25)
        turned = ops.dequantize_linear(ops.permute(codes, (1, 0)), 0.5)
        return ops.permute(ops.maximum(values, -0.25), (1, 0)), values @ y, turned

    native = compiled(f.graph, steps, poison=True)
    for rows, columns in [(4, 4), (16, 16), (20, 36), (36, 48), (64, 4), (0, 8)]:
        arguments = [(numbers((rows, columns), np.float32) % 17 - 8) / 2, numbers((columns, 3), np.float32, 1)]
        for found, want in zip(call(native, arguments), run_graph(f.graph, arguments), strict=True):
            assert np.array_equal(found, want), (rows, columns)


def permutes() -> dict[tuple[int, ...], Any]:
    @function
    def last_first(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, d, b, c]:
        return ops.permute(x, (0, 3, 1, 2))

    @function
    def second_last(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, c, d, b]:
        return ops.permute(x, (0, 2, 3, 1))

    @function
    def middle(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, a, c, b, d]:
        return ops.permute(x, (0, 2, 1, 3))

    @function
    def reverse(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, d, c, b, a]:
        return ops.permute(x, (3, 2, 1, 0))

    @function
    def front(x: Tensor[f32, a, b, c, d]) -> Tensor[f32, c, d, a, b]:
        return ops.permute(x, (2, 3, 0, 1))

    return {(0, 3, 1, 2): last_first, (0, 2, 3, 1): second_last, (0, 2, 1, 3): middle, (3, 2, 1, 0): reverse, (2, 3, 0, 1): front}


@pytest.mark.parametrize("order", permutes())
def test_permutes(order: tuple[int, ...]) -> None:
    f: Any = pliant.compile(permutes()[order])
    for shape in [
        (1, 1, 1, 1),
        (2, 3, 5, 7),
        (3, 17, 19, 33),
        (2, 64, 16, 16),
        (1, 33, 7, 3),
        (0, 4, 5, 6),
        (2, 0, 3, 4),
        (2, 5, 3, 0),
        (16, 1, 1, 40),
    ]:
        x = numbers(shape, np.float32)
        assert np.array_equal(f(x), x.transpose(order)), shape


def test_a_map_reads_across() -> None:
    @function
    def f(x: Tensor[f32, a, b], y: Tensor[f32, b, a], z: Tensor[f32, a]) -> Tensor[f32, b, a]:
        return ops.permute(x, (1, 0)) * 2.0 + y * z

    compiled: Any = pliant.compile(f)
    for rows, columns in [(1, 1), (16, 16), (35, 50), (50, 35), (0, 8)]:
        x, y, z = numbers((rows, columns), np.float32), numbers((columns, rows), np.float32, 1), numbers((rows,), np.float32, 2)
        assert np.array_equal(compiled(x, y, z), x.T * 2 + y * z)


def test_static_sizes_that_are_no_multiples_of_a_tile() -> None:
    @function
    def f(x: Tensor[i64, 37, 29]) -> Tensor[i64, 29, 37]:
        return ops.permute(x, (1, 0))

    x = numbers((37, 29), np.int64)
    assert np.array_equal(f(x), x.T)


@kernel(scheduled=True)
def columns_of_registers(x: Tensor[i32, 12, 24], y: Out[i32, 24, 8], z: Out[i32, 24, 8]) -> None:
    rows = alloc((12, 24), i32, scope="register")
    for r in unroll(12):
        for e in vector(24):
            rows[r, e] = x[r, e]
    for i in unroll(24):
        for j in vector(8):
            y[i, j] = rows[j + 4, i]
    for r in unroll(12):
        for e in vector(24):
            rows[r, e] = x[r, e] + 1
    for i in unroll(24):
        for j in vector(8):
            z[i, j] = rows[j + 4, i]


def test_columns_of_registers_are_those_of_the_rows_that_were_written_last() -> None:
    x = numbers((12, 24), np.int32)
    y, z = columns_of_registers(x)
    assert np.array_equal(y, x[4:].T) and np.array_equal(z, x[4:].T + 1)


def test_rows_are_gathered_and_their_indices_checked() -> None:
    @function
    def f(x: Tensor[f32, a, b], i: Tensor[i64, c]) -> Tensor[f32, c, b]:
        return ops.take(x, i, 0)

    compiled: Any = pliant.compile(f)
    for rows, columns, count in [(5, 37, 9), (1, 16, 3), (7, 1, 40), (3, 0, 4), (4, 5, 0)]:
        x = numbers((rows, columns), np.float32)
        i = np.random.default_rng(0).integers(-rows, rows, count)
        assert np.array_equal(compiled(x, i), x[i])
    with pytest.raises(pliant.Error, match="index 4 is outside of dim 0, which has 3 elements"):
        compiled(numbers((3, 33), np.float32), np.array([0, 4, 5]))
    assert compiled(numbers((3, 0), np.float32), np.array([9])).shape == (1, 0)  # no element, no check


def test_channels_get_a_bias_whatever_the_images() -> None:
    @function
    def f(x: Tensor[f32, a, 24, c, d], y: Tensor[f32, 24, 1, 1]) -> Tensor[f32, a, 24, c, d]:
        return x * 2.0 + y

    compiled: Any = pliant.compile(f)
    y = numbers((24, 1, 1), np.float32, 1)
    for count, rows, columns in [(1, 7, 7), (3, 1, 1), (2, 16, 3), (1, 33, 17), (0, 4, 4), (2, 0, 5), (2, 5, 0)]:
        x = numbers((count, 24, rows, columns), np.float32)
        assert np.array_equal(compiled(x, y), x * 2 + y)


def test_parts_of_rows_that_are_no_run() -> None:
    @function
    def f(x: Tensor[f32, a, 16, c, 8], y: Tensor[f32, a, 16, c, 1]) -> Tensor[f32, a, 16, c, 8]:
        return x + y

    compiled: Any = pliant.compile(f)
    for count, rows in [(1, 1), (2, 5), (3, 0), (1, 33)]:
        x, y = numbers((count, 16, rows, 8), np.float32), numbers((count, 16, rows, 1), np.float32, 1)
        assert np.array_equal(compiled(x, y), x + y)


def test_concat_and_pad_along_each_axis() -> None:
    @function
    def f(x: Tensor[u8, a, 16, c, d], y: Tensor[u8, a, 8, c, d]) -> Tensor[u8, a, 24, c, d]:
        return ops.concat([x, y], 1)

    @function
    def g(x: Tensor[i64, a, b], y: Tensor[i64, a, c]) -> Tensor[i64, a + 1, b + c + 3]:
        return ops.pad(ops.concat([x, y], 1), ((1, 0), (1, 2)), value=7)

    joined, padded = pliant.compile(f), pliant.compile(g)
    for count, rows, columns in [(2, 3, 5), (1, 16, 16), (0, 2, 2), (2, 0, 3)]:
        x, y = numbers((count, 16, rows, columns), np.uint8), numbers((count, 8, rows, columns), np.uint8, 1)
        assert np.array_equal(joined(x, y), np.concatenate([x, y], 1))
        x, y = numbers((count, rows), np.int64), numbers((count, columns), np.int64, 1)
        assert np.array_equal(padded(x, y), np.pad(np.concatenate([x, y], 1), ((1, 0), (1, 2)), constant_values=7))
