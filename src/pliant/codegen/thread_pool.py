"""The thread pool of wasm modules with `atomics`, as LLVM IR: `parallel_for`, which distributes chunks, and `worker_loop`.

Every thread is an instance of the module over the same shared memory, with a stack of its own. One thread runs programs, with
`parallel_for` in `Ctx.parallel_for`. The others call `worker_loop(pool)`, which returns after the embedder has set `stop` and woken
them.

`Ctx.pool` is the address of BYTES bytes that start as zeros:

    0    epoch, i32     the number of launches; sleeping workers wait for a change of it
    4    busy, i32      1 during a launch; a launch meanwhile is nested, and runs inline
    8    stop, i32      1: workers return
    64   tickets, i64   the chunks lo (low half) to hi (high half) that nobody took yet
    128  done, i32      chunks that are finished or given up; the launcher waits until it is that of all chunks
    192  job            ctx, body, env, i32 each; 208 extent, i64; 216 grain, i64; 224 chunks, i32; 228 code, i32, the first nonzero result

The launcher writes the job, then publishes tickets. It takes them from the front and workers take them from the back, by compare-and-swap,
so that a thread gets the same part of the data in consecutive kernels. A worker reads the job only after it took a ticket, which keeps the
launch alive: one that wakes late finds no ticket, or one of the present launch. A nonzero result empties the range. Chunks are those of
`serial_for`, and each computes the same, so results do not depend on the number of threads.
"""

from __future__ import annotations

from ..target import Target
from .llvm_types import CANCELLED, ctx_layout
from .serial_for import NAME as SERIAL_FOR

NAMES = ("parallel_for", "worker_loop")
BYTES = 256
_SPINS = 4000  # looks for a ticket before a worker sleeps: about as long as waking it takes

_TEXT = """
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @llvm.wasm.memory.atomic.wait32(ptr, i32, i64)
declare i32 @llvm.wasm.memory.atomic.notify(ptr, i32)
declare i32 @{serial_for}(ptr, ptr, ptr, i64, i64)

; Returns the number of a chunk that is now the caller's, from the front or the back of the range; -1 if there is none.
define internal i64 @take(ptr %pool, i1 %back) {{
entry:
  %tickets = getelementptr i8, ptr %pool, i32 64
  br label %look
look:
  %range = load atomic i64, ptr %tickets seq_cst, align 8
  %lo = and i64 %range, 4294967295
  %hi = lshr i64 %range, 32
  %any = icmp ult i64 %lo, %hi
  br i1 %any, label %try, label %none
try:
  %last = sub i64 %hi, 1
  %mine = select i1 %back, i64 %last, i64 %lo
  %without.first = add i64 %range, 1
  %without.last = sub i64 %range, 4294967296
  %rest = select i1 %back, i64 %without.last, i64 %without.first
  %swap = cmpxchg ptr %tickets, i64 %range, i64 %rest seq_cst seq_cst
  %taken = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %taken, label %got, label %look
got:
  ret i64 %mine
none:
  ret i64 -1
}}

; Runs a chunk that the caller took a ticket for. Afterwards the launch may be over.
define internal void @run_chunk(ptr %pool, i64 %chunk) {{
entry:
  %job.ctx = getelementptr i8, ptr %pool, i32 192
  %job.body = getelementptr i8, ptr %pool, i32 196
  %job.env = getelementptr i8, ptr %pool, i32 200
  %job.extent = getelementptr i8, ptr %pool, i32 208
  %job.grain = getelementptr i8, ptr %pool, i32 216
  %job.chunks = getelementptr i8, ptr %pool, i32 224
  %job.code = getelementptr i8, ptr %pool, i32 228
  %ctx = load ptr, ptr %job.ctx, align 4
  %chunks = load i32, ptr %job.chunks, align 4
  %flag.at = getelementptr i8, ptr %ctx, i32 {cancel}
  %flag = load ptr, ptr %flag.at, align 4
  %asked = load atomic i32, ptr %flag monotonic, align 4
  %cancelled = icmp ne i32 %asked, 0
  br i1 %cancelled, label %stop, label %run
stop:
  %error = getelementptr i8, ptr %ctx, i32 {error}
  %earlier = cmpxchg ptr %error, i64 0, i64 {cancelled} seq_cst seq_cst
  br label %failed
run:
  %body = load ptr, ptr %job.body, align 4
  %env = load ptr, ptr %job.env, align 4
  %extent = load i64, ptr %job.extent, align 8
  %grain = load i64, ptr %job.grain, align 8
  %begin = mul i64 %chunk, %grain
  %left = sub i64 %extent, %begin
  %size = call i64 @llvm.smin.i64(i64 %left, i64 %grain)
  %end = add i64 %begin, %size
  %code = call i32 %body(ptr %ctx, ptr %env, i64 %begin, i64 %end)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %failed, label %finished
failed:
  %why = phi i32 [ {cancelled}, %stop ], [ %code, %run ]
  %first = cmpxchg ptr %job.code, i32 0, i32 %why seq_cst seq_cst
  %tickets = getelementptr i8, ptr %pool, i32 64
  %range = atomicrmw xchg ptr %tickets, i64 0 seq_cst
  %hi = lshr i64 %range, 32
  %untaken = sub i64 %hi, %range
  %given.up = trunc i64 %untaken to i32
  br label %finished
finished:
  %extra = phi i32 [ 0, %run ], [ %given.up, %failed ]
  %count = add i32 %extra, 1
  %done = getelementptr i8, ptr %pool, i32 128
  %before = atomicrmw add ptr %done, i32 %count seq_cst
  %now = add i32 %before, %count
  %all = icmp eq i32 %now, %chunks
  br i1 %all, label %tell, label %out
tell:
  %woken = call i32 @llvm.wasm.memory.atomic.notify(ptr %done, i32 -1)
  br label %out
out:
  ret void
}}

define i32 @parallel_for(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain) {{
entry:
  %pool.at = getelementptr i8, ptr %ctx, i32 {pool}
  %pool = load ptr, ptr %pool.at, align 4
  %busy = getelementptr i8, ptr %pool, i32 4
  %plain = icmp sgt i64 %grain, 0
  br i1 %plain, label %count, label %serial
count:
  %more = add i64 %extent, %grain
  %up = sub i64 %more, 1
  %chunks = sdiv i64 %up, %grain
  %several = icmp sgt i64 %chunks, 1
  %fits = icmp slt i64 %chunks, 2147483648
  %share = and i1 %several, %fits
  br i1 %share, label %claim, label %serial
claim:
  %swap = cmpxchg ptr %busy, i32 0, i32 1 seq_cst seq_cst
  %alone = extractvalue {{ i32, i1 }} %swap, 1
  br i1 %alone, label %launch, label %serial
serial:
  %here = call i32 @{serial_for}(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain)
  ret i32 %here
launch:
  %job.ctx = getelementptr i8, ptr %pool, i32 192
  %job.body = getelementptr i8, ptr %pool, i32 196
  %job.env = getelementptr i8, ptr %pool, i32 200
  %job.extent = getelementptr i8, ptr %pool, i32 208
  %job.grain = getelementptr i8, ptr %pool, i32 216
  %job.chunks = getelementptr i8, ptr %pool, i32 224
  %job.code = getelementptr i8, ptr %pool, i32 228
  %short = trunc i64 %chunks to i32
  store ptr %ctx, ptr %job.ctx, align 4
  store ptr %body, ptr %job.body, align 4
  store ptr %env, ptr %job.env, align 4
  store i64 %extent, ptr %job.extent, align 8
  store i64 %grain, ptr %job.grain, align 8
  store i32 %short, ptr %job.chunks, align 4
  store atomic i32 0, ptr %job.code seq_cst, align 4
  %done = getelementptr i8, ptr %pool, i32 128
  store atomic i32 0, ptr %done seq_cst, align 4
  %tickets = getelementptr i8, ptr %pool, i32 64
  %range = shl i64 %chunks, 32
  store atomic i64 %range, ptr %tickets seq_cst, align 8
  %epoch = atomicrmw add ptr %pool, i32 1 seq_cst
  %woken = call i32 @llvm.wasm.memory.atomic.notify(ptr %pool, i32 -1)
  br label %next
next:
  %chunk = call i64 @take(ptr %pool, i1 false)
  %got = icmp sge i64 %chunk, 0
  br i1 %got, label %work, label %join
work:
  call void @run_chunk(ptr %pool, i64 %chunk)
  br label %next
join:
  %spin = phi i32 [ 0, %next ], [ %spin1, %look ], [ {spins}, %sleep ]
  %now = load atomic i32, ptr %done seq_cst, align 4
  %all = icmp eq i32 %now, %short
  br i1 %all, label %over, label %look
look:
  %spin1 = add i32 %spin, 1
  %patient = icmp ult i32 %spin, {spins}
  br i1 %patient, label %join, label %sleep
sleep:
  %slept = call i32 @llvm.wasm.memory.atomic.wait32(ptr %done, i32 %now, i64 -1)
  br label %join
over:
  %answer = load atomic i32, ptr %job.code seq_cst, align 4
  store atomic i32 0, ptr %busy seq_cst, align 4
  ret i32 %answer
}}

define void @worker_loop(ptr %pool) {{
entry:
  %stop.at = getelementptr i8, ptr %pool, i32 8
  br label %awake
awake:
  %epoch = load atomic i32, ptr %pool seq_cst, align 4
  br label %look
look:
  %spin = phi i32 [ 0, %awake ], [ %spin1, %idle ]
  %chunk = call i64 @take(ptr %pool, i1 true)
  %got = icmp sge i64 %chunk, 0
  br i1 %got, label %work, label %idle
work:
  call void @run_chunk(ptr %pool, i64 %chunk)
  br label %awake
idle:
  %spin1 = add i32 %spin, 1
  %patient = icmp ult i32 %spin, {spins}
  br i1 %patient, label %look, label %check
check:
  %stop = load atomic i32, ptr %stop.at seq_cst, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %out, label %sleep
sleep:
  %slept = call i32 @llvm.wasm.memory.atomic.wait32(ptr %pool, i32 %epoch, i64 -1)
  br label %awake
out:
  ret void
}}
"""


def thread_pool_text(target: Target) -> str:
    """Return the LLVM IR of `parallel_for` and `worker_loop` for a wasm target with `atomics`; it calls `serial_for`."""
    ctx = ctx_layout(target)
    numbers = {"cancel": ctx.cancel, "error": ctx.error, "pool": ctx.pool, "cancelled": CANCELLED, "spins": _SPINS}
    return _TEXT.format(serial_for=SERIAL_FOR, **numbers)
