"""Programs of video streams: which pixels they compute, what they keep, limits, and frames that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.support.errors import ShapeError, UnsupportedError
from pliant.video.program import ALWAYS_LISTS, StreamProgram, compile_stream

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
W1, W2 = (RNG.standard_normal(s).astype(np.float32) / 4 for s in ((8, 3, 3, 3), (8, 8, 3, 3)))
h, w, n = dim("h"), dim("w"), dim("n")


@function
def two_layers(x: Tensor[f32, 1, 3, h, w]) -> tuple[Tensor[f32, 1, 8, h, w], Tensor[f32, 1, 8]]:
    y = ops.conv(ops.conv(x, W1, padding=1), W2, padding=1)
    return y, ops.mean(y, axis=[2, 3])


@pytest.fixture(scope="module")
def program() -> StreamProgram:
    return compile_stream(two_layers, size=(11, 14), threads=1)


def frame_of(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((1, 3, 11, 14)).astype(np.float32)


def correlated(x: Array, weight: Array) -> Array:
    """A 3x3 convolution with a border of zeros, by numpy in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.float64))


def test_only_pixels_that_depend_on_changed_ones_are_computed(program: StreamProgram) -> None:
    state, frame = program.new_state(), frame_of(1)
    program.step(frame, state, program.exact)
    assert state.counts.tolist() == [154, 154, 154]
    frame = frame.copy()
    frame[0, 1, 5, 7] += 1
    program.step(frame, state, program.exact)
    assert state.counts.tolist() == [1, 9, 25]  # windows of 3x3, twice
    frame = frame.copy()
    frame[0, :, 0, 13] += 1
    program.step(frame, state, program.exact)
    assert state.counts.tolist() == [1, 4, 9]  # in a corner
    program.step(frame, state, program.exact)
    assert state.counts[0] == 0


def test_results_are_those_of_numpy(program: StreamProgram) -> None:
    state, frame = program.new_state(), frame_of(2)
    for k in range(4):
        found = program.step(frame, state, program.exact, ALWAYS_LISTS)
        want = correlated(correlated(frame, W1), W2)
        y, mean = found.values()
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(mean, want.mean((2, 3)), rtol=1e-4, atol=1e-4)
        frame = frame.copy()
        frame[0, k % 3, 2 * k : 2 * k + 3, k : k + 5] *= -1.5


def test_long_sums_have_the_bits_of_whole_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_DISABLE", "winograd_convolutions,pointwise_convolutions")
    wide, narrow, windows = (RNG.standard_normal(s).astype(np.float32) / 20 for s in ((520, 3, 1, 1), (18, 520, 1, 1), (20, 520, 3, 3)))

    @function
    def heads(x: Tensor[f32, 1, 3, 9, 7]) -> tuple[Tensor[f32, 1, 18, 9, 7], Tensor[f32, 1, 20, 9, 7]]:
        y = ops.silu(ops.conv(x, wide))
        return ops.conv(y, narrow), ops.conv(y, windows, padding=1)

    stream, whole = compile_stream(heads, threads=2), pliant.compile(heads, threads=2)
    state, frame = stream.new_state(), np.random.default_rng(6).standard_normal((1, 3, 9, 7)).astype(np.float32)
    for k in range(4):
        found = stream.step(frame, state, stream.exact, ALWAYS_LISTS)
        for a, b in zip(found.values(), whole(frame), strict=True):
            np.testing.assert_array_equal(a.view(np.uint32), np.asarray(b).view(np.uint32))
        frame = frame.copy()
        frame[0, :, k : k + 4, k : k + 2] += 1


def test_integer_nets_have_the_bits_of_whole_frames(tmp_path: Path) -> None:
    """Their weights are turned by a pass, and are literals of the stream's program."""
    onnx = pytest.importorskip("onnx", reason="the net is written with the package onnx")
    from qdq_models import residual_net

    onnx.save(residual_net(quantized=True, width=16, blocks=(1,), size=24), tmp_path / "net.onnx")
    stream, whole = compile_stream(tmp_path / "net.onnx", threads=1), pliant.compile(tmp_path / "net.onnx", threads=1)
    state, frame = stream.new_state(), np.random.default_rng(7).standard_normal((1, 3, 24, 24)).astype(np.float32)
    for k in range(4):
        for y in stream.step(frame, state, stream.exact).values():
            np.testing.assert_array_equal(y, whole(frame))
        frame = frame.copy()
        frame[0, :, 4 * k : 4 * k + 5, 3:9] *= 1 + k


def test_signs_of_zeros_and_nans_are_changes(program: StreamProgram) -> None:
    state, frame = program.new_state(), frame_of(3)
    frame[0, 0, 2, 2], frame[0, 0, 8, 8] = 0.0, np.nan
    program.step(frame, state, program.exact)
    frame = frame.copy()
    frame[0, 0, 2, 2] = -0.0
    program.step(frame, state, program.exact)
    assert state.counts[0] == 1, "the sign of a zero is a change, a NaN that stays is none"
    frame = frame.copy()
    frame[0, 0, 8, 8] = 1.0
    y, _ = program.step(frame, state, program.exact).values()
    np.testing.assert_allclose(y, correlated(correlated(frame, W1), W2), rtol=1e-4, atol=1e-4)


def test_a_kept_map_differs_by_at_most_its_limit_however_slow_a_fade_is(program: StreamProgram) -> None:
    limits = program.exact
    limits[0] = 0.05
    state, frame, step = program.new_state(), frame_of(4), np.float32(0.0007)
    computed = 0
    for _ in range(300):
        y, _ = program.step(frame, state, limits).values()
        computed += int(state.counts[0])
        distance = np.abs(y - correlated(correlated(frame, W1), W2)).max()
        assert distance <= 0.05 * np.abs(W1).sum((1, 2, 3)).max() * np.abs(W2).sum((1, 2, 3)).max()
        frame = frame + step
    assert 154 * 2 < computed < 154 * 10  # each pixel moves by 0.21 in all: four times by more than the limit


def test_frames_that_do_not_fit_leave_the_state_as_it_was(program: StreamProgram) -> None:
    state, frame = program.new_state(), frame_of(5)
    program.step(frame, state, program.exact)
    before = [t.copy() for t in state.tensors]
    for bad in (frame[:, :, 1:], frame.astype(np.float64), frame[0], np.zeros((1, 14, 11, 3), np.float32)):
        with pytest.raises((ShapeError, TypeError)):
            program.step(bad, state, program.exact)
    assert all(np.array_equal(a, b) for a, b in zip(before, state.tensors, strict=True))
    y, _ = program.step(frame + 1, state, program.exact).values()
    np.testing.assert_allclose(y, correlated(correlated(frame + 1, W1), W2), rtol=1e-4, atol=1e-4)


def test_the_state_is_as_large_as_it_says(program: StreamProgram) -> None:
    state = program.new_state()
    assert sum(t.nbytes for t in state.tensors) == program.state_bytes
    assert [(int(np.prod(m.shape)), m.pixels) for m in program.maps] == [(3 * 154, 154), (8 * 154, 154), (8 * 154, 154)]


def test_what_is_no_stream_is_refused() -> None:
    @function
    def two(x: Tensor[f32, 1, 3, 8, 8], y: Tensor[f32, 1, 3, 8, 8]) -> Tensor[f32, 1, 3, 8, 8]:
        return x + y

    @function
    def flat(x: Tensor[f32, n, 7]) -> Tensor[f32, n, 7]:
        return x * 2.0

    with pytest.raises(UnsupportedError, match="takes 2 arguments"):
        compile_stream(two)
    with pytest.raises(ShapeError, match="no dim of 1, 3 or 4 channels"):
        compile_stream(flat)
    with pytest.raises(ShapeError, match="takes frames of any size"):
        compile_stream(two_layers)
