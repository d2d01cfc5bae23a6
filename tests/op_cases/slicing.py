"""Cases of slices: negative steps, bounds that only a run tells."""

from __future__ import annotations

from typing import Any

from pliant import ops
from pliant.dtype import f32, i32, i64

from .case import Case


def _by_sum(x: Any, y: Any, **options: Any) -> Any:
    """A slice of `x` up to a number that is computed."""
    return ops.slice(x, 0, stop=ops.sum(y), **options)


CASES: dict[str, Case] = {
    "slice_reversed": Case(lambda x: ops.slice(x, 1, step=-1), (("n", "m"),)),
    "slice_reversed_part": Case(lambda x: ops.slice(x, 0, 4, 1, -1), ((6, "m"),)),
    "slice_reversed_steps": Case(lambda x: ops.slice(x, -1, step=-2), (("n", "h"),)),
    "slice_reversed_negative": Case(lambda x: ops.slice(x, 0, -2, -5, -1), ((6, "m"),)),
    "slice_reversed_empty": Case(lambda x: ops.slice(x, 1, step=-3), (("n", "zero"),)),
    "slice_half": Case(lambda x: ops.slice(x, 0, stop=x.tensor.shape[0] // 2), (("h", "m"),)),
    "strided_slice": Case(lambda x: ops.strided_slice(x, 0, 1, 3, 2), ((8, "m"),)),
    "slice_stop": Case(_by_sum, (("h", "m"), ("n",)), (f32, i64), 0, 3),
    "slice_stop_beyond": Case(_by_sum, (("n", "m"), ("n",)), (f32, i32), 2, 3),
    "slice_stop_negative": Case(_by_sum, (("h", "m"), ("n",)), (f32, i64), -1, 0),
    "slice_stop_steps": Case(lambda x, y: _by_sum(x, y, step=2), (("h", "m"), ("n",)), (f32, i64), 1, 3),
    "slice_start": Case(lambda x, y: ops.slice(x, 1, start=ops.sum(y)), (("n", "h"), ("n",)), (f32, i64), 0, 2),
    "slice_both": Case(lambda x, y: ops.slice(x, 0, ops.min(y), ops.max(y)), (("h", "m"), ("n",)), (f32, i64), -7, 8),
    "slice_back": Case(lambda x, y: ops.slice(x, 0, ops.max(y), step=-2), (("h", "m"), ("n",)), (f32, i64), 2, 9),
    # The stop is a Python number beside a bound of the run: it takes the dtype of the bound, not of the condition `stop < 0`.
    "slice_back_to_number": Case(lambda x, y: ops.slice(x, 0, ops.max(y), -20, -1), (("h", "m"), ("n",)), (f32, i64), 2, 9),
    "slice_back_from_number": Case(lambda x, y: ops.slice(x, 0, 3, ops.min(y), -2), (("h", "m"), ("n",)), (f32, i64), 0, 2),
    "slice_back_stop": Case(lambda x, y: ops.slice(x, 0, stop=ops.max(y), step=-1), (("h", "m"), ("n",)), (f32, i64), 0, 4),
    "strided_slice_start": Case(lambda x, y: ops.strided_slice(x, 0, ops.max(y), 2), (("h", "m"), ("n",)), (f32, i32), 0, 5),
    "slice_then_sum": Case(lambda x, y: ops.sum(_by_sum(x, y), axis=0), (("h", "m"), ("n",)), (f32, i64), 0, 3),
}
