"""Block-quantized weights of the domain com.microsoft: MatMulNBits and GatherBlockQuantized.

A code `c` of a block represents (c - zero) * scale. Weights stay quantized: they are repacked to the formats U4_16 … U8_256
(`quantization/formats.py`), which store -zero * scale for each block if there are zero points. The matmul uses 8-bit activations if
`accuracy_level` is 4, which allows it, and floats otherwise; `graph/ops/block_quantized.py` and `block_quantized_f32.py` define the
rounding of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtype import ALL, DType, f32
from ....quantization.formats import BLOCK_SIZES
from ....support.record import dataclass
from ..emit import ops
from ..items import Known
from ..node_context import Array, NodeContext
from ..registry import rule
from .microsoft import MS

INT8_ACTIVATIONS = 4  # accuracy levels 1 to 3 demand 32- or 16-bit floats, 0 is unspecified


@dataclass(frozen=True, slots=True)
class _Codes:
    """A block-quantized matrix: codes u8[rows, blocks, size], their bits, scales f32[rows, blocks], and zero points if any."""

    codes: Array
    bits: int
    scale: Array
    zero: Array | None

    def raw(self) -> tuple[str, Array]:
        """Returns the format name and the packed blocks; blocks longer than those of any format are split."""
        parts = max(1, self.codes.shape[2] // BLOCK_SIZES[-1])
        rows, blocks, size = self.codes.shape
        codes = self.codes.reshape(rows, blocks * parts, size // parts)
        packed = codes[..., ::2] | codes[..., 1::2] << 4 if self.bits == 4 else codes
        with np.errstate(all="ignore"):
            factors = [self.scale] if self.zero is None else [self.scale, -(self.zero * self.scale)]
        ends = [np.repeat(f, parts, axis=1).astype(np.float32)[..., None].view(np.uint8) for f in factors]
        name = f"U{self.bits}_{size // parts}{'_M' if self.zero is not None else ''}"
        return name, np.concatenate([packed, *ends], axis=-1)


@rule("MatMulNBits", domain=MS)
def matmul_nbits(site: NodeContext) -> Any:
    """Imports MatMulNBits: a matmul with a weight (n, k) quantized to 4 or 8 bits in blocks along k, with scales and zero points.

    Raises UnsupportedError for other bits and for g_idx, NeededError if the weight is not known at import time.
    """
    k, n, bits = site.integer("K", 0), site.integer("N", 0), site.integer("bits", 4)
    size = _block_size(site, 32)
    site.require(min(k, n) > 0, f"K {k}, N {n}")
    if bits not in (4, 8):
        raise site.unsupported(f"codes of {bits} bits are not supported", help="supported: 4, 8")
    if site.has(4):
        raise site.unsupported("g_idx, an order of the blocks, is not supported", help="quantize the model without act_order")
    blocks = -(-k // size)
    codes = _unpacked(site, 1, (n, blocks, size), bits)
    format, raw = _Codes(codes, bits, _numbers(site, 2, (n, blocks)), _zeros(site, 3, (n, blocks), bits)).raw()
    x: Any = site.x(0) if site.dtype(0) is f32 else ops.cast(site.x(0), f32)
    shape = site.tensor(0).shape
    rows = ops.reshape(x, (-1, k))
    rows = rows if blocks * size == k else ops.pad(rows, ((0, 0), (0, blocks * size - k)))
    linear = ops.block_linear if site.integer("accuracy_level", 0) == INT8_ACTIVATIONS else ops.block_linear_exact
    y: Any = ops.reshape(linear(rows, _literal(site, raw), format), (*shape[:-1], n))
    y = y if site.dtype(0) is f32 else ops.cast(y, site.dtype(0))
    return ops.add(y, site.x(5)) if site.has(5) else y


@rule("GatherBlockQuantized", domain=MS)
def gather_block_quantized(site: NodeContext) -> Any:
    """Imports GatherBlockQuantized: gathers rows of a block-quantized matrix and dequantizes them.

    Raises UnsupportedError for other ranks, axes and bits, and for rows that are not whole blocks.
    """
    size, bits, data = _block_size(site, 128), site.integer("bits", 4), site.known(0)
    packed = data.dtype == np.uint8 and bits == 4
    if data.ndim != 2 or site.axis("gather_axis", 2, 0) != 0 or site.axis("quantize_axis", 2, 1) != 1 or bits not in (4, 8):
        raise site.unsupported("other than rows of a matrix, in blocks along them, of codes of 4 or 8 bits, is not supported")
    rows, k = data.shape[0], data.shape[1] * (2 if packed else 1)
    if k % size:
        raise site.unsupported(f"rows of {k} codes, which are not whole blocks of {size}, are not supported")
    shape = (rows, k // size)
    if data.dtype == np.uint8:
        codes, zero = _unpacked(site, 0, (*shape, size), bits), _zeros(site, 3, shape, bits)
    else:  # i4 or u4: the default zero point is 0; signed codes are shifted by 8 to be unsigned
        low = 8 if site.dtype(0).kind == "i" else 0
        codes = (data.astype(np.int8) + low).astype(np.uint8).reshape(*shape, size)
        zero_points = site.known(3).astype(np.float32).reshape(shape) if site.has(3) else np.zeros(shape, np.float32)
        zero = zero_points + np.float32(low)
    format, raw = _Codes(codes, bits, _numbers(site, 2, shape), zero).raw()
    gathered = ops.block_take(_literal(site, raw), site.x(1), format)
    return gathered if site.dtype(2) is f32 else ops.cast(gathered, site.dtype(2))


def _block_size(site: NodeContext, default: int) -> int:
    """Returns the attribute `block_size`; raises ModelFileError unless it is a power of two of at least 16."""
    size: int = site.integer("block_size", default)
    site.require(16 <= size <= 1 << 20 and size & (size - 1) == 0, f"blocks of {size}")
    return size


def _literal(site: NodeContext, raw: Array) -> Any:
    """Returns a literal of packed blocks, u8."""
    return site.value_of(Known(np.ascontiguousarray(raw), ALL["u8"]))


def _numbers(site: NodeContext, k: int, shape: tuple[int, int]) -> Array:
    """Returns a float literal of the node as f32 in the given shape; raises if its size differs."""
    array, of = site.known(k), site.dtype(k)
    site.require(of.is_float and array.size == shape[0] * shape[1], f"input {k} is {of}{list(array.shape)}, {shape} floats are expected")
    return np.ascontiguousarray(array).astype(np.float32).reshape(shape)


def _unpacked(site: NodeContext, k: int, shape: tuple[int, ...], bits: int) -> Array:
    """Returns the codes of a literal with one (8-bit) or two (4-bit, low half first) codes per byte.

    Raises ModelFileError for another size.
    """
    array = site.known(k)
    size = int(np.prod(shape)) * bits // 8
    site.require(
        array.dtype == np.uint8 and array.size == size, f"input {k} is {array.dtype}{list(array.shape)}, {size} bytes are expected"
    )
    flat = np.ascontiguousarray(array).reshape(-1)
    return (flat if bits == 8 else np.stack([flat & 15, flat >> 4], axis=-1)).reshape(shape)


def _zeros(site: NodeContext, k: int, shape: tuple[int, int], bits: int) -> Array | None:
    """Returns the zero point of each block: packed codes in rows of whole bytes, or floats.

    None for the default, the middle of the range.
    """
    if not site.has(k):
        return None
    of: DType = site.dtype(k)
    if of.is_float:
        return _numbers(site, k, shape)
    row = -(-shape[1] * bits // 8) * 8 // bits
    return np.ascontiguousarray(_unpacked(site, k, (shape[0], row), bits)[:, : shape[1]]).astype(np.float32)
