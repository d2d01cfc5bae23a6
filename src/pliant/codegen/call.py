"""The call of a compiled program as a function of Python's own kind, as LLVM IR text that we wrote.

`call` has the signature of METH_FASTCALL | METH_KEYWORDS; its `self` is the ctypes object of the program's `CallDescriptor`. It takes a
free frame, gathers arguments by place and by name, lets `enter` (see enter.py) read them, makes the outputs, lets `run` work without the
GIL, and answers the output or a tuple of outputs. Whatever is not plain it hands over, untouched, to the Python callable
`slow_path`; when `run` failed it gives the error record to the Python callable `failed`, which raises. So no message is made here.

`take_frame` and `give_frame` are the list of free frames, which the long way uses too: both need the GIL. `allocate` is `Ctx.alloc`: memory
that lives until `release`; it may be called from any thread.

Records and fields are those of runtime/records.py (see fields.py); `CC` stands for the calling convention.
"""

EXPORTS = ("call", "take_frame", "give_frame", "allocate", "release")

TEXT = """
; A free frame of a list, or null.
define CC ptr @take_frame(ptr %list) {
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

; Makes a frame free again, with an empty error record.
define CC void @give_frame(ptr %list, ptr %frame) {
  %error = place %frame, Frame.ctx.error
  store [8 x i64] zeroinitializer, ptr %error
  %next.to = place %frame, Frame.next
  %first = load ptr, ptr %list
  store ptr %first, ptr %next.to
  store ptr %frame, ptr %list
  ret void
}

; A block is: the next block, room up to a multiple of 64, the memory that was asked for.
define CC ptr @allocate(ptr %frame, i64 %size) {
entry:
  ; What lies beyond half of the address space would overflow below.
  %sane = icmp ult i64 %size, 4611686018427387904
  br i1 %sane, label %ask, label %no
ask:
  %all = add i64 %size, 128
  %malloc = field ptr %frame, Frame.allocate
  %block = call CC ptr %malloc(i64 %all)
  %refused = icmp eq ptr %block, null
  br i1 %refused, label %no, label %link
link:
  %memory = place %frame, Frame.memory
  %first = load atomic i64, ptr %memory monotonic, align 8
  %mine = ptrtoint ptr %block to i64
  br label %try
try:
  %next = phi i64 [ %first, %link ], [ %seen, %try ]
  store i64 %next, ptr %block
  %pair = cmpxchg ptr %memory, i64 %next, i64 %mine acq_rel monotonic
  %seen = extractvalue { i64, i1 } %pair, 0
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %made, label %try
made:
  %after = add i64 %mine, 127
  %aligned = and i64 %after, -64
  %address = inttoptr i64 %aligned to ptr
  ret ptr %address
no:
  ret ptr null
}

; Gives back what the program asked for while it ran.
define CC void @release(ptr %frame) {
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
  call CC void %free(ptr %block)
  br label %next
out:
  store ptr null, ptr %first.at
  ret void
}

; Takes the argument `out`: None, the one output, or a tuple of all.
define internal i1 @gather_out(ptr %gate, ptr %host, ptr %objects, ptr %given) {
entry:
  %none = field ptr %host, Host.none
  %is.none = icmp eq ptr %given, %none
  br i1 %is.none, label %yes, label %some
some:
  %outputs = field i64 %gate, CallDescriptor.outputs
  %single = icmp eq i64 %outputs, 1
  br i1 %single, label %one, label %many
one:
  store ptr %given, ptr %objects
  ret i1 true
many:
  %type = field i64 %given, Array.type
  %tuple.type = field i64 %host, Host.tuple_type
  %is.tuple = icmp eq i64 %type, %tuple.type
  br i1 %is.tuple, label %count, label %no
count:
  %tuple.size = field ptr %host, Host.tuple_size
  %size = call CC i64 %tuple.size(ptr %given)
  %fits = icmp eq i64 %size, %outputs
  br i1 %fits, label %next, label %no
next:
  %o = phi i64 [ 0, %count ], [ %o1, %item ]
  %more = icmp slt i64 %o, %outputs
  br i1 %more, label %item, label %yes
item:
  %o1 = add i64 %o, 1
  %get.item = field ptr %host, Host.get_item
  %value = call CC ptr %get.item(ptr %given, i64 %o)
  %absent = icmp eq ptr %value, %none
  %kept = select i1 %absent, ptr null, ptr %value
  %to = getelementptr ptr, ptr %objects, i64 %o
  store ptr %kept, ptr %to
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; The place of an argument that is given by name, or -1. Names are compared as objects: Python keeps one of each in source texts.
define internal i64 @find_name(ptr %gate, ptr %name, i64 %from) {
entry:
  %inputs = field i64 %gate, CallDescriptor.inputs
  %names = field ptr %gate, CallDescriptor.names
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

; Takes what is given by name.
define internal i1 @gather_named(ptr %gate, ptr %host, ptr %objects, ptr %args, i64 %nargs, ptr %names) {
entry:
  %inputs = field i64 %gate, CallDescriptor.inputs
  %tuple.size = field ptr %host, Host.tuple_size
  %size = call CC i64 %tuple.size(ptr %names)
  %out.name = field ptr %host, Host.out
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %step ]
  %more = icmp slt i64 %k, %size
  br i1 %more, label %look, label %yes
look:
  %k1 = add i64 %k, 1
  %get.item = field ptr %host, Host.get_item
  %name = call CC ptr %get.item(ptr %names, i64 %k)
  %at = add i64 %nargs, %k
  %value.at = getelementptr ptr, ptr %args, i64 %at
  %value = load ptr, ptr %value.at
  %is.out = icmp eq ptr %name, %out.name
  br i1 %is.out, label %out, label %argument
out:
  %to.outputs = getelementptr ptr, ptr %objects, i64 %inputs
  %taken = call i1 @gather_out(ptr %gate, ptr %host, ptr %to.outputs, ptr %value)
  br i1 %taken, label %step, label %no
argument:
  %p = call i64 @find_name(ptr %gate, ptr %name, i64 %nargs)
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

; Puts arguments and given outputs in order; those that are not given are null.
define internal i1 @gather(ptr %gate, ptr %host, ptr %frame, ptr %args, i64 %nargs, ptr %names) {
entry:
  %objects = field ptr %frame, Frame.objects
  %inputs = field i64 %gate, CallDescriptor.inputs
  %outputs = field i64 %gate, CallDescriptor.outputs
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
  %taken = call i1 @gather_named(ptr %gate, ptr %host, ptr %objects, ptr %args, i64 %nargs, ptr %names)
  br i1 %taken, label %all, label %no
all:
  %j = phi i64 [ %nargs, %by.name ], [ %nargs, %named ], [ %j1, %check ]
  %more.j = icmp slt i64 %j, %inputs
  br i1 %more.j, label %check, label %yes
check:
  %j1 = add i64 %j, 1
  %check.at = getelementptr ptr, ptr %objects, i64 %j
  %found = load ptr, ptr %check.at
  %missing = icmp eq ptr %found, null
  br i1 %missing, label %no, label %all
yes:
  ret i1 true
no:
  ret i1 false
}

; Is the frame's context right for this thread and its choice of a number of threads? Sets the cancel flag to use.
define internal i1 @is_ready(ptr %gate, ptr %host, ptr %frame) {
entry:
  %within = alloca ptr
  %watch = field ptr %host, Host.watch
  %main = field i64 %watch, Watch.main
  %thread.id = field ptr %host, Host.thread_id
  %me = call CC i64 %thread.id()
  %is.main = icmp eq i64 %me, %main
  %cancel.to = place %frame, Frame.ctx.cancel
  br i1 %is.main, label %main.thread, label %other.thread
main.thread:
  %tried = field i64 %watch, Watch.tried
  %watched = icmp ne i64 %tried, 0
  %flag = place %watch, Watch.flag
  store i64 0, ptr %flag
  store ptr %flag, ptr %cancel.to
  br i1 %watched, label %launch, label %no
other.thread:
  %own = place %frame, Frame.flag
  store i64 0, ptr %own
  store ptr %own, ptr %cancel.to
  br label %launch
launch:
  %how = field i64 %gate, CallDescriptor.launch
  %alone = icmp eq i64 %how, 0
  br i1 %alone, label %yes, label %epoch
epoch:
  %now.at = field ptr %host, Host.epoch
  %now = load i64, ptr %now.at
  %then = field i64 %frame, Frame.epoch
  %fresh = icmp eq i64 %now, %then
  br i1 %fresh, label %choice, label %no
choice:
  %fixed = icmp eq i64 %how, 2
  br i1 %fixed, label %yes, label %context
context:
  %context.value = field ptr %host, Host.context_value
  %variable = field ptr %host, Host.within
  %bad = call CC i32 %context.value(ptr %variable, ptr null, ptr %within)
  %failed = icmp ne i32 %bad, 0
  br i1 %failed, label %clear, label %compare
clear:
  %clear.error = field ptr %host, Host.clear_error
  call CC void %clear.error()
  ret i1 false
compare:
  %value = load ptr, ptr %within
  %decrement = field ptr %host, Host.decrement
  call CC void %decrement(ptr %value)
  %made.for = field ptr %frame, Frame.within
  %same = icmp eq ptr %value, %made.for
  ret i1 %same
yes:
  ret i1 true
no:
  ret i1 false
}

; Drops outputs from..to of a frame, which owns them.
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
  call CC void %decrement(ptr %object)
  br label %next
out:
  ret void
}

; A new array whose elements begin at a page: part of a longer one, which it keeps. Null, with an error, if there is none.
define internal ptr @new_aligned(ptr %host, ptr %type, ptr %dtype, i32 %rank, ptr %shape, i64 %bytes) {
entry:
  %room = alloca i64
  %longer = add i64 %bytes, PAGE
  store i64 %longer, ptr %room
  %increment = field ptr %host, Host.increment
  %decrement = field ptr %host, Host.decrement
  %new.array = field ptr %host, Host.new_array
  %byte = field ptr %host, Host.byte
  call CC void %increment(ptr %byte)
  %whole = call CC ptr %new.array(ptr %type, ptr %byte, i32 1, ptr %room, ptr null, ptr null, i32 0, ptr null)
  %refused = icmp eq ptr %whole, null
  br i1 %refused, label %no, label %part
part:
  %begin = field i64 %whole, Array.address
  %past = add i64 %begin, PAGE
  %after = sub i64 %past, 1
  %aligned = and i64 %after, -PAGE
  %address = inttoptr i64 %aligned to ptr
  ; Contiguous, aligned, writable.
  call CC void %increment(ptr %dtype)
  %made = call CC ptr %new.array(ptr %type, ptr %dtype, i32 %rank, ptr %shape, ptr null, ptr %address, i32 1281, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %drop, label %keep
keep:
  %set.base = field ptr %host, Host.set_base
  %bad = call CC i32 %set.base(ptr %made, ptr %whole)
  %kept = icmp eq i32 %bad, 0
  br i1 %kept, label %yes, label %undo
yes:
  ret ptr %made
undo:
  call CC void %decrement(ptr %made)
  ret ptr null
drop:
  call CC void %decrement(ptr %whole)
  ret ptr null
no:
  ret ptr null
}

; A new array for an output, its address in the frame; null, without an error, if there is none. A large one begins at a page, where
; numpy's begin 16 bytes behind: then every vector of 64 bytes would be in two lines.
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
  %large = icmp sge i64 %bytes, LARGE
  br i1 %large, label %aligned, label %plain
aligned:
  %part = call ptr @new_aligned(ptr %host, ptr %type, ptr %dtype, i32 %rank32, ptr %shape, i64 %bytes)
  br label %look
plain:
  %increment = field ptr %host, Host.increment
  call CC void %increment(ptr %dtype)
  %new.array = field ptr %host, Host.new_array
  %whole = call CC ptr %new.array(ptr %type, ptr %dtype, i32 %rank32, ptr %shape, ptr null, ptr null, i32 0, ptr null)
  br label %look
look:
  %made = phi ptr [ %part, %aligned ], [ %whole, %plain ]
  %refused = icmp eq ptr %made, null
  br i1 %refused, label %no, label %yes
yes:
  %buffers = field ptr %frame, Frame.buffers
  %number = field i64 %plan, Plan.buffer
  %buffer = getelementptr i64, ptr %buffers, i64 %number
  %address = field i64 %made, Array.address
  store i64 %address, ptr %buffer
  ret ptr %made
no:
  %clear.error = field ptr %host, Host.clear_error
  call CC void %clear.error()
  ret ptr null
}

; Makes the outputs that are not there yet; the frame owns all of them after.
define internal i1 @make_outputs(ptr %gate, ptr %host, ptr %frame) {
entry:
  %objects = field ptr %frame, Frame.objects
  %plans = field ptr %gate, CallDescriptor.plans
  %inputs = field i64 %gate, CallDescriptor.inputs
  %outputs = field i64 %gate, CallDescriptor.outputs
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
  %given = load ptr, ptr %at
  %plan = getelementptr PLAN, ptr %plans, i64 %o
  %alias = field i64 %plan, Plan.alias
  %is.state = icmp sge i64 %alias, 0
  br i1 %is.state, label %state, label %maybe.given
state:
  %source = getelementptr ptr, ptr %objects, i64 %alias
  %updated = load ptr, ptr %source
  br label %share
maybe.given:
  %absent = icmp eq ptr %given, null
  br i1 %absent, label %fresh, label %share
share:
  %shared = phi ptr [ %updated, %state ], [ %given, %maybe.given ]
  call CC void %increment(ptr %shared)
  br label %put
fresh:
  %made = call ptr @new_output(ptr %host, ptr %frame, ptr %plan)
  %refused = icmp eq ptr %made, null
  br i1 %refused, label %no, label %put
put:
  %object = phi ptr [ %shared, %share ], [ %made, %fresh ]
  store ptr %object, ptr %at
  br label %next
yes:
  ret i1 true
no:
  call void @drop(ptr %host, ptr %objects, i64 %inputs, i64 %o)
  ret i1 false
}

; What the call answers: the output, or a tuple of all.
define internal ptr @answer(ptr %gate, ptr %host, ptr %frame) {
entry:
  %all = field ptr %frame, Frame.objects
  %inputs = field i64 %gate, CallDescriptor.inputs
  %objects = getelementptr ptr, ptr %all, i64 %inputs
  %outputs = field i64 %gate, CallDescriptor.outputs
  %single = icmp eq i64 %outputs, 1
  br i1 %single, label %one, label %many
one:
  %only = load ptr, ptr %objects
  ret ptr %only
many:
  %new.tuple = field ptr %host, Host.new_tuple
  %tuple = call CC ptr %new.tuple(i64 %outputs)
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
  %set = call CC i32 %set.item(ptr %tuple, i64 %o, ptr %object)
  br label %next
no:
  call void @drop(ptr %host, ptr %objects, i64 0, i64 %outputs)
  ret ptr null
done:
  ret ptr %tuple
}

; Raises what the error record of a frame means, and makes the frame free.
define internal ptr @fail(ptr %gate, ptr %host, ptr %frame) {
entry:
  %argument = alloca ptr
  %frames = field ptr %gate, CallDescriptor.frames
  %objects = field ptr %frame, Frame.objects
  %inputs = field i64 %gate, CallDescriptor.inputs
  %outputs = field i64 %gate, CallDescriptor.outputs
  %count = add i64 %inputs, %outputs
  call void @drop(ptr %host, ptr %objects, i64 %inputs, i64 %count)
  %error = place %frame, Frame.ctx.error
  %new.bytes = field ptr %host, Host.new_bytes
  %record = call CC ptr %new.bytes(ptr %error, i64 64)
  call CC void @give_frame(ptr %frames, ptr %frame)
  store ptr %record, ptr %argument
  %refused = icmp eq ptr %record, null
  br i1 %refused, label %no, label %raise
raise:
  %failed = field ptr %gate, CallDescriptor.failed
  %vectorcall = field ptr %host, Host.vectorcall
  %raised = call CC ptr %vectorcall(ptr %failed, ptr %argument, i64 1, ptr null)
  %decrement = field ptr %host, Host.decrement
  call CC void %decrement(ptr %record)
  ret ptr %raised
no:
  ret ptr null
}

define CC ptr @call(ptr %self, ptr %args, i64 %nargs, ptr %names) {
entry:
  %gate = field ptr %self, Array.address
  %host = field ptr %gate, CallDescriptor.host
  %frames = field ptr %gate, CallDescriptor.frames
  %frame = call CC ptr @take_frame(ptr %frames)
  %busy = icmp eq ptr %frame, null
  br i1 %busy, label %long.way, label %gather
gather:
  %gathered = call i1 @gather(ptr %gate, ptr %host, ptr %frame, ptr %args, i64 %nargs, ptr %names)
  br i1 %gathered, label %ready, label %refuse
ready:
  %is.ready = call i1 @is_ready(ptr %gate, ptr %host, ptr %frame)
  br i1 %is.ready, label %enter, label %refuse
enter:
  %entered = call i1 @enter(ptr %gate, ptr %host, ptr %frame)
  br i1 %entered, label %make, label %refuse
make:
  %made = call i1 @make_outputs(ptr %gate, ptr %host, ptr %frame)
  br i1 %made, label %run, label %refuse
run:
  %run.fn = field ptr %gate, CallDescriptor.run
  %buffers = field ptr %frame, Frame.buffers
  %dims = field ptr %frame, Frame.dims
  %save.thread = field ptr %host, Host.save_thread
  %thread = call CC ptr %save.thread()
  %code = call CC i32 %run.fn(ptr %frame, ptr %buffers, ptr %dims)
  %restore.thread = field ptr %host, Host.restore_thread
  call CC void %restore.thread(ptr %thread)
  call CC void @release(ptr %frame)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %fail, label %answer
fail:
  %raised = call ptr @fail(ptr %gate, ptr %host, ptr %frame)
  ret ptr %raised
answer:
  %result = call ptr @answer(ptr %gate, ptr %host, ptr %frame)
  call CC void @give_frame(ptr %frames, ptr %frame)
  ret ptr %result
refuse:
  call CC void @give_frame(ptr %frames, ptr %frame)
  br label %long.way
long.way:
  %long = field ptr %gate, CallDescriptor.slow_path
  %vector.call = field ptr %host, Host.vectorcall
  %answered = call CC ptr %vector.call(ptr %long, ptr %args, i64 %nargs, ptr %names)
  ret ptr %answered
}
"""
