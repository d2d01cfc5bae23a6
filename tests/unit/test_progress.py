"""What a compilation says while it works: a text for each kernel, with the time that is left; one line where nobody watches."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.support import progress

n = dim("n")


@function
def chain(x: Tensor[f32, n, 64], w: Tensor[f32, 64, 64]) -> Tensor[f32, n, 64]:
    a = ops.matmul(x, w)
    b = ops.relu(a)
    return ops.matmul(b, w)


def test_each_kernel_is_told() -> None:
    told: list[str] = []
    f = pliant.compile(chain, cache=False, progress=told.append)
    total = int(told[0].split(" of ")[1].split(",")[0])
    assert [t.split(",")[0] for t in told] == [f"chain: kernel {k + 1} of {total}" for k in range(total)] and total >= 2
    x, w = np.ones((3, 64), np.float32), np.eye(64, dtype=np.float32)
    assert np.allclose(f(x, w), 1, atol=1e-6)
    told.clear()
    pliant.compile(chain, cache=False)
    assert told == []


def test_a_session_of_the_drop_in_tells_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")
    from pliant.onnxruntime import InferenceSession

    compile, told = pliant.api.compile, []  # code that another test left in the cache would tell nothing
    monkeypatch.setattr(pliant.api, "compile", lambda program, **options: compile(program, **options, cache=False))
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> net (float[n] x) => (float[n] y) { y = Softsign(x) }')
    InferenceSession(model.SerializeToString(), progress=told.append)
    assert [t.split(",")[0] for t in told] == ["net: kernel 1 of 1"]


def test_a_listener_that_raises_stops_the_compilation() -> None:
    def stop(text: str) -> None:
        raise TimeoutError(text)

    with pytest.raises(TimeoutError, match="kernel 1 of"):
        pliant.compile(chain, cache=False, progress=stop)


def test_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    clock = iter([0.0, 0.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.listening(told.append, "net"):
        progress.kernel_begins(0, 91)
        progress.kernel_begins(36, 91)
    progress.kernel_begins(37, 91)  # nobody listens any more
    assert told == ["net: kernel 1 of 91, 0 s", "net: kernel 37 of 91, 12 s, 18 s left"]


@pytest.mark.parametrize("terminal", [True, False])
def test_people_see_one_line(terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    clock = iter([0.0, 0.0, 4.0, 4.0, 6.0, 6.0, 7.0, 7.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.listening(True, "net"):
        for k in range(3):
            progress.kernel_begins(k + 1, 9)
    shown = capsys.readouterr().err
    if terminal:
        assert shown.count("\r\x1b[K") == 4 and shown.endswith("\r\x1b[K") and "\n" not in shown
    else:
        assert shown == "net: kernel 3 of 9, 6 s, 21 s left\n"
