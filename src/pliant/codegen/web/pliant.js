// Runs a program that `pliant export --target web` (or wasm) wrote: NAME.json, NAME.wasm, NAME.bin. No dependency, no eval.
//
//     import { load } from "./pliant.js";
//     const m = await load("model.json");
//     const { logits } = await m.run({ images: new Float32Array(3 * 320 * 320) }, { images: [1, 3, 320, 320] });
//     logits.data, logits.dims, logits.dtype
//
// The host program is inside the module: `prepare` checks the arguments and computes sizes, `run` computes. This file only puts bytes where
// they are expected (docs/design/0001-abi.md) and has the texts of the checks from NAME.json, so messages are those of Python.
// Memory: [stack and data of the module][cancel flag][context][constants][arena of one call].

const ALIGNMENT = 64; // of every buffer: compiled code relies on it
const PAGE = 65536;
const MOST_PAGES = 65536; // of a 32-bit memory
const CTX = { workspace: 0, workspaceSize: 8, alloc: 16, parallelFor: 20, cancel: 28, error: 40, bytes: 40 + 8 * 8 };
const CODE = { CANCELLED: 1, CHECK: 2, NO_MEMORY: 3 };

// How elements lie in JavaScript: types that it has no arrays for are their bits.
const ARRAYS = {
  f64: Float64Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array,
  i64: BigInt64Array, i32: Int32Array, i16: Int16Array, i8: Int8Array,
  u64: BigUint64Array, u32: Uint32Array, u16: Uint16Array, u8: Uint8Array, bool: Uint8Array,
};
const FLOATS = new Set(["f64", "f32", "f16", "bf16"]);

// A module that exports its import: the only way to put a JavaScript function into a table without WebAssembly.Function.
const WRAP = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // magic, version
  1, 7, 1, 0x60, 2, 0x7f, 0x7e, 1, 0x7f, // type: (i32, i64) -> i32
  2, 7, 1, 1, 0x65, 1, 0x61, 0, 0, // import "e" "a"
  7, 5, 1, 1, 0x61, 0, 0, // export "a"
]);

/** What is wrong with a call or a file, in the words of the compiler; `help` says what to do. */
export class PliantError extends Error {
  constructor(message, help = "") {
    super(help ? `${message}\nhelp: ${help}` : message);
    this.name = "PliantError";
    this.help = help;
  }
}

/**
 * Loads a program from the address of its description; the module and the constants lie beside it.
 * `onProgress({ file, loaded, total })` is called while files arrive; `signal` aborts the download.
 */
export async function load(url, { onProgress, signal } = {}) {
  const base = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href ?? import.meta.url);
  const facts = JSON.parse(new TextDecoder().decode(await read(base, { onProgress, signal })));
  if (facts.format !== "pliant-export" || facts.version !== 1) throw new PliantError(`${base} describes no program that this file can run`);
  if (facts.target.arch !== "wasm32") throw new PliantError(`${base} describes a program for ${facts.target.name}, not for WebAssembly`);
  const file = (name) => read(new URL(name, base), { onProgress, signal });
  const [code, constants] = await Promise.all([
    file(`${facts.name}.wasm`),
    facts.constants_file ? file(facts.constants_file) : new Uint8Array(0),
  ]);
  if (constants.byteLength !== facts.constants_bytes) {
    throw new PliantError(`${facts.constants_file} has ${constants.byteLength} bytes, expected ${facts.constants_bytes}`);
  }
  const { instance } = await WebAssembly.instantiate(code, {});
  return new Model(facts, instance.exports, constants);
}

async function read(url, { onProgress, signal }) {
  if (url.protocol === "file:" && globalThis.process?.versions?.node) {
    const files = await import(/* @vite-ignore */ /* webpackIgnore: true */ "node:fs/promises");
    return new Uint8Array(await files.readFile(url, { signal }));
  }
  const answer = await fetch(url, { signal });
  if (!answer.ok) throw new PliantError(`${url} cannot be loaded: ${answer.status} ${answer.statusText}`);
  const total = Number(answer.headers.get("content-length")) || 0;
  if (!onProgress || !answer.body) return new Uint8Array(await answer.arrayBuffer());
  const parts = [];
  let loaded = 0;
  for (const reader = answer.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    onProgress({ file: url.href, loaded: (loaded += value.byteLength), total });
  }
  const whole = new Uint8Array(loaded);
  parts.reduce((at, part) => (whole.set(part, at), at + part.byteLength), 0);
  return whole;
}

const product = (dims) => dims.reduce((a, b) => a * b, 1);
const upTo = (n) => Math.ceil(n / ALIGNMENT) * ALIGNMENT;

class Model {
  #facts; #exports; #memory; #context; #constants; #arena; #top;

  constructor(facts, exports, constants) {
    this.#facts = facts;
    this.#exports = exports;
    this.#memory = exports.memory;
    for (const a of [...facts.arguments, ...facts.outputs]) {
      if (!ARRAYS[a.dtype]) throw new PliantError(`\`${a.name}\` is of type ${a.dtype}, which pliant.js does not pass`);
    }
    this.#top = exports.__heap_base.value;
    const cancel = this.#take(4);
    this.#context = this.#take(CTX.bytes);
    this.#constants = this.#take(constants.byteLength);
    new Uint8Array(this.#memory.buffer).set(constants, this.#constants);
    this.#arena = this.#top;
    const record = new DataView(this.#memory.buffer, this.#context);
    record.setUint32(CTX.cancel, cancel, true);
    record.setUint32(CTX.parallelFor, this.#place(exports[facts.entries.serial_for]), true);
    const wrapped = new WebAssembly.Instance(new WebAssembly.Module(WRAP), { e: { a: (_, bytes) => this.#allocate(bytes) } });
    record.setUint32(CTX.alloc, this.#place(wrapped.exports.a), true);
  }

  /** The arguments: name, dtype, kind (tensor or scalar), shape (numbers and names of dims as texts), whether they are state. */
  get arguments() {
    return this.#facts.arguments.map(({ name, dtype, kind, shape, state }) => ({ name, dtype, kind, shape, state }));
  }

  /** The results: name, dtype, shape. */
  get outputs() {
    return this.#facts.outputs.map(({ name, dtype, shape }) => ({ name, dtype, shape }));
  }

  /** The names of dims with their contracts: min, max, multiple_of. */
  get symbols() {
    return this.#facts.symbols;
  }

  get name() {
    return this.#facts.name;
  }

  /** Bytes of memory that the program has now, constants and the arena of the largest call so far included. */
  get memory() {
    return this.#memory.buffer.byteLength;
  }

  /**
   * Runs the program on typed arrays, lists of numbers, or results of a call before (`{ data, dims }`); scalars are numbers.
   * `dims[name]` is the shape of an argument; it may be left out where the length of the data tells it.
   * Arguments that are state are updated in place, as in Python. Returns `{ name: { data, dims, dtype } }`.
   */
  async run(inputs, dims = {}) {
    this.#top = this.#arena;
    const given = this.#facts.arguments.map((a) => this.#argument(a, inputs, dims));
    for (const name of Object.keys(inputs)) {
      if (!this.#facts.arguments.some((a) => a.name === name)) throw new PliantError(`\`${this.name}\` has no argument \`${name}\``);
    }
    const at = this.#facts.dims;
    const words = this.#take(8 * at.total);
    this.#view(words, 8 * at.total).fill(0);
    for (const g of given) this.#describe(g, words);
    this.#call("prepare", 0, words, 0);
    let next = at.outputs;
    const results = this.#facts.outputs.map((o) => {
      const shape = o.shape.map(() => this.#word(words, next++));
      const source = o.alias === null ? null : given[o.alias];
      return { ...o, shape, source, place: source ? source.place : this.#take(product(shape) * ARRAYS[o.dtype].BYTES_PER_ELEMENT) };
    });
    const pointers = [
      ...given.filter((g) => g.kind === "tensor").map((g) => g.place),
      ...results.map((r) => r.place),
      ...this.#facts.constants.map((c) => this.#constants + c.offset),
    ];
    const buffers = this.#take(4 * pointers.length);
    new Uint32Array(this.#memory.buffer, buffers, pointers.length).set(pointers);
    this.#call("run", buffers, words, this.#word(words, at.workspace));
    return Object.fromEntries(results.map((r) => [r.name, this.#result(r, words)]));
  }

  /** An argument with its elements in memory and its shape. */
  #argument(a, inputs, dims) {
    const what = `argument \`${a.name}\``;
    let value = inputs[a.name];
    if (value === undefined || value === null) throw new PliantError(`${what} is missing`);
    if (a.kind !== "tensor") return { ...a, value: scalar(a, value, what) };
    let shape = dims[a.name];
    if (typeof value === "object" && !ArrayBuffer.isView(value) && !Array.isArray(value) && value.data !== undefined) {
      shape ??= value.dims;
      value = value.data;
    }
    const kind = ARRAYS[a.dtype];
    if (Array.isArray(value)) value = kind.from(value, /^[iu]64$/.test(a.dtype) ? BigInt : Number);
    if (!(value instanceof kind)) {
      throw new PliantError(`${what}: its data is ${value?.constructor?.name ?? typeof value}, expected ${kind.name} (${a.dtype})`);
    }
    shape = shape === undefined ? inferred(a, value.length, what) : Array.from(shape, Number);
    if (shape.length !== a.shape.length) {
      throw new PliantError(`${what}: it has ${shape.length} dim${shape.length === 1 ? "" : "s"} (${shape.join(", ")}), expected ${a.shape.length}`);
    }
    if (!shape.every((n) => Number.isSafeInteger(n) && n >= 0) || product(shape) !== value.length) {
      throw new PliantError(`${what}: its data has ${value.length} elements, its dims are (${shape.join(", ")})`);
    }
    const place = this.#take(value.byteLength);
    this.#view(place, value.byteLength).set(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
    return { ...a, given: value, extents: shape, place };
  }

  /** Writes an argument's shape and strides, or its value, to where `prepare` looks for them. */
  #describe(g, words) {
    const numbers = new DataView(this.#memory.buffer, words);
    if (g.kind !== "tensor") return numbers.setBigInt64(8 * g.dims, g.value, true);
    const rank = g.extents.length;
    for (let n = rank - 1, stride = 1; n >= 0; stride *= Math.max(1, g.extents[n--])) {
      numbers.setBigInt64(8 * (g.dims + n), BigInt(g.extents[n]), true);
      numbers.setBigInt64(8 * (g.dims + rank + n), BigInt(stride), true);
    }
  }

  #result(r, words) {
    const counts = r.counted_by ?? [];
    const dims = r.shape.map((n, i) => (counts[i] == null ? n : this.#word(words, this.#facts.dims.counts + counts[i])));
    const data = new ARRAYS[r.dtype](this.#memory.buffer, r.place, product(dims)).slice(); // memory moves when it grows
    if (r.source) r.source.given.set(data);
    return { data, dims, dtype: r.dtype };
  }

  #call(entry, buffers, words, workspace) {
    const room = this.#take(workspace);
    const record = new DataView(this.#memory.buffer, this.#context, CTX.bytes);
    record.setUint32(CTX.workspace, room, true);
    record.setBigInt64(CTX.workspaceSize, BigInt(workspace), true);
    for (let n = 0; n < 8; n++) record.setBigInt64(CTX.error + 8 * n, 0n, true);
    const code = this.#exports[this.#facts.entries[entry]](this.#context, buffers, words);
    if (code !== 0) throw this.#failure(code);
  }

  #failure(code) {
    const record = new DataView(this.#memory.buffer, this.#context, CTX.bytes);
    const [site, ...values] = Array.from({ length: 7 }, (_, n) => record.getBigInt64(CTX.error + 8 * (n + 1), true));
    const check = code === CODE.CHECK ? this.#facts.checks[Number(site)] : undefined;
    if (check) return new PliantError(values.reduce((text, v, n) => text.replaceAll(`{${n}}`, String(v)), check.message), check.help);
    if (code === CODE.CANCELLED) return new PliantError(`the call of \`${this.name}\` was stopped`);
    if (code === CODE.NO_MEMORY) return new PliantError(`no memory for a part of \`${this.name}\`: ${values[0]} bytes were asked for`);
    return new PliantError(`\`${this.name}\` answered code ${code}, site ${site}`);
  }

  /** Memory of this call: an address that is a multiple of 64. Raises where a 32-bit memory ends. */
  #take(bytes) {
    const place = upTo(this.#top);
    const end = place + upTo(bytes) + ALIGNMENT; // kernels may read a vector beyond the last element
    const missing = Math.ceil((end - this.#memory.buffer.byteLength) / PAGE);
    if (missing > 0) {
      const pages = this.#memory.buffer.byteLength / PAGE;
      try {
        if (pages + missing > MOST_PAGES) throw new RangeError();
        this.#memory.grow(missing);
      } catch {
        throw new PliantError(`no memory for \`${this.name}\`: ${end} bytes are needed, and there are ${this.memory}`);
      }
    }
    this.#top = place + upTo(bytes);
    return place;
  }

  #allocate(bytes) {
    try {
      return this.#take(Number(bytes));
    } catch {
      return 0; // null: the program answers NO_MEMORY
    }
  }

  #place(callback) {
    const table = this.#exports.table;
    const slot = table.grow(1);
    table.set(slot, callback);
    return slot;
  }

  #view(place, bytes) {
    return new Uint8Array(this.#memory.buffer, place, bytes);
  }

  #word(words, n) {
    return Number(new DataView(this.#memory.buffer).getBigInt64(words + 8 * n, true));
  }
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
function scalar(a, value, what) {
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
