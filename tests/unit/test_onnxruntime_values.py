"""The memory of values, inputs that are converted or refused, and first runs, as onnxruntime has them."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import pliant.onnxruntime as drop_in
from pliant.frontends.onnx.importer import Importer
from pliant.frontends.onnx.session import Session, interpreted

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")

TEXT = """<ir_version: 8, opset_import: ["" : 17], producer_name: "tests">
g (float[n, 4] x, int32[m] k) => (float[n, 4] y, int32[m] kk) {
    two = Constant<value = float {2.0}>()
    a = Mul(x, two)
    y = Relu(a)
    kk = Add(k, k)
}"""
X = np.array([[1, -2, 3, -4], [5, 6, -7, 8]], np.float32)
K = np.array([1, 2, 3], np.int32)


@pytest.fixture(params=["pliant", "onnxruntime"])
def ort(request: pytest.FixtureRequest) -> Any:
    """The module under test, and the real one as a check of the test."""
    return drop_in if request.param == "pliant" else pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


@pytest.fixture
def data() -> bytes:
    return bytes(onnx.parser.parse_model(TEXT).SerializeToString())


def test_values_of_arrays_that_are_not_contiguous() -> None:
    wide = np.arange(6, dtype=np.float32).reshape(2, 3)
    for value in (drop_in.OrtValue.ortvalue_from_numpy(wide.T), drop_in.OrtValue.ortvalue_from_numpy_with_onnx_type(wide.T, 1)):
        memory = (ctypes.c_float * 6).from_address(value.data_ptr())
        assert list(memory) == [0, 3, 1, 4, 2, 5]


def test_a_dlpack_tensor_that_is_not_contiguous() -> None:
    value = drop_in.OrtValue.from_dlpack(np.arange(6, dtype=np.float32).reshape(2, 3).T)
    assert list((ctypes.c_float * 6).from_address(value.data_ptr())) == [0, 3, 1, 4, 2, 5]


def test_copies_of_bound_outputs_stay_as_they_are(ort: Any, data: bytes) -> None:
    session = ort.InferenceSession(data)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("k", K)
    room = np.zeros(3, np.int32)
    binding.bind_output("kk", "cpu", 0, np.int32, [3], room.ctypes.data)
    session.run_with_iobinding(binding)
    (copied,) = binding.copy_outputs_to_cpu()
    room[:] = 0
    assert copied.tolist() == [2, 4, 6]


def test_first_runs_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n] x, int64[1] a, int64[1] b) => (float[m] y) { t = Tile(x, a) y = Tile(t, b) }"""
    session = Session(onnx.parser.parse_model(text), interpreted)
    feeds = {"x": np.ones(2, np.float32), "a": np.array([2]), "b": np.array([3])}
    imported = Importer.run

    def slow(self: Any) -> Any:
        time.sleep(0.05)  # all threads are here at the same time, unless they wait for each other
        return imported(self)

    monkeypatch.setattr(Importer, "run", slow)
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(session.run, [feeds] * 3))
    assert [r[0].shape for r in results] == [(12,)] * 3


def test_a_first_run_that_is_told_to_terminate_while_it_compiles(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    session, options = drop_in.InferenceSession(data), drop_in.RunOptions()
    run = session._session.run

    def told(feeds: Any) -> Any:
        options.terminate = True
        return run(feeds)

    monkeypatch.setattr(session._session, "run", told)
    with pytest.raises(drop_in.capi.onnxruntime_pybind11_state.Fail, match="terminate"):
        session.run(None, {"x": X, "k": K}, options)


def feed_session(ort: Any, text: str) -> Any:
    return ort.InferenceSession(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}').SerializeToString())


def test_a_scalar_given_as_one_element() -> None:
    session = feed_session(drop_in, "g (float s) => (float y) { y = Neg(s) }")
    for value in (np.array([2], np.float32), [2.0], np.float32(2)):
        (y,) = session.run(None, {"s": value})
        assert y.shape == () and y == -2


def test_arrays_of_another_byte_order() -> None:
    session = feed_session(drop_in, "g (float[n] x) => (float[n] y) { y = Neg(x) }")
    assert session.run(None, {"x": np.array([1, 2], ">f4")})[0].tolist() == [-1, -2]


SEQUENCE = "g (seq(float[n]) s, int64 i) => (float[n] y) { y = SequenceAt(s, i) }"


def test_items_of_a_sequence_have_its_type(ort: Any) -> None:
    session, i = feed_session(ort, SEQUENCE), np.array(1)
    items = [np.zeros(2, np.float32), np.ones(3, np.float32)]
    assert session.run(None, {"s": items, "i": i})[0].tolist() == [1, 1, 1]
    with pytest.raises(Exception, match=r"(?i)type"):
        session.run(None, {"s": [items[0], np.ones(3, np.float64)], "i": i})


def test_an_item_of_another_type_is_refused_as_a_tensor_is() -> None:
    session = feed_session(drop_in, SEQUENCE)
    with pytest.raises(drop_in.capi.onnxruntime_pybind11_state.InvalidArgument, match=r"Actual: \(tensor\(double\)\)"):
        session.run(None, {"s": [np.ones(3)], "i": np.array(0)})
