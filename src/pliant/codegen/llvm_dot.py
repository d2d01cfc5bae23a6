"""Selects dot-product instructions (VNNI, sdot, …) for sums of products of small integers.

    c[j] + (a[0] * b[j, 0] + a[1] * b[j, 1] + a[2] * b[j, 2] + a[3] * b[j, 3])        all factors cast to i32 from 8 bits

over lanes `j` is one instruction for each register of `c` if the machine has dot products (VNNI, NEON). It is a few instructions if the
machine multiplies pairs of 16-bit factors (vpmaddwd, wasm's i32x4.dot_i16x8) or of 8-bit factors (vpmaddubsw, which saturates, so it
is used only if the factors' ranges exclude that). Sums of i32 wrap, so they are associative: every choice gives the same bits. Without
such instructions, products and sums are emitted as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..dtype import DType, i8, i16, i32, u8
from ..loop.buffer import Load
from ..sym import expr as E
from ..sym.expr import Expr
from ..sym.poly import Poly, add
from .llvm_subbyte import Packed
from .llvm_types import Val

_SMALL = (i8, u8, i16)
_BITWISE: dict[type[Expr], str] = {E.BitAnd: "and", E.Shr: "lshr"}


class Row(NamedTuple):
    """One operand of a dot product: a vector of `lanes * group` small integers, those of a lane next to each other, and their range."""

    value: Val
    low: int
    high: int
    word: str = ""  # the factors of a lane as one integer, if all lanes share them

    @property
    def signed(self) -> bool:
        return self.value.dtype is not u8


class Dots(Packed):
    """Emits sums of products by dot-product instructions."""

    def dot(self, e: Expr) -> Val | None:
        """Emit an i32 sum by dot products; None if the expression does not match or the machine has no instruction."""
        if not self.lanes or self.mask is not None or not self.is_varying(e):
            return None
        terms = _terms(e)
        products = [(t, f) for t in terms if (f := _factors(t)) is not None]
        wide = any(x.dtype is i16 for _, f in products for x in f)
        group = 4 if len(products) % 4 == 0 and not wide else 2
        groups = [[f for _, f in products[n : n + group]] for n in range(0, len(products), group)]
        multiply = self._dot_instruction(group)
        if multiply is None or not groups or any(len(g) < group or not _is_even(g) for g in groups):
            return None
        summed = {t for t, _ in products}
        rest = [t for t in terms if t not in summed]
        total = self.splat(self.expr(rest[0]), self.lanes) if rest else Val("zeroinitializer", i32, self.lanes)
        for t in rest[1:]:
            total = self.binary("add", total, self.expr(t))
        for g in groups:
            total = multiply(total, self._dot_row([a for a, _ in g]), self._dot_row([b for _, b in g]))
        return total

    # Rows of factors.

    def _dot_row(self, factors: list[Expr]) -> Row:
        """Emit the factors of all lanes as one vector: by one load, by one load and a bit operation, or by interleaving."""
        low = min(self._dot_range(f)[0] for f in factors)
        high = max(self._dot_range(f)[1] for f in factors)
        row = self._dot_contiguous(factors) or self._dot_bits(factors)
        if row is None:
            row = self._dot_interleaved([self.splat(self.expr(f), self.lanes) for f in factors]), ""
        return Row(row[0], low, high, row[1])

    def _dot_bits(self, factors: list[Expr]) -> tuple[Val, str] | None:
        """Emit the row if every factor is the same bit field of consecutive elements, e.g. the low nibble of each byte; else None."""
        kind = type(factors[0])
        bits = factors[0].args[1] if kind in _BITWISE else None
        if not isinstance(bits, E.Const) or any(type(f) is not kind or f.args[1] is not bits for f in factors):
            return None
        dtype, by = bits.dtype, int(bits.value)
        if kind is E.Shr and (dtype.kind == "i" or by >= dtype.bits):  # `lshr` is wrong for signed elements, undefined for such a shift
            return None
        whole = self._dot_contiguous([f.args[0] for f in factors])
        if whole is None:
            return None
        row, word = whole
        if not word:
            return self.binary(_BITWISE[kind], row, Val(f"splat (i{dtype.bits} {by})", dtype, row.lanes)), ""
        one = self._dot_word_bits(kind, word, dtype, by, len(factors))
        return self._dot_spread(one, dtype, len(factors)), one

    def _dot_word_bits(self, kind: type[Expr], word: str, dtype: DType, by: int, count: int) -> str:
        """Emit the bit field of all factors in a word at once, before it is broadcast (see `_dot_flipped`)."""
        wide = f"i{dtype.bits * count}"
        ones = (1 << dtype.bits) - 1
        if kind is E.Shr:
            word, by = self.raw(f"lshr {wide} {word}, {by}"), ones >> by
        every = sum((by & ones) << dtype.bits * n for n in range(count))
        return self.raw(f"and {wide} {word}, {every - (every >> dtype.bits * count - 1 << dtype.bits * count)}")

    def _dot_range(self, f: Expr) -> tuple[int, int]:
        if isinstance(f, Load) and f.buffer.dtype.storage:
            return int(f.buffer.dtype.min), int(f.buffer.dtype.max)
        if isinstance(f, E.Shr) and isinstance(f.args[0], E.Shl) and f.args[0].args[1] is f.args[1] and isinstance(f.args[1], E.Const):
            bits = f.dtype.bits - int(f.args[1].value)  # sign extension of that many bits
            return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return self.range_of(f)

    def _dot_contiguous(self, factors: list[Expr]) -> tuple[Val, str] | None:
        """Emit the row as one load if its elements are consecutive in memory, with the word if lanes share it; else None."""
        loads = [f for f in factors if isinstance(f, Load) and f.buffer.dtype is f.dtype and f.buffer.scope != "register"]
        if len(loads) != len(factors) or any(f.buffer is not loads[0].buffer for f in loads):
            return None
        buffer, dtype, count = loads[0].buffer, loads[0].dtype, len(loads)
        places = [self.flat(f.indices, buffer.element_strides()) for f in loads]
        first: Poly = places[0]
        if any(add(p, first, -1) != ({(): n} if n else {}) for n, p in enumerate(places)):
            return None
        stride = self.lane_stride(first)
        if stride not in (0, count):
            return None
        pointer = self.address(buffer, self.first_lane(first))
        if stride:
            total = self.lanes * count
            return self.value(f"load <{total} x i{dtype.bits}>, ptr {pointer}, align {dtype.itemsize}", dtype, total), ""
        word = f"i{dtype.bits * count}"
        one = self.raw(f"load {word}, ptr {pointer}, align {dtype.itemsize}")
        return self._dot_spread(one, dtype, count), one

    def _dot_spread(self, word: str, dtype: DType, count: int) -> Val:
        """Emit the broadcast of a word that packs `count` factors to every lane."""
        element = f"i{dtype.bits * count}"
        wide = f"<{self.lanes} x {element}>"
        at = self.raw(f"insertelement {wide} poison, {element} {word}, i64 0")
        all_ = self.raw(f"shufflevector {wide} {at}, {wide} poison, <{self.lanes} x i32> zeroinitializer")
        return self.value(f"bitcast {wide} {all_} to <{self.lanes * count} x i{dtype.bits}>", dtype, self.lanes * count)

    def _dot_flipped(self, row: Row, dtype: DType) -> Val:
        """Flip the highest bit of each byte of a row: adds or subtracts 128.

        A shared word is flipped before it is broadcast: LLVM 22 does not terminate when it combines a flip of broadcast words into
        VNNI's operand.
        """
        if row.word:
            return self._dot_spread(self.raw(f"xor i32 {row.word}, {-0x7F7F7F80}"), dtype, 4)
        return self.binary("xor", Val(row.value.ref, dtype, row.value.lanes), Val("-128", dtype))

    def _dot_interleaved(self, parts: list[Val]) -> Val:
        """Emit the interleaving of several vectors, which each have one factor per lane, into one."""
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [self._dot_zipped(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        return parts[0]

    def _dot_zipped(self, a: Val, b: Val) -> Val:
        n = a.lanes
        order = ", ".join(f"i32 {k // 2 + k % 2 * n}" for k in range(2 * n))
        return self.value(f"shufflevector {a.typed}, {b.typed}, <{2 * n} x i32> <{order}>", a.dtype, 2 * n)

    # Instructions.

    def _dot_instruction(self, group: int) -> Callable[[Val, Row, Row], Val] | None:
        """Return the method that adds the products of a group to each lane on this machine, or None."""
        if self.lanes % 4:
            return None
        arch, features = self.target.arch, self.target.features
        if arch == "x86_64":
            return self._dot_x86_four if group == 4 else self._dot_pairs
        if arch == "wasm32" and "simd128" in features:
            return self._dot_wasm_four if group == 4 else self._dot_pairs
        if arch == "aarch64" and "dotprod" in features and group == 4:
            return self._dot_neon_four
        return None

    def _dot_x86_four(self, total: Val, a: Row, b: Row) -> Val:
        features = self.target.features
        vnni = "avxvnni" in features or ("avx512vnni" in features and "avx512vl" in features)
        u, s = (a, b) if b.signed else (b, a)
        if vnni and not u.signed and s.signed:
            return self._dot_chunked("x86.vpdpbusd", total, u.value, s.value)
        if vnni and a.signed and b.signed and (a.word or b.word):
            # vpdpbusd takes one unsigned side: add 128 to `a`, then subtract 128 * sum(b), which depends on `b` alone, so rows share it.
            a, b = (a, b) if a.word else (b, a)
            all_128 = Val("splat (i8 -128)", u8, a.value.lanes)
            more = self._dot_chunked("x86.vpdpbusd", Val("zeroinitializer", i32, self.lanes), all_128, b.value)
            return self.binary("sub", self._dot_chunked("x86.vpdpbusd", total, self._dot_flipped(a, u8), b.value), more)
        if "ssse3" in features and not u.signed and s.signed and 2 * u.high * max(s.high, -s.low) < 1 << 15:
            halves = self._dot_chunked("x86.pmaddubsw", None, u.value, s.value)
            ones = Val("splat (i16 1)", i16, halves.lanes)
            return self.binary("add", total, self._dot_chunked("x86.pmaddwd", None, halves, ones))
        return self._dot_four_by_pairs(total, a, b)

    def _dot_wasm_four(self, total: Val, a: Row, b: Row) -> Val:
        for x, small in ((a, b), (b, a)):
            if "relaxed-simd" in self.target.features and x.signed and small.low >= 0 and small.high <= 127:
                return self._dot_chunked("wasm.relaxed", total, x.value, small.value)
        return self._dot_four_by_pairs(total, a, b)

    def _dot_neon_four(self, total: Val, a: Row, b: Row) -> Val:
        if a.signed == b.signed:
            return self._dot_chunked("neon.sdot" if a.signed else "neon.udot", total, a.value, b.value)
        u, s = (a, b) if b.signed else (b, a)
        if "i8mm" in self.target.features:
            return self._dot_chunked("neon.usdot", total, u.value, s.value)
        # sdot takes two signed sides: subtract 128 from the unsigned one, and add 128 * sum(s) again (`less` is negative).
        less = self._dot_chunked("neon.sdot", Val("zeroinitializer", i32, self.lanes), Val("splat (i8 -128)", i8, s.value.lanes), s.value)
        return self.binary("sub", self._dot_chunked("neon.sdot", total, self._dot_flipped(u, i8), s.value), less)

    def _dot_four_by_pairs(self, total: Val, a: Row, b: Row) -> Val:
        """Widen to 16 bits: the instruction adds products in pairs, and a further addition joins two pairs."""
        name = "x86.pmaddwd" if self.target.arch == "x86_64" else "wasm.dot"
        sums = self._dot_chunked(name, None, self._dot_widened(a), self._dot_widened(b))
        halves = []
        for odd in (0, 1):
            order = ", ".join(f"i32 {2 * k + odd}" for k in range(sums.lanes // 2))
            text = f"shufflevector {sums.typed}, {sums.type} poison, <{sums.lanes // 2} x i32> <{order}>"
            halves.append(self.value(text, i32, sums.lanes // 2))
        return self.binary("add", total, self.binary("add", halves[0], halves[1]))

    def _dot_pairs(self, total: Val, a: Row, b: Row) -> Val:
        x, y = self._dot_widened(a), self._dot_widened(b)
        features = self.target.features
        if self.target.arch == "wasm32":
            return self.binary("add", total, self._dot_chunked("wasm.dot", None, x, y))
        if "avxvnni" in features or ("avx512vnni" in features and "avx512vl" in features):
            return self._dot_chunked("x86.vpdpwssd", total, x, y)
        return self.binary("add", total, self._dot_chunked("x86.pmaddwd", None, x, y))

    def _dot_widened(self, row: Row) -> Val:
        return row.value if row.value.dtype is i16 else self.convert("sext" if row.signed else "zext", row.value, i16)

    def _dot_chunked(self, name: str, total: Val | None, a: Val, b: Val) -> Val:
        """Emit a dot-product instruction on vectors of any length, one register at a time."""
        spec = INSTRUCTIONS[name]
        lanes = a.lanes * a.dtype.bits // spec.result.bits
        most = min(self.target.vector_bits, max(spec.names)) // spec.result.bits
        size = min(most, lanes)
        done: list[Val] = []
        for n in range(0, lanes, size):
            parts = [self._dot_part(v, n * v.lanes // lanes, size * v.lanes // lanes) for v in (a, b)]
            acc = [] if total is None else [self._dot_part(total, n, size)]
            done.append(self._dot_call_one(spec, size, acc, parts))
        while len(done) > 1:
            done = [self._dot_joined(x, y) for x, y in zip(done[::2], done[1::2], strict=True)]
        return done[0]

    def _dot_call_one(self, spec: Dot, lanes: int, acc: list[Val], parts: list[Val]) -> Val:
        name = f"llvm.{spec.names[lanes * spec.result.bits]}"
        operands = [*parts, *acc] if spec.acc_last else [*acc, *parts]
        result = f"<{lanes} x i{spec.result.bits}>"
        self.declarations.declare(name, result, ", ".join(v.type for v in operands))
        return self.value(f"call {result} @{name}({', '.join(v.typed for v in operands)})", spec.result, lanes)

    def _dot_part(self, v: Val, start: int, count: int) -> Val:
        if count == v.lanes:
            return v
        order = ", ".join(f"i32 {n}" for n in range(start, start + count))
        return self.value(f"shufflevector {v.typed}, {v.type} poison, <{count} x i32> <{order}>", v.dtype, count)

    def _dot_joined(self, a: Val, b: Val) -> Val:
        order = ", ".join(f"i32 {n}" for n in range(2 * a.lanes))
        return self.value(f"shufflevector {a.typed}, {b.typed}, <{2 * a.lanes} x i32> <{order}>", a.dtype, 2 * a.lanes)


class Dot(NamedTuple):
    """A dot-product instruction: its LLVM name for each vector width in bits, its result type, whether the accumulator comes last."""

    names: dict[int, str]
    result: DType = i32
    acc_last: bool = False


def _x86(name: str) -> dict[int, str]:
    return {bits: f"x86.avx512.{name}.{bits}" for bits in (128, 256, 512)}


INSTRUCTIONS: dict[str, Dot] = {
    "x86.vpdpbusd": Dot(_x86("vpdpbusd")),
    "x86.vpdpwssd": Dot(_x86("vpdpwssd")),
    "x86.pmaddwd": Dot({128: "x86.sse2.pmadd.wd", 256: "x86.avx2.pmadd.wd", 512: "x86.avx512.pmaddw.d.512"}),
    "x86.pmaddubsw": Dot({128: "x86.ssse3.pmadd.ub.sw.128", 256: "x86.avx2.pmadd.ub.sw", 512: "x86.avx512.pmaddubs.w.512"}, i16),
    "neon.sdot": Dot({128: "aarch64.neon.sdot.v4i32.v16i8"}),
    "neon.udot": Dot({128: "aarch64.neon.udot.v4i32.v16i8"}),
    "neon.usdot": Dot({128: "aarch64.neon.usdot.v4i32.v16i8"}),
    "wasm.dot": Dot({128: "wasm.dot"}),
    "wasm.relaxed": Dot({128: "wasm.relaxed.dot.i8x16.i7x16.add.signed"}, acc_last=True),
}


def _terms(e: Expr) -> list[Expr]:
    """Return the terms of a sum of i32, in order."""
    if type(e) is E.Add and e.dtype is i32:
        return [t for a in e.args for t in _terms(a)]
    return [e]


def _factors(e: Expr) -> tuple[Expr, Expr] | None:
    """Return the two operands if a term is the product of two 8- or 16-bit integers cast to i32; else None."""
    if type(e) is not E.Mul or e.dtype is not i32:
        return None
    a, b = e.args
    if type(a) is not E.Cast or type(b) is not E.Cast or a.args[0].dtype not in _SMALL or b.args[0].dtype not in _SMALL:
        return None
    return a.args[0], b.args[0]


def _is_even(group: list[tuple[Expr, Expr]]) -> bool:
    """True if the factors of each side have one dtype."""
    return len({a.dtype for a, _ in group}) == 1 and len({b.dtype for _, b in group}) == 1
