"""The lowest layer of the LLVM code generator: lines of text, and single operations on values of any number of lanes.

`Builder` knows nothing of expressions and statements. A scalar meets a vector by being broadcast. Everything that a target
cannot do with an instruction is made of ones it has (conversions of half floats, fma, rounding), because emitted code calls
nobody.

    b.binary("fadd", x, y)          # %v7 = fadd <8 x float> %v5, %v6
"""

from __future__ import annotations

from ..dtype import DType, bf16, bool_, f16, f32, f64, i64, u16, u32, u64
from ..target import Target
from .llvm_types import HALVES, Val, float_literal, overload, register_type


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
        bits = self.raw(f"bitcast {mask.typed} to i{mask.lanes}")
        return self.value(f"icmp ne i{mask.lanes} {bits}, 0", bool_)

    # Half floats: bits in registers, arithmetic in f32.

    def widen(self, a: Val) -> Val:
        """An f16 or bf16 value as f32 (exact)."""
        if a.dtype is bf16:
            bits = self.binary("shl", self.convert("zext", Val(a.ref, u16, a.lanes), u32), Val("16", u32))
            return self.convert("bitcast", bits, f32)
        if self.target.has_f16c:
            half = _half(a.lanes)
            bits_ref = self.raw(f"bitcast {a.typed} to {half}")
            return self.value(f"fpext {half} {bits_ref} to {register_type(f32, a.lanes)}", f32, a.lanes)
        x = self.convert("zext", Val(a.ref, u16, a.lanes), u32)
        magnitude = self.binary("shl", self.binary("and", x, Val("32767", u32)), Val("13", u32))
        exponent = self.binary("and", magnitude, Val(str(0x7C00 << 13), u32))
        normal = self.binary("add", magnitude, Val(str(112 << 23), u32))
        special = self.binary("add", magnitude, Val(str(224 << 23), u32))
        # A denormal becomes a number by giving it an exponent and subtracting that again.
        raised = self.convert("bitcast", self.binary("add", magnitude, Val(str(113 << 23), u32)), f32)
        small = self.convert("bitcast", self.binary("fsub", raised, Val(float_literal(2.0**-14), f32)), u32)
        bits = self.select(self.compare("icmp eq", exponent, Val(str(0x7C00 << 13), u32)), special, normal)
        bits = self.select(self.compare("icmp eq", exponent, Val("0", u32)), small, bits)
        sign = self.binary("shl", self.binary("and", x, Val("32768", u32)), Val("16", u32))
        return self.convert("bitcast", self.binary("or", bits, sign), f32)

    def narrow(self, a: Val, dtype: DType) -> Val:
        """An f32 value rounded to f16 or bf16."""
        bits = self.convert("bitcast", a, u32)
        if dtype is bf16:
            odd = self.binary("and", self.binary("lshr", bits, Val("16", u32)), Val("1", u32))
            rounded = self.binary("lshr", self.binary("add", self.binary("add", bits, Val("32767", u32)), odd), Val("16", u32))
            chosen = self.select(self.compare("fcmp uno", a, a), Val(str(0x7FC0), u32), rounded)
            return self.convert("trunc", chosen, dtype)
        if self.target.has_f16c:
            half = _half(a.lanes)
            ref = self.raw(f"fptrunc {a.typed} to {half}")
            return self.value(f"bitcast {half} {ref} to {register_type(f16, a.lanes)}", f16, a.lanes)
        magnitude = self.binary("and", bits, Val(str(0x7FFFFFFF), u32))
        nan = self.compare("icmp ugt", magnitude, Val(str(0x7F800000), u32))
        large = self.select(nan, Val(str(0x7E00), u32), Val(str(0x7C00), u32))
        # Below the least normal f16 an addition of 0.5 does the rounding at the right bit.
        sum_ = self.binary("fadd", self.convert("bitcast", magnitude, f32), Val(float_literal(0.5), f32))
        small = self.binary("sub", self.convert("bitcast", sum_, u32), Val(str(126 << 23), u32))
        odd = self.binary("and", self.binary("lshr", magnitude, Val("13", u32)), Val("1", u32))
        bias = (((15 - 127) << 23) + 0xFFF) % 2**32
        shifted = self.binary("add", self.binary("add", magnitude, Val(str(bias), u32)), odd)
        normal = self.binary("lshr", shifted, Val("13", u32))
        result = self.select(self.compare("icmp ult", magnitude, Val(str(113 << 23), u32)), small, normal)
        result = self.select(self.compare("icmp uge", magnitude, Val(str(143 << 23), u32)), large, result)
        sign = self.binary("and", self.binary("lshr", bits, Val("16", u32)), Val("32768", u32))
        return self.convert("trunc", self.binary("or", result, sign), dtype)

    def odd_f32(self, a: Val) -> Val:
        """An f64 value rounded to odd in f32: rounding that once more to fewer bits is a single rounding of the f64."""
        near = self.convert("fptrunc", a, f32)
        back = self.convert("fpext", near, f64)
        bits = self.convert("bitcast", near, u32)
        inexact = self.compare("fcmp one", back, a)
        even = self.compare("icmp eq", self.binary("and", bits, Val("1", u32)), Val("0", u32))
        beyond = self.compare("fcmp ogt", self.intrinsic("fabs", [back]), self.intrinsic("fabs", [a]))
        moved = self.binary("add", bits, self.select(beyond, Val("-1", u32), Val("1", u32)))
        return self.convert("bitcast", self.select(self.binary("and", inexact, even), moved, bits), f32)

    # Casts.

    def cast(self, a: Val, to: DType) -> Val:
        """The value `a` in another dtype, as `sym/expr.py` defines it."""
        if a.dtype is to:
            return a
        if a.dtype in HALVES:
            return self.cast(self.widen(a), to)
        if to in HALVES:
            return self._to_half(a, to)
        if to is bool_:
            if a.dtype.is_float:
                return self.compare("fcmp une", a, Val(float_literal(0.0), a.dtype))
            return self.compare("icmp ne", a, Val("0", a.dtype))
        if a.dtype.is_float:
            if to.is_float:
                return self.convert("fpext" if to is f64 else "fptrunc", a, to)
            return self.intrinsic("fptosi.sat" if to.kind == "i" else "fptoui.sat", [a], to)
        if to.is_float:
            return self.convert("sitofp" if a.dtype.kind == "i" else "uitofp", a, to)
        if a.dtype is not bool_ and to.bits <= a.dtype.bits:
            return self.convert("trunc", a, to) if to.bits < a.dtype.bits else Val(a.ref, to, a.lanes)
        return self.convert("sext" if a.dtype.kind == "i" else "zext", a, to)

    def _to_half(self, a: Val, to: DType) -> Val:
        if a.dtype is f32:
            return self.narrow(a, to)
        if a.dtype is f64:
            return self.narrow(self.odd_f32(a), to)
        if a.dtype is bool_ or a.dtype.bits <= 16 or to is f16:
            # f32 holds every integer that f16 does not take to infinity.
            return self.narrow(self.cast(a, f32), to)
        if a.dtype.bits == 64:
            a = self._sticky(a)
        return self.narrow(self.odd_f32(self.cast(a, f64)), to)

    def _sticky(self, a: Val) -> Val:
        """A 64-bit integer with few enough digits for f64, which rounds to bf16 as `a` does: lost digits leave a 1 below."""
        low = self.compare("icmp ne", self.binary("and", a, Val("4095", a.dtype)), Val("0", a.dtype))
        coarse = self.binary("and", a, Val("-4096", a.dtype))
        marked = self.select(low, self.binary("or", coarse, Val("4096", a.dtype)), coarse)
        if a.dtype is i64:
            small = self.compare("icmp ult", self.binary("add", a, Val(str(2**32), i64)), Val(str(2**33), i64))
        else:
            small = self.compare("icmp ult", a, Val(str(2**32), a.dtype))
        return self.select(small, a, marked)

    # Fused multiply-add.

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        """a * b + c with one rounding (two for half types: f32's, then their own)."""
        if a.dtype in HALVES:
            return self.narrow(self.fma(self.widen(a), self.widen(b), self.widen(c)), a.dtype)
        if self.target.has_fma:
            return self.intrinsic("fma", [a, b, c])
        if a.dtype is f64:
            from .llvm_fma import fma64

            a, b, c = self.level(a, b, c)
            return self.value(f"call {a.type} {fma64(self.declarations, a.lanes)}({a.typed}, {b.typed}, {c.typed})", f64, a.lanes)
        p = self.binary("fmul", self.convert("fpext", a, f64), self.convert("fpext", b, f64))  # exact: 24 + 24 bits
        d = self.convert("fpext", c, f64)
        s = self.binary("fadd", p, d)
        t = self.binary("fsub", s, p)
        error = self.binary("fadd", self.binary("fsub", p, self.binary("fsub", s, t)), self.binary("fsub", d, t))
        zero = Val(float_literal(0.0), f64)
        bits = self.convert("bitcast", s, u64)
        inexact = self.compare("fcmp one", error, zero)
        even = self.compare("icmp eq", self.binary("and", bits, Val("1", u64)), Val("0", u64))
        outward = self.compare("icmp eq", self.compare("fcmp ogt", error, zero), self.compare("fcmp ogt", s, zero))
        moved = self.binary("add", bits, self.select(outward, Val("1", u64), Val("-1", u64)))
        odd = self.select(self.binary("and", inexact, even), moved, bits)
        return self.convert("fptrunc", self.convert("bitcast", odd, f64), f32)

    def extract(self, v: Val, lane: int) -> Val:
        """One lane of a vector."""
        return self.value(f"extractelement {v.typed}, i64 {lane}", v.dtype)


def _half(lanes: int) -> str:
    return f"<{lanes} x half>" if lanes else "half"
