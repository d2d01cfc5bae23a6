"""Images as inputs of models on the command line: layout, channels, and size; and dims that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pliant.cli import Usage
from pliant.cli.images import read_picture
from pliant.cli.model_options import feeds
from pliant.dtype import dtype
from pliant.graph.node import Tensor
from pliant.support.errors import ModelFileError
from pliant.sym.expr import Var, const

Image = pytest.importorskip("PIL.Image", reason="images are read by the package pillow")
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)
H, W = Var("h"), Var("w")


def tensor(*shape: int | Var, kind: str = "f32") -> Tensor:
    return Tensor(dtype(kind), tuple(const(n) if isinstance(n, int) else n for n in shape))


@pytest.fixture
def photo(tmp_path: Path) -> str:
    Image.fromarray(PIXELS).save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


def test_layouts_and_types(photo: str) -> None:
    np.testing.assert_array_equal(read_picture(photo, tensor(1, 3, H, W), {}), PIXELS.transpose(2, 0, 1)[None].astype(np.float32) / 255)
    np.testing.assert_array_equal(read_picture(photo, tensor(1, H, W, 3, kind="u8"), {}), PIXELS[None])
    np.testing.assert_array_equal(read_picture(photo, tensor(3, H, W, kind="u8"), {}), PIXELS.transpose(2, 0, 1))
    gray = PIXELS @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(read_picture(photo, tensor(1, 1, H, W, kind="u8"), {})[0, 0], gray, atol=1)
    np.testing.assert_allclose(read_picture(photo, tensor(H, W, kind="u8"), {}), gray, atol=1)


def test_sizes_that_are_known_are_made(photo: str) -> None:
    assert read_picture(photo, tensor(1, 3, H, W), {"h": 12, "w": 4}).shape == (1, 3, 12, 4)
    assert read_picture(photo, tensor(1, 3, H, W), {"h": 12}).shape == (1, 3, 12, 8)
    assert read_picture(photo, tensor(1, 5, 7, 3), {}).shape == (1, 5, 7, 3)


def test_what_cannot_be_an_image(photo: str, tmp_path: Path) -> None:
    with pytest.raises(Usage, match="no input of shape"):
        read_picture(photo, tensor(4), {})
    (tmp_path / "no.png").write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match="no image"):
        read_picture(str(tmp_path / "no.png"), tensor(1, 3, H, W), {})


def test_dims_fit_the_model_and_its_files(tmp_path: Path) -> None:
    inputs = {"x": tensor(H, 4)}
    with pytest.raises(Usage, match="no dim `height`"):
        feeds(inputs, {"x": "zeros"}, {"height": 3})
    with pytest.raises(Usage, match="no dim `h`"):
        feeds({"x": tensor(2)}, {"x": "zeros"}, {"h": 3})
    np.save(tmp_path / "x.npy", np.zeros((5, 4), np.float32))
    with pytest.raises(Usage, match="dim `h` is 3, and 5 in"):
        feeds(inputs, {"x": str(tmp_path / "x.npy")}, {"h": 3})
    assert feeds(inputs, {"x": str(tmp_path / "x.npy")}, {"h": 5})["x"].shape == (5, 4)
