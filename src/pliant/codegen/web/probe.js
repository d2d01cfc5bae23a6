// Which of the two modules of an export this engine runs.

// fused() -> i32: 1 if the relaxed multiply-add rounds once. (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 then; a product that is rounded first gives 0.
const splat = (...bits) => [0x43, ...bits, 0xfd, 0x13]; // f32.const, f32x4.splat
const PROBE = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // magic, version
  1, 5, 1, 0x60, 0, 1, 0x7f, // type: () -> i32
  3, 2, 1, 0, // one function
  7, 5, 1, 1, 0x66, 0, 0, // export "f"
  10, 37, 1, 35, 0, // code
  ...splat(0, 8, 0x80, 0x3f), ...splat(0, 8, 0x80, 0x3f), ...splat(0, 0x10, 0x80, 0xbf),
  0xfd, 0x85, 2, // f32x4.relaxed_madd
  0xfd, 0x1f, 0, 0x43, 0, 0, 0, 0, 0x5c, 0x0b, // extract_lane 0, f32.const 0, f32.ne, end
]);

/** Whether this engine has relaxed SIMD, and fuses its multiply-add: then the fused module has the bits of native code with FMA. */
export async function fuses() {
  if (!WebAssembly.validate(PROBE)) return false;
  const { instance } = await WebAssembly.instantiate(PROBE, {});
  return instance.exports.f() === 1;
}
