// Starts worker.js, in a file of its own: bundlers refuse workers that could start themselves.

import { browserWorker, NODE, nodeWorker } from "./host.js";

/** A worker that loads and runs programs. */
export async function startWorker() {
  if (NODE) return nodeWorker(new URL("./worker.js", import.meta.url));
  return browserWorker(new Worker(new URL("./worker.js", import.meta.url), { type: "module" }));
}
