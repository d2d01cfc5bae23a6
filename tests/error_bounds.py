"""How far a program's results may be from those of the same program with its sums in another order.

`Bounds(func)` makes a program that computes, beside each float, a magnitude: 0 for what was not computed, the sum of the absolute values of
its terms for a sum, propagated to first order through products, quotients and functions. Two evaluations that differ in the order of sums
and in the contraction of products differ by at most a small number of roundings times eps times that magnitude. Where the inputs are
whole numbers and every magnitude is below what the dtype counts exactly, they do not differ at all.

    bounds = Bounds(func); found = bounds.run(arguments, dims)
    found.error["y"]      # an array: |y - y'| is below it
    found.exact           # whether y == y'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pliant.dtype import DType, bf16, f16, f32, f64
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Buffer, Load
from pliant.loop.stmt import (
    Alloc,
    Block,
    Call,
    For,
    Func,
    Let,
    Param,
    Reduce,
    Replacer,
    Stmt,
    Store,
    View,
    exprs,
    map_children,
    seq,
    walk_stmts,
)
from pliant.sym import expr as E
from pliant.sym.expr import Const, Expr, Select, Var
from pliant.sym.semantics import evaluate
from pliant.sym.walk import walk

EPS = {f64: 2.0**-53, f32: 2.0**-24, f16: 2.0**-11, bf16: 2.0**-8}
COUNTS = {f64: 2.0**52, f32: 2.0**23, f16: 2.0**10, bf16: 2.0**7}
ZERO = Const(0.0, f64)
EVALUATIONS = 4  # two results, each with its own roundings, and what the first order leaves out


class NoBoundError(Exception):
    """A program whose results are no continuous function that is known here."""


class Found(NamedTuple):
    """What is known about the results of a program on some arguments."""

    error: dict[str, np.ndarray[Any, Any]] | None  # None: there is no bound
    exact: bool


def absolute(e: Expr) -> Expr:
    """The absolute value in f64."""
    return E.Call("abs", E.Cast(f64, e) if e.dtype is not f64 else e)


def total(*terms: Expr) -> Expr:
    """The sum of those terms that are not 0."""
    made: Expr = ZERO
    for t in terms:
        made = t if made is ZERO else made if t is ZERO else E.Add(made, t)
    return made


class Bounds:
    """The magnitudes of a program's floats."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.inputs = {p.value for p in func.params if p.role == "in"}
        self.companions: dict[Buffer, Buffer] = {}
        self.vars: dict[Var, Var] = {}
        self.names = 0
        self.whole = True  # no operation makes a fraction of whole numbers
        self.floats: set[DType] = set()
        self.problem = ""
        allocated = [s.buffer for s in walk_stmts(func.body) if isinstance(s, Alloc)]
        for b in [*func.buffers, *allocated]:
            if b.dtype.is_float:
                self.floats.add(b.dtype)
                if b not in self.inputs:
                    self.companions[b] = Buffer(f"{b.name}_magnitude", f64, b.shape)
        self._look()
        try:
            body = self.stmt(func.body)
        except NoBoundError as error:
            self.program, self.problem = None, str(error)
            return
        extra = [Param(b, "inout") for b in (*allocated, *self.companions.values())]
        self.allocated = allocated
        self.program = Func(func.name, (*func.params, *extra), body)

    def _look(self) -> None:
        """Find what makes a small difference a large one, and what makes fractions."""
        for s in walk_stmts(self.func.body):
            values = list(exprs(s))
            if isinstance(s, Reduce):
                values += s.combiner.result
                self.whole = self.whole and s.combiner.name != "mul"
            for e in (x for v in values for x in walk(v)):
                jump = isinstance(e, E.Compare) or (isinstance(e, E.Cast) and not e.dtype.is_float)
                if jump and any(a.dtype.is_float and self._rounded(a) for a in e.args):
                    self.problem = f"`{e}` may jump"
                if e.dtype.is_float:
                    self.floats.add(e.dtype)
                    fraction = isinstance(e, Const) and not float(e.value).is_integer() and abs(e.value) != float("inf")
                    function = isinstance(e, E.Call) and e.payload != "abs"
                    self.whole = self.whole and not (isinstance(e, E.Div) or fraction or function)

    def _rounded(self, e: Expr) -> bool:
        """Whether a float may depend on an order: it comes from something that was computed."""
        return any((isinstance(x, Load) and x.buffer not in self.inputs) or (isinstance(x, Var) and x.dtype.is_float) for x in walk(e))

    # Magnitudes.

    def of(self, e: Expr) -> Expr:
        """The magnitude of a float expression, of dtype f64."""
        match e:
            case Const():
                return ZERO
            case Load():
                return ZERO if e.buffer in self.inputs else Load(self.companions[e.buffer], e.indices)
            case Var():
                return self.vars[e]
            case E.Cast():
                return E.Add(self.of(e.args[0]), absolute(e)) if e.args[0].dtype.is_float else absolute(e)
            case E.Add() | E.Sub():
                return total(*(x for a in e.args for x in (self.of(a), absolute(a))))
            case E.Mul():
                return self.product(*e.args)
            case E.Fma():
                return total(self.product(e.args[0], e.args[1]), self.of(e.args[2]), absolute(e.args[2]))
            case E.Div():
                a, b = e.args
                return total(E.Div(self.of(a), absolute(b)), E.Div(E.Mul(absolute(e), self.of(b)), absolute(b)), absolute(e))
            case E.Min() | E.Max():
                return E.Max(self.of(e.args[0]), self.of(e.args[1]))
            case E.Neg():
                return self.of(e.args[0])
            case Select():
                return Select(e.args[0], self.of(e.args[1]), self.of(e.args[2]))
            case E.Call() if e.payload == "abs":
                return self.of(e.args[0])
            case E.Call() if e.payload == "exp":
                return E.Mul(absolute(e), E.Add(Const(1.0, f64), self.of(e.args[0])))
            case E.Call() if e.payload == "rsqrt":
                return E.Mul(absolute(e), E.Add(Const(1.0, f64), E.Div(self.of(e.args[0]), absolute(e.args[0]))))
        raise NoBoundError(f"no bound of `{e}`")

    def product(self, a: Expr, b: Expr) -> Expr:
        return total(E.Mul(self.of(a), absolute(b)), E.Mul(absolute(a), self.of(b)), E.Mul(absolute(a), absolute(b)))

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Alloc():
                return seq()
            case Store() if s.buffer in self.companions:
                return self.stores([(s.buffer, s.indices, s.value)], s)
            case Reduce():
                return self.stores([(t.buffer, t.indices, v) for t, v in zip(s.targets, combined(s), strict=True)], s)
            case Let() if s.var.dtype.is_float:
                var = self.var()
                before = Let(var, self.of(s.value))
                self.vars[s.var] = var
                return seq(before, s)
            case View() | Call():
                raise NoBoundError("a view or a call")
        return map_children(s, self.stmt)

    def stores(self, made: list[tuple[Buffer, tuple[Expr, ...], Expr]], s: Stmt) -> Stmt:
        """`s`, after the magnitudes of what it stores; all of them are computed before one is stored."""
        floats = [(self.companions[b], i, self.of(v), self.var()) for b, i, v in made if b in self.companions]
        return seq(*(Let(v, m) for _, _, m, v in floats), *(Store(b, i, v) for b, i, _, v in floats), s)

    def var(self) -> Var:
        self.names += 1
        return Var(f"magnitude_{self.names}", f64)

    # Runs.

    def run(self, arguments: Sequence[Any], dims: Sequence[int]) -> Found:
        """The bounds for some arguments; whole numbers among them may make the results exact."""
        if self.program is None:
            return Found(None, False)
        values = dict(zip(self.func.symbols, dims, strict=True))

        def shape(b: Buffer) -> tuple[int, ...]:
            return tuple(int(evaluate(e, values)) for e in b.shape)

        mine = [a.copy() for a in arguments]
        scratch = [np.zeros(shape(b), b.dtype.numpy()) for b in self.allocated]
        kept = {b: np.zeros(shape(b), np.float64) for b in self.companions}
        run_loop(self.program, [*mine, *scratch, *kept.values()], dims)
        coarsest = max((EPS[d] for d in self.floats), default=0.0)
        count = min((COUNTS[d] for d in self.floats), default=np.inf)
        whole = self.whole and all(is_whole(a) for a in arguments)
        exact = whole and all(not a.size or float(np.max(a)) < count for a in kept.values())
        if self.problem:
            return Found(None, exact)
        steps = EVALUATIONS * self.roundings(values)
        return Found({b.name: steps * coarsest * a + 1e-300 for b, a in kept.items()}, exact)

    def roundings(self, values: dict[Any, int]) -> int:
        """The longest chain of operations: those of each block as often as loops that are not spatial run it."""
        total = 0
        for b in walk_stmts(self.func.body):
            if isinstance(b, Block):
                size = sum(1 for s in walk_stmts(b.body) for v in _values(s) for _ in walk(v))
                times = 1
                for loop in _loops_of(self.func.body, b):
                    if any(i.kind != "S" and loop.var in E.free_vars(i.value) for i in b.iters):
                        times *= max(1, int(evaluate(loop.extent, values)))
                total += size * times
        return total


def _values(s: Stmt) -> list[Expr]:
    return [*exprs(s), *(s.combiner.result if isinstance(s, Reduce) else ())]


def _loops_of(s: Stmt, block: Block, around: tuple[For, ...] = ()) -> tuple[For, ...]:
    if s is block:
        return around
    from pliant.loop.stmt import children

    inner = (*around, s) if isinstance(s, For) else around
    return next((found for c in children(s) if (found := _loops_of(c, block, inner))), ())


def combined(s: Reduce) -> tuple[Expr, ...]:
    """What a reduction stores, as expressions."""
    name, targets = s.combiner.name, s.targets
    if s.combiner.left:
        values: dict[Var, Expr] = dict(zip((*s.combiner.left, *s.combiner.right), (*targets, *s.values), strict=True))
        return tuple(Replacer(values).expr(e) for e in s.combiner.result)
    if name == "fma":
        return (E.Fma(s.values[0], s.values[1], targets[0]),)
    kinds = {"add": E.Add, "mul": E.Mul, "min": E.Min, "max": E.Max, "and": E.And, "or": E.Or}
    return (kinds[name](targets[0], s.values[0]),)


def is_whole(a: Any) -> bool:
    """Whether an array of floats holds whole numbers alone."""
    a = np.asarray(a)
    if a.dtype.kind in "biu":
        return True
    wide = a.astype(np.float64)
    return bool(np.all(np.isfinite(wide)) and np.all(wide == np.floor(wide)))
