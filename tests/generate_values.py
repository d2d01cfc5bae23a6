"""Random expressions over what a place in a loop program can see; every load in range by construction, for every value of the dims.

>>> g = Expressions(7); g.expr(f32, Scope(vars=[(i, n)], reads=[x]), depth=3)
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

from pliant.dtype import ALL as ALL_DTYPES
from pliant.dtype import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from pliant.loop.buffer import Buffer, Load, loaded_dtype
from pliant.sym import expr as E
from pliant.sym.conditions import all_of
from pliant.sym.expr import TRUE, Const, Dim, Expr, Select, Var

DTYPES = [f32, f32, f32, f64, f16, i8, i32, i32, i64, u8, bool_, i16, u16, u32, u64, bf16]
BUFFER_DTYPES = [*DTYPES, *(d for d in ALL_DTYPES.values() if d.storage)]
ZERO, ONE = Const(0, i64), Const(1, i64)
SAME_WIDTH = {f32: i32, i32: f32, f64: i64, i64: f64, f16: i16, i16: f16, i8: u8, u8: i8, u32: f32, u64: f64}


@dataclass
class Scope:
    """What an expression may use: variables in 0..extent (each with the extent), values, and buffers to read."""

    vars: list[tuple[Var, Expr]] = field(default_factory=list)
    values: list[Expr] = field(default_factory=list)
    reads: list[Buffer] = field(default_factory=list)

    def also(self, vars: list[tuple[Var, Expr]] = [], values: list[Expr] = [], reads: list[Buffer] = []) -> Scope:  # noqa: B006 - never changed
        """This scope with more in it."""
        return Scope(self.vars + vars, self.values + values, self.reads + reads)


class Expressions:
    """Makes expressions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.name = f"p{seed}"
        self.names = itertools.count()
        self.dims = [Dim(n, max=64) for n in ("n", "m", "p")[: self.random.randint(1, 3)]]
        self.scope = Scope()

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, choices: Any) -> Any:
        return self.random.choice(list(choices))

    def fresh(self, hint: str) -> str:
        return f"{hint}{next(self.names)}"

    def var(self, hint: str, dtype: DType = i64) -> Var:
        return Var(self.fresh(hint), loaded_dtype(dtype))

    # Expressions.

    def expr(self, dtype: DType, scope: Scope, depth: int) -> Expr:
        """A random expression of the dtype, or of what a storage type is widened to."""
        dtype = loaded_dtype(dtype)
        if depth <= 0 or self.chance(0.1):
            return self.leaf(dtype, scope)
        if self.chance(0.12):
            return Select(self.expr(bool_, scope, depth - 1), self.expr(dtype, scope, depth - 1), self.expr(dtype, scope, depth - 1))
        if self.chance(0.12):
            return E.Cast(dtype, self.expr(self.pick(DTYPES), scope, depth - 1))
        if dtype is bool_:
            return self.condition(scope, depth)
        a, b = (self.expr(dtype, scope, depth - 1) for _ in range(2))
        if self.chance(0.08) and dtype in SAME_WIDTH:
            return self.bitcast(dtype, scope, depth)
        if dtype.is_float:
            return self.float_op(dtype, a, b, scope, depth)
        kinds = [
            E.Add,
            E.Sub,
            E.Mul,
            E.FloorDiv,
            E.FloorMod,
            E.Min,
            E.Max,
            E.BitAnd,
            E.BitOr,
            E.BitXor,
            E.Shl,
            E.Shr,
            E.Neg,
            E.BitNot,
            "abs",
        ]
        kind = self.pick(kinds)
        if kind in (E.Shl, E.Shr) and self.chance(0.7):
            b = Const(self.random.randint(0, dtype.bits - 1), dtype)
        return E.Call(kind, a) if isinstance(kind, str) else kind(a) if issubclass(kind, E.Unary) else kind(a, b)

    def float_op(self, dtype: DType, a: Expr, b: Expr, scope: Scope, depth: int) -> Expr:
        if self.chance(0.2):
            functions = ["abs", "floor", "ceil", "round", "trunc", "sqrt", "exp"]
            if dtype is not f64:
                functions += ["log", "sigmoid", "tanh", "erf", "rsqrt", "sin", "cos"]
            return E.Call(self.pick(functions), a)
        kind = self.pick([E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max, E.Neg, E.Fma])
        if kind is E.Fma:
            return E.Fma(a, b, self.expr(dtype, scope, depth - 1))
        return kind(a) if kind is E.Neg else kind(a, b)

    def bitcast(self, dtype: DType, scope: Scope, depth: int) -> Expr:
        source = SAME_WIDTH[dtype]
        a = self.expr(source, scope, depth - 1)
        if source.is_float:  # the bits of a NaN are not defined
            a = Select(E.Eq(a, a), a, Const(1.5, source))
        return E.Bitcast(dtype, a)

    def condition(self, scope: Scope, depth: int) -> Expr:
        choice = self.random.randrange(5)
        if choice == 0:
            return self.pick([E.And, E.Or])(self.expr(bool_, scope, depth - 1), self.expr(bool_, scope, depth - 1))
        if choice == 1:
            return E.Not(self.expr(bool_, scope, depth - 1))
        dtype = self.pick(DTYPES)
        kind = self.pick([E.Eq, E.Ne, E.Lt, E.Le] if dtype is not bool_ else [E.Eq, E.Ne])
        return kind(self.expr(dtype, scope, depth - 1), self.expr(dtype, scope, depth - 1))

    def leaf(self, dtype: DType, scope: Scope) -> Expr:
        values = [v for v in scope.values if v.dtype is dtype]
        if values and self.chance(0.4):
            return self.pick(values)
        reads = [b for b in scope.reads if loaded_dtype(b.dtype) is dtype]
        if reads and self.chance(0.7):
            return self.read(self.pick(reads), scope)
        if scope.reads and self.chance(0.5):
            return E.Cast(dtype, self.read(self.pick(scope.reads), scope))
        if scope.vars and self.chance(0.4):
            return E.Cast(dtype, self.pick(scope.vars)[0])
        return self.constant(dtype)

    def constant(self, dtype: DType) -> Const:
        dtype = loaded_dtype(dtype)
        if dtype is bool_:
            return Const(self.chance(0.5), bool_)
        if dtype.is_float:
            return Const(self.pick([0.0, -0.0, 1.0, -1.0, 0.5, 3.25, -2.75, 100.0, 1e-3, float("inf")]), dtype)
        return Const(self.pick([0, 1, 2, 3, 7, -1, dtype.max, dtype.min, self.random.randint(0, 100)]), dtype)

    def read(self, buffer: Buffer, scope: Scope) -> Expr:
        """A load of the buffer, guarded where its index may be out of range."""
        indices, guards = [], []
        for extent in buffer.shape:
            index, guard = self.index(extent, scope)
            indices.append(index)
            guards.append(guard)
        load, guard = Load(buffer, tuple(indices)), all_of(*guards)
        return load if guard is TRUE else Select(guard, load, self.constant(load.dtype))

    def index(self, extent: Expr, scope: Scope) -> tuple[Expr, Expr]:
        """An index below `extent`, and the condition under which it is."""
        exact = [v for v, e in scope.vars if e is extent]
        if exact and self.chance(0.8):
            v = self.pick(exact)
            return (extent - ONE - v, TRUE) if self.chance(0.2) else (v, TRUE)
        integers = [b for b in scope.reads if b.dtype is i64 and all(any(e is x for _, x in scope.vars) for e in b.shape)]
        if integers and self.chance(0.3):  # gather
            b = self.pick(integers)
            found = b.load(*(next(v for v, x in scope.vars if x is e) for e in b.shape))
            return E.FloorMod(found, extent), E.Lt(ZERO, extent)
        if scope.vars and self.chance(0.7):
            v = self.pick(scope.vars)[0]
            if isinstance(extent, Const):
                return (v % extent if extent.value > 1 else ZERO), TRUE
            moved = v + self.random.randint(0, 2)
            return moved, E.Lt(moved, extent)
        if isinstance(extent, Const):
            return Const(self.random.randrange(extent.value), i64), TRUE
        return ZERO, E.Lt(ZERO, extent)
