"""Cases of quantization: each kind of code, per tensor, per axis and blocked."""

from __future__ import annotations

from typing import Any

from pliant import ops
from pliant.dtype import ALL, f16, f32, f64, i8, i32, u8

from .case import Case

SCALE = 0.0625


def _through(dtype: str, zero: int | None = None) -> Any:
    """The codes of a tensor, and what they stand for."""

    def call(x: Any) -> Any:
        codes = ops.quantize_linear(x, SCALE, zero, dtype=dtype)
        return codes, ops.dequantize_linear(codes, SCALE, zero)

    return call


CASES: dict[str, Case] = {
    f"quantize_{d}": Case(_through(d, z), (("n", "w"),), (f32,), -12, 12)
    for d, z in (
        ("i8", 3),
        ("u8", 128),
        ("i16", -7),
        ("u16", 9),
        ("i4", 1),
        ("u4", 8),
        ("f8e4m3fn", None),
        ("f8e5m2", None),
        ("f8e4m3fnuz", None),
        ("f8e5m2fnuz", None),
    )
}
CASES |= {
    "quantize_f16": Case(lambda x, s: ops.quantize_linear(x, s, dtype=i8), (("n", "m"), ()), (f16, f16), 0.1, 6),
    "quantize_f64": Case(lambda x: ops.quantize_linear(x, ops.cast(ops.full((), SCALE), f64), dtype=i8), (("n", "m"),), (f64,), -9, 9),
    "quantize_i32": Case(lambda x: ops.quantize_linear(x, 2.0, 1, dtype=u8), (("n", "m"),), (i32,), -600, 600),
    "quantize_line": Case(lambda x: ops.quantize_linear(x, 0.5), (("n",),)),
    "quantize_axis": Case(lambda x, s: ops.quantize_linear(x, s, dtype=i8), (("n", "m", "k"), ("m",)), (f32, f32), 0.1, 2),
    "quantize_axis_zero": Case(
        lambda x, s, z: ops.quantize_linear(x, ops.abs(s), ops.cast(z, u8), axis=-1, dtype=u8),
        (("n", "m"), ("m",), ("m",)),
        (f32, f32, i32),
        1,
        9,
    ),
    "quantize_blocks": Case(
        lambda x, s: ops.quantize_linear(x, s, axis=1, block_size=3, dtype=i8), (("n", 7), ("n", 3)), (f32, f32), 0.1, 2
    ),
    "quantize_empty": Case(lambda x: ops.quantize_linear(x, 0.5), (("n", "zero"),)),
    "quantize_unsaturated": Case(
        lambda x: ops.quantize_linear(x, 1.0, dtype="f8e5m2", saturate=False), (("n", "m"),), (f32,), -90000, 90000
    ),
    "quantize_unsaturated_fnuz": Case(
        lambda x: ops.quantize_linear(x, 1.0, dtype="f8e4m3fnuz", saturate=False), (("n", "m"),), (f32,), -200, 200
    ),
    "quantize_powers": Case(lambda x: ops.quantize_linear(x, 1.0, dtype="f8e8m0"), (("n", "m"),), (f32,), 1, 40),
    "dequantize_f8e4m3fnuz": Case(lambda x: ops.dequantize_linear(x, 0.25), (("n", "m"),), (ALL["f8e4m3fnuz"],)),
    "dequantize_powers": Case(lambda x: ops.dequantize_linear(x, 0.25), (("n", "m"),), (ALL["f8e8m0"],), 1, 9),
    "dequantize_i4": Case(lambda x, s: ops.dequantize_linear(x, s, axis=0), (("n", "w"), ("n",)), (ALL["i4"], f32), -8, 8),
    "dequantize_blocks": Case(
        lambda x, s, z: ops.dequantize_linear(x, s, z, axis=1, block_size=2), (("n", "w"), ("n", 3), ("n", 3)), (ALL["u4"], f16, u8), 0, 8
    ),
    "dequantize_f8": Case(lambda x: ops.dequantize_linear(x, 0.25), (("n", "m"),), (ALL["f8e4m3fn"],)),
    "dequantize_i32": Case(lambda x: ops.dequantize_linear(x, 0.001), (("n", "m"),), (i32,), -9000, 9000),
    "dequantize_i8": Case(lambda x, s, z: ops.dequantize_linear(x, s, z), (("n", "m"), ("m",), ("m",)), (i8, f32, i8), -9, 9),
    "dynamic_quantize": Case(ops.dynamic_quantize_linear, (("n", "m"),)),
    "dynamic_quantize_positive": Case(ops.dynamic_quantize_linear, (("h",),), (f32,), 1, 2),
    "dynamic_quantize_negative": Case(ops.dynamic_quantize_linear, (("h", 2),), (f32,), -4, -3),
    "dynamic_quantize_zeros": Case(ops.dynamic_quantize_linear, (("h",),), (f32,), 0, 0),
    "dynamic_quantize_empty": Case(ops.dynamic_quantize_linear, (("zero",),)),
}
