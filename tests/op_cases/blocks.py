"""Cases of block formats: every format's codes, scales and minimums, activations as codes, products, rows as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant import ops
from pliant.dtype import f32, i32, i64, u8
from pliant.quantization.formats import BY_NAME, Format

from .case import Case

FORMATS = [f for f in BY_NAME.values() if f.codes is not None]


def weights(format: Format, rows: int, length: int) -> np.ndarray:
    """Random blocks whose scales are ordinary numbers."""
    rng = np.random.default_rng(format.number)
    raw = rng.integers(0, 256, (rows, length // format.length, format.size), dtype=np.uint8)
    for factor in (format.scale, format.minimum):
        if factor is not None:
            numbers = rng.uniform(-0.1, 0.1, raw.shape[:2]).astype(factor.dtype.numpy())
            if factor.dtype is u8:  # exponents, also those of subnormal numbers
                numbers = rng.choice(np.array([0, 1, 2, 120, 125, 129], np.uint8), raw.shape[:2])
            raw[:, :, factor.offset : factor.offset + factor.dtype.itemsize] = numbers[..., None].view(np.uint8)
    return raw


def _parts(format: Format) -> Any:
    def call(x: Any) -> Any:
        raw = ops.constant(weights(format, 19, format.length * 2))
        found = [ops.block_codes(raw, format.name), ops.block_scales(raw, format.name)]
        if format.minimum is not None:
            found.append(ops.block_minimums(raw, format.name))
        return (ops.relu(x), *found)

    return call


def _linear(format: Format, rows: int, length: int = 256) -> Any:
    return lambda x: ops.block_linear(x, weights(format, rows, length), format=format.name)


def _exact(format: Format, rows: int, length: int = 256) -> Any:
    return lambda x: ops.block_linear_exact(x, weights(format, rows, length), format=format.name)


def _take(format: Format) -> Any:
    return lambda ids: ops.block_take(ops.constant(weights(format, 7, 256)), ids, format=format.name)


CASES: dict[str, Case] = {f"block_parts_{f.name}": Case(_parts(f), (("n",),)) for f in FORMATS}
CASES |= {f"block_take_{f.name}": Case(_take(f), (("n", "m"),), (i32,), 0, 7) for f in FORMATS}
CASES |= {f"block_linear_{f.name}": Case(_linear(f, 21), (("n", 256),)) for f in FORMATS}
CASES |= {f"block_linear_exact_{f.name}": Case(_exact(f, 21), (("n", 256),)) for f in FORMATS}
CASES |= {
    "block_linear_exact_nine": Case(_exact(BY_NAME["U4_16_M"], 16), ((9, 256),)),
    "block_linear_exact_chunks": Case(_exact(BY_NAME["U8_32"], 16 * 9 + 3, 64), (("n", 64),)),
    "block_linear_exact_none": Case(_exact(BY_NAME["Q8_0"], 3), (("zero", 256),)),
    "block_linear_nine": Case(_linear(BY_NAME["Q4_1"], 16), ((9, 256),)),
    "block_linear_chunks": Case(_linear(BY_NAME["Q5_1"], 16 * 9 + 3, 64), (("n", 64),)),
    "block_linear_none": Case(_linear(BY_NAME["Q8_0"], 3), (("zero", 256),)),
    "block_take_one": Case(_take(BY_NAME["Q8_0"]), ((),), (i64,), 0, 7),
    "quantize_groups": Case(ops.quantize_groups, (("n", "m", 32),)),
    "quantize_groups_small": Case(ops.quantize_groups, (("n", "m", 8),), (f32,), -1e-3, 1e-3),
    "quantize_groups_zeros": Case(ops.quantize_groups, (("n", "m", 16),), (f32,), 0, 0),
}


def _experts(format: Format, starts: list[int], source: list[int] | None = None) -> Any:
    """Products with the weights of three experts, of 32 rows each."""
    raw = weights(format, 3 * 32, 256).reshape(3, 32, -1, format.size)
    rows = None if source is None else np.array(source, np.int32)
    return lambda x: ops.block_linear_experts(x, ops.constant(raw), np.array(starts, np.int32), rows, format=format.name)


def _float_experts(format: str, starts: list[int], source: list[int] | None = None) -> Any:
    values = np.random.default_rng(2).uniform(-0.2, 0.2, (3, 48, 37)).astype(np.float32)
    bits = {"F16": values.astype(np.float16).view(np.uint16), "BF16": (values.view(np.uint32) >> 16).astype(np.uint16), "F32": values}[
        format
    ]
    rows = None if source is None else np.array(source, np.int32)
    return lambda x: ops.float_linear_experts(x, ops.constant(bits), np.array(starts, np.int32), rows, format=format)


CASES |= {f"block_linear_experts_{f}": Case(_experts(BY_NAME[f], [0, 3, 3, 20]), ((20, 256),)) for f in ("Q4_0", "Q4_K", "Q8_0", "MXFP4")}
CASES |= {f"float_linear_experts_{f}": Case(_float_experts(f, [0, 9, 9, 13]), ((13, 37),)) for f in ("F16", "BF16", "F32")}
CASES |= {
    "block_linear_experts_source": Case(_experts(BY_NAME["Q6_K"], [0, 1, 4, 6], [4, 0, 0, 3, 1, 2]), ((5, 256),)),
    "float_linear_experts_source": Case(_float_experts("F32", [0, 0, 4, 4], [1, 1, 0, 1]), ((2, 37),)),
}


def _half(format: str, rows: int) -> Any:
    values = np.random.default_rng(rows).uniform(-0.2, 0.2, (rows, 37)).astype(np.float32)
    bits = values.astype(np.float16).view(np.uint16) if format == "F16" else (values.view(np.uint32) >> 16).astype(np.uint16)
    return lambda x: ops.half_linear(x, ops.constant(bits), format=format)


def _half_take(format: str) -> Any:
    bits = np.random.default_rng(5).integers(0, 0x7000, (7, 19), dtype=np.uint16)
    return lambda ids: ops.half_take(ops.constant(bits), ids, format=format)


CASES |= {f"half_linear_{f}": Case(_half(f, rows), (("n", 37),)) for f, rows in (("F16", 70), ("BF16", 64))}
CASES |= {f"half_take_{f}": Case(_half_take(f), (("n", "m"),), (i32,), 0, 7) for f in ("F16", "BF16")}
CASES |= {
    "half_linear_many": Case(_half("F16", 130), ((11, 37),)),
    "half_linear_none": Case(_half("F16", 3), (("zero", 37),)),
    "half_weights": Case(
        lambda x: (ops.relu(x), ops.half_weights(ops.constant(np.arange(70 * 5, dtype=np.uint16).reshape(70, 5)))), (("n",),)
    ),
}
