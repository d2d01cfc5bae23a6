"""Replaces storage types by their codes (unsigned integers of the same width) and the arithmetic that decodes and encodes them.

    y[i] = x[i]               # x: i4[n]       ->      codes = view(x[0], (n,), dtype=u4)
                                                       y[i] = bitcast(i8, codes[i]) << 4 >> 4
    z[i] = y[i]               # z: f8e8m0[n]   ->      codes = view(z[0], (n,), dtype=u8)
                                                       codes[i] = cast(u8, select(bits - 1 < 0x7f7fffff, ..., 255))

Afterwards memory holds u8 where a code fills a byte, u4 or u2 where codes share one, and no other storage type. `dtype.py` defines what
the codes mean and how a store rounds; here it is arithmetic on u32, the same for every renderer. A reduction into such an element becomes
a load and a store. Lanes of a vector loop may reduce into one element, so such a loop becomes serial.

Parameters keep their types, because callers see them: the program begins with views of their codes. The same holds for memory that is
passed to other programs.
"""

from __future__ import annotations

from typing import NamedTuple

from ...dtype import ALL, DType, f32, i8, i64, u8, u32
from ...sym import expr as E
from ...sym.expr import Bitcast, Cast, Const, Expr, Select
from ...sym.walk import walk
from ..buffer import Buffer, Load, code_type
from ..stmt import Alloc, Call, For, Func, Reduce, Replacer, Seq, Stmt, Store, View, exprs, seq, walk_stmts
from .plain_reductions import as_stores

_NAN = 0x7FC00000  # the quiet NaN of f32
POWERS = ALL["f8e8m0"]  # powers of two: no sign and no mantissa


class Format(NamedTuple):
    """The layout of a small float; `large` is the code for overflow, `nan` the code for NaN (which may be that of -0.0)."""

    mantissa: int
    bias: int
    large: int
    nan: int
    infinity: bool  # True if the highest exponent is reserved for infinity and NaN


FORMATS = {
    ALL["f8e5m2"]: Format(2, 15, 0x7C, 0x7E, True),
    ALL["f8e4m3"]: Format(3, 7, 0x78, 0x7C, True),
    ALL["f8e4m3fn"]: Format(3, 7, 0x7F, 0x7F, False),
    ALL["f4e2m1"]: Format(1, 1, 0x7, 0x8, False),
    ALL["f8e5m2fnuz"]: Format(2, 16, 0x80, 0x80, False),
    ALL["f8e4m3fnuz"]: Format(3, 8, 0x80, 0x80, False),
}


def has_codes(stored: DType) -> bool:
    """True if an element has to be decoded: its storage type is signed or floating-point."""
    return stored.storage and stored.kind != "u"


def decode_storage(func: Func) -> Func:
    """Returns the function with loads and stores of signed or floating-point storage types done on unsigned integer codes."""
    stored = [b for b in func.buffers if has_codes(b.dtype)]
    stored += [s.buffer for s in walk_stmts(func.body) if isinstance(s, (Alloc, View)) and has_codes(s.buffer.dtype)]
    if not stored or func.attrs.external is not None:
        return func
    return func.with_(body=_Decoder(func).whole())


class _Decoder(Replacer):
    """Rewrites accesses to buffers of small floats and sub-byte integers: loads decode, and stores encode, unsigned integer codes."""

    def __init__(self, func: Func) -> None:
        super().__init__()
        self.func = func
        self.codes: dict[Buffer, Buffer] = {}
        # Buffers that keep their type, because they are passed to a callee or viewed.
        self.kept = {a for s in walk_stmts(func.body) if isinstance(s, Call) for a in s.args if isinstance(a, Buffer)}
        self.kept |= {s.source for s in walk_stmts(func.body) if isinstance(s, View)}

    def whole(self) -> Stmt:
        """Returns the function's body, preceded by views of its parameters as codes."""
        touched = _touched(self.func.body)
        views = [self.view_of(b) for b in self.func.buffers if has_codes(b.dtype) and b in touched]
        return seq(*views, self.stmt(self.func.body))

    def code_buffer(self, b: Buffer) -> Buffer:
        """Returns the buffer of unsigned integer codes that replaces `b`; the same one for each call."""
        if b not in self.codes:
            self.codes[b] = Buffer(f"{b.name}_codes", code_type(b.dtype), b.shape, b.strides, b.scope)
        return self.codes[b]

    def view_of(self, b: Buffer) -> View:
        """Returns the statement that views the memory of a buffer as its codes."""
        return View(self.code_buffer(b), b, (Const(0, i64),) * b.ndim)

    # Expressions and places.

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, Load) and has_codes(e.buffer.dtype):
            return decoded(self.target(e), e.buffer.dtype)
        return Replacer._leaf(self, e)

    def target(self, e: Load) -> Load:
        b = self.code_buffer(e.buffer) if has_codes(e.buffer.dtype) else e.buffer
        return Load(b, tuple(map(self.expr, e.indices)))

    # Statements.

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Store() if has_codes(s.buffer.dtype):
                place = self.target(Load(s.buffer, s.indices))
                return Store(place.buffer, place.indices, encoded(self.expr(s.value), s.buffer.dtype), s.span)
            case Reduce() if _combines_codes(s):
                return self.stmt(as_stores(s))
            case For() if s.kind == "vector" and any(map(_combines_codes, walk_stmts(s.body))):
                return self.stmt(s.with_(kind="unroll" if _is_short(s) else "serial"))
            case Alloc() | View() if has_codes(s.buffer.dtype):
                if s.buffer in self.kept and s.buffer.scope != "register":
                    return Seq((Replacer.stmt(self, s), self.view_of(s.buffer)))
                return Replacer.stmt(self, s).with_(buffer=self.code_buffer(s.buffer))
        return Replacer.stmt(self, s)


def _combines_codes(s: Stmt) -> bool:
    """True if a statement reduces into an element that has to be decoded."""
    return isinstance(s, Reduce) and any(has_codes(t.buffer.dtype) for t in s.targets)


def _is_short(s: For) -> bool:
    """True if a loop has at most 64 iterations: its lanes may be elements of a register buffer, which need constant indices."""
    return isinstance(s.extent, Const) and s.extent.value <= 64


def _touched(s: Stmt) -> set[Buffer]:
    """Returns the buffers of which some element is read or written."""
    buffers = {n.buffer for x in walk_stmts(s) for e in exprs(x) for n in walk(e) if isinstance(n, Load)}
    buffers |= {x.buffer for x in walk_stmts(s) if isinstance(x, Store)}
    return buffers | {t.buffer for x in walk_stmts(s) if isinstance(x, Reduce) for t in x.targets}


# Codes and what they stand for.


def decoded(code: Expr, stored: DType) -> Expr:
    """Returns the value of a storage type's code as an expression; the bits of `code` above the element must be 0."""
    if stored is POWERS:
        return _decoded_power(code)
    if stored in FORMATS:
        return _decoded_float(code, stored, FORMATS[stored])
    up = Const(8 - stored.bits, i8)
    return E.Shr(E.Shl(Bitcast(i8, code), up), up)


def encoded(value: Expr, stored: DType) -> Expr:
    """Returns the code of a value in a storage type as an expression; the store keeps only the low bits of integers."""
    if stored is POWERS:
        return _encoded_power(value)
    if stored in FORMATS:
        return _encoded_float(value, stored, FORMATS[stored])
    return Bitcast(u8, value)


def _u32(number: int) -> Const:
    """A u32 constant, modulo 2**32."""
    return Const(number % 2**32, u32)


def _decoded_float(code: Expr, stored: DType, f: Format) -> Expr:
    """The f32 value of a small-float code, by moving its exponent and mantissa to their f32 positions."""
    top = 1 << (stored.bits - 1)
    x = Cast(u32, code)
    # With the mantissa in place, adding the difference of the exponent biases gives the f32 of a normal number.
    magnitude = E.Shl(E.BitAnd(x, _u32(top - 1)), _u32(23 - f.mantissa))
    normal = E.Add(magnitude, _u32((127 - f.bias) << 23))
    # A denormal is converted by giving it the implicit leading 1 and subtracting that 1 again.
    raised = Bitcast(f32, E.Add(magnitude, _u32((128 - f.bias) << 23)))
    small = Bitcast(u32, E.Sub(raised, Const(2.0 ** (1 - f.bias), f32)))
    bits: Expr = Select(E.Lt(magnitude, _u32(1 << 23)), small, normal)
    if f.infinity:
        special = E.Add(magnitude, _u32((255 << 23) - (f.large << (23 - f.mantissa))))
        bits = Select(E.Le(_u32(f.large << (23 - f.mantissa)), magnitude), special, bits)
    elif f.nan < top:
        bits = Select(E.Eq(magnitude, _u32(f.nan << (23 - f.mantissa))), _u32(_NAN), bits)
    elif _has_no_negative_zero(stored, f):
        bits = Select(E.Eq(x, _u32(f.nan)), _u32(_NAN), bits)
    sign = E.Shl(E.BitAnd(x, _u32(top)), _u32(32 - stored.bits))
    return Bitcast(f32, E.BitOr(bits, sign))


def _encoded_float(value: Expr, stored: DType, f: Format) -> Expr:
    """The small-float code of an f32 value, rounded to nearest even."""
    bits = Bitcast(u32, value)
    magnitude = E.BitAnd(bits, _u32(0x7FFFFFFF))
    # For results below the least normal number, adding this power of two makes the f32 addition round at the right bit.
    magic = 2.0 ** (1 - f.bias - f.mantissa + 23)
    raised = E.Add(Bitcast(f32, magnitude), Const(magic, f32))
    small = E.Sub(Bitcast(u32, raised), _u32((1 - f.bias - f.mantissa + 23 + 127) << 23))
    # For normal numbers: rebias the exponent, and add just below half a unit plus the parity of the last bit (round to nearest even).
    odd = E.BitAnd(E.Shr(magnitude, _u32(23 - f.mantissa)), _u32(1))
    rounding = _u32(((f.bias - 127) << 23) + (1 << (22 - f.mantissa)) - 1)
    shifted = E.Add(E.Add(magnitude, rounding), odd)
    normal = E.Min(E.Shr(shifted, _u32(23 - f.mantissa)), _u32(f.large))
    code = Select(E.Lt(magnitude, _u32((128 - f.bias) << 23)), small, normal)
    sign: Expr = E.BitAnd(E.Shr(bits, _u32(32 - stored.bits)), _u32(1 << (stored.bits - 1)))
    if _has_no_negative_zero(stored, f):
        sign = Select(E.Eq(code, _u32(0)), _u32(0), sign)
    nan = E.Lt(_u32(0x7F800000), magnitude)
    return Cast(u8, Select(nan, _u32(f.nan), E.BitOr(code, sign)))


def _has_no_negative_zero(stored: DType, f: Format) -> bool:
    """True if the format uses the code of -0.0 for NaN. In f4e2m1, NaN is stored as that code, but the code reads as -0.0."""
    return stored.bits == 8 and f.nan == 0x80


def _decoded_power(code: Expr) -> Expr:
    """2^(code - 127), of which the least is denormal in f32; 255 is NaN."""
    x = Cast(u32, code)
    bits = Select(E.Eq(x, _u32(0)), _u32(1 << 22), E.Shl(x, _u32(23)))
    return Bitcast(f32, Select(E.Eq(x, _u32(255)), _u32(_NAN), bits))


def _encoded_power(value: Expr) -> Expr:
    """The exponent of the nearest power of two (ties round up) for positive finite values, at least that of the least power; else 255."""
    bits = Bitcast(u32, value)
    nearest = E.Shr(E.Add(bits, _u32(1 << 22)), _u32(23))
    code = Select(E.Lt(bits, _u32((1 << 22) + 1)), _u32(0), nearest)
    positive = E.Lt(E.Sub(bits, _u32(1)), _u32(0x7F7FFFFF))  # not zero, infinite, NaN or negative
    return Cast(u8, Select(positive, code, _u32(255)))
