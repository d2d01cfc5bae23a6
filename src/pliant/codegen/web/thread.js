// One thread of a program's pool: an instance of the module over the memory that all of them share, with a stack of its own.

import { allocator } from "./callback.js";
import { port } from "./host.js";

const POOL = { stop: 8, tickets: 64, done: 128, code: 228, bytes: 256 };
const TRAPPED = 6; // the answer of a chunk that WebAssembly ended

async function join(main, { module, memory, stack, pool, alloc, parallelFor }) {
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  exports.__stack_pointer.value = stack;
  const table = exports.table; // with the functions of the first thread in the same slots
  table.grow(Math.max(alloc, parallelFor) + 1 - table.length);
  table.set(alloc, allocator(() => 0)); // only the first thread has memory to give
  table.set(parallelFor, exports.parallel_for);
  const words = new Int32Array(memory.buffer, pool, POOL.bytes / 4);
  main.post("ready");
  while (!Atomics.load(words, POOL.stop / 4)) {
    try {
      exports.worker_loop(pool);
    } catch {
      exports.__stack_pointer.value = stack;
      giveUp(words, new BigInt64Array(memory.buffer, pool + POOL.tickets, 1));
    }
  }
}

/** Ends the launch whose chunk has trapped: the launcher would wait for ever. */
function giveUp(words, tickets) {
  Atomics.compareExchange(words, POOL.code / 4, 0, TRAPPED);
  const range = BigInt.asUintN(64, Atomics.exchange(tickets, 0, 0n));
  const left = Number(range >> 32n) - Number(range & 0xffffffffn);
  Atomics.add(words, POOL.done / 4, left + 1);
  Atomics.notify(words, POOL.done / 4);
}

port().then((main) => { // without `await` at the top: bundlers build workers as classic scripts
  main.listen((job) => join(main, job).catch((error) => setTimeout(() => { throw error; }))); // browsers report no rejections to the page
  main.post("listening");
});
