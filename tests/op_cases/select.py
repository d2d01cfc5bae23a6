"""Cases of operators whose results have a size that depends on data."""

from __future__ import annotations

from pliant import ops
from pliant.dtype import bool_, f16, f32, i8, i32, i64

from .case import Case


def _boxes(x: object, s: object, **options: object) -> object:
    return ops.non_max_suppression(x, s, 2, 0.3, 0.5, **options)


CASES: dict[str, Case] = {
    "nonzero": Case(ops.nonzero, (("n", "m"),), (i32,), -1, 2),
    "nonzero_line": Case(ops.nonzero, (("h",),), (bool_,), 0, 2),
    "nonzero_deep": Case(ops.nonzero, (("n", "m", "k"),), (i8,), 0, 2),
    "nonzero_all": Case(ops.nonzero, (("n", "m"),), (f32,)),
    "nonzero_none": Case(ops.nonzero, (("n", "m"),), (f16,), 0, 0),
    "nonzero_empty": Case(ops.nonzero, (("n", "zero"),)),
    "nonzero_rows": Case(lambda x, t: ops.take(t, ops.reshape(ops.nonzero(x), -1)), (("m",), ("m", "k")), (i32, f32), 0, 2),
    "where_alone": Case(ops.where, (("n", "m"),), (bool_,), 0, 2),
    "masked_select": Case(ops.masked_select, (("n", "m"), ("n", "m")), (f32, bool_), 0, 2),
    "masked_select_broadcast": Case(ops.masked_select, (("n", 1), ("m",)), (f32, bool_), 0, 2),
    "compress": Case(lambda x, c: ops.compress(x, c, axis=1), (("n", "m"), ("m",)), (f32, bool_), 0, 2),
    "compress_flat": Case(ops.compress, (("n", "m"), (6,)), (i64, bool_), 0, 2),
    "unique": Case(ops.unique, (("n", "h"),), (i32,), -2, 3),
    "unique_unsorted": Case(lambda x: ops.unique(x, sorted=False), (("n", "h"),), (i64,), -2, 3),
    "unique_f32": Case(ops.unique, (("h",),), (f32,)),
    "unique_empty": Case(ops.unique, (("zero", "n"),)),
    "unique_one": Case(lambda x: ops.unique(x, sorted=False), ((1,),), (bool_,), 0, 2),
    "non_max_suppression": Case(_boxes, (("b", 13, 4), ("b", "n", 13)), (f32, f32), 0, 1),
    "non_max_suppression_center": Case(lambda x, s: _boxes(x, s, center_point_box=True), ((1, "h", 4), (1, "n", "h")), (f32, f32), 0, 1),
    "non_max_suppression_all": Case(lambda x, s: ops.non_max_suppression(x, s, 99, 0.9), ((1, "h", 4), (1, "n", "h")), (f32, f32), 0, 1),
    "non_max_suppression_empty": Case(_boxes, (("b", "zero", 4), ("b", "n", "zero")), (f32, f32), 0, 1),
}
