// Where weights are kept between visits: in the origin private file system, else in the browser's Cache, else nowhere.
// A store has the blocks of one file, by number: `read(n, bytes)`, `write(n, block)`, `close()`. What it gives is verified by its reader.

const NAME = "pliant";

/** The store of a file that is named by the digest of its contents; `wanted` is "opfs", "cache" or "none". */
export async function openStore(wanted, digest, blockBytes) {
  const opened = wanted === "opfs" ? [inFile, inCache] : wanted === "cache" ? [inCache] : [];
  for (const open of opened) {
    try {
      return await open(digest, blockBytes);
    } catch {
      // not offered here, not allowed, or another tab has the file
    }
  }
  return { kind: "none", read: async () => null, write: async () => {}, close: () => {} };
}

async function inFile(digest, blockBytes) {
  const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(NAME, { create: true });
  const handle = await (await folder.getFileHandle(digest, { create: true })).createSyncAccessHandle(); // only workers have it
  return {
    kind: "opfs",
    read: async (n, bytes) => {
      const part = new Uint8Array(bytes);
      return handle.read(part, { at: n * blockBytes }) === bytes ? part : null;
    },
    write: quiet(async (n, block) => handle.write(block, { at: n * blockBytes })),
    close: () => (handle.flush(), handle.close()),
  };
}

async function inCache(digest) {
  const cache = await caches.open(NAME);
  const key = (n) => new Request(`https://pliant.invalid/${digest}/${n}`);
  return {
    kind: "cache",
    read: async (n) => {
      const kept = await cache.match(key(n));
      return kept ? new Uint8Array(await kept.arrayBuffer()) : null;
    },
    write: quiet((n, block) => cache.put(key(n), new Response(block))),
    close: () => {},
  };
}

/** The same function, which does nothing after its first failure: a full disk must not stop a program that has its weights. */
function quiet(write) {
  let full = false;
  return async (n, block) => {
    if (full) return;
    try {
      await write(n, block);
    } catch {
      full = true;
    }
  };
}

/** Deletes all weights that pliant.js keeps in this browser. */
export async function clearCache() {
  await globalThis.caches?.delete(NAME);
  try {
    await (await navigator.storage.getDirectory()).removeEntry(NAME, { recursive: true });
  } catch {
    // there is none
  }
}
