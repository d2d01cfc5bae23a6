// Puts the bytes of a program where its module expects them, and calls it: memory, arguments, results, threads.
//
// The host program is inside the module: `prepare` checks the arguments and computes sizes, `run` computes. This file only lays out memory
// (docs/design/0001-abi.md) and has the texts of the checks from NAME.json, so messages are those of Python.
// Memory: [stack and data of the module][cancel flag][context][pool][constants][stacks of threads][held state][arena of one call].

import { ARRAYS, extents, list, scalar, within } from "./arrays.js";
import { allocator } from "./callback.js";
import { PliantError } from "./errors.js";
import { readBlocks, readFile } from "./files.js";
import { MAY_SHARE, MAY_WAIT, processors } from "./host.js";
import { fuses } from "./probe.js";
import { startThread } from "./start_thread.js";

const ALIGNMENT = 64; // of every buffer: compiled code relies on it
const PAGE = 65536;
const MOST_PAGES = 65536; // of a 32-bit memory
const FEWEST_PAGES = 1024; // of a shared memory that is worth asking for
const CTX = { workspace: 0, workspaceSize: 8, alloc: 16, parallelFor: 20, cancel: 28, pool: 32, error: 40, bytes: 40 + 8 * 8 };
const POOL = { stop: 8, bytes: 256 };
const CODE = { CANCELLED: 1, CHECK: 2, NO_MEMORY: 3 };

const product = (dims) => dims.reduce((a, b) => a * b, 1);
const upTo = (n) => Math.ceil(n / ALIGNMENT) * ALIGNMENT;

/** A program on this thread: `run` blocks it. */
export class Engine {
  #facts; #exports; #memory; #context; #constants; #arena; #top; #cancel; #shared;
  #threads = []; #held = new Map(); #features; #broken = null;

  /** Loads a program from the address of its description; the other files lie beside it. */
  static async load(url, { threads = "auto", fused = "auto", cache = "none", onProgress, signal } = {}) {
    const base = new URL(url);
    let facts = await described(base, { signal });
    const chosen = facts.fused && (fused === "auto" ? await fuses() : fused);
    if (chosen) facts = await described(new URL(facts.fused, base), { signal });
    const shared = MAY_SHARE && MAY_WAIT && threads !== "none" && Boolean(facts.shared_module);
    const code = await readFile(new URL(shared ? facts.shared_module : (facts.module ?? `${facts.name}.wasm`), base), { onProgress, signal });
    const memory = shared ? sharedMemory(facts.memory_pages) : null;
    const { module, instance } = await WebAssembly.instantiate(code, memory ? { env: { memory } } : {});
    const engine = new Engine(facts, instance.exports, memory ?? instance.exports.memory, shared);
    const kept = await engine.#fill(base, { cache, onProgress, signal });
    const wanted = !shared ? 1 : threads === "auto" ? await processors() : Number(threads);
    try {
      if (wanted > 1) await engine.#start(module, wanted - 1);
    } catch (error) {
      engine.close();
      throw error;
    }
    engine.#arena = engine.#top;
    engine.#features = { fused: chosen, shared, threads: Math.max(1, wanted), simd: facts.target.features.includes("simd128"), cache: kept };
    return engine;
  }

  constructor(facts, exports, memory, shared) {
    this.#facts = facts;
    this.#exports = exports;
    this.#memory = memory;
    this.#shared = shared;
    for (const a of [...facts.arguments, ...facts.outputs]) {
      if (!ARRAYS[a.dtype]) throw new PliantError(`\`${a.name}\` is of type ${a.dtype}, which pliant.js does not pass`);
    }
    this.#top = exports.__heap_base.value;
    this.#cancel = this.#take(4);
    this.#context = this.#take(CTX.bytes);
    const pool = this.#take(POOL.bytes);
    this.#constants = this.#take(facts.constants_bytes);
    this.#arena = this.#top;
    const record = new DataView(this.#memory.buffer, this.#context);
    record.setUint32(CTX.cancel, this.#cancel, true);
    record.setUint32(CTX.pool, pool, true);
    record.setUint32(CTX.parallelFor, this.#place(exports[facts.entries.serial_for]), true);
    record.setUint32(CTX.alloc, this.#place(allocator((_, bytes) => this.#allocate(bytes))), true);
  }

  /** What a caller may know: the description of arguments and results, the features in use, and where the cancel flag lies. */
  facts() {
    const { name, arguments: given, outputs, symbols, chat } = this.#facts;
    const flag = this.#shared ? { buffer: this.#memory.buffer, at: this.#cancel } : null;
    return { name, arguments: given, outputs, symbols, chat, features: this.#features, flag };
  }

  /** Bytes of memory that the program has now, constants and the arena of the largest call so far included. */
  get memory() {
    return this.#memory.buffer.byteLength;
  }

  /** Writes the constants into memory; returns where they are kept. */
  async #fill(base, { cache, onProgress, signal }) {
    const { constants_file: file, constants_bytes: bytes, constants_blocks: blocks } = this.#facts;
    if (!file) return "none";
    const sink = (offset, part) => this.#view(this.#constants + offset, part.byteLength).set(part);
    if (blocks) return readBlocks(new URL(file, base), bytes, blocks, sink, { cache, onProgress, signal });
    const whole = await readFile(new URL(file, base), { onProgress, signal });
    if (whole.byteLength !== bytes) throw new PliantError(`${file} has ${whole.byteLength} bytes, expected ${bytes}`);
    sink(0, whole);
    return "none";
  }

  /** Starts so many more threads; parallel loops use them from now on. */
  async #start(module, count) {
    const parallelFor = this.#place(this.#exports.parallel_for);
    const record = new DataView(this.#memory.buffer, this.#context);
    const bytes = this.#facts.stack_bytes, pool = record.getUint32(CTX.pool, true), alloc = record.getUint32(CTX.alloc, true);
    const ready = Array.from({ length: count }, async () => {
      const stack = this.#take(bytes) + bytes;
      const thread = await startThread();
      this.#threads.push(thread);
      return new Promise((done, failed) => {
        const heard = (said) => {
          if (said === "ready") return done();
          thread.post({ module, memory: this.#memory, stack, pool, alloc, parallelFor });
        };
        thread.listen(heard, failed);
      });
    });
    const failed = (await Promise.allSettled(ready)).find((one) => one.status === "rejected"); // those that start late are closed, too
    if (failed) throw failed.reason;
    for (const thread of this.#threads) thread.busy(false);
    new DataView(this.#memory.buffer, this.#context).setUint32(CTX.parallelFor, parallelFor, true); // memory may have grown
  }

  /** Stops the threads. */
  close() {
    const pool = new DataView(this.#memory.buffer, this.#context).getUint32(CTX.pool, true);
    if (this.#threads.length) {
      const words = new Int32Array(this.#memory.buffer, pool, POOL.bytes / 4);
      Atomics.store(words, POOL.stop / 4, 1);
      Atomics.notify(words, 0);
    }
    for (const thread of this.#threads.splice(0)) thread.stop();
  }

  /**
   * Keeps the state argument `name` in the program's memory from now on, of the shape `dims` and full of zeros: calls need not pass it, and
   * do not return it.
   */
  hold(name, dims) {
    const a = this.#facts.arguments.find((one) => one.name === name && one.state);
    if (!a) throw new PliantError(`\`${this.#facts.name}\` has no state \`${name}\``);
    const what = `state \`${name}\``;
    if (this.#held.has(name)) throw new PliantError(`${what} is held already`);
    if (!Array.isArray(dims)) throw new PliantError(`${what}: its dims are ${dims}, expected a list of ${a.shape.length}`);
    const shape = extents(a, product(dims.map(Number)), dims, what);
    within(a, shape, this.#facts.symbols, what);
    this.#top = this.#arena;
    const bytes = product(shape) * ARRAYS[a.dtype].BYTES_PER_ELEMENT;
    const place = this.#take(bytes);
    this.#view(place, bytes).fill(0);
    this.#held.set(name, { ...a, extents: shape, place });
    this.#arena = this.#top;
  }

  /**
   * Runs the program on typed arrays, lists of numbers, or results of a call before (`{ data, dims }`); scalars are numbers.
   * `dims[name]` is the shape of an argument; it may be left out where the length of the data tells it.
   * Arguments that are state are updated in place, as in Python. Returns `{ name: { data, dims, dtype } }`.
   */
  run(inputs, dims = {}) {
    if (this.#broken) throw this.#broken;
    this.#top = this.#arena;
    const given = this.#facts.arguments.map((a) => this.#held.get(a.name) ?? this.#argument(a, inputs, dims));
    for (const name of Object.keys(inputs)) {
      if (!this.#facts.arguments.some((a) => a.name === name)) throw new PliantError(`\`${this.#facts.name}\` has no argument \`${name}\``);
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
    const passed = results.filter((r) => !r.source || !this.#held.has(r.source.name));
    return Object.fromEntries(passed.map((r) => [r.name, this.#result(r, words)]));
  }

  /** An argument with its elements in memory and its shape. */
  #argument(a, inputs, dims) {
    const what = `argument \`${a.name}\``;
    const value = inputs[a.name];
    if (value === undefined || value === null) throw new PliantError(`${what} is missing`);
    if (a.kind !== "tensor") return { ...a, value: scalar(a, value, what) };
    const data = list(a, value, what);
    const shape = extents(a, data.length, dims[a.name] ?? value.dims, what);
    const place = this.#take(data.byteLength);
    this.#view(place, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return { ...a, given: data, extents: shape, place };
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
    let code;
    try {
      code = this.#exports[this.#facts.entries[entry]](this.#context, buffers, words);
    } catch (error) { // its stack pointer and the work of its threads are lost
      throw (this.#broken = new PliantError(`\`${this.#facts.name}\` has trapped: ${error.message}`, "load the program again"));
    }
    if (code !== 0) throw this.#failure(code);
  }

  #failure(code) {
    const record = new DataView(this.#memory.buffer, this.#context, CTX.bytes);
    const [site, ...values] = Array.from({ length: 7 }, (_, n) => record.getBigInt64(CTX.error + 8 * (n + 1), true));
    const check = code === CODE.CHECK ? this.#facts.checks[Number(site)] : undefined;
    if (check) return new PliantError(values.reduce((text, v, n) => text.replaceAll(`{${n}}`, String(v)), check.message), check.help);
    if (code === CODE.CANCELLED) return new PliantError(`the call of \`${this.#facts.name}\` was stopped`);
    if (code === CODE.NO_MEMORY) return new PliantError(`no memory for a part of \`${this.#facts.name}\`: ${values[0]} bytes were asked for`);
    return new PliantError(`\`${this.#facts.name}\` answered code ${code}, site ${site}`);
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
        throw new PliantError(`no memory for \`${this.#facts.name}\`: ${end} bytes are needed, and there are ${this.memory}`);
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

/** The description of a program at an address. */
async function described(url, { signal }) {
  const facts = JSON.parse(new TextDecoder().decode(await readFile(url, { signal })));
  if (facts.format !== "pliant-export" || facts.version !== 1) throw new PliantError(`${url} describes no program that this file can run`);
  if (facts.target.arch !== "wasm32") throw new PliantError(`${url} describes a program for ${facts.target.name}, not for WebAssembly`);
  return facts;
}

/** A shared memory with the largest maximum that this browser reserves. */
function sharedMemory(initial) {
  for (let maximum = MOST_PAGES; ; maximum /= 2) {
    try {
      return new WebAssembly.Memory({ initial, maximum, shared: true });
    } catch (error) {
      if (maximum / 2 < Math.max(initial, FEWEST_PAGES)) throw new PliantError(`no shared memory: ${error.message}`);
    }
  }
}
