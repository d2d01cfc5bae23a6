"""The native part of the thread pool, as LLVM IR text that we wrote: `parallel_for`, `serial_for`, `worker_loop`, `ticks`.

How a launch works. The launcher writes the job, then publishes *tickets*: one 64-bit word that holds the range lo..hi of
chunks nobody took. The launcher takes tickets from the front, workers from the back (so that each thread meets the same part of
the data in one kernel after the other), each by compare-and-swap. Whoever takes a ticket owes one `done`; the launcher
returns when every ticket is done, and so waits only for tickets that were really taken. A worker reads the job only after it
took a ticket, hence always the job of a launch that is still waiting for it: a worker that wakes late finds no ticket, or one of
the present launch, and never touches what belonged to a finished one. The first answer other than 0 empties the range.

A worker without work spins for a while, then sleeps in a semaphore of its own. A launcher that has to wait long asks the system
how much the workers it waits for really ran. Time that is lost because one of them had no core is charged to that worker's allowance,
which grows by a quarter of the time that passes, up to one of the system's slices or two. Whoever has used it up is shed (woken and
served no more) for 8 times the time lost, longer when it happens again soon. So a core that others borrow now and then is kept, and one
that they hold is given up. A worker that just has a long chunk loses nothing. One that finds itself on the launcher's processor, because
others hold the rest, steps aside, and is shed as well.

The layout of the records is `Pool`, `Worker` and `View` in runtime/threads.py; offsets here are in bytes.
"""

from __future__ import annotations

EXPORTS = ("parallel_for", "serial_for", "worker_loop", "ticks")

# What differs between machines: a counter that runs steadily, and the hint of a waiting loop with its declaration.
_MACHINES = {
    "x86_64": ("@llvm.readcyclecounter", "@llvm.x86.sse2.pause()", "@llvm.x86.sse2.pause()"),
    "aarch64": ("@llvm.readsteadycounter", "@llvm.aarch64.hint(i32 1)", "@llvm.aarch64.hint(i32)"),
}

_TEXT = """
declare i64 {counter}()
declare void {pause_declaration}
declare i64 @llvm.smin.i64(i64, i64)

define {cc}i64 @ticks() {{
  %t = call i64 {counter}()
  ret i64 %t
}}

; The first failure is written into the error record by whoever wins it.
define internal void @set_error(ptr %ctx, i64 %code) {{
  %error = getelementptr i8, ptr %ctx, i64 56
  cmpxchg ptr %error, i64 0, i64 %code seq_cst seq_cst
  ret void
}}

; Runs chunks begin..end of the grid one after the other, looking at the cancel flag before each.
define internal i32 @run_chunks(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain, i64 %begin, i64 %end) {{
entry:
  %cancel.at = getelementptr i8, ptr %ctx, i64 40
  %cancel = load ptr, ptr %cancel.at
  br label %next
next:
  %c = phi i64 [ %begin, %entry ], [ %c1, %ran ]
  %more = icmp slt i64 %c, %end
  br i1 %more, label %look, label %ok
look:
  %flag = load atomic i32, ptr %cancel monotonic, align 4
  %cancelled = icmp ne i32 %flag, 0
  br i1 %cancelled, label %stop, label %chunk
chunk:
  %b = mul i64 %c, %grain
  %rest = sub i64 %extent, %b
  %size = call i64 @llvm.smin.i64(i64 %rest, i64 %grain)
  %e = add i64 %b, %size
  %r = call {cc}i32 %body(ptr %ctx, ptr %env, i64 %b, i64 %e)
  %c1 = add i64 %c, 1
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %fail, label %ran
ran:
  br label %next
stop:
  call void @set_error(ptr %ctx, i64 1)
  ret i32 1
fail:
  ret i32 %r
ok:
  ret i32 0
}}

; The chunks of a grid; a grain below 1 is a broken call.
define internal i64 @count_chunks(ptr %ctx, i64 %extent, i64 %grain) {{
  %empty = icmp slt i64 %extent, 1
  br i1 %empty, label %none, label %some
none:
  ret i64 0
some:
  %bad = icmp slt i64 %grain, 1
  br i1 %bad, label %broken, label %count
broken:
  call void @set_error(ptr %ctx, i64 4)
  ret i64 -1
count:
  %last = sub i64 %extent, 1
  %q = udiv i64 %last, %grain
  %n = add i64 %q, 1
  ret i64 %n
}}

define {cc}i32 @serial_for(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain) {{
  %n = call i64 @count_chunks(ptr %ctx, i64 %extent, i64 %grain)
  %bad = icmp slt i64 %n, 0
  br i1 %bad, label %broken, label %run
broken:
  ret i32 4
run:
  %r = call i32 @run_chunks(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain, i64 0, i64 %n)
  ret i32 %r
}}

; One ticket of the present launch, or -1. Taking it keeps the launch, and so the job, alive until `finish`.
define internal i64 @take(ptr %pool, i1 %front) {{
entry:
  %at = getelementptr i8, ptr %pool, i64 256
  %first = load atomic i64, ptr %at acquire, align 8
  br label %try
try:
  %w = phi i64 [ %first, %entry ], [ %seen, %swap ]
  %lo = and i64 %w, 4294967295
  %hi = lshr i64 %w, 32
  %any = icmp ult i64 %lo, %hi
  br i1 %any, label %swap, label %none
swap:
  %from.front = add i64 %w, 1
  %from.back = sub i64 %w, 4294967296
  %new = select i1 %front, i64 %from.front, i64 %from.back
  %pair = cmpxchg ptr %at, i64 %w, i64 %new acq_rel acquire
  %seen = extractvalue {{ i64, i1 }} %pair, 0
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %took, label %try
took:
  %last = sub i64 %hi, 1
  %ticket = select i1 %front, i64 %lo, i64 %last
  ret i64 %ticket
none:
  ret i64 -1
}}

; Does the work of a ticket; on failure empties the range, and counts the tickets that nobody will take as done.
define internal void @run_ticket(ptr %pool, i64 %ticket) {{
  %ctx.at = getelementptr i8, ptr %pool, i64 512
  %ctx = load ptr, ptr %ctx.at
  %body.at = getelementptr i8, ptr %pool, i64 520
  %body = load ptr, ptr %body.at
  %env.at = getelementptr i8, ptr %pool, i64 528
  %env = load ptr, ptr %env.at
  %extent.at = getelementptr i8, ptr %pool, i64 536
  %extent = load i64, ptr %extent.at
  %grain.at = getelementptr i8, ptr %pool, i64 544
  %grain = load i64, ptr %grain.at
  %chunks.at = getelementptr i8, ptr %pool, i64 552
  %chunks = load i64, ptr %chunks.at
  %batch.at = getelementptr i8, ptr %pool, i64 560
  %batch = load i64, ptr %batch.at
  %begin = mul i64 %ticket, %batch
  %upto = add i64 %begin, %batch
  %end = call i64 @llvm.smin.i64(i64 %upto, i64 %chunks)
  %r = call i32 @run_chunks(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain, i64 %begin, i64 %end)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %out, label %fail
fail:
  %result.at = getelementptr i8, ptr %pool, i64 392
  cmpxchg ptr %result.at, i32 0, i32 %r seq_cst seq_cst
  %tickets.at = getelementptr i8, ptr %pool, i64 256
  %w = atomicrmw xchg ptr %tickets.at, i64 0 seq_cst
  %lo = and i64 %w, 4294967295
  %hi = lshr i64 %w, 32
  %left = sub i64 %hi, %lo
  %some = call i64 @llvm.smax.i64(i64 %left, i64 0)
  %done.at = getelementptr i8, ptr %pool, i64 384
  atomicrmw add ptr %done.at, i64 %some seq_cst
  br label %out
out:
  ret void
}}

; A worker pays the `done` of its ticket, and wakes the launcher if that was the last one.
define internal void @finish(ptr %pool) {{
  %total.at = getelementptr i8, ptr %pool, i64 568
  %total = load i64, ptr %total.at
  %done.at = getelementptr i8, ptr %pool, i64 384
  %old = atomicrmw add ptr %done.at, i64 1 seq_cst
  %new = add i64 %old, 1
  %last = icmp eq i64 %new, %total
  br i1 %last, label %wake, label %out
wake:
  %asleep.at = getelementptr i8, ptr %pool, i64 136
  %asleep = atomicrmw xchg ptr %asleep.at, i64 0 seq_cst
  %needed = icmp ne i64 %asleep, 0
  br i1 %needed, label %post, label %out
post:
  %post.at = getelementptr i8, ptr %pool, i64 8
  %post.fn = load ptr, ptr %post.at
  %sem.at = getelementptr i8, ptr %pool, i64 64
  %sem = load ptr, ptr %sem.at
  call {cc}i64 %post.fn(ptr %sem, i64 1, i64 0)
  br label %out
out:
  ret void
}}

; May this worker serve the present launch: is it within the launch's limit, and not shed?
define internal i1 @may_serve(ptr %pool, ptr %me, i64 %index) {{
  %limit.at = getelementptr i8, ptr %pool, i64 576
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %within = icmp slt i64 %index, %limit
  %until.at = getelementptr i8, ptr %me, i64 24
  %until = load atomic i64, ptr %until.at monotonic, align 8
  %now = call i64 {counter}()
  %free = icmp sge i64 %now, %until
  %both = and i1 %within, %free
  ret i1 %both
}}

define internal i1 @any_ticket(ptr %pool) {{
  %at = getelementptr i8, ptr %pool, i64 256
  %w = load atomic i64, ptr %at seq_cst, align 8
  %lo = and i64 %w, 4294967295
  %hi = lshr i64 %w, 32
  %any = icmp ult i64 %lo, %hi
  ret i1 %any
}}

; The number of the processor that this thread is on, or -1 where the system cannot say.
define internal i64 @this_processor(ptr %pool) {{
  %at = getelementptr i8, ptr %pool, i64 96
  %ask = load ptr, ptr %at
  %none = icmp eq ptr %ask, null
  br i1 %none, label %unknown, label %call
unknown:
  ret i64 -1
call:
  %number = call {cc}i32 %ask()
  %wide = sext i32 %number to i64
  ret i64 %wide
}}

; The life of a worker thread; it never returns.
define {cc}void @worker_loop(ptr %pool, i64 %index) {{
entry:
  %stride = mul i64 %index, 128
  %offset = add i64 %stride, 640
  %me = getelementptr i8, ptr %pool, i64 %offset
  %asleep.at = getelementptr i8, ptr %me, i64 8
  %running.at = getelementptr i8, ptr %me, i64 16
  %wait.fn = load ptr, ptr %pool
  %sem = load ptr, ptr %me
  %spin.at = getelementptr i8, ptr %pool, i64 24
  %spin = load i64, ptr %spin.at
  br label %idle
idle:
  %start = call i64 {counter}()
  br label %poll
poll:
  %any = call i1 @any_ticket(ptr %pool)
  br i1 %any, label %allowed, label %pause
allowed:
  %may = call i1 @may_serve(ptr %pool, ptr %me, i64 %index)
  br i1 %may, label %place, label %pause
place:
  ; On the launcher's processor there is nothing to gain: let the launcher go on. If it does, this worker is in its way, and is shed.
  %here = call i64 @this_processor(ptr %pool)
  %launched.at = getelementptr i8, ptr %pool, i64 584
  %there = load atomic i64, ptr %launched.at monotonic, align 8
  %known = icmp sge i64 %here, 0
  %same = icmp eq i64 %here, %there
  %crowded = and i1 %known, %same
  br i1 %crowded, label %leave, label %try
leave:
  %yield.at = getelementptr i8, ptr %pool, i64 104
  %yield.fn = load ptr, ptr %yield.at
  call {cc}i64 %yield.fn()
  %still = call i1 @any_ticket(ptr %pool)
  br i1 %still, label %try, label %crowd
crowd:
  %stall.at = getelementptr i8, ptr %pool, i64 40
  %stall = load i64, ptr %stall.at
  %left = call i64 {counter}()
  call void @shed_for(ptr %pool, ptr %me, i64 %stall, i64 %left)
  br label %doze
try:
  %ticket = call i64 @take(ptr %pool, i1 false)
  %took = icmp sge i64 %ticket, 0
  br i1 %took, label %work, label %pause
work:
  store atomic i64 1, ptr %running.at monotonic, align 8
  call void @run_ticket(ptr %pool, i64 %ticket)
  store atomic i64 0, ptr %running.at monotonic, align 8
  call void @finish(ptr %pool)
  br label %idle
pause:
  call void {pause}
  %now = call i64 {counter}()
  %spent = sub i64 %now, %start
  %patient = icmp slt i64 %spent, %spin
  br i1 %patient, label %poll, label %doze
doze:
  ; Say so first, look again after: a launcher publishes first and looks at this flag after, so one of the two sees the other.
  atomicrmw xchg ptr %asleep.at, i64 1 seq_cst
  %any2 = call i1 @any_ticket(ptr %pool)
  %may2 = call i1 @may_serve(ptr %pool, ptr %me, i64 %index)
  %missed = and i1 %any2, %may2
  br i1 %missed, label %awake, label %sleep
sleep:
  call {cc}i64 %wait.fn(ptr %sem, i64 -1, i64 0)
  br label %awake
awake:
  store atomic i64 0, ptr %asleep.at seq_cst, align 8
  br label %idle
}}

; Wakes sleeping workers for a launch of %total tickets; %now decides who is still shed.
define internal void @wake_workers(ptr %pool, i64 %workers, i64 %total, i64 %now) {{
entry:
  %others = sub i64 %total, 1
  %post.at = getelementptr i8, ptr %pool, i64 8
  %post.fn = load ptr, ptr %post.at
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %wanted = phi i64 [ %others, %entry ], [ %wanted2, %step ]
  %me = phi i64 [ 640, %entry ], [ %me1, %step ]
  %more = icmp slt i64 %i, %workers
  %want = icmp sgt i64 %wanted, 0
  %go = and i1 %more, %want
  br i1 %go, label %look, label %out
look:
  %w = getelementptr i8, ptr %pool, i64 %me
  %until.at = getelementptr i8, ptr %w, i64 24
  %until = load i64, ptr %until.at
  %free = icmp sge i64 %now, %until
  br i1 %free, label %check, label %step
check:
  %wanted1 = sub i64 %wanted, 1
  %asleep.at = getelementptr i8, ptr %w, i64 8
  %seen = load atomic i64, ptr %asleep.at seq_cst, align 8
  %sleeping = icmp ne i64 %seen, 0
  br i1 %sleeping, label %claim, label %step
claim:
  %was = atomicrmw xchg ptr %asleep.at, i64 0 seq_cst
  %mine = icmp ne i64 %was, 0
  br i1 %mine, label %post, label %step
post:
  %sem = load ptr, ptr %w
  call {cc}i64 %post.fn(ptr %sem, i64 1, i64 0)
  br label %step
step:
  %wanted2 = phi i64 [ %wanted, %look ], [ %wanted1, %check ], [ %wanted1, %claim ], [ %wanted1, %post ]
  %i1 = add i64 %i, 1
  %me1 = add i64 %me, 128
  br label %next
out:
  ret void
}}

; Nanoseconds for which a worker was on a processor so far, or -1 where the system cannot say.
define internal i64 @cpu_time(ptr %pool, ptr %worker) {{
  %time = alloca [2 x i64]
  %clock.at = getelementptr i8, ptr %pool, i64 56
  %clock = load ptr, ptr %clock.at
  %none = icmp eq ptr %clock, null
  br i1 %none, label %unknown, label %read
unknown:
  ret i64 -1
read:
  %id.at = getelementptr i8, ptr %worker, i64 48
  %id = load i64, ptr %id.at
  store [2 x i64] zeroinitializer, ptr %time
  call {cc}i64 %clock(i64 %id, ptr %time, i64 0)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}

; Notes which workers the launcher is waiting for, and how long they ran so far.
define internal void @mark_waited(ptr %pool, i64 %workers) {{
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %look, label %out
look:
  %stride = mul i64 %i, 128
  %offset = add i64 %stride, 640
  %w = getelementptr i8, ptr %pool, i64 %offset
  %running.at = getelementptr i8, ptr %w, i64 16
  %running = load atomic i64, ptr %running.at monotonic, align 8
  %marked.at = getelementptr i8, ptr %w, i64 40
  store i64 %running, ptr %marked.at
  %i1 = add i64 %i, 1
  %is.running = icmp ne i64 %running, 0
  br i1 %is.running, label %read, label %step
read:
  %ran = call i64 @cpu_time(ptr %pool, ptr %w)
  %ran.at = getelementptr i8, ptr %w, i64 56
  store i64 %ran, ptr %ran.at
  br label %step
step:
  br label %next
out:
  ret void
}}

; Did this worker, noted %waited ticks ago, lose its core? Yes if it ran less than 3/4 of that time; where the system cannot
; say, yes if the wait was far longer than tickets take lately.
define internal i1 @lost_core(ptr %pool, ptr %worker, i64 %lost, i64 %waited) {{
  %before.at = getelementptr i8, ptr %worker, i64 56
  %before = load i64, ptr %before.at
  %unknown = icmp slt i64 %before, 0
  br i1 %unknown, label %guess, label %know
know:
  %after = call i64 @cpu_time(ptr %pool, ptr %worker)
  %ran = sub i64 %after, %before
  %rate.at = getelementptr i8, ptr %pool, i64 80
  %rate = load i64, ptr %rate.at
  %scaled = mul i64 %ran, %rate
  %ticks = ashr i64 %scaled, 10
  %ticks4 = shl i64 %ticks, 2
  %waited3 = mul i64 %waited, 3
  %idle = icmp slt i64 %ticks4, %waited3
  ret i1 %idle
guess:
  %recent.at = getelementptr i8, ptr %pool, i64 72
  %recent = load i64, ptr %recent.at
  %normal = shl i64 %recent, 2
  %long = icmp sgt i64 %lost, %normal
  ret i1 %long
}}

; Sheds a worker for the time %wish, or for twice the last time if that ended not long ago.
define internal void @shed_for(ptr %pool, ptr %w, i64 %wish, i64 %now) {{
  %max.at = getelementptr i8, ptr %pool, i64 48
  %max = load i64, ptr %max.at
  %until.at = getelementptr i8, ptr %w, i64 24
  %until = load atomic i64, ptr %until.at monotonic, align 8
  %period.at = getelementptr i8, ptr %w, i64 32
  %period = load i64, ptr %period.at
  %since = sub i64 %now, %until
  %window = shl i64 %period, 2
  %soon = icmp slt i64 %since, %window
  %twice = shl i64 %period, 1
  %grown = select i1 %soon, i64 %twice, i64 0
  %long = call i64 @llvm.smax.i64(i64 %grown, i64 %wish)
  %new = call i64 @llvm.smin.i64(i64 %long, i64 %max)
  store i64 %new, ptr %period.at
  %then = add i64 %now, %new
  store atomic i64 %then, ptr %until.at monotonic, align 8
  ret void
}}

; Charges the noted workers that lost their core, and sheds those without allowance for 8 times the time lost.
define internal void @shed_waited(ptr %pool, i64 %workers, i64 %lost, i64 %waited, i64 %now) {{
entry:
  %wish = shl i64 %lost, 3
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %look, label %out
look:
  %stride = mul i64 %i, 128
  %offset = add i64 %stride, 640
  %w = getelementptr i8, ptr %pool, i64 %offset
  %i1 = add i64 %i, 1
  %marked.at = getelementptr i8, ptr %w, i64 40
  %marked = load i64, ptr %marked.at
  %noted = icmp ne i64 %marked, 0
  br i1 %noted, label %judge, label %step
judge:
  %stolen = call i1 @lost_core(ptr %pool, ptr %w, i64 %lost, i64 %waited)
  br i1 %stolen, label %charge, label %step
charge:
  %until.at = getelementptr i8, ptr %w, i64 24
  %until = load i64, ptr %until.at
  %allowance.at = getelementptr i8, ptr %w, i64 64
  %allowance = load i64, ptr %allowance.at
  %charged.at = getelementptr i8, ptr %w, i64 72
  %charged = load i64, ptr %charged.at
  %served = call i64 @llvm.smax.i64(i64 %charged, i64 %until)
  %passed = sub i64 %now, %served
  %earned = ashr i64 %passed, 2
  %rich = add i64 %allowance, %earned
  %most.at = getelementptr i8, ptr %pool, i64 88
  %most = load i64, ptr %most.at
  %capped = call i64 @llvm.smin.i64(i64 %rich, i64 %most)
  %left = sub i64 %capped, %lost
  %kept = call i64 @llvm.smax.i64(i64 %left, i64 0)
  store i64 %kept, ptr %allowance.at
  store i64 %now, ptr %charged.at
  %broke = icmp slt i64 %left, 0
  br i1 %broke, label %shed, label %step
shed:
  call void @shed_for(ptr %pool, ptr %w, i64 %wish, i64 %now)
  br label %step
step:
  br label %next
out:
  ret void
}}

; Waits until all tickets are done: spins, then sleeps. %longest is the longest ticket that the launcher itself ran.
define internal void @await_all(ptr %pool, i64 %workers, i64 %total, i64 %longest) {{
entry:
  %done.at = getelementptr i8, ptr %pool, i64 384
  %asleep.at = getelementptr i8, ptr %pool, i64 136
  %recent.at = getelementptr i8, ptr %pool, i64 72
  %old = load i64, ptr %recent.at
  %eighth = ashr i64 %old, 3
  %faded = sub i64 %old, %eighth
  %recent = call i64 @llvm.smax.i64(i64 %faded, i64 %longest)
  store i64 %recent, ptr %recent.at
  %first = load atomic i64, ptr %done.at acquire, align 8
  %at.once = icmp eq i64 %first, %total
  br i1 %at.once, label %out, label %begin
begin:
  %wait.at = getelementptr i8, ptr %pool, i64 32
  %patience = load i64, ptr %wait.at
  %start = call i64 {counter}()
  br label %poll
poll:
  %done = load atomic i64, ptr %done.at seq_cst, align 8
  %all = icmp eq i64 %done, %total
  br i1 %all, label %out, label %pause
pause:
  call void {pause}
  %now = call i64 {counter}()
  %spent = sub i64 %now, %start
  %patient = icmp slt i64 %spent, %patience
  br i1 %patient, label %poll, label %late
late:
  ; The core that the launcher holds may be the one that the worker needs.
  call void @mark_waited(ptr %pool, i64 %workers)
  %marked = call i64 {counter}()
  %wait.fn = load ptr, ptr %pool
  %sem.at = getelementptr i8, ptr %pool, i64 64
  %sem = load ptr, ptr %sem.at
  br label %doze
doze:
  atomicrmw xchg ptr %asleep.at, i64 1 seq_cst
  %done2 = load atomic i64, ptr %done.at seq_cst, align 8
  %all2 = icmp eq i64 %done2, %total
  br i1 %all2, label %judge, label %sleep
sleep:
  call {cc}i64 %wait.fn(ptr %sem, i64 -1, i64 0)
  br label %doze
judge:
  store atomic i64 0, ptr %asleep.at seq_cst, align 8
  %end = call i64 {counter}()
  %lost = sub i64 %end, %start
  %floor.at = getelementptr i8, ptr %pool, i64 40
  %floor = load i64, ptr %floor.at
  %waited = sub i64 %end, %marked
  %stall = icmp sgt i64 %lost, %floor
  br i1 %stall, label %shed, label %out
shed:
  call void @shed_waited(ptr %pool, i64 %workers, i64 %lost, i64 %waited, i64 %end)
  br label %out
out:
  ret void
}}

define {cc}i32 @parallel_for(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain) {{
entry:
  %view.at = getelementptr i8, ptr %ctx, i64 48
  %view = load ptr, ptr %view.at
  %pool = load ptr, ptr %view
  %limit.at = getelementptr i8, ptr %view, i64 8
  %limit = load i64, ptr %limit.at
  %chunks = call i64 @count_chunks(ptr %ctx, i64 %extent, i64 %grain)
  %workers.at = getelementptr i8, ptr %pool, i64 16
  %there = load atomic i64, ptr %workers.at acquire, align 8
  %workers = call i64 @llvm.smin.i64(i64 %there, i64 %limit)
  %several = icmp sgt i64 %chunks, 1
  %helped = icmp sgt i64 %workers, 0
  %worth = and i1 %several, %helped
  br i1 %worth, label %claim, label %inline
claim:
  ; A second caller and a nested call find the pool busy, and do their work themselves.
  %busy.at = getelementptr i8, ptr %pool, i64 128
  %pair = cmpxchg ptr %busy.at, i64 0, i64 1 acq_rel monotonic
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %launch, label %inline
inline:
  %alone = call {cc}i32 @serial_for(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain)
  ret i32 %alone
launch:
  %now = call i64 {counter}()
  ; A ticket is one chunk, unless there are more than fit into 30 bits.
  %excess = lshr i64 %chunks, 30
  %batch = add i64 %excess, 1
  %chunks.less = sub i64 %chunks, 1
  %tickets.less = udiv i64 %chunks.less, %batch
  %total = add i64 %tickets.less, 1
  %job.ctx = getelementptr i8, ptr %pool, i64 512
  store ptr %ctx, ptr %job.ctx
  %job.body = getelementptr i8, ptr %pool, i64 520
  store ptr %body, ptr %job.body
  %job.env = getelementptr i8, ptr %pool, i64 528
  store ptr %env, ptr %job.env
  %job.extent = getelementptr i8, ptr %pool, i64 536
  store i64 %extent, ptr %job.extent
  %job.grain = getelementptr i8, ptr %pool, i64 544
  store i64 %grain, ptr %job.grain
  %job.chunks = getelementptr i8, ptr %pool, i64 552
  store i64 %chunks, ptr %job.chunks
  %job.batch = getelementptr i8, ptr %pool, i64 560
  store i64 %batch, ptr %job.batch
  %job.total = getelementptr i8, ptr %pool, i64 568
  store i64 %total, ptr %job.total
  %job.limit = getelementptr i8, ptr %pool, i64 576
  store atomic i64 %workers, ptr %job.limit monotonic, align 8
  %job.processor = getelementptr i8, ptr %pool, i64 584
  %processor = call i64 @this_processor(ptr %pool)
  store atomic i64 %processor, ptr %job.processor monotonic, align 8
  %done.at = getelementptr i8, ptr %pool, i64 384
  store atomic i64 0, ptr %done.at monotonic, align 8
  %result.at = getelementptr i8, ptr %pool, i64 392
  store atomic i32 0, ptr %result.at monotonic, align 4
  %tickets.at = getelementptr i8, ptr %pool, i64 256
  %range = shl i64 %total, 32
  atomicrmw xchg ptr %tickets.at, i64 %range seq_cst
  call void @wake_workers(ptr %pool, i64 %workers, i64 %total, i64 %now)
  %begun = call i64 {counter}()
  br label %own
own:
  %before = phi i64 [ %begun, %launch ], [ %after, %work ]
  %mine = phi i64 [ 0, %launch ], [ %mine1, %work ]
  %longest = phi i64 [ 0, %launch ], [ %longest1, %work ]
  %ticket = call i64 @take(ptr %pool, i1 true)
  %took = icmp sge i64 %ticket, 0
  br i1 %took, label %work, label %settle
work:
  call void @run_ticket(ptr %pool, i64 %ticket)
  %after = call i64 {counter}()
  %length = sub i64 %after, %before
  %longest1 = call i64 @llvm.smax.i64(i64 %longest, i64 %length)
  %mine1 = add i64 %mine, 1
  br label %own
settle:
  atomicrmw add ptr %done.at, i64 %mine seq_cst
  call void @await_all(ptr %pool, i64 %workers, i64 %total, i64 %longest)
  %result = load atomic i32, ptr %result.at acquire, align 4
  store atomic i64 0, ptr %busy.at release, align 8
  ret i32 %result
}}
"""


def pool_text(machine: str, cc: str) -> str:
    """The LLVM IR of the pool for a kind of machine; `cc` is the calling convention, if it is not the usual one."""
    counter, pause, pause_declaration = _MACHINES[machine]
    return _TEXT.format(counter=counter, pause=pause, pause_declaration=pause_declaration, cc=cc)
