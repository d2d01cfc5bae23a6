"""Cases of convolutions and pools: one to three spatial dims, strides, dilations, groups, uneven padding, empty batches."""

from __future__ import annotations

from pliant import ops
from pliant.dtype import bf16, f16, f32, f64, i32

from .case import Case

IMAGE = ("b", "c", "h", "w")
FIXED = ("b", 4, "h", "w")
WINOGRAD = (IMAGE, (4, 4, "n", "c"))
WINOGRAD_4 = (IMAGE, (6, 6, "n", "c"))

CASES: dict[str, Case] = {
    "winograd_weight": Case(ops.winograd_weight, (("n", "c", 3, 3),)),
    "winograd_weight_f64": Case(ops.winograd_weight, (("n", "c", 3, 3),), (f64,)),
    "winograd_weight_4": Case(lambda w: ops.winograd_weight(w, tile=4), (("n", "c", 3, 3),)),
    # The transform of a tile adds 4 elements: operands in -1..1 keep the terms of a sum as small as those of a direct convolution in -3..3.
    "winograd_conv": Case(ops.winograd_conv, WINOGRAD, (f32,), -1, 1),
    "winograd_conv_bias": Case(lambda x, w, b: ops.winograd_conv(x, w, b, padding=1), (*WINOGRAD, ("n",)), (f32,), -1, 1),
    "winograd_conv_pairs": Case(lambda x, w: ops.winograd_conv(x, w, padding=[(0, 2), (3, 0)]), WINOGRAD, (f64, f64), -1, 1),
    "winograd_conv_4": Case(lambda x, w, b: ops.winograd_conv(x, w, b, padding=1, tile=4), (*WINOGRAD_4, ("n",)), (f32,), -1, 1),
    "winograd_conv_4_pairs": Case(lambda x, w: ops.winograd_conv(x, w, padding=[(0, 2), (3, 0)], tile=4), WINOGRAD_4, (f64, f64), -1, 1),
    "winograd_conv_nothing": Case(lambda x, w: ops.winograd_conv(x, w, padding=1), (("zero", "c", "h", "w"), (4, 4, "n", "c"))),
    "conv1d": Case(ops.conv, (("b", "c", "h"), ("n", "c", 3))),
    "conv1d_kernel_dim": Case(ops.conv, (("b", "c", "h"), ("n", "c", "k"))),
    "conv2d": Case(ops.conv, (IMAGE, ("n", "c", 3, 2))),
    "conv2d_bias": Case(lambda x, w, b: ops.conv(x, w, b, padding=1), (IMAGE, ("n", "c", 3, 3), ("n",))),
    "conv2d_stride": Case(lambda x, w: ops.conv(x, w, stride=(2, 3)), (IMAGE, ("n", "c", 3, 2))),
    "conv2d_pairs": Case(lambda x, w: ops.conv(x, w, padding=[(0, 2), (1, 0)], stride=2), (IMAGE, ("n", "c", 3, 2))),
    "conv2d_dilation": Case(lambda x, w: ops.conv(x, w, padding=2, dilation=(2, 1)), (IMAGE, ("n", "c", 3, 3))),
    "conv2d_groups": Case(lambda x, w: ops.conv(x, w, groups=2), (FIXED, (6, 2, 3, 3))),
    "conv2d_groups_dims": Case(lambda x, w: ops.conv(x, w, groups=2), (IMAGE, ("k", 2, 3, 3))),
    "conv2d_depthwise": Case(lambda x, w: ops.conv(x, w, padding=1, groups=4), (FIXED, (4, 1, 3, 3))),
    "conv2d_f16": Case(lambda x, w, b: ops.conv(x, w, b, padding=1), (IMAGE, (2, "c", 3, 3), (2,)), (f16, f16, f16), -1, 1),
    "conv2d_bf16": Case(ops.conv, (IMAGE, (2, "c", 3, 3)), (bf16, bf16), -1, 1),
    "conv2d_f64": Case(ops.conv, (IMAGE, (2, "c", 3, 3)), (f64, f64)),
    "conv2d_int": Case(lambda x, w: ops.conv(x, w, padding=1), (IMAGE, (2, "c", 3, 3)), (i32, i32), -9, 9),
    "conv2d_no_batch": Case(ops.conv, (("zero", "c", "h", "w"), (2, "c", 3, 3))),
    "conv2d_no_channels": Case(lambda x, w, b: ops.conv(x, w, b), (("b", "zero", "h", "w"), (2, "zero", 3, 3), (2,))),
    "conv2d_pointwise": Case(ops.conv, (IMAGE, ("m", "c", 1, 1))),
    "conv2d_same": Case(lambda x, w: ops.conv(x, w, padding="same", stride=2), (IMAGE, (2, "c", 4, 3))),
    "conv2d_same_lower": Case(lambda x, w: ops.conv(x, w, padding="same_lower"), (IMAGE, (2, "c", 4, 2))),
    "conv3d": Case(lambda x, w: ops.conv(x, w, padding=(1, 0, 1), stride=(1, 2, 1)), (("one", 2, "n", "m", "k"), (2, 2, 3, 2, 3))),
    "conv_transpose1d": Case(ops.conv_transpose, (("b", "c", "h"), ("c", "n", 3))),
    "conv_transpose2d": Case(lambda x, w, b: ops.conv_transpose(x, w, b, stride=2), (IMAGE, ("c", "n", 3, 2), ("n",))),
    "conv_transpose2d_padding": Case(
        lambda x, w: ops.conv_transpose(x, w, stride=(2, 3), padding=[(1, 0), (1, 2)], output_padding=(1, 0), dilation=(1, 2)),
        (IMAGE, ("c", "n", 3, 3)),
    ),
    "conv_transpose2d_groups": Case(lambda x, w: ops.conv_transpose(x, w, stride=2, groups=2), (FIXED, (4, 3, 2, 2))),
    "conv_transpose2d_groups_dims": Case(lambda x, w: ops.conv_transpose(x, w, groups=2), (IMAGE, ("c", "n", 2, 2))),
    "conv_transpose2d_f16": Case(lambda x, w: ops.conv_transpose(x, w, stride=2), (IMAGE, ("c", 2, 3, 3)), (f16, f16), -1, 1),
    "conv_transpose3d": Case(lambda x, w: ops.conv_transpose(x, w, stride=2, padding=1), (("one", 2, 2, "n", "b"), (2, 2, 3, 3, 3))),
    "max_pool": Case(lambda x: ops.max_pool(x, 2), (IMAGE,)),
    "max_pool1d": Case(lambda x: ops.max_pool(x, 3, stride=1, dilation=2, padding=1), (("b", "c", "h"),)),
    "max_pool_padding": Case(lambda x: ops.max_pool(x, (3, 2), stride=2, padding=[(1, 0), (1, 1)]), (IMAGE,)),
    "max_pool_ceil": Case(lambda x: ops.max_pool(x, 3, stride=2, padding=1, ceil_mode=True), (IMAGE,)),
    "max_pool_ceil_plain": Case(lambda x: ops.max_pool(x, 2, stride=3, ceil_mode=True), (IMAGE,)),
    "max_pool_int": Case(lambda x: ops.max_pool(x, 3, stride=2, padding=1), (IMAGE,), (i32,), -9, -1),
    "max_pool_f16": Case(lambda x: ops.max_pool(x, 2), (IMAGE,), (f16,)),
    "max_pool_empty": Case(lambda x: ops.max_pool(x, 2), (("zero", "c", "h", "w"),)),
    "avg_pool": Case(lambda x: ops.avg_pool(x, 2), (IMAGE,)),
    "avg_pool_padding": Case(lambda x: ops.avg_pool(x, 3, stride=2, padding=1), (IMAGE,)),
    "avg_pool_with_padding": Case(lambda x: ops.avg_pool(x, 3, stride=2, padding=[(1, 0), (1, 1)], count_include_pad=True), (IMAGE,)),
    "avg_pool_ceil": Case(lambda x: ops.avg_pool(x, 3, stride=2, ceil_mode=True), (IMAGE,)),
    "avg_pool_ceil_with_padding": Case(
        lambda x: ops.avg_pool(x, (2, 3), stride=(3, 2), padding=1, ceil_mode=True, count_include_pad=True), (IMAGE,)
    ),
    "avg_pool_dilation": Case(lambda x: ops.avg_pool(x, 2, stride=1, dilation=2, padding=1), (IMAGE,)),
    "avg_pool_f16": Case(lambda x: ops.avg_pool(x, 2), (IMAGE,), (f16,)),
    "avg_pool3d": Case(lambda x: ops.avg_pool(x, 2, stride=1), (("one", 2, "n", "m", "k"),)),
    "lp_pool": Case(lambda x: ops.lp_pool(x, 2), (IMAGE,)),
    "lp_pool_one": Case(lambda x: ops.lp_pool(x, 3, stride=1, padding=1, p=1), (IMAGE,)),
    "lp_pool_three": Case(lambda x: ops.lp_pool(x, 2, ceil_mode=True, p=3), (IMAGE,)),
    "adaptive_avg_pool": Case(lambda x: ops.adaptive_avg_pool(x, (3, 4)), (IMAGE,)),
    "adaptive_avg_pool_one": Case(lambda x: ops.adaptive_avg_pool(x, 1), (IMAGE,)),
    "adaptive_avg_pool_more": Case(lambda x: ops.adaptive_avg_pool(x, (9, None)), (IMAGE,)),
    "adaptive_avg_pool_dim": Case(lambda x, y: ops.adaptive_avg_pool(x, (y.tensor.shape[0], 2)), (IMAGE, ("n",))),
    "adaptive_avg_pool_f16": Case(lambda x: ops.adaptive_avg_pool(x, 2), (("b", "c", 6),), (f16,)),
    "adaptive_max_pool": Case(lambda x: ops.adaptive_max_pool(x, (3, 4)), (IMAGE,)),
    "adaptive_max_pool_int": Case(lambda x: ops.adaptive_max_pool(x, 2), (("b", "c", "h"),), (i32,), -9, -1),
    "global_avg_pool": Case(ops.global_avg_pool, (IMAGE,)),
    "global_max_pool": Case(ops.global_max_pool, (("b", "c", "h"),)),
    "global_lp_pool": Case(lambda x: ops.global_lp_pool(x, p=3), (IMAGE,), (f32,)),
}
