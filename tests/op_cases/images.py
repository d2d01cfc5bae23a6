"""Cases of padding and resizing."""

from __future__ import annotations

import itertools

from pliant import ops
from pliant.dtype import bf16, f16, f32, f64, i32, u8
from pliant.graph.ops.resize import COORDINATES, NEAREST

from .case import Case

MATRIX = ("n", "m")
IMAGE = ("b", 2, "h", "w")


def resized(**options: object) -> Case:
    """A call of resize on an image."""
    return Case(lambda x: ops.resize(x, **options), (IMAGE,))


CASES: dict[str, Case] = {
    "pad": Case(lambda x: ops.pad(x, [(0, 0), (1, 2)]), (MATRIX,)),
    "pad_value": Case(lambda x: ops.pad(x, 1, value=2.5), (MATRIX,)),
    "pad_infinite": Case(lambda x: ops.exp(ops.pad(x, [(1, 0), (0, 0)], value=float("-inf"))), (MATRIX,)),
    "pad_int": Case(lambda x: ops.pad(x, [(2, 0), (0, 1)], value=-7), (MATRIX,), (i32,), -9, 9),
    "pad_negative": Case(lambda x: ops.pad(x, [(-1, 2), (1, -2)]), (MATRIX,)),
    "pad_dims": Case(lambda x, y: ops.pad(x, [(y.tensor.shape[0], 0), (1, y.tensor.shape[0])]), (MATRIX, ("k",))),
    "pad_difference": Case(lambda x, y: ops.pad(x, [(0, y.tensor.shape[0] - x.tensor.shape[0])]), (("n",), ("m",))),
    "pad_empty": Case(lambda x: ops.pad(x, [(1, 1), (0, 0)]), (("zero", "m"),), (f16,)),
    "pad_no_dims": Case(lambda x: ops.pad(x, []), ((),)),
    "pad_reflect": Case(lambda x: ops.pad(x, [(2, 1), (0, 3)], mode="reflect"), (MATRIX,)),
    "pad_reflect_before": Case(lambda x: ops.pad(x, [(2, 0)], mode="reflect"), (("n",),), (bf16,)),
    "pad_reflect_dim": Case(lambda x, y: ops.pad(x, [(y.tensor.shape[0], 0)], mode="reflect"), (("m",), ("n",))),
    "pad_edge": Case(lambda x: ops.pad(x, [(2, 7), (1, 0)], mode="edge"), (MATRIX,)),
    "pad_edge_int": Case(lambda x: ops.pad(x, [(0, 3)], mode="edge"), (("n",),), (u8,), 0, 9),
    "pad_circular": Case(lambda x: ops.pad(x, [(2, 3), (0, 1)], mode="circular"), (MATRIX,)),
    "resize_scales": resized(scales=[1, 1, 2, 2.5]),
    "resize_down": resized(scales=[1, 1, 0.5, 0.6], nearest="floor"),
    "resize_keeps_size": resized(scales=[1, 1, 1.1, 1.0], mode="linear"),
    "resize_int": Case(lambda x: ops.resize(x, scales=[1, 1, 2, 2]), (IMAGE,), (i32,), -9, 9),
    "resize_linear_f16": Case(lambda x: ops.resize(x, scales=[1, 1, 2, 2], mode="linear"), (IMAGE,), (f16,)),
    "resize_cubic_f64": Case(lambda x: ops.resize(x, scales=[1, 1, 2, 1.5], mode="cubic"), (IMAGE,), (f64,)),
    "resize_cubic_half": resized(scales=[1, 1, 0.5, 2], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=True),
    "resize_linear_excluding": resized(scales=[1, 1, 1.5, 0.75], mode="linear", exclude_outside=True),
    "resize_to_dims": Case(
        lambda x, y: ops.resize(x, sizes=[*x.tensor.shape[:2], *y.tensor.shape], mode="linear"), (IMAGE, ("m", "k")), (f32, f32)
    ),
    "resize_cubic_to_dims": Case(
        lambda x, y: ops.resize(x, sizes=[*x.tensor.shape[:2], *y.tensor.shape], mode="cubic"), (IMAGE, ("m", "one")), (f32, f32)
    ),
    "resize_by_ratios": Case(
        lambda x, y: ops.resize(
            x, sizes=[*x.tensor.shape[:2], 5, 7], ratios=[(1, 1), (1, 1), (y.tensor.shape[0], 3), (5, y.tensor.shape[1])], mode="linear"
        ),
        (IMAGE, ("m", "k")),
        (f32, f32),
    ),
    "resize_1d": Case(lambda x: ops.resize(x, scales=[1, 1, 3], mode="linear"), (("b", 2, "h"),)),
    "resize_3d": Case(lambda x: ops.resize(x, scales=[1, 1, 2, 1.5, 2], mode="linear"), (("one", 2, "b", "n", "b"),)),
    "resize_empty": Case(lambda x: ops.resize(x, scales=[1, 1, 2, 2], mode="linear"), (("zero", 2, "h", "w"),)),
    **{
        f"resize_{mode}_{c}": Case(
            lambda x, mode=mode, c=c: ops.resize(x, sizes=[*x.tensor.shape[:2], 3, 11], mode=mode, coordinates=c), (IMAGE,)
        )
        for mode, c in itertools.product(("linear", "cubic"), COORDINATES)
    },
    **{
        f"resize_nearest_{c}_{n}": resized(scales=[1, 1, 1.5, 0.7], coordinates=c, nearest=n)
        for c, n in itertools.product(COORDINATES, NEAREST)
    },
}
