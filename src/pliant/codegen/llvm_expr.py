"""LLVM code generation for expressions: each node of `sym/expr.py` becomes instructions over scalars or lanes.

An expression is emitted as a vector if it depends on the lane, else as a scalar. Values of expressions without loads are reused (common
subexpressions). A select whose arms load from addresses that may be out of bounds, and such a right side of `and`/`or`, becomes a
branch. Over lanes, the branch is taken if any lane takes it, and inside only those lanes are active (`self.mask`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..dtype import DType, bool_, i32, i64
from ..loop.buffer import Load, has_load
from ..support.errors import InternalError
from ..sym import expr as E
from ..sym.expr import Const, Expr, Var, free_vars
from ..sym.function_names import PRIMITIVE_FUNCTIONS
from ..sym.walk import depth
from .llvm_build import Declarations
from .llvm_scope import Scopes
from .llvm_types import HALVES, Val, float_literal, literal, register_type

if TYPE_CHECKING:
    from collections.abc import Iterator

DEEP = 100  # levels beyond which an expression is emitted bottom-up, to bound Python's recursion
_FLOAT_OPS: dict[type[Expr], str] = {E.Add: "fadd", E.Sub: "fsub", E.Mul: "fmul", E.Div: "fdiv"}
_INT_OPS: dict[type[Expr], str] = {E.Add: "add", E.Sub: "sub", E.Mul: "mul", E.BitAnd: "and", E.BitOr: "or", E.BitXor: "xor"}
_FLOAT_COMPARES: dict[type[Expr], str] = {E.Eq: "oeq", E.Ne: "une", E.Lt: "olt", E.Le: "ole"}
_INT_COMPARES: dict[type[Expr], str] = {E.Eq: "eq", E.Ne: "ne", E.Lt: "lt", E.Le: "le"}


class Expressions(Scopes):
    """Emits expressions as LLVM instructions, over scalars or lanes."""

    def __init__(self, declarations: Declarations) -> None:
        super().__init__(declarations)
        self.mask: Val | None = None  # the active lanes, at least one; None if all are
        self.lanes = 0

    def expr(self, e: Expr) -> Val:
        """Emit an expression as LLVM instructions, or reuse the value from an earlier evaluation.

        Raises an InternalError for a kind of node without code.
        """
        if isinstance(e, Const):
            return literal(e)
        if isinstance(e, Var):
            return self.value_of(e)
        reads = has_load(e)
        value: Val | None = self.loads.get(e) if reads else self.recall(e)
        if value is None:
            emit = _EMIT.get(type(e))
            if emit is None:
                raise InternalError(f"{type(e).__name__} has no code: {e}")
            if depth(e) > DEEP:
                self._settle(e)
            value = emit(self, e)
            if reads:
                self.loads[e] = value
            else:
                self.remember(e, value, free_vars(e))
        return value

    def _settle(self, e: Expr) -> None:
        """Emit the nodes below `e` bottom-up, so that recursion stays shallow; skips lazy arms, whose loads may be out of bounds."""
        stack, seen = [(e, False)], {e}
        while stack:
            node, done = stack.pop()
            if done:
                self.expr(node)
                continue
            lazy = isinstance(node, (E.Select, E.And, E.Or)) and has_load(node)
            below = [a for a in (node.args[:1] if lazy else node.args) if a not in seen and depth(a) > DEEP // 2]
            if node is not e:
                stack.append((node, True))
            seen.update(below)
            stack.extend((a, False) for a in below)

    def load(self, e: Load) -> Val:
        """Emit a load; a subclass implements it (`llvm_memory.py`), here it raises NotImplementedError."""
        raise NotImplementedError

    # Arithmetic.

    def dot(self, e: Expr) -> Val | None:
        """Emit a sum of products by dot-product instructions, or return None.

        A subclass implements it (`llvm_dot.py`), here it raises NotImplementedError.
        """
        raise NotImplementedError

    def _arithmetic(self, e: Expr) -> Val:
        dot = self.dot(e) if self.lanes and e.dtype is i32 and type(e) is E.Add else None
        if dot is not None:
            return dot
        a, b = self.expr(e.args[0]), self.expr(e.args[1])
        return self.arithmetic(type(e), a, b)

    def arithmetic(self, kind: type[Expr], a: Val, b: Val) -> Val:
        """Emit one of + - * / min max & | ^ on two values."""
        d = a.dtype
        if d in HALVES:
            return self.narrow(self.arithmetic(kind, self.widen(a), self.widen(b)), d)
        if kind in (E.Min, E.Max):
            least = kind is E.Min
            if d is bool_:
                return self.binary("and" if least else "or", a, b)
            if d.is_float:
                return self._extreme(least, a, b)
            return self.intrinsic(f"{'s' if d.kind == 'i' else 'u'}{'min' if least else 'max'}", [a, b])
        return self.binary((_FLOAT_OPS if d.is_float else _INT_OPS)[kind], a, b)

    def _extreme(self, least: bool, a: Val, b: Val) -> Val:
        """Emit the minimum (`least`) or maximum of floats.

        Against a literal other than 0 and NaN, one comparison and a select are enough.
        """
        for x, c in ((a, b), (b, a)):
            if c.is_literal and not c.ref.startswith(("0x0000000000000000", "0x8000000000000000", "0x7FF8")):
                return self.select(self.compare("fcmp olt" if least else "fcmp ogt", c, x), c, x)
        return self.extreme(least, a, b)

    def _neg(self, e: Expr) -> Val:
        a = self.expr(e.args[0])
        if a.dtype in HALVES:
            return self.binary("xor", a, Val("-32768", a.dtype))
        if a.dtype.is_float:
            return self.value(f"fneg {a.typed}", a.dtype, a.lanes)
        return self.binary("sub", Val("0", a.dtype), a)

    def _bit_not(self, e: Expr) -> Val:
        a = self.expr(e.args[0])
        return self.binary("xor", a, Val("true" if a.dtype is bool_ else "-1", a.dtype))

    def _fma(self, e: Expr) -> Val:
        a, b, c = (self.expr(x) for x in e.args)
        return self.fma(a, b, c)

    # Integer division rounds towards minus infinity; by zero it is 0.

    def _floor_div(self, e: Expr) -> Val:
        return self._divide(e, quotient=True)

    def _floor_mod(self, e: Expr) -> Val:
        return self._divide(e, quotient=False)

    def _divide(self, e: Expr, quotient: bool) -> Val:
        a, b = self.expr(e.args[0]), self.expr(e.args[1])
        d = a.dtype
        number = self.number_of(e.args[1]) if d is i64 else e.args[1].value if isinstance(e.args[1], Const) else None
        if number is not None:
            return self._divide_by(a, d.wrap(number), e.args[0], quotient)
        if d.kind == "u" or (self._at_least(e.args[0], 0) and self._at_least(e.args[1], 0)):
            zero = None if self._at_least(e.args[1], 1) else self.compare("icmp eq", b, self.int_(0, b))
            safe = b if zero is None else self.select(zero, self.int_(1, b), b)
            result = self.binary("udiv" if quotient else "urem", a, safe)
            return result if zero is None else self.select(zero, self.int_(0, b), result)
        zero = self.compare("icmp eq", b, self.int_(0, b))
        flipped = self.compare("icmp eq", b, self.int_(-1, b))
        safe = self.select(self.binary("or", zero, flipped), self.int_(1, b), b)  # neither division by 0 nor min / -1 may trap
        result = self._floor(a, safe, quotient)
        if not quotient:
            return result
        return self.select(zero, self.int_(0, b), self.select(flipped, self.binary("sub", self.int_(0, a), a), result))

    def _at_least(self, e: Expr, least: int) -> bool:
        """True if an integer is provably at least `least`; false for masked lanes, since inactive ones may have any value."""
        if self.mask is not None and self.is_varying(e):
            return False
        return e.dtype.is_int and (self.settled_range_of(e)[0] >= least or self.range_of(e)[0] >= least)

    def _divide_by(self, a: Val, number: int, dividend: Expr, quotient: bool) -> Val:
        d = a.dtype
        if number == 0:
            return Val("0", d)
        if number == -1 and d.kind == "i":
            return self.binary("sub", Val("0", d), a) if quotient else Val("0", d)
        if number > 0 and number & (number - 1) == 0:
            if quotient:
                return self.binary("ashr" if d.kind == "i" else "lshr", a, Val(str(number.bit_length() - 1), d))
            return self.binary("and", a, Val(str(number - 1), d))
        if number > 0 and (d.kind == "u" or self._at_least(dividend, 0)):
            return self.binary("udiv" if quotient else "urem", a, Val(str(number), d))
        return self._floor(a, Val(str(number), d), quotient)

    def _floor(self, a: Val, b: Val, quotient: bool) -> Val:
        """Emit signed floor division (`quotient`) or modulo by a divisor that is neither 0 nor -1."""
        rest = self.binary("srem", a, b)
        below = self.compare("icmp slt", self.binary("xor", rest, b), self.int_(0, b))
        fix = self.binary("and", self.compare("icmp ne", rest, self.int_(0, b)), below)
        if quotient:
            result = self.binary("sdiv", a, b)
            return self.binary("add", result, self.convert("sext", fix, a.dtype))
        return self.binary("add", rest, self.select(fix, b, self.int_(0, b)))

    def _shift(self, e: Expr) -> Val:
        a, b = self.expr(e.args[0]), self.expr(e.args[1])
        d = a.dtype
        op = "shl" if isinstance(e, E.Shl) else "ashr" if d.kind == "i" else "lshr"
        if isinstance(e.args[1], Const) and 0 <= e.args[1].value < d.bits:
            return self.binary(op, a, b)
        inside = self.compare("icmp ult", b, self.int_(d.bits, b))
        if op == "ashr":
            return self.binary(op, a, self.select(inside, b, self.int_(d.bits - 1, b)))
        return self.select(inside, self.binary(op, a, b), self.int_(0, a))

    # Comparisons and logic.

    def _compare(self, e: Expr) -> Val:
        a, b = self.expr(e.args[0]), self.expr(e.args[1])
        if a.dtype in HALVES:
            a, b = self.widen(a), self.widen(b)
        if a.dtype.is_float:
            return self.compare(f"fcmp {_FLOAT_COMPARES[type(e)]}", a, b)
        sign = "s" if a.dtype.kind == "i" else "u"
        op = _INT_COMPARES[type(e)]
        return self.compare(f"icmp {op if op in ('eq', 'ne') else sign + op}", a, b)

    def _logic(self, e: Expr) -> Val:
        left, right = e.args
        is_and = isinstance(e, E.And)
        a = self.expr(left)
        if not self.is_risky(right):
            return self.binary("and" if is_and else "or", a, self.expr(right))
        decided = Val("false" if is_and else "true", bool_)
        return self._branch(a if is_and else self.not_(a), right, decided)

    def _not(self, e: Expr) -> Val:
        return self.not_(self.expr(e.args[0]))

    def _select(self, e: Expr) -> Val:
        c = self.expr(e.args[0])
        a, b = e.args[1:]
        if not self.is_risky(a) and not self.is_risky(b):
            return self.select(c, self.expr(a), self.expr(b))
        if not self.is_risky(b):
            return self._branch(c, a, self.expr(b))
        if not self.is_risky(a):
            return self._branch(self.not_(c), b, self.expr(a))
        return self._branch(c, a, self._branch(self.not_(c), b, Val("zeroinitializer", e.dtype, -1)))

    def is_risky(self, e: Expr, safe: set[Expr] | None = None) -> bool:
        """True if `e` may load out of bounds; `safe` collects expressions that provably do not."""
        safe = set() if safe is None else safe
        if e in safe or e in self.loads or not has_load(e):  # an earlier load has its value
            return False
        if isinstance(e, Load) and not self.is_present(e):
            return True
        if isinstance(e, (E.Select, E.And, E.Or)):  # an arm is evaluated only if its condition holds, which may make its loads safe
            c = e.args[0]
            arms = zip(e.args[1:], (E.Not(c) if isinstance(e, E.Or) else c, E.Not(c)), strict=False)
            risky = self.is_risky(c, safe) or any(self._is_risky_where(condition, arm, safe) for arm, condition in arms)
        else:
            risky = any(self.is_risky(a, safe) for a in e.args)
        if not risky:
            safe.add(e)
        return risky

    def _is_risky_where(self, condition: Expr, e: Expr, safe: set[Expr]) -> bool:
        """True if `e` may load out of bounds even if the condition holds."""
        # Nothing is known about memory contents. This also cuts off the selects of expanded math functions, which share their loads.
        if has_load(condition):
            return self.is_risky(e, safe)
        if not has_load(e):
            return False
        with self.supposing(self.resolve(condition)):
            return self.is_risky(e)

    def is_present(self, e: Load) -> bool:
        """True if a load is provably in bounds (for all active lanes: only these load)."""
        if any(has_load(i) for i in e.indices):
            return False
        for index, size in zip(e.indices, e.buffer.shape, strict=True):
            if not (self.proves(E.Le(Const(0, i64), index)) and self.proves(E.Lt(index, size))):
                return False
        return True

    def _branch(self, c: Val, taken: Expr, otherwise: Val) -> Val:
        """Emit a branch: `taken` if `c` holds, else `otherwise`; `taken` is not evaluated otherwise.

        If `c` is a vector, `taken` is evaluated for the lanes where it holds, if there are any. A value of negative lanes as `otherwise`
        means zero.
        """
        lanes = max(c.lanes, otherwise.lanes, self.lanes if self.is_varying(taken) else 0)
        dtype = taken.dtype
        if otherwise.lanes < 0:
            otherwise = Val("zeroinitializer" if lanes else _zero(dtype), dtype, lanes)
        otherwise = self.splat(otherwise, lanes) if lanes else otherwise
        then, join, before = self.new_label("take"), self.new_label("join"), self.label
        if c.lanes:
            active = c if self.mask is None else self.binary("and", c, self.mask)
            self.branch_if(self.any_lane(active), then, join)
        else:
            active = None
            self.branch_if(c, then, join)
        self.start_block(then)
        with self.scope(), self.active(active):
            value = self.expr(taken)
            value = self.splat(value, lanes) if lanes else value
            if c.lanes:
                value = self.select(c, value, otherwise)
            after = self.label
            self.branch(join)
        self.start_block(join)
        type_name = register_type(dtype, lanes)
        return self.value(f"phi {type_name} [ {otherwise.ref}, %{before} ], [ {value.ref}, %{after} ]", dtype, lanes)

    @contextmanager
    def active(self, mask: Val | None) -> Iterator[None]:
        """Context manager: loads and stores are emitted for the lanes of `mask` only; None keeps the mask from before."""
        before = self.mask
        self.mask = before if mask is None else mask
        try:
            yield
        finally:
            self.mask = before

    # Casts and functions.

    def _cast(self, e: Expr) -> Val:
        return self.cast(self.expr(e.args[0]), e.dtype)

    def _bitcast(self, e: Expr) -> Val:
        a = self.expr(e.args[0])
        if e.dtype is bool_ or a.dtype is bool_:
            return self.cast(a, e.dtype)
        if a.type == register_type(e.dtype, a.lanes):
            return Val(a.ref, e.dtype, a.lanes)
        return self.convert("bitcast", a, e.dtype)

    def _call(self, e: Expr) -> Val:
        if e.payload not in PRIMITIVE_FUNCTIONS:
            raise InternalError(f"the function `{e.payload}` was not expanded")
        return self.primitive(e.payload, self.expr(e.args[0]))


def _zero(dtype: DType) -> str:
    if dtype is bool_:
        return "false"
    return float_literal(0.0) if dtype.is_float and dtype not in HALVES else "0"


_EMIT: dict[type[Expr], Callable[[Expressions, Expr], Val]] = {
    **dict.fromkeys((*_FLOAT_OPS, *_INT_OPS, E.Min, E.Max), Expressions._arithmetic),
    **dict.fromkeys(_FLOAT_COMPARES, Expressions._compare),
    **dict.fromkeys((E.And, E.Or), Expressions._logic),
    **dict.fromkeys((E.Shl, E.Shr), Expressions._shift),
    E.FloorDiv: Expressions._floor_div,
    E.FloorMod: Expressions._floor_mod,
    E.Neg: Expressions._neg,
    E.BitNot: Expressions._bit_not,
    E.Not: Expressions._not,
    E.Select: Expressions._select,
    **dict.fromkeys((E.Fma, E.MulAdd), Expressions._fma),
    E.Cast: Expressions._cast,
    E.Bitcast: Expressions._bitcast,
    E.Call: Expressions._call,
    Load: lambda self, e: self.load(e),  # type: ignore[arg-type]
}
