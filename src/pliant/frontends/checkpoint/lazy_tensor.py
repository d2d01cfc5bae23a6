"""Tensors whose bytes lie in a folder in another order than GGUF's: they are put together when they are asked for, not when it is opened.

LazyTensor("experts", BY_NAME["BF16"], (8, 96, 64), 98304, lambda: …)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...quantization.formats import Format
from ..gguf.reader import GgufTensor


class LazyTensor(GgufTensor):
    """A tensor of a model whose `data` is a new copy at each access."""

    make: Callable[[], NDArray[np.uint8]]
    nbytes: int

    def __init__(self, name: str, format: Format, shape: tuple[int, ...], nbytes: int, make: Callable[[], NDArray[np.uint8]]) -> None:
        for field, value in (("name", name), ("format", format), ("shape", shape), ("nbytes", nbytes), ("make", make)):
            object.__setattr__(self, field, value)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes of the tensor with its last dim in bytes; read-only, so that a program takes them as they are."""
        return np.frombuffer(self.make().tobytes(), np.uint8).reshape(*self.shape[:-1], -1)

    @property
    def size(self) -> int:
        """The size of the tensor's data in bytes."""
        return self.nbytes
