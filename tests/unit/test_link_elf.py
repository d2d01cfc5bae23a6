"""The linker of ELF objects: blobs run at any page (x86-64), patched instructions point where they should (aarch64)."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys

import pytest
from link_program import EXPORTS, PROGRAM

from pliant.codegen.emit import emit_object
from pliant.codegen.link_elf import link, undefined_symbols
from pliant.runtime.blob import load
from pliant.support.errors import InternalError
from pliant.target import target

on_x86 = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64") or sys.platform == "win32",
    reason="runs x86-64 code in the C convention",
)
X86 = "llvm:x86-64"
ARM = "llvm:cortex-a76"
LEVELS = (0, 1, 2, 3)


@on_x86
@pytest.mark.parametrize("level", LEVELS)
def test_blob_runs(level: int) -> None:
    loaded = load(link(emit_object(PROGRAM, target(X86), level), EXPORTS))
    lookup = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.address("lookup"))
    assert [lookup(i) for i in range(5)] == [2 * v + 3 for v in (7, -3, 100, 0, 42)]
    choose = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.address("choose"))
    assert [choose(i) for i in range(7)] == [25, 17, -3, 333, 4 ^ 123, 5 << 10, -1]
    scale = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(loaded.address("scale"))
    assert scale(10.0) == pytest.approx(4.5)
    numbers = (ctypes.c_float * 4)(1, 1, 1, 0.5)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address("vector"))(ctypes.addressof(numbers))
    assert list(numbers) == [1.0, 2.0, 3.0, -2.0]


@on_x86
def test_a_jump_table_was_there() -> None:
    # The test above means little for switches unless LLVM makes a table of distances in a section of its own.
    assert b".rela.rodata" in emit_object(PROGRAM, target(X86))


@on_x86
def test_global_offset_table_is_skipped() -> None:
    """Symbols of default visibility are reached through the table: loads, calls and jumps of it become direct."""
    ir = """
    @seen = constant i32 77
    define i32 @direct() nonlazybind noinline {
      %v = load volatile i32, ptr @seen
      ret i32 %v
    }
    define i32 @jumps() {
      %v = tail call i32 @direct()
      ret i32 %v
    }
    define i32 @calls() {
      %v = call i32 @direct()
      %w = add i32 %v, 1
      ret i32 %w
    }
    define ptr @address() {
      ret ptr @direct
    }
    """
    blob = link(emit_object(ir, target(X86)), ["jumps", "calls", "address", "direct"])
    loaded = load(blob)
    for name, expected in (("jumps", 77), ("calls", 78), ("direct", 77)):
        assert ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.address(name))() == expected
    assert ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded.address("address"))() == loaded.address("direct")
    assert b"\x67\xe8" in blob.code  # addr32 call, the psABI's replacement


CALLER = """
declare hidden i32 @callee(i32)
define i32 @caller(i32 %x) {
  %y = call i32 @callee(i32 %x)
  %z = add i32 %y, 1
  ret i32 %z
}"""
CALLEE = (
    "@k = internal constant [2 x i32] [i32 40, i32 500]\n"
    + """
define hidden i32 @callee(i32 %x) noinline {
  %p = getelementptr i32, ptr @k, i32 %x
  %v = load i32, ptr %p
  ret i32 %v
}"""
)


@on_x86
@pytest.mark.parametrize("order", [(CALLER, CALLEE), (CALLEE, CALLER)])
def test_objects_refer_to_each_other(order: tuple[str, str]) -> None:
    loaded = load(link([emit_object(ir, target(X86)) for ir in order], ["caller"]))
    caller = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.address("caller"))
    assert [caller(0), caller(1)] == [41, 501]


def test_objects_of_different_machines_are_refused() -> None:
    with pytest.raises(InternalError, match="machine"):
        link([emit_object(CALLER, target(X86)), emit_object(CALLEE, target(ARM))], ["caller"])


def test_undefined_symbol_is_named() -> None:
    ir = "declare float @sinf(float)\ndefine float @f(float %x) {\n  %y = call float @sinf(float %x)\n  ret float %y\n}"
    code = emit_object(ir, target(X86))
    assert undefined_symbols(code) == ["sinf"]
    with pytest.raises(InternalError, match="nobody defines") as caught:
        link(code, ["f"])
    assert "`sinf`" in str(caught.value)


@pytest.mark.parametrize(
    ("ir", "part"),
    [
        ("@x = internal global i32 3\ndefine ptr @f() {\n  store i32 4, ptr @x\n  ret ptr @x\n}", ".data"),
        ("@x = internal global i32 0\ndefine ptr @f() {\n  store i32 4, ptr @x\n  ret ptr @x\n}", ".bss"),
        ("@x = constant ptr @f\ndefine ptr @f() {\n  ret ptr @x\n}", ".data.rel.ro"),
    ],
)
@pytest.mark.parametrize("machine", [X86, ARM])
def test_writable_data_is_refused(ir: str, part: str, machine: str) -> None:
    with pytest.raises(InternalError, match=f"writable data, section {part}"):
        link(emit_object(ir, target(machine), 0), ["f"])


def test_missing_export_is_named() -> None:
    with pytest.raises(InternalError, match="`nothing`"):
        link(emit_object(PROGRAM, target(X86)), ["choose", "nothing"])


@pytest.mark.parametrize("machine", [X86, ARM])
def test_damaged_objects_are_refused(machine: str) -> None:
    """Cut anywhere, an object gives an InternalError or (cut after the last useful byte) the same blob."""
    code = emit_object(PROGRAM, target(machine))
    whole = link(code, EXPORTS)
    for end in range(0, len(code), 5):
        with pytest.raises(InternalError):
            link(code[:end], EXPORTS)
    assert link(code, EXPORTS) == whole


@pytest.mark.parametrize("machine", [X86, ARM])
def test_wild_objects_raise_only_internal_errors(machine: str) -> None:
    code = bytearray(emit_object(PROGRAM, target(machine)))
    for at in range(len(code)):
        wild = bytearray(code)
        wild[at] ^= 0xFF
        try:
            link(bytes(wild), EXPORTS)
        except InternalError:
            continue


# aarch64: the patched bits, computed here from the architecture manual's encodings.

ARM_PROGRAM = """
@pad = internal constant { [70000 x i8], i64 } { [70000 x i8] zeroinitializer, i64 81985529216486895 }
@words = internal constant [4 x i64] [i64 1, i64 2, i64 3, i64 4]
@outside = constant i32 9

define ptr @address() {
  ret ptr @words
}
define ptr @got() {
  ret ptr @outside
}
define i64 @load() {
  %v = load volatile i64, ptr getelementptr ([4 x i64], ptr @words, i64 0, i64 3)
  ret i64 %v
}
define i32 @far(i32 %i) {
  %p = getelementptr i8, ptr @pad, i32 %i
  %v = load i8, ptr %p
  %e = zext i8 %v to i32
  ret i32 %e
}
define <4 x i32> @vector(<4 x i32> %x) {
  %y = mul <4 x i32> %x, <i32 3, i32 5, i32 7, i32 11>
  ret <4 x i32> %y
}
define i32 @tail(i32 %i) {
  %v = tail call i32 @callee(i32 %i)
  ret i32 %v
}
define i32 @calls(i32 %i) {
  %v = call i32 @callee(i32 %i)
  %w = add i32 %v, 1
  ret i32 %w
}
define internal i32 @callee(i32 %i) noinline {
  %v = mul i32 %i, %i
  ret i32 %v
}
"""
ARM_EXPORTS = ["address", "calls", "far", "got", "load", "tail", "vector"]


def _word(code: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", code, at)[0])


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _page_and_rest(code: bytes, at: int) -> tuple[int, int]:
    """The address that the `adrp` at or after `at` and the instruction with its low bits, next to it, make together."""
    while _word(code, at) & 0x9F000000 != 0x90000000:
        at += 4
    adrp, second = _word(code, at), _word(code, at + 4)
    pages = _signed((adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3, 21)
    if second & 0xFF000000 == 0x91000000:  # add (64-bit, immediate)
        scale = 1
    elif second & 0x3F000000 == 0x3D000000:  # ldr q, unsigned offset
        scale = 16
    else:
        assert second & 0xFFC00000 == 0xF9400000, hex(second)  # ldr x, unsigned offset
        scale = 8
    return (at & ~0xFFF) + pages * 4096, (second >> 10 & 0xFFF) * scale


@pytest.fixture(scope="module")
def arm_blob() -> tuple[bytes, dict[str, int]]:
    blob = link(emit_object(ARM_PROGRAM, target(ARM)), ARM_EXPORTS)
    return blob.code, blob.exports


def test_aarch64_addresses_of_constants(arm_blob: tuple[bytes, dict[str, int]]) -> None:
    code, exports = arm_blob
    words = struct.pack("<4Q", 1, 2, 3, 4)
    assert sum(_page_and_rest(code, exports["address"])) == code.index(words)
    assert sum(_page_and_rest(code, exports["load"])) == code.index(words) + 24
    vector = struct.pack("<4I", 3, 5, 7, 11)
    assert sum(_page_and_rest(code, exports["vector"])) == code.index(vector)
    pad = sum(_page_and_rest(code, exports["far"]))
    assert code[pad : pad + 70008] == bytes(70000) + (0x0123456789ABCDEF).to_bytes(8, "little")
    assert code.index(words) > 70000  # so that distances of more than a page were tested


def test_aarch64_table_is_skipped(arm_blob: tuple[bytes, dict[str, int]]) -> None:
    code, exports = arm_blob
    place = sum(_page_and_rest(code, exports["got"]))
    assert _word(code, place) == 9
    assert _word(code, exports["got"] + 4) & 0xFFC00000 == 0x91000000  # was ldr, is add


def test_aarch64_branches(arm_blob: tuple[bytes, dict[str, int]]) -> None:
    code, exports = arm_blob
    multiply = struct.pack("<2I", 0x1B007C00, 0xD65F03C0)  # mul w0, w0, w0; ret
    callee = code.index(multiply)
    for name, opcode in (("tail", 0x14000000), ("calls", 0x94000000)):
        at = exports[name]
        while _word(code, at) & 0xFC000000 != opcode:
            at += 4
        assert at + 4 * _signed(_word(code, at) & 0x3FFFFFF, 26) == callee


def test_aarch64_has_no_undefined_symbols() -> None:
    for level in LEVELS:
        for program in (PROGRAM, ARM_PROGRAM):
            assert undefined_symbols(emit_object(program, target(ARM), level)) == []
        link(emit_object(PROGRAM, target(ARM), level), EXPORTS)
