"""Expressions: each node of `sym/expr.py` as C text, with common subexpressions in local constants.

An expression that is used more than once in a statement gets a name. C evaluates the arms of `?:` and the right sides of `&&` and `||`
only where they are asked for, as our semantics want it; an arm that reads memory and needs local constants becomes an `if`. Integers wrap:
sums and products are computed in unsigned types, unless ranges prove that nothing overflows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..dtype import DType, bf16, bool_, f32, f64, i64
from ..loop.buffer import Buffer, Load
from ..support.errors import InternalError
from ..support.names import unused_name
from ..sym import expr as E
from ..sym.bounds import int_range
from ..sym.expr import Const, Expr, Var, depth, fold_up
from ..sym.facts import EMPTY, Facts
from .c_types import HALVES, INT32, Val, arithmetic_type, c_type, literal

_KEYWORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm bool true false memcpy ctx"""
RESERVED = frozenset(_KEYWORDS.split())
DEEP = 100  # levels below an expression beyond which it is cut into local constants, to stay clear of Python's recursion limit
_SIGNS: dict[type[Expr], str] = {
    kind: kind.symbol for kind in (E.Add, E.Sub, E.Mul, E.Div, E.BitAnd, E.BitOr, E.BitXor, E.Eq, E.Ne, E.Lt, E.Le)
}


def has_load(e: Expr) -> bool:
    """Whether `e` reads memory (memoised)."""
    reads: bool = fold_up(e, "load", lambda node, below: isinstance(node, Load) or any(below))
    return reads


def is_lazy(e: Expr) -> bool:
    """Whether some operand may be read only where the first one says so."""
    return isinstance(e, (E.Select, E.And, E.Or)) and any(map(has_load, e.args[1:]))


class Expressions:
    """Writes expressions, and the local constants that they need, into `lines`."""

    def __init__(self, function: Callable[[str, DType], str]) -> None:
        self.lines: list[str] = []
        self.indent = 1
        self.names = set(RESERVED)  # taken in this function
        self.vars: dict[Var, Val] = {}
        self.facts: Facts = EMPTY  # ranges of variables
        self.function = function  # the name of the C function of an expanded function
        self.memo: dict[Expr, Val] = {}
        self.uses: Counter[Expr] = Counter()

    # Lines and names.

    def line(self, text: str) -> None:
        """Appends a line."""
        self.lines.append("  " * self.indent + text)

    def name(self, wanted: str) -> str:
        """A C name that nothing in this function has yet; what begins with `f_` or `pl_` are functions."""
        plain = "".join(ch if ch.isascii() and ch.isalnum() else "_" for ch in wanted)
        return unused_name(plain if plain[:1].isalpha() and not plain.startswith(("f_", "pl_")) else f"v_{plain}", self.names)

    def settle(self, value: Val, hint: str = "t") -> Val:
        """The value under a name, so that its text can be used several times."""
        if value.text.isidentifier():
            return value
        name = self.name(hint)
        self.line(f"const {value.type} {name} = {value.text};")
        return Val(name, value.type)

    # Expressions.

    def begin(self, *roots: Expr) -> None:
        """Prepares for the expressions of one statement: what they share is counted."""
        self.memo, self.uses = {}, Counter()
        seen: set[Expr] = set()
        stack = list(roots)
        while stack:
            e = stack.pop()
            self.uses[e] += 1
            if e not in seen:
                seen.add(e)
                stack.extend(self.operands(e))

    def operands(self, e: Expr) -> tuple[Expr, ...]:
        """What the text of `e` is made of; of a load, the number of its element."""
        return (self.flat(e.buffer, e.indices),) if isinstance(e, Load) else e.args

    def flat(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """The number of an element."""
        raise NotImplementedError

    def expr(self, e: Expr) -> Val:
        """The C text of an expression of the statement at hand."""
        if isinstance(e, Const):
            return literal(e)
        if isinstance(e, Var):
            return self.vars[e]
        value = self.memo.get(e)
        if value is None:
            if depth(e) > DEEP:
                self._cut(e)
            value = self.memo.get(e) or _EMIT[type(e)](self, e)
            if self.uses[e] > 1 and not _is_cheap(e):
                value = self.settle(value)
            self.memo[e] = value
        return value

    def _cut(self, e: Expr) -> None:
        """Gives names to deep parts of `e` that are certain to be evaluated, from the leaves up."""
        for node in self._certain(e):
            if depth(node) % (DEEP // 2) == 0 and node not in self.memo and node is not e:
                self.memo[node] = self.settle(_EMIT[type(node)](self, node))

    def _certain(self, e: Expr) -> list[Expr]:
        """The nodes that are evaluated whenever `e` is, operands before users; constants and variables left out."""
        order: list[Expr] = []
        seen: set[Expr] = set()
        stack = [(e, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif node not in seen and not isinstance(node, (Const, Var)):
                seen.add(node)
                stack.append((node, True))
                stack.extend((a, False) for a in self.operands(node)[: 1 if is_lazy(node) else None])
        return order

    def load(self, e: Load) -> Val:
        """An element of a buffer."""
        raise NotImplementedError

    # Arithmetic.

    def _arithmetic(self, e: Expr) -> Val:
        d, (a, b) = e.dtype, map(self.expr, e.args)
        if d is bool_:  # of bools there are & | ^ alone
            return Val(f"{a.at(1)} {_SIGNS[type(e)]} {b.at(1)}", "bool", 0)
        if d.is_float:
            return self.halves(d, lambda x, y: Val(f"{x.at(1)} {_SIGNS[type(e)]} {y.at(1)}", "", 0), a, b)
        if isinstance(e, (E.BitAnd, E.BitOr, E.BitXor)):
            type_ = "int32_t" if a.type == b.type == "int32_t" else c_type(d)
            return (
                _cast(type_, Val(f"{a.at(1)} {_SIGNS[type(e)]} {b.at(1)}", "", 0)) if d.bits < 32 else _binary(a, _SIGNS[type(e)], b, type_)
            )
        return self._ring(e, a, b)

    def _ring(self, e: Expr, a: Val, b: Val) -> Val:
        """Sums and products of integers."""
        d, sign = e.dtype, _SIGNS[type(e)]
        (al, ah), (bl, bh) = (int_range(x, self.facts) for x in e.args)
        corners = (al * bl, al * bh, ah * bl, ah * bh)
        low, high = {"+": (al + bl, ah + bh), "-": (al - bh, ah - bl), "*": (min(corners), max(corners))}[sign]
        if d is i64 and a.type == b.type == "int32_t" and INT32[0] <= low and high <= INT32[1]:
            return _binary(a, sign, b, "int32_t")
        if d.bits >= 32 and (d.kind == "u" or (d.min <= low and high <= d.max)):
            return _binary(_cast(c_type(d), a), sign, b, c_type(d))
        u = arithmetic_type(d)
        return _cast(c_type(d), _binary(_cast(u, a), sign, _cast(u, b), u))

    def halves(self, d: DType, op: Callable[..., Val], *args: Val) -> Val:
        """An operation on floats; the half types compute in f32 and round once more."""
        if d not in HALVES:
            return op(*args)._replace(type=c_type(d))
        return self.narrow(op(*(self.widen(a, d) for a in args)), d)

    def widen(self, a: Val, d: DType) -> Val:
        """f16 or bf16 as f32."""
        return Val(f"pl_f32_of_{d}({a.text})", "float")

    def narrow(self, a: Val, d: DType) -> Val:
        """f32 rounded to f16 or bf16."""
        return Val(f"pl_{d}_of_f32({a.text})", "uint16_t")

    def _extreme(self, e: Expr) -> Val:
        d, (a, b) = e.dtype, map(self.expr, e.args)
        name = "min" if isinstance(e, E.Min) else "max"
        if d is bool_:
            return Val(f"{a.at(1)} {'&' if name == 'min' else '|'} {b.at(1)}", "bool", 0)
        if d.is_float:
            return self.halves(d, lambda x, y: Val(f"pl_{name}_{f32 if d in HALVES else d}({x.text}, {y.text})", ""), a, b)
        narrow = d is i64 and a.type == b.type == "int32_t"
        return Val(f"pl_{name}_{'i32' if narrow else d}({a.text}, {b.text})", "int32_t" if narrow else c_type(d))

    def _neg(self, e: Expr) -> Val:
        a, d = self.expr(e.args[0]), e.dtype
        if d in HALVES:
            return Val(f"(uint16_t)({a.at(1)} ^ 0x8000u)", "uint16_t", 1)
        if d.is_float:
            return Val(f"-{a.at(2)}", a.type, 1)
        return self._ring(E.Sub(Const(0, d), e.args[0]), literal(Const(0, d)), a)

    def _bit_not(self, e: Expr) -> Val:
        if isinstance(e.args[0], Const) and e.dtype.is_int:
            return literal(Const(~e.args[0].value, e.dtype))
        a = self.expr(e.args[0])
        return Val(f"!{a.at(2)}", "bool", 1) if e.dtype is bool_ else _cast(a.type, Val(f"~{a.at(2)}", "", 1))

    def _fma(self, e: Expr) -> Val:
        d = f32 if e.dtype in HALVES else e.dtype
        return self.halves(e.dtype, lambda *x: Val(f"pl_fma_{d}({', '.join(v.text for v in x)})", ""), *map(self.expr, e.args))

    def _divide(self, e: Expr) -> Val:
        """Quotients and remainders towards minus infinity; by zero 0."""
        d, (a, b) = e.dtype, map(self.expr, e.args)
        quotient = isinstance(e, E.FloorDiv)
        (low, _), (least, most) = (int_range(x, self.facts) for x in e.args)
        narrow = d is i64 and a.type == b.type == "int32_t" and least > 0
        type_ = "int32_t" if narrow else c_type(d)
        if least > 0 and low >= 0:
            return _cast(type_, _binary(a, "/" if quotient else "%", b, "int" if d.bits < 32 else type_))
        if least == most > 0 and most & (most - 1) == 0:  # compilers shift signed numbers arithmetically
            sign, right = (">>", most.bit_length() - 1) if quotient else ("&", most - 1)
            return _cast(type_, _binary(_cast(type_, a), sign, literal(Const(right, i64)), "int" if d.bits < 32 else type_))
        return Val(f"pl_floor{'div' if quotient else 'mod'}_{'i32' if narrow else d}({a.text}, {b.text})", type_)

    def _shift(self, e: Expr) -> Val:
        d, (a, b) = e.dtype, map(self.expr, e.args)
        left = isinstance(e, E.Shl)
        if isinstance(e.args[1], Const) and 0 <= e.args[1].value < d.bits:
            wide = _cast(arithmetic_type(d) if left else c_type(d), a)
            return _cast(c_type(d), Val(f"{wide.at(1)} {'<<' if left else '>>'} {e.args[1].value}", "", 0))
        return Val(f"pl_{'shl' if left else 'shr'}_{d}({a.text}, {b.text})", c_type(d))

    # Comparisons and choices.

    def _compare(self, e: Expr) -> Val:
        d = e.args[0].dtype
        if not d.is_float:
            (al, ah), (bl, bh) = (int_range(x, self.facts) for x in e.args)
            # What ranges decide is not compared: compilers warn of comparisons that are always true, also of `(x | 1) != 0`.
            always, never = {"<": (ah < bl, al >= bh), "<=": (ah <= bl, al > bh), "==": (al == ah == bl == bh, ah < bl or bh < al)}.get(
                _SIGNS[type(e)], (ah < bl or bh < al, al == ah == bl == bh)
            )
            if e.args[0] is e.args[1]:
                always, never = isinstance(e, (E.Eq, E.Le)), not isinstance(e, (E.Eq, E.Le))
            if always or never:
                return literal(Const(always, bool_))
        a, b = (self.settle(self.expr(x)) if isinstance(x, (E.BitAnd, E.BitOr)) else self.expr(x) for x in e.args)
        if d in HALVES:
            a, b = self.widen(a, d), self.widen(b, d)
        if d is bool_:
            a, b = (Val(f"(int){x.at(1)}", "int", 1) for x in (a, b))
        return Val(f"{a.at(1)} {_SIGNS[type(e)]} {b.at(1)}", "bool", 0)

    def _not(self, e: Expr) -> Val:
        return Val(f"!{self.expr(e.args[0]).at(2)}", "bool", 1)

    def _choice(self, e: Expr) -> Val:
        """`select`, `and`, `or`: an arm that reads memory is evaluated only where it is taken."""
        c = self.expr(e.args[0])
        if c.text in ("true", "false"):  # ranges decide it
            taken = e.args[1] if c.text == "true" else e.args[-1]
            return (
                self.expr(taken) if isinstance(e, E.Select) else self.expr(e.args[1]) if (c.text == "true") == isinstance(e, E.And) else c
            )
        if is_lazy(e) and isinstance(e, E.Select):  # what both arms need is needed
            both = set(self._certain(e.args[1])).intersection(self._certain(e.args[2]))
            for node in self._certain(e.args[1]):
                if node in both and self.uses[node] > 1:
                    self.expr(node)
        arms = [self._arm(a) if is_lazy(e) else (self.expr(a), []) for a in e.args[1:]]
        if any(lines for _, lines in arms):
            return self._branch(e, c, arms)
        if isinstance(e, E.Select):
            type_ = arms[0][0].type if arms[0][0].type == arms[1][0].type else c_type(e.dtype)
            chosen = Val(f"{c.at(1)} ? {arms[0][0].at(1)} : {arms[1][0].at(1)}", type_, 0)
            return _cast(type_, chosen) if e.dtype.bits < 32 and e.dtype.is_int else chosen
        return Val(f"{c.at(1)} {'&&' if isinstance(e, E.And) else '||'} {arms[0][0].at(1)}", "bool", 0)

    def _arm(self, e: Expr) -> tuple[Val, list[str]]:
        """An operand, and the lines that must come before it."""
        lines, memo, self.lines, self.memo = self.lines, self.memo, [], dict(self.memo)
        self.indent += 1
        value, own = self.expr(e), self.lines
        self.indent -= 1
        self.lines, self.memo = lines, memo
        return value, own

    def _branch(self, e: Expr, c: Val, arms: list[tuple[Val, list[str]]]) -> Val:
        """A choice as an `if`."""
        type_, name = c_type(e.dtype), self.name("t")
        if isinstance(e, E.Select):
            self.line(f"{type_} {name};")
            self.line(f"if ({c.text}) {{")
        else:
            self.line(f"bool {name} = {c.text};")
            self.line(f"if ({'' if isinstance(e, E.And) else '!'}{name}) {{")
        for n, (value, lines) in enumerate(arms):
            if n:
                self.line("} else {")
            self.lines += [*lines, "  " * (self.indent + 1) + f"{name} = {value.text};"]
        self.line("}")
        return Val(name, type_)

    # Casts and functions.

    def _cast_node(self, e: Expr) -> Val:
        return self.cast(self.expr(e.args[0]), e.args[0].dtype, e.dtype, e)

    def cast(self, a: Val, source: DType, to: DType, e: Expr | None = None) -> Val:
        """The value of `a` in another dtype; `e` is the node, if ranges may be asked for."""
        if source is to:
            return a
        if source in HALVES:
            return self.cast(self.widen(a, source), f32, to)
        if to in HALVES:
            return self._to_half(a, source, to)
        if to is bool_:
            return Val(f"{(a if a.level or source.is_float else self.settle(a)).at(1)} != 0", "bool", 0)
        if source.is_float and to.is_int:
            return Val(f"pl_{to}_of_{source}({a.text})", c_type(to))
        if to is i64 and e is not None:
            low, high = int_range(e, self.facts)
            if INT32[0] <= low and high <= INT32[1]:
                return _cast("int32_t", a)
        return _cast(c_type(to), a)

    def _to_half(self, a: Val, source: DType, to: DType) -> Val:
        if source is f64 or (source.bits > 16 and source.is_int and to is bf16):
            if source.bits == 64 and source.is_int:
                a = Val(f"pl_sticky_{source}({a.text})", c_type(source))
            return self.narrow(Val(f"pl_odd_f32({_cast('double', a).text})", "float"), to)
        return self.narrow(_cast("float", a), to)  # f32 holds every integer that f16 does not take to infinity

    def _bitcast(self, e: Expr) -> Val:
        a, source, to = self.expr(e.args[0]), e.args[0].dtype, e.dtype
        if to is bool_ or source is bool_:
            return self.cast(a, source, to)
        if source in (f32, f64):
            a = Val(f"pl_{source}_bits({a.text})", f"uint{source.bits}_t")
        if to in (f32, f64):
            return Val(f"pl_{to}_from_bits({_cast(f'uint{to.bits}_t', a).text})", c_type(to))
        return _cast(c_type(to), a)

    def _call(self, e: Expr) -> Val:
        args, d = [self.expr(a) for a in e.args], e.dtype
        if e.payload not in E.PRIMITIVE_FUNCTIONS:
            return Val(f"{self.function(e.payload, d)}({', '.join(a.text for a in args)})", c_type(d))
        if d.is_float:
            kind = f32 if d in HALVES else d
            return self.halves(d, lambda x: Val(f"pl_{e.payload}_{kind}({x.text})", ""), *args)
        if e.payload == "sqrt":
            raise InternalError(f"sqrt of {d}: {e}")
        return Val(f"pl_abs_{d}({args[0].text})", c_type(d)) if e.payload == "abs" and d.kind == "i" else args[0]


def _is_cheap(e: Expr) -> bool:
    """Whether repeating the text is better than a name for it."""
    return e.dtype.is_int and depth(e) <= 2 and not has_load(e)


def _cast(type_: str, a: Val) -> Val:
    return a if a.type == type_ else Val(f"({type_}){a.at(1)}", type_, 1)


def _binary(a: Val, sign: str, b: Val, type_: str) -> Val:
    return Val(f"{a.at(1)} {sign} {b.at(1)}", type_, 0)


_EMIT: dict[type[Expr], Callable[[Expressions, Expr], Val]] = {
    **dict.fromkeys((E.Add, E.Sub, E.Mul, E.Div, E.BitAnd, E.BitOr, E.BitXor), Expressions._arithmetic),
    **dict.fromkeys((E.Min, E.Max), Expressions._extreme),
    **dict.fromkeys((E.FloorDiv, E.FloorMod), Expressions._divide),
    **dict.fromkeys((E.Shl, E.Shr), Expressions._shift),
    **dict.fromkeys((E.Eq, E.Ne, E.Lt, E.Le), Expressions._compare),
    **dict.fromkeys((E.Select, E.And, E.Or), Expressions._choice),
    **dict.fromkeys((E.Fma, E.MulAdd), Expressions._fma),
    E.Neg: Expressions._neg,
    E.BitNot: Expressions._bit_not,
    E.Not: Expressions._not,
    E.Cast: Expressions._cast_node,
    E.Bitcast: Expressions._bitcast,
    E.Call: Expressions._call,
    Load: lambda self, e: self.load(e),  # type: ignore[arg-type]
}
