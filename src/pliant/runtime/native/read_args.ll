; Reads the arguments of a call from Python and numpy objects into the call's frame.
;
; This is a template: codegen/native_code.py replaces `field`, `addressof` and the names after a dollar sign (see
; codegen/fields.py), and joins it with thread_pool.ll and vectorcall.ll into one module. Records are those of runtime/records.py.
;
; Reading an array's address and shape from Python costs half a microsecond each; here it is a few loads. The fields of numpy's
; array object are part of its binary interface (C extensions are compiled against them), and runtime/cpython_api.py compares them
; with known arrays before it uses this code. All of it runs with the GIL held, so no other Python thread changes an array
; meanwhile.
;
; `read_args` serves the fast path only. Arrays must have exactly the expected type, dtype and rank; they must be contiguous,
; aligned and, where they are written, writable and disjoint from all others. Numbers must be Python's own. It writes addresses,
; shapes and values into the frame, calls `prepare`, and checks given outputs. It returns false if anything else is needed, if
; `prepare` refuses, or if the workspace is too small. False is not an error: the slow path in Python then decides.

; Returns the size of an array in bytes.
define internal i64 @bytes_of(ptr %shape, i64 %rank, i64 %itemsize) {
entry:
  br label %next
next:
  %d = phi i64 [ 0, %entry ], [ %d1, %dim ]
  %bytes = phi i64 [ %itemsize, %entry ], [ %bytes1, %dim ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %dim, label %out
dim:
  %size.at = getelementptr i64, ptr %shape, i64 %d
  %size = load i64, ptr %size.at
  %bytes1 = mul i64 %bytes, %size
  %d1 = add i64 %d, 1
  br label %next
out:
  ret i64 %bytes
}

; True if the object is an array that meets the plan; then writes the range of its addresses.
define internal i1 @read_array(ptr %host, ptr %object, ptr %plan, ptr %range) {
entry:
  %type = field i64 %object, Array.type
  %array.type = field i64 %host, Host.array_type
  %is.array = icmp eq i64 %type, %array.type
  br i1 %is.array, label %look, label %no
look:
  %rank32 = field i32 %object, Array.rank
  %rank = sext i32 %rank32 to i64
  %descr = field i64 %object, Array.dtype
  %flags32 = field i32 %object, Array.flags
  %flags = sext i32 %flags32 to i64
  %want.descr = field i64 %plan, Plan.dtype
  %same.descr = icmp eq i64 %descr, %want.descr
  %want.rank = field i64 %plan, Plan.rank
  %same.rank = icmp eq i64 %rank, %want.rank
  %want.flags = field i64 %plan, Plan.flags
  %have = and i64 %flags, %want.flags
  %same.flags = icmp eq i64 %have, %want.flags
  %same1 = and i1 %same.descr, %same.rank
  %same = and i1 %same1, %same.flags
  br i1 %same, label %measure, label %no
measure:
  %itemsize = field i64 %plan, Plan.itemsize
  %begin = field i64 %object, Array.address
  %shape = field ptr %object, Array.shape
  %bytes = call i64 @bytes_of(ptr %shape, i64 %rank, i64 %itemsize)
  %end = add i64 %begin, %bytes
  store i64 %begin, ptr %range
  %range.end = addressof %range, Range.end
  store i64 %end, ptr %range.end
  ret i1 true
no:
  ret i1 false
}

; Writes the shape of a contiguous array, and its strides in elements.
define internal void @write_shape(ptr %object, i64 %rank, ptr %to) {
entry:
  %shape = field ptr %object, Array.shape
  %strides = getelementptr i64, ptr %to, i64 %rank
  br label %next
next:
  %d = phi i64 [ %rank, %entry ], [ %d1, %dim ]
  %stride = phi i64 [ 1, %entry ], [ %stride1, %dim ]
  %more = icmp sgt i64 %d, 0
  br i1 %more, label %dim, label %out
dim:
  %d1 = sub i64 %d, 1
  %size.at = getelementptr i64, ptr %shape, i64 %d1
  %size = load i64, ptr %size.at
  %to.size = getelementptr i64, ptr %to, i64 %d1
  store i64 %size, ptr %to.size
  %to.stride = getelementptr i64, ptr %strides, i64 %d1
  store i64 %stride, ptr %to.stride
  %step = call i64 @llvm.smax.i64(i64 %size, i64 1)
  %stride1 = mul i64 %stride, %step
  br label %next
out:
  ret void
}

; True if the array has the wanted shape.
define internal i1 @has_shape(ptr %object, i64 %rank, ptr %wanted) {
entry:
  %shape = field ptr %object, Array.shape
  br label %next
next:
  %d = phi i64 [ 0, %entry ], [ %d1, %dim ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %dim, label %yes
dim:
  %size.at = getelementptr i64, ptr %shape, i64 %d
  %size = load i64, ptr %size.at
  %wanted.at = getelementptr i64, ptr %wanted, i64 %d
  %want = load i64, ptr %wanted.at
  %d1 = add i64 %d, 1
  %same = icmp eq i64 %size, %want
  br i1 %same, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; True if range %t overlaps another one.
define internal i1 @overlaps(ptr %ranges, i64 %count, i64 %t) {
entry:
  %mine = getelementptr [$sizeof(Range) x i8], ptr %ranges, i64 %t
  %begin = field i64 %mine, Range.begin
  %end = field i64 %mine, Range.end
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %no
look:
  %other = getelementptr [$sizeof(Range) x i8], ptr %ranges, i64 %i
  %b = field i64 %other, Range.begin
  %e = field i64 %other, Range.end
  %i1 = add i64 %i, 1
  %before = icmp ult i64 %begin, %e
  %after = icmp ult i64 %b, %end
  %meet = and i1 %before, %after
  %different = icmp ne i64 %i, %t
  %shared = and i1 %meet, %different
  br i1 %shared, label %yes, label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Reads a Python int; true if it is in low..high, limits that fit into 64 bits.
define internal i1 @read_int(ptr %host, ptr %object, i64 %low, i64 %high, ptr %to) {
  %overflow = alloca i32
  store i32 0, ptr %overflow
  %int.value = field ptr %host, Host.int_value
  %value = call $cc i64 %int.value(ptr %object, ptr %overflow)
  %over = load i32, ptr %overflow
  %inside1 = icmp eq i32 %over, 0
  %inside2 = icmp sge i64 %value, %low
  %inside3 = icmp sle i64 %value, %high
  %inside4 = and i1 %inside1, %inside2
  %inside = and i1 %inside3, %inside4
  store i64 %value, ptr %to
  ret i1 %inside
}

; True if the object is a Python number that meets the plan; then writes it.
define internal i1 @read_number(ptr %host, ptr %object, ptr %plan, ptr %to) {
entry:
  %type = field i64 %object, Array.type
  %int.type = field i64 %host, Host.int_type
  %is.int = icmp eq i64 %type, %int.type
  %kind = field i64 %plan, Plan.kind
  %wants.float = icmp eq i64 %kind, $Kind.FLOAT
  br i1 %wants.float, label %float, label %int
int:
  br i1 %is.int, label %whole, label %bool
whole:
  %low = field i64 %plan, Plan.low
  %high = field i64 %plan, Plan.high
  %whole.fits = call i1 @read_int(ptr %host, ptr %object, i64 %low, i64 %high, ptr %to)
  ret i1 %whole.fits
bool:
  %true = field ptr %host, Host.true
  %is.true = icmp eq ptr %object, %true
  %false = field ptr %host, Host.false
  %is.false = icmp eq ptr %object, %false
  %bit = zext i1 %is.true to i64
  store i64 %bit, ptr %to
  %is.bool = or i1 %is.true, %is.false
  ret i1 %is.bool
float:
  br i1 %is.int, label %exact, label %real
exact:
  ; Up to 2^53 every integer is exactly a double. The slow path decides about larger ones.
  %exact.fits = call i1 @read_int(ptr %host, ptr %object, i64 -9007199254740992, i64 9007199254740992, ptr %to)
  %count = load i64, ptr %to
  %as.float = sitofp i64 %count to double
  store double %as.float, ptr %to
  ret i1 %exact.fits
real:
  %float.type = field i64 %host, Host.float_type
  %is.float = icmp eq i64 %type, %float.type
  br i1 %is.float, label %read, label %no
read:
  %float.value = field ptr %host, Host.float_value
  %value = call $cc double %float.value(ptr %object)
  store double %value, ptr %to
  ret i1 true
no:
  ret i1 false
}

; Reads one argument into the frame; false if the slow path must do it.
define internal i1 @read_argument(ptr %host, ptr %frame, ptr %object, ptr %plan, ptr %range) {
entry:
  %dims = field ptr %frame, Frame.dims
  %at = field i64 %plan, Plan.dims
  %to = getelementptr i64, ptr %dims, i64 %at
  %kind = field i64 %plan, Plan.kind
  %is.tensor = icmp eq i64 %kind, $Kind.TENSOR
  br i1 %is.tensor, label %tensor, label %number
number:
  store i64 0, ptr %range
  %end = addressof %range, Range.end
  store i64 0, ptr %end
  %read = call i1 @read_number(ptr %host, ptr %object, ptr %plan, ptr %to)
  ret i1 %read
tensor:
  %plain = call i1 @read_array(ptr %host, ptr %object, ptr %plan, ptr %range)
  br i1 %plain, label %write, label %no
write:
  %buffers = field ptr %frame, Frame.buffers
  %number.of = field i64 %plan, Plan.buffer
  %buffer = getelementptr i64, ptr %buffers, i64 %number.of
  %address = field i64 %range, Range.begin
  store i64 %address, ptr %buffer
  %rank = field i64 %plan, Plan.rank
  call void @write_shape(ptr %object, i64 %rank, ptr %to)
  ret i1 true
no:
  ret i1 false
}

; Writes the address of an output that is known before the run: updated state, or memory given by the caller. Other outputs get an
; empty range.
define internal i1 @read_output(ptr %descriptor, ptr %host, ptr %frame, ptr %object, ptr %plan, ptr %range) {
entry:
  store i64 0, ptr %range
  %end = addressof %range, Range.end
  store i64 0, ptr %end
  %buffers = field ptr %frame, Frame.buffers
  %number.of = field i64 %plan, Plan.buffer
  %buffer = getelementptr i64, ptr %buffers, i64 %number.of
  %absent = icmp eq ptr %object, null
  %alias = field i64 %plan, Plan.alias
  %fresh = icmp slt i64 %alias, 0
  br i1 %fresh, label %maybe.given, label %state
state:
  ; If the caller gives memory for an output that is state, the slow path must check that it is the same memory.
  %plans = field ptr %descriptor, CallDescriptor.plans
  %source = getelementptr [$sizeof(Plan) x i8], ptr %plans, i64 %alias
  %source.number = field i64 %source, Plan.buffer
  %source.buffer = getelementptr i64, ptr %buffers, i64 %source.number
  %state.address = load i64, ptr %source.buffer
  store i64 %state.address, ptr %buffer
  ret i1 %absent
maybe.given:
  br i1 %absent, label %yes, label %given
given:
  %plain = call i1 @read_array(ptr %host, ptr %object, ptr %plan, ptr %range)
  br i1 %plain, label %shape, label %no
shape:
  %dims = field ptr %frame, Frame.dims
  %at = field i64 %plan, Plan.dims
  %wanted = getelementptr i64, ptr %dims, i64 %at
  %rank = field i64 %plan, Plan.rank
  %address = field i64 %range, Range.begin
  store i64 %address, ptr %buffer
  %fits = call i1 @has_shape(ptr %object, i64 %rank, ptr %wanted)
  ret i1 %fits
yes:
  ret i1 true
no:
  ret i1 false
}

; True if no argument or output that is written overlaps another one. Outputs that are state carry no WRITABLE flag: their argument does.
define internal i1 @are_disjoint(ptr %plans, ptr %ranges, i64 %count) {
entry:
  br label %next
next:
  %w = phi i64 [ 0, %entry ], [ %w1, %step ]
  %more = icmp slt i64 %w, %count
  br i1 %more, label %look, label %yes
look:
  %w1 = add i64 %w, 1
  %plan = getelementptr [$sizeof(Plan) x i8], ptr %plans, i64 %w
  %flags = field i64 %plan, Plan.flags
  %writable = and i64 %flags, $ArrayFlag.WRITABLE
  %written = icmp ne i64 %writable, 0
  br i1 %written, label %alone, label %step
alone:
  %shared = call i1 @overlaps(ptr %ranges, i64 %count, i64 %w)
  br i1 %shared, label %no, label %step
step:
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Reads all arguments, prepares the call and checks the given outputs; false if the slow path must do it.
define internal i1 @read_args(ptr %descriptor, ptr %host, ptr %frame) {
entry:
  %inputs = field i64 %descriptor, CallDescriptor.inputs
  %outputs = field i64 %descriptor, CallDescriptor.outputs
  %count = add i64 %inputs, %outputs
  %plans = field ptr %descriptor, CallDescriptor.plans
  %objects = field ptr %frame, Frame.objects
  %ranges = field ptr %frame, Frame.ranges
  br label %next
next:
  %t = phi i64 [ 0, %entry ], [ %t1, %step ]
  %more = icmp slt i64 %t, %inputs
  br i1 %more, label %step, label %prepare
step:
  %t1 = add i64 %t, 1
  %object.at = getelementptr ptr, ptr %objects, i64 %t
  %object = load ptr, ptr %object.at
  %plan = getelementptr [$sizeof(Plan) x i8], ptr %plans, i64 %t
  %range = getelementptr [$sizeof(Range) x i8], ptr %ranges, i64 %t
  %read = call i1 @read_argument(ptr %host, ptr %frame, ptr %object, ptr %plan, ptr %range)
  br i1 %read, label %next, label %no
prepare:
  %prepare.fn = field ptr %descriptor, CallDescriptor.prepare
  %buffers = field ptr %frame, Frame.buffers
  %dims = field ptr %frame, Frame.dims
  %code = call $cc i32 %prepare.fn(ptr %frame, ptr %buffers, ptr %dims)
  %prepared = icmp eq i32 %code, 0
  br i1 %prepared, label %room, label %no
room:
  ; The slow path allocates a larger workspace, which stays with the frame.
  %need = field i64 %descriptor, CallDescriptor.need
  %bytes.at = getelementptr i64, ptr %dims, i64 %need
  %bytes = load i64, ptr %bytes.at
  %room.there = field i64 %frame, Frame.room
  %enough = icmp sle i64 %bytes, %room.there
  br i1 %enough, label %next.out, label %no
next.out:
  %o = phi i64 [ %inputs, %room ], [ %o1, %step.out ]
  %more.out = icmp slt i64 %o, %count
  br i1 %more.out, label %step.out, label %alone
step.out:
  %o1 = add i64 %o, 1
  %out.object.at = getelementptr ptr, ptr %objects, i64 %o
  %out.object = load ptr, ptr %out.object.at
  %out.plan = getelementptr [$sizeof(Plan) x i8], ptr %plans, i64 %o
  %out.range = getelementptr [$sizeof(Range) x i8], ptr %ranges, i64 %o
  %known = call i1 @read_output(ptr %descriptor, ptr %host, ptr %frame, ptr %out.object, ptr %out.plan, ptr %out.range)
  br i1 %known, label %next.out, label %no
alone:
  %disjoint = call i1 @are_disjoint(ptr %plans, ptr %ranges, i64 %count)
  ret i1 %disjoint
no:
  ret i1 false
}
