"""Calls of executables: results, outputs, state, scalars, run-time counts, many threads."""

from __future__ import annotations

import ctypes
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest
from runtime_programs import add_package, count_package, positives_package

from pliant.runtime import cpython_api
from pliant.runtime.executable import Executable
from pliant.runtime.threads import threads
from pliant.support.errors import Error, InternalError, ShapeError


@pytest.fixture(params=["fast path", "slow path"])
def add(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Executable:
    """The same program entered by both paths: by native code, and as where numpy's records were not as expected."""
    if request.param == "slow path":
        monkeypatch.setattr(cpython_api, "host", lambda: None)
    return Executable(add_package())


@pytest.fixture
def count() -> Executable:
    return Executable(count_package())


def pair(n: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(n)
    return chance.standard_normal(n, np.float32), chance.standard_normal(n, np.float32)


@pytest.mark.parametrize("n", [8, 16, 512, 520, 2048])
def test_calls(add: Executable, n: int) -> None:
    a, b = pair(n)
    for result in (add(a, b), add(a, b=b), add(b=b, a=a), add.run({"a": a, "b": b})["y"]):
        assert result.dtype == np.float32 and np.array_equal(result, a + b)
    with threads(1):
        assert np.array_equal(add(a, b), a + b)


def test_given_outputs(add: Executable) -> None:
    a, b = pair(16)
    y = np.empty(16, np.float32)
    assert add(a, b, out=y) is y and np.array_equal(y, a + b)
    y[:] = 0
    assert add(a, b, out=(y,)) is y and np.array_equal(y, a + b)
    y[:] = 0
    assert add.run({"a": a, "b": b}, out={"y": y})["y"] is y and np.array_equal(y, a + b)
    assert np.array_equal(add.run({"a": a, "b": b}, out={})["y"], a + b)


def test_one_array_for_two_arguments(add: Executable) -> None:
    a, _ = pair(16)
    assert np.array_equal(add(a, a), a + a)


def test_subclasses_and_other_arrays(add: Executable, tmp_path: Any) -> None:
    a, b = pair(16)
    mapped = np.memmap(tmp_path / "a", np.float32, "w+", shape=(16,))
    mapped[:] = a
    assert np.array_equal(add(mapped, b), a + b)

    class Foreign:
        """Only DLPack."""

        def __dlpack__(self, **named: Any) -> Any:
            return a.__dlpack__(**named)

        def __dlpack_device__(self) -> Any:
            return a.__dlpack_device__()

    assert np.array_equal(add(Foreign(), b), a + b)
    a.flags.writeable = False
    assert np.array_equal(add(a, b), a + b), "arguments may be read-only"


def test_a_dtype_that_is_equal_and_another_object(add: Executable) -> None:
    a, b = pair(16)
    odd = a.view(np.dtype(np.float32, metadata={"unit": "m"}))
    assert np.array_equal(add(odd, b), a + b)


def test_the_stride_of_a_dim_of_one_means_nothing() -> None:
    positives = Executable(positives_package(), constants=[np.array([2.0], np.float32)])
    x = np.arange(1, 9, dtype=np.float32)[::8]
    assert x.shape == (1,) and np.array_equal(positives(x), [2.0])


def test_what_it_says_of_itself(add: Executable) -> None:
    assert [i.name for i in add.inputs] == ["a", "b"] and [o.name for o in add.outputs] == ["y"]
    assert [str(d) for d in add.dims] == ["n in 1..2048 step 8"]
    assert str(add.contract).splitlines() == [
        "add",
        "  a: Tensor[f32, n]",
        "  b: Tensor[f32, n]",
        "  -> y: Tensor[f32, n]",
        "  n in 1..2048 step 8",
        "  workspace: 4*n bytes, at most 8192",
    ]
    assert repr(add) == "<Executable add(a: Tensor[f32, n], b: Tensor[f32, n]) -> y: Tensor[f32, n]>"
    assert (str(add.workspace), add.workspace(n=128), add.workspace.max) == ("4*n", 512, 8192)
    assert add.contract.check({"a": (16,), "b": (16,)}) == {"n": 16}


def test_a_long_formula_of_memory_is_not_printed() -> None:
    package = add_package()
    formula = "4*n + " * 100 + "0"
    long = Executable(package._replace(interface=package.interface._replace(workspace=formula)))
    assert str(long.contract).splitlines()[-1] == "  workspace: as many bytes as workspace(n=…) says, at most 8192"
    assert repr(long.workspace) == "<workspace: as many bytes as workspace(n=…) says>"
    assert str(long.workspace) == formula  # who asks for it gets it


def test_state_is_updated_in_place(count: Executable) -> None:
    state = np.arange(100)
    result = count(state, 5)
    assert result is state and np.array_equal(state, np.arange(100) + 5)
    assert count.run({"state": state, "step": -1})["new_state"] is state
    assert np.array_equal(state, np.arange(100) + 4)
    assert count(state, 1, out=state) is state
    strided = np.zeros((4, 2), np.int64)[:, 0]
    assert count.contract.check({"state": strided.shape}) == {}


@pytest.mark.parametrize("step", [1, np.int32(1), np.array(1), True, np.uint8(1)])
def test_scalars(count: Executable, step: Any) -> None:
    assert np.array_equal(count(np.zeros(3, np.int64), step), [1, 1, 1])


def test_run_time_counts_constants_and_memory_on_request() -> None:
    positives = Executable(positives_package(), constants=[np.array([3.0], np.float32)])
    x = np.random.default_rng(1).standard_normal(1000, np.float32)
    assert np.array_equal(positives(x), x[x > 0] * np.float32(3))
    assert np.array_equal(positives(x[::-2]), x[::-2][x[::-2] > 0] * np.float32(3)), "strides are passed on"
    y = np.empty(1000, np.float32)
    result = positives(x, out=y)
    assert np.shares_memory(result, y) and np.array_equal(result, x[x > 0] * np.float32(3))
    assert positives(-np.abs(x)).shape == (0,)
    assert positives(x[:0]).shape == (0,)
    assert all(not slot.frame.memory for slot in positives._caller.slots.values()), "what was asked for is given back"


def test_memory_refused_while_running() -> None:
    positives = Executable(positives_package(), constants=[np.array([3.0], np.float32)])
    positives(np.ones(10, np.float32))
    refuse = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(lambda size: None)
    for slot in positives._caller.slots.values():
        slot.frame.allocate = ctypes.cast(refuse, ctypes.c_void_p).value
    with pytest.raises(MemoryError, match="no memory for a part of `positives`") as caught:
        positives(np.ones(10, np.float32))
    assert isinstance(caught.value, Error) and "40 bytes" in str(caught.value)


@pytest.mark.parametrize("constants", [[], [np.zeros(2, np.float32)], [np.zeros((2, 2), np.int8)[:, 0]]])
def test_constants_are_checked(constants: list[Any]) -> None:
    with pytest.raises(InternalError, match="constants of `positives`"):
        Executable(positives_package(), constants=constants)


def test_an_error_leaves_the_next_call_alone(add: Executable, count: Executable) -> None:
    a, b = pair(16)
    for _ in range(3):
        with pytest.raises(ShapeError):
            add(a, b[:8])
        assert np.array_equal(add(a, b), a + b)
        with pytest.raises(ShapeError, match="state >= 0 does not hold"):
            count(np.array([1, 2, -3, 4]), 1)
        assert np.array_equal(count(np.zeros(4, np.int64), 1), [1, 1, 1, 1])


def test_several_python_threads_at_once(add: Executable, count: Executable) -> None:
    problems: list[str] = []

    def work(seed: int) -> None:
        chance = np.random.default_rng(seed)
        state = np.zeros(50, np.int64)
        for number in range(1, 150):
            n = int(chance.integers(1, 257)) * 8
            a, b = pair(n)
            if not np.array_equal(add(a, b), a + b):
                problems.append(f"add {n}")
            if not (count(state, 1) == number).all():
                problems.append(f"count {number}")

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    assert problems == []


def test_code_without_its_program_is_not_pickled(add: Executable) -> None:
    with pytest.raises(Error, match="the program of `add` is not known here") as caught:
        pickle.dumps(add)
    assert "pliant.compile" in caught.value.help


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    add, count = Executable(add_package()), Executable(count_package())
    a, b = torch.randn(16), torch.randn(16)
    result = add(a, b)
    assert isinstance(result, torch.Tensor) and torch.equal(result, a + b)
    assert torch.equal(add(a, b.numpy()), a + b)
    y = torch.empty(16)
    assert add(a, b, out=y) is y and torch.equal(y, a + b)
    state = torch.arange(10)
    assert count(state, 2) is state and torch.equal(state, torch.arange(10) + 2)
    with pytest.raises(ShapeError, match=r"dtype is torch\.float64, expected f32") as caught:
        add(a.double(), b)
    assert caught.value.help == "a.to(torch.float32)"
    with pytest.raises(ShapeError, match="requires a gradient"):
        add(a.requires_grad_(), b)
    with torch.no_grad():
        assert torch.equal(add(a, b), a + b)
    with pytest.raises(ShapeError, match="device meta"):
        add(torch.empty(16, device="meta"), b)


def test_torch_is_not_imported(add: Executable) -> None:
    if "torch" not in sys.modules:
        a, b = pair(16)
        add(a, b)
        assert "torch" not in sys.modules
