"""ImageDecoder: decodes an image file at import time, because the file determines the size of the image.

    pliant.from_onnx(model, values={"data": np.fromfile("photo.jpg", np.uint8)})

The package pillow decodes it. A session compiles one program for each image file.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ..items import numbers
from ..node_context import NodeContext
from ..registry import rule

FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")  # the formats of the standard, by pillow's names; no others are opened
_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@rule("ImageDecoder")
def image_decoder(site: NodeContext) -> Any:
    """Imports ImageDecoder: the image as u8 (height, width, channels); an empty one if the file cannot be decoded.

    Raises NeededError if its bytes are not known at import time, UnsupportedError without the package pillow.
    """
    order = site.text("pixel_format", "RGB", *_MODES)
    data = site.known(0)
    site.require(data.ndim == 1, f"input 0 has {data.ndim} dims, 1 is expected")
    try:
        from PIL import Image
    except ImportError:
        from ....support.install_hint import install_hint

        raise site.unsupported("reading an image needs the package pillow", help=install_hint("onnx")) from None
    try:
        with Image.open(io.BytesIO(data.tobytes()), formats=FORMATS) as opened:
            pixels = np.asarray(opened.convert(_MODES[order]))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return numbers(np.zeros((0, 0, 1 if order == "Grayscale" else 3), np.uint8))
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return numbers(np.ascontiguousarray(pixels[:, :, ::-1] if order == "BGR" else pixels))
