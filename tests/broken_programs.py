"""Random loop programs with one thing broken that no program may have: each has to be refused.

for what, func in broken(make_kernel(seed), seed): …
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from pliant.dtype import f32, i32, i64
from pliant.loop.buffer import Buffer, Load
from pliant.loop.stmt import (
    Alloc,
    Block,
    Call,
    Combiner,
    For,
    Func,
    If,
    Iter,
    Let,
    Param,
    Reduce,
    Replacer,
    Seq,
    Stmt,
    Store,
    map_children,
    walk_stmts,
)
from pliant.sym.expr import TRUE, Cast, Const, Expr, Var

NOTHING: Stmt = Seq(())


class Breaker:
    """Breaks a program in a way of its own; None where it has nothing of that kind."""

    def __init__(self, func: Func, dice: random.Random) -> None:
        self.func, self.dice = func, dice

    def some(self, kind: Any, fits: Callable[[Any], bool] = lambda s: True) -> Any:
        found = [s for s in walk_stmts(self.func.body) if isinstance(s, kind) and fits(s)]
        return self.dice.choice(found) if found else None

    def with_(self, old: Stmt, new: Stmt) -> Func:
        def change(s: Stmt) -> Stmt:
            return new if s is old else map_children(s, change)

        return self.func.with_(body=change(self.func.body))

    def with_params(self, *params: Param) -> Func:
        return self.func.with_(params=params)

    # Expressions.

    def indices(self, s: Store, indices: tuple[Expr, ...]) -> Func:
        return self.with_(s, s.with_(indices=indices))

    def too_many_indices(self) -> Func | None:
        s = self.some(Store)
        return s and self.indices(s, (*s.indices, Const(0, i64)))

    def too_few_indices(self) -> Func | None:
        s = self.some(Store, lambda s: s.indices)
        return s and self.indices(s, s.indices[1:])

    def too_few_indices_of_a_load(self) -> Func | None:
        s = self.some(Store, lambda s: s.indices and not s.buffer.dtype.storage)
        return s and self.with_(s, s.with_(value=Load(s.buffer, s.indices[1:])))

    def an_index_of_another_type(self) -> Func | None:
        s = self.some(Store, lambda s: s.indices)
        return s and self.indices(s, (Const(0, i32), *s.indices[1:]))

    def a_value_of_another_type(self) -> Func | None:
        s = self.some(Store, lambda s: not s.buffer.dtype.storage)
        return s and self.with_(s, s.with_(value=Cast(f32 if s.buffer.dtype is not f32 else i32, s.value)))

    def an_unknown_variable(self) -> Func | None:
        s = self.some(Store, lambda s: s.indices)
        return s and self.indices(s, (Var("nowhere"), *s.indices[1:]))

    def an_unknown_buffer(self) -> Func | None:
        s = self.some(Store)
        b = s and Buffer("nowhere", s.buffer.dtype, s.buffer.shape, None, "workspace")
        return s and self.with_(s, s.with_(buffer=b))

    def a_bound_of_another_type(self) -> Func | None:
        s = self.some(For)
        return s and self.with_(s, s.with_(stop=Cast(f32, s.stop)))

    # Loops and blocks.

    def an_unknown_kind_of_loop(self) -> Func | None:
        s = self.some(For)
        return s and self.with_(s, s.with_(kind="spiral"))

    def a_loop_in_another_type(self) -> Func | None:
        s = self.some(For)
        return s and self.with_(s, s.with_(var=Var("narrow", i32), body=NOTHING))

    def a_loop_variable_twice(self) -> Func | None:
        s = self.some(For)
        return s and self.with_(s, s.with_(body=s))

    def an_unknown_kind_of_iterator(self) -> Func | None:
        b = self.some(Block, lambda b: b.iters)
        return b and self.with_(b, b.with_(iters=(Iter(b.iters[0].var, "X", b.iters[0].value), *b.iters[1:])))  # type: ignore[arg-type]

    def an_iterator_of_another_type(self) -> Func | None:
        b = self.some(Block)
        return b and self.with_(b, b.with_(iters=(*b.iters, Iter(Var("narrow", i32), "S", Const(0, i64)))))

    def an_iterator_with_a_value_of_another_type(self) -> Func | None:
        b = self.some(Block, lambda b: b.iters)
        return b and self.with_(b, b.with_(iters=(Iter(b.iters[0].var, b.iters[0].kind, Const(0, i32)), *b.iters[1:])))

    def two_iterators_of_one_loop(self) -> Func | None:
        """Of more than one iteration, where nothing else is said of them."""
        long = {s.var for s in walk_stmts(self.func.body) if isinstance(s, For) and isinstance(s.extent, Const) and s.extent.value > 1}
        b = self.some(Block, lambda b: b.predicate is TRUE and any(i.value in long for i in b.iters))
        i = b and next(i for i in b.iters if i.value in long)
        return b and self.with_(b, b.with_(iters=(*b.iters, Iter(Var("again"), "S", i.value))))

    def a_predicate_that_is_a_number(self) -> Func | None:
        b = self.some(Block)
        return b and self.with_(b, b.with_(predicate=Const(1, i64)))

    def a_condition_that_is_a_number(self) -> Func | None:
        s = self.some(Store)
        return s and self.with_(s, If(Const(1, i64), s))

    def a_loop_variable_inside_of_a_block(self) -> Func | None:
        """Blocks see their iterators alone."""
        b = self.some(Block, lambda b: isinstance(b.body, Store) and b.body.indices and any(isinstance(i.value, Var) for i in b.iters))
        i = b and next(i for i in b.iters if isinstance(i.value, Var))
        return b and self.with_(b, b.with_(body=b.body.with_(indices=(i.value, *b.body.indices[1:]))))

    def an_init_that_sees_what_is_reduced(self) -> Func | None:
        b = self.some(Block, lambda b: isinstance(b.init, Store) and b.init.indices and any(i.kind == "R" for i in b.iters))
        v = b and next(i.var for i in b.iters if i.kind == "R")
        return b and self.with_(b, b.with_(init=b.init.with_(indices=(v, *b.init.indices[1:]))))

    # Memory.

    def no_allocation(self) -> Func | None:
        used = {s.buffer for s in walk_stmts(self.func.body) if isinstance(s, Store)}
        s = self.some(Alloc, lambda s: s.buffer in used)
        return s and self.with_(s, NOTHING)

    def an_allocation_twice(self) -> Func | None:
        s = self.some(Alloc)
        return s and self.with_(s, Seq((s, s)))

    def an_allocation_among_parameters(self) -> Func | None:
        s = self.some(Store)
        return s and self.with_(s, Seq((Alloc(Buffer("t", f32, (Const(4, i64),), None, "global")), s)))

    def a_stack_of_unknown_size(self) -> Func | None:
        if not self.func.symbols:
            return None
        b = Buffer("t", f32, (self.func.symbols[0],), None, self.dice.choice(["stack", "register"]))
        s = self.some(Store)
        return s and self.with_(s, Seq((Alloc(b), s)))

    def an_extent_of_another_type(self) -> Func | None:
        s = self.some(Store)
        return s and self.with_(s, Seq((Alloc(Buffer("t", f32, (Const(4, i32),), None, "workspace")), s)))

    def strides_that_do_not_fit(self) -> Func | None:
        s = self.some(Store)
        return s and self.with_(s, Seq((Alloc(Buffer("t", f32, (Const(4, i64),), (Const(1, i64),) * 2, "workspace")), s)))

    def a_stack_that_is_too_large(self) -> Func | None:
        s = self.some(Store)
        return s and self.with_(s, Seq((Alloc(Buffer("t", f32, (Const(1 << 26, i64),), None, "stack")), s)))

    def a_store_to_an_input(self) -> Func | None:
        s = self.some(Store, lambda s: any(p.value is s.buffer for p in self.func.params))
        if s is None:
            return None
        return self.with_params(*(Param(p.value, "in") if p.value is s.buffer else p for p in self.func.params))

    # Parameters.

    def a_parameter_twice(self) -> Func | None:
        return self.with_params(*self.func.params, self.func.params[0])

    def a_number_that_is_an_output(self) -> Func | None:
        return self.with_params(*self.func.params, Param(Var("scalar", f32), "out"))

    def an_output_that_nobody_writes(self) -> Func | None:
        return self.with_params(*self.func.params, Param(Buffer("more", f32, (Const(4, i64),)), "out"))

    def a_dim_of_another_type(self) -> Func | None:
        return self.with_params(*self.func.params, Param(Buffer("more", f32, (Var("d", i32),)), "in"))

    # Reductions and calls.

    def an_unknown_reduction(self) -> Func | None:
        s = self.some(Reduce, lambda s: not s.combiner.left)
        return s and self.with_(s, s.with_(combiner=Combiner("frob")))

    def two_values_of_a_reduction(self) -> Func | None:
        s = self.some(Reduce, lambda s: not s.combiner.left)
        return s and self.with_(s, s.with_(values=s.values * 2))

    def a_combiner_that_sees_more(self) -> Func | None:
        s = self.some(Reduce, lambda s: s.combiner.left)
        c = s and s.combiner
        return s and self.with_(s, s.with_(combiner=Combiner(c.name, c.left, c.right, (Var("nowhere", c.result[0].dtype), *c.result[1:]))))

    def a_combiner_of_other_types(self) -> Func | None:
        s = self.some(Reduce, lambda s: s.combiner.left and s.combiner.result[0].dtype is not i32)
        c = s and s.combiner
        return s and self.with_(s, s.with_(combiner=Combiner(c.name, c.left, c.right, (Cast(i32, c.result[0]), *c.result[1:]))))

    def a_variable_twice(self) -> Func | None:
        s = self.some(Store)
        v = Var("x_0")
        return s and self.with_(s, Seq((Let(v, Const(1, i64)), Let(v, Const(2, i64)), s)))

    def called(self, args: Callable[[tuple[Any, ...]], tuple[Any, ...]], dims: int = 0) -> Func | None:
        """A function that calls this one, with arguments that do not fit."""
        renamed = {p.value: Buffer(p.value.name, p.value.dtype, p.value.shape) for p in self.func.params if isinstance(p.value, Buffer)}
        if len(renamed) != len(self.func.params):
            return None
        params = tuple(Param(renamed[p.value], "inout" if p.role == "out" else p.role) for p in self.func.params)  # type: ignore[index]
        symbols = (*self.func.symbols, *(Const(1, i64),) * dims)
        return Func("outer", params, Call(self.func, args(tuple(p.value for p in params)), symbols))

    def a_call_with_too_few_arguments(self) -> Func | None:
        return self.called(lambda args: args[1:])

    def a_call_with_too_many_dims(self) -> Func | None:
        return self.called(lambda args: args, 1)

    def a_call_with_a_number_for_a_tensor(self) -> Func | None:
        return self.called(lambda args: (Const(1, i64), *args[1:]))

    def a_call_with_one_tensor_for_two(self) -> Func | None:
        """Of which one is written."""
        written = [n for n, p in enumerate(self.func.params) if p.role != "in"]
        like = [(n, k) for n in written for k in range(len(self.func.params)) if k != n and self.fits(n, k)]
        if not like:
            return None
        n, k = self.dice.choice(like)
        return self.called(lambda args: tuple(args[n] if m == k else a for m, a in enumerate(args)))

    def a_call_with_another_type(self) -> Func | None:
        b = self.func.params[0].value
        other = Buffer("other", f32 if b.dtype is not f32 else i32, b.shape)
        found = self.called(lambda args: (other, *args[1:])) if isinstance(b, Buffer) else None
        return found and found.with_(params=(Param(other, "inout"), *found.params[1:]))

    def fits(self, n: int, k: int) -> bool:
        a, b = self.func.params[n].value, self.func.params[k].value
        return isinstance(a, Buffer) and isinstance(b, Buffer) and a.dtype is b.dtype and a.shape == b.shape


WAYS = [name for name in vars(Breaker) if name.split("_")[0] in ("a", "an", "two", "too", "no", "strides")]


def broken(func: Func, seed: int) -> Iterator[tuple[str, Func]]:
    """The program broken in some ways."""
    dice = random.Random(f"broken {seed}")
    for way in dice.sample(WAYS, 12):
        made = getattr(Breaker(func, dice), way)()
        if made is not None:
            yield way.replace("_", " "), made


def moved(func: Func) -> Func:
    """The program with fresh buffers, which is not broken: what a breaker changes is not all that it rebuilds."""
    return func.with_(body=Replacer().stmt(func.body))
