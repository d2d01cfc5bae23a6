"""What the emitter promises for every object: exact floats, no library calls, the attributes of the platform."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from pliant.codegen.emit import emit_assembly, emit_object, optimize
from pliant.codegen.link_elf import undefined_symbols
from pliant.support.errors import InternalError
from pliant.target import target

TARGETS = ("llvm:x86-64-v2", "llvm:x86-64-v3", "llvm:znver4", "llvm:cortex-a76", "wasm", "wasm+simd128")
LEVELS = (0, 1, 2, 3)


def loop(name: str, body: str) -> str:
    """A function that runs `body` for %i in 0..n over float pointers %p and %s."""
    return f"""
define void @{name}(ptr noalias %p, ptr noalias %s, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %q = getelementptr float, ptr %p, i64 %i
  %r = getelementptr float, ptr %s, i64 %i
  {body}
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %n
  br i1 %c, label %loop, label %done
done:
  ret void
}}
"""


DIVISION = "128-bit division"
# Each is something that LLVM makes a library call of when left alone.
TEMPTATIONS = {
    "zero-filling loop": loop("f", "store float 0.0, ptr %q"),
    "pattern-filling loop": loop("f", "store float 1.5, ptr %q"),
    "copying loop": loop("f", "%v = load float, ptr %r\n  store float %v, ptr %q"),
    "struct copy": """
%big = type { [40 x i64] }
define void @f(ptr %p, ptr %s) {
  %v = load %big, ptr %s
  store %big %v, ptr %p
  ret void
}""",
    "array on the stack set to zero": """
define i64 @f(i64 %i) {
  %p = alloca [64 x i64]
  store [64 x i64] zeroinitializer, ptr %p
  %q = getelementptr i64, ptr %p, i64 %i
  %v = load i64, ptr %q
  ret i64 %v
}""",
    DIVISION: """
define void @f(ptr %p) {
  %a = load i128, ptr %p
  %q = getelementptr i128, ptr %p, i64 1
  %b = load i128, ptr %q
  %x = sdiv i128 %a, %b
  %y = urem i128 %a, %b
  %z = xor i128 %x, %y
  store i128 %z, ptr %p
  ret void
}""",
    "64-bit division and conversions": """
define double @f(i64 %a, i64 %b, float %x) {
  %d = sdiv i64 %a, %b
  %r = urem i64 %d, 10
  %u = uitofp i64 %r to double
  %t = fptosi float %x to i64
  %v = sitofp i64 %t to double
  %w = fadd double %u, %v
  ret double %w
}""",
    "square root, rounding, minimum": """
declare float @llvm.sqrt.f32(float)
declare float @llvm.floor.f32(float)
declare float @llvm.roundeven.f32(float)
declare float @llvm.fabs.f32(float)
define float @f(float %x) {
  %a = call float @llvm.sqrt.f32(float %x)
  %b = call float @llvm.floor.f32(float %a)
  %c = call float @llvm.roundeven.f32(float %b)
  %d = call float @llvm.fabs.f32(float %c)
  ret float %d
}""",
    "compare and swap": """
define i64 @f(ptr %p) {
  %r = cmpxchg ptr %p, i64 0, i64 5 acq_rel monotonic
  %v = extractvalue { i64, i1 } %r, 0
  %o = atomicrmw add ptr %p, i64 3 monotonic
  %t = add i64 %v, %o
  ret i64 %t
}""",
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", TARGETS)
def test_no_library_calls(name: str, level: int) -> None:
    found = {what: undefined_symbols(emit_object(ir, target(name), level)) for what, ir in TEMPTATIONS.items()}
    if name.startswith("wasm"):  # has no instructions for 128-bit integers at all, not even for shifts
        assert found.pop(DIVISION)
    assert {what: names for what, names in found.items() if names} == {}


def test_half_conversions_are_instructions() -> None:
    ir = "define float @f(half %x) {\n  %y = fpext half %x to float\n  ret float %y\n}"
    for name in TARGETS:
        machine = target(name)
        assert (undefined_symbols(emit_object(ir, machine)) == []) == machine.has_f16c


@pytest.mark.parametrize("name", ["llvm:x86-64-v3", "llvm:znver4", "llvm:cortex-a76"])
@pytest.mark.parametrize("width", ["float", "<4 x float>", "double"])
def test_no_contraction(name: str, width: str) -> None:
    """A product and a sum stay two instructions on machines that could fuse them, and fuse when asked."""
    separate = f"""
define {width} @f({width} %a, {width} %b, {width} %c) {{
  %v = fmul {width} %a, %b
  %w = fadd {width} %v, %c
  ret {width} %w
}}"""
    suffix = {"float": "f32", "double": "f64", "<4 x float>": "v4f32"}[width]
    fused = f"""
declare {width} @llvm.fma.{suffix}({width}, {width}, {width})
define {width} @f({width} %a, {width} %b, {width} %c) {{
  %w = call {width} @llvm.fma.{suffix}({width} %a, {width} %b, {width} %c)
  ret {width} %w
}}"""
    for level in LEVELS:
        text = emit_assembly(separate, target(name), level)
        assert "fmadd" not in text
        assert "fmla" not in text
        assert "mul" in text
        assert "add" in text
    text = emit_assembly(fused, target(name))
    assert "fmadd" in text or "fmla" in text


def test_loops_stay_as_written() -> None:
    ir = loop("f", "%v = load float, ptr %r\n  %w = fmul float %v, %v\n  store float %w, ptr %q")
    text = optimize(ir, target("llvm:x86-64-v3"), 3)
    assert "x float>" not in text
    assert text.count("fmul") == 1


def test_neighboring_scalars_stay_scalars() -> None:
    lines = [
        f"%p{i} = getelementptr float, ptr %p, i64 {i}\n  %v{i} = load float, ptr %p{i}\n"
        f"  %w{i} = fmul float %v{i}, %v{i}\n  store float %w{i}, ptr %p{i}"
        for i in range(4)
    ]
    ir = "define void @f(ptr %p) {\n  " + "\n  ".join(lines) + "\n  ret void\n}"
    assert "x float>" not in optimize(ir, target("llvm:x86-64-v3"), 3)


def test_windows_functions_keep_its_conventions() -> None:
    windows = dataclasses.replace(target("llvm:x86-64-v3"), call_conv="win64cc", probes_stack=True)
    ir = """
define win64cc i64 @first(i64 %a, i64 %b) {
  ret i64 %a
}
define i64 @large(i64 %i) {
  %s = alloca [4000 x i64]
  %q = getelementptr i64, ptr %s, i64 %i
  store volatile i64 %i, ptr %q
  %v = load volatile i64, ptr %s
  ret i64 %v
}"""
    text = emit_assembly(ir, windows)
    assert "movq\t%rcx, %rax" in text
    assert text.count("subq\t$4096, %rsp") >= 1  # the stack grows page by page
    assert "subq\t$4096, %rsp" not in emit_assembly(ir, target("llvm:x86-64-v3"))


def test_reserved_register_is_not_used() -> None:
    # Thirty values live across the loop need every register there is.
    n = 30
    places = "\n".join(f"  %p{i} = getelementptr i64, ptr %p, i64 {i}" for i in range(n))
    loads = "\n".join(f"  %v{i} = load volatile i64, ptr %p{i}" for i in range(n))
    stores = "\n".join(f"  store volatile i64 %v{i}, ptr %p{i}" for i in range(n))
    ir = f"define void @f(ptr %p) {{\n{places}\n{loads}\n{stores}\n  ret void\n}}"
    free = target("llvm:cortex-a76")
    reserved = dataclasses.replace(free, features=(*free.features, "reserve-x18"))
    assert "x18" in emit_assembly(ir, free)
    assert "x18" not in emit_assembly(ir, reserved)


def test_every_function_is_marked() -> None:
    """The marks that keep library calls away reach each header, and one in an unknown form is refused."""
    body = "  ret { i64, i1 } zeroinitializer\n}"
    headers = (
        "define { i64, i1 } @f() {",
        "  define internal { i64, i1 } @g()\n{",
        "define { i64, i1 } @h() align 64 {",
    )
    text = optimize("\n".join(f"{header}\n{body}" for header in headers), target("native"), 0)
    groups = {line.split("#")[1].split()[0] for line in text.splitlines() if line.startswith("define")}
    assert text.count("define") == 3
    assert all(f'attributes #{g} = {{ nounwind "no-builtins"' in text for g in groups)
    with pytest.raises(InternalError, match="header"):
        optimize("define void @f() { ret void }", target("native"), 0)


def test_bad_ir_is_our_fault() -> None:
    with pytest.raises(InternalError, match="LLVM refuses") as caught:
        emit_object("define i32 @f() {\n  ret i64 0\n}", target("native"))
    assert "please report it" in str(caught.value)


def test_llvm_is_loaded_only_to_emit() -> None:
    script = (
        "import sys\n"
        "from pliant.target import target\n"
        "from pliant.codegen import emit, link_elf, link_wasm\n"
        "target('native')\n"
        "assert not any(m.startswith('llvmlite') for m in sys.modules)\n"
        "emit.emit_object('define void @f() {\\n  ret void\\n}', target('native'))\n"
        "assert 'llvmlite' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
