"""Elements of storage types become codes, unsigned integers of as many bits, and the arithmetic that decodes and encodes them.

    y[i] = x[i]               # x: i4[n]       ->      codes = view(x[0], (n,), dtype=u4)
                                                       y[i] = bitcast(i8, codes[i]) << 4 >> 4
    z[i] = y[i]               # z: f8e8m0[n]   ->      codes = view(z[0], (n,), dtype=u8)
                                                       codes[i] = cast(u8, select(bits - 1 < 0x7f7fffff, ..., 255))

Afterwards memory holds u8 where a code fills a byte, and u4 or u2 where several share one, and no other storage type. What the codes mean,
and how storing rounds, is said in `dtype.py`; here it is arithmetic on u32, the same for every renderer. A combination with an element
becomes a load and a store; lanes of a vector loop may meet in it, so such a loop is run one iteration after the other.

Parameters keep their types, which callers see: the program begins with views of them. So does memory that is passed to other programs.
"""

from __future__ import annotations

from typing import NamedTuple

from ...dtype import ALL, DType, f32, i8, i64, u8, u32
from ...sym import expr as E
from ...sym.expr import Bitcast, Cast, Const, Expr, Select
from ..buffer import Buffer, Load, code_type
from ..stmt import Alloc, Call, For, Func, Reduce, Replacer, Seq, Stmt, Store, View, exprs, seq, walk_stmts
from .plain_reductions import as_stores

_NAN = 0x7FC00000
POWERS = ALL["f8e8m0"]


class Format(NamedTuple):
    """How a small float is made: `large` is the code that overflow gives, `nan` the one of NaN, which may be that of -0.0."""

    mantissa: int
    bias: int
    large: int
    nan: int
    infinity: bool  # whether the highest exponent is infinity and NaN


FORMATS = {
    ALL["f8e5m2"]: Format(2, 15, 0x7C, 0x7E, True),
    ALL["f8e4m3"]: Format(3, 7, 0x78, 0x7C, True),
    ALL["f8e4m3fn"]: Format(3, 7, 0x7F, 0x7F, False),
    ALL["f4e2m1"]: Format(1, 1, 0x7, 0x8, False),
    ALL["f8e5m2fnuz"]: Format(2, 16, 0x80, 0x80, False),
    ALL["f8e4m3fnuz"]: Format(3, 8, 0x80, 0x80, False),
}


def has_codes(stored: DType) -> bool:
    """Whether an element has to be decoded: it is of a storage type, and no unsigned integer."""
    return stored.storage and stored.kind != "u"


def decode_storage(func: Func) -> Func:
    """The function without loads and stores of signed or floating-point storage types."""
    stored = [b for b in func.buffers if has_codes(b.dtype)]
    stored += [s.buffer for s in walk_stmts(func.body) if isinstance(s, (Alloc, View)) and has_codes(s.buffer.dtype)]
    if not stored or func.attrs.external is not None:
        return func
    return func.with_(body=_Decoder(func).whole())


class _Decoder(Replacer):
    """Replaces accesses to elements by accesses to codes."""

    def __init__(self, func: Func) -> None:
        super().__init__()
        self.func = func
        self.codes: dict[Buffer, Buffer] = {}
        # Buffers that keep their type, because somebody else is given them.
        self.kept = {a for s in walk_stmts(func.body) if isinstance(s, Call) for a in s.args if isinstance(a, Buffer)}
        self.kept |= {s.source for s in walk_stmts(func.body) if isinstance(s, View)}

    def whole(self) -> Stmt:
        """The body, after views of the parameters."""
        touched = _touched(self.func.body)
        views = [self.view_of(b) for b in self.func.buffers if has_codes(b.dtype) and b in touched]
        return seq(*views, self.stmt(self.func.body))

    def code_buffer(self, b: Buffer) -> Buffer:
        """The codes of a buffer."""
        if b not in self.codes:
            self.codes[b] = Buffer(f"{b.name}_codes", code_type(b.dtype), b.shape, b.strides, b.scope)
        return self.codes[b]

    def view_of(self, b: Buffer) -> View:
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
    return isinstance(s, Reduce) and any(has_codes(t.buffer.dtype) for t in s.targets)


def _is_short(s: For) -> bool:
    """Whether a loop has so few iterations that its lanes may be elements of registers."""
    return isinstance(s.extent, Const) and s.extent.value <= 64


def _touched(s: Stmt) -> set[Buffer]:
    """The buffers with an element that is read or written."""
    found = {n.buffer for x in walk_stmts(s) for e in exprs(x) for n in E.walk(e) if isinstance(n, Load)}
    found |= {x.buffer for x in walk_stmts(s) if isinstance(x, Store)}
    return found | {t.buffer for x in walk_stmts(s) if isinstance(x, Reduce) for t in x.targets}


# Codes and what they stand for.


def decoded(code: Expr, stored: DType) -> Expr:
    """The value of a code, whose bits above the element are 0."""
    if stored is POWERS:
        return _decoded_power(code)
    if stored in FORMATS:
        return _decoded_float(code, stored, FORMATS[stored])
    up = Const(8 - stored.bits, i8)
    return E.Shr(E.Shl(Bitcast(i8, code), up), up)


def encoded(value: Expr, stored: DType) -> Expr:
    """The code of a value; of integers, only its low bits are looked at."""
    if stored is POWERS:
        return _encoded_power(value)
    if stored in FORMATS:
        return _encoded_float(value, stored, FORMATS[stored])
    return Bitcast(u8, value)


def _u32(number: int) -> Const:
    return Const(number % 2**32, u32)


def _decoded_float(code: Expr, stored: DType, f: Format) -> Expr:
    top = 1 << (stored.bits - 1)
    x = Cast(u32, code)
    magnitude = E.Shl(E.BitAnd(x, _u32(top - 1)), _u32(23 - f.mantissa))
    normal = E.Add(magnitude, _u32((127 - f.bias) << 23))
    # A denormal becomes a number by giving it an exponent and subtracting that again.
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
    bits = Bitcast(u32, value)
    magnitude = E.BitAnd(bits, _u32(0x7FFFFFFF))
    # Below the least normal number the addition of a power of two rounds at the right bit.
    magic = 2.0 ** (1 - f.bias - f.mantissa + 23)
    raised = E.Add(Bitcast(f32, magnitude), Const(magic, f32))
    small = E.Sub(Bitcast(u32, raised), _u32((1 - f.bias - f.mantissa + 23 + 127) << 23))
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
    """Whether the code of -0.0 is that of NaN; of f4e2m1 it is what NaN becomes, and still -0.0."""
    return stored.bits == 8 and f.nan == 0x80


def _decoded_power(code: Expr) -> Expr:
    """2^(code - 127), the least of which is denormal in f32; 255 is NaN."""
    x = Cast(u32, code)
    bits = Select(E.Eq(x, _u32(0)), _u32(1 << 22), E.Shl(x, _u32(23)))
    return Bitcast(f32, Select(E.Eq(x, _u32(255)), _u32(_NAN), bits))


def _encoded_power(value: Expr) -> Expr:
    """The exponent of the nearest power of two, the larger one from the middle on, and of anything above the least one."""
    bits = Bitcast(u32, value)
    nearest = E.Shr(E.Add(bits, _u32(1 << 22)), _u32(23))
    code = Select(E.Lt(bits, _u32((1 << 22) + 1)), _u32(0), nearest)
    positive = E.Lt(E.Sub(bits, _u32(1)), _u32(0x7F7FFFFF))  # not zero, infinite, NaN or negative
    return Cast(u8, Select(positive, code, _u32(255)))
