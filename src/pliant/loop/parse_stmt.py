"""Parser of the simple statements of kernels: stores, reductions, lets, allocations, views, checks, calls."""

from __future__ import annotations

import ast
import builtins
from typing import Any, cast, get_args

from ..dtype import bool_, i64
from ..support.errors import counted, is_are
from ..sym.expr import Add, And, Binary, Const, Expr, Fma, Max, Min, Or, Var, free_vars
from ..sym.parse import Open, Value
from ..sym.walk import walk
from . import script
from .buffer import SCOPES, Buffer, Load, Scope, may_be_seen_as
from .scope import Expander, ScopedParser, dims_help, kernel_of
from .stmt import NAMED_COMBINERS, Alloc, Call, Check, CheckKind, Combiner, Func, Let, Param, Reduce, Region, Stmt, Store, View

# Words by the identity of their function, so that a user may import them under any name.
_WORDS: dict[int, str] = {id(getattr(script, w)): w for w in script.__all__} | {id(builtins.range): "range"}
_AUGMENTED: dict[type[ast.operator], str] = {ast.Add: "add", ast.Mult: "mul"}
REDUCING: dict[type[Binary], str] = {Min: "min", Max: "max", And: "and", Or: "or"}  # node -> combiner


def reduction_of(place: Load, value: Expr) -> tuple[str, tuple[Expr, ...]] | None:
    """The combiner and values if `place = value` is a reduction (`x[i] = max(x[i], e)`, `x[i] = fma(a, b, x[i])`), else None."""
    if type(value) is Fma and value.args[2] is place:
        return "fma", value.args[:2]
    name = REDUCING.get(type(value))  # type: ignore[arg-type]
    if name is not None and value.args[0] is place:
        return name, value.args[1:]
    return None


class StmtParser(ScopedParser):
    """Parses the statements of a kernel that contain no other statements: stores, reductions, lets, allocations, calls."""

    def word(self, node: ast.expr) -> str:
        """The word of the language that is called here, or "" for another call or none."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return ""
        return _WORDS.get(id(self.resolve(node.func)), "")

    def other_call(self, node: ast.Call, function: object) -> Value:
        """Parses a call that is expanded in place into an expression or number; raises if it gives no value."""
        if not isinstance(function, Expander):
            return super().other_call(node, function)
        result = function.expand(self, node)
        if isinstance(result, Expr | Open):
            return result
        if isinstance(result, int | float):
            return self.number(node, result)
        raise self.error(node, f"`{ast.unparse(node.func)}` gives no value here", facts=[f"it expands to a `{type(result).__name__}`"])

    def unknown_call(self, node: ast.Call, found: object) -> Any:
        """Returns the error for a call that cannot stand where an expression is expected, with a hint for common mistakes."""
        word = _WORDS.get(id(found))
        if word is not None:
            return self.error(node, f"`{word}` is not a value: it cannot stand here")
        if kernel_of(found) is not None:
            return self.error(
                node, f"kernel `{ast.unparse(node.func)}` gives no value", help="it writes its Out parameters: call it as a statement"
            )
        if found is len and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            binding = self.find(node.args[0].id)
            if binding is not None and isinstance(binding.value, Buffer):
                return self.error(node, "kernels have no `len`", help=dims_help(binding.value))
        error = super().unknown_call(node, found)
        if found in (float, int) and len(node.args) == 1:
            error.help = f"write cast({'f32' if found is float else 'i64'}, {ast.unparse(node.args[0])})"
        error.help = error.help or "a kernel cannot call Python functions, but it can call another kernel: write it with @kernel"
        return error

    def assign(self, node: ast.Assign) -> Stmt:
        """Parses an assignment: `x[i] = e`, `t = e`, `t = alloc(...)`, `a[i], b[i] = combine(...)`. Raises an Error for other forms."""
        if len(node.targets) != 1:
            raise self.unsupported(node, "one target at a time", help="write two assignments")
        target, value = node.targets[0], node.value
        if self.word(value) == "combine":
            return self.combine(node, target, value)  # type: ignore[arg-type]
        if isinstance(target, ast.Subscript):
            return self.store(node, target, value)
        if isinstance(target, ast.Name):
            return self.define(node, target, value)
        raise self.unsupported(
            target, f"`{ast.unparse(target)}` cannot be assigned to", help="assign to a name or to an element of a tensor"
        )

    def store(self, node: ast.stmt, target: ast.Subscript, value: ast.expr) -> Stmt:
        """Parses `x[i] = e`: a store, or a reduction if `e` is `min(x[i], ...)` or similar. A unary `+` keeps it a store."""
        place = self.place(target)
        self.writable(target.value, place.buffer)
        e = self.expr(value, place.dtype)
        plain = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.UAdd)
        reduction = None if plain else reduction_of(place, e)
        if reduction is not None:
            return Reduce(NAMED_COMBINERS[reduction[0]], (place,), reduction[1], span=self.span(node))
        return Store(place.buffer, place.indices, e, span=self.span(node))

    def augmented(self, node: ast.AugAssign) -> Stmt:
        """Parses the reductions `x[i] += e` and `x[i] *= e`; raises for other operators, for names, and for bools."""
        name = _AUGMENTED.get(type(node.op))
        if isinstance(node.target, ast.Name):
            bound = self.find(node.target.id)
            if bound is not None:
                raise self.rebound(node.target, node.target.id, bound)
        if name is None:
            shown = f"{ast.unparse(node.target)} = {ast.unparse(node.target)} ..."
            raise self.unsupported(node, "only `+=` and `*=` reduce", help=f"write {shown}, or add the negative")
        place = self.place(node.target)
        self.writable(node.target, place.buffer)
        if place.dtype is bool_:
            raise self.error(node, "bools are not added", help="write x[i] = x[i] or e")
        return Reduce(NAMED_COMBINERS[name], (place,), (self.expr(node.value, place.dtype),), span=self.span(node))

    def combine(self, node: ast.Assign, target: ast.expr, call: ast.Call) -> Stmt:
        """Parses a reduction by a lambda: `a[i], b[i] = combine(lambda ...: (...), (a[i], b[i]), (x, y))`; the targets must be repeated."""
        self.arguments(call, 3)
        function = call.args[0]
        if not isinstance(function, ast.Lambda):
            raise self.error(function, "the combiner is a lambda", help="combine(lambda a, b: a + b, x[i], e)")
        places, again = ([self.place(e) for e in _elements(t)] for t in (target, call.args[1]))
        for e, place in zip(_elements(target), places, strict=True):
            self.writable(e, place.buffer)
        if places != again:
            raise self.error(call.args[1], "the second argument repeats the targets", help=f"write {ast.unparse(target)}")
        items = _elements(call.args[2])
        if len(items) != len(places):
            raise self.error(
                call.args[2],
                f"{counted(len(places), 'value')} {is_are(len(places))} expected for {counted(len(places), 'target')}, not {len(items)}",
            )
        values = tuple(self.expr(e, p.dtype) for e, p in zip(items, places, strict=True))
        return Reduce(self.combiner(function, places), tuple(places), values, span=self.span(node))

    def combiner(self, node: ast.Lambda, places: list[Load]) -> Combiner:
        """Parses the lambda of a `combine` into a Combiner. Raises an Error for other forms."""
        names = [a.arg for a in node.args.args]
        if len(names) != 2 * len(places):
            raise self.error(node, f"the lambda takes {2 * len(places)} arguments: what it has, then what comes; not {len(names)}")
        variables = [Var(n, p.dtype) for n, p in zip(names, [*places, *places], strict=True)]
        results = _elements(node.body)
        if len(results) != len(places):
            raise self.error(
                node.body, f"the lambda gives {counted(len(results), 'value')} where {len(places)} {is_are(len(places))} expected"
            )
        around, self.scopes = self.scopes, [{}]  # only its own arguments are in scope in a combiner
        try:
            for arg, var in zip(node.args.args, variables, strict=True):
                self.bind(arg, arg.arg, var, "parameter", fixed=True)
            result = tuple(self.expr(e, p.dtype) for e, p in zip(results, places, strict=True))
        finally:
            self.scopes = around
        half = len(places)
        return Combiner("lambda", tuple(variables[:half]), tuple(variables[half:]), result)

    def define(self, node: ast.Assign, target: ast.Name, value: ast.expr) -> Stmt:
        """Parses the definition of a name: `t = e`, `t = alloc(...)`, `t = view(...)`; raises if the name is bound already."""
        bound = self.find(target.id)
        if bound is not None:
            raise self.rebound(target, target.id, bound)
        word = self.word(value)
        if word == "alloc":
            return self.alloc(node, target, value)  # type: ignore[arg-type]
        if word == "view":
            return self.view(node, target, value)  # type: ignore[arg-type]
        return self.let(node, target, self.expr(value))

    def let(self, node: ast.stmt, target: ast.Name, value: Expr) -> Stmt:
        """Builds the let of `t = e`, and binds the name `t`."""
        var = Var(target.id, value.dtype)
        self.bind(target, target.id, var, "value")
        return Let(var, value, span=self.span(node))

    def annotated(self, node: ast.AnnAssign) -> Stmt:
        """Parses `t: f32 = e`. Raises an Error for other forms."""
        if not isinstance(node.target, ast.Name) or node.value is None:
            raise self.unsupported(node, "only `name: dtype = value` is annotated")
        return self.let(node, node.target, self.expr(node.value, self.dtype(node.annotation)))

    def shape(self, node: ast.expr) -> tuple[Expr, ...]:
        """Parses a shape: `(n, 16)`, or one extent."""
        return tuple(self.index(e) for e in _elements(node))

    def strides(self, node: ast.expr | None, shape: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
        """Parses the strides of a new buffer, None if there are none; raises unless there is one for each dimension."""
        if node is None:
            return None
        steps = self.shape(node)
        if len(steps) != len(shape):
            raise self.error(
                node, f"{counted(len(steps), 'stride')} for {counted(len(shape), 'dimension')}", help="give one stride for each dimension"
            )
        return steps

    def alloc(self, node: ast.Assign, target: ast.Name, call: ast.Call) -> Stmt:
        """Parses `t = alloc((n, 16), f32, scope="stack", strides=(32, 1))`, and binds the name.

        The scope is "workspace" (the default), "stack" or "register". Without strides the buffer is row-major contiguous.
        """
        keywords = self.arguments(call, 2, ("scope", "strides"))
        shape = self.shape(call.args[0])
        scope = self.text(keywords["scope"], "scope", SCOPES[1:]) if "scope" in keywords else "workspace"
        checked: Scope = scope  # type: ignore[assignment]
        buffer = Buffer(target.id, self.any_dtype(call.args[1]), shape, self.strides(keywords.get("strides"), shape), checked)
        self.bind(target, target.id, buffer, "buffer", fixed=self.independent(buffer.shape))
        return Alloc(buffer, span=self.span(node))

    def view(self, node: ast.Assign, target: ast.Name, call: ast.Call) -> Stmt:
        """Parses `t = view(x[i, 0], (m, 64), strides=(64, 1), dtype=f32)`, and binds the name; a view of an input is read-only.

        Raises an Error for other forms.
        """
        keywords = self.arguments(call, 2, ("strides", "dtype"))
        first = call.args[0]
        if isinstance(first, ast.Subscript):
            place = self.place(first)
            source, start = place.buffer, place.indices
        else:
            source = self.buffer(first)
            start = tuple(Const(0, i64) for _ in source.shape)
        dtype = self.any_dtype(keywords["dtype"]) if "dtype" in keywords else source.dtype
        if not may_be_seen_as(source.dtype, dtype):
            raise self.error(
                keywords["dtype"], f"a view of {source.dtype} cannot be {dtype}", help="only u8 bytes can be seen as another type"
            )
        shape = self.shape(call.args[1])
        buffer = Buffer(target.id, dtype, shape, self.strides(keywords.get("strides"), shape), source.scope)
        fixed = self.independent((*start, *shape)) and all(b.fixed for s in self.scopes for b in s.values() if b.value is source)
        self.bind(target, target.id, buffer, "view", fixed=fixed)
        if source in self.inputs:
            self.inputs.add(buffer)
        return View(buffer, source, start, span=self.span(node))

    def independent(self, parts: tuple[Expr, ...]) -> bool:
        """True if the expressions load no memory and depend on nothing that changes in a loop."""
        changing = {b.value for s in self.scopes for b in s.values() if not b.fixed}
        return all(changing.isdisjoint(free_vars(e)) and not any(isinstance(x, Load) for x in walk(e)) for e in parts)

    def text(self, node: ast.expr, what: str, known: tuple[str, ...] = ()) -> str:
        """Parses a string literal, which must be one of `known` if that is not empty."""
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            raise self.error(node, f"{what} is a text literal", help=f'for example "{known[0] if known else "name"}"')
        if known and node.value not in known:
            raise self.error(node, f'there is no {what} "{node.value}"', help=f"it is one of {', '.join(known)}")
        return node.value

    def check(self, node: ast.Expr, call: ast.Call) -> Stmt:
        """Parses `check(cond, "dim is {0}", n, help="...")`; raises if the message does not fit the number of values."""
        keywords = self.arguments(call, -1, ("help", "kind"))
        if len(call.args) < 2:
            raise self.error(call, "`check` takes a condition and a message", help='check(n > 0, "n is {0}", n)')
        condition, message = self.expr(call.args[0], bool_), self.text(call.args[1], "the message")
        values = tuple(self.index(a) for a in call.args[2:])
        try:
            message.format(*(0 for _ in values))
        except (IndexError, KeyError, ValueError):
            raise self.error(
                call.args[1], f"the message does not fit its {counted(len(values), 'value')}", help="{0} is the first value"
            ) from None
        kind = cast("CheckKind", self.text(keywords["kind"], "kind", get_args(CheckKind)) if "kind" in keywords else "check")
        help_ = self.text(keywords["help"], "help") if "help" in keywords else ""
        return Check(condition, message, values, help_, kind, span=self.span(node))

    def invoke(self, node: ast.Expr, call: ast.Call, callee: Func) -> Stmt:
        """Parses a call of another kernel: `other(a, b, c, dims=(n, m))`.

        Without `dims`, they are deduced from the shapes of the arguments. Raises an Error for other forms.
        """
        keywords = self.arguments(call, len(callee.params), ("dims",))
        args = tuple(self.argument(a, p) for a, p in zip(call.args, callee.params, strict=True))
        if "dims" in keywords:
            dims = self.shape(keywords["dims"])
            if len(dims) != len(callee.symbols):
                names = ", ".join(s.name for s in callee.symbols)
                raise self.error(
                    keywords["dims"],
                    f"`{callee.name}` has {counted(len(callee.symbols), 'dim')}, not {len(dims)}",
                    facts=[f"dims: {names}"],
                )
        else:
            values = match_dims(callee, args)
            missing = [s.name for s in callee.symbols if s not in values]
            if missing:
                names = ", ".join(missing)
                raise self.error(
                    call, f"dims of `{callee.name}` do not follow from its arguments: {names}", help="give all of them: dims=(...)"
                )
            dims = tuple(values[s] for s in callee.symbols)
        return Call(callee, args, dims, span=self.span(node))

    def argument(self, node: ast.expr, param: Param) -> Buffer | Expr:
        """Parses an argument of a call, and checks it against the parameter's dtype, rank and role."""
        declared = param.value
        if isinstance(declared, Var):
            return self.expr(node, declared.dtype)
        buffer = self.buffer(node)
        if buffer.dtype is not declared.dtype or buffer.ndim != declared.ndim:
            raise self.error(node, f"argument `{declared.name}` does not fit", facts=[f"given: `{buffer}`", f"expected: `{declared}`"])
        if param.role != "in":
            self.writable(node, buffer)
        return buffer

    def region(self, node: ast.expr) -> Region:
        """Parses a region: `a[vi, 0:128]`, or a whole buffer."""
        if not isinstance(node, ast.Subscript):
            buffer = self.buffer(node)
            return Region(buffer, tuple(Const(0, i64) for _ in buffer.shape), buffer.shape)
        buffer = self.buffer(node.value)
        pairs = [self.interval(item) for item in self.items(node, buffer)]
        return Region(buffer, tuple(s for s, _ in pairs), tuple(e for _, e in pairs))

    def interval(self, node: ast.expr) -> tuple[Expr, Expr]:
        """Parses `i` or `lo:hi` into a start and an extent; the extent of `lo : lo + e` is `e`. Raises an Error for other forms."""
        if not isinstance(node, ast.Slice):
            return self.index(node), Const(1, i64)
        if node.step is not None or node.lower is None or node.upper is None:
            raise self.unsupported(node, "a region is written `start:stop`")
        low, high = self.index(node.lower), self.index(node.upper)
        if isinstance(low, Const) and low.value == 0:
            return low, high
        if isinstance(low, Const) and isinstance(high, Const):
            return low, Const(high.value - low.value, i64)
        if isinstance(high, Add) and high.args[0] is low:
            return low, high.args[1]
        return low, high - low


def match_dims(callee: Func, args: tuple[Buffer | Expr, ...]) -> dict[Var, Expr]:
    """Returns the values, from the arguments, of the callee's symbols that are an extent or stride of a parameter by themselves."""
    values: dict[Var, Expr] = {}
    for param, arg in zip(callee.params, args, strict=True):
        if isinstance(param.value, Buffer) and isinstance(arg, Buffer):
            pairs = list(zip(param.value.shape, arg.shape, strict=True))
            if param.value.strides is not None:
                pairs += zip(param.value.strides, arg.element_strides(), strict=True)
            for declared, actual in pairs:
                if isinstance(declared, Var) and declared in callee.symbols:
                    values.setdefault(declared, actual)
    return values


def _elements(node: ast.expr) -> list[ast.expr]:
    """The elements of a tuple, or the one expression."""
    return node.elts if isinstance(node, ast.Tuple) else [node]
