"""Placeholders for constants whose values are computed elsewhere: arrays with a dtype and a shape but without data.

    Const(outs=(w,), array=stand_in(np.dtype(np.float32), (64, 96)))

`lower/layout/lift_constants.py` leaves one where it has moved the computation of a constant out of the program. A placeholder
reads as zeros, so every access to values goes through `known`, which raises for a placeholder.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..support.errors import Error

Array = np.ndarray[Any, Any]


class StandIn(np.ndarray[Any, Any]):
    """A placeholder array for a constant whose values are computed elsewhere, when the program is loaded."""


def stand_in(dtype: np.dtype[Any], shape: tuple[int, ...]) -> StandIn:
    """Returns a placeholder; it takes the memory of one element only (a broadcast view)."""
    return np.broadcast_to(np.zeros((), dtype).view(StandIn), shape, subok=True)  # type: ignore[return-value]


def known(name: str, array: Array) -> Array:
    """Returns `array`, the values of the constant `name`; raises if it is a placeholder."""
    if isinstance(array, StandIn):
        raise Error(
            f"the values of the literal `{name}` are not part of this function",
            facts=["the step `lift_constants` took what computes them out of it; a stand-in without values is left"],
            help="take the program of the state, which has both parts: compile_as_far_as(step, program, machine).program",
        )
    return array
