"""Small ONNX models with symbolic dims, compiled once, against onnxruntime at several shapes."""

from __future__ import annotations

import numpy as np
import pytest

import pliant

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")
ort = pytest.importorskip("onnxruntime", reason="results are compared with onnxruntime")


def model_of(text: str, weights: dict[str, tuple[int, ...]], seed: int = 0) -> onnx.ModelProto:
    """The model that ONNX's own text stands for, with random weights as initializers."""
    random = np.random.default_rng(seed)
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    for name, shape in weights.items():
        array = (random.standard_normal(shape) / np.sqrt(max(shape[0], 1))).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.checker.check_model(model)
    return model


def compare(model: onnx.ModelProto, *feeds: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    """One compiled program gives what onnxruntime gives, at each of the shapes."""
    session = ort.InferenceSession(model.SerializeToString())
    compiled = pliant.compile(pliant.from_onnx(model))
    for feed in feeds:
        found = compiled.run(feed)
        for value, wanted in zip(found.values(), session.run(None, feed), strict=True):
            assert value.dtype == wanted.dtype and value.shape == wanted.shape
            np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance)


def random_feed(name: str, *shape: int) -> dict[str, np.ndarray]:
    return {name: np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)}


def test_mlp() -> None:
    model = model_of(
        """g (float[n, 8] x) => (float[n, 3] y) {
            h = Gemm<transB=1>(x, w1, b1)
            a = Relu(h)
            m = MatMul(a, w2)
            y = Softmax<axis=-1>(m)
        }""",
        {"w1": (16, 8), "b1": (16,), "w2": (16, 3)},
    )
    compare(model, *(random_feed("x", n, 8) for n in (1, 2, 7)))
    assert "n" in [str(d) for d in pliant.from_onnx(model).entry.params[0].tensor.shape]


def test_convolutional_net_with_computed_shapes() -> None:
    model = model_of(
        """g (float[n, 3, h, w] x) => (float[n, c, p, q] y) {
            a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w1, b1)
            r = Relu(a)
            g = GlobalAveragePool(r)
            s = Mul(r, g)
            shape = Shape(x)
            two = Constant<value = int64[1] {2}>()
            four = Constant<value = int64[1] {4}>()
            starts = Constant<value = int64[1] {2}>()
            size = Slice(shape, starts, four)
            first = Constant<value = int64[1] {0}>()
            batch = Slice(shape, first, two)
            sshape = Shape(s)
            one = Constant<value = int64[1] {1}>()
            channels = Slice(sshape, one, two)
            zero = Constant<value = int64 {0}>()
            b0 = Gather(batch, zero)
            axes = Constant<value = int64[1] {0}>()
            b1d = Unsqueeze(b0, axes)
            sizes = Concat<axis=0>(b1d, channels, size)
            y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(s, , , sizes)
        }""",
        {"w1": (5, 3, 3, 3), "b1": (5,)},
    )
    compare(model, *(random_feed("x", n, 3, h, w) for n, h, w in ((1, 8, 8), (2, 9, 12))))


def test_a_block_of_attention() -> None:
    model = model_of(
        """g (float[batch, n, 8] x) => (float[batch, n, 8] y) {
            q0 = MatMul(x, wq)
            k0 = MatMul(x, wk)
            v0 = MatMul(x, wv)
            shape = Shape(x)
            i0 = Constant<value = int64[1] {0}>()
            i1 = Constant<value = int64[1] {1}>()
            b = Gather(shape, i0)
            n = Gather(shape, i1)
            heads = Constant<value = int64[2] {2, 4}>()
            split = Concat<axis=0>(b, n, heads)
            q1 = Reshape(q0, split)
            k1 = Reshape(k0, split)
            v1 = Reshape(v0, split)
            q = Transpose<perm=[0,2,1,3]>(q1)
            k = Transpose<perm=[0,2,3,1]>(k1)
            v = Transpose<perm=[0,2,1,3]>(v1)
            dots = MatMul(q, k)
            two = Constant<value = float {2.0}>()
            scaled = Div(dots, two)
            p = Softmax<axis=-1>(scaled)
            mixed = MatMul(p, v)
            back = Transpose<perm=[0,2,1,3]>(mixed)
            m1 = Constant<value = int64[1] {-1}>()
            whole = Concat<axis=0>(b, n, m1)
            joined = Reshape(back, whole)
            out = MatMul(joined, wo)
            sum = Add(out, x)
            y = LayerNormalization<axis=-1>(sum, scale, bias)
        }""",
        {"wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (8, 8), "scale": (8,), "bias": (8,)},
    )
    compare(model, *(random_feed("x", b, n, 8) for b, n in ((1, 1), (1, 17), (3, 5))))


def test_a_block_of_a_diffusion_transformer() -> None:
    """adaLN: one condition is modulated by products of different sizes (Gemm, as torch exports linear layers), cut into parts."""
    model = model_of(
        """g (float[batch, n, 8] x, float[batch, 6] c) => (float[batch, n, 8] y) {
            act = Sigmoid(c)
            s = Mul(c, act)
            six = Gemm<transB=1>(s, w6, b6)
            two = Gemm<transB=1>(s, w2, b2)
            shift0, scale0, gate0 = Split<axis=1>(six)
            shift1, scale1 = Split<axis=1>(two)
            axes = Constant<value = int64[1] {1}>()
            one = Constant<value = float {1.0}>()
            sh0 = Unsqueeze(shift0, axes)
            sc0 = Unsqueeze(scale0, axes)
            ga0 = Unsqueeze(gate0, axes)
            sh1 = Unsqueeze(shift1, axes)
            sc1 = Unsqueeze(scale1, axes)
            normed = LayerNormalization<axis=-1>(x, ones)
            sc0_1 = Add(sc0, one)
            scaled = Mul(normed, sc0_1)
            shifted = Add(scaled, sh0)
            hidden = MatMul(shifted, wm)
            gated = Mul(hidden, ga0)
            h = Add(x, gated)
            last = LayerNormalization<axis=-1>(h, ones)
            sc1_1 = Add(sc1, one)
            scaled1 = Mul(last, sc1_1)
            y = Add(scaled1, sh1)
        }""",
        {"w6": (24, 6), "b6": (24,), "w2": (16, 6), "b2": (16,), "wm": (8, 8), "ones": (8,)},
    )
    compare(model, *(random_feed("x", b, n, 8) | random_feed("c", b, 6) for b, n in ((1, 1), (1, 17), (3, 5))))
