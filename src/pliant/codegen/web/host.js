// What differs between browsers and node: workers, and files on disk.

export const NODE = Boolean(globalThis.process?.versions?.node) && typeof Worker !== "function";

const node = (name) => import(/* @vite-ignore */ /* webpackIgnore: true */ `node:${name}`);

/** Whether this thread may wait in WebAssembly: the main thread of a page may not. */
export const MAY_WAIT = NODE || !globalThis.document;

/** Whether memory can be shared between threads: in a page only if its server sends the headers that isolate it. */
export const MAY_SHARE = typeof SharedArrayBuffer === "function" && (NODE || globalThis.crossOriginIsolated === true);

/** The number of processors. */
export async function processors() {
  return NODE ? (await node("os")).availableParallelism() : (globalThis.navigator?.hardwareConcurrency ?? 1);
}

/** A worker of node. */
export async function nodeWorker(url) {
  const { Worker } = await node("worker_threads");
  const worker = new Worker(url, { execArgv: [] }); // options of the main thread, such as --eval, do not fit a file
  return {
    post: (message, transfer = []) => worker.postMessage(message, transfer),
    listen: (heard, failed) => void worker.on("message", heard).on("error", failed),
    stop: () => worker.terminate(),
    busy: (yes) => (yes ? worker.ref() : worker.unref()), // a worker without work does not keep node running
  };
}

/** A worker of a browser, with the interface of `nodeWorker`. */
export function browserWorker(worker) {
  return {
    post: (message, transfer = []) => worker.postMessage(message, transfer),
    listen: (heard, failed) => {
      worker.onmessage = ({ data }) => heard(data);
      worker.onerror = (event) => failed(new Error(event.message || "a worker cannot be started"));
    },
    stop: () => worker.terminate(),
    busy: () => {},
  };
}

/** The other side of a worker: `{ post, listen }`. */
export async function port() {
  if (!NODE) return { post: (m, transfer = []) => self.postMessage(m, transfer), listen: (heard) => (self.onmessage = ({ data }) => heard(data)) };
  const { parentPort } = await node("worker_threads");
  return { post: (m, transfer = []) => parentPort.postMessage(m, transfer), listen: (heard) => parentPort.on("message", heard) };
}

/** The bytes of a file on disk from `start` on, in parts; only node has files. */
export async function* fileParts(url, start, signal) {
  const { open } = await node("fs/promises");
  const file = await open(url);
  try {
    for (let at = start; ; ) {
      signal?.throwIfAborted();
      const { bytesRead, buffer } = await file.read(new Uint8Array(1 << 20), 0, 1 << 20, at);
      if (!bytesRead) return;
      at += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}
