"""What real files ask for beyond the cases of ONNX's own suite, each against onnx.reference and onnxruntime where they have it.

A pattern is a model in text with inputs of several sizes. One program must serve them all, so that nothing was fixed on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pliant
import pliant.onnx_backend as backend
from pliant.support.errors import Error

onnx = pytest.importorskip("onnx", reason="models are made with the package onnx")

RNG = np.random.default_rng(7)
Peer = Callable[[Any, dict[str, Any]], list[Any]]


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def codes(*shape: int) -> Any:
    return RNG.integers(-500, 500, shape).astype(np.int32)


def by_reference(model: Any, feeds: dict[str, Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    found: list[Any] = ReferenceEvaluator(model).run(None, feeds)
    return found


def by_onnxruntime(model: Any, feeds: dict[str, Any]) -> list[Any]:
    ort = pytest.importorskip("onnxruntime", reason="it is what results are compared with")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    found: list[Any] = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    return found


PEERS: dict[str, Peer] = {"reference": by_reference, "onnxruntime": by_onnxruntime}


@dataclass(frozen=True)
class Pattern:
    """A model, the feeds it is run with, and who else can run it."""

    text: str
    feeds: tuple[dict[str, Any], ...]
    opset: int = 17
    peers: tuple[str, ...] = ("reference", "onnxruntime")

    def model(self) -> Any:
        head = f'<ir_version: {8 if self.opset < 19 else 10}, opset_import: ["" : {self.opset}, "com.microsoft" : 1]>\n'
        return onnx.parser.parse_model(head + self.text)


HALVES = """<body = b (int64 i, bool c, float[k] h) => (bool c2, float[k] h2, float[k] row, int64 at) {
      half = Constant<value = float {0.5}>()
      h2 = Mul(h, half)
      row = Add(h, h2)
      at = Identity(i)
      rest = ReduceSum<keepdims = 0>(h2)
      least = Constant<value = float {0.1}>()
      c2 = Greater(rest, least)
   }>"""
ROWS = HALVES.replace(", int64 at", "").replace("at = Identity(i)", "")
RATIO = """<int64[1] two = {2}, int64[1] four = {4}, float[2] ones = {1.0, 1.0}> {
   zs = Shape(z)
   zt = Slice(zs, two, four)
   xs = Shape(x)
   xt = Slice(xs, two, four)
   a = Cast<to = 1>(zt)
   d = Cast<to = 1>(xt)
   q = Div(a, d)
   scales = Concat<axis = 0>(ones, q)
   y = Resize"""
SIZES = ({"x": f(1, 2, 5, 6), "z": f(9, 9, 9, 13)}, {"x": f(2, 2, 9, 3), "z": f(1, 1, 4, 7)}, {"x": f(1, 2, 3, 3), "z": f(1, 1, 5, 5)})
X_AND_Z = "g (float[b, c, h, w] x, float[p, q, r, s] z) => (float[b, c, m, n] y) "


def ratio(attributes: str) -> str:
    return f"{X_AND_Z}{RATIO}<{attributes}>(x, , scales) }}"


PATTERNS = {
    "squeeze_without_axes": Pattern("g (float[n, 1, m] x) => (float[n, m] y) { y = Squeeze(x) }", ({"x": f(3, 1, 4)}, {"x": f(2, 1, 7)})),
    "squeeze_to_a_declared_rank": Pattern("g (float[n, 1, 4] x) => (float[4] y) { y = Squeeze(x) }", ({"x": f(1, 1, 4)},)),
    "squeeze_of_a_computed_dim": Pattern(
        "g (float[n, m] x) => (float[a] y) <int64[3] s = {1, -1, 1}> { r = Reshape(x, s)  y = Squeeze(r) }",
        ({"x": f(3, 4)}, {"x": f(2, 5)})
    ),
    "stft_of_rows": Pattern(
        "g (float[b, n] x) => (y) <int64 step = {3}, int64 size = {8}> { y = STFT(x, step, , size) }", ({"x": f(2, 20)}, {"x": f(1, 31)}),
        peers=("onnxruntime",),
    ),
    "stft_of_rows_with_a_window": Pattern(
        "g (float[b, n] x) => (y) <int64 step = {3}, int64 size = {6}, float[6] w = {0.1, 0.5, 1.0, 1.0, 0.5, 0.1}>"
        "{ y = STFT<onesided = 0>(x, step, w, size) }", ({"x": f(2, 20)}, {"x": f(1, 31)}), peers=("onnxruntime",),
    ),
    "stft_with_a_window": Pattern(
        "g (float[b, n, 1] x) => (y) <int64 step = {3}, float[6] w = {0.1, 0.5, 1.0, 1.0, 0.5, 0.1}> { y = STFT(x, step, w) }",
        ({"x": f(2, 20, 1)}, {"x": f(1, 31, 1)}),
    ),
    "pad_edge_negative": Pattern(
        'g (float[b, n] x) => (float[c, m] y) <int64[4] p = {1, -2, 0, 3}> { y = Pad<mode = "edge">(x, p) }',
        ({"x": f(3, 5)}, {"x": f(1, 4)}), peers=("onnxruntime",),
    ),
    "pad_edge_negative_after": Pattern(
        'g (float[b, n] x) => (float[c, m] y) <int64[4] p = {0, 2, -1, -3}> { y = Pad<mode = "edge">(x, p) }',
        ({"x": f(3, 5)}, {"x": f(2, 4)}), peers=("onnxruntime",),
    ),
    "pad_reflect_negative": Pattern(
        'g (float[b, n] x) => (float[c, m] y) <int64[4] p = {0, -2, 0, 3}> { y = Pad<mode = "reflect">(x, p) }',
        ({"x": f(3, 6)}, {"x": f(2, 9)}), peers=("onnxruntime",),
    ),
    "pad_of_bools_by_the_edge": Pattern(
        'g (bool[b, n] x) => (bool[c, m] y) <int64[4] p = {1, 2, 0, 3}> { y = Pad<mode = "edge">(x, p) }',
        ({"x": f(3, 5) > 0}, {"x": f(2, 9) > 0}),
    ),
    "dequantize_i32": Pattern(
        "g (int32[b, n] x) => (float[b, n] y) <float s = {0.25}, int32 z = {0}> { y = DequantizeLinear(x, s, z) }",
        ({"x": codes(3, 5)}, {"x": codes(1, 2)}), opset=21,
    ),
    "dequantize_i32_by_axis": Pattern(
        "g (int32[b, 3, n] x) => (float[b, 3, n] y) <float[3] s = {0.25, 2.0, 0.5}, int32[3] z = {0, 0, 0}>"
        "{ y = DequantizeLinear<axis = 1>(x, s, z) }", ({"x": codes(2, 3, 5)}, {"x": codes(1, 3, 2)}), opset=21,
    ),
    "dequantize_i32_less_its_zero": Pattern(
        "g (int32[b, n] x) => (float[b, n] y) <float s = {0.25}, int32 z = {7}> { y = DequantizeLinear(x, s, z) }",
        ({"x": codes(3, 5)}, {"x": codes(1, 2)}), opset=21,
    ),
    "dequantize_to_another_type": Pattern(
        "g (int8[b, n] x) => (float16[b, n] y) <float s = {0.25}> { y = DequantizeLinear<output_dtype = 10>(x, s) }",
        ({"x": codes(3, 5).astype(np.int8)}, {"x": codes(1, 2).astype(np.int8)}), opset=23, peers=("reference",),
    ),
    "dequantize_a_bias": Pattern(
        "g (float[b, 3, n] x) => (float[b, 2, n] y) <int8[2, 3, 1] w = {1, -2, 3, 4, 5, -6}, float[2] ws = {0.5, 0.25},"
        "int8[2] wz = {0, 0},"
        "int32[2] c = {10, -20}, float[2] cs = {0.05, 0.025}, int32[2] cz = {0, 0}, float xs = {0.1}, uint8 xz = {128}> {"
        "q = QuantizeLinear(x, xs, xz)  a = DequantizeLinear(q, xs, xz)  d = DequantizeLinear<axis = 0>(w, ws, wz)"
        "e = DequantizeLinear<axis = 0>(c, cs, cz)  y = Conv(a, d, e) }", ({"x": f(2, 3, 5)}, {"x": f(1, 3, 4)}), opset=21,
    ),
    "loop_without_a_count": Pattern(
        f"g (float[n] x, bool go) => (float[n] last, float[r, n] rows) {{ last, rows = Loop {ROWS}(, go, x) }}",
        ({"x": np.abs(f(3)), "go": np.array(True)}, {"x": np.full(5, 9, np.float32), "go": np.array(True)}),
    ),
    "loop_without_a_count_two_rows": Pattern(
        f"g (float[n] x, bool go) => (float[n] last, float[r, n] rows, int64[r] at) {{ last, rows, at = Loop {HALVES}(, go, x) }}",
        ({"x": np.abs(f(3)), "go": np.array(True)}, {"x": np.full(5, 9, np.float32), "go": np.array(True)}), peers=("onnxruntime",),
    ),
    "loop_with_the_largest_count": Pattern(
        "g (float[n] x, bool go) => (float[n] last, float[r, n] rows, int64[r] at) {"
        f"most = Constant<value = int64 {{9223372036854775807}}>()  last, rows, at = Loop {HALVES}(most, go, x) }}",
        ({"x": np.abs(f(3)), "go": np.array(True)}, {"x": np.full(5, 9, np.float32), "go": np.array(True)}), peers=("onnxruntime",),
    ),
    "loop_with_a_count_of_the_run": Pattern(
        "g (float[n] x, int64 t) => (float[n] last, float[r, n] rows, int64[r] at) {" f"last, rows, at = Loop {HALVES}(t, , x) }}",
        ({"x": np.full(5, 9, np.float32), "t": np.array(3)}, {"x": np.full(4, 9, np.float32), "t": np.array(100)}), peers=("onnxruntime",),
    ),
    "resize_by_a_ratio_of_dims": Pattern(ratio('mode = "linear"'), SIZES, peers=("onnxruntime",)),
    "resize_nearest_by_a_ratio": Pattern(
        ratio('mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'), SIZES, peers=("onnxruntime",)
    ),
    "resize_nearest_by_a_sum": Pattern(
        "g (float[b, c, h, w] x, float[r, s] z) => (float[b, c, m, n] y) <float[2] ones = {1.0, 1.0}, float[2] part = {0.3, 0.5}> {"
        "zs = Shape(z)  q = Cast<to = 1>(zs)  a = Add(q, part)  scales = Concat<axis = 0>(ones, a)  y = Resize(x, , scales) }",
        ({"x": f(1, 2, 5, 6), "z": f(2, 3)}, {"x": f(2, 1, 4, 3), "z": f(3, 1)}), peers=("onnxruntime",),
    ),
    "upsample_by_dims": Pattern(
        "g (float[b, c, h, w] x, float[r, s] z) => (float[b, c, m, n] y) <float[2] ones = {1.0, 1.0}> {"
        'zs = Shape(z)  q = Cast<to = 1>(zs)  scales = Concat<axis = 0>(ones, q)  y = Upsample<mode = "linear">(x, scales) }',
        ({"x": f(1, 2, 5, 6), "z": f(2, 3)}, {"x": f(2, 1, 4, 3), "z": f(3, 1)}), opset=9, peers=("onnxruntime",),
    ),
    "resize_cubic_by_a_ratio": Pattern(ratio('mode = "cubic", exclude_outside = 1'), SIZES, peers=("onnxruntime",)),
    "resize_corners_by_a_ratio": Pattern(
        ratio('mode = "linear", coordinate_transformation_mode = "align_corners"'), SIZES, peers=("onnxruntime",)
    ),
    "resize_to_the_size_of_another": Pattern(
        X_AND_Z + "<int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}> { zs = Shape(z)  zt = Slice(zs, two, four)  xs = Shape(x)"
        'xt = Slice(xs, zero, two)  sizes = Concat<axis = 0>(xt, zt)  y = Resize<mode = "linear">(x, , , sizes) }', SIZES,
    ),
    **{
        f"resize_{policy}_of_dims": Pattern(
            f"g (float[b, c, h, w] x, float[r, s] z) => (float[b, c, m, n] y) {{ sizes = Shape(z)  "
            f'y = Resize<mode = "linear", axes = [2, 3], keep_aspect_ratio_policy = "{policy}">(x, , , sizes) }}',
            ({"x": f(1, 2, 5, 7), "z": f(9, 10)}, {"x": f(2, 1, 8, 3), "z": f(4, 9)}), opset=19, peers=("onnxruntime",),
        )
        for policy in ("not_larger", "not_smaller")
    },
    "split_into_uneven_parts": Pattern(
        "g (float[n, m] x) => (float[a, m] p, float[c, m] q, float[d, m] r) { p, q, r = Split<num_outputs = 3>(x) }",
        ({"x": f(7, 2)}, {"x": f(6, 2)}, {"x": f(8, 3)}), opset=18, peers=("onnxruntime",),
    ),
    "fmod_of_dims": Pattern(
        "g (float[n, m] x) => (int64[2] y) <int64[2] five = {5, 5}, int64[2] three = {3, 3}>"
        "{ s = Shape(x)  d = Sub(s, five)  y = Mod<fmod = 1>(d, three) }", ({"x": f(1, 9)}, {"x": f(3, 4)}),
    ),
    "resize_by_a_part_of_its_size": Pattern(
        "g (float[b, c, h, w] x) => (float[b, c, m, n] y) <int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4},"
        "float[2] part = {1.5, 0.6}> { xs = Shape(x)  t = Slice(xs, two, four)  e = Slice(xs, zero, two)  r = Cast<to = 1>(t)"
        'p = Mul(r, part)  q = Floor(p)  i = Cast<to = 7>(q)  sizes = Concat<axis = 0>(e, i)  y = Resize<mode = "linear">(x, , , sizes) }',
        ({"x": f(1, 2, 5, 6)}, {"x": f(2, 1, 4, 9)}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name, peer", [(name, peer) for name, pattern in PATTERNS.items() for peer in pattern.peers])
def test_one_program_for_all_sizes(name: str, peer: str) -> None:
    pattern = PATTERNS[name]
    model = pattern.model()
    for interpret in (True, False):
        prepared = backend.prepare(model, interpret=interpret)
        for feeds in pattern.feeds:
            for a, b in zip(prepared.run(feeds), PEERS[peer](model, feeds), strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        session = prepared.session
        assert not session.fixed and not session.shaped and len(session._programs) == 1


def test_a_squeeze_that_changes_its_rank() -> None:
    """The session makes a program for shapes of which what the first one takes for granted is not true; a program alone says so."""
    model = Pattern("g (float[n, 1, m] x) => (y) { y = Squeeze(x) }", ()).model()
    session = backend.prepare(model, interpret=True)
    for shape in ((3, 1, 4), (1, 1, 4), (3, 1, 1), (1, 1, 1)):
        x = f(*shape)
        np.testing.assert_array_equal(session.run([x])[0], np.squeeze(x), strict=True)
    compiled = pliant.compile(pliant.from_onnx(model))
    np.testing.assert_array_equal(compiled(f(3, 1, 4)).shape, (3, 4))
    with pytest.raises(Error, match="dim 0 of the operand is 1"):
        compiled(f(1, 1, 4))


def test_an_axis_to_squeeze_is_one() -> None:
    model = Pattern("g (float[n, m] x) => (y) <int64[1] a = {0}> { y = Squeeze(x, a) }", ()).model()
    compiled = pliant.compile(pliant.from_onnx(model))
    assert compiled(f(1, 4)).shape == (4,)
    for wrong in (f(3, 4), f(3, 0)):
        with pytest.raises(Error, match="a dim to squeeze is not 1"):
            compiled(wrong)


@pytest.mark.parametrize("n, m", [(3, 5), (49, 64), (49, 1), (41, 55), (47, 32), (10, 13), (7, 10)])
def test_sizes_by_scales_are_those_of_f32(n: int, m: int) -> None:
    """As onnxruntime has them: 41 by f32(55 / 41) is 55, 10 by f32(1.3) is 13, 47 by f32(32 / 47) is 31."""
    scale = np.float32(m) / np.float32(n)
    expected = int(np.float32(n) * scale)
    text = "g (float[1, 1, {0}, {0}] x) => (y) <float[4] s = {{1.0, 1.0, {1}, {1}}}> {{ y = Resize(x, , s) }}"
    fixed, free = (Pattern(text.format(size, scale), ()).model() for size in (n, "n"))
    for model in (fixed, free):
        assert backend.run_model(model, [f(1, 1, n, n)], interpret=True)[0].shape == (1, 1, expected, expected)
    assert by_onnxruntime(fixed, {"x": f(1, 1, n, n)})[0].shape == (1, 1, expected, expected)
