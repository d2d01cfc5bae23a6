"""Parser of scalar expressions from Python syntax trees, shared by both languages.

`ExprParser` parses an expression with the names of a `Source` and builds exactly what is written: no casts, no simplification. Python
numbers (literals, and ints and floats found by name) are folded among themselves as Python numbers, and take the dtype of the operand
that they meet: a subexpression of numbers alone is `Open` until its context decides. Languages subclass it for their own names and
subscripts.

    ExprParser(source).expr(node, expect=f32)
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from ..dtype import DType, bool_, f32, i64
from ..dtype import dtype as to_dtype
from ..support.errors import Error, UnsupportedError
from ..support.record import dataclass
from ..support.resolve import Source, near
from ..support.source import Span
from .expr import And, Binary, Bitcast, BitNot, Call, Cast, Compare, Const, Div, Expr, FloorDiv, Le, Lt, Max, Min, Neg, Not, Or, Select
from .function_names import FUNCTIONS, UNFUSED
from .parse_tables import BINARY, COMPARE, FUNCTION_NAMES, HINTS, INTEGER_FUNCTIONS, INTEGER_ONLY, MULTIPLY_ADDS, NUMBERS


@dataclass(frozen=True, slots=True)
class Open:
    """A parsed subexpression of Python numbers alone, whose dtype its context decides later."""

    default: DType
    build: Callable[[DType], Expr]
    number: float | None = None  # set if it is just a number


Value = Expr | Open


class ExprParser:
    """Parses Python syntax trees into scalar expressions."""

    def __init__(self, source: Source) -> None:
        self.source = source

    # What languages override.

    def lookup(self, node: ast.Name) -> object:
        """Returns the Python object that a name means in the surrounding scope."""
        return self.source.resolve(node)

    def subscript(self, node: ast.Subscript) -> Value:
        """Parses `a[...]`; here an error, subclasses allow it."""
        raise self.unsupported(node, "indexing is not possible here")

    def no_value(self, node: ast.expr, found: object) -> Error:
        """Returns the error for a name whose value is not a scalar."""
        return self.error(node, f"`{ast.unparse(node)}` is no number but an object of type `{type(found).__name__}`")

    # Errors.

    def span(self, node: ast.AST) -> Span:
        """The source location of `node`."""
        return self.source.span(node)

    def error(self, node: ast.AST, what: str, *, note: str = "", facts: list[str] | None = None, help: str = "") -> Error:
        """Returns an error that points at `node` in the user's source."""
        return Error(what, where=self.span(node), note=note, facts=facts or [], help=help)

    def unsupported(self, node: ast.AST, what: str, help: str = "") -> Error:
        """Returns the error for Python syntax that the language does not have."""
        return UnsupportedError(what, where=self.span(node), help=help)

    def mismatch(self, node: ast.expr, what: str, a: tuple[ast.expr, Expr], b: tuple[ast.expr, Expr]) -> Error:
        """Returns the error for two operands of different dtypes, with the cast that would help."""
        shown = [f"`{ast.unparse(n)}` is {e.dtype}" for n, e in (a, b)]
        wide, narrow = (a, b) if _rank(a[1].dtype) >= _rank(b[1].dtype) else (b, a)
        return self.error(node, what, facts=shown, help=f"nothing is cast by itself: write cast({wide[1].dtype}, {ast.unparse(narrow[0])})")

    # Reading.

    def resolve(self, node: ast.expr) -> object:
        """Returns the object that a name or dotted name means, local names included."""
        if isinstance(node, ast.Name):
            return self.lookup(node)
        return self.source.resolve(node)

    def expr(self, node: ast.expr, expect: DType | None = None) -> Expr:
        """Parses an expression; bare literals become `expect`, and the dtype must be `expect` (None: any); raises if it is not."""
        value = self.value(node)
        if isinstance(value, Open):
            return value.build(expect or value.default)
        if expect is not None and value.dtype is not expect:
            shown = ast.unparse(node)
            help_ = f"write cast({expect}, {shown})" if expect is not bool_ else f"write {shown} != 0"
            raise self.error(node, f"{expect} is expected here, not {value.dtype}", facts=[f"`{shown}` is {value.dtype}"], help=help_)
        return value

    def index(self, node: ast.expr) -> Expr:
        """Parses an index: an integer of another type is cast to i64; raises for floats and bools."""
        value = self.value(node)
        if isinstance(value, Open):
            return value.build(i64)
        if not value.dtype.is_int:
            help_ = f"write cast(i64, {ast.unparse(node)})" if value.dtype.is_float else ""
            raise self.error(
                node, f"an integer is expected here, not {value.dtype}", facts=[f"`{ast.unparse(node)}` is {value.dtype}"], help=help_
            )
        return value if value.dtype is i64 else Cast(i64, value)

    def value(self, node: ast.expr) -> Value:
        """Parses an expression; one of Python numbers alone stays `Open`. Raises for syntax that the language does not have."""
        match node:
            case ast.Constant():
                return self.literal(node, node.value)
            case ast.Name() | ast.Attribute():
                return self.literal(node, self.resolve(node))
            case ast.BinOp(left, op, right):
                return self.binary(node, type(op), left, right)
            case ast.UnaryOp(op, operand):
                return self.unary(node, op, operand)
            case ast.BoolOp(op, values):
                cls = And if isinstance(op, ast.And) else Or
                result = self.expr(values[0], bool_)
                for v in values[1:]:
                    result = cls(result, self.expr(v, bool_))
                return result
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test, body, orelse):
                return self.select(node, test, body, orelse)
            case ast.Call():
                return self.call(node)
            case ast.Subscript():
                return self.subscript(node)
        raise self.unsupported(node, f"`{ast.unparse(node)}` is not an expression of this language", help=HINTS.get(type(node), ""))

    def literal(self, node: ast.expr, found: object) -> Value:
        """Converts a Python object that a name stands for to an expression; raises if it is no number."""
        if isinstance(found, Expr):
            return found
        if isinstance(found, bool):
            return Const(found, bool_)
        if isinstance(found, Integral):  # numpy integers and enums too
            return self.number(node, int(found))
        if isinstance(found, Real):
            return self.number(node, float(found))
        raise self.no_value(node, found)

    def number(self, node: ast.expr, number: float) -> Value:
        """Converts a Python number to a value: `Open`, unless it is a bool."""
        if isinstance(number, bool):
            return Const(number, bool_)
        return Open(i64 if isinstance(number, int) else f32, lambda d: self.const(node, number, d), number)

    def const(self, node: ast.expr, number: float, dtype: DType) -> Const:
        """The literal of a dtype; raises an error if the dtype cannot hold it."""
        if dtype.is_float:
            return Const(float(number), dtype)
        if dtype is bool_ or isinstance(number, float):
            help_ = "write True, False or a comparison" if dtype is bool_ else f"write a whole number, or cast({dtype}, f32({number}))"
            raise self.error(node, f"{dtype} is expected here, not the number {number}", help=help_)
        if not dtype.min <= number <= dtype.max:
            raise self.error(node, f"{number} does not fit {dtype}", facts=[f"{dtype} holds {dtype.min}..{dtype.max}"])
        return Const(number, dtype)

    def binary(self, node: ast.expr, op: type[ast.operator], left: ast.expr, right: ast.expr) -> Value:
        """Parses `left op right`; two Python numbers are computed at once; raises for operators that the language does not have."""
        a, b = self.value(left), self.value(right)
        folded = self.fold(node, op, a, b)
        if folded is not None:
            return folded
        if op not in BINARY:
            raise self.unsupported(node, f"`{ast.unparse(node)}`: there is no such operator on these", help=HINTS.get(op, ""))
        return self.join(node, (left, a), (right, b), lambda x, y: self.arithmetic(node, BINARY[op], x, y))

    def fold(self, node: ast.expr, op: type[Any], a: Value, b: Value) -> Value | None:
        """Combines two Python numbers as Python does it; returns None if one is something else.

        Raises an Error for a division by zero or a result that is no number.
        """
        if not (isinstance(a, Open) and isinstance(b, Open)) or a.number is None or b.number is None:
            return None
        try:
            result = NUMBERS[op](a.number, b.number)
        except (ArithmeticError, TypeError, ValueError) as problem:
            raise self.error(node, f"`{ast.unparse(node)}` cannot be computed: {problem}") from None
        return self.number(node, result)

    def join(self, node: ast.expr, a: tuple[ast.expr, Value], b: tuple[ast.expr, Value], make: Callable[[Expr, Expr], Expr]) -> Value:
        """Applies `make` to two operands that must have the same dtype, else raises; the result is `Open` if both are."""
        x, y = a[1], b[1]
        if isinstance(x, Open):
            if isinstance(y, Open):
                return Open(_default(x, y), lambda d: make(x.build(d), y.build(d)))
            return make(x.build(y.dtype), y)
        if isinstance(y, Open):
            return make(x, y.build(x.dtype))
        if x.dtype is not y.dtype:
            raise self.mismatch(node, f"the operands have different types: {x.dtype} and {y.dtype}", (a[0], x), (b[0], y))
        return make(x, y)

    def arithmetic(self, node: ast.expr, cls: type[Binary], a: Expr, b: Expr) -> Expr:
        """Builds `cls(a, b)`; raises an error if the dtype does not have the operation."""
        d = a.dtype
        if d is bool_:
            raise self.error(node, f"`{ast.unparse(node)}` is arithmetic on bool", help="use `and`, `or`, `!=`, or cast to a number first")
        if cls is Div and not d.is_float:
            raise self.error(node, f"`/` divides floats, not {d}", help="`//` divides integers and rounds down")
        if cls in INTEGER_ONLY and not d.is_int:
            help_ = "write floor(a / b)" if cls is FloorDiv else ""
            raise self.error(node, f"`{cls.symbol}` is an operation on integers, not {d}", help=help_)
        return cls(a, b)

    def unary(self, node: ast.expr, op: ast.unaryop, operand: ast.expr) -> Value:
        """Parses `-a`, `+a`, `~a`, `not a`."""
        if isinstance(op, ast.Not):
            return Not(self.expr(operand, bool_))
        a = self.value(operand)
        if isinstance(op, ast.UAdd):
            return a
        if isinstance(a, Open):
            if a.number is not None:
                return self.number(node, -a.number if isinstance(op, ast.USub) else ~self._whole(node, a.number))
            return Open(a.default, lambda d: self.negate(node, op, a.build(d)))
        return self.negate(node, op, a)

    def negate(self, node: ast.expr, op: ast.unaryop, a: Expr) -> Expr:
        """Builds `-a` or `~a`; raises an error if the dtype does not have it."""
        if a.dtype is bool_ or (isinstance(op, ast.Invert) and not a.dtype.is_int):
            raise self.error(node, f"`{ast.unparse(node)}` does not exist for {a.dtype}", help="write `not`" if a.dtype is bool_ else "")
        return Neg(a) if isinstance(op, ast.USub) else BitNot(a)

    def _whole(self, node: ast.expr, number: float) -> int:
        """Returns the number if it is an int; raises an error otherwise."""
        if isinstance(number, int):
            return number
        raise self.error(node, f"`~` is an operation on integers, not on {number}")

    def comparison(self, node: ast.Compare) -> Value:
        """Parses `a < b`, and `a < b < c` as `a < b and b < c`. Raises an Error for other comparisons."""
        sides = [node.left, *node.comparators]
        values = [self.value(s) for s in sides]
        result: Expr | None = None
        for k, op in enumerate(node.ops):
            if type(op) not in COMPARE:
                raise self.unsupported(node, f"`{ast.unparse(node)}` is not a comparison of this language")
            cls, exchanged = COMPARE[type(op)]
            folded = self.fold(node, type(op), values[k], values[k + 1])
            one = folded if isinstance(folded, Expr) else self._compare(node, cls, exchanged, sides[k : k + 2], values[k : k + 2])
            result = one if result is None else And(result, one)
        assert result is not None
        return result

    def _compare(self, node: ast.Compare, cls: type[Compare], exchanged: bool, sides: list[ast.expr], values: list[Value]) -> Expr:
        """Builds one comparison of two parsed operands; `exchanged` swaps them, as for `>`. Raises an Error for an order of bools."""
        if exchanged:
            sides, values = sides[::-1], values[::-1]
        joined = self.join(node, (sides[0], values[0]), (sides[1], values[1]), cls)
        result = joined.build(joined.default) if isinstance(joined, Open) else joined
        if cls in (Lt, Le) and result.args[0].dtype is bool_:
            raise self.error(node, "bools have no order", help="compare with `==`, or use `and` and `not`")
        return result

    def select(self, node: ast.expr, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Value:
        """Parses `body if test else orelse`."""
        return self.selected(node, self.expr(test, bool_), body, orelse)

    def selected(self, node: ast.expr, condition: Expr, body: ast.expr, orelse: ast.expr) -> Value:
        """Parses the two values of a selection."""
        return self.join(node, (body, self.value(body)), (orelse, self.value(orelse)), lambda a, b: Select(condition, a, b))

    # Calls.

    def dtype(self, node: ast.expr) -> DType:
        """Parses the name of a compute type; raises an error for storage types."""
        dtype = self.any_dtype(node)
        if dtype.storage:
            raise self.error(node, f"{dtype} is a storage type: values do not have it", help="it can be the type of a tensor")
        return dtype

    def any_dtype(self, node: ast.expr) -> DType:
        """Parses the name of a data type, compute or storage. Raises an Error for another expression."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._spelled(node, node.value)
        value = self.resolve(node) if isinstance(node, ast.Name | ast.Attribute) else None
        if value is bool:
            return bool_
        if isinstance(value, DType):
            return value
        origin = value if isinstance(value, type) else type(value)
        if origin.__module__.partition(".")[0] in ("numpy", "torch", "ml_dtypes"):
            return self._spelled(node, value)
        help_ = (
            {float: "write f32 or f64", int: "write i32 or i64"}.get(value, "for example f32")
            if isinstance(value, type)
            else "for example f32"
        )
        raise self.error(node, f"a data type is expected here, not `{ast.unparse(node)}`", help=help_)

    def _spelled(self, node: ast.expr, spelling: object) -> DType:
        """Converts the data type of another library, or a string: "float32", np.float32, torch.float32.

        Raises an Error for a type that Pliant does not have.
        """
        try:
            return to_dtype(spelling)
        except Error as problem:
            raise problem.at(self.span(node)) from None

    def call(self, node: ast.Call) -> Value:
        """Parses a call of a scalar function or of a dtype (a cast); raises for a wrong number of arguments, and for unknown functions."""
        function = self.resolve(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else None
        if isinstance(function, DType) or function is bool:
            self.arguments(node, 1)
            return self.cast(node.func, node.args[0])
        name = FUNCTION_NAMES.get(id(function), "")
        if name in ("cast", "bitcast"):
            self.arguments(node, 2)
            return self.cast(*node.args) if name == "cast" else self.bitcast(node)
        if name == "select":
            self.arguments(node, 3)
            return self.select(node, *node.args)
        if name in ("min", "max"):
            return self.extremum(node, Min if name == "min" else Max)
        if name in MULTIPLY_ADDS:
            self.arguments(node, 3)
            return self.function(node, name, lambda a: MULTIPLY_ADDS[name](*a))
        if name in FUNCTIONS:
            keywords = self.arguments(node, FUNCTIONS[name], ("fused",) if name in UNFUSED else ())
            form = name if self.is_fused(keywords.get("fused")) else UNFUSED[name]
            return self.function(node, name, lambda a: Call(form, *a))
        return self.other_call(node, function)

    def other_call(self, node: ast.Call, function: object) -> Value:
        """Raises the error for a call of something that is no scalar function; languages that have such calls override it."""
        raise self.unknown_call(node, function)

    def is_fused(self, node: ast.expr | None) -> bool:
        """Parses the keyword `fused` of a function; True by default. Raises an Error for anything but True and False."""
        if node is None:
            return True
        if not isinstance(node, ast.Constant) or not isinstance(node.value, bool):
            raise self.error(node, f"`fused` is True or False, not `{ast.unparse(node)}`")
        return node.value

    def unknown_call(self, node: ast.Call, found: object) -> Error:
        """The error for a call of something that is not a function of the language."""
        shown = ast.unparse(node.func)
        names = [n for n in FUNCTION_NAMES.values() if n == shown.rpartition(".")[2]]
        help_ = f"use pliant's own: from pliant import {names[0]}" if names else near(shown, FUNCTION_NAMES.values())
        return self.error(
            node.func, f"`{shown}` cannot be called here", facts=[f"it is an object of type `{type(found).__name__}`"], help=help_
        )

    def arguments(self, node: ast.Call, count: int, keywords: tuple[str, ...] = ()) -> dict[str, ast.expr]:
        """Returns the keyword arguments.

        Raises an error for a wrong number of positional arguments (`count`, -1 for any) or an unknown keyword.
        """
        if len(node.args) == count and not node.keywords:
            return {}
        shown = ast.unparse(node.func)
        if any(isinstance(a, ast.Starred) for a in node.args):
            raise self.unsupported(node, f"`{shown}`: arguments cannot be unpacked with `*`")
        if count >= 0 and len(node.args) != count:
            raise self.error(node, f"`{shown}` takes {count} argument{'s' * (count != 1)}, not {len(node.args)}")
        for k in node.keywords:
            if k.arg not in keywords:
                known = f"it takes {', '.join(f'`{n}`' for n in keywords)}" if keywords else "it takes no keywords"
                raise self.error(k, f"`{shown}` has no keyword `{k.arg}`", facts=[known], help=near(k.arg or "", keywords))
        return {k.arg: k.value for k in node.keywords if k.arg}

    def cast(self, dtype: ast.expr, operand: ast.expr) -> Value:
        """Parses `cast(dtype, x)` and `dtype(x)`: a literal for a number, else a Cast."""
        to = self.dtype(dtype)
        value = self.value(operand)
        if isinstance(value, Open):
            literal = value.number is not None and (to.is_float or (to.is_int and value.default is i64))
            return value.build(to) if literal else Cast(to, value.build(value.default))
        return Cast(to, value)

    def bitcast(self, node: ast.Call) -> Expr:
        """Parses `bitcast(dtype, x)`; raises unless both dtypes have the same width."""
        to, value = self.dtype(node.args[0]), self.expr(node.args[1])
        if to.bits != value.dtype.bits:
            raise self.error(node, f"bitcast of {value.dtype} to {to}: {value.dtype.bits} bits are not {to.bits} bits")
        return Bitcast(to, value)

    def extremum(self, node: ast.Call, cls: type[Binary]) -> Value:
        """Parses `min(a, b, ...)` or `max(a, b, ...)`. Raises an Error for fewer than two operands."""
        self.arguments(node, -1)
        if len(node.args) < 2:
            raise self.error(node, f"`{cls.symbol}` takes two or more arguments", help="loops reduce tensors: x[i] = max(x[i], ...)")
        result = self.value(node.args[0])
        for k, arg in enumerate(node.args[1:]):
            b = self.value(arg)
            if isinstance(result, Open) and isinstance(b, Open) and result.number is not None and b.number is not None:
                result = self.number(node, (min if cls is Min else max)(result.number, b.number))
            else:
                result = self.join(node, (node.args[k], result), (arg, b), lambda x, y: self.arithmetic(node, cls, x, y))
        return result

    def function(self, node: ast.Call, name: str, make: Callable[[list[Expr]], Expr]) -> Value:
        """Parses a function call whose operands must all have one float dtype (for `abs` also an integer); raises if they do not.

        `make` builds the expression from the operands.
        """
        values = [self.value(a) for a in node.args]
        typed = [(n, v) for n, v in zip(node.args, values, strict=True) if isinstance(v, Expr)]
        for other in typed[1:]:
            if other[1].dtype is not typed[0][1].dtype:
                raise self.mismatch(node, f"the arguments have different types: {typed[0][1].dtype} and {other[1].dtype}", typed[0], other)

        def build(d: DType) -> Expr:
            if not d.is_float and not (name in INTEGER_FUNCTIONS and d.is_int):
                shown = ast.unparse(node.args[0])
                raise self.error(node, f"`{name}` is a function of floats, not {d}", help=f"write {name}(cast(f32, {shown}))")
            return make([v.build(d) if isinstance(v, Open) else v for v in values])

        if typed:
            return build(typed[0][1].dtype)
        whole = name in INTEGER_FUNCTIONS and all(isinstance(v, Open) and v.default is i64 for v in values)
        return Open(i64 if whole else f32, build)


def _default(a: Open, b: Open) -> DType:
    """The dtype of two numbers if no context decides: f32 if one is a float."""
    return a.default if a.default is b.default else f32


def _rank(d: DType) -> tuple[bool, int]:
    """Returns a sort key of dtypes, for the advice which of two operands to cast."""
    return (d.is_float, d.bits if d is not bool_ else 0)
