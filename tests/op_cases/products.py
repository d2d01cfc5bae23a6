"""Cases of sums of products: vectors in matmul, einsum, outer, attention."""

from __future__ import annotations

from pliant import ops
from pliant.dtype import bf16, bool_, f16, f32, f64, i8, i32, u8

from .case import Case

HEADS = (("b", 4, "n", "k"), ("b", 4, "m", "k"), ("b", 4, "m", "c"))
TILES = (("b", 4, "n", 12), ("b", 2, "m", 12), ("b", 2, "m", 24))  # heads that a template serves
attend = ops.scaled_dot_product_attention

CASES: dict[str, Case] = {
    "matmul_row": Case(ops.matmul, (("k",), ("k", "m"))),
    "matmul_column": Case(ops.matmul, (("b", "n", "k"), ("k",))),
    "matmul_vectors": Case(ops.matmul, (("k",), ("k",))),
    "cdist": Case(ops.cdist, (("n", "k"), ("m", "k"))),
    "cdist_batch": Case(lambda x, y: ops.cdist(x, y, p=1), (("b", "one", "n", "k"), ("c", "m", "k")), (f16,)),
    "cdist_power": Case(lambda x, y: ops.cdist(x, y, p=2.5), (("n", "k"), ("b", "m", "k")), (f64,)),
    "cdist_largest": Case(lambda x, y: ops.cdist(x, y, p=float("inf")), (("n", "k"), ("m", "k")), (bf16,)),
    "cdist_of_nothing": Case(ops.cdist, (("n", "zero"), ("m", "zero"))),
    "matmul_integer": Case(ops.matmul_integer, (("n", "k"), ("k", "m")), (u8, i8), -128, 255),
    "unfold": Case(lambda x, z: ops.unfold(x, z, (3, 2), stride=(2, 1), padding=((1, 2), 0)), (("b", "h", "w", "c"), ()), (u8, u8), 0, 255),
    "unfold_dilated": Case(lambda x, z: ops.unfold(x, z, 3, padding=1, dilation=2), (("b", "h", "c"), ()), (i8, i8), -128, 127),
    "conv_integer": Case(
        lambda x, w, z: ops.conv_integer(x, w, z, padding=1), (("b", "c", "h", "w"), ("n", "c", 3, 3), ()), (u8, i8, u8), -128, 255
    ),
    "conv_integer_depthwise": Case(
        lambda x, w, z: ops.conv_integer(x, w, z, padding=1, stride=2, groups=6),
        (("b", 6, "h", "w"), (6, 1, 3, 3), ()),
        (u8, i8, u8),
        -128,
        255,
    ),
    "conv_integer_depthwise_zeros": Case(
        lambda x, w, z, y: ops.conv_integer(x, w, z, y, dilation=2, groups=5),
        (("b", 5, "h"), (5, 1, 2), (), (5,)),
        (i8, u8, i8, u8),
        -128,
        255,
    ),
    "conv_integer_depthwise_large": Case(
        lambda x, w: ops.conv_integer(x, w, padding=4, groups=3), (("b", 3, "h", "w"), (3, 1, 8, 7)), (u8, i8), -128, 255
    ),
    "conv_integer_groups": Case(
        lambda x, w, z, y: ops.conv_integer(x, w, z, y, padding=1, groups=2),
        (("b", 6, "h", "w"), (8, 3, 3, 3), (), (8,)),
        (u8, i8, u8, i8),
        -128,
        255,
    ),
    "conv_integer_multiplied": Case(lambda x, w: ops.conv_integer(x, w, groups=3), (("b", 3, "h"), (6, 1, 2)), (u8, i8), -128, 255),
    "conv_integer_zeros": Case(
        lambda x, w, z, y: ops.conv_integer(x, w, z, y, stride=2), (("b", "c", "h"), ("n", "c", 2), (), ("n",)), (i8, u8, i8, u8), -128, 255
    ),
    "matmul_integer_batch": Case(ops.matmul_integer, (("b", "n", "k"), ("k", "m")), (i8, i8), -128, 127),
    "matmul_integer_zero": Case(ops.matmul_integer, (("n", "k"), ("k", "m"), (), ()), (u8, i8, u8, i8), -128, 255),
    "matmul_integer_zeros": Case(ops.matmul_integer, (("n", "k"), ("k", "m"), ("n",), ("m",)), (u8, u8, u8, u8), 0, 255),
    "matmul_integer_column_zeros": Case(
        lambda a, b, z: ops.matmul_integer(a, b, b_zero=z), (("b", "n", "k"), ("k", "m"), ("m",)), (i8, u8, u8), -128, 255
    ),
    "matmul_integer_number": Case(lambda a, b: ops.matmul_integer(a, b, 128), (("n", "zero"), ("zero", "m")), (u8, i8), 0, 127),
    "outer": Case(ops.outer, (("n",), ("m",))),
    "einsum_matmul": Case(lambda a, b: ops.einsum("ij,jk->ik", a, b), (("n", "k"), ("k", "m"))),
    "einsum_implicit": Case(lambda a, b: ops.einsum("ij,jk", a, b), (("n", "k"), ("k", "m"))),
    "einsum_batch": Case(lambda a, b: ops.einsum("bhid,bhjd->bhij", a, b), (("b", 2, "n", "k"), ("b", 2, "m", "k"))),
    "einsum_dots": Case(lambda a, b: ops.einsum("...ij,...jk->...ik", a, b), (("b", "one", "n", "k"), ("c", "k", "m"))),
    "einsum_dots_symbols": Case(lambda a, b: ops.einsum("...i,...i->...", a, b), (("n", "k"), ("one", "k"))),
    "einsum_trace": Case(lambda a: ops.einsum("ii->", a), (("n", "n"),)),
    "einsum_diagonal": Case(lambda a: ops.einsum("bii->ib", a), (("b", "n", "n"),)),
    "einsum_transpose": Case(lambda a: ops.einsum("abc->cab", a), (("b", "n", "m"),), (i32,), -9, 9),
    "einsum_sum": Case(lambda a: ops.einsum("ij->j", a), (("n", "m"),), (f16,)),
    "einsum_outer": Case(lambda a, b: ops.einsum("i,j->ij", a, b), (("n",), ("m",)), (f16, f16)),
    "einsum_three": Case(lambda a, b, c: ops.einsum("ij,jk,kl->il", a, b, c), (("n", "k"), ("k", "m"), ("m", "b"))),
    "einsum_scalars": Case(lambda a, b: ops.einsum(",i->i", a, b), ((), ("n",))),
    "einsum_empty": Case(lambda a, b: ops.einsum("ij,jk->ik", a, b), (("n", "zero"), ("zero", "m"))),
    "attention": Case(attend, HEADS),
    "attention_causal": Case(lambda q, k, v: attend(q, k, v, is_causal=True), HEADS),
    "attention_offset": Case(lambda q, k, v: attend(q, k, v, is_causal=True, offset=k.tensor.shape[2] - q.tensor.shape[2]), HEADS),
    "attention_window": Case(lambda q, k, v: attend(q, k, v, is_causal=True, window=2), HEADS),
    "attention_scale": Case(lambda q, k, v: attend(q, k, v, scale=0.3), HEADS, (f64, f64, f64)),
    "attention_mask": Case(attend, (*HEADS, ("n", "m")), (f32, f32, f32, bool_), 0, 2),
    "attention_mask_heads": Case(attend, (*HEADS, ("b", 1, 1, "m")), (f16, f16, f16, f16)),
    "attention_cap": Case(lambda q, k, v: attend(q, k, v, cap=0.7), HEADS),
    "attention_hidden": Case(lambda *x: attend(*x, hidden=-2.0), (*HEADS, ("n", "m")), (f32, f32, f32, bool_), 0, 2),
    "attention_unseen": Case(lambda *x: attend(*x, nan_if_unseen=True), (*HEADS, ("n", "m")), (f32, f32, f32, bool_), 0, 2),
    "attention_grouped": Case(attend, (HEADS[0], ("b", 2, "m", "k"), ("b", 2, "m", "c"))),
    "attention_grouped_dims": Case(attend, (("b", "c", "n", "k"), ("b", "b", "m", "k"), ("b", "b", "m", 3))),
    "attention_two_dims": Case(attend, (("n", "k"), ("m", "k"), ("m", "c"))),
    "attention_no_keys": Case(attend, (("b", "n", "k"), ("b", "zero", "k"), ("b", "zero", "c"))),
    "attention_no_queries": Case(attend, (("b", "zero", "k"), ("b", "m", "k"), ("b", "m", "c"))),
    "attention_tiles": Case(attend, TILES),
    "attention_tiles_causal": Case(lambda q, k, v: attend(q, k, v, is_causal=True), TILES),
    "attention_tiles_offset": Case(lambda q, k, v: attend(q, k, v, is_causal=True, offset=k.tensor.shape[2] - q.tensor.shape[2]), TILES),
    "attention_tiles_window": Case(lambda q, k, v: attend(q, k, v, is_causal=True, window=2, scale=0.3), TILES),
    "attention_tiles_mask": Case(attend, (*TILES, ("n", "m")), (f32, f32, f32, bool_), 0, 2),
    "attention_tiles_mask_heads": Case(attend, (*TILES, ("b", 1, 1, "m")), (f16, f16, f16, f16)),
    "attention_tiles_mask_number": Case(attend, (*TILES, ())),
    "attention_tiles_cap": Case(lambda q, k, v: attend(q, k, v, cap=0.7), TILES),
    "attention_tiles_hidden": Case(lambda *x: attend(*x, hidden=-2.0), (*TILES, ("n", "m")), (f32, f32, f32, bool_), 0, 2),
    "attention_tiles_unseen": Case(lambda *x: attend(*x, nan_if_unseen=True), (*TILES, ("n", "m")), (f32, f32, f32, bool_), 0, 2),
    "attention_tiles_no_keys_unseen": Case(lambda *x: attend(*x, nan_if_unseen=True), (("b", "n", 8), ("b", "zero", 8), ("b", "zero", 8))),
    "attention_tiles_f64": Case(lambda q, k, v: attend(q, k, v, is_causal=True), TILES, (f64, f64, f64)),
    "attention_tiles_bf16": Case(attend, TILES, (bf16, bf16, bf16)),
    "attention_tiles_two_dims": Case(attend, (("n", 8), ("m", 8), ("m", 8))),
    "attention_tiles_no_keys": Case(attend, (("b", "n", 8), ("b", "zero", 8), ("b", "zero", 8))),
    "attention_tiles_no_queries": Case(attend, (("b", "zero", 8), ("b", "m", 8), ("b", "m", 8))),
    "attention_tiles_shared_dims": Case(attend, (("b", "c", "n", 8), ("b", "b", "m", 8), ("b", "b", "m", 8))),
}
