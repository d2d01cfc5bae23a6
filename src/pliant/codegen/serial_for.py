"""`serial_for`: a `parallel_for` for embedders without threads, as LLVM IR for any target. It runs the chunks one after the other.

    blob = with_serial_for(package.blob, machine)       # exports `serial_for` beside `prepare`, `size` and `run`

Results do not depend on it: the chunks are the same, and each computes the same (docs/design/0001-abi.md).
"""

from __future__ import annotations

from ..runtime.blob import Blob
from ..target import Target
from .llvm_types import CANCELLED, ctx_layout

NAME = "serial_for"
_PAGE = 4096  # aarch64 addresses constants by page (adrp), so appended code must keep its offset in the page
_BAD_CALL = 4

_TEXT = """
declare i64 @llvm.smin.i64(i64, i64)

define {cc}i32 @serial_for(ptr %ctx, ptr %body, ptr %env, i64 %extent, i64 %grain) {{
entry:
  %at = getelementptr i8, ptr %ctx, i64 {cancel}
  %flag = load ptr, ptr %at, align {width}
  %bad = icmp slt i64 %grain, 1
  br i1 %bad, label %refuse, label %next
next:
  %begin = phi i64 [ 0, %entry ], [ %end, %chunk ]
  %more = icmp slt i64 %begin, %extent
  br i1 %more, label %look, label %done
look:
  %asked = load atomic i32, ptr %flag monotonic, align 4
  %cancelled = icmp ne i32 %asked, 0
  br i1 %cancelled, label %stop, label %chunk
chunk:
  %rest = sub i64 %extent, %begin
  %size = call i64 @llvm.smin.i64(i64 %rest, i64 %grain)
  %end = add i64 %begin, %size
  %code = call {cc}i32 %body(ptr %ctx, ptr %env, i64 %begin, i64 %end)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %fail, label %next
fail:
  ret i32 %code
refuse:
  br label %tell
stop:
  br label %tell
tell:
  %why = phi i64 [ {bad_call}, %refuse ], [ {cancelled}, %stop ]
  %error = getelementptr i8, ptr %ctx, i64 {error}
  %first = cmpxchg ptr %error, i64 0, i64 %why seq_cst seq_cst
  %short = trunc i64 %why to i32
  ret i32 %short
done:
  ret i32 0
}}
"""


def serial_for_text(target: Target) -> str:
    """Return the LLVM IR of `serial_for`, the single-threaded `parallel_for` of exported programs, for a target."""
    ctx = ctx_layout(target)
    cc = f"{target.call_conv} " if target.call_conv else ""
    numbers = {"cancel": ctx.cancel, "error": ctx.error, "width": target.pointer_bits // 8, "bad_call": _BAD_CALL, "cancelled": CANCELLED}
    return _TEXT.format(cc=cc, **numbers)


def with_serial_for(blob: Blob, target: Target) -> Blob:
    """Return the blob with the machine code of `serial_for` appended and exported."""
    from .emit import emit_object
    from .link_elf import link

    own = link(emit_object(serial_for_text(target), target), [NAME])
    at = len(blob.code) + -len(blob.code) % _PAGE
    code = blob.code + bytes(at - len(blob.code)) + own.code
    return Blob(code, {**blob.exports, NAME: at + own.exports[NAME]})
