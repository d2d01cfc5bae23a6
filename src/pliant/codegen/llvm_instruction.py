"""LLVM code generation for tensor instructions: loads the operands as whole vectors, emits the form, stores the result.

    for j in vector(4, instruction="mine.dot"):     ->     %c = load <4 x i32>, ptr …
        c[i, j] += …                                       %r = call <4 x i32> @llvm.…(<4 x i32> %c, …)
                                                           store <4 x i32> %r, ptr …

An operand in a register buffer is read from its rows, so that accumulators stay in registers from one instruction to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loop.buffer import Buffer
from ..loop.stmt import For
from ..sym.expr import Const
from ..target.instructions import Instruction
from .instruction_sites import Place, instruction_at, places_of
from .llvm_form import bits_of, call_of, lines_of, operands_in, substituted, widest
from .llvm_types import memory_type

if TYPE_CHECKING:
    from .llvm_memory import Memory


def emit_instruction(b: Memory, s: For) -> bool:
    """Emit the instruction that a loop is marked with; returns False if the loop must be emitted as a loop."""
    instruction = instruction_at(s, b.target)
    if instruction is None or not instruction.llvm or b.lanes:
        return False
    places = places_of(s, instruction, b.flat)
    if places is None or any(p.buffer.scope == "register" and any(p.start) for p in places):
        return False
    result = _result(b, instruction, {p.parameter.name: p for p in places})
    b.loads.clear()
    _store(b, next(p for p in places if p.written), result)
    return True


def _result(b: Memory, instruction: Instruction, places: dict[str, Place]) -> str:
    """Emit the lines of a form; returns the last value, as the vector that is stored."""
    lines = lines_of(instruction.llvm)
    used = {name for line in lines for name, _ in operands_in(line.text)}
    whole = {name: _load(b, p) for name, p in places.items() if name in used}
    b.form_bits = max([b.form_bits, *(widest(line.text) for line in lines)])
    values: dict[str, str] = {}
    ref = ""
    for line in lines:
        operands = {(n, t): _as_type(b, whole[n], _vector(places[n].parameter), t) for n, t in operands_in(line.text)}
        call = call_of(line.text)
        if call is not None:
            b.declarations.declare(call.name, call.result, call.arguments)
        ref = b.raw(substituted(line.text, operands, values))
        if line.name:
            values[line.name] = ref
        elif call is not None:
            written = next(p for p in places.values() if p.written)
            ref = _as_type(b, ref, call.result, _vector(written.parameter))
    return ref


def size_of(parameter: Buffer) -> int:
    """Return the number of elements of an instruction's parameter, whose shape is constant."""
    size = 1
    for e in parameter.shape:
        assert isinstance(e, Const)
        size *= int(e.value)
    return size


def _vector(parameter: Buffer) -> str:
    return memory_type(parameter.dtype, size_of(parameter))


def _as_type(b: Memory, ref: str, have: str, want: str) -> str:
    """Convert a value to another type: a bitcast, after repeating it if the type is wider."""
    if want in ("", have):
        return ref
    times = (bits_of(want) or 0) // (bits_of(have) or 1)
    if times > 1:
        lanes = int(have[1:].split(" ")[0])
        order = ", ".join(f"i32 {n % lanes}" for n in range(times * lanes))
        wide = f"<{times * lanes} x {have.partition(' x ')[2]}"
        ref, have = b.raw(f"shufflevector {have} {ref}, {have} poison, <{times * lanes} x i32> <{order}>"), wide
    return ref if have == want else b.raw(f"bitcast {have} {ref} to {want}")


# Operands in memory and in registers.


def _load(b: Memory, p: Place) -> str:
    if p.buffer.scope != "register":
        return b.raw(f"load {_vector(p.parameter)}, ptr {b.address(p.buffer, p.start)}, align {p.buffer.dtype.itemsize}")
    parts = []
    for pointer, count in _rows(b, p):
        parts.append((b.raw(f"load {memory_type(p.buffer.dtype, count)}, ptr {pointer}, align {p.buffer.dtype.itemsize}"), count))
    ref, lanes = parts[0]
    for other, count in parts[1:]:
        ref, lanes = _joined(b, p, (ref, lanes), (other, count)), lanes + count
    return ref


def _joined(b: Memory, p: Place, left: tuple[str, int], right: tuple[str, int]) -> str:
    """Concatenate two vectors; a shuffle takes operands of one type, so the shorter one is widened first."""
    wide = max(left[1], right[1])
    refs = []
    for ref, count in (left, right):
        order = ", ".join(f"i32 {n}" if n < count else "i32 poison" for n in range(wide))
        have = memory_type(p.buffer.dtype, count)
        refs.append(ref if count == wide else b.raw(f"shufflevector {have} {ref}, {have} poison, <{wide} x i32> <{order}>"))
    order = ", ".join(f"i32 {n}" for n in (*range(left[1]), *range(wide, wide + right[1])))
    have = memory_type(p.buffer.dtype, wide)
    return b.raw(f"shufflevector {have} {refs[0]}, {have} {refs[1]}, <{left[1] + right[1]} x i32> <{order}>")


def _store(b: Memory, p: Place, ref: str) -> None:
    if p.buffer.scope != "register":
        b.line(f"store {_vector(p.parameter)} {ref}, ptr {b.address(p.buffer, p.start)}, align {p.buffer.dtype.itemsize}")
        return
    b.register_writes[p.buffer] = b.register_writes.get(p.buffer, 0) + 1
    begin, total = 0, size_of(p.parameter)
    for pointer, count in _rows(b, p):
        part, have = memory_type(p.buffer.dtype, count), _vector(p.parameter)
        order = ", ".join(f"i32 {n}" for n in range(begin, begin + count))
        taken = ref if count == total else b.raw(f"shufflevector {have} {ref}, {have} poison, <{count} x i32> <{order}>")
        b.line(f"store {part} {taken}, ptr {pointer}, align {p.buffer.dtype.itemsize}")
        begin += count


def _rows(b: Memory, p: Place) -> list[tuple[str, int]]:
    """Return a pointer and a number of elements for each row of a register buffer that an operand covers."""
    shape = [int(e.value) for e in p.buffer.shape if isinstance(e, Const)]
    width = shape[-1]
    at, left = p.start.get((), 0), size_of(p.parameter)
    rows: list[tuple[str, int]] = []
    while left:
        row, first = divmod(at, width)
        count = min(left, width - first)
        lead: list[int] = []
        for extent in reversed(shape[:-1]):
            row, index = divmod(row, extent)
            lead.insert(0, index)
        rows.append((b.register_row(p.buffer, tuple(lead), first, count), count))
        at, left = at + count, left - count
    return rows
