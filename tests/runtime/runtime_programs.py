"""Small programs in hand-written LLVM IR, packed as the compiler would pack them, for the tests of the runtime.

`add`: y[n] = a[n] + b[n] in f32, n in 1..2048 step 8, with a parallel loop of grain 512 and a workspace of 4*n bytes.
`count`: state[m] += step in chunks of one, fails at a negative counter, and with step 0 runs until it is cancelled.
`mixed`: y[n] = x[n] * scale + shift in f64, and state[n] += step; its scalars stand between its tensors.
`positives`: y = the positive ones of x[n] times a constant; the count is known only at run time, and it asks for memory while it runs.
"""

from __future__ import annotations

import functools

from pliant.codegen.emit import emit_object
from pliant.codegen.link_elf import link
from pliant.runtime.blob import Blob
from pliant.runtime.interface import Constant, Input, Interface, Output, Site, Symbol
from pliant.runtime.package import Package
from pliant.support.source import Span
from pliant.target import target


@functools.cache
def compiled(text: str, *exports: str) -> Blob:
    """A blob from IR text."""
    return link(emit_object(text, target("native"), 1), exports)


# error(ctx, site, found, expected) -> 2
ERROR = """
define internal i32 @error(ptr %ctx, i64 %site, i64 %found, i64 %expected) {
  %code.at = getelementptr i8, ptr %ctx, i64 56
  %pair = cmpxchg ptr %code.at, i64 0, i64 2 seq_cst seq_cst
  %site.at = getelementptr i8, ptr %ctx, i64 64
  store i64 %site, ptr %site.at
  %found.at = getelementptr i8, ptr %ctx, i64 72
  store i64 %found, ptr %found.at
  %expected.at = getelementptr i8, ptr %ctx, i64 80
  store i64 %expected, ptr %expected.at
  ret i32 2
}
"""

# dims: A = a.n, a.stride, b.n, b.stride; B = n (4); C = n (5); D = workspace (6)
_ADD = (
    ERROR
    + """
define i32 @size(ptr %ctx, ptr %buffers, ptr %dims) {
  %n.at = getelementptr i64, ptr %dims, i64 4
  %n = load i64, ptr %n.at
  %c.at = getelementptr i64, ptr %dims, i64 5
  store i64 %n, ptr %c.at
  %bytes = mul i64 %n, 4
  %d.at = getelementptr i64, ptr %dims, i64 6
  store i64 %bytes, ptr %d.at
  ret i32 0
}

define i32 @prepare(ptr %ctx, ptr %buffers, ptr %dims) {
entry:
  %n = load i64, ptr %dims
  %sa.at = getelementptr i64, ptr %dims, i64 1
  %sa = load i64, ptr %sa.at
  %nb.at = getelementptr i64, ptr %dims, i64 2
  %nb = load i64, ptr %nb.at
  %sb.at = getelementptr i64, ptr %dims, i64 3
  %sb = load i64, ptr %sb.at
  %low = icmp slt i64 %n, 1
  %high = icmp sgt i64 %n, 2048
  %rest = and i64 %n, 7
  %odd = icmp ne i64 %rest, 0
  %out1 = or i1 %low, %high
  %out = or i1 %out1, %odd
  br i1 %out, label %contract, label %equal
contract:
  %r0 = call i32 @error(ptr %ctx, i64 0, i64 %n, i64 0)
  ret i32 %r0
equal:
  %differs = icmp ne i64 %nb, %n
  br i1 %differs, label %unequal, label %strides
unequal:
  %r1 = call i32 @error(ptr %ctx, i64 1, i64 %nb, i64 %n)
  ret i32 %r1
strides:
  %bad.a = icmp ne i64 %sa, 1
  br i1 %bad.a, label %stride.a, label %check.b
stride.a:
  %r2 = call i32 @error(ptr %ctx, i64 2, i64 %sa, i64 1)
  ret i32 %r2
check.b:
  %bad.b = icmp ne i64 %sb, 1
  br i1 %bad.b, label %stride.b, label %good
stride.b:
  %r3 = call i32 @error(ptr %ctx, i64 3, i64 %sb, i64 1)
  ret i32 %r3
good:
  %n.at = getelementptr i64, ptr %dims, i64 4
  store i64 %n, ptr %n.at
  %r = call i32 @size(ptr %ctx, ptr %buffers, ptr %dims)
  ret i32 %r
}

define internal i32 @body(ptr %ctx, ptr %buffers, i64 %b, i64 %e) {
entry:
  %pa = load ptr, ptr %buffers
  %pb.at = getelementptr ptr, ptr %buffers, i64 1
  %pb = load ptr, ptr %pb.at
  %py.at = getelementptr ptr, ptr %buffers, i64 2
  %py = load ptr, ptr %py.at
  %w = load ptr, ptr %ctx
  br label %next
next:
  %i = phi i64 [ %b, %entry ], [ %i1, %work ]
  %more = icmp slt i64 %i, %e
  br i1 %more, label %work, label %out
work:
  %a.at = getelementptr float, ptr %pa, i64 %i
  %a = load float, ptr %a.at
  %b.at = getelementptr float, ptr %pb, i64 %i
  %bv = load float, ptr %b.at
  %w.at = getelementptr float, ptr %w, i64 %i
  store float %a, ptr %w.at
  %a2 = load volatile float, ptr %w.at
  %s = fadd float %a2, %bv
  %y.at = getelementptr float, ptr %py, i64 %i
  store float %s, ptr %y.at
  %i1 = add i64 %i, 1
  br label %next
out:
  ret i32 0
}

define i32 @run(ptr %ctx, ptr %buffers, ptr %dims) {
  %n.at = getelementptr i64, ptr %dims, i64 4
  %n = load i64, ptr %n.at
  %small = icmp sle i64 %n, 512
  br i1 %small, label %alone, label %many
alone:
  %r = call i32 @body(ptr %ctx, ptr %buffers, i64 0, i64 %n)
  ret i32 %r
many:
  %for.at = getelementptr i8, ptr %ctx, i64 24
  %for = load ptr, ptr %for.at
  %q = call i32 %for(ptr %ctx, ptr @body, ptr %buffers, i64 %n, i64 512)
  ret i32 %q
}
"""
)


def add_package() -> Package:
    """y = a + b, checked by its own prepare."""
    place = Span("model.py", 3, 4, 9, "    y = a + b")
    return Package(
        compiled(_ADD, "prepare", "size", "run"),
        Interface(
            "add",
            (Input("a", "tensor", "f32", ("n",)), Input("b", "tensor", "f32", ("n",))),
            (Output("y", "f32", ("n",)),),
            (Symbol("n", 1, 2048, 8),),
            (
                Site("shape", "n = {0} is outside its contract n in 1..2048 step 8", "compile for a wider contract"),
                Site("shape", "argument `b`: dim 0 is {0}, expected n = {1}", "", place),
                Site("shape", "argument `a`: the stride of dim 0 is {0} elements, expected 1", "np.ascontiguousarray(a)"),
                Site("shape", "argument `b`: the stride of dim 0 is {0} elements, expected 1", "np.ascontiguousarray(b)"),
            ),
            workspace="4*n",
            workspace_max=8192,
            kernels=("add",),
        ),
    )


# State of i64 counters: dims: A = shape, stride, scalar; B none; C = shape; D. Each chunk of one element adds the scalar to
# its counter, or answers 2 where the counter is negative; with scalar 0 it runs until it is cancelled.
_COUNT = (
    ERROR
    + """
define i32 @size(ptr %ctx, ptr %buffers, ptr %dims) {
  ret i32 0
}

define i32 @prepare(ptr %ctx, ptr %buffers, ptr %dims) {
  %n = load i64, ptr %dims
  %c.at = getelementptr i64, ptr %dims, i64 3
  store i64 %n, ptr %c.at
  %d.at = getelementptr i64, ptr %dims, i64 4
  store i64 0, ptr %d.at
  ret i32 0
}

define internal i32 @body(ptr %ctx, ptr %env, i64 %b, i64 %e) {
entry:
  %state = load ptr, ptr %env
  %step.at = getelementptr i64, ptr %env, i64 1
  %step = load i64, ptr %step.at
  %at = getelementptr i64, ptr %state, i64 %b
  %forever = icmp eq i64 %step, 0
  br i1 %forever, label %spin, label %once
spin:
  %cancel.at = getelementptr i8, ptr %ctx, i64 40
  %cancel = load ptr, ptr %cancel.at
  %flag = load atomic i32, ptr %cancel monotonic, align 4
  %stop = icmp ne i32 %flag, 0
  br i1 %stop, label %cancelled, label %spin
cancelled:
  %code.at = getelementptr i8, ptr %ctx, i64 56
  %pair = cmpxchg ptr %code.at, i64 0, i64 1 seq_cst seq_cst
  ret i32 1
once:
  %old = load i64, ptr %at
  %bad = icmp slt i64 %old, 0
  br i1 %bad, label %fail, label %count
fail:
  %r = call i32 @error(ptr %ctx, i64 0, i64 %old, i64 0)
  ret i32 %r
count:
  %new = add i64 %old, %step
  store i64 %new, ptr %at
  ret i32 0
}

define i32 @run(ptr %ctx, ptr %buffers, ptr %dims) {
  %env = alloca [2 x i64]
  %state = load ptr, ptr %buffers
  store ptr %state, ptr %env
  %step.at = getelementptr i64, ptr %dims, i64 2
  %step = load i64, ptr %step.at
  %env.step = getelementptr i64, ptr %env, i64 1
  store i64 %step, ptr %env.step
  %n = load i64, ptr %dims
  %for.at = getelementptr i8, ptr %ctx, i64 24
  %for = load ptr, ptr %for.at
  %q = call i32 %for(ptr %ctx, ptr @body, ptr %env, i64 %n, i64 1)
  ret i32 %q
}
"""
)


def count_package() -> Package:
    """Adds a scalar to a state of counters, in parallel chunks of one; endless for scalar 0."""
    return Package(
        compiled(_COUNT, "prepare", "size", "run"),
        Interface(
            "count",
            (Input("state", "tensor", "i64", ("m",), consumed=True), Input("step", "scalar", "i64")),
            (Output("new_state", "i64", ("m",), alias=0),),
            sites=(Site("shape", "argument `state`: state >= 0 does not hold"),),
        ),
    )


# x: f64, scale: f64, state: i64, shift: i32, step: i64 -> y, state. dims: A = x.n, x.stride, state.n, state.stride, scale, shift, step;
# B none; C = y.n (7), state.n (8); D (9). buffers: x, state, y, state.
_MIXED = """
define i32 @size(ptr %ctx, ptr %buffers, ptr %dims) {
  ret i32 0
}

define i32 @prepare(ptr %ctx, ptr %buffers, ptr %dims) {
  %n = load i64, ptr %dims
  %y.at = getelementptr i64, ptr %dims, i64 7
  store i64 %n, ptr %y.at
  %state.at = getelementptr i64, ptr %dims, i64 8
  store i64 %n, ptr %state.at
  %d.at = getelementptr i64, ptr %dims, i64 9
  store i64 0, ptr %d.at
  ret i32 0
}

define i32 @run(ptr %ctx, ptr %buffers, ptr %dims) {
entry:
  %n = load i64, ptr %dims
  %x = load ptr, ptr %buffers
  %state.at = getelementptr ptr, ptr %buffers, i64 3
  %state = load ptr, ptr %state.at
  %y.at = getelementptr ptr, ptr %buffers, i64 2
  %y = load ptr, ptr %y.at
  %scale.at = getelementptr i64, ptr %dims, i64 4
  %scale = load double, ptr %scale.at
  %shift.at = getelementptr i64, ptr %dims, i64 5
  %shift = load i64, ptr %shift.at
  %shift.f = sitofp i64 %shift to double
  %step.at = getelementptr i64, ptr %dims, i64 6
  %step = load i64, ptr %step.at
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %work ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %work, label %out
work:
  %v.at = getelementptr double, ptr %x, i64 %i
  %v = load double, ptr %v.at
  %scaled = fmul double %v, %scale
  %shifted = fadd double %scaled, %shift.f
  %o.at = getelementptr double, ptr %y, i64 %i
  store double %shifted, ptr %o.at
  %s.at = getelementptr i64, ptr %state, i64 %i
  %old = load i64, ptr %s.at
  %new = add i64 %old, %step
  store i64 %new, ptr %s.at
  %i1 = add i64 %i, 1
  br label %next
out:
  ret i32 0
}
"""


def mixed_package() -> Package:
    """Tensors and scalars of several kinds, an output and a state."""
    return Package(
        compiled(_MIXED, "prepare", "size", "run"),
        Interface(
            "mixed",
            (
                Input("x", "tensor", "f64", ("n",)),
                Input("scale", "scalar", "f64"),
                Input("state", "tensor", "i64", ("n",), consumed=True),
                Input("shift", "scalar", "i32"),
                Input("step", "scalar", "i64"),
            ),
            (Output("y", "f64", ("n",)), Output("new_state", "i64", ("n",), alias=2)),
            parallel=False,
        ),
    )


# dims: A = n, stride; B = n (2); C = n (3); D (4); E = count (5). buffers: x, y, scale.
_POSITIVES = """
define i32 @size(ptr %ctx, ptr %buffers, ptr %dims) {
  %n.at = getelementptr i64, ptr %dims, i64 2
  %n = load i64, ptr %n.at
  %c.at = getelementptr i64, ptr %dims, i64 3
  store i64 %n, ptr %c.at
  %d.at = getelementptr i64, ptr %dims, i64 4
  store i64 0, ptr %d.at
  ret i32 0
}

define i32 @prepare(ptr %ctx, ptr %buffers, ptr %dims) {
  %n = load i64, ptr %dims
  %n.at = getelementptr i64, ptr %dims, i64 2
  store i64 %n, ptr %n.at
  %r = call i32 @size(ptr %ctx, ptr %buffers, ptr %dims)
  ret i32 %r
}

define i32 @run(ptr %ctx, ptr %buffers, ptr %dims) {
entry:
  %n = load i64, ptr %dims
  %stride.at = getelementptr i64, ptr %dims, i64 1
  %stride = load i64, ptr %stride.at
  %x = load ptr, ptr %buffers
  %y.at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y.at
  %scale.at = getelementptr ptr, ptr %buffers, i64 2
  %scale.p = load ptr, ptr %scale.at
  %scale = load float, ptr %scale.p
  %alloc.at = getelementptr i8, ptr %ctx, i64 16
  %alloc = load ptr, ptr %alloc.at
  %bytes = mul i64 %n, 4
  %scratch = call ptr %alloc(ptr %ctx, i64 %bytes)
  %refused = icmp eq ptr %scratch, null
  br i1 %refused, label %fail, label %next
fail:
  %code.at = getelementptr i8, ptr %ctx, i64 56
  store i64 3, ptr %code.at
  %value.at = getelementptr i8, ptr %ctx, i64 72
  store i64 %bytes, ptr %value.at
  ret i32 3
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %k = phi i64 [ 0, %entry ], [ %k2, %step ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %look, label %out
look:
  %at = mul i64 %i, %stride
  %v.at = getelementptr float, ptr %x, i64 %at
  %v = load float, ptr %v.at
  %s.at = getelementptr float, ptr %scratch, i64 %i
  %scaled = fmul float %v, %scale
  store volatile float %scaled, ptr %s.at
  %positive = fcmp ogt float %v, 0.0
  br i1 %positive, label %keep, label %step
keep:
  %s = load volatile float, ptr %s.at
  %o.at = getelementptr float, ptr %y, i64 %k
  store float %s, ptr %o.at
  %k1 = add i64 %k, 1
  br label %step
step:
  %k2 = phi i64 [ %k, %look ], [ %k1, %keep ]
  %i1 = add i64 %i, 1
  br label %next
out:
  %count.at = getelementptr i64, ptr %dims, i64 5
  store i64 %k, ptr %count.at
  ret i32 0
}
"""


def positives_package() -> Package:
    """The positive ones of x, scaled; serves any stride."""
    return Package(
        compiled(_POSITIVES, "prepare", "size", "run"),
        Interface(
            "positives",
            (Input("x", "tensor", "f32", ("n",)),),
            (Output("y", "f32", ("k",), counted_by=(0,)),),
            (Symbol("n"),),
            counts=("k",),
            constants=(Constant("scale", 4),),
            parallel=False,
        ),
    )
