"""The table of local rewrite rules: algebraic identities beyond polynomials, divisions and comparisons.

Each rule keeps the value bit for bit for every operand of its dtypes (NaN stays NaN). Integers wrap, so a rule that needs more than ring
arithmetic proves it from ranges in its condition. Float rules never add or remove a rounding. A property test walks this table, so every
rule in it is tested.
"""

from __future__ import annotations

import math

from ..dtype import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from . import expr as E
from .bounds import int_range
from .expr import Const, Expr
from .facts import Facts
from .pattern import Bindings, Condition, Pattern, Rule, call, lit, op

SIGNED, UNSIGNED = (i8, i16, i32, i64), (u8, u16, u32, u64)
INT: tuple[DType, ...] = SIGNED + UNSIGNED
FLOAT: tuple[DType, ...] = (f16, bf16, f32, f64)
BOOL: tuple[DType, ...] = (bool_,)
ANY = INT + FLOAT + BOOL

x, y, z, b = (Pattern(None, name=n) for n in "xyzb")  # b stands where the grammar requires a bool
c = Pattern(Const, name="c")

RULES: list[Rule] = []


def rule(name: str, dtypes: tuple[DType, ...], pattern: Pattern, result: Pattern, when: Condition | None = None) -> None:
    """Adds a rewrite rule to the table."""
    RULES.append(Rule(name, dtypes, pattern, result, when))


def _shift_fits(found: Bindings, facts: Facts) -> bool:
    """True if a shift is a multiplication or division by a power of two that the dtype holds."""
    count, d = found["c"], found["x"].dtype
    return 0 <= int(count.payload) < d.bits - (d.kind == "i")


def _is_mask(found: Bindings, facts: Facts) -> bool:
    """True if the literal is a mask of low bits, so that `&` is a remainder."""
    mask, d = int(found["c"].payload), found["x"].dtype
    return mask > 0 and mask & (mask + 1) == 0 and mask < d.max


def _nonneg(found: Bindings, facts: Facts) -> bool:
    """True if x is never negative."""
    return int_range(found["x"], facts)[0] >= 0


def _reciprocal_exact(found: Bindings, facts: Facts) -> bool:
    """True if the literal is a power of two whose reciprocal is a normal number, so that division equals multiplication."""
    divisor = found["c"]
    value = divisor.payload and float(divisor.value)  # type: ignore[attr-defined]
    if not value or math.isinf(value) or math.isnan(value) or abs(math.frexp(value)[0]) != 0.5:
        return False
    low = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}[divisor.dtype.name]
    return low <= abs(1.0 / value) <= 1 / low and low <= abs(value)


def _value(found: Bindings) -> float:
    """Returns the value of the literal that the pattern variable c matched."""
    literal: Expr = found["c"]
    return literal.value  # type: ignore[attr-defined, no-any-return]


# Bits.
rule("and-zero", INT, op(E.BitAnd, x, lit(0)), lit(0))
rule("and-ones", INT, op(E.BitAnd, x, lit(-1)), x)
rule("and-self", INT, op(E.BitAnd, x, x), x)
rule("and-mask", INT, op(E.BitAnd, x, c), op(E.FloorMod, x, lit(lambda f: _value(f) + 1)), _is_mask)
rule("or-zero", INT, op(E.BitOr, x, lit(0)), x)
rule("or-self", INT, op(E.BitOr, x, x), x)
rule("or-ones", INT, op(E.BitOr, x, lit(-1)), lit(-1))
rule("xor-zero", INT, op(E.BitXor, x, lit(0)), x)
rule("xor-self", INT, op(E.BitXor, x, x), lit(0))
rule("not-not-bits", INT, op(E.BitNot, op(E.BitNot, x)), x)
rule("shl-constant", INT, op(E.Shl, x, c), op(E.Mul, x, lit(lambda f: 1 << int(_value(f)))), _shift_fits)
rule("shr-constant", INT, op(E.Shr, x, c), op(E.FloorDiv, x, lit(lambda f: 1 << int(_value(f)))), _shift_fits)
rule("shift-of-zero", INT, op(E.Shl, lit(0), x), lit(0))
rule("shift-right-of-zero", INT, op(E.Shr, lit(0), x), lit(0))

# Quotients and remainders that do not look into sums (those that do are in `divmod`).
rule("div-one", INT, op(E.FloorDiv, x, lit(1)), x)
rule("div-zero", INT, op(E.FloorDiv, x, lit(0)), lit(0))
rule("mod-one", INT, op(E.FloorMod, x, lit(1)), lit(0))
rule("mod-zero", INT, op(E.FloorMod, x, lit(0)), lit(0))
rule("zero-div", INT, op(E.FloorDiv, lit(0), x), lit(0))
rule("zero-mod", INT, op(E.FloorMod, lit(0), x), lit(0))
rule("mod-self", INT, op(E.FloorMod, x, x), lit(0))
rule("mod-of-mod", INT, op(E.FloorMod, op(E.FloorMod, x, y), y), op(E.FloorMod, x, y))
rule("abs-nonnegative", INT, call("abs", x), x, _nonneg)
rule("abs-abs", ANY[:-1], call("abs", call("abs", x)), call("abs", x))

# Order.
rule("min-self", ANY[:-1], op(E.Min, x, x), x)
rule("max-self", ANY[:-1], op(E.Max, x, x), x)
rule("min-min", ANY[:-1], op(E.Min, x, op(E.Min, x, y)), op(E.Min, x, y))
rule("max-max", ANY[:-1], op(E.Max, x, op(E.Max, x, y)), op(E.Max, x, y))
rule("min-max-absorb", INT, op(E.Min, x, op(E.Max, x, y)), x)
rule("max-min-absorb", INT, op(E.Max, x, op(E.Min, x, y)), x)
rule("lt-self", INT + FLOAT, op(E.Lt, x, x), lit(False))
rule("le-self", INT, op(E.Le, x, x), lit(True))
rule("eq-self", INT, op(E.Eq, x, x), lit(True))
rule("ne-self", INT, op(E.Ne, x, x), lit(False))

# Floats: no rounding may be added or removed, and no zero may change its sign.
rule("fadd-minus-zero", FLOAT, op(E.Add, x, lit(-0.0)), x)
rule("fsub-zero", FLOAT, op(E.Sub, x, lit(0.0)), x)
rule("fsub-from-minus-zero", FLOAT, op(E.Sub, lit(-0.0), x), op(E.Neg, x))
rule("fadd-neg", FLOAT, op(E.Add, x, op(E.Neg, y)), op(E.Sub, x, y))
rule("fsub-neg", FLOAT, op(E.Sub, x, op(E.Neg, y)), op(E.Add, x, y))
rule("fmul-one", FLOAT, op(E.Mul, x, lit(1.0)), x)
rule("fmul-minus-one", FLOAT, op(E.Mul, x, lit(-1.0)), op(E.Neg, x))
rule("fmul-neg-neg", FLOAT, op(E.Mul, op(E.Neg, x), op(E.Neg, y)), op(E.Mul, x, y))
rule("fdiv-one", FLOAT, op(E.Div, x, lit(1.0)), x)
rule("fdiv-minus-one", FLOAT, op(E.Div, x, lit(-1.0)), op(E.Neg, x))
rule("fdiv-power-of-two", FLOAT, op(E.Div, x, c), op(E.Mul, x, lit(lambda f: 1.0 / _value(f))), _reciprocal_exact)
rule("fneg-neg", FLOAT, op(E.Neg, op(E.Neg, x)), x)
rule("abs-neg", FLOAT, call("abs", op(E.Neg, x)), call("abs", x))
rule("fma-one", FLOAT, op(E.Fma, x, lit(1.0), y), op(E.Add, x, y))
rule("fma-one-left", FLOAT, op(E.Fma, lit(1.0), x, y), op(E.Add, x, y))
rule("fma-plus-nothing", FLOAT, op(E.Fma, x, y, lit(-0.0)), op(E.Mul, x, y))
rule("fma-neg-neg", FLOAT, op(E.Fma, op(E.Neg, x), op(E.Neg, y), z), op(E.Fma, x, y, z))
rule("muladd-one", FLOAT, op(E.MulAdd, x, lit(1.0), y), op(E.Add, x, y))
rule("muladd-one-left", FLOAT, op(E.MulAdd, lit(1.0), x, y), op(E.Add, x, y))
rule("muladd-plus-nothing", FLOAT, op(E.MulAdd, x, y, lit(-0.0)), op(E.Mul, x, y))
rule("muladd-neg-neg", FLOAT, op(E.MulAdd, op(E.Neg, x), op(E.Neg, y), z), op(E.MulAdd, x, y, z))
for _fn in ("floor", "ceil", "round", "trunc"):
    for _inner in ("floor", "ceil", "round", "trunc"):
        rule(f"{_fn}-of-{_inner}", FLOAT, call(_fn, call(_inner, x)), call(_inner, x))

# Logic. The order of `and` and `or` is kept, because the left side may guard the right one.
rule("not-not", BOOL, op(E.Not, op(E.Not, x)), x)
rule("not-true", BOOL, op(E.Not, lit(True)), lit(False))
rule("not-false", BOOL, op(E.Not, lit(False)), lit(True))
rule("not-lt", INT, op(E.Not, op(E.Lt, x, y)), op(E.Le, y, x))
rule("not-le", INT, op(E.Not, op(E.Le, x, y)), op(E.Lt, y, x))
rule("not-eq", INT + FLOAT, op(E.Not, op(E.Eq, x, y)), op(E.Ne, x, y))
rule("not-ne", INT + FLOAT, op(E.Not, op(E.Ne, x, y)), op(E.Eq, x, y))
rule("and-true", BOOL, op(E.And, x, lit(True)), x)
rule("true-and", BOOL, op(E.And, lit(True), x), x)
rule("and-false", BOOL, op(E.And, x, lit(False)), lit(False))
rule("false-and", BOOL, op(E.And, lit(False), x), lit(False))
rule("and-same", BOOL, op(E.And, x, x), x)
rule("and-same-deep", BOOL, op(E.And, op(E.And, y, x), x), op(E.And, y, x))
rule("or-false", BOOL, op(E.Or, x, lit(False)), x)
rule("false-or", BOOL, op(E.Or, lit(False), x), x)
rule("or-true", BOOL, op(E.Or, x, lit(True)), lit(True))
rule("true-or", BOOL, op(E.Or, lit(True), x), lit(True))
rule("or-same", BOOL, op(E.Or, x, x), x)
rule("select-same", ANY, op(E.Select, b, x, x), x)
rule("select-true", ANY, op(E.Select, lit(True), x, y), x)
rule("select-false", ANY, op(E.Select, lit(False), x, y), y)
rule("select-not", ANY, op(E.Select, op(E.Not, b), x, y), op(E.Select, b, y, x))
rule("select-of-truth", BOOL, op(E.Select, b, lit(True), lit(False)), b)
rule("select-of-lie", BOOL, op(E.Select, b, lit(False), lit(True)), op(E.Not, b))
# If both are equal, either will do. Not for floats: 0.0 and -0.0 compare equal but differ.
rule("select-equal-first", INT + BOOL, op(E.Select, op(E.Eq, x, y), x, y), y)
rule("select-equal-second", INT + BOOL, op(E.Select, op(E.Eq, x, y), y, x), x)
rule("select-select-same", ANY, op(E.Select, b, op(E.Select, b, x, y), z), op(E.Select, b, x, z))
rule("select-select-other", ANY, op(E.Select, b, x, op(E.Select, b, y, z)), op(E.Select, b, x, z))

BY_HEAD: dict[type[Expr], list[Rule]] = {}  # class of the root node -> the rules to try
for _rule in RULES:
    if _rule.pattern.head is not None:
        BY_HEAD.setdefault(_rule.pattern.head, []).append(_rule)
