// Runs a program that `pliant export --target web` (or wasm) wrote: NAME.json and the files that it names. No dependency, no eval.
//
//     import { load } from "./pliant.js";
//     const m = await load("model.json");
//     const { logits } = await m.run({ images: new Float32Array(3 * 320 * 320) }, { images: [1, 3, 320, 320] });
//     logits.data, logits.dims, logits.dtype

import { Chat } from "./chat.js";
import { Engine } from "./engine.js";
import { fromMessage, PliantError } from "./errors.js";
import { readFile } from "./files.js";
import { MAY_SHARE } from "./host.js";
import { startWorker } from "./start_worker.js";

export { PliantError } from "./errors.js";
export { clearCache } from "./store.js";

/**
 * Loads a program from the address of its description; the other files lie beside it. It runs in a worker, so the page stays responsive.
 *
 * `threads` is a number or "auto"; more than one need a page that is isolated (`crossOriginIsolated`), or node. `cache` says where weights are
 * kept: "opfs" (else the browser's Cache, else nowhere), "cache" or "none". `fused: false` takes the module without fused multiply-add
 * whatever the engine has. `onProgress({ file, loaded, total })` is called while files arrive; `signal` aborts the download. `worker: false`
 * runs the program on the calling thread, which it blocks.
 */
export async function load(url, { worker = true, onProgress, signal, ...options } = {}) {
  const base = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href ?? import.meta.url).href;
  const model = new Model(base, { cache: "opfs", ...options });
  await (worker ? model.start({ onProgress, signal }) : model.startHere({ onProgress, signal }));
  if (worker && !MAY_SHARE && ![1, "none"].includes(options.threads)) {
    console.info("pliant: one thread, because this page is not isolated: its server does not send the headers COOP and COEP (`pliant web` does)");
  }
  return model;
}

/** A loaded program. Its calls run one after the other. */
export class Model {
  #url; #options; #facts; #worker = null; #engine = null; #memory = 0;
  #last = Promise.resolve(); #waiting = new Map(); #next = 0; #held = []; #chat = null;
  #ended = null; #closed = false; // why no call can be answered any more

  constructor(url, options) {
    this.#url = url;
    this.#options = options;
  }

  /** Starts the program in a worker. */
  async start({ onProgress, signal } = {}) {
    signal?.throwIfAborted();
    const worker = await startWorker();
    if (this.#closed) {
      worker.stop();
      throw this.#ended;
    }
    this.#worker = worker;
    this.#ended = null;
    const fail = (error) => {
      if (this.#worker !== worker) return;
      this.#ended ??= error;
      for (const { failed } of this.#waiting.values()) failed(error);
      this.#waiting.clear();
    };
    const listening = new Promise((done, failed) => {
      this.#waiting.set("start", { done, failed });
      worker.listen((said) => (said === "listening" ? done() : this.#heard(said)), fail);
    });
    const aborted = () => {
      worker.stop();
      fail(signal.reason);
    };
    signal?.addEventListener("abort", aborted);
    try {
      await listening;
      this.#waiting.delete("start");
      this.#facts = await this.#ask("load", { url: this.#url, options: { ...this.#options, progress: Boolean(onProgress) } }, onProgress);
    } catch (error) {
      worker.stop();
      this.#ended ??= error;
      throw error;
    } finally {
      signal?.removeEventListener("abort", aborted);
    }
  }

  /** Starts the program on this thread. */
  async startHere({ onProgress, signal } = {}) {
    this.#engine = await Engine.load(this.#url, { ...this.#options, onProgress, signal });
    this.#facts = this.#engine.facts();
    this.#memory = this.#engine.memory;
  }

  get name() {
    return this.#facts.name;
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

  /** What is in use: `fused` (multiply-add rounds once), `threads`, `shared` (memory), `simd`, `cache` (where weights are kept), `worker`. */
  get features() {
    return { ...this.#facts.features, worker: this.#worker !== null };
  }

  /** Bytes of memory that the program has now, constants and the arena of the largest call so far included. */
  get memory() {
    return this.#memory;
  }

  /**
   * Runs the program on typed arrays, lists of numbers, or results of a call before (`{ data, dims }`); scalars are numbers.
   * `dims[name]` is the shape of an argument; it may be left out where the length of the data tells it.
   * Arguments that are state are updated in place, as in Python. `signal` stops the call; the program can be called again afterwards.
   * Returns `{ name: { data, dims, dtype } }`.
   */
  async run(given, dims = {}, { signal } = {}) {
    const state = new Set(this.#facts.arguments.filter((a) => a.state).map((a) => a.name));
    const inputs = Object.fromEntries(Object.entries(given).map(([name, v]) => [name, state.has(name) ? v : copied(v)]));
    return this.#inOrder(async () => {
      signal?.throwIfAborted();
      if (this.#engine) {
        const results = this.#engine.run(inputs, dims);
        this.#memory = this.#engine.memory;
        return results;
      }
      const results = await this.#stoppable(signal, () => this.#ask("run", { inputs: compact(inputs), dims }));
      this.#facts.outputs.forEach((o) => {
        if (o.alias === null || !(o.name in results)) return;
        const target = inputs[this.#facts.arguments[o.alias].name];
        (target.data ?? target).set?.(results[o.name].data);
      });
      return results;
    });
  }

  /** Keeps the state argument `name` in the program's memory, of the shape `dims` and zero at first: calls neither pass nor return it. */
  hold(name, dims) {
    const wanted = { name, dims: Array.isArray(dims) ? [...dims] : dims };
    return this.#inOrder(async () => {
      await (this.#engine ? this.#engine.hold(name, wanted.dims) : this.#ask("hold", wanted));
      this.#held.push(wanted);
    });
  }

  /** The language model's side of the program: `m.chat().completions.create({ messages, stream: true })`. */
  chat() {
    if (!this.#facts.chat) throw new PliantError(`\`${this.name}\` is no language model with a chat`, "`pliant export smollm2-135m --target web` makes one");
    return (this.#chat ??= new Chat(this, async () => JSON.parse(new TextDecoder().decode(await readFile(new URL(this.#facts.chat, this.#url))))));
  }

  /** Stops the program and its threads, and gives its memory back. */
  close() {
    this.#closed = true;
    this.#ended = new Error("the program was closed");
    this.#engine?.close();
    this.#worker?.stop();
    for (const { failed } of this.#waiting.values()) failed(this.#ended);
    this.#waiting.clear();
  }

  #inOrder(task) {
    const result = this.#last.then(() => {
      if (this.#ended) throw this.#ended;
      return task();
    });
    this.#last = result.catch(() => {});
    return result;
  }

  /** Runs a task that `signal` stops: by the cancel flag in shared memory; without it, by a new worker, whose held state is zero again. */
  async #stoppable(signal, task) {
    const { flag } = this.#facts;
    const words = flag && new Int32Array(flag.buffer, flag.at, 1);
    if (words) Atomics.store(words, 0, 0);
    let restarted = null;
    const stop = () => {
      if (words) return void Atomics.store(words, 0, 1);
      if (this.#ended) return;
      this.#worker.stop();
      for (const { failed } of this.#waiting.values()) failed(signal.reason);
      this.#waiting.clear();
      restarted = this.start().then(() => Promise.all(this.#held.map((h) => this.#ask("hold", h))));
    };
    signal?.addEventListener("abort", stop);
    try {
      return await task();
    } catch (error) {
      await restarted;
      throw signal?.aborted ? signal.reason : error;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }

  #ask(task, message, progress) {
    if (this.#ended) return Promise.reject(this.#ended);
    const id = this.#next++;
    this.#worker.busy(true);
    return new Promise((done, failed) => {
      this.#waiting.set(id, { done, failed, progress });
      this.#worker.post({ id, task, ...message });
    });
  }

  #heard({ id, progress, value, error, memory }) {
    const asked = this.#waiting.get(id);
    if (!asked) return;
    if (progress) return asked.progress?.(progress);
    this.#waiting.delete(id);
    if (!this.#waiting.size) this.#worker.busy(false);
    if (error) return asked.failed(fromMessage(error));
    this.#memory = memory;
    asked.done(value);
  }
}

/** An input as it is now: its call may have to wait. */
function copied(v) {
  if (ArrayBuffer.isView(v) || Array.isArray(v)) return v.slice ? v.slice() : v;
  return v?.data ? { data: copied(v.data), dims: v.dims } : v;
}

/** Inputs without what their views do not show: a message copies whole buffers. */
function compact(inputs) {
  const only = (v) => (ArrayBuffer.isView(v) && v.byteLength < v.buffer.byteLength ? v.slice() : v);
  return Object.fromEntries(Object.entries(inputs).map(([name, v]) => [name, v?.data ? { data: only(v.data), dims: v.dims } : only(v)]));
}
