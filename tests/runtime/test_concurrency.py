"""The concurrency contract: calls from several threads, calls that are cancelled, workers that are forked or spawned."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_programs import add_package, count_package

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.runtime.executable import Executable

n = dim("n", max=4096)
rng = np.random.default_rng(2)
weight = rng.standard_normal((64, 96)).astype(np.float32)


@function
def layer(x: Tensor[f32, n, 64]) -> Tensor[f32, n, 96]:
    return ops.softmax(ops.silu(x @ weight))


def inputs(rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workers") / "layer.pliant"
    pliant.compile(layer).save(path)
    return path


ROWS = [1, 3, 64, 200, 7, 512, 33]


def test_several_threads_with_workspaces_of_their_own() -> None:
    f = pliant.compile(layer, threads=2)
    expected = {rows: f(inputs(rows)) for rows in ROWS}
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda rows: (rows, f(inputs(rows))), ROWS * 12))
    assert all(np.array_equal(y, expected[rows]) for rows, y in found)


def test_one_executable_while_it_is_profiled() -> None:
    f = pliant.compile(layer)
    expected = f(inputs(64))
    with ThreadPoolExecutor(4) as pool:
        profiles = [pool.submit(f.profile, inputs(64)) for _ in range(4)]
        results = [pool.submit(f, inputs(64)) for _ in range(20)]
    assert all(np.array_equal(r.result(), expected) for r in results)
    assert all(len(p.result().launches) == len(profiles[0].result().launches) for p in profiles)


# Cancel.


def endless(f: Executable, ended: list[BaseException]) -> threading.Thread:
    """A thread in a call that does not end by itself."""

    def work() -> None:
        try:
            f(np.zeros(16, np.int64), 0)
        except pliant.Error as problem:
            ended.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def cancel_until(f: Executable, calls: int) -> None:
    """Waits for so many calls to run, and cancels them."""
    cancelled = 0
    while cancelled < calls:
        cancelled += f.cancel()
        time.sleep(0.01)


@pytest.mark.parametrize("calls", [1, 3, 12])
def test_cancel_ends_calls_of_other_threads(calls: int) -> None:
    f = Executable(count_package(), threads=1)
    ended: list[BaseException] = []
    threads = [endless(f, ended) for _ in range(calls)]
    while any(t.is_alive() for t in threads):
        f.cancel()
        time.sleep(0.005)
    assert len(ended) == calls and all(isinstance(e, pliant.CancelledError) for e in ended)
    state = np.zeros(16, np.int64)
    f(state, 1)
    assert (state == 1).all(), "the next call runs to its end"


def test_cancel_ends_a_call_of_the_main_thread_without_an_interrupt() -> None:
    f = Executable(count_package(), threads=1)
    other = threading.Thread(target=cancel_until, args=(f, 1))
    other.start()
    with pytest.raises(pliant.CancelledError):
        f(np.zeros(16, np.int64), 0)
    other.join()
    assert f.cancel() == 0, "nothing runs"


def test_cancel_leaves_other_executables_alone() -> None:
    f, add = Executable(count_package(), threads=1), Executable(add_package())
    ended: list[BaseException] = []
    thread = endless(f, ended)
    a = np.ones(16, np.float32)
    assert add.cancel() == 0 and add(a, a)[0] == 2 and thread.is_alive()
    cancel_until(f, 1)
    thread.join()
    assert len(ended) == 1


# Workers.


def in_worker(path: str, rows: int) -> bytes:
    return pliant.load(path)(inputs(rows)).tobytes()  # type: ignore[no-any-return]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_spawned_workers_load_what_was_saved(saved: Path) -> None:
    expected = [layer(inputs(rows)).tobytes() for rows in ROWS[:3]]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(in_worker, [str(saved)] * 3, ROWS[:3])) == expected


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="fork")
def test_forked_workers_call_what_their_parent_compiled() -> None:
    f = pliant.compile(layer, threads=2)
    expected = f(inputs(512))  # the parent's threads run
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, b"1" if np.array_equal(f(inputs(512)), expected) else b"0")
        os._exit(0)
    assert os.read(reader, 1) == b"1" and os.waitpid(child, 0)[1] == 0
    assert np.array_equal(f(inputs(512)), expected)
