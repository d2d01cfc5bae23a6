"""`effort="fast"` compiles other tiles than `effort="full"`: less code, and results of the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.pipeline import compile_program
from pliant.schedule.tile_cost_model import plain_tile

n, m = dim("n"), dim("m")
h, w = dim("h", min=6), dim("w", min=6)
Array = np.ndarray[Any, Any]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def image_net(channels: int) -> Any:
    """Convolutions in blocks of channels, one of them depthwise, a 1x1 convolution, and activations."""
    first, deep = random(channels, 3, 3, 3, seed=1), random(channels, 1, 3, 3, seed=2)
    last, point = random(20, channels, 3, 3, seed=3), random(2 * channels, channels, 1, 1, seed=4)
    again = random(channels, 2 * channels, 1, 1, seed=5)

    @function
    def f(x: Tensor[f32, n, 3, h, w]) -> Tensor[f32, n, 20, (h + 1) // 2, (w + 1) // 2]:
        y = ops.silu(ops.conv(x, first, padding=1, stride=2))
        z = ops.relu(ops.conv(y, deep, padding=1, groups=channels))
        y = y + ops.conv(ops.relu(ops.conv(z, point)), again)
        return ops.conv(y, last, padding=1)

    return f


def products(width: int) -> Any:
    one, two = random(width, 3 * width, seed=1), random(3 * width, width + 3, seed=2)

    @function
    def f(x: Tensor[f32, n, width]) -> Tensor[f32, n, width + 3]:
        return ops.softmax(ops.relu(x @ one) @ two)

    return f


@function
def unknown_products(a: Tensor[f32, n, 40], b: Tensor[f32, 40, m]) -> Tensor[f32, n, m]:
    return a @ b


CASES: dict[str, tuple[Callable[[], Any], list[tuple[Array, ...]]]] = {
    "images of any size": (lambda: image_net(24), [(random(k, 3, 6 + k, 21 - k),) for k in (1, 2, 5)]),
    "images of one size": (lambda: pliant.Program.of(image_net(32).graph).with_dims({"n": 1, "h": 20, "w": 26}), [(random(1, 3, 20, 26),)]),
    "products": (lambda: products(48), [(random(k, 48),) for k in (1, 5, 17)]),
    "products of a few columns": (lambda: products(5), [(random(k, 5),) for k in (1, 6)]),
    "products of unknown columns": (lambda: unknown_products, [(random(k, 40), random(40, 3 * k + 1)) for k in (1, 4, 30)]),
}


@pytest.mark.parametrize("name", CASES)
def test_results_have_the_same_bits(name: str) -> None:
    make, inputs = CASES[name]
    source = make()
    full, fast = pliant.compile(source), pliant.compile(source, effort="fast")
    for arrays in inputs:
        np.testing.assert_array_equal(full(*arrays), fast(*arrays))


def test_there_is_less_code() -> None:
    """Of a convolution over images of any width there is one body, not one for each remainder of a tile."""
    program = pliant.Program.of(image_net(24).graph)
    full, fast = (compile_program(program, effort=effort) for effort in ("full", "fast"))
    assert len(fast.blob.to_bytes()) < 0.7 * len(full.blob.to_bytes())


def test_both_are_kept_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))
    program = pliant.Program.of(products(48).graph)
    made = {(effort, cache): compile_program(program, effort=effort, cache=cache) for cache in (False, True) for effort in ("full", "fast")}
    for effort in ("full", "fast"):
        assert compile_program(program, effort=effort).to_bytes() == made[effort, True].to_bytes() == made[effort, False].to_bytes()
    assert made["full", True].blob.to_bytes() != made["fast", True].blob.to_bytes()


def test_a_decision_that_was_asked_for_is_taken() -> None:
    source = products(48)
    rules = compile_program(pliant.Program.of(source.graph), effort="fast", cache=False).interface.rules
    tiles = {c.value for r in rules for c in r.choices if c.name.endswith(".tile")}
    assert tiles and all(t.startswith("1x") for t in tiles), "rows are not known"
    asked = {c.name: (4, 2) for r in rules for c in r.choices if c.name.endswith(".tile")}
    rules = compile_program(pliant.Program.of(source.graph), effort="fast", cache=False, decisions=asked).interface.rules
    assert {c.value for r in rules for c in r.choices if c.name.endswith(".tile")} == {"4x2"}


def test_a_plain_tile_leaves_no_remainder() -> None:
    tiles = [(r, v) for r in range(1, 9) for v in range(1, 5)]
    assert plain_tile(tiles, None, None) == (1, 4)
    assert plain_tile(tiles, None, 6) == (1, 3)
    assert plain_tile(tiles, 20, 4) == (2, 4)
    assert plain_tile(tiles, 7, 1) == (7, 1)
    assert plain_tile([(3, 2)], None, 2) is None


def test_another_effort_is_refused() -> None:
    with pytest.raises(pliant.Error, match="there is no effort 'quick'"):
        pliant.compile(unknown_products, effort="quick")  # type: ignore[arg-type]
