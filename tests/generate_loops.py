"""Random loop programs that are valid by construction, and arguments for them.

A program has a few symbolic dims, some inputs (one of them of indices), and a list of stages. Each stage writes one whole buffer
(an output, or memory of its own that later stages read) in a way of its own: a map, a reduction, a scan, plain loops
with lets, branches and accumulators, views of bytes, a call. Every load is in range by construction, for every value of the dims.

    >>> func = make_program(7); arguments, dims = make_arguments(func, 7)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from generate_values import BUFFER_DTYPES, DTYPES, ONE, ZERO, Expressions, Scope
from pliant.dtype import DType, bool_, f32, f64, i32, i64, u8
from pliant.loop.buffer import Buffer, Load
from pliant.loop.stmt import (
    NAMED_COMBINERS,
    Alloc,
    Block,
    Call,
    Check,
    Combiner,
    For,
    Func,
    If,
    Iter,
    Let,
    Param,
    Reduce,
    Stmt,
    Store,
    View,
    While,
    seq,
)
from pliant.sym import expr as E
from pliant.sym.conditions import all_of
from pliant.sym.expr import Const, Dim, Expr, Select, Var
from pliant.sym.semantics import cast

DIM_VALUES = [0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13]


class Generator(Expressions):
    """Makes one program."""

    shares_bytes = False  # elements of what is written share bytes: iterations of a parallel loop may not

    # Loops.

    def param_shape(self, dtype: DType, least: int = 0) -> tuple[Expr, ...]:
        """The shape of a parameter; elements below a byte have rows of whole bytes."""
        if dtype.bits >= 8:
            return self.shape(self.random.randint(least, 3))
        return (*self.shape(self.random.randint(0, 2)), Const(self.pick([4, 8]), i64))

    def shape(self, rank: int) -> tuple[Expr, ...]:
        return tuple(self.pick(self.dims) if self.chance(0.6) else Const(self.pick([1, 2, 3, 4, 5, 8]), i64) for _ in range(rank))

    def loops(self, iters: list[tuple[str, Expr]], vs: list[Var]) -> tuple[list[Expr], list[tuple[Var, Expr, str]], Expr]:
        """Loops for iterators of (kind, extent): the values bound to them, the loops (variable, extent, what it feeds), a predicate."""
        groups: list[list[tuple[Var, Expr, str]]] = []
        values: list[Expr] = []
        guards: list[Expr] = []
        for (kind, extent), iterator in zip(iters, vs, strict=True):
            v = self.var("i")
            if kind != "O" and self.chance(0.35):
                factor = self.pick([2, 3, 4, 8])
                inner = self.var("j")
                groups.append([(v, (extent + (factor - 1)) // factor, kind), (inner, Const(factor, i64), kind)])
                value = v * factor + inner
                if not (isinstance(extent, Const) and extent.value % factor == 0):
                    guards.append(E.Lt(iterator, extent))
            else:
                groups.append([(v, extent, kind)])
                value = v
            values.append(value)
        kinds = [kind for kind, _ in iters[:2]]
        # An init in the instance itself runs only if the instance does: then no reduction may be empty.
        filled = kinds == ["S", "S"] or all(isinstance(e, Const) for kind, e in iters if kind == "R")
        if len(iters) >= 2 and self.chance(0.1) and all(len(g) == 1 for g in groups[:2]) and "O" not in kinds and filled:
            fused = self.var("f")  # two iterators from one loop
            (_, a, ka), (_, b, kb) = groups[0][0], groups[1][0]
            values[:2] = [fused // b, fused % b]
            groups[:2] = [[(fused, a * b, "S" if ka == kb == "S" else "R")]]
        ordered = self.interleave(groups)
        return values, ordered, all_of(*guards)

    def interleave(self, groups: list[list[tuple[Var, Expr, str]]]) -> list[tuple[Var, Expr, str]]:
        """The loops of all groups in a random order that keeps that of each group."""
        queues = [list(g) for g in groups]
        ordered = []
        while any(queues):
            ordered.append(self.pick([q for q in queues if q]).pop(0))
        return ordered

    def nest(self, loops: list[tuple[Var, Expr, str]], body: Stmt, parallel: bool = True) -> Stmt:
        """The loops around `body`, of kinds that are legal for what they feed."""
        for n, (v, extent, kind) in reversed(list(enumerate(loops))):
            choices = ["serial"] * 3
            if isinstance(extent, Const) and extent.value <= 8:
                choices.append("unroll")
                if kind == "S" and n == len(loops) - 1:
                    choices += ["vector"] * 3
            if kind == "S" and n == 0 and parallel and not self.shares_bytes:
                choices += ["parallel"] * 2
            body = For(v, ZERO, extent, self.pick(choices), body)
        return body

    def block(self, iters: list[tuple[str, Expr]], make: Callable[[list[Var]], tuple[Stmt, Stmt | None]]) -> Stmt:
        """A nest of loops around a block with such iterators; `make` gives its body and init."""
        vs = [self.var("v") for _ in iters]
        values, loops, predicate = self.loops(iters, vs)
        body, init = make(vs)
        bound = tuple(Iter(v, kind, value) for v, (kind, _), value in zip(vs, iters, values, strict=True))  # type: ignore[arg-type]
        return self.nest(loops, Block(self.fresh("b"), bound, body, init, predicate))

    # Stages: each writes the whole of `out`.

    def stage(self, out: Buffer, scope: Scope) -> Stmt:
        kinds = [self.map_, self.map_, self.reduction, self.reduction, self.accumulate, self.plain, self.viewed, self.called]
        if out.ndim:
            kinds += [self.scan, self.argmax, self.tiled, self.blocked]
        self.shares_bytes = out.dtype.bits < 8
        made = self.pick(kinds)(out, scope)
        self.shares_bytes = False
        return made

    def map_(self, out: Buffer, scope: Scope) -> Stmt:
        def make(vs: list[Var]) -> tuple[Stmt, None]:
            return self.assign(out, tuple(vs), scope.also(list(zip(vs, out.shape, strict=True)))), None

        return self.block([("S", e) for e in out.shape], make)

    def assign(self, out: Buffer, place: tuple[Expr, ...], scope: Scope) -> Stmt:
        """Statements that store to one element."""
        before: list[Stmt] = []
        if self.chance(0.4):
            v = self.var("x", self.pick(DTYPES))
            before.append(Let(v, self.expr(v.dtype, scope, 3)))
            scope = scope.also(values=[v])
        if scope.vars and self.chance(0.1):
            v, extent = self.pick(scope.vars)
            before.append(Check(E.Lt(v, extent), "{0} is not below {1}", (v, extent)))
        store = Store(out, place, self.expr(out.dtype, scope, 4))
        if self.chance(0.3):
            other = Store(out, place, self.expr(out.dtype, scope, 2))
            return seq(*before, If(self.expr(bool_, scope, 2), store, other))
        if self.chance(0.2):
            again = Store(out, place, self.expr(out.dtype, scope.also(values=[Load(out, place)]), 2))
            return seq(*before, store, If(self.expr(bool_, scope, 2), again))
        return seq(*before, store)

    def reduction(self, out: Buffer, scope: Scope) -> Stmt:
        reduced = list(self.shape(self.random.randint(1, 2)))

        def make(vs: list[Var]) -> tuple[Stmt, Stmt]:
            place = tuple(vs[: out.ndim])
            inner = scope.also(list(zip(vs, (*out.shape, *reduced), strict=True)))
            init = Store(out, place, self.expr(out.dtype, scope.also(list(zip(place, out.shape, strict=True))), 1))
            return self.reduce(out, place, inner), init

        return self.block([*(("S", e) for e in out.shape), *(("R", e) for e in reduced)], make)

    def reduce(self, out: Buffer, place: tuple[Expr, ...], scope: Scope) -> Stmt:
        if out.dtype is bool_:
            name = self.pick(["and", "or"])
        else:
            name = self.pick(["add", "add", "mul", "min", "max", *(["fma"] * 2 if out.dtype.is_float else [])])
        values = tuple(self.expr(out.dtype, scope, 2) for _ in range(2 if name == "fma" else 1))
        return Reduce(NAMED_COMBINERS[name], (Load(out, place),), values)

    def argmax(self, out: Buffer, scope: Scope) -> Stmt:
        """A tuple reduction with a lambda, into `out` and memory of its own."""
        best = Buffer(self.fresh("best"), self.pick([f32, i32, f64, u8]), out.shape, scope="workspace")
        (extent,) = self.shape(1)
        compare = self.pick([E.Lt, E.Le])
        left = (self.var("a", best.dtype), self.var("c", out.dtype))
        right = (self.var("b", best.dtype), self.var("d", out.dtype))
        better = compare(left[0], right[0])
        result = (Select(better, right[0], left[0]), Select(better, right[1], left[1]))
        combiner = Combiner("lambda", left, right, result)

        def make(vs: list[Var]) -> tuple[Stmt, Stmt]:
            place = tuple(vs[:-1])
            inner = scope.also(list(zip(vs, (*out.shape, extent), strict=True)))
            targets = (Load(best, place), Load(out, place))
            values = (self.expr(best.dtype, inner, 2), self.expr(out.dtype, inner, 2))
            init = seq(Store(best, place, self.constant(best.dtype)), Store(out, place, self.constant(out.dtype)))
            return Reduce(combiner, targets, values), init

        return seq(Alloc(best), self.block([*(("S", e) for e in out.shape), ("R", extent)], make))

    def scan(self, out: Buffer, scope: Scope) -> Stmt:
        """An ordered block: an element depends on the one before."""

        def make(vs: list[Var]) -> tuple[Stmt, None]:
            inner = scope.also(list(zip(vs, out.shape, strict=True)))
            last = Load(out, (*vs[:-1], vs[-1] - 1))
            chained = inner.also(values=[Select(E.Lt(ZERO, vs[-1]), last, self.constant(out.dtype))])
            return Store(out, tuple(vs), self.expr(out.dtype, chained, 3)), None

        return self.block([*(("S", e) for e in out.shape[:-1]), ("O", out.shape[-1])], make)

    def plain(self, out: Buffer, scope: Scope) -> Stmt:
        """Loops without a block."""
        vs = [self.var("i") for _ in out.shape]
        places, before = list(vs), []
        first = self.pick([0, 0, 0, 1, 5]) if vs else 0
        if first:  # a loop that does not start at 0
            places[0] = self.var("at")
            before.append(Let(places[0], vs[0] - first))
        body = self.assign(out, tuple(places), scope.also(list(zip(places, out.shape, strict=True))))
        nest = self.nest([(v, e, "S") for v, e in zip(vs, out.shape, strict=True)], seq(*before, body))
        return nest.with_(start=Const(first, i64), stop=out.shape[0] + first) if isinstance(nest, For) else nest

    def tiled(self, out: Buffer, scope: Scope) -> Stmt:
        """Rows by way of memory of their own: on the stack where the extent is constant, else workspace."""
        *outer, extent = out.shape
        vs = [self.var("i") for _ in outer]
        row = Buffer(self.fresh("row"), out.dtype, (extent,), scope="stack" if isinstance(extent, Const) else "workspace")
        inner = scope.also(list(zip(vs, outer, strict=True)))
        j, k = self.var("j"), self.var("k")
        made = self.nest([(j, extent, "S")], Store(row, (j,), self.expr(out.dtype, inner.also([(j, extent)]), 3)), parallel=False)
        read = inner.also([(k, extent)], reads=[row])
        kept = self.nest([(k, extent, "S")], Store(out, (*vs, k), self.expr(out.dtype, read, 2)), parallel=False)
        loops = [(v, e, "S" if n == 0 else "plain") for n, (v, e) in enumerate(zip(vs, outer, strict=True))]
        return self.nest(loops, seq(Alloc(row), made, kept), parallel=len(loops) > 0)

    def blocked(self, out: Buffer, scope: Scope) -> Stmt:
        """A block of tiles around a block of elements."""
        extent = out.shape[0]
        factor = self.pick([2, 3, 4])
        (reduced,) = self.shape(1)
        loop, tile, inside, k = self.var("i"), self.var("v"), self.var("j"), self.var("k")
        vs = [self.var("v") for _ in out.shape]
        vk = self.var("v")
        others = [self.var("i") for _ in out.shape[1:]]
        iters = [Iter(vs[0], "S", tile * factor + inside), *(Iter(v, "S", i) for v, i in zip(vs[1:], others, strict=True))]
        init, predicate = None, E.Lt(vs[0], extent)
        known = scope.also(list(zip(vs, out.shape, strict=True)))
        loops = [[(inside, Const(factor, i64), "S")], *([(i, e, "S")] for i, e in zip(others, out.shape[1:], strict=True))]
        if self.chance(0.5):
            iters.append(Iter(vk, "R", k))
            loops.append([(k, reduced, "R")])
            init = Store(out, tuple(vs), self.expr(out.dtype, known, 1))
            body = self.reduce(out, tuple(vs), known.also([(vk, reduced)]))
        else:
            body = self.assign(out, tuple(vs), known)
        element = Block(self.fresh("b"), tuple(iters), body, init, predicate)
        around = Block(self.fresh("b"), (Iter(tile, "S", loop),), self.nest(self.interleave(loops), element, parallel=False))
        return self.nest([(loop, (extent + (factor - 1)) // factor, "S")], around)

    def accumulate(self, out: Buffer, scope: Scope) -> Stmt:
        """Plain loops with an accumulator of their own, a serial loop or a while inside."""
        vs = [self.var("i") for _ in out.shape]
        inner = scope.also(list(zip(vs, out.shape, strict=True)))
        acc = Buffer(self.fresh("acc"), out.dtype, (ONE,), scope=self.pick(["stack", "register"]))
        here = Load(acc, (ZERO,))
        (extent,) = self.shape(1)
        k = self.var("k")
        body: list[Stmt] = [Alloc(acc), Store(acc, (ZERO,), self.expr(out.dtype, inner, 1))]
        if self.chance(0.6):
            step = self.reduce(acc, (ZERO,), inner.also([(k, extent)]))
            if self.chance(0.3):
                step = If(self.expr(bool_, inner.also([(k, extent)]), 2), step)
            start = self.pick([ZERO, ONE])
            body.append(For(k, start, extent, "serial", step))
        else:
            body += self.counted(acc, inner)
        body.append(Store(out, tuple(vs), self.expr(out.dtype, inner.also(values=[here]), 1) if self.chance(0.5) else here))
        loops = [(v, e, "S" if n == 0 else "plain") for n, (v, e) in enumerate(zip(vs, out.shape, strict=True))]
        return (
            self.nest(loops, seq(*body), parallel=True) if len(loops) > 1 else self.nest([(v, e, "plain") for v, e, _ in loops], seq(*body))
        )

    def counted(self, acc: Buffer, scope: Scope) -> list[Stmt]:
        """A while loop of a bounded number of rounds."""
        count = Buffer(self.fresh("count"), i64, (ONE,), scope="stack")
        at = Load(count, (ZERO,))
        limit = Const(self.random.randint(0, 4), i64)
        condition: Expr = E.Lt(at, limit)
        if self.chance(0.5):
            condition = E.And(condition, self.expr(bool_, scope, 2))
        step = self.reduce(acc, (ZERO,), scope.also(values=[at]))
        return [Alloc(count), Store(count, (ZERO,), ZERO), While(condition, seq(step, Store(count, (ZERO,), at + 1)))]

    def viewed(self, out: Buffer, scope: Scope) -> Stmt:
        """Through a typed view of bytes, or a strided view of a larger buffer."""
        if self.chance(0.5):
            size = (E.product(out.shape) * out.dtype.bits + 7) // 8
            memory = Buffer(self.fresh("bytes"), u8, (size + 64,), scope="workspace")
            inside = Buffer(self.fresh("view"), out.dtype, out.shape, scope=memory.scope)
            start: tuple[Expr, ...] = (Const(self.pick([0, 8, 64]), i64),)
        else:
            memory = Buffer(self.fresh("wide"), out.dtype, (*out.shape, Const(3, i64)), scope="workspace")
            strides = memory.element_strides()[:-1]
            inside = Buffer(self.fresh("view"), out.dtype, out.shape, strides, memory.scope)
            start = tuple(ZERO for _ in memory.shape)
        written = self.map_(inside, scope)
        copied = self.block(
            [("S", e) for e in out.shape],
            lambda vs: (Store(out, tuple(vs), self.expr(out.dtype, scope.also(values=[Load(inside, tuple(vs))]), 1)), None),
        )
        return seq(Alloc(memory), View(inside, memory, start), written, copied)

    def called(self, out: Buffer, scope: Scope) -> Stmt:
        """A call of another program that maps one buffer to another."""
        whole = [b for b in scope.reads if b.strides is None]
        sources = [b for b in whole if b.shape == out.shape] or whole
        source = self.pick(sources) if sources else None
        if source is None:
            return self.map_(out, scope)
        inner = Generator(self.random.getrandbits(32))
        inner.name = self.fresh(self.name + "_f")
        inner.dims = []
        inner.shares_bytes = self.shares_bytes
        table: dict[Expr, Expr] = {}

        def renamed(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple(e if isinstance(e, Const) else table.setdefault(e, Dim(f"q{len(table)}", max=64)) for e in shape)

        x = Buffer("x", source.dtype, renamed(source.shape))
        y = Buffer("y", out.dtype, renamed(out.shape))
        inner.dims = list(table.values()) or [Dim("unused")]  # type: ignore[arg-type]
        factor = Var("factor", self.pick(DTYPES))
        body = inner.pick([inner.map_, inner.plain])(y, Scope(reads=[x], values=[factor]))
        callee = Func(inner.name, (Param(x), Param(y, "out"), Param(factor)), body)
        back = {v: k for k, v in table.items()}
        value = self.expr(factor.dtype, Scope(values=scope.values), 1)
        return Call(callee, (source, out, value), tuple(back[s] for s in callee.symbols))

    # Programs.

    def program(self) -> Func:
        params: list[Param] = []
        scope = Scope(values=[])
        for n in range(self.random.randint(1, 3)):
            dtype = i64 if n == 0 and self.chance(0.4) else self.pick(BUFFER_DTYPES)
            shape = self.param_shape(dtype, 1)
            strides = (Var(f"s{n}"), ONE) if len(shape) == 2 and dtype.bits >= 8 and self.chance(0.3) else None
            params.append(Param(Buffer(f"x{n}", dtype, shape, strides)))
        holders = Param(Buffer("holder", f32, tuple(self.dims)))  # every dim has a place to be found
        params.append(holders)
        scope.reads = [p.value for p in params if isinstance(p.value, Buffer)]
        if self.chance(0.5):
            scalar = Var("scalar", self.pick(DTYPES))
            params.append(Param(scalar))
            scope.values.append(scalar)
        kinds = [self.pick(BUFFER_DTYPES) for _ in range(self.random.randint(1, 2))]
        outputs = [Buffer(f"y{n}", d, self.param_shape(d)) for n, d in enumerate(kinds)]
        body: list[Stmt] = []
        if self.chance(0.3):
            body.append(Check(E.Le(ZERO, self.dims[0]), "dim is {0}", (self.dims[0],)))
        if self.chance(0.3):
            v = self.var("top", self.pick(DTYPES))
            body.append(Let(v, self.expr(v.dtype, Scope(values=list(scope.values)), 2)))
            scope = scope.also(values=[v])
        if self.chance(0.5):
            between = Buffer("t", self.pick(BUFFER_DTYPES), self.shape(self.random.randint(1, 2)), scope="workspace")
            body += [Alloc(between), self.stage(between, scope)]
            scope = scope.also(reads=[between])
        for out in outputs:
            body.append(self.stage(out, scope))
            params.append(Param(out, "out"))
            if out.ndim:
                scope = scope.also(reads=[out])
        if self.chance(0.3):
            kind = self.pick(BUFFER_DTYPES)
            state = Buffer("state", kind, self.param_shape(kind, 1))
            params.append(Param(state, "inout"))
            body.append(self.update(state, scope))
        return Func(self.name, tuple(params), seq(*body))

    def update(self, state: Buffer, scope: Scope) -> Stmt:
        """Changes a buffer element by element."""
        self.shares_bytes = state.dtype.bits < 8

        def make(vs: list[Var]) -> tuple[Stmt, None]:
            inner = scope.also(list(zip(vs, state.shape, strict=True)), values=[Load(state, tuple(vs))])
            store = Store(state, tuple(vs), self.expr(state.dtype, inner, 3))
            return (If(self.expr(bool_, inner, 2), store) if self.chance(0.5) else store), None

        return self.block([("S", e) for e in state.shape], make)


def make_program(seed: int) -> Func:
    """The random program of a seed."""
    return Generator(seed).program()


def make_arguments(func: Func, seed: int) -> tuple[list[Any], list[int]]:
    """Random arguments for a program, edge values among them, and the values of its symbols."""
    rng = np.random.default_rng(seed)
    symbols = {v: int(rng.choice(DIM_VALUES)) for v in func.symbols}
    arguments: list[Any] = []
    for p in func.params:
        if isinstance(p.value, Buffer):
            shape = tuple(symbols[e] if isinstance(e, Var) else int(e.value) for e in p.value.shape)  # type: ignore[attr-defined]
            if p.value.strides is not None:  # rows of a wider array
                stride = p.value.strides[0]
                symbols[stride] = shape[1] + int(rng.integers(0, 4))  # type: ignore[index]
                arguments.append(values(rng, p.value.dtype, (shape[0], symbols[stride]))[:, : shape[1]])  # type: ignore[index]
            else:
                arguments.append(values(rng, p.value.dtype, shape))
        else:
            arguments.append(values(rng, p.value.dtype, (1,))[0])
    return arguments, [symbols[v] for v in func.symbols]


def clone(a: Any) -> Any:
    """A copy of an argument with the same strides."""
    memory = whole(a)
    return a.copy() if memory is a else memory.copy()[tuple(slice(n) for n in a.shape)]


def whole(a: Any) -> Any:
    """The array whose rows an argument is a part of, or the argument itself: memory without gaps, to copy to another machine."""
    return a.base if isinstance(a, np.ndarray) and a.base is not None and a.base.ndim == a.ndim else a


def values(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Random values: moderate ones, and now and then zeros, extremes, infinities and NaN; any codes of storage types."""
    if dtype.storage:
        return np.array(np.asarray(rng.integers(0, 256, dtype.array_shape(shape)), np.uint8).view(dtype.array_dtype()))
    if dtype is bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_float:
        plain = (rng.standard_normal(shape) * rng.choice([1.0, 10.0], shape)).astype(dtype.numpy())
        limits = ml_dtypes.finfo(dtype.numpy())
        edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, limits.max, limits.tiny, limits.smallest_subnormal, 1.0], dtype.numpy())
    else:
        plain = cast(rng.integers(-20, 100, shape), dtype) if shape else np.array(3, dtype.numpy())
        edges = np.array([dtype.min, dtype.max, 0, 1, dtype.max - 1], dtype.numpy())
    return np.array(np.where(rng.random(shape) < 0.15, rng.choice(edges, shape), plain), dtype.numpy())
