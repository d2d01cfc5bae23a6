"""`fused`: whether the engine that runs a wasm module rounds a relaxed multiply-add once, as LLVM IR.

WebAssembly leaves it to the engine whether `relaxed_madd` rounds a product before it adds to it. Engines take the machine's instruction,
which rounds once, where it has one. A module that uses it for fused multiply-add computes what it promises there alone, so it exports
this function, and a host asks it first: 1 means fused; 0 that the module for `wasm+simd128` is the one to run.
"""

from __future__ import annotations

NAME = "fused"

# (1 + 2^-12)^2 is 1 + 2^-11 + 2^-24, whose last bit a rounding of the product drops.
TEXT = """
declare <4 x float> @llvm.wasm.relaxed.madd.v4f32(<4 x float>, <4 x float>, <4 x float>)

define i32 @fused() {
  %rest = call <4 x float> @llvm.wasm.relaxed.madd.v4f32(<4 x float> splat (float 0x3FF0010000000000),
      <4 x float> splat (float 0x3FF0010000000000), <4 x float> splat (float 0xBFF0020000000000))
  %first = extractelement <4 x float> %rest, i32 0
  %kept = fcmp une float %first, 0.0
  %answer = zext i1 %kept to i32
  ret i32 %answer
}
"""
