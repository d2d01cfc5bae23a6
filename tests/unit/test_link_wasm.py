"""The linker of wasm objects: modules validate, run, and share memory and table with their host."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from link_program import EXPORTS, PROGRAM

from pliant.codegen.emit import emit_object
from pliant.codegen.link_elf import undefined_symbols
from pliant.codegen.link_wasm import link_wasm
from pliant.support.errors import InternalError
from pliant.target import target

wasmtime = pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
TARGETS = ("wasm", "wasm+simd128")


class Instance:
    """A module in wasmtime, its functions as Python functions."""

    def __init__(self, module: bytes) -> None:
        engine = wasmtime.Engine()
        self.store = wasmtime.Store(engine)
        self.exports = wasmtime.Instance(self.store, wasmtime.Module(engine, module), []).exports(self.store)
        self.memory = self.exports["memory"]
        self.heap = self.exports["__heap_base"].value(self.store)

    def __call__(self, name: str, *args: Any) -> Any:
        return self.exports[name](self.store, *args)

    def write(self, address: int, content: bytes) -> None:
        missing = address + len(content) - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing // 65536))
        self.memory.write(self.store, content, address)

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.memory.read(self.store, address, address + size))

    def add(self, function: Any, results: list[Any], args: list[Any]) -> int:
        """Put a Python function into the table; its place is what a function pointer holds."""
        made = wasmtime.Func(self.store, wasmtime.FuncType(args, results), function)
        return int(self.exports["table"].grow(self.store, 1, made))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_module_runs(name: str, level: int) -> None:
    wasm = Instance(link_wasm(emit_object(PROGRAM, target(name), level), EXPORTS))
    assert [wasm("lookup", i) for i in range(5)] == [2 * v + 3 for v in (7, -3, 100, 0, 42)]
    assert [wasm("choose", i) for i in range(7)] == [25, 17, -3, 333, 4 ^ 123, 5 << 10, -1]
    assert wasm("scale", 10.0) == pytest.approx(4.5)
    wasm.write(wasm.heap, struct.pack("<4f", 1, 1, 1, 0.5))
    wasm("vector", wasm.heap)
    assert struct.unpack("<4f", wasm.read(wasm.heap, 16)) == (1.0, 2.0, 3.0, -2.0)


SUM = """
define double @sum(ptr %p, i32 %n) {
entry:
  %some = icmp sgt i32 %n, 0
  br i1 %some, label %loop, label %done
loop:
  %i = phi i32 [0, %entry], [%j, %loop]
  %s = phi double [0.0, %entry], [%t, %loop]
  %q = getelementptr double, ptr %p, i32 %i
  %v = load double, ptr %q
  %t = fadd double %s, %v
  store double %t, ptr %q
  %j = add i32 %i, 1
  %c = icmp slt i32 %j, %n
  br i1 %c, label %loop, label %done
done:
  %r = phi double [0.0, %entry], [%t, %loop]
  ret double %r
}
"""


@pytest.mark.parametrize("name", TARGETS)
def test_loop_over_memory(name: str) -> None:
    wasm = Instance(link_wasm(emit_object(SUM, target(name)), ["sum"]))
    n = 20000  # more than the module's own first pages
    wasm.write(wasm.heap, struct.pack(f"<{n}d", *range(n)))
    assert wasm("sum", wasm.heap, n) == n * (n - 1) / 2
    assert struct.unpack("<3d", wasm.read(wasm.heap + 8 * 4, 24)) == (10.0, 15.0, 21.0)
    assert wasm("sum", wasm.heap, 0) == 0.0


INDIRECT = """
@numbers = internal constant [3 x i32] [i32 5, i32 6, i32 7]
@own = internal constant [2 x ptr] [ptr @square, ptr @negate]
@inside = internal constant ptr getelementptr ([3 x i32], ptr @numbers, i32 0, i32 2)

define internal i32 @square(ptr %ctx, i64 %x) {
  %y = trunc i64 %x to i32
  %z = mul i32 %y, %y
  ret i32 %z
}
define internal i32 @negate(ptr %ctx, i64 %x) {
  %y = trunc i64 %x to i32
  %z = sub i32 0, %y
  ret i32 %z
}
define i32 @through_ctx(ptr %ctx, i64 %x) {
  %s = alloca [16 x i64], align 16
  store volatile i64 %x, ptr %s
  %slot = getelementptr i8, ptr %ctx, i32 8
  %f = load ptr, ptr %slot
  %r = call i32 %f(ptr %s, i64 %x)
  %back = load volatile i64, ptr %s
  %b = trunc i64 %back to i32
  %t = add i32 %r, %b
  ret i32 %t
}
define i32 @through_own(i32 %which, i64 %x) {
  %p = getelementptr ptr, ptr @own, i32 %which
  %f = load ptr, ptr %p
  %r = call i32 %f(ptr null, i64 %x)
  ret i32 %r
}
define i32 @through_pointer() {
  %p = load volatile ptr, ptr @inside
  %v = load i32, ptr %p
  ret i32 %v
}
define i32 @deep(i32 %n) {
  %s = alloca [1000 x i32]
  store volatile i32 %n, ptr %s
  %m = add i32 %n, 1
  %r = call i32 @deep(i32 %m)
  %v = load volatile i32, ptr %s
  %t = add i32 %r, %v
  ret i32 %t
}
"""


@pytest.mark.parametrize("level", [0, 2])
def test_indirect_calls(level: int) -> None:
    """Function pointers reach functions of the module and of the host; the stack lies below the constants."""
    exports = ["through_ctx", "through_own", "through_pointer", "deep"]
    wasm = Instance(link_wasm(emit_object(INDIRECT, target("wasm"), level), exports, stack_bytes=65536))
    assert wasm("through_own", 0, 12) == 144
    assert wasm("through_own", 1, 12) == -12
    assert wasm("through_pointer") == 7

    seen: list[tuple[int, int]] = []

    def host(address: int, x: int) -> int:
        seen.append((address, x))
        wasm.write(address, struct.pack("<q", 1000))
        return 7

    slot = wasm.add(host, [wasmtime.ValType.i32()], [wasmtime.ValType.i32(), wasmtime.ValType.i64()])
    wasm.write(wasm.heap, struct.pack("<3I", 0, 0, slot))
    assert wasm("through_ctx", wasm.heap, 55) == 1007
    [(address, x)] = seen
    assert x == 55
    assert 0 < address < 65536
    with pytest.raises(wasmtime.Trap, match="out of bounds"):
        wasm("deep", 0)  # the stack overflows, and that traps instead of overwriting the constants
    assert wasm("through_own", 0, 3) == 9


def test_stack_size_is_the_callers() -> None:
    wasm = Instance(link_wasm(emit_object(INDIRECT, target("wasm")), ["through_own"], stack_bytes=300_001))
    assert wasm.heap >= 300_001
    assert wasm.heap % 64 == 0


def test_undefined_symbols_are_named() -> None:
    ir = "declare float @sinf(float)\ndefine float @f(float %x) {\n  %y = call float @sinf(float %x)\n  ret float %y\n}"
    code = emit_object(ir, target("wasm"))
    assert undefined_symbols(code) == ["sinf"]
    with pytest.raises(InternalError) as caught:
        link_wasm(code, ["f"])
    assert "`sinf`" in str(caught.value)
    assert undefined_symbols(emit_object(INDIRECT, target("wasm"))) == []


def test_writable_data_is_refused() -> None:
    ir = "@x = internal global i32 3\ndefine ptr @f() {\n  store i32 4, ptr @x\n  ret ptr @x\n}"
    with pytest.raises(InternalError, match=r"writable data, section \.data"):
        link_wasm(emit_object(ir, target("wasm"), 0), ["f"])


def test_missing_export_is_named() -> None:
    with pytest.raises(InternalError, match="`nothing`"):
        link_wasm(emit_object(SUM, target("wasm")), ["sum", "nothing"])


def test_damaged_objects_raise_only_internal_errors() -> None:
    code = emit_object(INDIRECT, target("wasm"))
    for at in range(len(code)):
        wild = bytearray(code)
        wild[at] ^= 0xFF
        for damaged in (code[:at], bytes(wild)):
            try:
                link_wasm(damaged, ["through_ctx"])
            except InternalError:
                continue
