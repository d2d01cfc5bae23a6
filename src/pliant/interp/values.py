"""Translates expressions of loop programs to lines of Python; the base of the interpreter's code writer (`source.py`).

Every node becomes one line `t7 = t5 + t6`; common subexpressions are computed once per statement. An i64 that is the same for all lanes
is a Python integer (wrapped where its size cannot be bounded), a bool is any Python truth value, and everything else is a numpy value of
the dtype with the semantics of `sym/semantics.py`. A value that differs between lanes is an array. An arm of `select` or a right side of
`and`/`or` loads only for the lanes that take it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..dtype import bool_, f32, f64, i64
from ..loop.buffer import Buffer, Load, has_load
from ..support.source import Span
from ..sym import expr as E
from ..sym.expr import Call, Const, Expr, Select, Var
from ..sym.function_names import PRIMITIVE_FUNCTIONS
from ..sym.semantics import const_value

SYMBOL_BITS = 40  # symbols are checked on entry to be below 2**40, so most index arithmetic cannot overflow and needs no wrapping

# Operations that Python and numpy operators compute with the right semantics.
_DIRECT: dict[type[Expr], str] = {E.Add: "+", E.Sub: "-", E.Mul: "*", E.Div: "/", E.Lt: "<", E.Le: "<=", E.Eq: "==", E.Ne: "!="}
_BITWISE: dict[type[Expr], str] = {E.BitAnd: "&", E.BitOr: "|", E.BitXor: "^"}
_COMPARE = (E.Lt, E.Le, E.Eq, E.Ne)


class Values:
    """Writes Python lines that compute expressions; tracks the names of variables, and which of them differ between lanes."""

    def __init__(self, checked: bool) -> None:
        self.checked = checked
        self.lines: list[str] = []
        self.depth = 1
        self.globals: dict[str, Any] = {}
        self.names: dict[Var, str] = {}
        self.memories: dict[Buffer, str] = {}
        self.lane_axes: dict[Buffer, int] = {}  # buffer allocated inside of lanes -> the number of lane axes in front
        self.varying = {"lanes"}  # names whose value differs between lanes; "lanes" marks loads by lanes
        self.bits: dict[str, int] = {}  # name of an i64 -> |value| < 2**bits
        self.memo: dict[Expr, str] = {}
        self.values_of: dict[Var, Expr] = {}  # iterator or let -> its value, for finding accesses that are affine in the lanes
        self.axes: dict[Var, tuple[int, str]] = {}  # loop variable of a lane axis -> its position, and the name of its first value
        self.extents: list[str] = []  # the extents of the box of lanes; empty outside of lanes
        self.mask: str | None = None
        self.span: Span | None = None
        self._count = 0
        self._constants: dict[Const, str] = {}
        self._fails: dict[tuple[Buffer, Span | None], str] = {}

    # Lines and names.

    def line(self, text: str) -> None:
        """Writes a line at the current indentation."""
        self.lines.append("    " * self.depth + text)

    def fresh(self, hint: str = "t") -> str:
        """Returns a new Python name that begins with `hint`."""
        self._count += 1
        return f"{hint}{self._count}"

    def keep(self, value: Any, hint: str) -> str:
        """Returns a new global name under which the written code finds a Python object."""
        name = self.fresh(hint)
        self.globals[name] = value
        return name

    def temp(self, text: str, *operands: str) -> str:
        """Writes an assignment of `text` to a new name, and returns it; it varies between lanes if one of `operands` does."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        if not self.varying.isdisjoint(operands):
            self.varying.add(name)
        return name

    @contextmanager
    def inside(self, header: str) -> Iterator[None]:
        """Context manager: lines written inside of it are indented under a header."""
        self.line(header)
        self.depth += 1
        saved = dict(self.memo)
        self.line("pass")
        yield
        self.memo = saved
        self.depth -= 1

    @contextmanager
    def masked(self, mask: str | None) -> Iterator[None]:
        """Context manager: lines written inside of it run under another mask of lanes."""
        saved, self.mask = self.mask, mask
        memo = dict(self.memo)
        yield
        self.mask, self.memo = saved, memo

    def narrowed(self, condition: str) -> str:
        """Returns a name for the current mask of lanes combined with `condition`; `condition` itself if all lanes are active."""
        return condition if self.mask is None else self.temp(f"{self.mask} & {condition}", self.mask, condition)

    def box(self) -> str:
        """Returns the extents of the lanes as Python text."""
        return f"({', '.join(self.extents)},)"

    # Expressions.

    def value(self, e: Expr) -> str:
        """A name or a literal for the value of `e`; writes the lines that compute it, once."""
        name = self.memo.get(e)
        if name is None:
            name = self.memo[e] = self._write(e)
        return name

    def _write(self, e: Expr) -> str:
        """Writes the lines that compute an expression node; returns the name or text of its value."""
        if isinstance(e, Const):
            return self._constant(e)
        if isinstance(e, Var):
            return self.names[e]
        if isinstance(e, Load):
            return self.load(e)
        if isinstance(e, Select):
            return self._select(e)
        if isinstance(e, (E.And, E.Or)):
            return self._logic(e)
        if isinstance(e, Call) and e.fn not in PRIMITIVE_FUNCTIONS:
            return self._expanded(e)
        operands = [self.value(a) for a in e.args]
        if self.varying.isdisjoint(operands):
            return self._scalar_op(e, operands)
        return self._lane_op(e, operands)

    def _constant(self, c: Const) -> str:
        """Returns a literal as Python text, or a global name for a numpy constant."""
        if c.dtype is bool_:
            return str(c.value)
        if c.dtype is i64:
            text = f"({c.value})" if c.value < 0 else str(c.value)
            self.bits[text] = abs(c.value).bit_length()
            return text
        if c not in self._constants:
            self._constants[c] = self.keep(const_value(c), "k")
        return self._constants[c]

    def _apply(self, e: Expr, operands: list[str]) -> str:
        """Returns the text of a call that computes a node by the reference semantics."""
        return f"apply({self.keep(e, 'n')}, ({', '.join(operands)},))"

    def _scalar_op(self, e: Expr, operands: list[str]) -> str:
        """Writes an operation on values that are the same for all lanes."""
        kind, operand_dtype = type(e), e.args[0].dtype
        if kind is E.Not:
            return self.temp(f"not {operands[0]}")
        if operand_dtype is i64 and isinstance(e, E.Binary):
            return self._integer(e, *operands)
        if operand_dtype is i64 and kind is E.Neg:
            return self._wrapped(f"-{operands[0]}", self.size(operands[0]) + 1)
        if operand_dtype is i64 and kind is E.BitNot:
            return self._wrapped(f"~{operands[0]}", self.size(operands[0]) + 1)
        if kind in _COMPARE or (kind in _DIRECT and (operand_dtype in (f32, f64) or operand_dtype.is_int)):
            return self.temp(f"{operands[0]} {_DIRECT[kind]} {operands[1]}")
        if e.dtype is i64:
            if kind is E.Cast and not operand_dtype.is_float:
                return self._wrapped(f"int({operands[0]})", operand_dtype.bits)
            return self._sized(f"int({self._apply(e, operands)})", 64)
        return self.temp(self._apply(e, operands))

    def size(self, name: str) -> int:
        """Returns an upper bound of the number of bits of the i64 value `name`."""
        return self.bits.get(name, 64)

    def _sized(self, text: str, bits: int) -> str:
        """Writes an assignment of an i64 to a new name, records a bound of its bits, and returns the name."""
        name = self.temp(text)
        self.bits[name] = min(bits, 64)
        return name

    def _wrapped(self, text: str, bits: int) -> str:
        """Writes an assignment of an i64 to a new name, wrapped if it may have more than 63 bits, and returns the name."""
        return self._sized(text, bits) if bits <= 63 else self._sized(f"wrap64({text})", 64)

    def _integer(self, e: Expr, a: str, b: str) -> str:
        """Writes an operation on Python integers that stand for i64."""
        kind = type(e)
        m, n = self.size(a), self.size(b)
        if kind in (E.Add, E.Sub):
            return self._wrapped(f"{a} {_DIRECT[kind]} {b}", max(m, n) + 1)
        if kind is E.Mul:
            return self._wrapped(f"{a} * {b}", m + n)
        if kind in (E.FloorDiv, E.FloorMod):
            sign = "//" if kind is E.FloorDiv else "%"
            text = f"{a} {sign} {b}" if isinstance(e.args[1], Const) and e.args[1].value else f"{a} {sign} {b} if {b} else 0"
            return self._wrapped(text, m + 1) if kind is E.FloorDiv else self._sized(text, n)
        if kind in (E.Min, E.Max):
            return self._sized(f"{'min' if kind is E.Min else 'max'}({a}, {b})", max(m, n))
        if kind in _BITWISE:
            return self._sized(f"{a} {_BITWISE[kind]} {b}", max(m, n) + 1)
        if kind is E.Shl:
            return self._sized(f"wrap64({a} << {b}) if 0 <= {b} < 64 else 0", 64)
        if kind is E.Shr:
            return self._sized(f"{a} >> ({b} if 0 <= {b} < 64 else 63)", m + 1)
        return self.temp(f"{a} {_DIRECT[kind]} {b}")

    def _lane_op(self, e: Expr, operands: list[str]) -> str:
        """Writes an operation on arrays of lanes."""
        kind, operand_dtype = type(e), e.args[0].dtype
        if kind in _DIRECT and (operand_dtype in (f32, f64) or operand_dtype.is_int):
            return self.temp(f"{operands[0]} {_DIRECT[kind]} {operands[1]}", *operands)
        if kind in (E.FloorDiv, E.FloorMod) and operand_dtype is i64 and isinstance(e.args[1], Const) and e.args[1].value > 0:
            return self.temp(f"{operands[0]} {'//' if kind is E.FloorDiv else '%'} {operands[1]}", *operands)
        return self.temp(self._apply(e, operands), *operands)

    def _expanded(self, e: Call) -> str:
        """Writes the computation of a math function by its definition; returns the name of the result."""
        from ..sym.functions import definition

        operands = [self.value(a) for a in e.args]
        params, body = definition(e.fn, e.dtype)
        saved, self.memo = self.memo, dict(zip(params, operands, strict=True))
        result = self.value(body)
        self.memo = saved
        return result

    def _select(self, e: Expr) -> str:
        """Writes a select; arms that load are evaluated only where they are taken."""
        condition, first, second = e.args
        c = self.value(condition)
        varies = c in self.varying
        if not (has_load(first) or has_load(second)):
            a, b = self.value(first), self.value(second)
            if varies:
                return self.temp(f"np.where({c}, {a}, {b})", c)
            return self._lifted(self._chosen(self.temp(f"{a} if {c} else {b}"), a, b), a, b)
        if varies:
            return self._masked_select(c, first, second)
        result = self.fresh()
        with self.inside(f"if {c}:"):
            a = self.value(first)
            self.line(f"{result} = {a}")
        with self.inside("else:"):
            b = self.value(second)
            self.line(f"{result} = {b}")
        return self._lifted(self._chosen(result, a, b), a, b)

    def _chosen(self, name: str, a: str, b: str) -> str:
        """Records the bound of the bits of a select's result, that of its wider arm; returns the name."""
        self.bits[name] = max(self.size(a), self.size(b))
        return name

    def _masked_select(self, c: str, first: Expr, second: Expr) -> str:
        """Writes a select whose condition differs between lanes: each arm under its mask."""
        taken, other = self.narrowed(c), self.narrowed(self.temp(f"~{c}", c))
        with self.masked(taken):
            a = self.value(first) if not has_load(first) else self._where_any(taken, first)
        with self.masked(other):
            b = self.value(second) if not has_load(second) else self._where_any(other, second)
        return self.temp(f"np.where({c}, {a}, {b})", c)

    def _where_any(self, mask: str, e: Expr) -> str:
        """The value of `e` where `mask` holds; nothing is loaded if it holds for no lane."""
        result = self.fresh()
        zero = self._constant(Const(0, e.dtype))
        with self.inside(f"if {mask}.any():"):
            self.line(f"{result} = {self.value(e)}")
        with self.inside("else:"):
            self.line(f"{result} = {zero}")
        return self._lifted(result, mask)

    def _lifted(self, name: str, *arms: str) -> str:
        """Returns the name; its value is converted to an array if one of the arms is one."""
        if not self.varying.isdisjoint(arms):
            self.line(f"{name} = lift({name}, {len(self.extents)})")
            self.varying.add(name)
        return name

    def _logic(self, e: Expr) -> str:
        """Writes `and` or `or`; the right side loads only where it decides."""
        first, second = e.args
        a = self.value(first)
        word = "and" if isinstance(e, E.And) else "or"
        if a not in self.varying and has_load(second):
            result = self.temp(f"bool({a})")
            with self.inside(f"if {result}:" if word == "and" else f"if not {result}:"):
                b = self.value(second)
                self.line(f"{result} = {b}")
            return self._lifted(result, b)
        if a in self.varying and has_load(second):
            mask = self.narrowed(a if word == "and" else self.temp(f"~{a}", a))
            with self.masked(mask):
                b = self._where_any(mask, second)
        else:
            b = self.value(second)
        if a in self.varying or b in self.varying:
            return self.temp(f"np.logical_{word}({a}, {b})", a, b)
        return self.temp(f"bool({a} {word} {b})")

    # Memory.

    def fail(self, buffer: Buffer) -> str:
        """Returns a global name for the object that raises the error of an out-of-range access to `buffer` at the current statement."""
        key = (buffer, self.span)
        if key not in self._fails:
            from .faults import out_of_range

            self._fails[key] = self.keep(out_of_range(buffer, self.span), "fail")
        return self._fails[key]

    def check(self, buffer: Buffer, indices: list[str]) -> None:
        """Writes the bounds check of a scalar access, in checked mode."""
        if self.checked and indices:
            memory = self.memories[buffer]
            tests = " and ".join(f"0 <= {i} < {memory}_{d}" for d, i in enumerate(indices))
            self.line(f"if not ({tests}): {self.fail(buffer)}(({', '.join(indices)},), {memory}.shape)")

    def load(self, e: Load) -> str:
        """Writes a load: strided if it is affine in the lanes, else by index arrays, or of one element."""
        memory = self.memories[e.buffer]
        if self.extents:
            place = self.place(e.buffer, e.indices)
            if place is not None:
                return self.temp(f"load_affine({memory}, {place}, {self.box()}, {self.mask}, {self.lane_fail(e.buffer)})", "lanes")
        indices = [self.value(i) for i in e.indices]
        if self.varying.isdisjoint(indices) and e.buffer not in self.lane_axes:
            self.check(e.buffer, indices)
            text = f"{memory}_a[{', '.join(indices) or '()'}]"
            return self._sized(f"int({text})", 64) if e.dtype is i64 else self.temp(text)
        return self.temp(f"load({memory}, {self.gathered(e.buffer, indices)}, {self.mask}, {self.lane_fail(e.buffer)})", "lanes")

    def lane_fail(self, buffer: Buffer) -> str:
        """The expression for the function that raises the error of an access by lanes."""
        return f"{self.fail(buffer)}.of({self.memories[buffer]}.shape)"

    def gathered(self, buffer: Buffer, indices: list[str]) -> str:
        """The indices of an access as a tuple of arrays; the axes of a buffer allocated per lane come first."""
        own = [f"axis(0, {self.extents[d]}, {d}, {len(self.extents)})" for d in range(self.lane_axes.get(buffer, 0))]
        return f"({', '.join([*own, *(f'np.int64({i})' if i not in self.varying else i for i in indices)])},)" if own or indices else "()"

    def place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str | None:
        """The first index and the steps of an access that is affine in the lanes, as text; None if it is not, or has no steps."""
        own = self.lane_axes.get(buffer, 0)
        rank = len(self.extents)
        starts, rows = ["0"] * own, [[str(int(d == n)) for d in range(rank)] for n in range(own)]
        for index in indices:
            parts = self.affine(index)
            if parts is None:
                return None
            start, row = parts
            starts.append(start)
            rows.append([row.get(d, "0") for d in range(rank)])
        if all(c == "0" for row in rows for c in row):
            return None
        shown = ", ".join(f"({', '.join(row)},)" for row in rows)
        return f"({', '.join(starts)},), ({shown},)"

    def affine(self, e: Expr) -> tuple[str, dict[int, str]] | None:
        """`e` as two parts, both source text: its value at the first lane of the chunk, and by position of a lane axis the step along it.

        None if it is not affine in the lanes.
        """
        if isinstance(e, Var):
            if e in self.axes:
                position, first = self.axes[e]
                return first, {position: "1"}
            if e in self.values_of:
                return self.affine(self.values_of[e])
        if isinstance(e, (E.Add, E.Sub, E.Mul)):
            sides = [self.affine(a) for a in e.args]
            if sides[0] is None or sides[1] is None:
                return None
            return self._joined(e, *sides[0], *sides[1])
        value = self.value(e)
        return None if value in self.varying else (value, {})

    def _joined(self, e: Expr, a: str, left: dict[int, str], b: str, right: dict[int, str]) -> tuple[str, dict[int, str]] | None:
        """Returns the affine form of an operation from those of its two operands; None if it is not affine."""
        if isinstance(e, E.Mul):
            if left and right:
                return None
            factor, row = (b, left) if left else (a, right)
            return f"({a} * {b})", {d: factor if c == "1" else f"({c} * {factor})" for d, c in row.items()}
        sign = "+" if isinstance(e, E.Add) else "-"
        row = dict(left)
        for d, c in right.items():
            row[d] = f"({row.get(d, '0')} {sign} {c})"
        return f"({a} {sign} {b})", row
