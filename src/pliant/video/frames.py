"""Frames of a video file, a stream of a network or a camera, by PyAV (`pip install 'pliant[video]'`).

for picture in frames("clip.mp4", size=(320, 320)): …        # u8[320, 320, 3], red, green, blue
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..support.errors import Error, ModelFileError
from ..support.source import caller_span

Array = np.ndarray[Any, Any]


def frames(source: str | os.PathLike[str], size: tuple[int, int] | None = None, limit: int | None = None) -> Iterator[Array]:
    """Yields the pictures of a video, u8[rows, columns, 3], resized to `size` (rows, columns); at most `limit` of them.

    Raises ModelFileError if the source cannot be opened, or breaks; the pictures before were yielded. Raises Error without PyAV.
    """
    try:
        import av
    except ImportError:
        raise Error("reading videos needs PyAV", where=caller_span(), help="pip install av") from None
    name = os.fspath(source)
    try:
        with av.open(name) as container:
            if not container.streams.video:
                raise ModelFileError(f"{name} has no video")
            container.streams.video[0].thread_type = "AUTO"
            for number, frame in enumerate(container.decode(video=0)):
                if number == limit:
                    return
                height, width = size or (frame.height, frame.width)
                picture: Array = frame.to_ndarray(format="rgb24", width=width, height=height)
                yield picture
    except (av.FFmpegError, OSError) as problem:
        raise ModelFileError(f"{name} cannot be read: {problem}") from None
