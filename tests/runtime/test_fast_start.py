"""Programs that are fast to compile and become the full ones: the same bits, swaps between calls, failures and the end of a process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, fast_start, function, ops
from pliant.fast_start import FastStart
from pliant.support.cancellation import Cancelled, cancellable, stop_if_asked
from pliant.support.errors import InternalError

n, m = dim("n"), dim("m")


@function
def net(x: Tensor[f32, n, 24], y: Tensor[f32, 24, m]) -> Tensor[f32, n, m]:
    return ops.softmax(x @ y)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))


class Gate:
    """Compilations that wait for `open` if they are the full ones, and then fail with `error` if there is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.open, self.error, self.efforts = threading.Event(), error, []
        real = fast_start.compile

        def compile(program: Any, threads: Any = None, effort: str = "full") -> Any:
            self.efforts.append(effort)
            if effort == "full" and threading.current_thread() is not threading.main_thread():
                while not self.open.wait(0.01):
                    stop_if_asked()
                if self.error is not None:
                    raise self.error
            return real(program, threads=threads, effort=effort)  # type: ignore[arg-type]

        monkeypatch.setattr(fast_start, "compile", compile)


def arguments() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.standard_normal((7, 24)).astype(np.float32), random.standard_normal((24, 19)).astype(np.float32)


def test_results_before_and_after_the_swap_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    f, given = FastStart(net), arguments()
    before, program = f(*given), f.executable
    assert f.effort == "fast" and not f.wait(0)
    gate.open.set()
    assert f.wait(60) and f.effort == "full"
    assert f.executable is not program
    np.testing.assert_array_equal(f(*given), before)
    scores = given[0].astype(np.float64) @ given[1]
    expected = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(before, expected / expected.sum(axis=1, keepdims=True), rtol=1e-4)


def test_calls_from_threads_during_the_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    f, given = FastStart(net), arguments()
    expected, wrong, done = f(*given), [], threading.Event()

    def call() -> None:
        while not done.is_set():
            if not np.array_equal(f(*given), expected):
                wrong.append(f.effort)

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    gate.open.set()
    assert f.wait(60)
    done.set()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_a_full_program_in_the_cache_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pliant.compile(net)
    gate = Gate(monkeypatch)
    f = FastStart(net)
    assert f.effort == "full" and f.wait(0) and gate.efforts == ["full"]
    f.stop()


def test_a_failure_leaves_the_fast_program_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, InternalError("no room"))
    with pytest.warns(RuntimeWarning, match="could not be compiled, calls keep the fast one: no room"):
        f = FastStart(net)
        gate.open.set()
        assert not f.wait(60)
        f._thread.join()
    assert isinstance(f.failure, InternalError)
    assert f(*arguments()).shape == (7, 19)


def test_stop_ends_the_compilation_and_leaves_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    Gate(monkeypatch)
    f = FastStart(net)
    f.stop()
    assert not f._thread.is_alive() and not f.wait(0) and f.failure is None
    assert f(*arguments()).shape == (7, 19)


def test_a_compilation_stops_at_a_step() -> None:
    asked = threading.Event()
    asked.set()
    with pytest.raises(Cancelled), cancellable(asked):
        pliant.compile(net)
    stop_if_asked()
    assert pliant.compile(net, cache=False)(*arguments()).shape == (7, 19)


PROGRAM = """
import sys, threading
import pliant
from pliant import fast_start
from pliant.support.cancellation import stop_if_asked
real = fast_start.compile

def compile(program, threads=None, effort="full"):
    while effort == "full":       # a compilation without end, that looks at every kernel whether it should stop
        stop_if_asked()
    return real(program, threads=threads, effort=effort)

fast_start.compile = compile
x, y = pliant.dim("x"), pliant.dim("y")

@pliant.function
def f(a: pliant.Tensor[pliant.f32, x]) -> pliant.Tensor[pliant.f32, x]:
    return a * 2.0

start = fast_start.FastStart(f)
import numpy
print(start(numpy.ones(3, numpy.float32)).tolist(), start.effort)
"""


def test_the_end_of_a_process_does_not_wait_for_the_compilation(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    begin = time.monotonic()
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[2.0, 2.0, 2.0] fast", "")
    assert time.monotonic() - begin < 100


def test_a_session_starts_fast_if_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    import pliant.onnxruntime as ort

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    infos = [helper.make_tensor_value_info(name, kind, ["n", 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    gate = Gate(monkeypatch)
    gate.open.set()
    x = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    (plain,) = ort.InferenceSession(model).run(None, {"x": x})
    assert gate.efforts == []
    options = ort.SessionOptions()
    options.add_session_config_entry("pliant.start_fast", "1")
    monkeypatch.setattr(fast_start, "_is_cached", lambda program: False)
    (fast,) = ort.InferenceSession(model, options).run(None, {"x": x})
    assert gate.efforts[0] == "fast"
    np.testing.assert_array_equal(fast, plain)
