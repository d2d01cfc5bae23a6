; The thread pool: `parallel_for`, `serial_for`, `worker_loop`, `ticks`.
;
; This is a template: codegen/native_code.py replaces `field`, `addressof` and the names after a dollar sign (see
; codegen/fields.py), joins it with read_args.ll and vectorcall.ll into one module, and compiles it. Records are those of
; runtime/records.py.
;
; Work distribution. The launcher writes the job, then publishes *tickets*: one 64-bit word that holds the range lo..hi of chunks
; that nobody took yet. The launcher takes tickets from the front and workers from the back, each by compare-and-swap, so that each
; thread gets the same part of the data in consecutive kernels. Whoever takes a ticket owes one increment of `done`. The launcher
; returns when every ticket is done, so it waits only for tickets that were really taken. A worker reads the job only after it took
; a ticket, which keeps the launch alive: a worker that wakes late finds no ticket, or one of the present launch, and never touches
; the memory of a finished launch. The first nonzero return code empties the range.
;
; Idle workers. A worker without work spins for a while, then sleeps in its own semaphore.
;
; Stolen cores. A launcher that waits long asks the system how long the workers that it waits for really ran. Time lost because a
; worker had no core is charged to that worker's allowance, which grows by a quarter of the elapsed time up to about two time slices
; of the system's scheduler. A worker that has used up its allowance is shed (neither woken nor given tickets) for 8 times the time
; lost, longer when it happens again soon. So a core that other processes borrow now and then stays in use, and one that they occupy
; is given up. A worker that just has a long chunk is not charged. A worker that finds itself on the launcher's processor, because
; others occupy the rest, yields once, and is shed as well.

declare i64 $counter()
declare void $pause_declaration
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

; Reads the steady counter in which all times here are measured.
define $cc i64 @ticks() {
  %t = call i64 $counter()
  ret i64 %t
}

; Writes the code into the error record unless an earlier failure did: the first one wins.
define internal void @set_error(ptr %ctx, i64 %code) {
  %error = addressof %ctx, Ctx.error
  cmpxchg ptr %error, i64 0, i64 %code seq_cst seq_cst
  ret void
}

; Runs chunks begin..end one after the other, and reads the cancel flag before each.
define internal i32 @run_chunks(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain, i64 %begin, i64 %end) {
entry:
  %cancel = field ptr %ctx, Ctx.cancel
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
  %r = call $cc i32 %body(ptr %ctx, ptr %env, i64 %b, i64 %e)
  %c1 = add i64 %c, 1
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %fail, label %ran
ran:
  br label %next
stop:
  call void @set_error(ptr %ctx, i64 $Code.CANCELLED)
  ret i32 $Code.CANCELLED
fail:
  ret i32 %r
ok:
  ret i32 0
}

; Returns the number of chunks of a loop, or -1 if the grain is below 1 (a bad call).
define internal i64 @count_chunks(ptr %ctx, i64 %extent, i64 %grain) {
  %empty = icmp slt i64 %extent, 1
  br i1 %empty, label %none, label %some
none:
  ret i64 0
some:
  %bad = icmp slt i64 %grain, 1
  br i1 %bad, label %broken, label %count
broken:
  call void @set_error(ptr %ctx, i64 $Code.BAD_CALL)
  ret i64 -1
count:
  %last = sub i64 %extent, 1
  %q = udiv i64 %last, %grain
  %n = add i64 %q, 1
  ret i64 %n
}

; Runs all chunks on the calling thread; has the signature of `parallel_for`.
define $cc i32 @serial_for(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain) {
  %n = call i64 @count_chunks(ptr %ctx, i64 %extent, i64 %grain)
  %bad = icmp slt i64 %n, 0
  br i1 %bad, label %broken, label %run
broken:
  ret i32 $Code.BAD_CALL
run:
  %r = call i32 @run_chunks(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain, i64 0, i64 %n)
  ret i32 %r
}

; Takes one ticket of the present launch, or returns -1. A taken ticket keeps the launch, and so its job, alive until `finish`.
; The word is hi * 2^32 + lo: adding 1 takes from the front, subtracting 2^32 takes from the back.
define internal i64 @take(ptr %pool, i1 %front) {
entry:
  %at = addressof %pool, Pool.tickets
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
  %seen = extractvalue { i64, i1 } %pair, 0
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %took, label %try
took:
  %last = sub i64 %hi, 1
  %ticket = select i1 %front, i64 %lo, i64 %last
  ret i64 %ticket
none:
  ret i64 -1
}

; Runs the chunks of a ticket. On failure it empties the range, and counts the tickets that nobody will take as done.
define internal void @run_ticket(ptr %pool, i64 %ticket) {
  %ctx = field ptr %pool, Pool.job.ctx
  %body = field ptr %pool, Pool.job.body
  %env = field ptr %pool, Pool.job.env
  %extent = field i64 %pool, Pool.job.extent
  %grain = field i64 %pool, Pool.job.grain
  %chunks = field i64 %pool, Pool.job.chunks
  %batch = field i64 %pool, Pool.job.batch
  %begin = mul i64 %ticket, %batch
  %upto = add i64 %begin, %batch
  %end = call i64 @llvm.smin.i64(i64 %upto, i64 %chunks)
  %r = call i32 @run_chunks(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain, i64 %begin, i64 %end)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %out, label %fail
fail:
  %result.at = addressof %pool, Pool.result
  cmpxchg ptr %result.at, i32 0, i32 %r seq_cst seq_cst
  %tickets.at = addressof %pool, Pool.tickets
  %w = atomicrmw xchg ptr %tickets.at, i64 0 seq_cst
  %lo = and i64 %w, 4294967295
  %hi = lshr i64 %w, 32
  %left = sub i64 %hi, %lo
  %some = call i64 @llvm.smax.i64(i64 %left, i64 0)
  %done.at = addressof %pool, Pool.done
  atomicrmw add ptr %done.at, i64 %some seq_cst
  br label %out
out:
  ret void
}

; Counts a worker's ticket as done, and wakes the launcher if it was the last one.
; The total is read first: after the last increment the launcher may return and start the next launch.
define internal void @finish(ptr %pool) {
  %total = field i64 %pool, Pool.job.total
  %done.at = addressof %pool, Pool.done
  %old = atomicrmw add ptr %done.at, i64 1 seq_cst
  %new = add i64 %old, 1
  %last = icmp eq i64 %new, %total
  br i1 %last, label %wake, label %out
wake:
  %asleep.at = addressof %pool, Pool.asleep
  %asleep = atomicrmw xchg ptr %asleep.at, i64 0 seq_cst
  %needed = icmp ne i64 %asleep, 0
  br i1 %needed, label %post, label %out
post:
  %post.fn = field ptr %pool, Pool.post
  %sem = field ptr %pool, Pool.semaphore
  call $cc i64 %post.fn(ptr %sem, i64 1, i64 0)
  br label %out
out:
  ret void
}

; True if this worker may serve the present launch: its index is below the launch's limit, and it is not shed.
define internal i1 @may_serve(ptr %pool, ptr %me, i64 %index) {
  %limit.at = addressof %pool, Pool.job.limit
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %within = icmp slt i64 %index, %limit
  %until.at = addressof %me, Worker.shed_until
  %until = load atomic i64, ptr %until.at monotonic, align 8
  %now = call i64 $counter()
  %free = icmp sge i64 %now, %until
  %both = and i1 %within, %free
  ret i1 %both
}

; True if there is a ticket to take.
define internal i1 @any_ticket(ptr %pool) {
  %at = addressof %pool, Pool.tickets
  %w = load atomic i64, ptr %at seq_cst, align 8
  %lo = and i64 %w, 4294967295
  %hi = lshr i64 %w, 32
  %any = icmp ult i64 %lo, %hi
  ret i1 %any
}

; Returns the number of the processor that this thread runs on, or -1 if the system cannot tell.
define internal i64 @this_processor(ptr %pool) {
  %ask = field ptr %pool, Pool.processor
  %none = icmp eq ptr %ask, null
  br i1 %none, label %unknown, label %call
unknown:
  ret i64 -1
call:
  %number = call $cc i32 %ask()
  %wide = sext i32 %number to i64
  ret i64 %wide
}

; The main loop of a worker thread; it never returns.
define $cc void @worker_loop(ptr %pool, i64 %index) {
entry:
  %stride = mul i64 %index, $sizeof(Worker)
  %offset = add i64 %stride, $offsetof(Pool.worker)
  %me = getelementptr i8, ptr %pool, i64 %offset
  %asleep.at = addressof %me, Worker.asleep
  %running.at = addressof %me, Worker.running
  %wait.fn = field ptr %pool, Pool.wait
  %sem = field ptr %me, Worker.semaphore
  %spin = field i64 %pool, Pool.spin
  br label %idle
idle:
  %start = call i64 $counter()
  br label %poll
poll:
  %any = call i1 @any_ticket(ptr %pool)
  br i1 %any, label %allowed, label %pause
allowed:
  %may = call i1 @may_serve(ptr %pool, ptr %me, i64 %index)
  br i1 %may, label %place, label %pause
place:
  ; A worker on the launcher's processor can only delay the launcher: yield to it. If no ticket is left after that, shed this worker.
  %here = call i64 @this_processor(ptr %pool)
  %launched.at = addressof %pool, Pool.job.processor
  %there = load atomic i64, ptr %launched.at monotonic, align 8
  %known = icmp sge i64 %here, 0
  %same = icmp eq i64 %here, %there
  %crowded = and i1 %known, %same
  br i1 %crowded, label %leave, label %try
leave:
  %yield.fn = field ptr %pool, Pool.step_aside
  call $cc i64 %yield.fn()
  %still = call i1 @any_ticket(ptr %pool)
  br i1 %still, label %try, label %crowd
crowd:
  %stall = field i64 %pool, Pool.stall
  %left = call i64 $counter()
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
  call void $pause
  %now = call i64 $counter()
  %spent = sub i64 %now, %start
  %patient = icmp slt i64 %spent, %spin
  br i1 %patient, label %poll, label %doze
doze:
  ; Set the flag first, then look for tickets again. A launcher publishes tickets first and then reads this flag, so one of the two sees
  ; the other, and no wakeup is lost.
  atomicrmw xchg ptr %asleep.at, i64 1 seq_cst
  %any2 = call i1 @any_ticket(ptr %pool)
  %may2 = call i1 @may_serve(ptr %pool, ptr %me, i64 %index)
  %missed = and i1 %any2, %may2
  br i1 %missed, label %awake, label %sleep
sleep:
  call $cc i64 %wait.fn(ptr %sem, i64 -1, i64 0)
  br label %awake
awake:
  store atomic i64 0, ptr %asleep.at seq_cst, align 8
  br label %idle
}

; Wakes sleeping workers for a launch of %total tickets, at most one per ticket beyond the launcher's own; skips those shed at time %now.
define internal void @wake_workers(ptr %pool, i64 %workers, i64 %total, i64 %now) {
entry:
  %others = sub i64 %total, 1
  %post.fn = field ptr %pool, Pool.post
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %wanted = phi i64 [ %others, %entry ], [ %wanted2, %step ]
  %me = phi i64 [ $offsetof(Pool.worker), %entry ], [ %me1, %step ]
  %more = icmp slt i64 %i, %workers
  %want = icmp sgt i64 %wanted, 0
  %go = and i1 %more, %want
  br i1 %go, label %look, label %out
look:
  %w = getelementptr i8, ptr %pool, i64 %me
  %until = field i64 %w, Worker.shed_until
  %free = icmp sge i64 %now, %until
  br i1 %free, label %check, label %step
check:
  %wanted1 = sub i64 %wanted, 1
  %asleep.at = addressof %w, Worker.asleep
  %seen = load atomic i64, ptr %asleep.at seq_cst, align 8
  %sleeping = icmp ne i64 %seen, 0
  br i1 %sleeping, label %claim, label %step
claim:
  %was = atomicrmw xchg ptr %asleep.at, i64 0 seq_cst
  %mine = icmp ne i64 %was, 0
  br i1 %mine, label %post, label %step
post:
  %sem = field ptr %w, Worker.semaphore
  call $cc i64 %post.fn(ptr %sem, i64 1, i64 0)
  br label %step
step:
  %wanted2 = phi i64 [ %wanted, %look ], [ %wanted1, %check ], [ %wanted1, %claim ], [ %wanted1, %post ]
  %i1 = add i64 %i, 1
  %me1 = add i64 %me, $sizeof(Worker)
  br label %next
out:
  ret void
}

; Returns the CPU time of a worker in nanoseconds, or -1 if the system cannot tell.
define internal i64 @cpu_time(ptr %pool, ptr %worker) {
  %time = alloca [2 x i64]
  %clock = field ptr %pool, Pool.clock
  %none = icmp eq ptr %clock, null
  br i1 %none, label %unknown, label %read
unknown:
  ret i64 -1
read:
  %id = field i64 %worker, Worker.clock_id
  store [2 x i64] zeroinitializer, ptr %time
  call $cc i64 %clock(i64 %id, ptr %time, i64 0)
  %seconds = field i64 %time, Timespec.seconds
  %rest = field i64 %time, Timespec.nanoseconds
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; Records which workers the launcher waits for, and their CPU times.
define internal void @mark_waited(ptr %pool, i64 %workers) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %look, label %out
look:
  %stride = mul i64 %i, $sizeof(Worker)
  %offset = add i64 %stride, $offsetof(Pool.worker)
  %w = getelementptr i8, ptr %pool, i64 %offset
  %running.at = addressof %w, Worker.running
  %running = load atomic i64, ptr %running.at monotonic, align 8
  %marked.at = addressof %w, Worker.waited_for
  store i64 %running, ptr %marked.at
  %i1 = add i64 %i, 1
  %is.running = icmp ne i64 %running, 0
  br i1 %is.running, label %read, label %step
read:
  %ran = call i64 @cpu_time(ptr %pool, ptr %w)
  %ran.at = addressof %w, Worker.ran
  store i64 %ran, ptr %ran.at
  br label %step
step:
  br label %next
out:
  ret void
}

; True if a worker that `mark_waited` recorded %waited ticks ago lost its core: it ran less than 3/4 of that time. If the system cannot tell
; CPU times, true if the wait %lost was over 4 times as long as recent tickets.
define internal i1 @lost_core(ptr %pool, ptr %worker, i64 %lost, i64 %waited) {
  %before = field i64 %worker, Worker.ran
  %unknown = icmp slt i64 %before, 0
  br i1 %unknown, label %guess, label %know
know:
  %after = call i64 @cpu_time(ptr %pool, ptr %worker)
  %ran = sub i64 %after, %before
  %rate = field i64 %pool, Pool.rate
  %scaled = mul i64 %ran, %rate
  %ticks = ashr i64 %scaled, 10
  %ticks4 = shl i64 %ticks, 2
  %waited3 = mul i64 %waited, 3
  %idle = icmp slt i64 %ticks4, %waited3
  ret i1 %idle
guess:
  %recent = field i64 %pool, Pool.recent
  %normal = shl i64 %recent, 2
  %long = icmp sgt i64 %lost, %normal
  ret i1 %long
}

; Sheds a worker for %wish ticks, or for twice its last period if that ended less than 4 periods ago (exponential backoff, up to
; `Pool.shed`).
define internal void @shed_for(ptr %pool, ptr %w, i64 %wish, i64 %now) {
  %max = field i64 %pool, Pool.shed
  %until.at = addressof %w, Worker.shed_until
  %until = load atomic i64, ptr %until.at monotonic, align 8
  %period.at = addressof %w, Worker.shed_period
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
}

; Charges the time %lost to each recorded worker that lost its core, and sheds those whose allowance is used up for 8 times that time.
define internal void @shed_waited(ptr %pool, i64 %workers, i64 %lost, i64 %waited, i64 %now) {
entry:
  %wish = shl i64 %lost, 3
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %look, label %out
look:
  %stride = mul i64 %i, $sizeof(Worker)
  %offset = add i64 %stride, $offsetof(Pool.worker)
  %w = getelementptr i8, ptr %pool, i64 %offset
  %i1 = add i64 %i, 1
  %marked = field i64 %w, Worker.waited_for
  %is.marked = icmp ne i64 %marked, 0
  br i1 %is.marked, label %judge, label %step
judge:
  %lost.core = call i1 @lost_core(ptr %pool, ptr %w, i64 %lost, i64 %waited)
  br i1 %lost.core, label %charge, label %step
charge:
  %until = field i64 %w, Worker.shed_until
  %allowance.at = addressof %w, Worker.allowance
  %allowance = load i64, ptr %allowance.at
  %charged.at = addressof %w, Worker.charged
  %charged = load i64, ptr %charged.at
  %served = call i64 @llvm.smax.i64(i64 %charged, i64 %until)
  %passed = sub i64 %now, %served
  %earned = ashr i64 %passed, 2
  %grown = add i64 %allowance, %earned
  %cap = field i64 %pool, Pool.allowance
  %capped = call i64 @llvm.smin.i64(i64 %grown, i64 %cap)
  %left = sub i64 %capped, %lost
  %new.allowance = call i64 @llvm.smax.i64(i64 %left, i64 0)
  store i64 %new.allowance, ptr %allowance.at
  store i64 %now, ptr %charged.at
  %used.up = icmp slt i64 %left, 0
  br i1 %used.up, label %shed, label %step
shed:
  call void @shed_for(ptr %pool, ptr %w, i64 %wish, i64 %now)
  br label %step
step:
  br label %next
out:
  ret void
}

; Waits until all tickets are done: spins, then sleeps. %longest is the longest ticket that the launcher itself ran; `Pool.recent` follows
; it upward at once and decays by 1/8 per launch.
define internal void @await_all(ptr %pool, i64 %workers, i64 %total, i64 %longest) {
entry:
  %done.at = addressof %pool, Pool.done
  %asleep.at = addressof %pool, Pool.asleep
  %recent.at = addressof %pool, Pool.recent
  %old = load i64, ptr %recent.at
  %eighth = ashr i64 %old, 3
  %faded = sub i64 %old, %eighth
  %recent = call i64 @llvm.smax.i64(i64 %faded, i64 %longest)
  store i64 %recent, ptr %recent.at
  %first = load atomic i64, ptr %done.at acquire, align 8
  %at.once = icmp eq i64 %first, %total
  br i1 %at.once, label %out, label %begin
begin:
  %patience = field i64 %pool, Pool.patience
  %start = call i64 $counter()
  br label %poll
poll:
  %done = load atomic i64, ptr %done.at seq_cst, align 8
  %all = icmp eq i64 %done, %total
  br i1 %all, label %out, label %pause
pause:
  call void $pause
  %now = call i64 $counter()
  %spent = sub i64 %now, %start
  %patient = icmp slt i64 %spent, %patience
  br i1 %patient, label %poll, label %late
late:
  ; Sleep: the late worker may need the very core that the launcher spins on.
  call void @mark_waited(ptr %pool, i64 %workers)
  %marked = call i64 $counter()
  %wait.fn = field ptr %pool, Pool.wait
  %sem = field ptr %pool, Pool.semaphore
  br label %doze
doze:
  atomicrmw xchg ptr %asleep.at, i64 1 seq_cst
  %done2 = load atomic i64, ptr %done.at seq_cst, align 8
  %all2 = icmp eq i64 %done2, %total
  br i1 %all2, label %judge, label %sleep
sleep:
  call $cc i64 %wait.fn(ptr %sem, i64 -1, i64 0)
  br label %doze
judge:
  store atomic i64 0, ptr %asleep.at seq_cst, align 8
  %end = call i64 $counter()
  %lost = sub i64 %end, %start
  %floor = field i64 %pool, Pool.stall
  %waited = sub i64 %end, %marked
  %stall = icmp sgt i64 %lost, %floor
  br i1 %stall, label %shed, label %out
shed:
  call void @shed_waited(ptr %pool, i64 %workers, i64 %lost, i64 %waited, i64 %end)
  br label %out
out:
  ret void
}

; Runs body(ctx, env, begin, end) for all chunks of 0..extent, on the calling thread and on the workers that `Ctx.pool` allows.
; Returns 0, or the first code other than 0 that a chunk returned.
define $cc i32 @parallel_for(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain) {
entry:
  %view = field ptr %ctx, Ctx.pool
  %pool = field ptr %view, View.pool
  %limit = field i64 %view, View.limit
  %chunks = call i64 @count_chunks(ptr %ctx, i64 %extent, i64 %grain)
  %workers.at = addressof %pool, Pool.workers
  %there = load atomic i64, ptr %workers.at acquire, align 8
  %workers = call i64 @llvm.smin.i64(i64 %there, i64 %limit)
  %several = icmp sgt i64 %chunks, 1
  %helped = icmp sgt i64 %workers, 0
  %worth = and i1 %several, %helped
  br i1 %worth, label %claim, label %inline
claim:
  ; A second caller or a nested call finds the pool busy, and runs its chunks serially.
  %busy.at = addressof %pool, Pool.busy
  %pair = cmpxchg ptr %busy.at, i64 0, i64 1 acq_rel monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %launch, label %inline
inline:
  %alone = call $cc i32 @serial_for(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain)
  ret i32 %alone
launch:
  %now = call i64 $counter()
  ; A ticket is a batch of chunks: a sixteenth of a thread's share, so that a thread on a slow or busy core leaves work to the others, and
  ; at most 4 chunks (20 microseconds at the default grain), because the launcher waits for the last ticket. All threads take tickets
  ; from one word of memory, so from 16 threads on tickets are larger: a quarter of a share, and up to a chunk for every 4 threads.
  %threads = add i64 %workers, 1
  %crowd = icmp ugt i64 %threads, 16
  %shift = select i1 %crowd, i64 2, i64 4
  %shares = shl i64 %threads, %shift
  %share = udiv i64 %chunks, %shares
  %quarter = lshr i64 %threads, 2
  %most = call i64 @llvm.smax.i64(i64 %quarter, i64 4)
  %even = call i64 @llvm.smin.i64(i64 %share, i64 %most)
  ; From 2^30 chunks on a batch is as large as it must be for lo and hi to fit into 32 bits each.
  %excess = lshr i64 %chunks, 30
  %least = add i64 %excess, 1
  %batch = call i64 @llvm.smax.i64(i64 %even, i64 %least)
  %chunks.less = sub i64 %chunks, 1
  %tickets.less = udiv i64 %chunks.less, %batch
  %total = add i64 %tickets.less, 1
  %job.ctx = addressof %pool, Pool.job.ctx
  store ptr %ctx, ptr %job.ctx
  %job.body = addressof %pool, Pool.job.body
  store ptr %body, ptr %job.body
  %job.env = addressof %pool, Pool.job.env
  store ptr %env, ptr %job.env
  %job.extent = addressof %pool, Pool.job.extent
  store i64 %extent, ptr %job.extent
  %job.grain = addressof %pool, Pool.job.grain
  store i64 %grain, ptr %job.grain
  %job.chunks = addressof %pool, Pool.job.chunks
  store i64 %chunks, ptr %job.chunks
  %job.batch = addressof %pool, Pool.job.batch
  store i64 %batch, ptr %job.batch
  %job.total = addressof %pool, Pool.job.total
  store i64 %total, ptr %job.total
  %job.limit = addressof %pool, Pool.job.limit
  store atomic i64 %workers, ptr %job.limit monotonic, align 8
  %job.processor = addressof %pool, Pool.job.processor
  %processor = call i64 @this_processor(ptr %pool)
  store atomic i64 %processor, ptr %job.processor monotonic, align 8
  %done.at = addressof %pool, Pool.done
  store atomic i64 0, ptr %done.at monotonic, align 8
  %result.at = addressof %pool, Pool.result
  store atomic i32 0, ptr %result.at monotonic, align 4
  %tickets.at = addressof %pool, Pool.tickets
  %range = shl i64 %total, 32
  atomicrmw xchg ptr %tickets.at, i64 %range seq_cst
  call void @wake_workers(ptr %pool, i64 %workers, i64 %total, i64 %now)
  %begun = call i64 $counter()
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
  %after = call i64 $counter()
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
}
