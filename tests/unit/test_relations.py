"""Relations between dims that users declare: checked on entry, kept by passes and text, used by deduction, loop programs and the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Out, State, Tensor, dim, f32, function, kernel, match_cast, nn, ops
from pliant.graph.passes.inline_functions import inline_functions
from pliant.graph.passes.unique_dims import unique_dims
from pliant.graph.structural import assert_same, same
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.lower.host.memory_plan import Temporary, plan_memory
from pliant.support.errors import Error, ShapeError
from pliant.sym.expr import Le

n = dim("n")
m = dim("m", le=n)
twice = dim("twice", eq=2 * m)
free = dim("free")


@function
def parts(x: Tensor[f32, n, 4], y: Tensor[f32, m, 4], z: Tensor[f32, twice, 4]) -> Tensor[f32, m, 4]:
    return ops.exp(x[:m]) + y + z[:m] + z[m:]


def of(rows: int) -> Any:
    return np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)


def numpy_parts(x: Any, y: Any, z: Any) -> Any:
    k = len(y)
    return np.exp(x[:k]) + y + z[:k] + z[k:]


def test_what_is_declared_needs_no_other_check() -> None:
    """Without the relations the slices would be checked one by one."""
    assert "checked" not in str(parts)
    text = str(parts).splitlines()
    assert 'm = dim("m", le=n)' in text and 'twice = dim("twice", eq=2 * m)' in text


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 0), (3, 3), (5, 2), (40, 17)])
def test_results(a: int, b: int) -> None:
    args = [of(a), of(b), of(2 * b)]
    (interpreted,) = run_graph(parts.graph, args)
    np.testing.assert_allclose(parts(*args), numpy_parts(*args), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(interpreted, numpy_parts(*args), rtol=1e-6)


def test_calls_that_break_a_relation() -> None:
    for call in (lambda *a: parts(*a), lambda *a: run_graph(parts.graph, a)):
        with pytest.raises(ShapeError, match="`m` = 3 is more than `n` = 2") as error:
            call(of(2), of(3), of(6))
        assert "the declaration of the dims says m <= n" in str(error.value)
    with pytest.raises(ShapeError, match=r"argument `z`: dim 0 is 5, expected 4 \(`m \* 2`\)"):
        parts(of(3), of(2), of(5))
    with pytest.raises(ShapeError, match=r"`twice` = 5 is not `2 \* m` = 4"):
        run_graph(parts.graph, [of(3), of(2), of(5)])


def test_contract() -> None:
    f = pliant.compile(parts)
    assert "  m <= n" in str(f.contract).splitlines()
    assert f.contract.check({"x": (3, 4), "y": (2, 4), "z": (4, 4)}) == {"n": 3, "m": 2}
    with pytest.raises(ShapeError, match="`m` = 4 is more than `n` = 3"):
        f.contract.check({"x": (3, 4), "y": (4, 4), "z": (8, 4)})
    with pytest.raises(Error, match="is more than"):
        f.workspace(n=1, m=2)


def test_saved_programs_check_too(tmp_path: Any) -> None:
    pliant.compile(parts).save(tmp_path / "parts.pliant")
    f = pliant.load(tmp_path / "parts.pliant")
    assert "m <= n" in str(f.contract)
    with pytest.raises(ShapeError, match="is more than"):
        f(of(2), of(3), of(6))


def test_text_reads_back() -> None:
    again = pliant.parse(str(parts))
    assert str(again) == str(parts)
    assert_same(again.entry, parts.graph)
    low = dim("low", max=8, ge=(free, 2), le=free + 4)

    @function
    def f(x: Tensor[f32, low], y: Tensor[f32, free]) -> tuple[Tensor[f32, low], Tensor[f32, free]]:
        return x, y

    text = str(f)
    assert text.index('free = dim("free")') < text.index('low = dim("low", max=8, le=free + 4, ge=(2, free))')
    assert str(pliant.parse(text)) == text


def test_relations_are_part_of_the_structure() -> None:
    """Code for a program with a relation must not be taken for one without it."""
    a, b = dim("a"), dim("b")
    c = dim("b", le=a)

    @function
    def f(x: Tensor[f32, a], y: Tensor[f32, b]) -> tuple[Tensor[f32, a], Tensor[f32, b]]:
        return x, y

    @function
    def g(x: Tensor[f32, a], y: Tensor[f32, c]) -> tuple[Tensor[f32, a], Tensor[f32, c]]:
        return x, y

    assert not same(f.graph, g.graph.with_(name="f"))


def test_bound_dims() -> None:
    fixed = pliant.compile(parts, dims={"n": 3})
    assert "m in 0..3" in str(fixed.contract)
    with pytest.raises(ShapeError, match=r"`m` = 4 is outside its contract: m in 0\.\.3"):
        fixed(of(3), of(4), of(8))
    with pytest.raises(ShapeError, match="cannot have these dims: `m <= n` is declared, and cannot hold: 4 <= 3"):
        pliant.compile(parts, dims={"n": 3, "m": 4})
    half = pliant.compile(parts, dims={"twice": 4})
    args = [of(3), of(2), of(4)]
    np.testing.assert_array_equal(half(*args), parts(*args))
    with pytest.raises(ShapeError):
        half(of(3), of(1), of(4))
    np.testing.assert_array_equal(pliant.compile(parts, dims={"m": "n"})(of(2), of(2), of(4)), parts(of(2), of(2), of(4)))


def test_renamed_dims() -> None:
    other = dim("n")

    @function
    def f(w: Tensor[f32, other, 4], x: Tensor[f32, n, 4], y: Tensor[f32, m, 4]) -> Tensor[f32, m, 4]:
        return x[:m] + y

    renamed = unique_dims(f.graph)
    verify(renamed)
    assert 'dim("n_1", ge=m)' in str(renamed)
    with pytest.raises(ShapeError, match="`m` = 3 is more than `n_1` = 2"):
        f(of(9), of(2), of(3))


def test_called_functions() -> None:
    @function
    def unknown(x: Tensor[f32, free, 4], y: Tensor[f32, n, 4], z: Tensor[f32, 2, 4]) -> Tensor[f32, n, 4]:
        return ops.neg(parts(x, y, ops.concat([y, y], axis=0)))

    inlined = inline_functions(unknown.graph)
    verify(inlined)
    args = [of(3), of(2), of(2)]
    np.testing.assert_array_equal(unknown(*args), -parts(args[0], args[1], np.concatenate([args[1]] * 2)))
    for call in (lambda *a: unknown(*a), lambda *a: run_graph(unknown.graph, a), lambda *a: run_graph(inlined, a)):
        with pytest.raises(ShapeError, match="parts: `m` = 3 is more than `n` = 2"):
            call(of(2), of(3), of(2))

    @function
    def known(x: Tensor[f32, n, 4], y: Tensor[f32, m, 4]) -> Tensor[f32, m, 4]:
        return parts(x, y, ops.concat([y, y], axis=0))

    assert "<= n" not in str(known).split("def known")[1]
    verify(inline_functions(known.graph))
    np.testing.assert_array_equal(known(of(3), of(2)), parts(of(3), of(2), np.concatenate([of(2)] * 2)))


def test_kernels() -> None:
    @kernel
    def head(x: Tensor[f32, n], y: Tensor[f32, m], z: Out[f32, m]) -> None:
        pliant.check(m <= n, "more rows of y")
        for i in range(m):
            z[i] = x[i] + y[i]

    assert head(np.ones(3, np.float32), np.ones(2, np.float32)).tolist() == [2, 2]
    with pytest.raises(ShapeError, match="`m` = 3 is more than `n` = 2"):
        head(np.ones(2, np.float32), np.ones(3, np.float32))

    @function
    def called(x: Tensor[f32, free], y: Tensor[f32, n]) -> Tensor[f32, n]:
        return head(x, y)

    with pytest.raises(ShapeError, match="head: `m` = 3 is more than `n` = 2"):
        called(np.ones(2, np.float32), np.ones(3, np.float32))


def test_cast_to_a_dim_with_a_relation() -> None:
    @function
    def f(x: Tensor[f32, n, 4], y: Tensor[f32, free, 4]) -> Tensor[f32, m, 4]:
        y = match_cast(y, Tensor[f32, m, 4])
        return x[:m] + y

    np.testing.assert_array_equal(f(of(3), of(2)), of(3)[:2] + of(2))
    with pytest.raises(ShapeError, match="match_cast: `m` = 3 is more than `n` = 2"):
        f(of(2), of(3))


def test_state_and_modules() -> None:
    @function
    def step(cache: State[f32, n, 4], y: Tensor[f32, m, 4]) -> tuple[Tensor[f32, m, 4], State[f32, n, 4]]:
        return cache[:m] + y, cache

    np.testing.assert_array_equal(step(of(3), of(2))[0], of(3)[:2] + of(2))

    class Head(nn.Module):
        inputs = {"x": Tensor[f32, n, 4], "y": Tensor[f32, m, 4]}

        def forward(self, x: Any, y: Any) -> Any:
            return x[: y.shape[0]] + y

    f = pliant.compile(Head())
    assert "m <= n" in str(f.contract)
    np.testing.assert_array_equal(f(of(3), of(2)), of(3)[:2] + of(2))


def test_dims_that_no_parameter_has() -> None:
    with pytest.raises(ShapeError, match="no parameter has `n` as a dim, and `m <= n` is declared"):

        @function
        def f(y: Tensor[f32, m]) -> Tensor[f32, m]:
            return y

    with pytest.raises(Error, match="`le` of dim `a` is a dim or a non-negative integer, not of type `object`"):
        dim("a", le=object())


def test_refuted_by_a_relation() -> None:
    """What can never hold is an error at the user's line."""
    more = dim("more", ge=n + 1)
    with pytest.raises(ShapeError, match="is not within"):

        @function
        def f(x: Tensor[f32, n, 4], y: Tensor[f32, more, 4]) -> Tensor[f32, more, 4]:
            return x[:more] + y


def test_memory_plan() -> None:
    """Two temporaries that are not alive together need the larger one's memory, and the relation says which one that is."""
    temporaries = [Temporary(n * 400, 0, 1), Temporary(m * 400, 2, 3)]
    assert "max" in str(plan_memory(temporaries).size)
    plan = plan_memory(temporaries, relations=[Le(m, n)])
    assert "max" not in str(plan.size) and "m" not in str(plan.size)

    @function
    def f(x: Tensor[f32, n, 512], y: Tensor[f32, m, 512], w: Tensor[f32, 512, 512]) -> tuple[Tensor[f32, n], Tensor[f32, m]]:
        a = ops.sum((x @ w) @ w, axis=1)
        b = ops.sum((y @ w) @ w, axis=1)
        return a, b

    size = str(pliant.compile(f).workspace)
    assert "max" not in size, size
