"""Cases of running reductions."""

from __future__ import annotations

from pliant import ops
from pliant.dtype import bf16, f16, f32, f64, i32, i64, u8

from .case import Case

CASES: dict[str, Case] = {
    "cumsum": Case(ops.cumsum, (("n", "m"),)),
    "cumsum_first": Case(lambda x: ops.cumsum(x, axis=0), (("n", "m"),)),
    "cumsum_middle": Case(lambda x: ops.cumsum(x, axis=1), (("n", "m", "k"),)),
    "cumsum_line": Case(ops.cumsum, (("h",),), (f64,)),
    "cumsum_f16": Case(ops.cumsum, (("n", "h"),), (f16,)),
    "cumsum_bf16": Case(lambda x: ops.cumsum(x, axis=0), (("n", "h"),), (bf16,)),
    "cumsum_i64": Case(ops.cumsum, (("n", "h"),), (i64,), -9, 9),
    "cumsum_wraps": Case(ops.cumsum, (("n", "h"),), (u8,), 100, 255, checked=False),
    "cumsum_empty": Case(ops.cumsum, (("n", "zero"),)),
    "cumsum_no_rows": Case(lambda x: ops.cumsum(x, axis=0), (("n", "zero", "k"),)),
    "cumprod": Case(ops.cumprod, (("n", "m"),)),
    "cumprod_i32": Case(lambda x: ops.cumprod(x, axis=0, exclusive=True), (("n", "m"),), (i32,), -3, 3),
    "cummax": Case(ops.cummax, (("n", "h"),)),
    "cummax_equal": Case(lambda x: ops.cummax(x, axis=0), (("h", "m"),), (i32,), 0, 3),
    "cummax_line": Case(ops.cummax, (("h",),), (i64,), -5, 0),
    "cummin": Case(lambda x: ops.cummin(x, axis=1), (("n", "h", "k"),), (f16,)),
    "cummin_empty": Case(ops.cummin, (("n", "zero"),)),
}
for _exclusive in (False, True):
    for _reverse in (False, True):
        CASES[f"cumsum_{_exclusive}_{_reverse}".lower()] = Case(
            lambda x, e=_exclusive, r=_reverse: ops.cumsum(x, 1, exclusive=e, reverse=r), (("n", "m", "k"),), (f32,)
        )
