"""Software fma of f64 for machines without the instruction (wasm, old x86), by 64-bit integer operations, scalar or vector.

Only an fma in a user's program comes here: math functions and templates have forms without it (docs/design/0016-functions-without-fma.md).

The product of the two 53-bit significands is exact in two words, hi and lo. The third number is aligned with it; bits
that are shifted out at the low end leave a 1 there (a sticky bit), which is all that rounding needs. After the sum, the
leading 63 bits are rounded once, to nearest even, at the position that the exponent gives, so denormals and overflow need
no separate cases. There are no branches: results of special cases are selected.
"""

from __future__ import annotations

from ..dtype import f64, i64, u64
from .llvm_build import Builder, Declarations
from .llvm_types import Val, float_literal, register_type

_ZERO = 0x800  # stands for the exponent of 0: above all others
_SPECIAL = 0x7FF - 0x3FF - 53  # the exponent, as `_unpack` gives it, of infinities and NaN; that of 0 is larger
_Words = tuple[Val, Val]


def fma64(declarations: Declarations, lanes: int) -> str:
    """Return the symbol of the LLVM function for f64 FMA without an FMA instruction, by number of lanes (0: scalar); made at first use."""
    name = f"pliant.fma64.{lanes}"
    if name not in declarations.lines:
        declarations.lines[name] = _Fma(declarations).function(name, lanes)
    return f'@"{name}"'


class _Fma(Builder):
    def function(self, name: str, lanes: int) -> str:
        type_name = register_type(f64, lanes)
        result = self._fma(Val("%x", f64, lanes), Val("%y", f64, lanes), Val("%z", f64, lanes))
        head = f'define internal {type_name} @"{name}"({type_name} %x, {type_name} %y, {type_name} %z) {{'
        return "\n".join([head, "entry:", *self.lines, f"  ret {result.typed}", "}"])

    # Operations on u64 words; operands may be Python numbers.

    def _op(self, op: str, a: Val, b: Val | int) -> Val:
        return self.binary(op, a, b if isinstance(b, Val) else Val(str(b), a.dtype))

    def _is(self, op: str, a: Val, b: Val | int) -> Val:
        return self.compare(f"icmp {op}", a, b if isinstance(b, Val) else Val(str(b), a.dtype))

    def _pick(self, c: Val, a: Val | int, b: Val | int) -> Val:
        like = a if isinstance(a, Val) else b
        assert isinstance(like, Val)
        return self.select(c, *(v if isinstance(v, Val) else Val(str(v), like.dtype) for v in (a, b)))

    def _clamp(self, a: Val) -> Val:
        """Emit a shift amount clamped to 0..63."""
        return self.intrinsic("smin", [self.intrinsic("smax", [a, Val("0", i64)]), Val("63", i64)])

    def _shifted(self, op: str, a: Val, by: Val) -> Val:
        return self.binary(op, a, Val(by.ref, u64, by.lanes))

    def _carried(self, a: Val, by: Val, left: bool) -> Val:
        """Emit the bits that a shift of `a` to the right (left) by 0..63 moves into the neighboring word."""
        ops = ("lshr", "shl") if not left else ("shl", "lshr")
        return self._shifted(ops[1], self._op(ops[1], a, 1), self._op("sub", Val("63", i64), by))

    def _sticky(self, lost: Val) -> Val:
        return self.convert("zext", self._is("ne", lost, 0), u64)

    def _unpack(self, x: Val) -> tuple[Val, Val, Val]:
        """Emit the split of x into parts; return its significand in [2^53, 2^54), its exponent, and whether it is negative."""
        bits = self.convert("bitcast", x, u64)
        field = self._op("and", self._op("lshr", bits, 52), 0x7FF)
        scaled = self.convert("bitcast", self.binary("fmul", x, Val(float_literal(2.0**63), f64)), u64)
        low = self._op("and", self._op("lshr", scaled, 52), 0x7FF)
        low_field = self._pick(self._is("eq", low, 0), _ZERO, self._op("sub", low, 63))
        small = self._is("eq", field, 0)
        fraction = self._op("and", self._pick(small, scaled, bits), (1 << 52) - 1)
        significand = self._op("shl", self._op("or", fraction, 1 << 52), 1)
        exponent = self._pick(small, low_field, field)
        return significand, self._op("sub", Val(exponent.ref, i64, x.lanes), 0x3FF + 53), self._is("slt", Val(bits.ref, i64, x.lanes), 0)

    def _multiply(self, a: Val, b: Val) -> _Words:
        a1, a0 = self._op("lshr", a, 32), self._op("and", a, 0xFFFFFFFF)
        b1, b0 = self._op("lshr", b, 32), self._op("and", b, 0xFFFFFFFF)
        low, high = self._op("mul", a0, b0), self._op("mul", a1, b1)
        # The high halves of the significands have 22 bits, so the sum of the middle products does not overflow.
        middle = self._op("add", self._op("mul", a0, b1), self._op("mul", a1, b0))
        moved = self._op("shl", middle, 32)
        lo = self._op("add", low, moved)
        carry = self.convert("zext", self._is("ult", lo, moved), u64)
        return self._op("add", self._op("add", high, self._op("lshr", middle, 32)), carry), lo

    def _aligned(self, product: _Words, z: Val, d: Val) -> tuple[_Words, _Words]:
        """Emit shifts that bring the product and z, whose unit is 2^d units of the product, to one scale; return both as word pairs."""
        hi, lo = product
        far = self._is("sge", d, 64)
        by = self._clamp(self._op("sub", d, 64))
        sunk = self._op("or", self._shifted("lshr", lo, by), self._carried(hi, by, left=False))
        sunk = self._op("or", sunk, self._sticky(self._carried(lo, by, left=False)))
        gone = self._is("sge", d, 128)
        product_hi = self._pick(far, self._pick(gone, 0, self._shifted("lshr", hi, by)), hi)
        product_lo = self._pick(far, self._pick(gone, 1, sunk), lo)
        up, down = self._clamp(d), self._clamp(self._op("sub", Val("0", i64), d))
        raised_hi, raised_lo = self._carried(z, up, left=True), self._shifted("shl", z, up)
        sunk_z = self._op("or", self._shifted("lshr", z, down), self._sticky(self._carried(z, down, left=False)))
        below = self._is("sle", d, 0)
        z_lo = self._pick(below, self._pick(self._is("sle", d, -64), 1, sunk_z), raised_lo)
        z_hi = self._pick(below, 0, raised_hi)
        return (product_hi, product_lo), (self._pick(far, z, z_hi), self._pick(far, 0, z_lo))

    def _sum(self, a: _Words, b: _Words, same_sign: Val) -> tuple[_Words, Val]:
        """Emit |a + b| if `same_sign`, else |a - b|, and whether the result has the opposite sign of a."""
        plus = self._op("add", a[1], b[1])
        plus_hi = self._op("add", self._op("add", a[0], b[0]), self.convert("zext", self._is("ult", plus, b[1]), u64))
        minus = self._op("sub", a[1], b[1])
        borrow = self.convert("zext", self._is("ult", a[1], b[1]), u64)
        minus_hi = self._op("sub", self._op("sub", a[0], b[0]), borrow)
        negative = self._is("slt", Val(minus_hi.ref, i64, minus_hi.lanes), 0)
        turned = self._op("sub", Val("0", u64), minus)
        turned_hi = self._op("sub", self._op("sub", Val("0", u64), minus_hi), self._sticky(turned))
        hi = self._pick(same_sign, plus_hi, self._pick(negative, turned_hi, minus_hi))
        lo = self._pick(same_sign, plus, self._pick(negative, turned, minus))
        return (hi, lo), self.binary("and", negative, self.not_(same_sign))

    def _leading(self, words: _Words, e: Val) -> tuple[Val, Val]:
        """Emit the leading 63 bits of a number, the last of them sticky, and the exponent of their unit."""
        hi, lo = words
        count = self.intrinsic("ctlz", [hi], flags="i1 false")
        by = self._clamp(self._op("sub", Val(count.ref, i64, hi.lanes), 1))
        upper = self._op("or", self._shifted("shl", hi, by), self._carried(lo, by, left=True))
        upper = self._op("or", upper, self._sticky(self._shifted("shl", lo, by)))
        count_lo = self.intrinsic("ctlz", [lo], flags="i1 false")
        free = self._op("sub", Val(count_lo.ref, i64, lo.lanes), 1)  # -1 when lo is full
        full = self._is("slt", free, 0)
        halved = self._op("or", self._op("lshr", lo, 1), self._op("and", lo, 1))
        lower = self._pick(full, halved, self._shifted("shl", lo, self._clamp(free)))
        in_hi = self._is("ne", hi, 0)
        exponent = self._op("sub", self._pick(in_hi, self._op("add", e, 64), e), self._pick(in_hi, by, free))
        return self._pick(in_hi, upper, lower), exponent

    def _rounded(self, m: Val, e: Val) -> Val:
        """Emit the bits of the double nearest to m * 2^e, where m has 63 bits."""
        top = self._op("add", e, 62)
        below = self.intrinsic("smax", [self._op("sub", Val("-1022", i64), top), Val("0", i64)])  # bits that a denormal lacks
        shift = self._op("add", below, 10)
        by = self._clamp(shift)
        truncated = self._shifted("lshr", m, by)
        lost = self._carried(m, by, left=False)
        half = Val(str(1 << 63), u64)
        odd = self._is("eq", self._op("and", truncated, 1), 1)
        up = self.binary("or", self._is("ugt", lost, half), self.binary("and", self._is("eq", lost, half), odd))
        significand = self._op("add", truncated, self.convert("zext", up, u64))
        field = self.intrinsic("smax", [self._op("add", top, 1022), Val("0", i64)])
        bits = self._op("add", self._op("shl", Val(field.ref, u64, field.lanes), 52), significand)
        bits = self._pick(self._is("sgt", shift, 63), 0, bits)
        return self._pick(self._is("sgt", top, 1023), 0x7FF << 52, bits)

    def _fma(self, x: Val, y: Val, z: Val) -> Val:
        product_only = self.binary("fmul", x, y)
        plain = self.binary("fadd", product_only, z)
        (mx, ex, sx), (my, ey, sy), (mz, ez, sz) = self._unpack(x), self._unpack(y), self._unpack(z)
        e = self._op("add", ex, ey)
        d = self._op("sub", ez, e)
        product, third = self._aligned(self._multiply(mx, my), mz, d)
        unit = self._pick(self._is("sge", d, 64), self._op("sub", ez, 64), e)
        sign = self.binary("xor", sx, sy)
        total, flipped = self._sum(product, third, self._is("eq", sign, sz))
        bits = self._rounded(*self._leading(total, unit))
        negative = self.binary("xor", sign, flipped)
        signed = self.binary("or", bits, self._op("shl", self.convert("zext", negative, u64), 63))
        result = self.convert("bitcast", signed, f64)
        nothing = self._is("eq", self.binary("or", *total), 0)
        special = self.binary("or", self._is("sge", ex, _SPECIAL), self._is("sge", ey, _SPECIAL))
        result = self.select(self._is("sgt", ez, _SPECIAL), product_only, result)  # z is 0: the product keeps its sign when it underflows
        result = self.select(self.binary("or", nothing, special), plain, result)
        only_z = self.binary("and", self._is("eq", ez, _SPECIAL), self.not_(special))
        return self.select(only_z, z, result)
