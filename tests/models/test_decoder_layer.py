"""The example: one compiled program for prefill, decode and ragged batches, against numpy, the interpreter and itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decoder_layer as example
import pliant
from pliant.compilation import State
from pliant.graph.node import CallLoop
from pliant.graph.verify import verify as verify_graph
from pliant.interp.graph import run_graph
from pliant.loop.parse import parse_module
from pliant.loop.printer import print_func
from pliant.loop.stmt import Func
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.pipeline import STEPS
from pliant.target import target

WEIGHTS = example.random_weights()


@pytest.fixture(scope="module")
def layer() -> Any:
    return pliant.compile(example.decoder_layer)


def step(layer: Any, cache: example.Cache, counts: dict[int, int], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    y, keys, values = layer(x=x, **cache.step(counts), **WEIGHTS, keys=cache.keys, values=cache.values)
    assert keys is cache.keys and values is cache.values, "state is updated in place"
    return np.asarray(y)


def tokens(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((n, example.WIDTH)).astype(np.float32)


@pytest.mark.parametrize("n", [1, 2, 5, 11, 12, 13, 17, 63, 64, 65, 128, 300])
def test_prefill_equals_numpy(layer: Any, n: int) -> None:
    ours, theirs = example.run_steps(layer, WEIGHTS, [{0: n}], 1)
    assert example.worst(ours, theirs) < 5e-6


def test_decode_after_prefill_equals_numpy(layer: Any) -> None:
    ours, theirs = example.run_steps(layer, WEIGHTS, [{0: 60}, *({0: 1} for _ in range(10)), {0: 7}, {0: 1}], 1)
    assert example.worst(ours, theirs) < 5e-6


def test_a_batch_of_sequences_of_different_lengths_equals_numpy(layer: Any) -> None:
    steps = [{0: 70}, {0: 1, 1: 33, 2: 5}, {0: 1, 1: 1, 2: 1}, {1: 64}, {0: 2, 2: 130}]
    ours, theirs = example.run_steps(layer, WEIGHTS, steps, 3)
    assert example.worst(ours, theirs) < 5e-6


def test_a_row_alone_equals_the_row_in_a_batch_bit_for_bit(layer: Any) -> None:
    lengths = {0: 37, 1: 1, 2: 66, 3: 13}
    x = {s: tokens(n, seed=s) for s, n in lengths.items()}
    together = example.Cache(pages=16, slots=4, sequences=4)
    batch = step(layer, together, lengths, np.concatenate([x[s] for s in sorted(lengths)]))
    at = 0
    for s, n in lengths.items():
        alone = example.Cache(pages=16, slots=4, sequences=4)
        assert np.array_equal(step(layer, alone, {s: n}, x[s]), batch[at : at + n]), f"sequence {s}"
        at += n


def test_a_prompt_in_pieces_equals_the_prompt_at_once_bit_for_bit(layer: Any) -> None:
    x = tokens(77)
    whole = step(layer, example.Cache(16, 4, 1), {0: 77}, x)
    cache = example.Cache(16, 4, 1)
    pieces = [step(layer, cache, {0: b - a}, x[a:b]) for a, b in ((0, 1), (1, 30), (30, 64), (64, 65), (65, 77))]
    assert np.array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("n", [1, 50, 200])
def test_two_threads_equal_one_bit_for_bit(n: int) -> None:
    results = []
    for threads in (1, 2):
        layer = pliant.compile(example.decoder_layer, threads=threads)
        results.append(step(layer, example.Cache(16, 4, 1), {0: n}, tokens(n)))
    assert np.array_equal(*results)


def test_the_interpreter_agrees(layer: Any) -> None:
    counts = {0: 3, 1: 2}
    native, interpreted = example.Cache(4, 2, 2), example.Cache(4, 2, 2)
    x = tokens(5)
    ours = step(layer, native, counts, x)
    arguments = {"x": x, **interpreted.step(counts), **WEIGHTS, "keys": interpreted.keys, "values": interpreted.values}
    graph = example.decoder_layer.graph
    y, keys, values = run_graph(graph, [arguments[p.name] for p in graph.params])
    assert np.abs(ours - y).max() < 5e-6 * np.abs(y).max()
    for mine, other in ((native.keys, keys), (native.values, values)):
        assert np.abs(mine - other).max() < 5e-6


def test_broken_indices_are_refused_not_followed(layer: Any) -> None:
    cache = example.Cache(4, 2, 1)
    index = cache.step({0: 3})
    for name, wrong, message in (
        ("page_table", np.array([[99, 0]], np.int32), "page 99 is not in the cache of 4 pages"),
        ("page_table", np.array([[-1, 0]], np.int32), "page -1 is not in the cache of 4 pages"),
        ("seq_start", np.array([0, 2], np.int32), "seq_start runs from 0 to 2, not from 0 to 3"),
        ("positions", np.array([0, 1, 900], np.int32), "token 2 is at 900, beyond 3"),
    ):
        with pytest.raises(pliant.Error, match=message):
            layer(x=tokens(3), **{**index, name: wrong}, **WEIGHTS, keys=cache.keys, values=cache.values)


def test_every_loop_program_of_every_step_verifies_and_reads_back() -> None:
    program = pliant.Program(example.decoder_layer.graph)
    state = State(program.entry, target("native"), program.constants)
    for step_ in STEPS[:-1]:
        state = step_.run(state)
        verify_graph(state.function)
        funcs = [n.callee.program for n in state.function.nodes if isinstance(n, CallLoop)]
        if state.host is not None:
            funcs += [state.host.prepare, state.host.size, state.host.run]
        for f in funcs:
            assert isinstance(f, Func)
            verify(f)
            assert_same(f, parse_module(print_func(f))[f.name])
