"""The short way into a compiled program, as LLVM IR text that we wrote: `enter` reads numpy arrays where they lie.

Reading an array's address and shape from Python costs half a microsecond for each; here it is a few loads. The fields of numpy's
array object are part of its binary interface (C extensions are compiled against them), and the runtime tries them out on
known arrays before it relies on them. `enter` runs with the GIL held, so nobody changes an array meanwhile.

It accepts arrays of the very type, dtype and rank that are contiguous, aligned and, where they are written, writable and alone in their
memory. It writes their addresses and shapes into the slot, calls `prepare`, checks given outputs, and answers what `prepare` answered;
or -1 if any array is not so plain, which only means that the long way through Python must look at the arguments.

The records are `Call` and `Plan` in runtime/marshal.py; offsets here are in bytes.
"""

TEXT = """
; Is the object a plain array as the plan wants it? Notes the range of its bytes if so.
define internal i1 @is_plain(ptr %call, ptr %object, ptr %plan, ptr %range) {{
entry:
  %head = load i64, ptr %call
  %fields = getelementptr i8, ptr %object, i64 %head
  %type.at = getelementptr i8, ptr %fields, i64 -8
  %type = load i64, ptr %type.at
  %array.type.at = getelementptr i8, ptr %call, i64 8
  %array.type = load i64, ptr %array.type.at
  %is.array = icmp eq i64 %type, %array.type
  br i1 %is.array, label %look, label %no
look:
  %rank.at = getelementptr i8, ptr %fields, i64 8
  %rank32 = load i32, ptr %rank.at
  %rank = sext i32 %rank32 to i64
  %descr.at = getelementptr i8, ptr %fields, i64 40
  %descr = load i64, ptr %descr.at
  %flags.at = getelementptr i8, ptr %fields, i64 48
  %flags32 = load i32, ptr %flags.at
  %flags = sext i32 %flags32 to i64
  %want.descr = load i64, ptr %plan
  %same.descr = icmp eq i64 %descr, %want.descr
  %want.rank.at = getelementptr i8, ptr %plan, i64 8
  %want.rank = load i64, ptr %want.rank.at
  %same.rank = icmp eq i64 %rank, %want.rank
  %want.flags.at = getelementptr i8, ptr %plan, i64 16
  %want.flags = load i64, ptr %want.flags.at
  %have = and i64 %flags, %want.flags
  %same.flags = icmp eq i64 %have, %want.flags
  %same1 = and i1 %same.descr, %same.rank
  %same = and i1 %same1, %same.flags
  br i1 %same, label %measure, label %no
measure:
  %itemsize.at = getelementptr i8, ptr %plan, i64 24
  %itemsize = load i64, ptr %itemsize.at
  %begin = load i64, ptr %fields
  %shape.at = getelementptr i8, ptr %fields, i64 16
  %shape = load ptr, ptr %shape.at
  br label %next
next:
  %d = phi i64 [ 0, %measure ], [ %d1, %dim ]
  %bytes = phi i64 [ %itemsize, %measure ], [ %bytes1, %dim ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %dim, label %yes
dim:
  %size.at = getelementptr i64, ptr %shape, i64 %d
  %size = load i64, ptr %size.at
  %bytes1 = mul i64 %bytes, %size
  %d1 = add i64 %d, 1
  br label %next
yes:
  %end = add i64 %begin, %bytes
  store i64 %begin, ptr %range
  %range.end = getelementptr i8, ptr %range, i64 8
  store i64 %end, ptr %range.end
  ret i1 true
no:
  ret i1 false
}}

; Writes the shape and the strides of a contiguous array; answers where the next argument's go.
define internal ptr @write_shape(ptr %call, ptr %object, i64 %rank, ptr %to) {{
entry:
  %head = load i64, ptr %call
  %fields = getelementptr i8, ptr %object, i64 %head
  %shape.at = getelementptr i8, ptr %fields, i64 16
  %shape = load ptr, ptr %shape.at
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
  %end = getelementptr i64, ptr %strides, i64 %rank
  ret ptr %end
}}

; Has the array this shape?
define internal i1 @has_shape(ptr %call, ptr %object, i64 %rank, ptr %wanted) {{
entry:
  %head = load i64, ptr %call
  %fields = getelementptr i8, ptr %object, i64 %head
  %shape.at = getelementptr i8, ptr %fields, i64 16
  %shape = load ptr, ptr %shape.at
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
}}

; Does anything that is written (tensor %t) share bytes with another tensor?
define internal i1 @is_shared(ptr %ranges, i64 %count, i64 %t) {{
entry:
  %mine = getelementptr {{ i64, i64 }}, ptr %ranges, i64 %t
  %begin = load i64, ptr %mine
  %mine.end = getelementptr i8, ptr %mine, i64 8
  %end = load i64, ptr %mine.end
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %no
look:
  %other = getelementptr {{ i64, i64 }}, ptr %ranges, i64 %i
  %b = load i64, ptr %other
  %other.end = getelementptr i8, ptr %other, i64 8
  %e = load i64, ptr %other.end
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
}}

define {cc}i32 @enter(ptr %call) {{
entry:
  %inputs.at = getelementptr i8, ptr %call, i64 16
  %inputs = load i64, ptr %inputs.at
  %outputs.at = getelementptr i8, ptr %call, i64 24
  %outputs = load i64, ptr %outputs.at
  %count = add i64 %inputs, %outputs
  %plans.at = getelementptr i8, ptr %call, i64 32
  %plans = load ptr, ptr %plans.at
  %objects.at = getelementptr i8, ptr %call, i64 40
  %objects = load ptr, ptr %objects.at
  %ranges.at = getelementptr i8, ptr %call, i64 48
  %ranges = load ptr, ptr %ranges.at
  %ctx.at = getelementptr i8, ptr %call, i64 56
  %ctx = load ptr, ptr %ctx.at
  %buffers.at = getelementptr i8, ptr %call, i64 64
  %buffers = load ptr, ptr %buffers.at
  %dims.at = getelementptr i8, ptr %call, i64 72
  %dims = load ptr, ptr %dims.at
  br label %next
next:
  %t = phi i64 [ 0, %entry ], [ %t1, %input ]
  %to = phi ptr [ %dims, %entry ], [ %to1, %input ]
  %more = icmp slt i64 %t, %inputs
  br i1 %more, label %look, label %prepare
look:
  %object.at = getelementptr ptr, ptr %objects, i64 %t
  %object = load ptr, ptr %object.at
  %plan = getelementptr [5 x i64], ptr %plans, i64 %t
  %range = getelementptr {{ i64, i64 }}, ptr %ranges, i64 %t
  %plain = call i1 @is_plain(ptr %call, ptr %object, ptr %plan, ptr %range)
  br i1 %plain, label %input, label %no
input:
  %address = load i64, ptr %range
  %buffer = getelementptr i64, ptr %buffers, i64 %t
  store i64 %address, ptr %buffer
  %rank.at = getelementptr i8, ptr %plan, i64 8
  %rank = load i64, ptr %rank.at
  %to1 = call ptr @write_shape(ptr %call, ptr %object, i64 %rank, ptr %to)
  %t1 = add i64 %t, 1
  br label %next
prepare:
  %prepare.at = getelementptr i8, ptr %call, i64 88
  %prepare.fn = load ptr, ptr %prepare.at
  %code = call {cc}i32 %prepare.fn(ptr %ctx, ptr %buffers, ptr %dims)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %answer, label %given
answer:
  ret i32 %code
given:
  %region.at = getelementptr i8, ptr %call, i64 80
  %region = load i64, ptr %region.at
  %c.begin = getelementptr i64, ptr %dims, i64 %region
  br label %next.out
next.out:
  %o = phi i64 [ %inputs, %given ], [ %o1, %step.out ]
  %c = phi ptr [ %c.begin, %given ], [ %c1, %step.out ]
  %more.out = icmp slt i64 %o, %count
  br i1 %more.out, label %look.out, label %shared
look.out:
  %out.plan = getelementptr [5 x i64], ptr %plans, i64 %o
  %out.rank.at = getelementptr i8, ptr %out.plan, i64 8
  %out.rank = load i64, ptr %out.rank.at
  %c1 = getelementptr i64, ptr %c, i64 %out.rank
  %o1 = add i64 %o, 1
  %out.range = getelementptr {{ i64, i64 }}, ptr %ranges, i64 %o
  store i64 0, ptr %out.range
  %out.range.end = getelementptr i8, ptr %out.range, i64 8
  store i64 0, ptr %out.range.end
  %out.buffer = getelementptr i64, ptr %buffers, i64 %o
  %out.object.at = getelementptr ptr, ptr %objects, i64 %o
  %out.object = load ptr, ptr %out.object.at
  %absent = icmp eq ptr %out.object, null
  %alias.at = getelementptr i8, ptr %out.plan, i64 32
  %alias = load i64, ptr %alias.at
  %fresh = icmp slt i64 %alias, 0
  br i1 %fresh, label %maybe.given, label %state
state:
  ; An output that is state already has its memory; what somebody gives for it the long way must judge.
  %source = getelementptr i64, ptr %buffers, i64 %alias
  %state.address = load i64, ptr %source
  store i64 %state.address, ptr %out.buffer
  br i1 %absent, label %step.out, label %no
maybe.given:
  br i1 %absent, label %step.out, label %take
take:
  %out.plain = call i1 @is_plain(ptr %call, ptr %out.object, ptr %out.plan, ptr %out.range)
  br i1 %out.plain, label %fits, label %no
fits:
  %fit = call i1 @has_shape(ptr %call, ptr %out.object, i64 %out.rank, ptr %c)
  br i1 %fit, label %out.good, label %no
out.good:
  %out.address = load i64, ptr %out.range
  store i64 %out.address, ptr %out.buffer
  br label %step.out
step.out:
  br label %next.out
shared:
  %w = phi i64 [ 0, %next.out ], [ %w1, %step.shared ]
  %more.shared = icmp slt i64 %w, %count
  br i1 %more.shared, label %is.written, label %yes
is.written:
  %w.plan = getelementptr [5 x i64], ptr %plans, i64 %w
  %w.flags.at = getelementptr i8, ptr %w.plan, i64 16
  %w.flags = load i64, ptr %w.flags.at
  %w.writable = and i64 %w.flags, 1024
  %written = icmp ne i64 %w.writable, 0
  br i1 %written, label %alone, label %step.shared
alone:
  %w.shared = call i1 @is_shared(ptr %ranges, i64 %count, i64 %w)
  br i1 %w.shared, label %no, label %step.shared
step.shared:
  %w1 = add i64 %w, 1
  br label %shared
yes:
  ret i32 0
no:
  ret i32 -1
}}
"""
