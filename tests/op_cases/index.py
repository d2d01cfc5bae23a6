"""Cases of operators that read and write at indices which are data."""

from __future__ import annotations

from pliant import ops
from pliant.dtype import bf16, f16, f32, i8, i32, i64, u8

from .case import Case

CASES: dict[str, Case] = {
    "prefix": Case(lambda x: ops.prefix(x, 2), (("n", "m"),)),
    "prefix_all": Case(lambda x: ops.prefix(x, x.tensor.shape[0]), (("n",),)),
    "take_negative": Case(ops.take, (("m", "k"), ("n", 2)), (f32, i64), -5, 5),
    "index_select": Case(lambda x, i: ops.index_select(x, i, axis=-1), (("n", "m"), ("k",)), (f32, i32), -4, 5),
    "embedding": Case(ops.embedding, (("m", "k"), ("n", 2)), (f16, u8), 0, 5),
    "gather": Case(lambda x, i: ops.gather(x, i, axis=1), (("n", "m"), ("n", "k")), (f32, i64), -5, 5),
    "gather_first": Case(ops.gather, (("m", "k", "n"), ("m", 2, "n")), (f32, i32), -5, 5),
    "gather_empty": Case(ops.gather, (("m", "k"), ("zero", "k")), (f32, i64), 0, 1),
    "gather_one": Case(ops.gather, (("m",), ("n",)), (i8, i8), -5, 5),
    "gather_nd": Case(ops.gather_nd, (("n", "m", "k"), ("h", 2)), (f32, i64), -3, 3),
    "gather_nd_all": Case(ops.gather_nd, (("n", "m"), ("k", 2, 2)), (i32, i64), -3, 3),
    "gather_nd_batch": Case(lambda x, i: ops.gather_nd(x, i, batch_dims=1), (("n", "m", "k"), ("n", 2, 1)), (f32, i32), -5, 5),
    "gather_nd_empty": Case(ops.gather_nd, (("n", "m"), ("zero", 1)), (f32, i64), 0, 1),
    "scatter": Case(lambda x, i, u: ops.scatter(x, i, u, axis=1), (("n", "m"), ("n", "k"), ("n", "k")), (f32, i64, f32), -5, 5),
    "scatter_first": Case(ops.scatter, (("m", "k"), ("h", "n"), ("h", "n")), (i32, i32, i32), -5, 5),
    "scatter_empty": Case(ops.scatter, (("m", "k"), ("zero", "k"), ("zero", "k")), (f32, i64, f32), 0, 1),
    "scatter_into_empty": Case(ops.scatter, (("zero", "k"), ("zero", "k"), ("zero", "k")), (f32, i64, f32), 0, 1),
    "scatter_nd": Case(ops.scatter_nd, (("m", "k"), ("h", 1), ("h", "k")), (f32, i64, f32), -5, 5),
    "scatter_nd_pairs": Case(ops.scatter_nd, (("m", "k", "n"), ("h", 2), ("h", "n")), (f32, i32, f32), -4, 4),
    "scatter_nd_empty": Case(ops.scatter_nd, (("m", "k"), ("zero", 1), ("zero", "k")), (f32, i64, f32), 0, 1),
    "reverse_sequence": Case(ops.reverse_sequence, (("m", "n", "k"), ("n",)), (f32, i64), 0, 6),
    "reverse_sequence_batch": Case(lambda x, s: ops.reverse_sequence(x, s, axis=1, batch_axis=0), (("n", "h"), ("n",)), (i32, i32), 0, 8),
    "reverse_sequence_empty": Case(ops.reverse_sequence, (("zero", "n"), ("n",)), (f32, i64), 0, 1),
    "index_put": Case(ops.index_put, (("m", "k"), ("h", "k"), ("h",)), (f32, f32, i64), -5, 5),
    "index_put_broadcast": Case(ops.index_put, (("m", "k", "n"), (1,), ("h", 1), ("b",)), (f32, f32, i64, i32), -4, 4),
    "index_put_adds": Case(lambda x, v, i: ops.index_put(x, v, i, accumulate=True), (("m",), ("h",), ("h",)), (i64, i64, i64), -5, 5),
}
for _reduction in ("add", "mul", "min", "max"):
    for _dtype in (f32, bf16, i32):
        CASES[f"scatter_{_reduction}_{_dtype}"] = Case(
            lambda x, i, u, r=_reduction: ops.scatter(x, i, u, reduction=r),
            (("n", "k"), ("h", "k"), ("h", "k")),
            (_dtype, i64, _dtype),
            -3,
            3,
        )
    CASES[f"scatter_nd_{_reduction}"] = Case(
        lambda x, i, u, r=_reduction: ops.scatter_nd(x, i, u, reduction=r), (("n", "k"), ("h", 1), ("h", "k")), (f32, i64, f32), -3, 3
    )
