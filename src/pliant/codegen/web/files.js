// Reads files from a server or, in node, from disk: small ones whole, weights block by block, each verified and then kept.

import { PliantError } from "./errors.js";
import { fileParts, NODE } from "./host.js";
import { sha256 } from "./sha256.js";
import { openStore } from "./store.js";

const RETRIES = 3; // of a download that breaks, without a new block in between
const PAUSE = 500; // ms before the first of them

/** The bytes of a file from `start` on, in parts. A server that ignores ranges sends all of it again, and the beginning is dropped. */
async function* parts(url, start, signal, expected) {
  if (url.protocol === "file:" && NODE) return yield* fileParts(url, start, signal);
  const answer = await fetch(url, { signal, headers: start ? { Range: `bytes=${start}-` } : {} });
  if (!answer.ok) {
    await answer.body?.cancel();
    const passes = start > 0 && (answer.status >= 500 || answer.status === 429); // a server that is busy: the download goes on later
    throw new (passes ? Error : PliantError)(`${url} cannot be loaded: ${answer.status} ${answer.statusText}`);
  }
  const length = answer.headers.get("content-encoding") ? 0 : Number(answer.headers.get("content-length"));
  let skip = answer.status === 206 ? 0 : start;
  const reader = answer.body.getReader();
  try {
    if (expected && length && length !== expected - (start - skip)) throw wrongSize(url, length + (start - skip), expected);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      if (skip < value.byteLength) yield value.subarray(skip);
      skip = Math.max(0, skip - value.byteLength);
    }
  } finally {
    await reader.cancel().catch(() => {}); // also where the one who reads stops early; nothing happens after the end
  }
}

const nameOf = (url) => decodeURIComponent(url.pathname.split("/").pop());
const wrongSize = (url, found, expected) => new PliantError(`${nameOf(url)} has ${found} bytes, expected ${expected}`);

/** A whole file. */
export async function readFile(url, { onProgress, signal } = {}) {
  const found = [];
  let loaded = 0;
  for await (const part of parts(url, 0, signal)) {
    found.push(part);
    loaded += part.byteLength;
    onProgress?.({ file: url.href, loaded, total: 0 });
  }
  const whole = new Uint8Array(loaded);
  found.reduce((at, part) => (whole.set(part, at), at + part.byteLength), 0);
  return whole;
}

/**
 * Reads weights: `sink(offset, bytes)` gets them in order. `blocks` is `{ bytes, sha256: [one for each block] }`: each block is compared with
 * its digest before it is used, those that were kept before are not downloaded, and a broken download goes on where it ended.
 */
export async function readBlocks(url, total, blocks, sink, { cache = "none", onProgress, signal } = {}) {
  const store = await openStore(cache, await sha256(new TextEncoder().encode(blocks.sha256.join())), blocks.bytes);
  const count = blocks.sha256.length;
  const size = (n) => Math.min(blocks.bytes, total - n * blocks.bytes);
  const use = (n, block, cached) => {
    sink(n * blocks.bytes, block);
    onProgress?.({ file: url.href, loaded: n * blocks.bytes + block.byteLength, total, cached });
  };
  let n = 0;
  try {
    for (; n < count; n++) {
      signal?.throwIfAborted();
      const kept = await store.read(n, size(n));
      if (kept?.byteLength !== size(n) || (await sha256(kept)) !== blocks.sha256[n]) break;
      use(n, kept, true);
    }
    for (let tries = 0; n < count; ) {
      try {
        for await (const block of cut(parts(url, n * blocks.bytes, signal, total), () => size(n))) {
          if (block.byteLength !== size(n)) throw wrongSize(url, n * blocks.bytes + block.byteLength, total);
          if ((await sha256(block)) !== blocks.sha256[n]) {
            throw new PliantError(`${nameOf(url)} is damaged: bytes ${n * blocks.bytes} to ${n * blocks.bytes + block.byteLength} have another checksum`, "export the model again, or copy the file again");
          }
          await store.write(n, block);
          use(n++, block, false);
          tries = 0;
          if (n === count) break;
        }
        if (n < count) throw wrongSize(url, n * blocks.bytes, total);
      } catch (error) {
        if (signal?.aborted || error instanceof PliantError || (NODE && url.protocol === "file:") || ++tries > RETRIES) throw error;
        await new Promise((resume) => setTimeout(resume, PAUSE * 2 ** (tries - 1)));
      }
    }
  } finally {
    store.close();
  }
  return store.kind;
}

/** Parts cut to blocks: `size()` is asked before each of them; the last one may be shorter. */
async function* cut(parts, size) {
  let block = null, filled = 0;
  for await (let part of parts) {
    while (part.byteLength) {
      block ??= new Uint8Array(size());
      const taken = part.subarray(0, block.byteLength - filled);
      block.set(taken, filled);
      filled += taken.byteLength;
      part = part.subarray(taken.byteLength);
      if (filled < block.byteLength) continue;
      yield block;
      [block, filled] = [null, 0];
    }
  }
  if (filled) yield block.subarray(0, filled);
}
