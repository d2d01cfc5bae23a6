"""Products with small weights: the templates against ordinary operators, of which fusion decodes the weights inside of the product.

    python benchmarks/decoded_weights.py                            # all formats on this machine
    python benchmarks/decoded_weights.py U4 --target llvm:x86-64-v3

F16 and BF16 are `half_linear`, U4 and U8 `block_linear_exact` (f32 activations), U8_INT `block_linear` (int8 activations). One thread,
2048 x 2048 weights, the best of many calls. The table in docs/design/0007-operator-templates.md is made of these numbers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pliant
from pliant import Out, Tensor, bf16, dim, f16, f32, function, grid, i8, kernel, ops, u8
from pliant.quantization.formats import BY_NAME

K = N = 2048
PARTS = K // 16  # activations that share a scale, as in `quantize_groups`
CALLS = {1: 300, 6: 150, 64: 24, 512: 6}  # rows of activations -> calls
RNG = np.random.default_rng(0)
n = dim("n", min=1, max=4096)


def template(product: Callable[[Any], Any]) -> Any:
    """Returns a program with literal weights, which are packed when it is loaded."""

    class Product(pliant.nn.Module):
        def forward(self, x: Tensor[f32, n, K]) -> Any:
            return product(x)

    return Product()


def halves(format: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """Returns the two programs for 16-bit weights, and the weights that the second one takes."""
    weights = RNG.standard_normal((N, K), dtype=np.float32) * np.float32(0.05)
    bits = weights.astype(np.float16).view(np.uint16) if format == "F16" else (weights.view(np.uint32) >> 16).astype(np.uint16)
    HALF: Any = f16 if format == "F16" else bf16

    @function
    def cast_inside(x: Tensor[f32, n, K], w: Tensor[HALF, K, N]) -> Tensor[f32, n, N]:
        return x @ ops.cast(w, f32)

    columns = np.ascontiguousarray(bits.T).view(HALF.numpy())
    return template(lambda x: ops.half_linear(x, ops.constant(bits), format=format)), cast_inside, (columns,)


def raw_blocks(format: str) -> Any:
    """Returns random weights as the bytes of blocks, with factors of an ordinary size: denormal ones would be timed instead of products."""
    known = BY_NAME[format]
    raw = RNG.integers(0, 256, (N, K // known.length, known.size), dtype=np.uint8)
    for factor in (known.scale, known.minimum):
        if factor is not None:
            numbers = RNG.uniform(0.01, 0.1, raw.shape[:2]).astype(factor.dtype.numpy())
            raw[:, :, factor.offset : factor.offset + factor.dtype.itemsize] = numbers[..., None].view(np.uint8)
    return raw


def blocks(bits: int) -> tuple[Any, Any, tuple[Any, ...]]:
    """Returns the two programs for weights in blocks of 32 codes and f32 activations."""
    format, raw = f"U{bits}_32", raw_blocks(f"U{bits}_32")
    EACH, MASK, MIDDLE = 8 // bits, (1 << bits) - 1, float(1 << (bits - 1))  # codes of a byte

    @kernel
    def decode(codes: Tensor[u8, K // EACH, N], scales: Tensor[f32, K // 32, N], w: Out[f32, K, N]) -> None:
        for i, j in grid(K, N):
            code = (codes[i // EACH, j] >> u8(i % EACH * bits)) & u8(MASK)
            w[i, j] = (f32(code) - MIDDLE) * scales[i // 32, j]

    @function
    def decoded_inside(
        x: Tensor[f32, n, K], codes: Tensor[u8, K // EACH, N], scales: Tensor[f32, K // 32, N]
    ) -> Tensor[f32, n, N]:  # fmt: skip
        return x @ decode(codes, scales)

    codes = RNG.integers(0, 256, (K // EACH, N), dtype=np.uint8)
    scales = RNG.uniform(0.01, 0.1, (K // 32, N)).astype(np.float32)
    return template(lambda x: ops.block_linear_exact(x, ops.constant(raw), format=format)), decoded_inside, (codes, scales)


def integers() -> tuple[Any, Any, tuple[Any, ...]]:
    """Returns the two programs for int8 activations: a scale for each 16 of them, so that each 16 are a product of their own."""
    raw = raw_blocks("U8_32")

    @function
    def parts_then_sum(x: Tensor[f32, n, K], codes: Tensor[i8, PARTS, 16, N], scales: Tensor[f32, PARTS, 1, N]) -> Tensor[f32, n, N]:
        parts = ops.permute(ops.reshape(x, (n, PARTS, 16)), (1, 0, 2))
        step = ops.max(ops.abs(parts), axis=2, keepdims=True) / 127.0
        dots = ops.matmul_integer(ops.cast(ops.round(parts / step), i8), codes)
        return ops.sum(ops.cast(dots, f32) * step * scales, axis=0)

    codes = RNG.integers(-128, 128, (PARTS, 16, N)).astype(np.int8)
    scales = RNG.uniform(0.01, 0.1, (PARTS, 1, N)).astype(np.float32)
    return template(lambda x: ops.block_linear(x, ops.constant(raw), format="U8_32")), parts_then_sum, (codes, scales)


FORMATS: dict[str, Callable[[], tuple[Any, Any, tuple[Any, ...]]]] = {
    "F16": lambda: halves("F16"),
    "BF16": lambda: halves("BF16"),
    "U4": lambda: blocks(4),
    "U8": lambda: blocks(8),
    "U8_INT": integers,
}


def best(call: Callable[[], Any], calls: int) -> float:
    """Returns the time of the fastest call, in microseconds."""
    call()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", help=f"of {', '.join(FORMATS)}; all if none is given")
    parser.add_argument("--target", default="native")
    options = parser.parse_args()
    print(f"{'format':8}{'rows':>6}{'template':>12}{'operators':>12}   operators / template")
    for name in options.formats or FORMATS:
        own, ordinary, weights = FORMATS[name]()
        compiled = [pliant.compile(p, target=options.target, threads=1) for p in (own, ordinary)]
        for rows, calls in CALLS.items():
            x = RNG.standard_normal((rows, K), dtype=np.float32)
            a, b = best(lambda: compiled[0](x), calls), best(lambda: compiled[1](x, *weights), calls)  # noqa: B023
            print(f"{name:8}{rows:6}{a:9.0f} us{b:9.0f} us{b / a:12.2f}", flush=True)


if __name__ == "__main__":
    main()
