"""Convolutions by Winograd's algorithm: where they are taken, what they keep equal, and how near to the truth they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import call, compiled, host_of, interpret_host
from pliant import ops
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import Function, Op, Tensor
from pliant.interp.graph import run_graph
from pliant.lower.winograd_convolutions import winograd_convolutions
from pliant.schedule.decisions import Decisions
from pliant.sym.expr import Dim, const
from pliant.target import target

V3 = target("llvm:x86-64-v3")


def weights(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(np.float32)


def images(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def net(body: Callable[[Any], Any], shape: tuple[Any, ...]) -> Function:
    builder = Builder("net")
    x = builder.param("x", Tensor(f32, tuple(const(e) if isinstance(e, int) else e for e in shape)))
    with builder:
        result = body(x)
    return builder.finish([result])


def dynamic(channels: int) -> tuple[Any, ...]:
    return Dim("n"), channels, Dim("h", min=1), Dim("w", min=1)


def layers(x: Any, channels: int = 24, out: int = 40, padding: Any = 1, after: str = "silu") -> Any:
    """A layer that may take the algorithm between two that do not."""
    y = ops.relu(ops.conv(x, weights(channels, 8, 1, 1), weights(channels)))
    z = ops.conv(y, weights(out, channels, 3, 3, seed=2), weights(out, seed=3), padding=padding)
    z = ops.mul(z, ops.sigmoid(z)) if after == "silu" else ops.relu(ops.add(z, y)) if after == "residual" else z
    return ops.conv(z, weights(8, out, 1, 1, seed=4))


def tiles(function: Function, decisions: dict[str, Any] | None = None, accuracy: str = "full") -> list[int]:
    """The tiles of the convolutions of a function that take the algorithm."""
    done = winograd_convolutions(function, V3, Decisions(decisions, accuracy=accuracy))
    return [n.attrs.tile for n in done.nodes if isinstance(n, Op) and n.op == "winograd_conv"]


def taken(function: Function, decisions: dict[str, Any] | None = None) -> int:
    """How many convolutions of a function take the algorithm."""
    return len(tiles(function, decisions))


def one(channels: int = 24, out: int = 24, size: Any = 16, window: int = 3, **attrs: Any) -> Function:
    groups = attrs.get("groups", 1)
    return net(lambda x: ops.conv(x, weights(out, channels // groups, window, window), padding=1, **attrs), (1, channels, size, size))


def test_taken_from_24_channels_and_49_places_on() -> None:
    assert taken(one()) == 1
    assert taken(one(channels=20)) == taken(one(out=20)) == 0
    assert taken(one(size=7)) == 1
    assert taken(one(size=6)) == 0
    assert taken(one(size=Dim("s", min=1))) == 1
    assert taken(one(size=Dim("s", min=1, max=6))) == 0  # the contract says that images are small


def test_larger_tiles_are_taken_on_request_from_32_channels_and_144_places_on() -> None:
    assert tiles(one(32, 32, 16)) == [2]
    assert tiles(one(32, 32, 16), accuracy="fast") == tiles(one(32, 32, 12), accuracy="fast") == [4]
    assert tiles(one(32, 32, 11), accuracy="fast") == tiles(one(24, 32), accuracy="fast") == tiles(one(32, 24), accuracy="fast") == [2]
    assert tiles(one(32, 32, Dim("s", min=1)), accuracy="fast") == [4]
    assert tiles(one(channels=20), accuracy="fast") == []
    f = pliant.compile(one(), cache=False)
    (name,) = (line.split(" = ")[0].strip() for line in str(pliant.explain(f)).splitlines() if ".winograd_tile = 2, of 2, 4" in line)
    assert tiles(one(), {name: 4}) == [4]
    with pytest.raises(pliant.Error, match="there is no accuracy 'low'"):
        pliant.compile(one(), accuracy="low")  # type: ignore[arg-type]
    with pytest.raises(pliant.Error, match="winograd_weight: tiles of 3 results are not supported"):
        net(lambda x: ops.winograd_conv(x, ops.winograd_weight(weights(8, 8, 3, 3), tile=3), tile=3), (1, 8, 9, 9))


def test_accuracies_are_kept_side_by_side(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))
    program, x = one(32, 32), images(1, 32, 16, 16)
    for _ in range(2):  # compiled, then found
        full, fast = pliant.compile(program), pliant.compile(program, accuracy="fast")
        assert full(x).tobytes() != fast(x).tobytes()


@pytest.mark.parametrize("attrs", [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {"window": 5}, {"window": 1}])
def test_not_taken_for_other_windows(attrs: dict[str, Any]) -> None:
    assert taken(one(channels=48, out=48, **attrs)) == 0


def test_not_taken_if_the_weight_is_no_literal_of_its_dtype() -> None:
    builder = Builder("net")
    x, w = (
        builder.param("x", Tensor(f32, tuple(map(const, (1, 24, 16, 16))))),
        builder.param("w", Tensor(f32, tuple(map(const, (24, 24, 3, 3))))),
    )
    with builder:
        y = ops.conv(x, w, padding=1)
        z = ops.conv(y, ops.cast(weights(24, 24, 3, 3).astype(np.float16), f32), padding=1)  # kept in 16 bits
    assert taken(builder.finish([z])) == 0


def test_a_weight_computed_from_literals_is_transformed_once_when_the_program_is_loaded() -> None:
    def body(x: Any) -> Any:
        w = ops.mul(weights(24, 24, 3, 3), weights(24, 1, 1, 1))
        return ops.conv(ops.conv(x, w, padding=1), w, padding=1)

    function = net(body, (1, 24, 16, 16))
    assert taken(function) == 2
    done = winograd_convolutions(function, V3)
    assert [n.op for n in done.nodes if isinstance(n, Op)].count("winograd_weight") == 1
    x = images(1, 24, 16, 16)
    f = pliant.compile(function, cache=False)
    np.testing.assert_allclose(f(x), run_graph(function, [x])[0], rtol=1e-4, atol=1e-5)
    assert "winograd_weight" in str(pliant.explain(f)).split("when the program is loaded:")[1]


def test_the_decision_turns_it_off_and_on() -> None:
    function = net(layers, dynamic(8))
    assert taken(function) == 1
    f = pliant.compile(function, cache=False)
    text = str(pliant.explain(f))
    (line,) = (line.strip() for line in text.splitlines() if ".winograd = " in line and "True, of False, True" in line)
    name = line.split(" = ")[0]
    assert "winograd: `sum` in tiles of" in text
    off = pliant.compile(function, cache=False, decisions={name: False})
    assert "winograd:" not in str(pliant.explain(off))
    small = net(lambda x: layers(x, 16, 16), dynamic(8))
    assert taken(small) == 0
    assert taken(small, {name: True}) == 1
    x = images(2, 8, 9, 14)
    np.testing.assert_allclose(f(x), off(x), rtol=1e-4, atol=1e-5)


SHAPES = [((2, 8, 12, 16), "silu", "full"), ((3, 8, 9, 7), "residual", "full"), ((2, 8, 13, 18), "silu", "fast")]


@pytest.mark.parametrize(("shape", "after", "accuracy"), SHAPES)
def test_all_programs_of_a_layer_have_the_same_bits(shape: tuple[int, ...], after: str, accuracy: Any) -> None:
    def body(x: Any) -> Any:
        return layers(x, 32, 32, after=after)

    x = images(*shape)
    any_size, known_size = net(body, dynamic(8)), net(body, shape)
    program = pliant.compile(any_size, threads=1, accuracy=accuracy)
    expected = program(x)
    assert pliant.compile(any_size, threads=2, accuracy=accuracy)(x).tobytes() == expected.tobytes()
    assert pliant.compile(known_size, cache=False, accuracy=accuracy)(x).tobytes() == expected.tobytes()
    assert np.concatenate([program(x[k : k + 1]) for k in range(shape[0])]).tobytes() == expected.tobytes()
    np.testing.assert_allclose(expected, run_graph(known_size, [x])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "padding", "tile"), [((3, 5), ((2, 0), (1, 3)), 2), ((4, 3), 0, 2), ((6, 5), ((2, 0), (1, 3)), 4)])
def test_compiled_programs_have_the_bits_of_the_interpreter(size: tuple[int, int], padding: Any, tile: int) -> None:
    def body(x: Any) -> Any:
        if tile == 2:
            return ops.conv(layers(x, 24, 24, padding=padding), weights(8, 8, 1, 1))
        y = ops.relu(ops.conv(x, weights(16, 8, 1, 1), weights(16)))
        z = ops.winograd_conv(y, ops.winograd_weight(weights(16, 16, 3, 3, seed=2), tile=4), padding=padding, tile=4)
        return ops.conv(ops.relu(z), weights(8, 16, 1, 1, seed=4))

    function = net(body, dynamic(8))
    x = images(1, 8, *size)
    (found,) = call(compiled(function, poison=True), [x])
    (expected,) = interpret_host(host_of(function, poison=True), [x])
    assert found.tobytes() == expected.tobytes()


def test_images_stay_in_blocks_of_channels() -> None:
    def body(x: Any) -> Any:
        y = ops.conv(x, weights(24, 8, 3, 3), padding=1)
        return ops.conv(ops.relu(ops.conv(y, weights(40, 24, 3, 3), padding=1)), weights(8, 40, 1, 1))

    f = pliant.compile(net(body, (1, 8, 16, 16)), target="llvm:x86-64-v3", cache=False)
    (line,) = (line for line in str(pliant.explain(f)).splitlines() if line.startswith("winograd_conv"))
    assert "f32[3, 16, 16, 8]" in line and "f32[5, 16, 16, 8]" in line


def test_an_argument_and_a_result_may_have_any_layout() -> None:
    for shape in ((2, 24, 9, 11), dynamic(24)):
        function = net(lambda x: ops.conv(x, weights(32, 24, 3, 3), weights(32), padding=1), shape)
        f = pliant.compile(function, cache=False)
        assert "winograd: `sum`" in str(pliant.explain(f))
        x = images(2, 24, 9, 11)
        np.testing.assert_allclose(f(x), run_graph(function, [x])[0], rtol=1e-4, atol=1e-5)


def plain_sums(x: Any, w: Any) -> Any:
    """A convolution with padding 1 whose f32 sums run over channels and taps, one term after the other, as they stand."""
    h, v = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    total = np.zeros((x.shape[0], w.shape[0], h, v), np.float32)
    for c in range(x.shape[1]):
        for a in range(3):
            for b in range(3):
                total += padded[:, c, None, a : a + h, b : b + v] * w[None, :, c, a, b, None, None]
    return total


@pytest.mark.parametrize(("channels", "out", "size"), [(24, 24, 14), (64, 24, 9), (256, 24, 7)])
def test_nearer_to_the_truth_than_plain_direct_sums(channels: int, out: int, size: int) -> None:
    ratios = []
    for seed in range(3):
        w = weights(out, channels, 3, 3, seed=seed)
        function = net(lambda x, w=w: ops.conv(x, w, padding=1), (1, channels, size, size))
        assert taken(function) == 1
        x = np.maximum(images(1, channels, size, size, seed=seed + 10), 0)
        truth = run_graph(function, [x.astype(np.float32)])[0]  # in float64, rounded once
        found, plain = pliant.compile(function, cache=False)(x), plain_sums(x, w)
        errors = [np.sqrt(np.mean((y.astype(np.float64) - truth) ** 2)) for y in (found, plain)]
        ratios.append(errors[0] / errors[1])
    assert max(ratios) < 1, ratios


@pytest.mark.parametrize(("channels", "size"), [(32, 12), (128, 12)])
def test_error_of_larger_tiles(channels: int, size: int) -> None:
    """The documented bound: at most three times the error of plain direct sums, and 1e-5 of the largest result."""
    w = weights(32, channels, 3, 3)
    function = net(lambda x: ops.conv(x, w, padding=1), (1, channels, size, size))
    assert tiles(function, accuracy="fast") == [4]
    x = np.maximum(images(1, channels, size, size), 0).astype(np.float32)
    truth = run_graph(function, [x])[0]
    found, plain = pliant.compile(function, cache=False, accuracy="fast")(x), plain_sums(x, w)
    errors = [np.sqrt(np.mean((y.astype(np.float64) - truth) ** 2)) for y in (found, plain)]
    assert errors[0] < 3 * errors[1]
    assert np.abs(found - truth).max() < 1e-5 * np.abs(truth).max()
