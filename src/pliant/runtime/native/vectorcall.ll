; The call of a compiled program as a builtin function of Python.
;
; This is a template: codegen/native_code.py replaces `field`, `addressof` and the names after a dollar sign (see
; codegen/fields.py), and joins it with thread_pool.ll and read_args.ll into one module. Records are those of runtime/records.py.
;
; `call` has the signature of METH_FASTCALL | METH_KEYWORDS; its `self` is the ctypes object of the program's CallDescriptor. It
; takes a free frame, gathers positional and keyword arguments, reads them (read_args.ll), allocates the outputs, runs the program
; without the GIL, and returns the output or a tuple of outputs. This is the fast path. Whatever it cannot serve goes, untouched, to
; the Python callable `slow_path`. If the program fails, the error record goes to the Python callable `failed`, which raises. So no
; error message is written here.
;
; `take_frame` and `give_frame` work on the list of free frames, which the slow path uses too: both need the GIL. `allocate` is
; `Ctx.alloc`: memory that lives until `release`. It may be called from any thread.

; Takes a free frame off the list, or returns null.
define $cc ptr @take_frame(ptr %list) {
  %frame = load ptr, ptr %list
  %none = icmp eq ptr %frame, null
  br i1 %none, label %out, label %unlink
unlink:
  %next = field ptr %frame, Frame.next
  store ptr %next, ptr %list
  br label %out
out:
  ret ptr %frame
}

; Puts a frame back on the list, with an empty error record.
define $cc void @give_frame(ptr %list, ptr %frame) {
  %error = addressof %frame, Frame.ctx.error
  store [$error_words x i64] zeroinitializer, ptr %error
  %next.to = addressof %frame, Frame.next
  %first = load ptr, ptr %list
  store ptr %first, ptr %next.to
  store ptr %frame, ptr %list
  ret void
}

; Allocates memory that is aligned to 64 bytes, or returns null. A block holds the address of the next block, padding, then the memory.
; The memory begins 64 to 127 bytes behind the block, hence 128 bytes more.
define $cc ptr @allocate(ptr %frame, i64 %size) {
entry:
  ; A size of 2^62 or more would overflow below.
  %sane = icmp ult i64 %size, 4611686018427387904
  br i1 %sane, label %ask, label %no
ask:
  %all = add i64 %size, 128
  %malloc = field ptr %frame, Frame.allocate
  %block = call $cc ptr %malloc(i64 %all)
  %refused = icmp eq ptr %block, null
  br i1 %refused, label %no, label %link
link:
  %memory = addressof %frame, Frame.memory
  %first = load atomic i64, ptr %memory monotonic, align 8
  %mine = ptrtoint ptr %block to i64
  br label %try
try:
  %next = phi i64 [ %first, %link ], [ %seen, %try ]
  store i64 %next, ptr %block
  %pair = cmpxchg ptr %memory, i64 %next, i64 %mine acq_rel monotonic
  %seen = extractvalue { i64, i1 } %pair, 0
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %linked, label %try
linked:
  %after = add i64 %mine, 127
  %aligned = and i64 %after, -64
  %address = inttoptr i64 %aligned to ptr
  ret ptr %address
no:
  ret ptr null
}

; Frees all blocks that the program allocated while it ran.
define $cc void @release(ptr %frame) {
entry:
  %first = field ptr %frame, Frame.memory
  br label %next
next:
  %block = phi ptr [ %first, %entry ], [ %after, %one ]
  %none = icmp eq ptr %block, null
  br i1 %none, label %out, label %one
one:
  %after = load ptr, ptr %block
  %free = field ptr %frame, Frame.free
  call $cc void %free(ptr %block)
  br label %next
out:
  store ptr null, ptr %first.at
  ret void
}

; Takes the argument `out`: None, the single output, or a tuple of all outputs. False if it is anything else.
define internal i1 @gather_out(ptr %descriptor, ptr %host, ptr %objects, ptr %out) {
entry:
  %none = field ptr %host, Host.none
  %is.none = icmp eq ptr %out, %none
  br i1 %is.none, label %yes, label %some
some:
  %outputs = field i64 %descriptor, CallDescriptor.outputs
  %single = icmp eq i64 %outputs, 1
  br i1 %single, label %one, label %many
one:
  store ptr %out, ptr %objects
  ret i1 true
many:
  %type = field i64 %out, Array.type
  %tuple.type = field i64 %host, Host.tuple_type
  %is.tuple = icmp eq i64 %type, %tuple.type
  br i1 %is.tuple, label %count, label %no
count:
  %tuple.size = field ptr %host, Host.tuple_size
  %size = call $cc i64 %tuple.size(ptr %out)
  %fits = icmp eq i64 %size, %outputs
  br i1 %fits, label %next, label %no
next:
  %o = phi i64 [ 0, %count ], [ %o1, %item ]
  %more = icmp slt i64 %o, %outputs
  br i1 %more, label %item, label %yes
item:
  %o1 = add i64 %o, 1
  %get.item = field ptr %host, Host.get_item
  %value = call $cc ptr %get.item(ptr %out, i64 %o)
  %absent = icmp eq ptr %value, %none
  %output = select i1 %absent, ptr null, ptr %value
  %to = getelementptr ptr, ptr %objects, i64 %o
  store ptr %output, ptr %to
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Returns the position of a keyword argument, or -1. Names are compared as objects: Python interns the names in source text.
define internal i64 @find_name(ptr %descriptor, ptr %name, i64 %from) {
entry:
  %inputs = field i64 %descriptor, CallDescriptor.inputs
  %names = field ptr %descriptor, CallDescriptor.names
  br label %next
next:
  %p = phi i64 [ %from, %entry ], [ %p1, %look ]
  %more = icmp slt i64 %p, %inputs
  br i1 %more, label %look, label %no
look:
  %p1 = add i64 %p, 1
  %this.at = getelementptr ptr, ptr %names, i64 %p
  %this = load ptr, ptr %this.at
  %same = icmp eq ptr %this, %name
  br i1 %same, label %yes, label %next
yes:
  ret i64 %p
no:
  ret i64 -1
}

; Takes the keyword arguments; false if one is unknown.
define internal i1 @gather_named(ptr %descriptor, ptr %host, ptr %objects, ptr %args, i64 %nargs, ptr %names) {
entry:
  %inputs = field i64 %descriptor, CallDescriptor.inputs
  %tuple.size = field ptr %host, Host.tuple_size
  %size = call $cc i64 %tuple.size(ptr %names)
  %out.name = field ptr %host, Host.out
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %step ]
  %more = icmp slt i64 %k, %size
  br i1 %more, label %look, label %yes
look:
  %k1 = add i64 %k, 1
  %get.item = field ptr %host, Host.get_item
  %name = call $cc ptr %get.item(ptr %names, i64 %k)
  %at = add i64 %nargs, %k
  %value.at = getelementptr ptr, ptr %args, i64 %at
  %value = load ptr, ptr %value.at
  %is.out = icmp eq ptr %name, %out.name
  br i1 %is.out, label %out, label %argument
out:
  %to.outputs = getelementptr ptr, ptr %objects, i64 %inputs
  %taken = call i1 @gather_out(ptr %descriptor, ptr %host, ptr %to.outputs, ptr %value)
  br i1 %taken, label %step, label %no
argument:
  %p = call i64 @find_name(ptr %descriptor, ptr %name, i64 %nargs)
  %known = icmp sge i64 %p, 0
  br i1 %known, label %put, label %no
put:
  %to = getelementptr ptr, ptr %objects, i64 %p
  store ptr %value, ptr %to
  br label %step
step:
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Writes arguments and given outputs in the order of the plans, null for outputs that are not given. False if an argument is missing.
define internal i1 @gather(ptr %descriptor, ptr %host, ptr %frame, ptr %args, i64 %nargs, ptr %names) {
entry:
  %objects = field ptr %frame, Frame.objects
  %inputs = field i64 %descriptor, CallDescriptor.inputs
  %outputs = field i64 %descriptor, CallDescriptor.outputs
  %count = add i64 %inputs, %outputs
  %too.many = icmp sgt i64 %nargs, %inputs
  br i1 %too.many, label %no, label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %by.name
look:
  %i1 = add i64 %i, 1
  %here = icmp slt i64 %i, %nargs
  br i1 %here, label %load, label %put
load:
  %value.at = getelementptr ptr, ptr %args, i64 %i
  %value = load ptr, ptr %value.at
  br label %put
put:
  %object = phi ptr [ null, %look ], [ %value, %load ]
  %to = getelementptr ptr, ptr %objects, i64 %i
  store ptr %object, ptr %to
  br label %next
by.name:
  %no.names = icmp eq ptr %names, null
  br i1 %no.names, label %all, label %named
named:
  %taken = call i1 @gather_named(ptr %descriptor, ptr %host, ptr %objects, ptr %args, i64 %nargs, ptr %names)
  br i1 %taken, label %all, label %no
all:
  %j = phi i64 [ %nargs, %by.name ], [ %nargs, %named ], [ %j1, %check ]
  %more.j = icmp slt i64 %j, %inputs
  br i1 %more.j, label %check, label %yes
check:
  %j1 = add i64 %j, 1
  %check.at = getelementptr ptr, ptr %objects, i64 %j
  %argument = load ptr, ptr %check.at
  %missing = icmp eq ptr %argument, null
  br i1 %missing, label %no, label %all
yes:
  ret i1 true
no:
  ret i1 false
}

; True if the frame's context is set up for the caller's thread and its number of threads. Selects the cancel flag.
define internal i1 @is_ready(ptr %descriptor, ptr %host, ptr %frame) {
entry:
  %within = alloca ptr
  %watch = field ptr %host, Host.watch
  %main = field i64 %watch, Watch.main
  %thread.id = field ptr %host, Host.thread_id
  %me = call $cc i64 %thread.id()
  %is.main = icmp eq i64 %me, %main
  %cancel.to = addressof %frame, Frame.ctx.cancel
  br i1 %is.main, label %main.thread, label %other.thread
main.thread:
  %tried = field i64 %watch, Watch.tried
  %watched = icmp ne i64 %tried, 0
  %flag = addressof %watch, Watch.flag
  store i64 0, ptr %flag
  store ptr %flag, ptr %cancel.to
  br i1 %watched, label %launch, label %no
other.thread:
  %own = addressof %frame, Frame.flag
  store i64 0, ptr %own
  store ptr %own, ptr %cancel.to
  br label %launch
launch:
  %how = field i64 %descriptor, CallDescriptor.launch
  %alone = icmp eq i64 %how, $Launch.NONE
  br i1 %alone, label %yes, label %epoch
epoch:
  %now.at = field ptr %host, Host.epoch
  %now = load i64, ptr %now.at
  %then = field i64 %frame, Frame.epoch
  %fresh = icmp eq i64 %now, %then
  br i1 %fresh, label %choice, label %no
choice:
  %fixed = icmp eq i64 %how, $Launch.FIXED
  br i1 %fixed, label %yes, label %context
context:
  %context.value = field ptr %host, Host.context_value
  %variable = field ptr %host, Host.within
  %bad = call $cc i32 %context.value(ptr %variable, ptr null, ptr %within)
  %failed = icmp ne i32 %bad, 0
  br i1 %failed, label %clear, label %compare
clear:
  %clear.error = field ptr %host, Host.clear_error
  call $cc void %clear.error()
  ret i1 false
compare:
  %value = load ptr, ptr %within
  %decrement = field ptr %host, Host.decrement
  call $cc void %decrement(ptr %value)
  %expected = field ptr %frame, Frame.within
  %same = icmp eq ptr %value, %expected
  ret i1 %same
yes:
  ret i1 true
no:
  ret i1 false
}

; Releases the references to objects from..to, which the frame owns.
define internal void @drop(ptr %host, ptr %objects, i64 %from, i64 %to) {
entry:
  %decrement = field ptr %host, Host.decrement
  br label %next
next:
  %o = phi i64 [ %from, %entry ], [ %o1, %one ]
  %more = icmp slt i64 %o, %to
  br i1 %more, label %one, label %out
one:
  %o1 = add i64 %o, 1
  %at = getelementptr ptr, ptr %objects, i64 %o
  %object = load ptr, ptr %at
  call $cc void %decrement(ptr %object)
  br label %next
out:
  ret void
}

; Returns a new array whose elements begin at a page boundary: a view into a longer array, its base. Null, with a Python error, if
; out of memory.
define internal ptr @new_aligned(ptr %host, ptr %type, ptr %dtype, i32 %rank, ptr %shape, i64 %bytes) {
entry:
  %room = alloca i64
  %longer = add i64 %bytes, $page
  store i64 %longer, ptr %room
  %increment = field ptr %host, Host.increment
  %decrement = field ptr %host, Host.decrement
  %new.array = field ptr %host, Host.new_array
  %byte = field ptr %host, Host.byte
  call $cc void %increment(ptr %byte)
  %whole = call $cc ptr %new.array(ptr %type, ptr %byte, i32 1, ptr %room, ptr null, ptr null, i32 0, ptr null)
  %refused = icmp eq ptr %whole, null
  br i1 %refused, label %no, label %part
part:
  %begin = field i64 %whole, Array.address
  %past = add i64 %begin, $page
  %after = sub i64 %past, 1
  %aligned = and i64 %after, -$page
  %address = inttoptr i64 %aligned to ptr
  call $cc void %increment(ptr %dtype)
  %view = call $cc ptr %new.array(ptr %type, ptr %dtype, i32 %rank, ptr %shape, ptr null, ptr %address, i32 $ArrayFlag.PLAIN, ptr null)
  %failed = icmp eq ptr %view, null
  br i1 %failed, label %drop, label %keep
keep:
  %set.base = field ptr %host, Host.set_base
  %bad = call $cc i32 %set.base(ptr %view, ptr %whole)
  %owned = icmp eq i32 %bad, 0
  br i1 %owned, label %yes, label %undo
yes:
  ret ptr %view
undo:
  call $cc void %decrement(ptr %view)
  ret ptr null
drop:
  call $cc void %decrement(ptr %whole)
  ret ptr null
no:
  ret ptr null
}

; Allocates an array for an output and writes its address into the frame. Null, without a Python error, if out of memory. A large
; array begins at a page boundary. numpy's begin 16 bytes behind one, so that every 64-byte vector would straddle two cache lines.
define internal ptr @new_output(ptr %host, ptr %frame, ptr %plan) {
entry:
  %dtype = field ptr %plan, Plan.dtype
  %rank = field i64 %plan, Plan.rank
  %rank32 = trunc i64 %rank to i32
  %dims = field ptr %frame, Frame.dims
  %at = field i64 %plan, Plan.dims
  %shape = getelementptr i64, ptr %dims, i64 %at
  %type = field ptr %host, Host.array_type
  %itemsize = field i64 %plan, Plan.itemsize
  %bytes = call i64 @bytes_of(ptr %shape, i64 %rank, i64 %itemsize)
  %large = icmp sge i64 %bytes, $large
  br i1 %large, label %aligned, label %plain
aligned:
  %part = call ptr @new_aligned(ptr %host, ptr %type, ptr %dtype, i32 %rank32, ptr %shape, i64 %bytes)
  br label %look
plain:
  %increment = field ptr %host, Host.increment
  call $cc void %increment(ptr %dtype)
  %new.array = field ptr %host, Host.new_array
  %whole = call $cc ptr %new.array(ptr %type, ptr %dtype, i32 %rank32, ptr %shape, ptr null, ptr null, i32 0, ptr null)
  br label %look
look:
  %array = phi ptr [ %part, %aligned ], [ %whole, %plain ]
  %refused = icmp eq ptr %array, null
  br i1 %refused, label %no, label %yes
yes:
  %buffers = field ptr %frame, Frame.buffers
  %number = field i64 %plan, Plan.buffer
  %buffer = getelementptr i64, ptr %buffers, i64 %number
  %address = field i64 %array, Array.address
  store i64 %address, ptr %buffer
  ret ptr %array
no:
  %clear.error = field ptr %host, Host.clear_error
  call $cc void %clear.error()
  ret ptr null
}

; Allocates the outputs that are not given. Afterwards the frame owns a reference to each output; if one fails, to none.
define internal i1 @make_outputs(ptr %descriptor, ptr %host, ptr %frame) {
entry:
  %objects = field ptr %frame, Frame.objects
  %plans = field ptr %descriptor, CallDescriptor.plans
  %inputs = field i64 %descriptor, CallDescriptor.inputs
  %outputs = field i64 %descriptor, CallDescriptor.outputs
  %count = add i64 %inputs, %outputs
  %increment = field ptr %host, Host.increment
  br label %next
next:
  %o = phi i64 [ %inputs, %entry ], [ %o1, %put ]
  %more = icmp slt i64 %o, %count
  br i1 %more, label %look, label %yes
look:
  %o1 = add i64 %o, 1
  %at = getelementptr ptr, ptr %objects, i64 %o
  %out = load ptr, ptr %at
  %plan = getelementptr [$sizeof(Plan) x i8], ptr %plans, i64 %o
  %alias = field i64 %plan, Plan.alias
  %is.state = icmp sge i64 %alias, 0
  br i1 %is.state, label %state, label %maybe.given
state:
  %source = getelementptr ptr, ptr %objects, i64 %alias
  %updated = load ptr, ptr %source
  br label %share
maybe.given:
  %absent = icmp eq ptr %out, null
  br i1 %absent, label %fresh, label %share
share:
  %shared = phi ptr [ %updated, %state ], [ %out, %maybe.given ]
  call $cc void %increment(ptr %shared)
  br label %put
fresh:
  %new = call ptr @new_output(ptr %host, ptr %frame, ptr %plan)
  %refused = icmp eq ptr %new, null
  br i1 %refused, label %no, label %put
put:
  %object = phi ptr [ %shared, %share ], [ %new, %fresh ]
  store ptr %object, ptr %at
  br label %next
yes:
  ret i1 true
no:
  call void @drop(ptr %host, ptr %objects, i64 %inputs, i64 %o)
  ret i1 false
}

; Returns the single output, or a tuple of all; the references move from the frame to the caller.
define internal ptr @answer(ptr %descriptor, ptr %host, ptr %frame) {
entry:
  %all = field ptr %frame, Frame.objects
  %inputs = field i64 %descriptor, CallDescriptor.inputs
  %objects = getelementptr ptr, ptr %all, i64 %inputs
  %outputs = field i64 %descriptor, CallDescriptor.outputs
  %single = icmp eq i64 %outputs, 1
  br i1 %single, label %one, label %many
one:
  %only = load ptr, ptr %objects
  ret ptr %only
many:
  %new.tuple = field ptr %host, Host.new_tuple
  %tuple = call $cc ptr %new.tuple(i64 %outputs)
  %refused = icmp eq ptr %tuple, null
  br i1 %refused, label %no, label %next
next:
  %o = phi i64 [ 0, %many ], [ %o1, %item ]
  %more = icmp slt i64 %o, %outputs
  br i1 %more, label %item, label %done
item:
  %o1 = add i64 %o, 1
  %at = getelementptr ptr, ptr %objects, i64 %o
  %object = load ptr, ptr %at
  %set.item = field ptr %host, Host.set_item
  %set = call $cc i32 %set.item(ptr %tuple, i64 %o, ptr %object)
  br label %next
no:
  call void @drop(ptr %host, ptr %objects, i64 0, i64 %outputs)
  ret ptr null
done:
  ret ptr %tuple
}

; Releases the outputs and the frame, and calls `failed` with a copy of the error record; it raises.
define internal ptr @fail(ptr %descriptor, ptr %host, ptr %frame) {
entry:
  %argument = alloca ptr
  %frames = field ptr %descriptor, CallDescriptor.frames
  %objects = field ptr %frame, Frame.objects
  %inputs = field i64 %descriptor, CallDescriptor.inputs
  %outputs = field i64 %descriptor, CallDescriptor.outputs
  %count = add i64 %inputs, %outputs
  call void @drop(ptr %host, ptr %objects, i64 %inputs, i64 %count)
  %error = addressof %frame, Frame.ctx.error
  %new.bytes = field ptr %host, Host.new_bytes
  %record = call $cc ptr %new.bytes(ptr %error, i64 $sizeof(Ctx.error))
  call $cc void @give_frame(ptr %frames, ptr %frame)
  store ptr %record, ptr %argument
  %refused = icmp eq ptr %record, null
  br i1 %refused, label %no, label %raise
raise:
  %failed = field ptr %descriptor, CallDescriptor.failed
  %vectorcall = field ptr %host, Host.vectorcall
  %raised = call $cc ptr %vectorcall(ptr %failed, ptr %argument, i64 1, ptr null)
  %decrement = field ptr %host, Host.decrement
  call $cc void %decrement(ptr %record)
  ret ptr %raised
no:
  ret ptr null
}

; The builtin function itself.
define $cc ptr @call(ptr %self, ptr %args, i64 %nargs, ptr %names) {
entry:
  %descriptor = field ptr %self, Array.address
  %host = field ptr %descriptor, CallDescriptor.host
  %frames = field ptr %descriptor, CallDescriptor.frames
  %frame = call $cc ptr @take_frame(ptr %frames)
  %busy = icmp eq ptr %frame, null
  br i1 %busy, label %slow.path, label %gather
gather:
  %gathered = call i1 @gather(ptr %descriptor, ptr %host, ptr %frame, ptr %args, i64 %nargs, ptr %names)
  br i1 %gathered, label %ready, label %refuse
ready:
  %is.ready = call i1 @is_ready(ptr %descriptor, ptr %host, ptr %frame)
  br i1 %is.ready, label %read.args, label %refuse
read.args:
  %read = call i1 @read_args(ptr %descriptor, ptr %host, ptr %frame)
  br i1 %read, label %make, label %refuse
make:
  %allocated = call i1 @make_outputs(ptr %descriptor, ptr %host, ptr %frame)
  br i1 %allocated, label %run, label %refuse
run:
  %run.fn = field ptr %descriptor, CallDescriptor.run
  %buffers = field ptr %frame, Frame.buffers
  %dims = field ptr %frame, Frame.dims
  %save.thread = field ptr %host, Host.save_thread
  %thread = call $cc ptr %save.thread()
  %code = call $cc i32 %run.fn(ptr %frame, ptr %buffers, ptr %dims)
  %restore.thread = field ptr %host, Host.restore_thread
  call $cc void %restore.thread(ptr %thread)
  call $cc void @release(ptr %frame)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %fail, label %answer
fail:
  %raised = call ptr @fail(ptr %descriptor, ptr %host, ptr %frame)
  ret ptr %raised
answer:
  %result = call ptr @answer(ptr %descriptor, ptr %host, ptr %frame)
  call $cc void @give_frame(ptr %frames, ptr %frame)
  ret ptr %result
refuse:
  call $cc void @give_frame(ptr %frames, ptr %frame)
  br label %slow.path
slow.path:
  %slow = field ptr %descriptor, CallDescriptor.slow_path
  %vector.call = field ptr %host, Host.vectorcall
  %answered = call $cc ptr %vector.call(ptr %slow, ptr %args, i64 %nargs, ptr %names)
  ret ptr %answered
}
