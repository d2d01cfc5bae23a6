"""The lowest layer of the LLVM code generator: appends lines of LLVM IR, and single operations on scalars and vectors.

`Builder` knows nothing about expressions, statements, and the meaning of dtypes (`llvm_float.py` does). An operation on a scalar and a
vector broadcasts the scalar.

    b.binary("fadd", x, y)          # %v7 = fadd <8 x float> %v5, %v6
"""

from __future__ import annotations

from ..dtype import DType, bool_
from ..target import Target
from .llvm_types import Val, overload, register_type


class Declarations:
    """The declarations of intrinsics and helper functions in an LLVM module, each once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.lines: dict[str, str] = {}

    def declare(self, name: str, result: str, parameters: str) -> None:
        """Add the declaration of an intrinsic to the module, unless it has it."""
        if name not in self.lines:
            self.lines[name] = f"declare {result} @{name}({parameters})"


class Builder:
    """Collects the LLVM text of one function: the allocations of its entry block, and its instructions."""

    def __init__(self, declarations: Declarations) -> None:
        self.declarations = declarations
        self.target = declarations.target
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.label = "entry"
        self.form_bits = 0  # width in bits of the widest vector in a tensor instruction's form
        self._next = 0

    # Lines and blocks.

    def name(self) -> str:
        """Return a new LLVM register name."""
        self._next += 1
        return f"%v{self._next}"

    def line(self, text: str) -> None:
        """Append an LLVM instruction without a result."""
        self.lines.append("  " + text)

    def raw(self, text: str) -> str:
        """Append an LLVM instruction; returns the name of its result register."""
        self._next += 1
        ref = f"%v{self._next}"
        self.lines.append(f"  {ref} = {text}")
        return ref

    def value(self, text: str, dtype: DType, lanes: int = 0) -> Val:
        """Append an LLVM instruction; returns its result as a value of a dtype."""
        return Val(self.raw(text), dtype, lanes)

    def new_label(self, hint: str) -> str:
        """Return a new label of a basic block."""
        self._next += 1
        return f"{hint}{self._next}"

    def start_block(self, label: str) -> None:
        """Begin the basic block `label`."""
        self.lines.append(f"{label}:")
        self.label = label

    def branch(self, label: str) -> None:
        """End the basic block with a branch to `label`."""
        self.line(f"br label %{label}")

    def branch_if(self, condition: Val, then: str, orelse: str, weights: str = "") -> None:
        """End the basic block with a conditional branch."""
        self.line(f"br i1 {condition.ref}, label %{then}, label %{orelse}{weights}")

    def alloca(self, type_name: str, align: int) -> str:
        """Allocate stack memory in the entry block; returns its pointer."""
        self._next += 1
        ref = f"%m{self._next}"
        self.entry.append(f"  {ref} = alloca {type_name}, align {align}")
        return ref

    def offset(self, pointer: str, byte: int) -> str:
        """Emit the address `pointer` plus a constant number of bytes."""
        return self.raw(f"getelementptr i8, ptr {pointer}, i64 {byte}") if byte else pointer

    # Lanes.

    def splat(self, v: Val, lanes: int) -> Val:
        """Broadcast a scalar to a vector of `lanes` lanes; a vector of that many lanes is returned as it is."""
        if v.lanes == lanes:
            return v
        if v.is_literal:
            return Val(f"splat ({v.typed})", v.dtype, lanes)
        wide = register_type(v.dtype, lanes)
        first = self.raw(f"insertelement {wide} poison, {v.typed}, i64 0")
        return self.value(f"shufflevector {wide} {first}, {wide} poison, <{lanes} x i32> zeroinitializer", v.dtype, lanes)

    def level(self, *values: Val) -> list[Val]:
        """Broadcast scalars among the values so that all have the same number of lanes; return them in order. All scalars stay scalars."""
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values] if lanes else list(values)

    # Operations.

    def binary(self, op: str, a: Val, b: Val, dtype: DType | None = None) -> Val:
        """Emit `op a, b`; the result has the operands' dtype unless `dtype` is given."""
        a, b = self.level(a, b)
        return self.value(f"{op} {a.type} {a.ref}, {b.ref}", dtype or a.dtype, a.lanes)

    def compare(self, op: str, a: Val, b: Val) -> Val:
        """Emit a comparison (`icmp …` or `fcmp …`)."""
        return self.binary(op, a, b, bool_)

    def convert(self, op: str, a: Val, dtype: DType) -> Val:
        """Emit a conversion instruction (`zext`, `trunc`, `bitcast`, …) to another dtype."""
        return self.value(f"{op} {a.typed} to {register_type(dtype, a.lanes)}", dtype, a.lanes)

    def select(self, c: Val, a: Val, b: Val) -> Val:
        """Emit a select: `a` if `c`, else `b`; both are evaluated."""
        c, a, b = self.level(c, a, b) if c.lanes else (c, *self.level(a, b))
        return self.value(f"select {c.typed}, {a.typed}, {b.typed}", a.dtype, a.lanes)

    def not_(self, a: Val) -> Val:
        """Emit the negation of a bool."""
        return self.binary("xor", a, Val("true", bool_))

    def intrinsic(self, name: str, operands: list[Val], dtype: DType | None = None, flags: str = "") -> Val:
        """Call the intrinsic `llvm.<name>`, overloaded on its first operand; `flags` is a literal last operand."""
        operands = self.level(*operands)
        first = operands[0]
        result = dtype or first.dtype
        result_type = register_type(result, first.lanes)
        full = (
            f"llvm.{name}.{overload(result_type)}"
            if result_type == first.type
            else f"llvm.{name}.{overload(result_type)}.{overload(first.type)}"
        )
        types = ", ".join([v.type for v in operands] + (["i1"] if flags else []))
        self.declarations.declare(full, result_type, types)
        args = ", ".join([v.typed for v in operands] + ([flags] if flags else []))
        return self.value(f"call {result_type} @{full}({args})", result, first.lanes)

    def int_(self, number: int, like: Val) -> Val:
        """Return an integer literal in the dtype of `like`."""
        return Val(str(number), like.dtype)

    def any_lane(self, mask: Val) -> Val:
        """Emit a bool: true if any lane of a mask is set."""
        halves = self.halves(mask)
        if halves:
            return self.any_lane(self.binary("or", *halves))
        bits = self.raw(f"bitcast {mask.typed} to i{mask.lanes}")
        return self.value(f"icmp ne i{mask.lanes} {bits}, 0", bool_)

    def halves(self, mask: Val) -> tuple[Val, Val] | tuple[()]:
        """Split a mask wider than a register for wasm, where LLVM fails on such masks; returns () if it need not be split."""
        if self.target.arch != "wasm32" or mask.lanes <= 16 or mask.lanes % 2:
            return ()
        return self.part(mask, 0, mask.lanes // 2), self.part(mask, mask.lanes // 2, mask.lanes // 2)

    def part(self, v: Val, begin: int, lanes: int) -> Val:
        """Extract `lanes` neighboring lanes of a vector."""
        return self.value(f"shufflevector {v.typed}, {v.type} poison, <{lanes} x i32> {places(begin, lanes)}", v.dtype, lanes)


def places(begin: int, count: int) -> str:
    """Return the mask of a shuffle that takes `count` lanes from lane `begin` on."""
    return f"<{', '.join(f'i32 {n}' for n in range(begin, begin + count))}>"
