"""Shape inference: deduces the annotations of a node's results from those of its arguments, when the node is built.

A `Deduction` is the scratch pad of one node: it decides conditions on dims, raises located errors for those that cannot hold,
and collects a `Require` for each that only run time can decide. A check of one node is not a fact for another, because nodes have
no order except that of their values; a `match_cast` passes a checked fact on to the users of its result.

    d = Deduction("matmul")
    d.equal(a.shape[1], b.shape[0], "…")       # proven: nothing; impossible: ShapeError; else a Require
    d.broadcast((n, 1), (m,))                  # (n, m)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ..dtype import bool_
from ..support.errors import Error, ShapeError, counted
from ..support.record import dataclass
from ..support.source import Span
from ..sym.expr import And, Const, Dim, Eq, Expr, FloorMod, Le, Or, Select, Var, const, free_vars, substitute
from ..sym.facts import EMPTY, Facts
from ..sym.relations import conditions, relation_text
from ..sym.simplify import simplify
from ..sym.text import text
from .annotation import ONE, Fit, annotation_vars, blank, decide, defined_vars, kind_text, substitute_annotation, subsumes
from .node import Annotation, Callee, Function, Require, Scalar, Tensor, Value, annotation_exprs, made, relations, stride_exprs


@dataclass(slots=True)
class Deduction:
    """The deduction of one node's result annotations: its arguments, known facts, and the run-time conditions collected so far."""

    what: str  # the operator or callee, for messages
    args: tuple[Value, ...] = ()
    facts: Facts = EMPTY
    span: Span | None = None
    spans: tuple[Span | None, ...] = ()  # where each argument is written
    requires: list[Require] = field(default_factory=list)

    def error(self, what: str, *, facts: Sequence[str] = (), help: str = "", arg: int | None = None, note: str = "") -> ShapeError:
        """Returns an error at the source span of argument `arg` or of the node; its facts begin with the argument annotations."""
        shown = [f"`{a.name}` is {a.annotation}" for a in dict.fromkeys(self.args)]
        where = self.spans[arg] if arg is not None and arg < len(self.spans) and self.spans[arg] else self.span
        return ShapeError(what, where=where, note=note, facts=[*shown, *facts], help=help)

    def require(self, condition: Expr, message: str, values: tuple[Expr, ...] = (), *, help: str = "", arg: int | None = None) -> None:
        """Does nothing if `condition` is proven, raises if it is refuted, else adds a run-time check; `{0}` in the message: values[0]."""
        answer = decide(condition, self.facts)
        if answer is False:
            raise self.error(message.format(*values), help=help, arg=arg)
        condition = simplify(condition, self.facts)
        if answer is None and all(r.cond is not condition for r in self.requires):
            self.requires.append(Require(condition, message, values, help, self.span))

    def equal(self, a: Expr, b: Expr, message: str, *, help: str = "", arg: int | None = None) -> Expr:
        """Requires `a == b`; the message may use `{0}` and `{1}`. Returns the simpler of the two."""
        if a is not b:
            self.require(Eq(a, b), f"{self.what}: {message}", (a, b), help=help, arg=arg)
        return b if isinstance(b, Const) or (isinstance(b, Var) and not isinstance(a, Const | Var)) else a

    def tensor(self, k: int) -> Tensor:
        """Returns the annotation of argument `k`; raises unless it is a tensor. A host scalar counts as one of rank 0."""
        annotation = self.args[k].annotation
        if isinstance(annotation, Scalar):
            return Tensor(annotation.dtype, ())
        if not isinstance(annotation, Tensor):
            raise self.error(f"{self.what} takes tensors, and `{self.args[k].name}` is {kind_text(annotation)}", arg=k)
        return annotation

    def rank(self, k: int, *ranks: int) -> Tensor:
        """Returns the tensor annotation of argument `k`; raises unless it has one of the ranks."""
        t = self.tensor(k)
        if len(t.shape) not in ranks:
            wanted = " or ".join(map(str, ranks))
            raise self.error(f"{self.what}: `{self.args[k].name}` has {counted(len(t.shape), 'dim')}, {wanted} expected", arg=k)
        return t

    def same_dtype(self) -> None:
        """Raises if the arguments have different dtypes."""
        first = self.tensor(0).dtype
        for k in range(1, len(self.args)):
            other = self.tensor(k).dtype
            if other is not first:
                raise self.error(
                    f"{self.what} of {first} and {other}: nothing is cast implicitly",
                    help=f"write ops.cast({self.args[k].name}, {first}) or ops.cast({self.args[0].name}, {other})",
                    arg=k,
                )

    def floats(self) -> None:
        """Raises if an argument is not a float."""
        for k in range(len(self.args)):
            if not self.tensor(k).dtype.is_float:
                help_ = f"write ops.cast({self.args[k].name}, f32)"
                raise self.error(f"{self.what} is for floats, and `{self.args[k].name}` is {self.tensor(k).dtype}", help=help_, arg=k)

    def same_floats(self) -> None:
        """Raises if the arguments have different dtypes, or one is not a float."""
        self.same_dtype()
        self.floats()

    def broadcast(self, *shapes: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Returns the numpy broadcast of several shapes; collects conditions that dims are equal, raises if they cannot be."""
        result: tuple[Expr, ...] = ()
        for k, shape in enumerate(shapes):
            rank = max(len(result), len(shape))
            wide = (ONE,) * (rank - len(result)) + result
            other = (ONE,) * (rank - len(shape)) + shape
            result = tuple(self._broadcast_dim(n, m, i - rank, k) for i, (n, m) in enumerate(zip(wide, other, strict=True)))
        return result

    def _broadcast_dim(self, n: Expr, m: Expr, axis: int, arg: int) -> Expr:
        """Returns the broadcast of two dims: `select(n == 1, m, n)` under the check `n == m or n == 1 or m == 1`, simplified by the facts.

        Raises if the dims can never be broadcast.
        """
        if n is m or m is ONE:
            return n
        if n is ONE:
            return m
        facts = self.facts
        if decide(Eq(n, m), facts):
            return n if isinstance(n, Const) or not isinstance(m, Const) else m
        n_one, m_one = decide(Eq(n, ONE), facts), decide(Eq(m, ONE), facts)
        if n_one:
            return m
        if m_one:
            return n
        options = [Eq(n, m), *([Eq(n, ONE)] if n_one is None else []), *([Eq(m, ONE)] if m_one is None else [])]
        condition: Expr = options[0]
        for option in options[1:]:
            condition = Or(condition, option)
        self.require(
            condition,
            f"{self.what}: dims {{0}} and {{1}} (at {axis}) cannot be broadcast",
            (n, m),
            help="dims must be equal, or one of them 1",
            arg=arg,
        )
        if n_one is False:
            return n
        if m_one is False:
            return m
        return simplify(Select(Eq(n, ONE), m, n), facts)

    def contract(self, dim: Var, value: Expr, name: str) -> None:
        """Requires that `value` satisfies the contract of `dim`: its range and divisibility."""
        if not isinstance(dim, Dim) or value is dim:
            return
        inside = And(Le(const(dim.min), value), Le(value, const(dim.max)))
        condition = inside if dim.multiple_of == 1 else And(inside, Eq(FloorMod(value, const(dim.multiple_of)), const(0)))
        self.require(condition, f"{self.what}: {name} is {{0}}, and the contract says {dim.contract}", (value,))

    def related(self, relations: Sequence[Expr], values: Mapping[Var, Expr]) -> None:
        """Requires the relations that the declarations of dims state, for these values of the dims.

        Raises if one is refuted; one that only run time can decide is left to a check there.
        """
        for condition in relations:
            self.bound(condition, values, "a relation that is declared")
            found = substitute(condition, dict(values))
            a, b = found.args
            word = "is not" if isinstance(condition, Eq) else "is more than"
            what = f"{self.what}: `{condition.args[0]}` = {{0}} {word} `{condition.args[1]}` = {{1}}"
            self.require(found, what, (a, b), help=f"the declaration of the dims says {relation_text(condition)}")

    def bind(
        self, names: Sequence[str], expected: Sequence[Annotation], found: Sequence[Annotation], known: Mapping[Var, Expr] | None = None
    ) -> dict[Var, Expr]:
        """Returns the values of the callee's variables: one that is a whole dim gets the argument's dim; all other dims must then be equal.

        `known` are values to start with. Raises if an argument does not fit or a variable stays unbound; what cannot be decided becomes a
        run-time condition.
        """
        values: dict[Var, Expr] = dict(known or {})
        for k, (name, e, f) in enumerate(zip(names, expected, found, strict=True)):
            self._same_kind(k, name, e, f)
            if isinstance(e, Scalar):
                continue
            for i, (dim, value) in enumerate(zip(annotation_exprs(e), annotation_exprs(f), strict=True)):
                if isinstance(dim, Var) and values.setdefault(dim, value) is value:
                    self.contract(dim, value, f"dim {i} of argument `{name}`")
        for k, (name, e, f) in enumerate(zip(names, expected, found, strict=True)):
            if isinstance(e, Scalar):
                continue
            for i, (dim, value) in enumerate(zip(annotation_exprs(e), annotation_exprs(f), strict=True)):
                self.bound(dim, values, f"dim {i} of parameter `{name}`")
                self._match(substitute(dim, values), dim, value, f"dim {i} of argument `{name}`", k)
        for k, (name, e, f) in enumerate(zip(names, expected, found, strict=True)):
            if isinstance(e, Tensor) and isinstance(f, Tensor):
                self._bind_strides(k, name, e, f, values)
        return values

    def _bind_strides(self, k: int, name: str, e: Tensor, f: Tensor, values: dict[Var, Expr]) -> None:
        """Requires the declared strides of a parameter; a read-only parameter without declared strides accepts any."""
        if e.strides is None and (f.strides is None or not e.state):
            return
        for i, (stride, value) in enumerate(zip(e.element_strides(), f.element_strides(), strict=True)):
            which = f"stride {i} of argument `{name}`"
            if isinstance(stride, Var) and values.setdefault(stride, value) is value:
                self.contract(stride, value, which)
            self.bound(stride, values, f"stride {i} of parameter `{name}`")
            expected = substitute(stride, values)
            if expected is not value:
                single = Le(f.shape[i], ONE)  # the stride of a dim of extent 1 is never used, so any value is fine
                shown = (value, expected)
                self.require(Or(single, Eq(value, expected)), f"{self.what}: {which} is {{0}}, {stride} = {{1}} is expected", shown, arg=k)

    def bound(self, dim: Expr, values: Mapping[Var, Expr], which: str) -> None:
        """Raises if a variable of `dim` is not bound in `values`."""
        for var in free_vars(dim):
            if var not in values:
                raise self.error(
                    f"{self.what}: dim `{var.name}` cannot be found from the arguments",
                    facts=[f"{which} is {dim}"],
                    help=f"a dim is bound where it stands alone: let `{var.name}` be a whole dim of a parameter",
                )

    def _same_kind(self, k: int, name: str, expected: Annotation, found: Annotation) -> None:
        """Raises if kind, dtype, rank or state of an argument differ from its parameter's."""
        match = subsumes(blank(expected), blank(found))
        if match.fit is Fit.HOLDS:
            return
        help_ = ""
        if isinstance(expected, Tensor) and isinstance(found, Tensor) and expected.dtype is not found.dtype:
            help_ = f"write ops.cast({self.args[k].name}, {expected.dtype})" if k < len(self.args) else ""
        elif isinstance(expected, Tensor) and isinstance(found, Tensor) and expected.state and not found.state:
            help_ = "only state can be updated in place: annotate the parameter it comes from with State[...]"
        raise self.error(
            f"{self.what}: argument `{name}` does not fit: {match.reason}", facts=[f"parameter `{name}` is {expected}"], help=help_, arg=k
        )

    def _match(self, expected: Expr, written: Expr, found: Expr, which: str, arg: int) -> None:
        """Requires that a dim equals the expected one; `written` is how the parameter declares it, for the message."""
        if expected is found:
            return
        condition = Eq(found, expected)
        # An error at compile time has no run-time value of a dim to show, so the message then shows the dim itself.
        plain = written is expected and (isinstance(expected, Const) or decide(condition, self.facts) is False)
        shown = text(expected) if plain else f"{written} = {{1}}"
        self.require(condition, f"{self.what}: {which} is {{0}}, {shown} is expected", (found, expected), arg=arg)


def deduce_match(d: Deduction, target: Annotation, known: frozenset[Var]) -> tuple[Var, ...]:
    """Returns the variables that `match_cast(args[0], target)` defines, and requires that the other dims match.

    Raises if kind, dtype or rank differ, or if the target has strides of its own.
    """
    actual = _as_read(target, d.args[0].annotation)
    if stride_exprs(target) and target != actual:
        raise d.error(f"{d.what}: only the parameters of a function have strides", help="leave the strides out")
    match = subsumes(blank(target), blank(actual))
    if match.fit is not Fit.HOLDS:
        raise d.error(f"{d.what}: `{d.args[0].name}` cannot be {target}: {match.reason}", arg=0)
    defines = tuple(v for v in defined_vars([target]) if v not in known)
    values: dict[Var, Expr] = {}
    known_value = not isinstance(target, Scalar) or target.value is not None  # a cast may drop the symbolic value of a scalar
    pairs = list(zip(annotation_exprs(target), annotation_exprs(actual), strict=True)) if known_value else []
    for i, (dim, value) in enumerate(pairs):
        if isinstance(dim, Var) and dim in defines and dim not in values:
            values[dim] = value
            d.contract(dim, value, f"dim {i} of `{d.args[0].name}`")
    for i, (dim, value) in enumerate(pairs):
        for var in free_vars(dim):
            if var not in known and var not in defines:
                raise undefined_dim(var, d.span)
        d._match(substitute(dim, values), dim, value, f"dim {i} of `{d.args[0].name}`", 0)
    d.related([c for v in defines for c in conditions(v)], {**{v: v for v in known}, **values})
    return defines


def undefined_dim(var: Var, where: Span | None) -> Error:
    """Returns the error for a dim that is used before a parameter or match_cast defines it."""
    return ShapeError(
        f"dim `{var.name}` is used before it is defined",
        where=where,
        help=f"a dim is defined where it stands alone in a parameter, Tensor[f32, {var.name}], or in a match_cast",
    )


def deduce_call(d: Deduction, callee: Callee, dims: Sequence[Expr] | None = None) -> tuple[tuple[Annotation, ...], tuple[Expr, ...]]:
    """Deduces a call of a loop program: returns the annotations of its `inout` and `out` parameters, and the values of its symbols.

    `dims` gives the values of the symbols if the arguments do not determine them. Raises if the arguments do not fit or a symbol stays
    unknown.
    """
    params = [p for p in callee.params if p.role != "out"]
    expected: list[Annotation] = [
        Scalar(p.dtype) if p.shape is None else Tensor(p.dtype, p.shape, p.role == "inout", p.strides) for p in params
    ]
    actual = [_as_read(e, a.annotation) for e, a in zip(expected, d.args, strict=True)]
    values = dict(zip(callee.symbols, dims, strict=True)) if dims is not None else {}
    for p, f in zip(params, actual, strict=True):
        if p.var is not None and isinstance(f, Scalar) and f.value is not None:
            values[p.var] = f.value
    values = d.bind([p.name for p in params], expected, actual, values)
    strides = {p.name: f.strides for p, f in zip(params, actual, strict=True) if isinstance(f, Tensor)}
    outs: list[Annotation] = []
    for p in callee.params:
        if p.shape is not None and p.role != "in":
            for i, e in enumerate(p.shape):
                d.bound(e, values, f"dim {i} of `{p.name}`")
            out = substitute_annotation(Tensor(p.dtype, p.shape, p.role == "inout"), values, d.facts)
            assert isinstance(out, Tensor)
            for stride, plain in zip(p.strides or (), out.element_strides(), strict=False):
                if isinstance(stride, Var) and stride not in values:  # the compiler allocates outputs, always contiguous
                    values[stride] = plain
                    d.contract(stride, plain, f"the stride `{stride.name}` of `{p.name}`")
            outs.append(replace(out, strides=strides.get(p.name)) if p.role == "inout" else out)
    for symbol in callee.symbols:
        d.bound(symbol, values, f"a dim of `{callee.name}`")
    stated = [c for symbol in callee.symbols for c in conditions(symbol)]
    d.related([c for c in stated if free_vars(c) <= values.keys()], values)  # a program need not have all dims of a relation
    return tuple(outs), tuple(values[s] for s in callee.symbols)


def _as_read(expected: Annotation, found: Annotation) -> Annotation:
    """The annotation of an argument as its parameter sees it: state passed to a read-only parameter is a plain tensor."""
    if isinstance(expected, Tensor) and not expected.state and isinstance(found, Tensor):
        return Tensor(found.dtype, found.shape, strides=found.strides)
    return found


def deduce_function(d: Deduction, function: Function) -> tuple[Annotation, ...]:
    """Returns the result annotations of a call of a graph function; dims that the callee defines inside become fresh variables.

    Raises if the arguments do not fit, or a parameter has declared strides; what only run time can decide becomes a condition in `d`.
    """
    strided = next((p for p in function.params if stride_exprs(p.annotation)), None)
    if strided is not None:
        what = f"{d.what}: its parameter `{strided.name}` has strides, which only a caller from outside can give"
        raise d.error(what, facts=[f"it is {strided.annotation}"], help="leave the strides out: what is passed on is read as it lies")
    expected = [p.annotation for p in function.params]
    actual = [_as_read(e, a.annotation) for e, a in zip(expected, d.args, strict=True)]
    values = d.bind([p.name for p in function.params], expected, actual)
    d.related([r.cond for r in relations(function)], values)
    for result in function.results:
        for var in sorted(annotation_vars(result.annotation), key=lambda v: v.payload[:2]):
            if var not in values:
                values[var] = Dim(var.name, var.min, var.max, var.multiple_of) if isinstance(var, Dim) else Var(var.name, var.dtype)
    return tuple(substitute_annotation(r.annotation, values, d.facts) for r in function.results)


def check_condition(cond: Value, where: Span | None) -> None:
    """Raises unless `cond` is one bool: a host scalar or a rank-0 tensor."""
    a = cond.annotation
    if isinstance(a, Scalar | Tensor) and a.dtype is bool_ and (isinstance(a, Scalar) or not a.shape):
        return
    raise ShapeError(
        f"a condition is one bool, and `{cond.name}` is {a}",
        where=where,
        help="compare scalars, or reduce the tensor to one element first",
    )


def join(a: Value, b: Value, where: Span | None) -> Annotation:
    """The common annotation of `a` and `b`, results of two branches; raises if they differ. Different scalar values become unknown."""
    x, y = made(a.annotation), made(b.annotation)
    if isinstance(x, Scalar) and isinstance(y, Scalar) and x.dtype is y.dtype:
        return x if x.value is y.value else Scalar(x.dtype)
    if subsumes(x, y).fit is Fit.HOLDS:
        return x
    raise ShapeError(
        "the branches disagree",
        where=where,
        facts=[f"`{a.name}` is {x} in the first", f"`{b.name}` is {y} in the second"],
        help="both branches must give the same shape and dtype; match_cast can assert a common one",
    )
