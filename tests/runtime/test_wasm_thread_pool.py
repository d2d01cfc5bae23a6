"""The thread pool of wasm modules, by itself: bodies in LLVM IR, launched in node by one thread while others serve the pool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from node_programs import node
from pliant.codegen.emit import emit_object
from pliant.codegen.link_wasm import STACK, link_wasm
from pliant.codegen.serial_for import serial_for_text
from pliant.codegen.share_memory import memory_pages, with_shared_memory
from pliant.codegen.thread_pool import thread_pool_text
from pliant.target import target

# Each body is `i32 body(ctx, env, begin, end)`; `go` launches one of them.
_BODIES = """
declare i32 @parallel_for(ptr, ptr, ptr, i64, i64)

; Waits until `env[0]` chunks have begun, each on a thread of its own; 9 after a long time.
define internal i32 @meet(ptr %ctx, ptr %env, i64 %begin, i64 %end) {
entry:
  %seen = getelementptr i8, ptr %env, i32 4
  %old = atomicrmw add ptr %seen, i32 1 seq_cst
  %wanted = load i32, ptr %env
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %again ]
  %now = load atomic i32, ptr %seen seq_cst, align 4
  %met = icmp uge i32 %now, %wanted
  br i1 %met, label %yes, label %again
again:
  %n1 = add i64 %n, 1
  %patient = icmp ult i64 %n1, 4000000000
  br i1 %patient, label %next, label %no
yes:
  ret i32 0
no:
  ret i32 9
}

; Adds 1 to `env[8 + i]` for each i of the chunk; answers `env[1]` in the chunk of `env[0]`.
define internal i32 @mark(ptr %ctx, ptr %env, i64 %begin, i64 %end) {
entry:
  %bad.at = load i32, ptr %env
  %bad64 = sext i32 %bad.at to i64
  %above = icmp sge i64 %bad64, %begin
  %below = icmp slt i64 %bad64, %end
  %bad = and i1 %above, %below
  br i1 %bad, label %fail, label %next
next:
  %i = phi i64 [ %begin, %entry ], [ %i1, %more ]
  %in = icmp slt i64 %i, %end
  br i1 %in, label %more, label %out
more:
  %short = trunc i64 %i to i32
  %index = add i32 %short, 8
  %at = getelementptr i32, ptr %env, i32 %index
  %old = atomicrmw add ptr %at, i32 1 seq_cst
  %i1 = add i64 %i, 1
  br label %next
fail:
  %code.at = getelementptr i8, ptr %env, i32 4
  %code = load i32, ptr %code.at
  ret i32 %code
out:
  ret i32 0
}

; A launch inside of a chunk.
define internal i32 @nest(ptr %ctx, ptr %env, i64 %begin, i64 %end) {
  %code = call i32 @parallel_for(ptr %ctx, ptr @mark, ptr %env, i64 24, i64 5)
  ret i32 %code
}

define i32 @go(ptr %ctx, i32 %which, ptr %env, i32 %extent, i32 %grain) {
  %is.mark = icmp eq i32 %which, 1
  %is.nest = icmp eq i32 %which, 2
  %one = select i1 %is.mark, ptr @mark, ptr @meet
  %body = select i1 %is.nest, ptr @nest, ptr %one
  %e = sext i32 %extent to i64
  %g = sext i32 %grain to i64
  %code = call i32 @parallel_for(ptr %ctx, ptr %body, ptr %env, i64 %e, i64 %g)
  ret i32 %code
}
"""

_THREAD = """
const { workerData, parentPort } = require("node:worker_threads");
WebAssembly.instantiate(workerData.module, { env: { memory: workerData.memory } }).then(({ exports }) => {
  exports.__stack_pointer.value = workerData.stack;
  parentPort.postMessage("ready");
  exports.worker_loop(workerData.pool);
  parentPort.postMessage("stopped");
});
"""

_DRIVER = """
import { readFileSync } from "node:fs";
import { Worker } from "node:worker_threads";
const { file, pages, stack, threads, thread } = JSON.parse(readFileSync(0, "utf8"));
const memory = new WebAssembly.Memory({ initial: pages + 64, maximum: 65536, shared: true });
const { module, instance: { exports } } = await WebAssembly.instantiate(readFileSync(file), { env: { memory } });
const words = new Int32Array(memory.buffer);
const heap = exports.__heap_base.value, ctx = heap, cancel = heap + 128, pool = heap + 256, env = heap + 512, stacks = heap + 65536;
words[(ctx + 28) / 4] = cancel;
words[(ctx + 32) / 4] = pool;
let stopped = 0;
const workers = Array.from({ length: threads - 1 }, (_, n) => new Worker(thread, {
  eval: true, execArgv: [], workerData: { module, memory, pool, stack: stacks + (n + 1) * stack },
}));
await Promise.all(workers.map((w) => new Promise((done) => w.on("message", (said) => (said === "ready" ? done() : stopped++)))));
const said = { codes: [], counts: [] };
const launch = (which, extent, grain, first = -1, second = 0) => {
  words.fill(0, env / 4, env / 4 + 8 + 5000);
  words[env / 4] = first;
  words[env / 4 + 1] = second;
  words.fill(0, (ctx + 40) / 4, (ctx + 104) / 4);
  return exports.go(ctx, which, env, extent, grain);
};
const marks = (extent) => Array.from(words.subarray(env / 4 + 8, env / 4 + 8 + extent));
said.meet = launch(0, threads, 1, threads);
let wrong = 0;
for (let n = 0; n < 3000; n++) {
  const extent = 1 + ((n * 7919) % 4000), grain = 1 + ((n * 104729) % 97);
  if (launch(1, extent, grain) !== 0 || marks(extent).some((m) => m !== 1)) wrong++;
}
said.wrong = wrong;
said.failed = launch(1, 4000, 3, 1000, 77);
said.more = Math.max(...marks(4000));
said.nested = [launch(2, 6, 1), marks(24)];
words[cancel / 4] = 1;
said.cancelled = launch(1, 100, 1);
said.error = words[(ctx + 40) / 4];
words[cancel / 4] = 0;
said.after = [launch(1, 100, 1), Math.min(...marks(100))];
said.grain = launch(1, 10, 0);
Atomics.store(words, (pool + 8) / 4, 1);
Atomics.notify(words, pool / 4);
await Promise.all(workers.map((w) => new Promise((done) => w.on("exit", done))));
said.stopped = stopped;
console.log(JSON.stringify(said));
"""


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_launches(threads: int, tmp_path: Path) -> None:
    machine = target("wasm+simd128+atomics")
    objects = [emit_object(text, machine) for text in (_BODIES, serial_for_text(machine), thread_pool_text(machine))]
    module = link_wasm(objects, ["go", "worker_loop"])
    (tmp_path / "pool.wasm").write_bytes(with_shared_memory(module))
    asked = {"file": str(tmp_path / "pool.wasm"), "pages": memory_pages(module), "stack": STACK, "threads": threads, "thread": _THREAD}
    command = [node(), "--input-type=module", "-e", _DRIVER]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["meet"] == 0  # as many chunks at once as there are threads
    assert said["wrong"] == 0  # every iteration ran once, in 3000 launches
    assert said["failed"] == 77 and said["more"] <= 1
    assert said["nested"] == [0, [6] * 24]
    assert said["cancelled"] == 1 == said["error"] and said["after"] == [0, 1]
    assert said["grain"] == 4  # BAD_CALL
    assert said["stopped"] == threads - 1
