"""Literals whose values are not known yet: a `Const` with an array that has a dtype and a shape, no memory of its own, and no numbers.

    Const(outs=(w,), array=stand_in(np.dtype(np.float32), (64, 96)))

They stand where a step has moved the computation of a tensor elsewhere (`lower/layout/lift_constants.py`). Whoever wants the numbers asks
`known`, which refuses them: nobody may compute with what only looks like zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..support.errors import Error

Array = np.ndarray[Any, Any]


class StandIn(np.ndarray[Any, Any]):
    """The array of a literal whose values are computed elsewhere."""


def stand_in(dtype: np.dtype[Any], shape: tuple[int, ...]) -> StandIn:
    """An array without values."""
    return np.broadcast_to(np.zeros((), dtype).view(StandIn), shape, subok=True)  # type: ignore[return-value]


def known(name: str, array: Array) -> Array:
    """The array of the literal `name`, which must have its values."""
    if isinstance(array, StandIn):
        raise Error(
            f"the values of the literal `{name}` are not part of this function",
            facts=["the step `lift_constants` took what computes them out of it; a stand-in without values is left"],
            help="take the program of the state, which has both parts: compile_as_far_as(…).program",
        )
    return array
