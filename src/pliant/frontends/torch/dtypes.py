"""Data types of torch and Pliant, and torch tensors as literals of a program without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtype import DType
from ...dtype import dtype as to_dtype
from ...support.errors import Error, UnsupportedError

Array = np.ndarray[Any, Any]


def dtype_of(kind: Any) -> DType:
    """Returns the data type of a torch dtype; raises UnsupportedError if programs have no such elements."""
    try:
        return to_dtype(str(kind).removeprefix("torch."))
    except Error:
        raise UnsupportedError(f"torch: elements of {kind} are not supported") from None


def array_of(tensor: Any) -> Array:
    """Returns a torch tensor as a read-only array over the same memory, over a contiguous copy if it is strided or not on the CPU.

    Raises UnsupportedError if programs have no such elements.
    """
    import torch

    kind = dtype_of(tensor.dtype)
    plain = tensor.detach().to("cpu").contiguous()
    if not plain.numel():
        return np.zeros(tuple(plain.shape), kind.numpy())
    words = plain.view(torch.uint8) if plain.dim() else plain.reshape(1).view(torch.uint8)
    # `memoryview` because the builder copies an array whose memory can be written through it.
    return np.frombuffer(memoryview(words.numpy().reshape(-1)).toreadonly(), kind.numpy()).reshape(tuple(plain.shape))
