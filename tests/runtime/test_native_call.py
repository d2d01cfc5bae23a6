"""The fast path of a call: what it takes, what it leaves to the slow path, references, threads, fork."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from runtime_programs import add_package, count_package, mixed_package

import pliant
from pliant.runtime import cpython_api
from pliant.runtime.caller import Caller
from pliant.runtime.executable import Executable
from pliant.runtime.records import LARGE, PAGE, Array
from pliant.runtime.threads import EPOCH, set_threads, threads
from pliant.support.errors import Error, ShapeError

pytestmark = pytest.mark.skipif(cpython_api.host() is None, reason="Python or numpy are not as the fast path needs them")


class SlowPath:
    """Counts calls that took the slow path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        plain = Caller._slow_path

        def counting(caller: Caller, /, *args: Any, **named: Any) -> Any:
            self.count += 1
            return plain(caller, *args, **named)

        monkeypatch.setattr(Caller, "_slow_path", counting)

    def taken(self, call: Callable[[], Any]) -> bool:
        """Does this call take the slow path? (The second time: the first may find no call frame.)"""
        call()
        before = self.count
        call()
        return self.count > before


@pytest.fixture
def slow_path(monkeypatch: pytest.MonkeyPatch) -> SlowPath:
    return SlowPath(monkeypatch)


def ones(n: int = 16) -> np.ndarray[Any, Any]:
    return np.ones(n, np.float32)


def test_plain_calls_are_native(slow_path: SlowPath) -> None:
    add, a, b, y = Executable(add_package()), ones(), ones(), ones()
    for call in (
        lambda: add(a, b),
        lambda: add(a, b=b),
        lambda: add(b=b, a=a),
        lambda: add(a, b, out=y),
        lambda: add(a, b, out=None),
        lambda: add(b=b, out=y, a=a),
        lambda: add.run({"a": a, "b": b}),
    ):
        assert not slow_path.taken(call)
    assert type(add.__call__).__name__ == "builtin_function_or_method"


def test_what_is_not_plain_takes_the_slow_path(slow_path: SlowPath) -> None:
    add, a, b, y = Executable(add_package()), ones(), ones(), ones()

    class Mine(np.ndarray):
        pass

    frozen = ones()
    frozen.flags.writeable = False
    for call in (
        lambda: add(a.view(Mine), b),
        lambda: add(a, b, out=(y,)),
        lambda: add(a, b, out={"y": y}),
        lambda: add(**{"".join(["a"]): a, "b": b}, out=[y]),
    ):
        assert slow_path.taken(call)
    for out in (frozen, a, ones(8), np.ones((16, 1), np.float32), ones(32)[::2]):
        with pytest.raises(ShapeError):
            add(a, b, out=out)
    assert not slow_path.taken(lambda: add(frozen, b)), "arguments may be read-only"
    for args in ((), (a,), (a, b, y), (a, None), (a, 1.0), (a, [1.0] * 16), (a, b.astype(">f4")), (a, b.astype(np.float64))):
        with pytest.raises(ShapeError):
            add(*args)
    with pytest.raises(ShapeError, match="given twice"):
        add(a, b, b=b)


def test_the_layout_of_arrays_is_tried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpython_api.arrays_are_as_expected()

    class Other(ctypes.Structure):
        _fields_ = [(name, kind) if name != "dtype" else ("new", ctypes.c_int64) for name, kind in Array._fields_]
        dtype = Array.base

    monkeypatch.setattr(cpython_api, "Array", Other)
    assert not cpython_api.arrays_are_as_expected()


@pytest.mark.parametrize("way", ["native", "long"])
def test_numbers_of_all_kinds(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """mixed: y[n] = x[n] * scale + shift, and state[n] += step; returns (y, state)."""
    if way == "long":
        monkeypatch.setattr(cpython_api, "host", lambda: None)
    mixed = Executable(mixed_package())
    x, state = np.arange(5.0), np.zeros(5, np.int64)
    for scale, shift, step in [(2.0, 1, 3), (-0.5, -(2**31), 2**62), (True, True, True), (3, 2**31 - 1, -(2**63)), (2**53, 0, 0)]:
        expected = x * float(scale) + shift
        before = state.copy()
        y, new = mixed(x, scale, state, shift, step)
        assert new is state and np.array_equal(y, expected)
        assert np.array_equal(state, before + np.int64(step))
    for bad in [(1.0, 2**31, 0), (1.0, -(2**31) - 1, 0), (1.0, 0, 2**63), (1.0, 0.5, 0), ("1", 0, 0), (1.0, None, 0), (10**400, 0, 0)]:
        with pytest.raises(ShapeError, match=r"argument `(scale|shift|step)`"):
            mixed(x, bad[0], state, bad[1], bad[2])


def test_which_numbers_are_native(slow_path: SlowPath) -> None:
    mixed = Executable(mixed_package())
    x, state = np.arange(5.0), np.zeros(5, np.int64)
    for scale, shift, step, native in [
        (2.0, 1, 3, True),
        (2, 1, 3, True),
        (2.0, True, 3, True),
        (2**53 + 1, 1, 3, False),
        (np.float64(2), 1, 3, False),
        (2.0, np.int32(1), 3, False),
    ]:
        assert slow_path.taken(lambda s=scale, t=shift, u=step: mixed(x, s, state, t, u)) != native


def test_several_outputs(slow_path: SlowPath) -> None:
    mixed = Executable(mixed_package())
    x, state, y = np.arange(5.0), np.zeros(5, np.int64), np.empty(5)
    assert not slow_path.taken(lambda: mixed(x, 2.0, state, 0, 1, out=(y, None)))
    results = mixed(x, 2.0, state, 0, 1, out=(y, None))
    assert type(results) is tuple and results[0] is y and results[1] is state
    assert np.array_equal(y, x * 2)
    assert mixed(x, 2.0, state, 0, 1, out=[y, None])[0] is y
    assert mixed(x, 2.0, state, 0, 1, out=(y, state))[1] is state
    with pytest.raises(ShapeError, match="2 outputs"):
        mixed(x, 2.0, state, 0, 1, out=(y,))
    with pytest.raises(ShapeError, match="shares memory"):
        mixed(x, 2.0, x.view(np.int64), 0, 1)


def test_references_are_counted() -> None:
    add, mixed, count = Executable(add_package()), Executable(mixed_package()), Executable(count_package())
    a, b, y, x = ones(), ones(), ones(), np.arange(5.0)
    state, bad = np.zeros(5, np.int64), np.array([-1])
    shared = [a, b, y, x, state, bad, a.dtype, x.dtype, state.dtype, None, np.ndarray, add, add.__call__, "out", 1234567]

    def calls() -> None:
        add(a, b)
        add(a, b, out=y)
        add(b=b, a=a, out=None)
        add.run({"a": a, "b": b})
        mixed(x, 1234567, state, 0, 0)
        mixed(x, 1.5, state, 0, 0, out=(None, None))
        for wrong in (lambda: add(a, b[:8]), lambda: count(bad, 1), lambda: add(a), lambda: add(a, b, out=a), lambda: add(a, x)):
            with pytest.raises(ShapeError):
                wrong()

    calls()
    gc.collect()
    before = [sys.getrefcount(x) for x in shared]
    for _ in range(50):
        calls()
    gc.collect()
    after = [sys.getrefcount(x) for x in shared]
    assert all(abs(m - n) < 25 for n, m in zip(before, after, strict=True)), (before, after)


m = pliant.dim("m")


class Derived(np.ndarray[Any, Any]):
    """An array that is not of numpy's own type."""


@pliant.function
def added(a: pliant.Tensor[pliant.f32, m], b: pliant.Tensor[pliant.f32, m]) -> pliant.Tensor[pliant.f32, m]:
    return a + b


@pytest.mark.parametrize("way", ["native", "long"])
def test_large_outputs_begin_at_a_page(way: str, slow_path: SlowPath) -> None:
    """Others are numpy's own; what a large one is a part of goes with it, and it is an argument like any other."""
    add, n = pliant.compile(added), LARGE // 4
    a, b = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    given = a if way == "native" else a.view(Derived)
    results = [add(given, b) for _ in range(5)]  # at once, so that they are at different places
    for r in results:
        assert r.ctypes.data % PAGE == 0 and r.flags.carray and r.dtype == np.float32
        assert r.base.nbytes == r.nbytes + PAGE
        np.testing.assert_array_equal(r, a + 1)
    assert slow_path.taken(lambda: add(given, b)) is (way == "long")
    assert not slow_path.taken(lambda: add(r, b))
    small = add(given[1:], b[1:])
    assert small.base is None and small.flags.owndata
    held = weakref.ref(results.pop(0).base)
    gc.collect()
    assert held() is None


def test_no_memory_is_lost() -> None:
    add, count = Executable(add_package()), Executable(count_package())
    a, b, bad = ones(2048), ones(2048), np.array([-1])

    def calls(times: int) -> None:
        for _ in range(times):
            add(a, b)
            with pytest.raises(ShapeError):
                count(bad, 1)

    tracemalloc.start()
    try:
        calls(50)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        calls(200)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


def test_an_executable_goes_when_nobody_holds_it() -> None:
    add, a = Executable(add_package()), ones()
    add(a, a)
    caller, function = weakref.ref(add._caller), add.__call__
    del add
    gc.collect()
    assert caller() is not None and np.array_equal(function(a, a), a + a), "the function is enough"
    del function
    assert caller() is None


def test_errors_of_a_native_run(slow_path: SlowPath) -> None:
    count = Executable(count_package())
    good, bad = np.zeros(4, np.int64), np.array([1, -2])
    assert not slow_path.taken(lambda: count(good, 1))
    for _ in range(20):  # more often than there are slots
        with pytest.raises(ShapeError, match="state >= 0 does not hold") as caught:
            count(bad, 0x10)
    assert caught.value.where is not None and caught.value.where.file == __file__
    before = slow_path.count
    count(good, 1)
    assert slow_path.count == before, "slots of failed calls are free again"


def test_the_choice_of_threads_holds_for_native_calls(slow_path: SlowPath) -> None:
    """The pool's address in the context tells how many threads a call used."""
    add, fixed, a = Executable(add_package()), Executable(add_package(), threads=1), ones()

    def pool(f: Executable) -> int | None:
        f(a, a)
        (slot,) = f._caller.slots.values()
        return slot.ctx.pool

    assert pool(fixed) is None
    set_threads(2)
    try:
        two = pool(add)
        assert two
        with threads(1):
            assert pool(add) is None and not slow_path.taken(lambda: add(a, a))
            with threads(3):
                assert pool(add) not in (None, two)
        assert pool(add) == two and not slow_path.taken(lambda: add(a, a))
        set_threads(1)
        assert pool(add) is None
        assert pool(fixed) is None
    finally:
        set_threads(None)


def test_many_threads_share_no_slot(slow_path: SlowPath) -> None:
    add = Executable(add_package())
    start, problems = threading.Barrier(12), []

    def work(seed: int) -> None:
        chance = np.random.default_rng(seed)
        start.wait()
        for _ in range(200):
            a = chance.standard_normal(int(chance.integers(1, 257)) * 8, np.float32)
            if not np.array_equal(add(a, a), a + a):
                problems.append(seed)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert problems == [] and len(add._caller.slots) <= 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_native_calls_in_a_forked_child(finish: Callable[..., str]) -> None:
    text = """
import os
import numpy as np
from runtime_programs import add_package
from pliant.runtime.executable import Executable
f = Executable(add_package(), threads=2)
a = np.arange(2048, dtype=np.float32)
for _ in range(3):
    f(a, a)
child = os.fork()
good = all(np.array_equal(f(a, a), a + a) for _ in range(20))
if not child:
    os._exit(0 if good else 1)
print(good, os.waitpid(child, 0)[1])
"""
    assert finish(text) == "True 0\n"


def test_the_epoch_changes_with_the_choice() -> None:
    before = EPOCH.value
    set_threads(None)
    assert EPOCH.value > before


def test_memory_that_a_native_run_asks_for_is_given_back() -> None:
    """`allocate` makes aligned blocks of their own, refuses the impossible, and `release` gives all back."""
    add, a = Executable(add_package()), ones()
    add(a, a)
    (slot,) = add._caller.slots.values()
    allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(slot.ctx.alloc)
    blocks = [allocate(slot.address, size) for size in (0, 1, 63, 64, 1000)]
    assert all(b and b % 64 == 0 for b in blocks) and len(set(blocks)) == 5
    for block, size in zip(blocks, (0, 1, 63, 64, 1000), strict=True):
        ctypes.memset(block, 255, size)
    assert allocate(slot.address, -1) is None and allocate(slot.address, 2**62) is None
    assert slot.frame.memory
    add(a, a)
    assert slot.frame.memory == 0


def test_nothing_of_an_error_is_left(slow_path: SlowPath) -> None:
    """A native `prepare` that refuses leaves no error record to the next call."""
    add, a = Executable(add_package()), ones()
    add(a, a)
    with pytest.raises(Error):
        add(a, ones(8))
    (slot,) = add._caller.slots.values()
    assert list(slot.ctx.error) == [0] * 8
