"""Host programs with branches and loops: native code, wasm in wasmtime and the interpreter agree, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiled_graphs import call, compiled, host_of, interpret_host
from native_loops import same_bits
from pliant import InOut, State, Tensor, bool_, dim, f32, function, i64, kernel, ops
from pliant.interp.graph import run_graph
from wasm_programs import module_of, run_host

n = dim("n", max=64)


@kernel
def add_to(x: Tensor[f32, n], total: InOut[f32, n]) -> None:
    for i in range(n):
        total[i] = total[i] + x[i]


@function
def power(x: Tensor[f32, n, n], times: i64) -> Tensor[f32, n, n]:
    y = x
    k = 1
    while k < times:
        y = y @ x
        k += 1
    return y


@function
def nested(x: Tensor[f32, n], total: State[f32, n], times: i64) -> tuple[Tensor[f32, n], Tensor[f32, n], State[f32, n], i64]:
    a = x
    b = x * 2.0
    c = ops.abs(x)
    k = 0
    while k < times:
        t = a + b
        a, b = b, t
        total = add_to(a * c, total)
        j = 0
        while j < k:
            b = b + a * 0.5
            j += 1
        a, b = b, a
        k += 1
    return a, b, total, k


@function
def halved(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], i64]:
    y = x
    k = 0
    while ops.max(y) > 1.0:  # known only from the data
        y = y * 0.5
        k += 1
    return y, k


@function
def swapped(x: Tensor[f32, n], times: i64) -> tuple[Tensor[f32, n], Tensor[f32, n], Tensor[f32, n]]:
    a, b, c = x, x + 1.0, x + 2.0
    while times > 0:
        a, b, c = b, c, a
        times -= 1
    return a, b, c


@function
def chosen(x: Tensor[f32, n], total: State[f32, n], b: bool_, times: i64) -> tuple[State[f32, n], Tensor[f32, n]]:
    y = x
    k = 0
    while k < times:
        if b:
            total = add_to(y, total)
        else:
            y = y * 2.0
            if k > 1:
                total = add_to(x, total)
        k += 1
    return total, y


def random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(-4, 5, shape).astype(np.float32)  # sums and products of these are exact


CASES: dict[str, tuple[Any, list[list[Any]]]] = {
    "power": (power, [[random(k, k), t] for k in (0, 1, 3) for t in (0, 1, 2, 5)]),
    "nested": (nested, [[random(k), random(k) + 1, t] for k in (0, 5) for t in (0, 1, 4)]),
    "halved": (halved, [[random(5) * 8], [np.full(3, 0.5, np.float32)]]),
    "swapped": (swapped, [[random(5), t] for t in (0, 1, 2, 3, 4)]),
    "chosen": (chosen, [[random(5), random(5) + 1, b, t] for b in (True, False) for t in (0, 1, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_native_and_host_program_and_graph_agree(name: str) -> None:
    f, rounds = CASES[name]
    for poison in (False, True):
        native, host = compiled(f.graph, poison=poison), host_of(f.graph, poison=poison)
        for arguments in rounds:
            expected, *others = [[np.array(a) for a in arguments] for _ in range(3)]
            wanted = [*run_graph(f.graph, expected), *expected]
            for found in ([*call(native, others[0]), *others[0]], [*interpret_host(host, others[1]), *others[1]]):
                assert all(same_bits(x, y) for x, y in zip(wanted, found, strict=True)), (arguments, poison)


@pytest.mark.parametrize("name", CASES)
def test_wasm_equals_native(name: str) -> None:
    pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
    f, rounds = CASES[name]
    native, host = compiled(f.graph), host_of(f.graph)
    module = module_of(host)
    for arguments in rounds:
        ours, theirs = [np.array(a) for a in arguments], [np.array(a) for a in arguments]
        for x, y in zip([*call(native, ours), *ours], [*run_host(host, theirs, module), *theirs], strict=True):
            assert same_bits(x, y)


def test_numpy_has_the_same() -> None:
    x = random(3, 3)
    np.testing.assert_array_equal(power(x, 4), x @ x @ x @ x)
    a, b, c = swapped(x[0], 2)
    np.testing.assert_array_equal([a, b, c], [x[0] + 2, x[0], x[0] + 1])


def test_memory_from_before_a_loop_is_not_used_again_inside() -> None:
    """`c` is read in every round: nothing of a round may lie where it does, though its last use comes before theirs."""

    @function
    def f(x: Tensor[f32, n], times: i64) -> Tensor[f32, n]:
        c = ops.softmax(x)
        y = x
        while times > 0:
            d = ops.softmax(y * c)
            e = ops.softmax(d + y)
            y = ops.softmax(d - e)
            times -= 1
        return y

    arguments = [random(7), 3]
    for found in (compiled(f.graph)(*arguments), compiled(f.graph, poison=True)(*arguments)):
        np.testing.assert_allclose(found, run_graph(f.graph, arguments)[0], rtol=1e-5)
