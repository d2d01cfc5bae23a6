"""The lowest layer of the LLVM code generator: lines of text, and single operations on values of any number of lanes.

`Builder` knows nothing of expressions and statements, nor what a dtype means (`llvm_float.py` does). A scalar meets a vector
by being broadcast.

    b.binary("fadd", x, y)          # %v7 = fadd <8 x float> %v5, %v6
"""

from __future__ import annotations

from ..dtype import DType, bool_
from ..target import Target
from .llvm_types import Val, overload, register_type


class Declarations:
    """The intrinsics and helpers that a module uses, each declared once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.lines: dict[str, str] = {}

    def declare(self, name: str, result: str, parameters: str) -> None:
        """Note that the module uses an intrinsic."""
        if name not in self.lines:
            self.lines[name] = f"declare {result} @{name}({parameters})"


class Builder:
    """Text of one function: its entry block's allocations, its lines, and operations that append to them."""

    def __init__(self, declarations: Declarations) -> None:
        self.declarations = declarations
        self.target = declarations.target
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.label = "entry"
        self.form_bits = 0  # of the widest vector that a tensor instruction's form names
        self._next = 0

    # Lines and blocks.

    def name(self) -> str:
        """A fresh register name."""
        self._next += 1
        return f"%v{self._next}"

    def line(self, text: str) -> None:
        """Append an instruction that gives no value."""
        self.lines.append("  " + text)

    def raw(self, text: str) -> str:
        """Append an instruction; its register."""
        self._next += 1
        ref = f"%v{self._next}"
        self.lines.append(f"  {ref} = {text}")
        return ref

    def value(self, text: str, dtype: DType, lanes: int = 0) -> Val:
        """Append an instruction that gives a value of a dtype."""
        return Val(self.raw(text), dtype, lanes)

    def new_label(self, hint: str) -> str:
        """A fresh block label."""
        self._next += 1
        return f"{hint}{self._next}"

    def start_block(self, label: str) -> None:
        """Continue in the block `label`."""
        self.lines.append(f"{label}:")
        self.label = label

    def branch(self, label: str) -> None:
        """End the block with a jump."""
        self.line(f"br label %{label}")

    def branch_if(self, condition: Val, then: str, orelse: str, weights: str = "") -> None:
        """End the block with a choice."""
        self.line(f"br i1 {condition.ref}, label %{then}, label %{orelse}{weights}")

    def alloca(self, type_name: str, align: int) -> str:
        """Memory of the function's frame, allocated on entry."""
        self._next += 1
        ref = f"%m{self._next}"
        self.entry.append(f"  {ref} = alloca {type_name}, align {align}")
        return ref

    def offset(self, pointer: str, byte: int) -> str:
        """`pointer` plus constant bytes."""
        return self.raw(f"getelementptr i8, ptr {pointer}, i64 {byte}") if byte else pointer

    # Lanes.

    def splat(self, v: Val, lanes: int) -> Val:
        """`v` in every lane."""
        if v.lanes == lanes:
            return v
        if v.is_literal:
            return Val(f"splat ({v.typed})", v.dtype, lanes)
        wide = register_type(v.dtype, lanes)
        first = self.raw(f"insertelement {wide} poison, {v.typed}, i64 0")
        return self.value(f"shufflevector {wide} {first}, {wide} poison, <{lanes} x i32> zeroinitializer", v.dtype, lanes)

    def level(self, *values: Val) -> list[Val]:
        """The values with the same number of lanes, scalars broadcast."""
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values] if lanes else list(values)

    # Operations.

    def binary(self, op: str, a: Val, b: Val, dtype: DType | None = None) -> Val:
        """`op a, b`; the result has the operands' dtype unless said."""
        a, b = self.level(a, b)
        return self.value(f"{op} {a.type} {a.ref}, {b.ref}", dtype or a.dtype, a.lanes)

    def compare(self, op: str, a: Val, b: Val) -> Val:
        """`op` (icmp … or fcmp …) of two values."""
        return self.binary(op, a, b, bool_)

    def convert(self, op: str, a: Val, dtype: DType) -> Val:
        """A conversion instruction."""
        return self.value(f"{op} {a.typed} to {register_type(dtype, a.lanes)}", dtype, a.lanes)

    def select(self, c: Val, a: Val, b: Val) -> Val:
        """`a` where `c`, else `b`; both are there."""
        c, a, b = self.level(c, a, b) if c.lanes else (c, *self.level(a, b))
        return self.value(f"select {c.typed}, {a.typed}, {b.typed}", a.dtype, a.lanes)

    def not_(self, a: Val) -> Val:
        """The negation of a bool."""
        return self.binary("xor", a, Val("true", bool_))

    def intrinsic(self, name: str, operands: list[Val], dtype: DType | None = None, flags: str = "") -> Val:
        """A call of the intrinsic `llvm.<name>` overloaded on its first operand; `flags` are literal operands after them."""
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
        """An integer literal of the dtype of `like`."""
        return Val(str(number), like.dtype)

    def any_lane(self, mask: Val) -> Val:
        """Whether any lane of a mask is set."""
        halves = self.halves(mask)
        if halves:
            return self.any_lane(self.binary("or", *halves))
        bits = self.raw(f"bitcast {mask.typed} to i{mask.lanes}")
        return self.value(f"icmp ne i{mask.lanes} {bits}, 0", bool_)

    def halves(self, mask: Val) -> tuple[Val, Val] | tuple[()]:
        """The halves of a mask that LLVM cannot look at as a whole: wider ones than a register fail in its wasm part."""
        if self.target.kind != "wasm" or mask.lanes <= 16 or mask.lanes % 2:
            return ()
        return self.part(mask, 0, mask.lanes // 2), self.part(mask, mask.lanes // 2, mask.lanes // 2)

    def part(self, v: Val, begin: int, lanes: int) -> Val:
        """Some neighboring lanes of a vector."""
        return self.value(f"shufflevector {v.typed}, {v.type} poison, <{lanes} x i32> {places(begin, lanes)}", v.dtype, lanes)


def places(begin: int, count: int) -> str:
    """The operand of a shuffle that takes so many lanes from a place on."""
    return f"<{', '.join(f'i32 {n}' for n in range(begin, begin + count))}>"
