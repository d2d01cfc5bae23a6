// Arguments and results as JavaScript has them: typed arrays, lists and numbers, and what of them a program takes.

import { PliantError } from "./errors.js";

// How elements lie in JavaScript: types that it has no arrays for are their bits.
export const ARRAYS = {
  f64: Float64Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array,
  i64: BigInt64Array, i32: Int32Array, i16: Int16Array, i8: Int8Array,
  u64: BigUint64Array, u32: Uint32Array, u16: Uint16Array, u8: Uint8Array, bool: Uint8Array,
};
const FLOATS = new Set(["f64", "f32", "f16", "bf16"]);

const product = (dims) => dims.reduce((a, b) => a * b, 1);

/** The elements of a tensor argument as the typed array of its dtype. */
export function list(a, value, what) {
  if (typeof value === "object" && !ArrayBuffer.isView(value) && !Array.isArray(value) && value.data !== undefined) value = value.data;
  const kind = ARRAYS[a.dtype];
  if (Array.isArray(value)) {
    if (/16$/.test(a.dtype) && FLOATS.has(a.dtype)) throw new PliantError(`${what}: ${a.dtype} is passed as its bits: a Uint16Array`);
    value = kind.from(value, (v) => element(a, v, what));
  }
  if (!(value instanceof kind)) {
    throw new PliantError(`${what}: its data is ${value?.constructor?.name ?? typeof value}, expected ${kind.name} (${a.dtype})`);
  }
  return value;
}

/** A number of a list as an element of the typed array. */
function element(a, value, what) {
  if (!["number", "bigint", "boolean"].includes(typeof value)) throw new PliantError(`${what}: its list holds ${value?.constructor?.name ?? value}, expected numbers`);
  if (FLOATS.has(a.dtype)) return Number(value);
  const number = scalar(a, value, what);
  return /64$/.test(a.dtype) ? number : Number(number);
}

/** The shape of a tensor argument of so many elements: the given one, or the one that follows from their number. */
export function extents(a, length, given, what) {
  const shape = given === undefined ? inferred(a, length, what) : Array.from(given, Number);
  if (shape.length !== a.shape.length) {
    throw new PliantError(`${what}: it has ${shape.length} dim${shape.length === 1 ? "" : "s"} (${shape.join(", ")}), expected ${a.shape.length}`);
  }
  if (!shape.every((n) => Number.isSafeInteger(n) && n >= 0) || product(shape) !== length) {
    throw new PliantError(`${what}: its data has ${length} elements, its dims are (${shape.join(", ")})`);
  }
  return shape;
}

/** Refuses a shape outside of the contracts of an argument's dims: fixed numbers, and min, max, multiple_of of the named ones. */
export function within(a, shape, symbols, what) {
  a.shape.forEach((d, n) => {
    const s = /^\d+$/.test(d) ? { min: Number(d), max: Number(d), multiple_of: 1 } : symbols.find((one) => one.name === d);
    if (!s || (shape[n] >= s.min && shape[n] <= (s.max ?? Infinity) && shape[n] % s.multiple_of === 0)) return;
    const range = s.min === s.max ? s.min : `${s.min} to ${s.max ?? "any"}${s.multiple_of > 1 ? `, a multiple of ${s.multiple_of}` : ""}`;
    throw new PliantError(`${what}: dim ${n} (${d}) is ${shape[n]}, expected ${range}`);
  });
}

/** The shape of an argument of so many elements, if all of its dims but one are numbers. */
function inferred(a, length, what) {
  const known = a.shape.map((d) => (/^\d+$/.test(d) ? Number(d) : NaN));
  const open = known.filter(Number.isNaN).length;
  const rest = product(known.filter((n) => !Number.isNaN(n)));
  if (open > 1 || (open === 1 && rest === 0)) throw new PliantError(`${what}: its dims (${a.shape.join(", ")}) do not follow from its data`, `pass { ${a.name}: [...] } as dims`);
  return known.map((n) => (Number.isNaN(n) ? length / rest : n));
}

/** A scalar as the 64-bit entry that the program reads: the integer, or the bits of the f64. */
export function scalar(a, value, what) {
  if (FLOATS.has(a.dtype)) {
    const bits = new DataView(new ArrayBuffer(8));
    bits.setFloat64(0, Number(value));
    return bits.getBigInt64(0);
  }
  let number;
  try {
    number = BigInt(value);
  } catch {
    throw new PliantError(`${what}: ${value} is no whole number`);
  }
  const bits = a.dtype === "bool" ? 1 : Number(a.dtype.slice(1));
  if (number !== (a.dtype[0] === "i" ? BigInt.asIntN : BigInt.asUintN)(bits, number)) throw new PliantError(`${what}: ${value} is outside of ${a.dtype}`);
  return BigInt.asIntN(64, number);
}
