// Starts thread.js, in a file of its own: bundlers refuse workers that could start themselves.

import { browserWorker, NODE, nodeWorker } from "./host.js";

/** A worker that is one thread of a program's pool. */
export async function startThread() {
  if (NODE) return nodeWorker(new URL("./thread.js", import.meta.url));
  return browserWorker(new Worker(new URL("./thread.js", import.meta.url), { type: "module" }));
}
