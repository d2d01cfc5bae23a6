"""Cases of elementwise operators beyond arithmetic: functions of analysis, bits, quotients of both signs, activations."""

from __future__ import annotations

import numpy as np

from pliant import ops
from pliant.dtype import bf16, bool_, f16, f32, f64, i8, i32, i64, u8

from .case import Case

MATRIX = ("n", "m")
PAIR = (MATRIX, MATRIX)
WILD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.0], np.float32)
ACTIVATIONS = {
    **{f: getattr(ops, f) for f in ("softsign", "log_sigmoid", "mish", "hard_swish", "quick_gelu", "relu6")},
    **{f: getattr(ops, f) for f in ("leaky_relu", "elu", "selu", "celu", "softplus", "hard_sigmoid", "thresholded_relu", "shrink")},
}

CASES: dict[str, Case] = {
    **{f: Case(getattr(ops, f), (MATRIX,)) for f in ("sinh", "cosh", "asinh", "atan", "square", "sign")},
    **{f: Case(getattr(ops, f), (MATRIX,), (f32,), -0.95, 0.95) for f in ("asin", "acos", "atanh")},
    **{f: Case(getattr(ops, f), (MATRIX,), (f32,), 1.1, 9.0) for f in ("acosh", "log2", "log10", "reciprocal")},
    **{f"{f}_f64": Case(getattr(ops, f), (MATRIX,), (f64,), 0.1, 0.9) for f in ("asin", "acos", "atanh", "log2", "log10", "sinh", "atan")},
    "reciprocal_f16": Case(ops.reciprocal, (MATRIX,), (f16,), 0.5, 2.0),
    "square_int": Case(ops.square, (MATRIX,), (i32,), -9, 9),
    "sign_int": Case(ops.sign, (MATRIX,), (i8,), -2, 3),
    "sign_unsigned": Case(ops.sign, (MATRIX,), (u8,), 0, 3),
    "sign_wild": Case(lambda x: ops.sign(ops.add(x, WILD)), ((7,),), (f32,), 0.0, 0.0),
    "atan2": Case(ops.atan2, (MATRIX, ("n", 1))),
    "atan2_f64": Case(ops.atan2, PAIR, (f64, f64)),
    "clip": Case(lambda x: ops.clip(x, -1.0, 1.5), (MATRIX,)),
    "clip_below": Case(lambda x: ops.clip(x, min=0), (MATRIX,), (i32,), -9, 9),
    "clip_tensors": Case(lambda x, low: ops.clip(x, low, 2.0), (MATRIX, ("m",))),
    "trunc_divide": Case(ops.trunc_divide, PAIR, (i32, i32), -9, 9, checked=False),
    "trunc_divide_positive": Case(ops.trunc_divide, PAIR, (u8, u8), 1, 9),
    "remainder_float": Case(ops.remainder, PAIR, (f32, f32)),
    "remainder_f16": Case(ops.remainder, PAIR, (f16, f16)),
    "fmod_int": Case(ops.fmod, PAIR, (i64, i64), -9, 9, checked=False),
    "logical_xor": Case(ops.logical_xor, PAIR, (bool_, bool_), 0, 2),
    **{f: Case(lambda x, f=f: getattr(ops, f)(ops.add(x, WILD)), ((7,),)) for f in ("is_nan", "is_inf", "is_finite")},
    "is_nan_f16": Case(ops.is_nan, (MATRIX,), (f16,)),
    **{f: Case(getattr(ops, f), PAIR, (i32, i32), -99, 99) for f in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bit_cast": Case(lambda x: ops.bit_cast(x, i32), (MATRIX,), (f32,)),
    "bit_cast_to_float": Case(lambda x: ops.bit_cast(x, f32), (MATRIX,), (i32,), 0, 1 << 30),
    "bitwise_not": Case(ops.bitwise_not, (MATRIX,), (u8,), 0, 255),
    "bitwise_and_number": Case(lambda x: ops.bitwise_and(x, 15), (MATRIX,), (u8,), 0, 255),
    **{f: Case(getattr(ops, f), PAIR, (i32, i32), -40, 40) for f in ("shift_left", "shift_right")},
    "shift_right_unsigned": Case(ops.shift_right, PAIR, (u8, u8), 0, 12),
    **{name: Case(f, (MATRIX,)) for name, f in ACTIVATIONS.items()},
    **{f"{name}_f16": Case(f, (MATRIX,), (f16,)) for name, f in ACTIVATIONS.items()},
    **{f"{name}_large": Case(ACTIVATIONS[name], (MATRIX,), (f64,), -900, 900) for name in ("mish", "softplus", "log_sigmoid", "selu")},
    "leaky_relu_alpha": Case(lambda x: ops.leaky_relu(x, alpha=0.3), (("n", "zero"),)),
    "celu_alpha": Case(lambda x: ops.celu(x, alpha=2.0), (MATRIX,)),
    "softplus_beta": Case(lambda x: ops.softplus(x, beta=3.0), ((),)),
    "shrink_bias": Case(lambda x: ops.shrink(x, lambd=1.0, bias=0.5), (MATRIX,), (bf16,)),
    "prelu": Case(ops.prelu, (("b", "c", "h"), ("c", 1))),
    "prelu_f16": Case(ops.prelu, (MATRIX, MATRIX), (f16, f16)),
}
