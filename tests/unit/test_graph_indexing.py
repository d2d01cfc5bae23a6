"""Subscripts and unrolled loops of graph functions: numpy's meaning, interpreted and compiled, and text that reads back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import State, Tensor, dim, f32, function, i64, nn, ops
from pliant.interp.graph import run_graph
from pliant.support.errors import Error, ShapeError

n, m, k = dim("n"), dim("m"), dim("k")
weights = [np.full((4, 4), 0.5 * i, np.float32) + np.eye(4, dtype=np.float32) for i in range(3)]
stacked = np.stack(weights)
by_name = {"first": weights[0], "second": weights[1]}


class Layer:
    """Weights of one layer; `bias` may be missing."""

    def __init__(self, weight: Any, bias: Any = None) -> None:
        self.weight, self.bias = weight, bias


layers = [Layer(weights[0], np.ones(4, np.float32)), Layer(weights[1]), Layer(weights[2], np.full(4, 2, np.float32))]

SUBSCRIPTS = [
    *("0", "-1", ":, 0", ":, -2", "None", ":, None", "..., 1:", "..., None", "0, ..., 1", "1:, 0, None", "::-1, 1", "..., ::2"),
    *("None, 0, :, None, 1:3", "..., 0", "-1, -1, -1", "...", ":", "0, 0", "None, ..., None", "[0, 2]", ":, [1, 0, 1]", "0, [1, 0]"),
    *("[[0, 1], [2, 0]]", ":, None, [0, 1]", "1, 0, [1, 2], None", "..., [3, 0]"),
]
SHAPE = (3, 2, 4)


def sliced(subscript: str) -> Any:
    """The function x[subscript] of a tensor of three dynamic dims."""
    text = "from pliant import Tensor, dim, f32, function, ops\n\n"
    text += 'n = dim("n")\nm = dim("m")\nk = dim("k")\n\n\n@function\n'
    text += f"def f(x: Tensor[f32, n, m, k]):\n    return x[{subscript}]\n"
    return pliant.parse(text).entry


def expected(x: np.ndarray[Any, Any], subscript: str) -> np.ndarray[Any, Any]:
    return np.asarray(eval(f"x[{subscript}]", {"x": x}))


def same(function: Any, args: list[Any], wanted: Any) -> None:
    """Asserts that interpreter and compiled program give what numpy gives."""
    (found,) = run_graph(function, args)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(pliant.compile(function)(*args), found)


@pytest.mark.parametrize("subscript", SUBSCRIPTS)
def test_subscripts(subscript: str) -> None:
    x = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    same(sliced(subscript), [x], expected(x, subscript))


@pytest.mark.parametrize("seed", range(8))
def test_random_subscripts(seed: int) -> None:
    rng = random.Random(seed)
    x = np.random.default_rng(seed).standard_normal((5, 3, 4)).astype(np.float32)
    choices = ["None", ":", "0", "-1", "1:", ":2", "::2", "::-1", "1"]
    for _ in range(20):
        items = [rng.choice(choices) for _ in range(rng.randint(1, 4))]
        if rng.random() < 0.4:
            items.insert(rng.randint(0, len(items)), "...")
        if sum(i not in ("None", "...") for i in items) > 3:
            continue
        subscript = ", ".join(items)
        (found,) = run_graph(sliced(subscript), [x])
        np.testing.assert_array_equal(found, expected(x, subscript), err_msg=subscript)


def test_text_reads_back() -> None:
    for subscript in ("0", "..., 1:", "None, :, 0", "[0, 1]"):
        text = str(pliant.Program.of(sliced(subscript)))
        assert str(pliant.parse(text)) == text


def test_index_that_only_a_run_tells() -> None:
    @function
    def row(x: Tensor[f32, n, 4], at: i64) -> Tensor[f32, 4]:
        return x[at]

    @function
    def rows(x: Tensor[f32, n, 4], at: Tensor[i64, k]) -> Tensor[f32, k, 2]:
        return x[at, 1:3]

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert row(x, 1).tolist() == x[1].tolist() and row(x, -1).tolist() == x[-1].tolist()
    with pytest.raises(Error, match="index 3 is outside of dim 0, which has 3 elements"):
        row(x, 3)
    np.testing.assert_array_equal(rows(x, np.array([2, 0, 2])), x[[2, 0, 2], 1:3])


def test_first_of_no_rows() -> None:
    with pytest.raises(ShapeError, match="0:1 is not within the `n` elements of axis 0"):
        pliant.compile(sliced("0"))(np.zeros((0, 2, 3), np.float32))
    with pytest.raises(ShapeError, match="`n` = 0 is outside its contract: n in 1"):
        pliant.compile(sliced("-1"))(np.zeros((0, 2, 3), np.float32))


def test_rows_of_state() -> None:
    @function
    def newest(cache: State[f32, n, 4]) -> tuple[Tensor[f32, 4], State[f32, n, 4]]:
        return cache[-1], cache

    cache = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert newest(cache)[0].tolist() == [4, 5, 6, 7]


def test_modules_index_alike() -> None:
    class Last(nn.Module):
        inputs = {"x": Tensor[f32, n, 2, 4]}

        def forward(self, x: Any) -> Any:
            return x[:, -1, None]

    x = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    np.testing.assert_array_equal(pliant.compile(Last())(x), x[:, -1, None])

    class Apart(nn.Module):
        inputs = {"x": Tensor[f32, n, 2, 4], "i": Tensor[i64, k]}

        def forward(self, x: Any, i: Any) -> Any:
            return x[0, :, i]

    with pytest.raises(Error, match="an integer and a tensor index"):
        pliant.compile(Apart())


# Loops that are unrolled.


def chain(x: Any, arrays: Any) -> Any:
    for w in arrays:
        x = x @ w
    return x


X = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_for_over_weights() -> None:
    @function
    def lists(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        for w in weights:
            x = x @ w
        return x

    @function
    def indices(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        for i in range(len(weights)):
            x = x @ weights[i]
        return x

    @function
    def arrays(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        for w in stacked:
            x = x @ w
        return x

    @function
    def tensors(x: Tensor[f32, n, 4], ws: Tensor[f32, 3, 4, 4]) -> Tensor[f32, n, 4]:
        for w in ws:
            x = x @ w
        return x

    for f in (lists, indices, arrays):
        np.testing.assert_allclose(f(X), chain(X, weights), rtol=1e-6)
        assert sum("matmul" in line for line in str(f).splitlines() if " = " in line) == 3
    np.testing.assert_allclose(tensors(X, stacked), chain(X, weights), rtol=1e-6)


def test_for_over_pairs() -> None:
    @function
    def f(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        for i, (_, w) in enumerate(by_name.items(), 1):
            x = (x @ w) * float(i)
        for w, scale in zip(reversed(weights), (1.0, 2.0, 3.0), strict=True):
            x = x @ w * scale
        return x

    wanted = X @ weights[0] @ weights[1] * 2 @ weights[2] @ weights[1] * 2 @ weights[0] * 3
    np.testing.assert_allclose(f(X), wanted, rtol=1e-6)


def test_for_over_objects() -> None:
    @function
    def f(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        for at, layer in enumerate(layers):
            x = x @ layer.weight
            if layer.bias is not None:
                x = x + layer.bias
            if at == 1:
                x = ops.relu(x)
        return x + layers[0].bias

    x = np.maximum((X @ weights[0] + 1) @ weights[1], 0) @ weights[2] + 2 + 1
    np.testing.assert_allclose(f(X), x, rtol=1e-6)


def test_comprehensions() -> None:
    @function
    def f(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 12]:
        i = x
        parts = [x @ w for i, w in enumerate(weights) if i != 1]
        parts += [i]
        return ops.concat(parts, axis=1)

    wanted = np.concatenate([X @ weights[0], X @ weights[2], X], axis=1)
    np.testing.assert_allclose(f(X), wanted, rtol=1e-6)


def test_for_inside_while() -> None:
    @function
    def f(x: Tensor[f32, n, 4], times: i64) -> Tensor[f32, n, 4]:
        done = 0
        while done < times:
            for w in weights[:2]:
                x = x @ w
            done += 1
        return x

    same(f.graph, [X, np.int64(2)], chain(X, weights[:2] * 2))


def test_choice_when_read() -> None:
    flag = True

    @function
    def f(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        return ops.relu(x) if flag else ops.neg(x)

    assert "relu" in str(f) and "neg" not in str(f)
