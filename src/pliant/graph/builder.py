"""The builder of graph functions: appends nodes with deduced annotations, unique names, source spans and origins.

Its output is correct by construction: every annotation is deduced, every dim is defined before it is used, and state is
consumed once. Bodies of `if` and `while` are built between `open` and `close`; they may use values of enclosing bodies.

    b = Builder("f")
    x = b.param("x", Tensor(f32, (n, 64)))
    with b:
        y = ops.silu(x)
    f = b.finish([y])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import TracebackType
from typing import Any

import numpy as np

from ..dtype import bool_, i64
from ..dtype import dtype as to_dtype
from ..support.errors import Error, ShapeError
from ..support.names import unused_name
from ..support.record import dataclass
from ..support.source import Span
from ..sym.expr import Const as Literal
from ..sym.expr import Expr, Var, const, free_vars
from ..sym.facts import EMPTY
from ..sym.relations import conditions, facts_of, relation_text
from . import node as g
from .annotation import Fit, annotation_vars, defined_vars, substitute_annotation, subsumes
from .deduce import Deduction, check_condition, deduce_call, deduce_function, deduce_match, join, undefined_dim
from .op_table import TABLE, defined_dims, node_defines
from .operators import attr_exprs, building


@dataclass(slots=True)
class _Frame:
    """The state of a body under construction: of the function itself, or of a region of an `If` or `While`."""

    params: tuple[g.Value, ...] = ()
    nodes: list[g.Node] = field(default_factory=list)
    dims: set[Var] = field(default_factory=set)  # the variables that are defined in this body or around it
    values: set[g.Value] = field(default_factory=set)  # the values that are defined in this body
    consumed: dict[g.Value, Span | None] = field(default_factory=dict)  # consumed state, and where it was consumed
    loop: bool = False


class Builder:
    """Builds one graph function: appends nodes with deduced annotations, unique names, source spans and origins.

    Every dim is defined before it is used, and state is consumed once. Bodies of `if` and `while` are built between `open` and `close`.
    """

    value: type[g.Value] = g.Value  # the class of new values; tracers use a subclass with operators

    def __init__(self, name: str, *, names: Sequence[str] = (), span: Span | None = None) -> None:
        self.name = name
        self.function_span = span
        self.origin: tuple[str, ...] = ()
        self.span: Span | None = None  # the source span of the node being emitted
        self.spans: dict[g.Value, Span] = {}  # the source spans of its arguments
        self.hint = ""  # the preferred name of the next result
        self._checks: list[g.Require] = []  # user conditions that the next node will check
        self._used = set(names)
        self._params: list[g.Value] = []
        self._relations: list[Expr] = []  # what the declarations of the parameters' dims say about each other
        self.facts = EMPTY  # that they hold
        self._frames = [_Frame()]
        self._tokens: list[Any] = []

    def __enter__(self) -> Builder:
        token = building(self)
        token.__enter__()
        self._tokens.append(token)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._tokens.pop().__exit__(kind, error, trace)

    # Names, parameters, dims.

    def unique(self, hint: str) -> str:
        """A name that is not used yet: `hint`, with a numeric suffix if it is taken."""
        return unused_name(hint, self._used)

    def param(self, name: str, annotation: g.Annotation) -> g.Value:
        """Adds a parameter and returns its value; its dims that are variables are defined now, and their declared relations are facts."""
        value = self.value(self.unique(name), annotation)
        self._params.append(value)
        defined = defined_vars([annotation])
        self._relations += [c for v in defined if v not in self._frames[0].dims for c in conditions(v)]
        self._frames[0].dims.update(defined)
        self._frames[0].values.add(value)
        self.facts = facts_of(c for c in self._relations if free_vars(c) <= self._frames[0].dims)
        return value

    def check_dims(self, expressions: Sequence[Expr], where: Span | None = None) -> None:
        """Raises if the expressions contain a dim that is not defined at this point."""
        known = self._frames[-1].dims
        for e in expressions:
            for var in free_vars(e):
                if var not in known:
                    raise undefined_dim(var, where or self.span)

    @property
    def dims(self) -> frozenset[Var]:
        """The dims that are defined at this point."""
        return frozenset(self._frames[-1].dims)

    # State.

    def use(self, value: g.Value) -> None:
        """Raises if a value is state that was consumed in this body or around it; other values are always usable."""
        frame = self._frames[-1]
        if value in frame.consumed:
            where, gone = self.spans.get(value, self.span), frame.consumed[value]
            raise Error(
                f"state `{value.name}` is used after it was consumed",
                where=where,
                note="used here",
                notes=[(gone, "consumed here")] if gone else (),
                help="use the new state that the consuming call returns",
            )

    def consume(self, value: g.Value) -> None:
        """Records that the node being emitted consumes `value`; raises inside a loop that does not carry it."""
        self.use(value)
        frame = self._frames[-1]
        for inner in reversed(self._frames):
            if value in inner.values:
                break
            if inner.loop:
                raise Error(
                    f"state `{value.name}` is consumed in every round of a loop",
                    where=self.spans.get(value, self.span),
                    help=f"carry it: assign the new state to `{value.name}` in the body",
                )
        frame.consumed[value] = self.span

    # Nodes.

    def emit(
        self, node: Callable[..., g.Node], annotations: Sequence[g.Annotation], used: Sequence[g.Value], /, **fields: Any
    ) -> tuple[g.Value, ...]:
        """Appends a node and returns its outs, new values with the annotations; `used` are the operands that it does not consume.

        Pending conditions of `require` go to the node, unless it is a literal or a host scalar, and the pending name to its outs.
        """
        for a in used:
            self.use(a)
        hints = self.hint.split(",") if self.hint else []
        base = fields.get("op") or "v"
        outs = tuple(
            self.value(self.unique(hints[k] if len(hints) == len(annotations) else hints[0] if hints else base), a)
            for k, a in enumerate(annotations)
        )
        self.hint = ""
        frame = self._frames[-1]
        if self._checks and node is not g.Const and fields.get("op") != "scalar":  # passes make literals and host scalars parts of others
            checks, self._checks = {r.cond: r for r in self._checks}, []
            fields["requires"] = (*checks.values(), *(r for r in fields.get("requires", ()) if r.cond not in checks))
        frame.nodes.append(node(outs=outs, origin=self.origin, span=self.span, **fields))
        frame.values.update(outs)
        return outs

    def append(self, node: g.Node) -> None:
        """Appends a finished node, whose results have names that are not used yet: a pass moves it here from another function."""
        self._frames[-1].nodes.append(node)
        self._frames[-1].values.update(node.outs)
        self._frames[-1].dims.update(node_defines(node))

    def deduction(self, what: str, args: Sequence[g.Value]) -> Deduction:
        """A new `Deduction` for a node with these arguments, at the current source span."""
        return Deduction(what, tuple(args), self.facts, span=self.span, spans=tuple(self.spans.get(a) for a in args))

    def op(self, name: str, args: Sequence[g.Value], attrs: Any = None) -> tuple[g.Value, ...]:
        """Appends a node of a graph operator; returns the values that it defines.

        Raises ShapeError if deduction fails, an attribute uses an undefined dim, or the operator would define a dim again.
        """
        operator = TABLE[name]
        defines = defined_dims(name, attrs)
        self.check_dims([e for e in attr_exprs(attrs) if e not in defines])
        for var in defines:
            if var in self.dims:
                help_ = "give a dim that nothing else defines"
                raise ShapeError(f"{name}: dim `{var.name}` has a value already", where=self.span, help=help_)
        d = self.deduction(name, args)
        outs = operator.deduce(d, attrs)
        self._frames[-1].dims.update(defines)
        live = list(args)
        if operator.updates and g.is_state(args[0]):
            self._consume_once(live.pop(0), args)
        return self.emit(g.Op, outs, live, op=name, args=tuple(args), attrs=attrs, requires=tuple(d.requires))

    def constant(self, array: np.ndarray[Any, Any]) -> g.Value:
        """Appends a literal tensor as an operand of the node being emitted, with a name of its own."""
        return self._aside(lambda: self.literal(array), "const")

    def literal(self, array: np.ndarray[Any, Any]) -> g.Value:
        """Appends a literal tensor; returns its value. A writable array is copied first."""
        if not _is_fixed(array):
            array = np.array(array)  # a copy: the user may write to the array later, the program must not change
            array.setflags(write=False)
        annotation = g.Tensor(to_dtype(array.dtype), tuple(const(n) for n in array.shape))
        return self.emit(g.Const, [annotation], (), array=array)[0]

    def scalar(self, value: Expr) -> g.Value:
        """Appends a host scalar whose value is an expression over dims; returns its value."""
        from .ops.shape import ScalarAttrs

        return self._aside(lambda: self.op("scalar", (), ScalarAttrs(value))[0], "scalar")

    def _aside(self, make: Callable[[], g.Value], hint: str) -> g.Value:
        """Emits an operand under the name `hint` and saves the pending name for the result."""
        pending, self.hint = self.hint, hint
        value = make()
        self.hint = pending
        return value

    def require(self, condition: Expr, message: str, values: tuple[Expr, ...], help: str) -> None:
        """Adds a run-time condition to the next node; its message replaces that of an equal condition found by deduction.

        Raises an Error if the condition is no bool.
        """
        if condition.dtype is not bool_:
            raise Error(f"require: a condition is a bool, and this is {condition.dtype}", where=self.span)
        self.check_dims([condition, *values])
        self._checks.append(g.Require(condition, message, values, help, self.span))

    def _no_checks_left(self) -> None:
        """Raises if a `require` is pending: no node follows that could check it."""
        if self._checks:
            raise Error("nothing comes after this that could check it", where=self._checks[0].span, help="write `require` before a node")

    def call_loop(
        self, callee: g.Callee, args: Sequence[g.Value | Expr | float], symbols: Sequence[Expr] | None = None
    ) -> tuple[g.Value, ...]:
        """Appends a call of a loop program; returns its results.

        `args` are values for its tensors, and values, expressions or numbers for scalars. `symbols` are the values of the callee's symbols;
        they are needed if the argument shapes do not determine them. Raises if the arguments do not fit; `inout` arguments are consumed.
        """
        params = [p for p in callee.params if p.role != "out"]
        if len(args) != len(params):
            raise self._wrong_count(callee.name, [f"{p.name}: {_parameter_text(p)}" for p in params], len(args))
        final: list[g.Value | Expr] = []
        shown: list[g.Value] = []
        for p, a in zip(params, args, strict=True):
            if p.shape is None and not isinstance(a, g.Value):
                value = a if isinstance(a, Expr) else Literal(a, p.dtype)
                self.check_dims([value])
                final.append(value)
                shown.append(g.Value(p.name, g.Scalar(value.dtype, value)))
            elif isinstance(a, g.Value):
                final.append(a)
                shown.append(a)
            else:
                raise Error(f"{callee.name}: argument `{p.name}` is {_parameter_text(p)}, not the number {a}", where=self.span)
        d = self.deduction(callee.name, shown)
        if symbols is not None:
            self._check_symbols(callee, symbols)
        outs, dims = deduce_call(d, callee, symbols)
        values = [a for a in final if isinstance(a, g.Value)]
        for p, a in zip(params, final, strict=True):
            if p.role == "inout" and isinstance(a, g.Value):
                self._consume_once(a, values)
        fields: dict[str, Any] = {"callee": callee, "args": tuple(final), "dims": dims, "requires": tuple(d.requires)}
        self.hint = self.hint or callee.name
        return self.emit(g.CallLoop, outs, [v for v in values if v not in self._frames[-1].consumed], **fields)

    def _check_symbols(self, callee: g.Callee, symbols: Sequence[Expr]) -> None:
        """Raises unless there is one defined i64 expression for each symbol of the callee."""
        if len(symbols) != len(callee.symbols) or any(e.dtype is not i64 for e in symbols):
            names = ", ".join(v.name for v in callee.symbols)
            raise Error(f"{callee.name} has {len(callee.symbols)} dims, {len(symbols)} given", where=self.span, facts=[f"they are {names}"])
        self.check_dims(symbols)

    def _consume_once(self, value: g.Value, args: Sequence[g.Value]) -> None:
        """Consumes a state argument; raises if the same call uses it twice."""
        if sum(a is value for a in args) > 1:
            raise Error(
                f"state `{value.name}` is consumed and used again by the same call",
                where=self.spans.get(value, self.span),
                help="a call that updates state gets it once",
            )
        self.consume(value)

    def _wrong_count(self, name: str, params: Sequence[str], found: int) -> Error:
        """Returns the error for a call with a wrong number of arguments."""
        return Error(
            f"{name} takes {len(params)} argument{'s' if len(params) != 1 else ''}, {found} given",
            where=self.span,
            facts=[f"{name}({', '.join(params)})"],
        )

    def call_function(
        self, function: g.Function, args: Sequence[g.Value], results: Sequence[g.Annotation] | None = None
    ) -> tuple[g.Value, ...]:
        """Appends a call of another graph function; returns its results. `results` may name the dims that the callee defines inside.

        Raises if the arguments do not fit; state arguments are consumed.
        """
        if len(args) != len(function.params):
            raise self._wrong_count(function.name, [repr(p) for p in function.params], len(args))
        d = self.deduction(function.name, args)
        outs = deduce_function(d, function)
        if results is not None:
            outs = self._named_results(function, outs, results)
        for p, a in zip(function.params, args, strict=True):
            if g.is_state(p):
                self._consume_once(a, args)
        fresh = [v for v in defined_vars(outs) if v not in self.dims]
        self._frames[-1].dims.update(fresh)
        for annotation in outs:
            self._escaped(annotation_vars(annotation), f"a result of {function.name}")
        self.hint = self.hint or function.name
        live = [a for a in args if a not in self._frames[-1].consumed]
        return self.emit(g.CallFunction, outs, live, function=function, args=tuple(args), requires=tuple(d.requires))

    def _named_results(
        self, function: g.Function, found: Sequence[g.Annotation], wanted: Sequence[g.Annotation]
    ) -> tuple[g.Annotation, ...]:
        """The result annotations `found` of a call, with its newly defined dims renamed as in `wanted`; raises if the rest differs."""
        dims = [[e for a in annotations for e in g.annotation_exprs(a)] for annotations in (found, wanted)]
        pairs = list(zip(*dims, strict=False))
        names = {e: w for e, w in pairs if isinstance(e, Var) and isinstance(w, Var) and e not in self.dims and w not in self.dims}
        outs = tuple(substitute_annotation(a, names) for a in found)
        if len(outs) != len(wanted) or any(subsumes(w, a).fit is not Fit.HOLDS for w, a in zip(wanted, outs, strict=True)):
            raise ShapeError(
                f"{function.name} does not return what is said",
                where=self.span,
                facts=[f"it returns {', '.join(map(str, found))}", f"`out` says {', '.join(map(str, wanted))}"],
                help="match_cast asserts what is known only at run time",
            )
        return outs

    def call_library(self, symbol: str, args: Sequence[g.Value], results: Sequence[g.Annotation]) -> tuple[g.Value, ...]:
        """Appends a call of an external symbol, and returns its results; the caller declares their annotations."""
        self._check_results(results)
        self.hint = self.hint or symbol
        return self.emit(g.CallLibrary, results, args, symbol=symbol, args=tuple(args))

    def call_host(self, fn: Callable[..., Any], args: Sequence[g.Value], results: Sequence[g.Annotation]) -> tuple[g.Value, ...]:
        """Appends a call of a Python function on arrays, and returns its results; the caller declares their annotations."""
        self._check_results(results)
        self.hint = self.hint or getattr(fn, "__name__", "host")
        return self.emit(g.CallHost, results, args, fn=fn, args=tuple(args))

    def _check_results(self, results: Sequence[g.Annotation]) -> None:
        """Raises if declared results mention a dim that is not defined."""
        for a in results:
            for var in annotation_vars(a):
                if var not in self.dims:
                    raise undefined_dim(var, self.span)

    def match_cast(self, value: g.Value, annotation: g.Annotation, what: str = "match_cast") -> g.Value:
        """Returns `value` under a more precise annotation, checked at run time; it defines new variables that are whole dims.

        `what` begins the messages. A State annotation consumes a state value and returns the new state; a Tensor annotation only reads it.
        """
        d = self.deduction(what, [value])
        defines = deduce_match(d, annotation, self.dims)
        linear = isinstance(annotation, g.Tensor) and annotation.state
        if linear:
            self.consume(value)
        self._frames[-1].dims.update(defines)
        self.hint = self.hint or value.name
        live = [] if linear else [value]
        return self.emit(g.MatchCast, [annotation], live, value=value, defines=defines, requires=tuple(d.requires))[0]

    # Bodies.

    def open(self, params: Sequence[g.Value] = (), *, loop: bool = False) -> None:
        """Begins a nested body with these parameters; nodes are appended to it until `close`."""
        outer = self._frames[-1]
        self._frames.append(_Frame(tuple(params), [], set(outer.dims), set(params), dict(outer.consumed), loop))

    def pause(self) -> _Frame:
        """Takes the current body off the stack and returns it; `resume` continues it."""
        return self._frames.pop()

    def resume(self, frame: _Frame) -> None:
        """Continues a body that `pause` returned."""
        self._frames.append(frame)

    def close(self, results: Sequence[g.Value]) -> tuple[g.Body, dict[g.Value, Span | None]]:
        """Ends the current body; returns it, and the state from outside that it consumed."""
        self._no_checks_left()
        frame = self._frames.pop()
        gone = {v: s for v, s in frame.consumed.items() if v not in frame.values and v not in self._frames[-1].consumed}
        return g.Body(frame.params, tuple(frame.nodes), tuple(results)), gone

    def carried(self, name: str, annotation: g.Annotation) -> g.Value:
        """Returns a new parameter for a loop body; it is printed under the name of the loop's result."""
        return g.Value(name, annotation)

    def carry(self, name: str, annotation: g.Annotation) -> g.Value:
        """Adds a parameter to the body being built, for a loop-carried value that is discovered only while tracing the body."""
        value, frame = self.carried(name, annotation), self._frames[-1]
        frame.params += (value,)
        frame.values.add(value)
        return value

    def if_(
        self, cond: g.Value, then: tuple[g.Body, Mapping[g.Value, Span | None]], orelse: tuple[g.Body, Mapping[g.Value, Span | None]]
    ) -> tuple[g.Value, ...]:
        """Appends an `If` over two closed bodies (as `close` returns them) with the same number of results; returns its results.

        Raises if the branches consume different state, or if their results have no common annotation.
        """
        check_condition(cond, self.span)
        gone = [{**consumed, **dict.fromkeys(g.passed_state(body))} for body, consumed in (then, orelse)]
        for value in {**gone[0], **gone[1]}:
            if (value in gone[0]) != (value in gone[1]):
                raise Error(
                    f"state `{value.name}` is consumed in one branch only",
                    where=then[1].get(value) or orelse[1].get(value) or self.span,
                    help=f"assign the new state to `{value.name}`: then it is the old one where the other branch leaves it alone",
                )
        annotations = [join(a, b, self.span) for a, b in zip(then[0].results, orelse[0].results, strict=True)]
        for annotation in annotations:
            self._escaped(annotation_vars(annotation), "a result of the branches")
        outs = self.emit(g.If, annotations, [cond], cond=cond, then=then[0], orelse=orelse[0])
        self._frames[-1].consumed.update({**gone[0], **orelse[1], **then[1]})
        return outs

    def while_(self, init: Sequence[g.Value], cond: g.Body, body: g.Body) -> tuple[g.Value, ...]:
        """Appends a `While` over loop-carried values, from two closed bodies with the same parameters; returns the final values.

        Raises ShapeError if a carried value would change its annotation; carried state is consumed.
        """
        check_condition(cond.results[0], self.span)
        for value in init:
            if g.is_state(value):
                self._consume_once(value, init)
        annotations = [p.annotation for p in body.params]
        for param, result in zip(body.params, body.results, strict=True):
            if subsumes(param.annotation, result.annotation).fit is not Fit.HOLDS:
                raise ShapeError(
                    f"`{param.name}` changes from round to round of the loop",
                    where=self.span,
                    facts=[f"it starts as {param.annotation}", f"after a round it is {result.annotation}"],
                    help="what a loop carries keeps its annotation; match_cast can assert it",
                )
        live = [v for v in init if v not in self._frames[-1].consumed]
        return self.emit(g.While, annotations, live, init=tuple(init), cond=cond, body=body)

    def _escaped(self, used: frozenset[Var], what: str) -> None:
        """Raises if a result mentions a dim that is defined only inside a body or callee."""
        for var in sorted(used, key=lambda v: v.payload[:2]):
            if var not in self.dims:
                raise ShapeError(
                    f"dim `{var.name}` is not known outside: {what} has it in its shape",
                    where=self.span,
                    help="match_cast the result to a shape whose dims are known",
                )

    def finish(self, results: Sequence[g.Value], attrs: Mapping[str, Any] | None = None) -> g.Function:
        """Returns the finished function with these results.

        Raises if state is returned twice or was consumed, a `require` is left over, or a relation has a dim that no parameter has.
        """
        self._no_checks_left()
        for position, value in enumerate(results):
            self.use(value)
            if g.is_state(value) and value in results[:position]:
                raise ShapeError(
                    f"state `{value.name}` is returned twice",
                    where=self.span or self.function_span,
                    facts=["state is linear: it has one owner"],
                    help="return it once, or pass it as two parameters",
                )
        for condition in self._relations:
            missing = sorted(v.name for v in free_vars(condition) if v not in self._frames[0].dims)
            if missing:
                raise ShapeError(
                    f"no parameter has `{missing[0]}` as a dim, and `{relation_text(condition)}` is declared",
                    where=self.function_span,
                    help=f"add a parameter that has `{missing[0]}` as a dimension of its own, or declare the dims without the relation",
                )
        if self._relations:
            attrs = {**(attrs or {}), "relations": tuple(g.relation(c) for c in dict.fromkeys(self._relations))}
        nodes = tuple(self._frames[0].nodes)
        return g.Function(self.name, tuple(self._params), nodes, tuple(results), attrs or {}, self.function_span)


def _is_fixed(array: np.ndarray[Any, Any]) -> bool:
    """True if the memory of the array is read-only through the whole chain of bases, e.g. that of a file mapped by mmap."""
    memory: Any = array
    while isinstance(memory, np.ndarray):
        if memory.flags.writeable:
            return False
        memory = memory.base
    return memory is not None and memoryview(memory).readonly


def _parameter_text(p: Any) -> str:
    """Returns the type of a loop program's parameter as text for messages."""
    if p.shape is None:
        return str(p.dtype)
    return str(g.Tensor(p.dtype, p.shape, p.role == "inout"))
