"""Seeded random graph functions over all operators, kernels, branches, loops, functions, casts and state; and arguments for them.

function, bounds = make_function(seed); arguments = make_arguments(function, bounds, seed)

What a program does with a float that rounds differently from one way of computing to the next is continuous: comparisons, casts to
integers and conditions are only made of values that are exact everywhere (see `exact_op`). So results can be compared with a bound.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pliant import InOut, Out, Tensor, block, dim, f32, grid, i32, init, kernel, ops
from pliant.dtype import DType, bool_, f16, f64, i64, u8
from pliant.graph import node as g
from pliant.graph.annotation import ONE, decide
from pliant.graph.builder import Builder
from pliant.sym.expr import Const, Dim, Eq, Expr, Lt, Or, Var, const, free_vars, product
from pliant.sym.semantics import evaluate

Array = np.ndarray[Any, Any]
SIZES = (0, 1, 1, 2, 3, 4, 5, 8, 16, 17)
FLOATS = (f32, f32, f32, f16, f64)

n = dim("n")
m = dim("m")


@kernel
def axpy(x: Tensor[f32, n], a: f32, y: Tensor[f32, n], z: Out[f32, n]) -> None:
    for i in range(n):
        z[i] = a * x[i] + y[i]


@kernel
def running_sum(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    for i in range(n):
        for j in range(m):
            if j == 0:
                y[i, j] = x[i, j]
            else:
                y[i, j] = y[i, j - 1] + x[i, j]


@kernel
def sums_and_counts(x: Tensor[i32, n, m], sums: Out[i32, n], counts: Out[i32, m]) -> None:
    for i, j in grid(n, m):
        with block("sums", "SR", i, j) as (vi, vj):
            with init():
                sums[vi] = 0
            sums[vi] += x[vi, vj]
    for j in range(m):
        counts[j] = 0
        for i in range(n):
            if x[i, j] > 0:
                counts[j] += 1


@kernel
def accumulate(x: Tensor[f32, n], total: InOut[f32, n]) -> None:
    for i in range(n):
        total[i] += x[i]


KERNELS = {k.func.name: k.callee for k in (axpy, running_sum, sums_and_counts, accumulate)}
EXACT = {
    *("add", "sub", "mul", "div", "minimum", "maximum", "neg", "abs", "sqrt", "relu", "where", "cast"),
    *("max", "min", "reshape", "permute", "slice", "concat", "take", "full", "scalar"),
}
SMOOTH = (
    *("exp", "exp2", "expm1", "sigmoid", "silu", "sin", "cos", "tan", "tanh", "erf", "gelu", "neg", "abs", "relu"),
    *("sqrt", "rsqrt", "log", "log1p"),
)
# The operators that functions are made of. Steps and poles (floor, pow) turn a rounding into any difference, so a run in float64 gives
# no bound: these, and what takes whole shapes of its own (convolutions), are compared case by case in tests/parity/test_native_ops.py.
RANDOM = {
    *EXACT,
    *SMOOTH,
    *("logical_and", "logical_or", "logical_not", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("floor_divide", "remainder", "sum", "mean", "softmax", "rms_norm", "rotary_embedding", "matmul", "linear"),
}


def exact_op(op: str, dtype: DType) -> bool:
    """Whether an operator on exact values gives the same bits however it is computed (integers, or one correctly rounded step)."""
    return not dtype.is_float or op in EXACT


class Generator:
    """Emits random nodes into a builder; what there is to choose from grows with every node."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = Builder(f"random_{seed}")
        self.dims = [Dim("a", 0, 512), Dim("b", 0, 64), Dim("c", 1, 64), Dim("e", 2, 32, 2)]
        self.pool: list[g.Value] = []
        self.exact: set[g.Value] = set()
        self.bounds: dict[str, Expr] = {}  # parameters that hold indices below something
        self.state: g.Value | None = None
        self.depth = 0

    def pick(self, items: Sequence[Any]) -> Any:
        return items[self.random.randrange(len(items))]

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    # Values.

    @property
    def nodes(self) -> list[g.Node]:
        """The nodes of the body that is being built."""
        return self.builder._frames[-1].nodes

    def param(self, annotation: g.Annotation, name: str = "") -> g.Value:
        value = self.builder.param(name or f"p{len(self.builder._params)}", annotation)
        if isinstance(annotation, g.Tensor) and not annotation.state:
            self.pool.append(value)
        self.exact.add(value)
        return value

    def scalar_param(self, dtype: DType) -> g.Value:
        found = next((p for p in self.builder._params if p.annotation == g.Scalar(dtype)), None)
        return found or self.param(g.Scalar(dtype))

    def index_param(self, dtype: DType, shape: tuple[Expr, ...], bound: Expr) -> g.Value:
        value = self.param(g.Tensor(dtype, shape), f"index{len(self.bounds)}")
        self.pool.remove(value)
        self.bounds[value.name] = bound
        return value

    def shape(self, rank: int) -> tuple[Expr, ...]:
        sizes: list[Expr] = [*self.dims, *self.dims, ONE, const(3), const(4)]
        return tuple(self.pick(sizes) for _ in range(rank))

    def note(self, *made: g.Value) -> g.Value:
        """Has new values to choose from; the first of them."""
        node = next(x for x in reversed(self.nodes) if made[0] in x.outs)
        known = all(a in self.exact for a in g.node_args(node))
        kind = node.op if isinstance(node, g.Op) else "reshape" if isinstance(node, g.MatchCast) else "call"
        for value in made:
            a = value.annotation
            assert isinstance(a, g.Tensor | g.Scalar)
            if known and exact_op(kind, a.dtype):
                self.exact.add(value)
            if isinstance(a, g.Tensor) and not a.state:
                self.pool.append(value)
        return made[0]

    def op(self, name: str, *args: Any, **attrs: Any) -> g.Value:
        before = len(self.nodes)
        made = getattr(ops, name)(*args, **attrs)
        for node in self.nodes[before:-1]:  # literals made on the way
            self.exact.update(node.outs)
        return self.note(made)

    def some(self, wanted: Callable[[g.Tensor], bool], exact: bool = False) -> g.Value | None:
        """A value of the wanted kind, a later one more likely."""
        found = [v for v in self.pool if wanted(v.tensor) and (v in self.exact or not exact)]
        return None if not found else found[max(self.random.randrange(len(found)), self.random.randrange(len(found)))]

    def tensor(self, dtype: DType | None = None, rank: int | None = None) -> g.Value:
        """A float tensor that there is, or a new parameter."""
        found = self.some(lambda t: (t.dtype is dtype or (dtype is None and t.dtype.is_float)) and rank in (None, len(t.shape)))
        if found is not None and not self.chance(0.15):
            return found
        rank = self.random.choice((0, 1, 2, 2, 3)) if rank is None else rank
        return self.param(g.Tensor(dtype or self.pick(FLOATS), self.shape(rank)))

    def nowhere_empty(self, x: g.Value) -> bool:
        """Whether rows are known to have elements."""
        e = x.tensor.shape[-1]
        return (isinstance(e, Const) and e.value > 0) or (isinstance(e, Dim) and e.min > 0)

    # Shape-preserving steps, which branches and functions are made of.

    def like(self, x: g.Value) -> g.Value:
        """A value with the annotation of `x` that is made of it."""
        t = x.tensor
        kinds = [self.unary, self.with_number]
        if t.dtype.is_float and t.shape:
            kinds += [self.softmax, self.normalized, self.there_and_back]
        if t.dtype is f32 and len(t.shape) == 1:
            kinds.append(self.through_kernel)
        if t.dtype is f32 and len(t.shape) == 2:
            kinds.append(lambda v: self.note(*self.builder.call_loop(running_sum.callee, [v])))
        return self.pick(kinds)(x)

    def closed_like(self, x: g.Value) -> g.Value:
        """As `like`, without new parameters."""
        if x.tensor.dtype.is_float and x.tensor.shape and self.chance(0.3):
            return self.op("mul", self.softmax(x), x)
        if x.tensor.dtype.is_float and x.tensor.shape and self.chance(0.3):
            return self.there_and_back(x)
        return self.pick([self.unary, self.with_number])(x)

    def unary(self, x: g.Value) -> g.Value:
        d = x.tensor.dtype
        if d is bool_:
            return self.op("logical_not", x)
        if not d.is_float:
            return self.op(self.pick(["abs", "relu"] if d is u8 else ["neg", "abs", "relu"]), x)
        name = self.pick(SMOOTH)
        if name in ("exp", "exp2", "expm1"):
            x = self.op("minimum", x, 3.0)
        elif name == "tan":
            x = self.op("sigmoid", x)
        elif name in ("sqrt", "rsqrt", "log", "log1p"):
            x = self.op("add", self.op("abs", x), 0.5)
        return self.op(name, x, **({"approximate": "tanh"} if name == "gelu" and self.chance(0.5) else {}))

    def with_number(self, x: g.Value) -> g.Value:
        d = x.tensor.dtype
        if d is bool_:
            return self.op(self.pick(["logical_and", "logical_or"]), x, x)
        if d.is_float:
            return self.op(self.pick(["add", "sub", "mul", "div", "minimum", "maximum"]), x, self.pick([0.5, 1.5, 2.0, -1.25]))
        return self.op(self.pick(["add", "sub", "mul", "floor_divide", "remainder", "minimum", "maximum"]), x, self.pick([1, 2, 3, 7]))

    def softmax(self, x: g.Value) -> g.Value:
        return self.op("softmax", x, axis=self.random.randrange(len(x.tensor.shape)))

    def normalized(self, x: g.Value) -> g.Value:
        if not free_vars(x.tensor.shape[-1]) - set(self.dims) and self.chance(0.5):
            return self.op("rms_norm", x, self.param(g.Tensor(x.tensor.dtype, x.tensor.shape[-1:])), eps=1e-3)
        return self.op("sub", x, self.op("max", x, axis=-1, keepdims=True)) if self.nowhere_empty(x) else self.unary(x)

    def there_and_back(self, x: g.Value) -> g.Value:
        flat = self.op("reshape", x, (product(x.tensor.shape),))
        return self.op("reshape", self.unary(flat), x.tensor.shape)

    def through_kernel(self, x: g.Value) -> g.Value:
        other = self.some(lambda t: t == x.tensor) or x
        factor = self.scalar_param(f32) if self.depth == 0 and self.chance(0.5) else 0.75
        return self.note(*self.builder.call_loop(axpy.callee, [x, factor, other]))

    # Steps of every kind.

    def step(self) -> None:
        kinds = [self.elementwise] * 4 + [self.reduction] * 2 + [self.movement] * 3 + [self.products] * 2 + [self.update]
        kinds += [
            self.integers,
            self.choice,
            self.scalars,
            self.casts,
            self.kernels,
            self.function,
            self.match,
            self.branch,
            self.branch,
            self.loop,
        ]
        self.pick(kinds)()

    def elementwise(self) -> None:
        x = self.tensor()
        if self.chance(0.4):
            self.like(x)
            return
        d, shape = x.tensor.dtype, x.tensor.shape
        same = self.some(lambda t: t == x.tensor)
        other = self.some(lambda t: t.dtype is d and len(t.shape) <= len(shape) and self.may_broadcast(t.shape, shape))
        y = (same if self.chance(0.5) else other) or self.op("mul", x, 0.5)
        name = self.pick(["add", "sub", "mul", "minimum", "maximum", "div"])
        self.op(name, x, self.op("add", self.op("abs", y), 0.5) if name == "div" else y)

    def may_broadcast(self, small: tuple[Expr, ...], large: tuple[Expr, ...]) -> bool:
        pairs = zip(reversed(small), reversed(large), strict=False)
        return all(a is b or a is ONE or b is ONE or (isinstance(a, Dim) and isinstance(b, Dim)) for a, b in pairs)

    def may_equal(self, a: Sequence[Expr], b: Sequence[Expr]) -> bool:
        return all(x is y or decide(Eq(x, y)) is not False for x, y in zip(a, b, strict=True))

    def reduction(self) -> None:
        x = self.some(lambda t: len(t.shape) > 0 and t.dtype is not bool_) or self.tensor(rank=2)
        t = x.tensor
        axis = self.pick([None, -1, 0, *([(0, len(t.shape) - 1)] if len(t.shape) > 1 else [])])
        name = self.pick(["sum", "max", "min", "mean"] if t.dtype.is_float else ["sum", "max", "min"])
        if t.dtype.is_float and name in ("max", "min"):  # an empty one is infinite, and then nothing after it has a bound
            ends = self.op("full", [ONE if k == 0 else e for k, e in enumerate(t.shape)], 0.5, dtype=t.dtype)
            x, axis = self.op("concat", [x, ends], axis=0), 0
        if name == "mean":
            axis, name = -1, "mean" if self.nowhere_empty(x) else "sum"
        self.op(name, x, axis=axis, keepdims=self.chance(0.5))

    def movement(self) -> None:
        x = self.some(lambda t: len(t.shape) > 0) or self.tensor(rank=2)
        shape, rank = x.tensor.shape, len(x.tensor.shape)
        axis = self.random.randrange(rank)
        kind = self.random.randrange(6)
        if kind == 0:
            self.op("permute", x, self.random.sample(range(rank), rank))
        elif kind == 1:
            e = shape[axis]
            start, stop = self.pick([(0, e // 2), (e // 2, e), (ONE, e), (0, 1), (e // 4, e // 2)])
            self.op("slice", x, axis, start, stop, step=self.pick([1, 1, 2, 3]))
        elif kind == 2:
            other = self.some(lambda t: t.dtype is x.tensor.dtype and len(t.shape) == rank and t.shape[1:] == shape[1:]) or x
            self.op("concat", [x, other, x] if self.chance(0.2) else [x, other], axis=0)
        elif kind == 3:
            self.op("reshape", x, self.pick([(product(shape),), (ONE, *shape), (*shape, ONE), (*shape[:-1], ONE, shape[-1])]))
        elif kind == 4:
            flat = self.op("reshape", x, (product(shape),))
            self.op("reshape", self.op("concat", [flat, flat], axis=0), (const(2), *shape))
        else:
            indices = self.index_param(self.pick([i32, i64]), self.shape(self.pick([1, 1, 2])), shape[axis])
            self.op("take", x, indices, axis=axis)

    def products(self) -> None:
        d = self.pick([f32, f32, f16, f64, i32])
        x = self.tensor(d, rank=self.pick([2, 2, 3]))
        if free_vars(x.tensor.shape[-1]) - set(self.dims):
            x = self.param(g.Tensor(d, self.shape(2)))
        inner, out, rank = x.tensor.shape[-1], self.shape(1)[0], len(x.tensor.shape)
        kind = self.random.randrange(4)
        if kind == 0 and d.is_float:
            weight = self.param(g.Tensor(d, (out, inner)))
            bias = [self.param(g.Tensor(d, (out,)))] if self.chance(0.5) else []
            self.op("linear", x, weight, *bias)
        elif kind == 1:
            self.op("matmul", x, self.op("permute", x, [*range(rank - 2), rank - 1, rank - 2]))
        elif kind == 2 and d.is_float and d is not f64:
            t = self.param(g.Tensor(d, (*self.shape(2), const(self.pick([2, 4, 8])))))
            self.op("rotary_embedding", t, self.index_param(i32, t.tensor.shape[:1], const(50)), base=100.0)
        else:
            y = self.some(lambda t: t.dtype is d and len(t.shape) == 2 and t.shape[0] is inner) or self.param(g.Tensor(d, (inner, out)))
            found = self.op("matmul", x, y)
            if self.chance(0.5):  # an epilogue
                self.op("mul", self.unary(found), found)

    def integers(self) -> None:
        x = self.some(lambda t: t.dtype.is_int) or self.param(g.Tensor(self.pick([i32, i64, u8]), self.shape(self.pick([1, 2]))))
        y = self.some(lambda t: t == x.tensor) or self.with_number(x)
        self.op(self.pick(["add", "sub", "mul", "floor_divide", "remainder", "minimum", "maximum"]), x, y)

    def choice(self) -> None:
        x = self.some(lambda t: t.dtype is not bool_, exact=True) or self.param(g.Tensor(f32, self.shape(2)))
        zero = 0.0 if x.tensor.dtype.is_float else 0
        cond = self.op(self.pick(["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]), x, zero)
        if self.chance(0.5):
            other = self.some(lambda t: t == cond.tensor) or cond
            cond = self.op(self.pick(["logical_and", "logical_or"]), cond, self.op("logical_not", other))
        y = self.some(lambda t: t.shape == x.tensor.shape and t.dtype is not bool_) or x
        self.op("where", cond, y, self.like(y) if self.chance(0.5) else (1.5 if y.tensor.dtype.is_float else 2))

    def scalars(self) -> None:
        x = self.tensor(f32)
        kind = self.random.randrange(3)
        if kind == 0:
            self.op("mul", x, self.scalar_param(f32))
        elif kind == 1:
            d = self.pick([*sorted(self.builder.dims, key=str), 1])
            self.op("mul", x, self.op("cast", self.op("remainder", self.op("add", self.op("mul", self.scalar_param(i64), 3), d), 8), f32))
        else:
            e = self.pick([e for e in x.tensor.shape if not isinstance(e, Const)] or [const(3)])
            self.op("add", x, self.op("cast", e, f32))

    def casts(self) -> None:
        x = self.some(lambda t: True, exact=True) or self.tensor()
        self.op("cast", x, self.pick([f16, f32, f64, i32, i64, bool_] if x.tensor.dtype.is_float else [f32, i32, i64, f64, bool_, u8]))

    def kernels(self) -> None:
        if self.chance(0.5):
            x = self.some(lambda t: t.dtype is i32 and len(t.shape) == 2) or self.param(g.Tensor(i32, (self.pick(self.dims), self.dims[2])))
            if self.nowhere_empty(x):  # the kernel writes nothing for empty rows
                self.note(*self.builder.call_loop(sums_and_counts.callee, [x]))
                return
        self.note(*self.builder.call_loop(running_sum.callee, [self.tensor(f32, rank=2)]))

    def match(self) -> None:
        """A cast to a new dim, or to the dims of another tensor."""
        x = self.some(lambda t: len(t.shape) > 0) or self.tensor(rank=1)
        shape = list(x.tensor.shape)
        if self.chance(0.6):
            shape[0] = Dim(f"q{len(self.builder._used)}", 0, 65536)
        else:
            other = self.some(lambda t: t.dtype is x.tensor.dtype and len(t.shape) == len(shape) and self.may_equal(t.shape, shape))
            shape = list(other.tensor.shape) if other is not None else shape
        cast = self.note(ops.match_cast(x, g.Tensor(x.tensor.dtype, tuple(shape))))
        if self.chance(0.5) and x.tensor.dtype.is_float:
            self.op("add", self.like(cast), cast)

    def function(self) -> None:
        """A call of a function of its own, whose dims are bound by the call."""
        x = self.tensor()
        inner = Generator(self.random.randrange(1 << 30))
        inner.builder, inner.depth = Builder(f"{self.builder.name}_f{len(self.builder._used)}"), 1
        fresh = tuple(Dim(f"d{k}", 0, 65536) if free_vars(e) else e for k, e in enumerate(x.tensor.shape))
        inner_x = inner.param(g.Tensor(x.tensor.dtype, fresh), "x")
        with inner.builder:
            y = inner.closed_like(inner_x)
            results = [y, inner.closed_like(y)] if self.chance(0.4) else [y]
            if self.chance(0.2):
                results.append(inner_x)
            if self.chance(0.2) and y.tensor.shape:
                results.append(ops.match_cast(y, g.Tensor(y.tensor.dtype, (Dim("r0", 0, 65536), *y.tensor.shape[1:]))))
        self.note(*self.builder.call_function(inner.builder.finish(results), [x]))

    def branch(self) -> None:
        """Two bodies over what there is outside; one of them may give an outer value as it is."""
        cond = self.condition()
        x = self.some(lambda t: t.dtype is not bool_) or self.tensor()
        second = self.some(lambda t: t.dtype.is_float) if self.chance(0.4) else None
        wanted = [v for v in (x, second) if v is not None]
        updates = self.state is not None and self.depth == 0 and self.chance(0.5)
        outs = self.builder.if_(cond, self.body(wanted, updates), self.body(wanted, updates))
        for out, source in zip(outs, wanted, strict=False):
            self.pool.append(out)
            if source in self.exact and not out.tensor.dtype.is_float:
                self.exact.add(out)
        if updates:
            self.state = outs[-1]

    def body(self, wanted: Sequence[g.Value], updates: bool) -> Any:
        pool, state = list(self.pool), self.state
        self.builder.open()
        self.depth += 1
        if self.chance(0.3) and self.depth < 2:
            self.branch()
        results = [x if self.chance(0.25) else self.closed_like(self.closed_like(x) if self.chance(0.5) else x) for x in wanted]
        if updates:
            assert state is not None
            results.append(state if self.chance(0.3) else self.updated(state))
        self.depth -= 1
        self.pool, self.state = pool, state
        return self.builder.close(results)

    def loop(self) -> None:
        """A `while` over a counter, one or two values (which may change places) and the state; its bound is a number or exact data."""
        x = self.some(lambda t: t.dtype is not bool_) or self.tensor()
        y = self.some(lambda t: t == x.tensor and self.chance(0.7))
        carried = [x] if y is None or y is x else [x, y]
        updates = self.state is not None and self.depth == 0 and self.chance(0.6)
        bound = self.op("remainder", self.scalar_param(i64), 4) if self.chance(0.5) else self.random.randrange(4)
        init = [self.builder.scalar(const(0)), *carried, *([self.state] if updates and self.state is not None else [])]
        annotations: list[g.Annotation] = [g.Scalar(i64), *(v.annotation for v in init[1:])]
        pool, state = list(self.pool), self.state

        def enter() -> list[g.Value]:
            params = [self.builder.carried(f"c{k}", a) for k, a in enumerate(annotations)]
            self.builder.open(params, loop=True)
            return params

        params = enter()
        cond, _ = self.builder.close([ops.less(params[0], bound)])
        params = enter()
        self.depth += 1
        if self.depth < 2 and self.chance(0.3):
            self.pick([self.branch, self.loop])()
        inside = params[1 : 1 + len(carried)]
        results = [v if self.chance(0.2) else self.softened(v) for v in inside]
        if len(results) == 2 and self.chance(0.5):
            results = [results[1], results[0] if self.chance(0.5) else inside[0]]
        last = [self.updated(params[-1])] if updates else []
        self.depth -= 1
        body, _ = self.builder.close([ops.add(params[0], 1), *results, *last])
        self.pool, self.state = pool, state
        outs = self.builder.while_(init, cond, body)
        self.pool += outs[1 : 1 + len(carried)]
        if updates:
            self.state = outs[-1]

    def softened(self, x: g.Value) -> g.Value:
        """As `closed_like`, and bounded, so that rounds do not make numbers grow beyond their type."""
        made = self.closed_like(x)
        return self.op("mul", self.op("tanh", made), 1.5) if made.tensor.dtype.is_float else self.op("remainder", made, 7)

    def condition(self) -> g.Value:
        kind = self.random.randrange(3)
        if kind == 0:
            return self.scalar_param(bool_)
        x = self.some(lambda t: t.dtype.is_int, exact=True)
        if kind == 1 and x is not None:
            return self.op("greater", self.op("sum", x), 5)
        return self.op("greater", self.pick([*sorted(self.builder.dims, key=str), const(3)]), self.pick([0, 1, 2, 4]))

    def update(self) -> None:
        if self.state is None:
            self.state = self.param(g.Tensor(f32, (self.pick(self.dims),), state=True))
        if self.chance(0.5):  # read before it is consumed
            self.op("reshape", self.state, (self.state.tensor.shape[0], ONE))
        if self.chance(0.5):
            self.op("mul", self.state, 2.0)
        self.state = self.updated(self.state)

    def updated(self, state: g.Value) -> g.Value:
        shape = state.tensor.shape
        x = self.some(lambda t: t.dtype is f32 and t.shape == shape)
        if x is None:
            x = self.op("full", shape, 0.25) if self.depth else self.param(g.Tensor(f32, shape))
        return self.builder.call_loop(accumulate.callee, [x, state])[0]

    def program(self) -> g.Function:
        with self.builder:
            if self.chance(0.8):
                self.tensor(rank=self.pick([1, 2, 2, 3]))
            target = self.random.randint(1, 12)
            while len(self.nodes) < target:
                self.step()
            results = [self.pool[-1], *(self.pick(self.pool) for _ in range(self.pick([0, 0, 1, 2])))]
            return self.builder.finish([*results, *([self.state] if self.state is not None else [])])


def make_function(seed: int) -> tuple[g.Function, dict[str, Expr]]:
    """A random function, and what the indices in its index parameters must stay below."""
    generator = Generator(seed)
    function = generator.program()
    return function, generator.bounds


MOST_ELEMENTS = 1 << 20  # of a tensor with a large dim: the cube of 300 takes the interpreter minutes, and gigabytes


def make_arguments(function: g.Function, bounds: dict[str, Expr], seed: int, large: int = 0) -> list[Any] | None:
    """Arguments whose dims meet every run-time condition of the function, one dim `large` if tensors stay small; None if none do."""
    env = _choose_dims(function, bounds, random.Random(seed), large)
    rng = np.random.default_rng(seed)
    return None if env is None else [_argument(p, bounds, env, rng) for p in function.params]


def _argument(p: g.Value, bounds: dict[str, Expr], env: dict[Var, int], rng: np.random.Generator) -> Any:
    a = p.annotation
    if isinstance(a, g.Scalar):
        made = float(np.float32(rng.uniform(-2, 2))) if a.dtype.is_float else int(rng.integers(-9, 9))
        return made > 0 if a.dtype is bool_ else made
    assert isinstance(a, g.Tensor)
    shape = tuple(int(evaluate(e, env)) for e in a.shape)
    if a.dtype.is_float:
        return rng.uniform(-2, 2, shape).astype(a.dtype.numpy())
    low, high = (0, max(1, int(evaluate(bounds[p.name], env)))) if p.name in bounds else (0 if a.dtype is u8 else -9, 9)
    return rng.integers(low, high, shape).astype(a.dtype.numpy())


def _choose_dims(function: g.Function, bounds: dict[str, Expr], rng: random.Random, large: int) -> dict[Var, int] | None:
    shapes = [p.annotation.shape for p in function.params if isinstance(p.annotation, g.Tensor)]
    dims = sorted({v for shape in shapes for e in shape for v in free_vars(e) if isinstance(v, Dim)}, key=str)
    indices = [p for p in function.params if p.name in bounds]
    conditions: list[Expr] = [Or(Lt(const(0), bounds[p.name]), Eq(product(p.tensor.shape), const(0))) for p in indices]
    for _ in range(200):
        env: dict[Var, int] = {d: rng.choice([s for s in SIZES if d.min <= s <= d.max and s % d.multiple_of == 0]) for d in dims}
        env.update((d, large) for d in dims if large and d.max >= large)
        if _hold(function.nodes, env) and all(evaluate(c, env) for c in conditions):
            if not large or _most_elements(function, env) <= MOST_ELEMENTS:
                return env
            large //= 2
    return None


def _most_elements(function: g.Function, env: dict[Var, int]) -> int:
    """The elements of the largest tensor whose dims are known before the function runs."""
    annotations = [v.annotation for v in (*function.params, *(o for n in g.walk_nodes(function.nodes) for o in n.outs))]
    sizes = [product(a.shape) for a in annotations if isinstance(a, g.Tensor)]
    return max((int(evaluate(e, env)) for e in sizes if all(v in env for v in free_vars(e))), default=0)


def _hold(nodes: Sequence[g.Node], env: dict[Var, int]) -> bool:
    """Whether every run-time condition, also inside bodies and callees, holds for these dims; those defined on the way are added."""
    for node in nodes:
        if isinstance(node, g.MatchCast):
            _define(node.outs[0].annotation, node.value.annotation, env, env)
        if not all(evaluate(r.cond, env) for r in node.requires) or not all(_hold(b.nodes, env) for b in g.bodies(node)):
            return False
        if isinstance(node, g.CallFunction):
            inner: dict[Var, int] = {}
            for p, a in zip(node.function.params, node.args, strict=True):
                _define(p.annotation, a.annotation, inner, env)
            if not _hold(node.function.nodes, inner):
                return False
            for out, result in zip(node.outs, node.function.results, strict=True):
                _define(out.annotation, result.annotation, env, inner)
    return True


def _define(target: g.Annotation, source: g.Annotation, env: dict[Var, int], outer: dict[Var, int]) -> None:
    if isinstance(target, g.Tensor) and isinstance(source, g.Tensor):
        for e, found in zip(target.shape, source.shape, strict=True):
            if isinstance(e, Var) and e not in env:
                env[e] = int(evaluate(found, outer))
