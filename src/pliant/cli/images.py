"""Reads images as model inputs: values from 0 to 1 in the layout of the input, resized if the input has a fixed size.

read_picture("photo.jpg", f32[1, 3, height, width], {"height": 480, "width": 640})      # an array of (1, 3, 480, 640)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..support.errors import ModelFileError
from . import Usage

_MODES = {"1": "L", "3": "RGB", "4": "RGBA"}  # number of channels -> mode of Pillow


def read_picture(path: str, t: Any, values: Mapping[str, int]) -> Any:
    """Reads an image, resized to the shape of `t`: (h, w), (c, h, w), (h, w, c) or 4-D with batch 1; scales to [0, 1] if `t` is float.

    A symbolic dim has its value in `values`, else that of the image. Raises Usage for other shapes, ModelFileError if it cannot be read.
    """
    import numpy as np

    try:
        from PIL import Image
    except ImportError:
        from ..support.install_hint import install_hint

        raise Usage(f"reading {path} needs the package pillow", f"{install_hint('onnx')}, or give a .npy file") from None
    dims = [str(d) for d in t.shape]
    image = dims[1:] if len(dims) == 4 else dims
    if len(image) not in (2, 3):
        raise Usage(f"an image is no input of shape ({', '.join(dims)})", "give a .npy file")
    first = len(image) == 3 and image[0] in _MODES
    channels = image.pop(0 if first else -1) if len(image) == 3 else "1"
    try:
        with Image.open(path) as opened:
            picture = opened.convert(_MODES.get(channels, "RGB"))
            height, width = (_size(d, values, own) for d, own in zip(image, picture.size[::-1], strict=True))
            array = np.asarray(picture.resize((width, height)) if (width, height) != picture.size else picture)
    except (OSError, ValueError, Image.DecompressionBombError) as problem:
        raise ModelFileError(f"{path} is no image that can be read: {problem}") from None
    array = array.reshape(height, width, -1)
    array = array.transpose(2, 0, 1) if first else array if len(dims) > 2 else array[:, :, 0]
    scaled = array.astype(np.float32) / 255 if t.dtype.is_float else array
    return np.ascontiguousarray(scaled[None] if len(dims) == 4 else scaled).astype(t.dtype.numpy())


def _size(dim: str, values: Mapping[str, int], own: int) -> int:
    return int(dim) if dim.isdigit() else values.get(dim, own)
