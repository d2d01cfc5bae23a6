"""Cases of normalization."""

from __future__ import annotations

from pliant import ops
from pliant.dtype import bf16, f16, f32, f64

from .case import Case

ROWS = ("n", "k", "m")
IMAGE = ("b", "c", "h", "w")
CHANNELS = ("c",)

CASES: dict[str, Case] = {
    "layer_norm": Case(ops.layer_norm, (ROWS, ("m",), ("m",))),
    "layer_norm_plain": Case(ops.layer_norm, (ROWS,)),
    "layer_norm_weight": Case(lambda x, w: ops.layer_norm(x, w, eps=1e-3), (ROWS, ("m",)), (f64, f64)),
    "layer_norm_axes": Case(lambda x, w, b: ops.layer_norm(x, w, b, axis=1), (ROWS, ("k", "m"), ("k", "m"))),
    "layer_norm_f16": Case(ops.layer_norm, (ROWS, ("m",), ("m",)), (f16, f16, f16)),
    "layer_norm_bf16": Case(ops.layer_norm, (ROWS, ("m",), ("m",)), (bf16, bf16, bf16)),
    "layer_norm_empty": Case(ops.layer_norm, (("zero", "m"), ("m",), ("m",))),
    "group_norm": Case(lambda x, w, b: ops.group_norm(x, w, b, groups=2), (IMAGE, CHANNELS, CHANNELS)),
    "group_norm_fixed": Case(lambda x, w, b: ops.group_norm(x, w, b, groups=3), (("b", 6, "h"), (6,), (6,))),
    "group_norm_plain": Case(lambda x: ops.group_norm(x, groups=1), (("b", "c"),)),
    "group_norm_f16": Case(lambda x, w, b: ops.group_norm(x, w, b, groups=2), (IMAGE, CHANNELS, CHANNELS), (f16, f16, f16)),
    "group_norm_dim": Case(lambda x, y: ops.group_norm(x, groups=y.tensor.shape[0]), (IMAGE, ("b",))),
    "instance_norm": Case(ops.instance_norm, (IMAGE, CHANNELS, CHANNELS)),
    "instance_norm_plain": Case(lambda x: ops.instance_norm(x, eps=1e-2), (("b", 3, "h"),)),
    "batch_norm": Case(ops.batch_norm, (IMAGE, *[CHANNELS] * 4), (f32,), 0.5, 2.0),
    "batch_norm_two_dims": Case(lambda *a: ops.batch_norm(*a, eps=1e-2), (("b", "c"), *[CHANNELS] * 4), (f16,) * 5, 0.5, 2.0),
    "lp_normalize": Case(ops.lp_normalize, (ROWS,)),
    "lp_normalize_one": Case(lambda x: ops.lp_normalize(x, axis=1, p=1), (ROWS,), (f16,)),
    "lp_normalize_large_eps": Case(lambda x: ops.lp_normalize(x, axis=0, eps=100.0), (ROWS,)),
    "local_response_norm": Case(lambda x: ops.local_response_norm(x, 3), (IMAGE,)),
    "local_response_norm_even": Case(lambda x: ops.local_response_norm(x, 4, alpha=0.5, beta=0.5, bias=2.0), (("b", "c"),)),
}
