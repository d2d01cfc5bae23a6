"""Graph passes on random functions, in random orders: bit for bit the same meaning. And every rule of `simplify`, on its own examples."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from counts import seeds
from pliant import dim, ops
from pliant.dtype import DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from pliant.graph import node as g
from pliant.graph.builder import Builder
from pliant.graph.ops.shape import as_dim
from pliant.graph.passes import simplify as simplify_module
from pliant.graph.passes.common_subexpressions import common_subexpressions
from pliant.graph.passes.dead_code import dead_code
from pliant.graph.passes.fold_constants import fold_constants
from pliant.graph.passes.inline_functions import inline_functions
from pliant.graph.passes.simplify import RULES, simplify
from pliant.graph.rewrite import Rewriter
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.sym.semantics import evaluate
from random_graphs import make_arguments, make_function

BATCH = 20
EXACT = (inline_functions, dead_code, common_subexpressions, simplify, fold_constants)
Array = np.ndarray[Any, Any]


def outcome(function: g.Function, arguments: list[Any]) -> list[bytes]:
    """The bits of the results, and of the arguments after the run (state is updated in place)."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    with np.errstate(all="ignore"):
        return [np.asarray(a).tobytes() for a in (*run_graph(function, copies), *copies)]


@pytest.mark.parametrize("first", seeds(200, 50_000, BATCH))
def test_random_functions_mean_the_same_after_random_orders(first: int) -> None:
    for seed in range(first, first + BATCH):
        function, bounds = make_function(seed)
        arguments = make_arguments(function, bounds, seed)
        if arguments is None:
            continue
        expected = outcome(function, arguments)
        order = random.Random(seed).choices(EXACT, k=6)
        changed = function
        for change in order:
            changed = change(changed)
            verify(changed)
        assert outcome(changed, arguments) == expected, f"seed {seed}, {[c.__name__ for c in order]}:\n{function}\n{changed}"


# Examples of the rules: each makes a value from parameters such that the rule fits, and returns it.

n, m = dim("n", min=1, max=8), dim("m", min=1, max=8)
INTS, FLOATS = (i8, i32, i64, u8), (f16, f32, f64, bf16)


class Example:
    """A builder with random parameters: the dims are n and m."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = Builder("example")

    def pick(self, items: Any) -> Any:
        return self.random.choice(list(items))

    def tensor(self, *dtypes: DType, rank: int | None = None, shape: tuple[Any, ...] | None = None) -> Any:
        rank = self.random.randint(0, 3) if rank is None else rank
        made = tuple(self.pick([n, m, 1, 3]) for _ in range(rank)) if shape is None else shape
        return self.builder.param(f"x{len(self.builder._params)}", g.Tensor(self.pick(dtypes), tuple(as_dim("", e) for e in made)))

    def axis(self, x: g.Value) -> int:
        return self.random.randrange(len(x.tensor.shape))

    def order(self, x: g.Value) -> list[int]:
        rank = len(x.tensor.shape)
        return self.random.sample(range(rank), rank)


def number(x: g.Value, value: float) -> Any:
    """A literal of the dtype of `x`, of rank 0."""
    return ops.constant(np.array(value).astype(x.tensor.dtype.numpy()))


def swapped(e: Example, op: Callable[..., Any], x: Any, y: Any) -> Any:
    return op(x, y) if e.random.random() < 0.5 else op(y, x)


def add_zero(e: Example) -> Any:
    x = e.tensor(*INTS, *FLOATS)
    return swapped(e, ops.add, x, number(x, -0.0 if x.tensor.dtype.is_float else 0))


def sub_zero(e: Example) -> Any:
    x = e.tensor(*INTS, *FLOATS)
    return ops.sub(x, number(x, 0))


def mul_one(e: Example) -> Any:
    x = e.tensor(*INTS, *FLOATS)
    return swapped(e, ops.mul, x, number(x, 1))


def div_one(e: Example) -> Any:
    x = e.tensor(*INTS, *FLOATS)
    return (ops.div if x.tensor.dtype.is_float else ops.floor_divide)(x, number(x, 1))


def div_by_power_of_two(e: Example) -> Any:
    x = e.tensor(*FLOATS)
    return ops.div(x, number(x, e.pick([2, 0.5, -4, 1024, 0.125, 8192])))


def integer_zero(e: Example) -> Any:
    x = e.tensor(*INTS)
    return e.pick([lambda: swapped(e, ops.mul, x, number(x, 0)), lambda: ops.remainder(x, number(x, 1)), lambda: ops.sub(x, x)])()


def undone_twice(e: Example) -> Any:
    if e.random.random() < 0.3:
        return ops.logical_not(ops.logical_not(e.tensor(bool_)))
    return ops.neg(ops.neg(e.tensor(i8, i32, i64, *FLOATS)))


def done_once(e: Example) -> Any:
    op = e.pick([ops.abs, ops.relu, ops.floor, ops.ceil, ops.trunc, ops.round])
    x = e.tensor(*FLOATS)
    return op(op(x))


def same_operand(e: Example) -> Any:
    if e.random.random() < 0.3:
        x = e.tensor(bool_)
        return e.pick([ops.logical_and, ops.logical_or])(x, x)
    x = e.tensor(*INTS, *FLOATS)
    return e.pick([ops.minimum, ops.maximum])(x, x)


def where_known(e: Example) -> Any:
    x = e.tensor(i32, f32)
    y = e.builder.param("y", x.annotation)
    cond = e.builder.param("c", g.Tensor(bool_, x.tensor.shape))
    return e.pick([lambda: ops.where(cond, x, x), lambda: ops.where(True, x, y), lambda: ops.where(False, x, y)])()


def cast_to_same(e: Example) -> Any:
    x = e.tensor(*INTS, *FLOATS, bool_)
    return ops.cast(x, x.tensor.dtype)  # type: ignore[type-var]


def cast_of_widening(e: Example) -> Any:
    narrow, wide = e.pick([(i8, i32), (u8, i32), (i32, i64), (f16, f32), (f32, f64), (bf16, f32), (bool_, f32), (bool_, i8)])
    return ops.cast(ops.cast(e.tensor(narrow), wide), e.pick([*INTS, *FLOATS]))


def reshape_to_same(e: Example) -> Any:
    x = e.tensor(f32)
    return ops.reshape(x, x.tensor.shape)


def reshape_of_reshape(e: Example) -> Any:
    x = e.tensor(f32, i32)
    return ops.reshape(ops.reshape(x, (-1,)), (1, *x.tensor.shape))


def reshape_of_slice(e: Example) -> Any:
    part = ops.slice(e.tensor(f32, i32, shape=(n, m, 12)), 2, e.pick([0, 4, 8]), 12)
    return ops.reshape(part, (n, m, -1, e.pick([2, 4])))


def permute_nothing(e: Example) -> Any:
    x = e.tensor(f32)
    return ops.permute(x, range(len(x.tensor.shape)))


def permute_of_permute(e: Example) -> Any:
    x = e.tensor(f32, i32, rank=3)
    return ops.permute(ops.permute(x, (1, 2, 0)), e.order(x))


def permute_of_ones(e: Example) -> Any:
    return ops.permute(e.tensor(f32, shape=(n, 1, m)), e.pick([(1, 0, 2), (0, 2, 1)]))


def slice_of_everything(e: Example) -> Any:
    x = e.tensor(f32, rank=2)
    return ops.slice(x, e.axis(x), 0, None)


def slice_of_slice(e: Example) -> Any:
    inner = ops.slice(e.tensor(f32, i32, shape=(n, 9)), 1, e.pick([1, 2]), 8)
    return ops.slice(inner, 1, e.pick([0, 1, 2]), e.pick([3, 5]), step=e.pick([1, 2]))


def slice_of_concat(e: Example) -> Any:
    a, b = e.tensor(f32, shape=(n, 3)), e.tensor(f32, shape=(m, 3))
    joined = ops.concat([a, b], axis=0)
    return ops.slice(joined, 0, 0, n) if e.random.random() < 0.5 else ops.slice(joined, 0, n, None)


def concat_of_one(e: Example) -> Any:
    x = e.tensor(f32, rank=2)
    return ops.concat([x], axis=e.axis(x))


def concat_of_concat(e: Example) -> Any:
    parts = [e.tensor(f32, shape=(k, 3)) for k in (n, m, n)]
    return ops.concat([ops.concat(parts[:2], axis=0), parts[2]], axis=0)


def operand_is_broadcast_already(e: Example) -> Any:
    x = e.tensor(f32, shape=(n, m))
    y = e.tensor(f32, shape=(m,))
    larger = ops.reshape(y, (1, m)) if e.random.random() < 0.5 else ops.full((n, m), 1.5)
    return swapped(e, e.pick([ops.add, ops.mul, ops.maximum]), x, larger)


EXAMPLES: dict[str, Callable[[Example], Any]] = {
    name: globals()[name] for name in RULES if name in globals() and not isinstance(globals()[name], type)
}


def test_every_rule_has_an_example() -> None:
    assert set(EXAMPLES) == set(RULES)


def special(t: g.Tensor, env: dict[Any, int], rng: np.random.Generator) -> Array:
    """An array with the values that rules could get wrong: zeros of both signs, infinities, NaN, ends of ranges."""
    shape = tuple(int(evaluate(s, env)) for s in t.shape)
    if t.dtype is bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if t.dtype.is_int:
        return rng.choice(np.array([0, 1, t.dtype.min, t.dtype.max, 7], t.dtype.numpy()), shape)
    tiny = 1e-40 if t.dtype is not f16 else 6e-8
    return rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.75, tiny, 300.25]), shape).astype(t.dtype.numpy())


@pytest.mark.parametrize("name", RULES)
def test_a_rule_changes_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplify_module, "RULES", {name: RULES[name]})
    monkeypatch.setattr(simplify_module, "_BY_OP", {})
    applied = 0
    for seed in seeds(20, 2000):
        e = Example(seed)
        with e.builder:
            function = e.builder.finish([EXAMPLES[name](e)])
        changed = simplify(function)
        verify(changed)
        applied += changed is not function
        rng = np.random.default_rng(seed)
        env = {n: int(rng.integers(1, 5)), m: int(rng.integers(1, 5))}
        arguments = [special(p.tensor, env, rng) for p in function.params]
        assert same(function, changed, arguments), f"{name}, seed {seed}:\n{function}\n{changed}"
    assert applied > 0, f"the examples of {name} do not fit it"


def same(function: g.Function, changed: g.Function, arguments: list[Array]) -> bool:
    """Whether the results agree in every bit; one NaN is as good as another."""
    with np.errstate(all="ignore"):
        (a,), (b,) = run_graph(function, arguments), run_graph(changed, arguments)
    quiet = [np.where(x == x, x, np.zeros((), x.dtype)).tobytes() for x in (a, b)]
    return quiet[0] == quiet[1] and a.shape == b.shape and bool(np.array_equal(a != a, b != b))


def test_a_rule_that_breaks_an_annotation_is_found() -> None:
    b = Builder("f")
    x = b.param("x", g.Tensor(f32, (n, m)))
    with b:
        f = b.finish([ops.permute(x, (1, 0))])
    with pytest.raises(Exception, match="a rule replaces"):
        Rewriter(f, lambda r, node: node.args).run()  # type: ignore[attr-defined]
