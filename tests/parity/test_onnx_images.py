"""ImageDecoder: what pillow wrote is read again; a file that is none is an empty image; a file that is not known is asked for."""

from __future__ import annotations

import io

import numpy as np
import pytest

import pliant
import pliant.onnx_backend as backend

onnx = pytest.importorskip("onnx", reason="models are made with the package onnx")
Image = pytest.importorskip("PIL.Image", reason="images are read by the package pillow")
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)


def model(order: str) -> object:
    text = f"""
    <ir_version: 9, opset_import: ["" : 20]>
    g (uint8[n] data) => (uint8[h, w, c] y) {{ y = ImageDecoder<pixel_format = "{order}">(data) }}"""
    return onnx.parser.parse_model(text)


def png() -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "PNG")
    return np.frombuffer(file.getvalue(), np.uint8)


def test_orders_of_channels() -> None:
    np.testing.assert_array_equal(backend.run_model(model("RGB"), [png()])[0], PIXELS)
    np.testing.assert_array_equal(backend.run_model(model("BGR"), [png()])[0], PIXELS[:, :, ::-1])
    gray = backend.run_model(model("Grayscale"), [png()])[0]
    assert gray.shape == (5, 7, 1)
    np.testing.assert_allclose(gray[:, :, 0], PIXELS @ np.array([0.299, 0.587, 0.114]), atol=1)


@pytest.mark.parametrize("data", [np.zeros(9, np.uint8), png()[:50], np.zeros(0, np.uint8)], ids=["zeros", "cut", "nothing"])
def test_what_is_no_image_is_empty(data: np.ndarray) -> None:
    assert backend.run_model(model("RGB"), [data])[0].shape == (0, 0, 3)


def test_the_file_must_be_known() -> None:
    with pytest.raises(pliant.Error, match=r"ImageDecoder.*input 0 must be known"):
        pliant.from_onnx(model("RGB"))
    assert [str(d) for d in pliant.from_onnx(model("RGB"), values={"data": png()}).entry.results[0].tensor.shape] == ["5", "7", "3"]
