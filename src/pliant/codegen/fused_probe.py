"""`fused`, as LLVM IR: a function of wasm modules that returns 1 if the engine's relaxed multiply-add rounds once (FMA).

WebAssembly lets the engine choose whether `relaxed_madd` rounds the product before the addition. Engines use the machine's FMA
instruction if there is one. A module that relies on it is correct only there, so it exports this function. An embedder
calls it first: 1 means fused, 0 means that it must run the module for `wasm+simd128` instead.
"""

from __future__ import annotations

NAME = "fused"

# (1 + 2^-12)^2 is 1 + 2^-11 + 2^-24. Rounding the product drops the last bit, and subtracting 1 + 2^-11 then gives 0.
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
