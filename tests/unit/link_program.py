"""The program that the tests of both linkers link and run.

It has float and vector constants, a table, calls between functions, and a switch that becomes a jump table.
"""

PROGRAM = """
@table = internal constant [5 x i32] [i32 7, i32 -3, i32 100, i32 0, i32 42]
@bytes = internal constant [3 x i8] c"\\01\\02\\03"

define i32 @lookup(i32 %i) {
  %p = getelementptr [5 x i32], ptr @table, i32 0, i32 %i
  %v = load i32, ptr %p
  %w = call i32 @twice(i32 %v)
  ret i32 %w
}

define internal i32 @twice(i32 %x) noinline {
  %y = mul i32 %x, 2
  %q = getelementptr i8, ptr @bytes, i32 2
  %b = load volatile i8, ptr %q
  %e = zext i8 %b to i32
  %z = add i32 %y, %e
  ret i32 %z
}

define float @scale(float %x) {
  %y = fmul float %x, 0x3FD3333340000000
  %z = fadd float %y, 1.5
  ret float %z
}

define void @vector(ptr %p) {
  %v = load <4 x float>, ptr %p, align 4
  %w = fmul <4 x float> %v, <float 1.0, float 2.0, float 3.0, float -4.0>
  store <4 x float> %w, ptr %p, align 4
  ret void
}

define i32 @choose(i32 %x) {
entry:
  switch i32 %x, label %other [i32 0, label %a
                               i32 1, label %b
                               i32 2, label %c
                               i32 3, label %d
                               i32 4, label %e
                               i32 5, label %f]
a:
  %ra = call i32 @twice(i32 11)
  br label %done
b:
  %rb = call i32 @lookup(i32 0)
  br label %done
c:
  %rc = call i32 @lookup(i32 1)
  br label %done
d:
  %rd = sdiv i32 1000, %x
  br label %done
e:
  %re = xor i32 %x, 123
  br label %done
f:
  %rf = shl i32 %x, 10
  br label %done
other:
  br label %done
done:
  %r = phi i32 [%ra, %a], [%rb, %b], [%rc, %c], [%rd, %d], [%re, %e], [%rf, %f], [-1, %other]
  ret i32 %r
}
"""
EXPORTS = ["choose", "lookup", "scale", "vector"]
