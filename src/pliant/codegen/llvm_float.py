"""Casts and floating-point functions with the exact semantics of `sym/expr.py`, on every target.

If a target lacks an instruction (conversions of half floats, fma, rounding to integers), it is built from others, because generated
code calls no library. Everything works on scalars and on vectors.
"""

from __future__ import annotations

from ..dtype import DType, bf16, bool_, f16, f32, f64, i32, i64, u16, u32, u64
from .llvm_build import Builder
from .llvm_types import HALVES, Val, float_literal, register_type

_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc"}


class Floats(Builder):
    """A builder that also emits casts and functions of floats."""

    # Half floats: bits in registers, arithmetic in f32.

    def widen(self, a: Val) -> Val:
        """Convert f16 or bf16 to f32 (exact)."""
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
        # A denormal is normalized by giving it an exponent and subtracting that power of two again.
        raised = self.convert("bitcast", self.binary("add", magnitude, Val(str(113 << 23), u32)), f32)
        small = self.convert("bitcast", self.binary("fsub", raised, Val(float_literal(2.0**-14), f32)), u32)
        bits = self.select(self.compare("icmp eq", exponent, Val(str(0x7C00 << 13), u32)), special, normal)
        bits = self.select(self.compare("icmp eq", exponent, Val("0", u32)), small, bits)
        sign = self.binary("shl", self.binary("and", x, Val("32768", u32)), Val("16", u32))
        return self.convert("bitcast", self.binary("or", bits, sign), f32)

    def narrow(self, a: Val, dtype: DType) -> Val:
        """Round f32 to f16 or bf16, to nearest even."""
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
        # Below the least normal f16, adding 0.5 rounds at the right bit.
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
        """Round f64 to f32 by round-to-odd: a second rounding to fewer bits then equals a single rounding of the f64."""
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
        """Convert `a` to another dtype, as `sym/expr.py` defines it."""
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
            if self.target.arch == "x86_64":
                return self._saturated(a, to)
            return self.intrinsic("fptosi.sat" if to.kind == "i" else "fptoui.sat", [a], to)
        if to.is_float:
            return self.convert("sitofp" if a.dtype.kind == "i" else "uitofp", a, to)
        if a.dtype is not bool_ and to.bits <= a.dtype.bits:
            return self.convert("trunc", a, to) if to.bits < a.dtype.bits else Val(a.ref, to, a.lanes)
        return self.convert("sext" if a.dtype.kind == "i" else "zext", a, to)

    def _saturated(self, a: Val, to: DType) -> Val:
        """Convert a float to an integer, saturating. LLVM's saturating conversion has no vector code on x86, these instructions have."""
        low, high = (Val(float_literal(float(n)), a.dtype) for n in (to.min, to.max + 1))
        above = self.compare("fcmp oge", a, high)
        below = self.compare("fcmp olt", a, low)
        inside = self.not_(self.binary("or", self.binary("or", above, below), self.compare("fcmp uno", a, a)))
        safe = self.select(inside, a, Val(float_literal(0.0), a.dtype))
        if to.bits < 32:
            converted = self.convert("trunc", self.convert("fptosi", safe, i32), to)
        else:
            converted = self.convert("fptosi" if to.kind == "i" else "fptoui", safe, to)
        return self.select(above, Val(str(to.max), to), self.select(below, Val(str(to.min), to), converted))

    def _to_half(self, a: Val, to: DType) -> Val:
        if a.dtype is f32:
            return self.narrow(a, to)
        if a.dtype is f64:
            return self.narrow(self.odd_f32(a), to)
        if a.dtype is bool_ or a.dtype.bits <= 16 or to is f16:
            # f32 holds exactly every integer that is finite in f16.
            return self.narrow(self.cast(a, f32), to)
        if a.dtype.bits == 64:
            a = self._sticky(a)
        return self.narrow(self.odd_f32(self.cast(a, f64)), to)

    def _sticky(self, a: Val) -> Val:
        """Reduce a 64-bit integer to bits that f64 holds exactly and that round to bf16 as `a` does: lost bits set a sticky bit."""
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
        """Emit a * b + c with one rounding (half types: one to f32, then one to their own type)."""
        if a.dtype in HALVES:
            return self.narrow(self.fma(self.widen(a), self.widen(b), self.widen(c)), a.dtype)
        if self.target.has_fma:
            return self.intrinsic("fma", [a, b, c]) if self.target.arch != "wasm32" else self._relaxed_fma(*self.level(a, b, c))
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

    def _relaxed_fma(self, a: Val, b: Val, c: Val) -> Val:
        """Emit wasm's relaxed multiply-add, in registers of 128 bits; `fused_probe.py` lets embedders check that the engine fuses it."""
        most = 128 // a.dtype.bits
        if a.lanes < most:
            return self._narrowed(self._relaxed_fma(*map(self._widened, (a, b, c))), a.lanes)
        if a.lanes > most:
            registers = -(-a.lanes // most)
            middle = most * ((registers + 1) // 2)
            parts = (range(middle), range(middle, a.lanes))
            first, rest = (self._relaxed_fma(*(self._lanes_of(v, part) for v in (a, b, c))) for part in parts)
            rest = rest if rest.lanes == middle else self._lanes_of(rest, range(middle), rest.lanes)
            every = ", ".join(f"i32 {n}" for n in range(a.lanes))
            return self.value(f"shufflevector {first.typed}, {rest.typed}, <{a.lanes} x i32> <{every}>", a.dtype, a.lanes)
        name = f"llvm.wasm.relaxed.madd.v{most}{a.dtype}"
        self.declarations.declare(name, a.type, ", ".join([a.type] * 3))
        return self.value(f"call {a.type} @{name}({a.typed}, {b.typed}, {c.typed})", a.dtype, a.lanes)

    # Extrema.

    def extreme(self, least: bool, a: Val, b: Val) -> Val:
        """Emit the minimum (`least`) or maximum: NaN if either is NaN, and -0.0 < +0.0."""
        a, b = self.level(a, b)
        if not {"avx512dq", "avx512vl"} <= {*self.target.features}:
            return self.intrinsic("minimum" if least else "maximum", [a, b])
        if a.lanes * a.dtype.bits < 128:
            return self._narrowed(self.extreme(least, *map(self._widened, (a, b))), a.lanes)
        # vrange orders the zeros. If either is NaN, the OR of both bit patterns is a NaN. LLVM's own code is a chain of 5 instructions.
        u = u32 if a.dtype is f32 else u64
        joined = self.binary("or", self.convert("bitcast", a, u), self.convert("bitcast", b, u))
        return self.select(self.compare("fcmp uno", a, b), self.convert("bitcast", joined, a.dtype), self._range(least, a, b))

    def _range(self, least: bool, a: Val, b: Val) -> Val:
        """Emit the minimum (`least`) or maximum of operands without NaN by vrange, in registers of the target's preferred width."""
        most = self.target.vector_bits // a.dtype.bits
        if a.lanes > most:
            halves = [range(a.lanes // 2), range(a.lanes // 2, a.lanes)]
            parts = [self._range(least, self._lanes_of(a, h), self._lanes_of(b, h)) for h in halves]
            every = ", ".join(f"i32 {n}" for n in range(a.lanes))
            first = parts[0]
            return self.value(f"shufflevector {first.typed}, {parts[1].typed}, <{a.lanes} x i32> <{every}>", a.dtype, a.lanes)
        name = f"llvm.x86.avx512.mask.range.p{'s' if a.dtype is f32 else 'd'}.{a.lanes * a.dtype.bits}"
        mask = f"i{max(a.lanes, 8)}"
        rounding = a.lanes * a.dtype.bits == 512
        self.declarations.declare(name, a.type, ", ".join([a.type, a.type, "i32", a.type, mask, *(["i32"] * rounding)]))
        args = [a.typed, b.typed, f"i32 {4 if least else 5}", f"{a.type} zeroinitializer", f"{mask} -1", *(["i32 4"] * rounding)]
        return self.value(f"call {a.type} @{name}({', '.join(args)})", a.dtype, a.lanes)

    def _widened(self, a: Val) -> Val:
        """Put a value into the first lanes of a 128-bit register; the others are undefined."""
        most = 128 // a.dtype.bits
        if not a.lanes:
            return self.value(f"insertelement <{most} x {a.type}> poison, {a.typed}, i32 0", a.dtype, most)
        places = ", ".join(f"i32 {n}" if n < a.lanes else "i32 poison" for n in range(most))
        return self.value(f"shufflevector {a.typed}, {a.type} poison, <{most} x i32> <{places}>", a.dtype, most)

    def _narrowed(self, a: Val, lanes: int) -> Val:
        """Emit the extraction of the first `lanes` lanes of a vector; 0 gives a scalar."""
        return self._lanes_of(a, range(lanes)) if lanes else self.value(f"extractelement {a.typed}, i32 0", a.dtype, 0)

    def _lanes_of(self, a: Val, which: range, known: int = 1 << 30) -> Val:
        """Extract the lanes `which` of a value; those from lane `known` on are undefined."""
        places = ", ".join(f"i32 {n}" if n < known else "i32 poison" for n in which)
        return self.value(f"shufflevector {a.typed}, {a.type} poison, <{len(which)} x i32> <{places}>", a.dtype, len(which))

    # Functions.

    def primitive(self, fn: str, a: Val) -> Val:
        """Emit abs, floor, ceil, round, trunc or sqrt."""
        d = a.dtype
        if d in HALVES:
            return self.narrow(self.primitive(fn, self.widen(a)), d)
        if fn == "abs":
            if d.is_float:
                return self.intrinsic("fabs", [a])
            return self.intrinsic("abs", [a], flags="i1 false") if d.kind == "i" else a
        if not d.is_float:
            return self.cast(self.intrinsic("sqrt", [self.cast(a, f64)]), d) if fn == "sqrt" else a
        if fn == "sqrt":
            return self.intrinsic("sqrt", [a])
        if self.target.arch == "x86_64" and "sse4.1" not in self.target.features:
            return self._rounded_by_adding(fn, a)
        return self.intrinsic(_ROUNDINGS[fn], [a])

    def _rounded_by_adding(self, fn: str, a: Val) -> Val:
        """Round to an integer without an instruction for it: adding 2^(mantissa bits) leaves no room for a fraction."""
        d = a.dtype
        magic = Val(float_literal(2.0**23 if d is f32 else 2.0**52), d)
        size = self.intrinsic("fabs", [a])
        near = self.binary("fsub", self.binary("fadd", size, magic), magic)
        one, zero = Val(float_literal(1.0), d), Val(float_literal(0.0), d)
        if fn != "round":
            # First truncate the magnitude; floor of negative and ceil of positive numbers then step away from zero.
            over = self.compare("fcmp ogt", near, size)
            near = self.binary("fsub", near, self.select(over, one, zero))
            if fn != "trunc":
                side = self.compare("fcmp olt" if fn == "floor" else "fcmp ogt", a, zero)
                short = self.binary("and", side, self.compare("fcmp olt", near, size))
                near = self.binary("fadd", near, self.select(short, one, zero))
        signed = self.intrinsic("copysign", [near, a])
        return self.select(self.compare("fcmp olt", size, magic), signed, a)  # larger numbers are integers already; NaN stays


def _half(lanes: int) -> str:
    return f"<{lanes} x half>" if lanes else "half"
