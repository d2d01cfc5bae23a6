"""The steps between graph and host program: operators to loops, casts resolved, workspace lifted, kernels shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import compiled, host_of, lowered, without
from native_loops import Lifted
from pliant import InOut, Out, Tensor, alloc, cast, dim, f32, function, i32, i64, kernel, match_cast, ops, parallel, u4, u8
from pliant.graph import node as g
from pliant.interp.graph import run_graph
from pliant.interp.loop import run_loop
from pliant.loop.stmt import Alloc, Call, Func, walk_stmts
from pliant.lower.callee import callee_of, func_of
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.lower.ops.lower_ops import lower_ops
from pliant.lower.ops.resolve_casts import resolve_casts
from pliant.pipeline import STEPS
from pliant.support.errors import UnsupportedError
from pliant.sym.expr import Const

n = dim("n", max=64)
m = dim("m", max=64)
k = dim("k", max=64)
j = dim("j", max=64)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


def kinds(f: g.Function) -> list[str]:
    return [
        n.op if isinstance(n, g.Op) else n.callee.name if isinstance(n, g.CallLoop) else type(n).__name__ for n in g.walk_nodes(f.nodes)
    ]


def kernels_of(f: Any, steps: Any = STEPS) -> list[Func]:
    """The loop programs that a host program calls, each once."""
    return list({s.func: None for s in walk_stmts(host_of(f.graph, steps).run.body) if isinstance(s, Call)})


# Operators.


def test_operators_become_calls_and_views_and_host_scalars_stay() -> None:
    @function
    def f(x: Tensor[f32, n, 4], i: i64, b: bool) -> Tensor[f32, n * 4]:
        y = ops.reshape(ops.softmax(x), (n * 4,))
        if b:
            z = ops.exp(y)
        else:
            z = y * ops.cast(i * 2, f32)
        return z

    after = lower_ops(f.graph)
    ops_left = {n.op for n in g.walk_nodes(after.nodes) if isinstance(n, g.Op)}
    assert ops_left == {"reshape", "scalar", "mul", "cast"}  # `i * 2` and its cast are computed on the host
    assert {"softmax", "exp", "mul"} <= set(kinds(after))
    x = random(3, 4)
    for b in (True, False):
        np.testing.assert_allclose(run_graph(after, [x, 2, b])[0], run_graph(f.graph, [x, 2, b])[0], rtol=1e-6)


def test_numbers_become_literals_of_the_loop_program() -> None:
    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return x * 2.5

    (call,) = [n for n in lower_ops(f.graph).nodes if isinstance(n, g.CallLoop)]
    assert [a.name for a in call.args if isinstance(a, g.Value)] == ["x"]
    assert "2.5" in str(func_of(call.callee))
    assert not host_of(f.graph).constants


def test_a_dim_that_no_argument_shows_is_a_scalar_of_the_loop_program() -> None:
    @function
    def f(x: Tensor[f32, n], y: Tensor[u8, k]) -> Tensor[f32, n]:
        return x + ops.cast(k, f32)

    x = random(3)
    np.testing.assert_array_equal(compiled(f.graph, without("fuse"))(x, np.zeros(5, np.uint8)), x + 5)


# Casts.


def test_dims_of_casts_are_replaced_also_inside_branches() -> None:
    q = dim("q")
    r = dim("r")

    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, m], b: bool) -> Tensor[f32, n * 2]:
        z = match_cast(ops.concat([x, x], axis=0), Tensor[f32, q])
        if b:
            w = match_cast(y, Tensor[f32, r])
            u = match_cast(w + 1.0, Tensor[f32, q])
        else:
            u = z
        return match_cast(u + z, Tensor[f32, n * 2])

    after = resolve_casts(lower_ops(f.graph))
    outs = [o.annotation for n in g.walk_nodes(after.nodes) for o in n.outs]
    shapes = {str(a.shape[0]) for a in outs if isinstance(a, g.Tensor) and a.shape}
    assert shapes <= {"n * 2", "n", "m"}
    assert not any(n.defines for n in g.walk_nodes(after.nodes) if isinstance(n, g.MatchCast))
    x, y = random(3), random(6, seed=1)
    for b in (True, False):
        expected = (y + 1 if b else np.concatenate([x, x])) + np.concatenate([x, x])
        np.testing.assert_allclose(compiled(f.graph)(x, y, b), expected, rtol=1e-6)
    with pytest.raises(pliant.ShapeError):
        compiled(f.graph)(x, random(5), True)


def test_a_function_without_casts_is_left_as_it_is() -> None:
    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return x + 1.0

    assert resolve_casts(f.graph) is f.graph


# Workspace.


@kernel(scheduled=True)
def reversed_twice(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    t = alloc((n,), f32, scope="workspace")
    for i in range(n):
        t[i] = x[n - 1 - i]
    for i in range(n):
        y[i] = t[n - 1 - i] * 2.0


@kernel(scheduled=True)
def rows_reversed(x: Tensor[i32, n, m], y: Out[i32, n, m]) -> None:
    for i in parallel(n):
        t = alloc((m,), i32, scope="workspace")
        for c in range(m):
            t[c] = x[i, c]
        for c in range(m):
            y[i, c] = t[m - 1 - c]


def test_workspace_becomes_a_parameter() -> None:
    lifted, scratch = lift_workspace(reversed_twice.func)
    assert [str(b.shape) for b in scratch] == [str((n,))]
    assert [p.role for p in lifted.params] == ["in", "out", "out"]
    assert not any(isinstance(s, Alloc) for s in walk_stmts(lifted.body))
    x, y = random(5), np.empty(5, np.float32)
    run_loop(lifted, [x, y, np.empty(5, np.float32)])
    np.testing.assert_array_equal(y, x * 2)


def test_workspace_under_a_parallel_loop_has_a_part_for_each_iteration() -> None:
    _, scratch = lift_workspace(rows_reversed.func)
    assert [str(b.shape) for b in scratch] == [str((n, m))]
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    for threads in (1, 2):
        y = np.zeros_like(x)
        assert Lifted([rows_reversed.func], level=0).call(rows_reversed.func, [x, y], [3, 4], threads) == 0
        np.testing.assert_array_equal(y, x[:, ::-1])
    np.testing.assert_array_equal(compiled(pliant.Program.of_kernel(rows_reversed.func).entry)(x), x[:, ::-1])


def test_workspace_is_part_of_the_plan() -> None:
    f = compiled(pliant.Program.of_kernel(reversed_twice.func).entry)
    assert [f.workspace(n=size) for size in (0, 1, 16, 17)] == [0, 64, 64, 128]


def test_a_size_that_only_a_run_tells_is_refused() -> None:
    @kernel(scheduled=True)
    def triangle(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        for i in range(n):
            t = alloc((i + 1,), f32, scope="workspace")
            for c in range(i + 1):
                t[c] = x[c]
            y[i] = t[i]

    with pytest.raises(UnsupportedError, match="`t` has a size that is known only while `triangle` runs: it depends on `i`") as info:
        pliant.compile(triangle, cache=False)
    assert info.value.where is not None and info.value.where.file == __file__
    assert "alloc((i + 1,)" in info.value.where.text


# Kernels.


def test_equal_loop_programs_stand_once() -> None:
    @function
    def f(x: Tensor[f32, n, 4], y: Tensor[f32, k, 4]) -> tuple[Tensor[f32, n, 4], Tensor[f32, k, 4], Tensor[f32, n, 4]]:
        return ops.exp(x), ops.exp(y), x

    assert len(kernels_of(f)) == 2  # one exp, one copy
    x, y = random(3, 4), random(5, 4, seed=1)
    for found, expected in zip(compiled(f.graph)(x, y), (np.exp(x), np.exp(y), x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_memory_sized_by_a_dim_that_no_argument_shows() -> None:
    """The two sums are one loop program with memory of k and of j elements, which is neither's argument."""

    @function
    def f(x: Tensor[f32, n], c: Tensor[f32, n, 1], y: Tensor[u8, k], z: Tensor[u8, j]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
        return ops.sum(ops.exp(ops.slice(x, 0, 0, k)) + c, axis=1), ops.sum(ops.exp(ops.slice(x, 0, 0, j)) + c, axis=1)

    assert len(kernels_of(f)) == 1
    assert sorted(str(t.bytes) for t in host_of(f.graph).temporaries) == ["j * 4", "k * 4"]
    x, c = random(40), random(40, 1, seed=1)
    found = compiled(f.graph, poison=True)(x, c, np.zeros(3, np.uint8), np.zeros(33, np.uint8))
    for size, sums in zip((3, 33), found, strict=True):
        np.testing.assert_allclose(sums, (np.exp(x[:size]) + c).sum(axis=1), rtol=1e-4)


def test_memory_sized_by_an_argument_is_refused() -> None:
    @kernel(scheduled=True)
    def sized(x: Tensor[f32, n], s: i64, y: Out[f32, n]) -> None:
        pliant.check(s > 0 and s < 100, "{0} is no size", s)
        t = alloc((s,), f32, scope="workspace")
        t[0] = 1.0
        for i in range(n):
            y[i] = x[i] + t[0]

    with pytest.raises(UnsupportedError, match=r"`sized` needs memory of a size that is known only while .* depends on `s`"):
        pliant.compile(sized, cache=False)


def test_a_callee_shows_the_signature_of_its_program() -> None:
    @kernel
    def update(x: Tensor[f32, n, 4], by: i32, total: InOut[f32, n], count: Out[i32, 1]) -> None:
        count[0] = by
        for i in range(n):
            total[i] += x[i, 0] * cast(f32, by)

    callee = callee_of(update.func)
    assert [(p.name, str(p.dtype), p.role) for p in callee.params] == [
        *(("x", "f32", "in"), ("by", "i32", "in"), ("total", "f32", "inout"), ("count", "i32", "out")),
    ]
    assert callee.params[0].shape == (n, Const(4, n.dtype)) and callee.params[1].shape is None  # type: ignore[attr-defined]
    assert func_of(callee) is update.func
    entry = pliant.Program.of_kernel(update.func).entry
    assert [(p.name, str(p.annotation)) for p in entry.params] == [("x", "Tensor[f32, n, 4]"), ("by", "i32"), ("total", "State[f32, n]")]
    total = np.zeros(2, np.float32)
    state, count = compiled(entry)(random(2, 4), 3, total)
    assert state is total and count.tolist() == [3]


def test_what_a_python_function_cannot_be_given_is_named() -> None:
    @function
    def f(x: Tensor[u4, n, 8]) -> Tensor[f32, n]:
        return ops.call_host(np.sin, [x], out=Tensor[f32, n])

    with pytest.raises(UnsupportedError, match="`sin` takes and gives contiguous tensors") as found:
        lowered(f.graph)
    assert "`x` is Tensor[u4, n, 8]" in str(found.value)
