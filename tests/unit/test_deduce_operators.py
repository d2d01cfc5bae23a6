"""Deduction of convolutions, pools, norms, products and creation: results over numbers and dims, what is checked
at run time, and what is refused. All that is expected is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pliant import ops
from pliant.dtype import bool_, f16, f32, i32, i64
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor
from pliant.support.errors import Error, ShapeError
from pliant.sym.expr import Dim, Expr, const

b, c, h, w, n, m = (Dim(name) for name in "bchwnm")


def t(*shape: Expr | int, dtype: Any = f32) -> Tensor:
    """A tensor annotation."""
    return Tensor(dtype, tuple(s if isinstance(s, Expr) else const(s) for s in shape))


def deduced(call: Callable[..., Any], *args: Tensor) -> tuple[str, list[str]]:
    """The annotation of the (last) result, and the conditions of its node."""
    builder = Builder("f")
    params = [builder.param(f"x{k}", a) for k, a in enumerate(args)]
    with builder:
        made = call(*params)
    result = made[-1] if isinstance(made, tuple) else made
    node = next(x for x in builder.finish([result]).nodes if result in x.outs)
    return str(result.annotation), [str(r.cond) for r in node.requires]


IMAGE = t(b, 3, h, w)
GOOD: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str, list[str]]] = {
    "conv_static": (ops.conv, (t(1, 3, 32, 30), t(8, 3, 3, 5)), "Tensor[f32, 1, 8, 30, 26]", []),
    "conv_symbols": (lambda x, k: ops.conv(x, k, padding=1), (IMAGE, t(8, 3, 3, 3)), "Tensor[f32, b, 8, h, w]", ["h > 0", "w > 0"]),
    "conv_stride": (
        lambda x, k: ops.conv(x, k, stride=2, padding=1),
        (IMAGE, t(8, 3, 3, 3)),
        "Tensor[f32, b, 8, (h + 1) // 2, (w + 1) // 2]",
        ["h > 0", "w > 0"],
    ),
    "conv_pairs": (lambda x, k: ops.conv(x, k, padding=[(0, 1), (2, 0)]), (t(1, 3, 8, 8), t(4, 3, 2, 3)), "Tensor[f32, 1, 4, 8, 8]", []),
    "conv_dilation": (lambda x, k: ops.conv(x, k, dilation=3), (t(1, 3, 9), t(4, 3, 3)), "Tensor[f32, 1, 4, 3]", []),
    "conv_channels": (ops.conv, (t(1, c, 9), t(4, n, 3)), "Tensor[f32, 1, 4, 7]", ["c == n"]),
    "conv_transpose": (
        lambda x, k: ops.conv_transpose(x, k, stride=2, padding=1, output_padding=1),
        (IMAGE, t(3, 8, 3, 3)),
        "Tensor[f32, b, 8, h * 2, w * 2]",
        [],
    ),
    "max_pool": (lambda x: ops.max_pool(x, 2), (IMAGE,), "Tensor[f32, b, 3, h // 2, w // 2]", ["h > 1", "w > 1"]),
    "max_pool_ceil": (lambda x: ops.max_pool(x, 3, stride=2, ceil_mode=True), (t(1, 2, 8, 9),), "Tensor[f32, 1, 2, 4, 4]", []),
    "adaptive": (lambda x: ops.adaptive_avg_pool(x, (7, None)), (IMAGE,), "Tensor[f32, b, 3, 7, w]", ["h > 0", "w > 0"]),
    "pad": (lambda x: ops.pad(x, [(0, 0), (n, 2)]), (t(n, m),), "Tensor[f32, n, m + n + 2]", []),
    "pad_reflect": (lambda x: ops.pad(x, [(0, 2)], mode="reflect"), (t(m),), "Tensor[f32, m + 2]", ["m > 2"]),
    "resize": (lambda x: ops.resize(x, scales=[1, 1, 2, 0.5]), (IMAGE,), "Tensor[f32, b, 3, h * 2, w // 2]", ["h > 0", "w > 0"]),
    "resize_sizes": (lambda x: ops.resize(x, sizes=[b, 3, 7, w * 2]), (IMAGE,), "Tensor[f32, b, 3, 7, w * 2]", ["h > 0", "w > 0"]),
    "group_norm": (lambda x: ops.group_norm(x, groups=2), (t(b, c, h),), "Tensor[f32, b, c, h]", ["c % 2 == 0"]),
    "layer_norm": (lambda x, k: ops.layer_norm(x, k, axis=-1), (t(b, n), t(m)), "Tensor[f32, b, n]", ["m == n"]),
    "argmax": (lambda x: ops.argmax(x, axis=0), (t(n, m),), "Tensor[i64, m]", ["n > 0"]),
    "max_with_index": (lambda x: ops.max_with_index(x, axis=1, keepdims=True), (t(n, 4),), "Tensor[i64, n, 1]", []),
    "einsum": (lambda x, y: ops.einsum("bij,bkj->bik", x, y), (t(b, n, 4), t(b, m, 4)), "Tensor[f32, b, n, m]", []),
    "einsum_letters": (lambda x, y: ops.einsum("ij,jk", x, y), (t(n, c), t(h, m)), "Tensor[f32, n, m]", ["c == h"]),
    "attention": (ops.scaled_dot_product_attention, (t(b, 8, n, 64), t(b, 2, m, 64), t(b, 2, m, 32)), "Tensor[f32, b, 8, n, 32]", []),
    "arange": (lambda x: ops.arange(1, n, 2), (t(n),), "Tensor[i64, n // 2]", []),
    "one_hot": (lambda x: ops.one_hot(x, m, axis=0), (t(n, m, dtype=i32),), "Tensor[f32, m, n, m]", []),
    "expand": (lambda x, y: ops.expand(x, [b, -1, m]), (t(n, 1), t(b, m)), "Tensor[f32, b, n, m]", []),
    "tile": (lambda x: ops.tile(x, [2, n]), (t(n, 3),), "Tensor[f32, n * 2, n * 3]", []),
    "matmul_vector": (ops.matmul, (t(b, n, 4), t(4)), "Tensor[f32, b, n]", []),
    "space_to_depth": (lambda x: ops.space_to_depth(x, 2), (t(b, 3, 8, 6),), "Tensor[f32, b, 12, 4, 3]", []),
}


@pytest.mark.parametrize("name", GOOD)
def test_results(name: str) -> None:
    call, args, shape, conditions = GOOD[name]
    found, checked = deduced(call, *args)
    assert found == shape
    assert checked == conditions


BAD: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "conv_channels": (ops.conv, (t(1, 4, 9), t(4, 3, 3)), "`x0` has 4 channels, the weight `x1` is for 3"),
    "conv_groups": (lambda x, k: ops.conv(x, k, groups=3), (t(1, 6, 9), t(4, 2, 3)), "4 output channels are not divisible into 3 groups"),
    "conv_large": (ops.conv, (t(1, 3, 4), t(4, 3, 5)), "a window over 5 elements does not fit into the 4 of spatial dim 0"),
    "conv_rank": (ops.conv, (t(3, 4), t(4, 3, 5)), "`x0` has 2 dims, at least 3 are needed"),
    "conv_dtype": (ops.conv, (t(1, 3, 9), t(4, 3, 3, dtype=f16)), "conv of f32 and f16: nothing is cast implicitly"),
    "conv_bias": (ops.conv, (t(1, 3, 9), t(4, 3, 3), t(5)), "the bias `x2` has 5 elements for 4 channels"),
    "conv_stride": (lambda x, k: ops.conv(x, k, stride=0), (t(1, 3, 9), t(4, 3, 3)), "conv: stride 0 is less than 1"),
    "conv_strides": (lambda x, k: ops.conv(x, k, stride=(1, 2)), (t(1, 3, 9), t(4, 3, 3)), r"conv: stride \[1, 2\] for 1 spatial dim"),
    "conv_padding": (lambda x, k: ops.conv(x, k, padding="full"), (t(1, 3, 9), t(4, 3, 3)), 'conv has no padding "full"'),
    "conv_negative": (lambda x, k: ops.conv(x, k, padding=-1), (t(1, 3, 9), t(4, 3, 3)), "padding -1 of spatial dim 0 is negative"),
    "transpose_more": (lambda x, k: ops.conv_transpose(x, k, output_padding=1), (t(1, 3, 9), t(3, 4, 3)), "is not less than its stride 1"),
    "pool_ints": (lambda x: ops.avg_pool(x, 2), (t(1, 3, 9, dtype=i32),), "avg_pool is for floats"),
    "pool_rank": (lambda x: ops.max_pool(x, (2, 2)), (t(1, 3, 9),), r"kernel \[2, 2\] for 1 spatial dim"),
    "pad_reflect": (lambda x: ops.pad(x, [(3, 0)], mode="reflect"), (t(3),), "3 elements cannot be had from dim 0 with 3"),
    "pad_mode": (lambda x: ops.pad(x, [(3, 0)], mode="mirror"), (t(3),), 'pad has no mode "mirror"'),
    "pad_dims": (lambda x: ops.pad(x, [(3, 0)]), (t(3, 3),), "padding for 1 dim, there are 2"),
    "pad_negative": (lambda x: ops.pad(x, [(-2, -2)]), (t(3),), "pad: dim 0 would have -1 elements"),
    "resize_both": (lambda x: ops.resize(x), (t(3),), "resize takes either sizes or scales"),
    "resize_mode": (lambda x: ops.resize(x, scales=[2], mode="area"), (t(3),), 'there is no mode "area"'),
    "resize_dims": (lambda x: ops.resize(x, scales=[2, 2]), (t(1, 1, 3, 3),), "sizes for 2 dims, and `x0` has 4"),
    "resize_ints": (lambda x: ops.resize(x, scales=[2], mode="linear"), (t(3, dtype=i32),), "resize is for floats"),
    "layer_norm": (ops.layer_norm, (t(3, 4), t(5)), "dim 0 of `x1` is 5, that of what is normalized of `x0` 4"),
    "group_norm": (lambda x: ops.group_norm(x, groups=3), (t(1, 4, 5),), "4 channels are not divisible into 3 groups"),
    "batch_norm": (ops.batch_norm, (t(1, 4, 5), t(4), t(4), t(3), t(4)), "`x3` has 3 elements for 4 channels"),
    "argmax": (lambda x: ops.argmax(x, axis=0), (t(0, 4),), "argmax: dim 0 of `x0` has no elements"),
    "argmax_bools": (ops.argmax, (t(4, dtype=bool_),), "argmax of bools"),
    "any_ints": (ops.any, (t(4, dtype=i32),), "any is for bools, and `x0` is i32"),
    "norm_power": (lambda x: ops.norm(x, p=0), (t(4),), "p is a whole number from 1 on"),
    "einsum_size": (lambda x, y: ops.einsum("ij,jk->ik", x, y), (t(3, 4), t(5, 6)), "`j` is both 4 and 5"),
    "einsum_rank": (lambda x: ops.einsum("ijk->i", x), (t(3, 4),), '"ijk" names 3 dims, and `x0` has 2'),
    "einsum_letter": (lambda x: ops.einsum("ij->k", x), (t(3, 4),), "`k` of the result is in no operand"),
    "einsum_count": (lambda x: ops.einsum("ij,jk->ik", x), (t(3, 4),), "is for 2 operands, 1 given"),
    "attention": (ops.scaled_dot_product_attention, (t(2, 3, 4), t(2, 5, 6), t(2, 5, 4)), "keys `x1` have 6 numbers each, queries `x0` 4"),
    "attention_heads": (
        ops.scaled_dot_product_attention,
        (t(3, 2, 4), t(2, 5, 4), t(2, 5, 4)),
        "3 heads of queries cannot share 2 of keys evenly",
    ),
    "attention_mask": (ops.scaled_dot_product_attention, (t(2, 4), t(3, 4), t(3, 4), t(2, 3, dtype=i32)), "neither bool nor f32"),
    "arange": (lambda x: ops.arange(0, 4, 0), (t(3),), "step 0 is not a number other than 0"),
    "arange_mixed": (lambda x: ops.arange(0.5, x.tensor.shape[0]), (t(n),), "dims and floats cannot be mixed"),
    "one_hot": (lambda x: ops.one_hot(x, 4), (t(3),), "the indices `x0` are f32, not integers"),
    "expand": (lambda x: ops.expand(x, [4, 5]), (t(4, 3),), "dim 1 of `x0` is 3, which cannot become 5"),
    "squeeze": (lambda x: ops.squeeze(x, 0), (t(4, 3),), "squeeze: dim 0 is 4, not 1"),
    "split": (lambda x: ops.split(x, 3), (t(4),), "4 elements are not divisible into 3 equal parts"),
    "split_sizes": (lambda x: ops.split(x, [1, 2]), (t(4),), "sizes of 3 in all for the 4 elements of axis 0"),
    "depth_to_space": (lambda x: ops.depth_to_space(x, 2), (t(1, 6, 2, 2),), "6 channels are not divisible by 4"),
    "bits_of_floats": (lambda x: ops.bitwise_not(x), (t(4),), "bitwise_not is for integers, and `x0` is f32"),
    "tril": (ops.tril, (t(4),), "matrices are expected"),
    "var_ints": (ops.var, (t(4, dtype=i64),), "var is for floats"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    call, args, message = BAD[name]
    with pytest.raises((Error, ShapeError), match=message):
        deduced(call, *args)
