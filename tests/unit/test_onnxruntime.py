"""The drop-in for onnxruntime: the call sequences of well-known libraries, and each part of the API, on small models.

What libraries do runs with `pliant.onnxruntime`, and where it is installed with the real package too: both must give numpy's result.
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
import pliant.onnxruntime as drop_in

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")

TEXT = """<ir_version: 8, opset_import: ["" : 17], producer_name: "tests", model_version: 7, doc_string: "doubles"
, metadata_props: ["names": "a,b"]>
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


def saved(text: str, path: Path) -> str:
    onnx.save(onnx.parser.parse_model(text), path)
    return str(path)


# What libraries do.


class PickableSession:
    """As insightface declares it: a session that is pickled as its path."""

    @staticmethod
    def of(ort: Any) -> Any:
        class Session(ort.InferenceSession):  # type: ignore[misc]
            def __init__(self, model_path: str, **kwargs: Any) -> None:
                super().__init__(model_path, **kwargs)
                self.model_path = model_path

            def __getstate__(self) -> dict[str, str]:
                return {"model_path": self.model_path}

            def __setstate__(self, values: dict[str, str]) -> None:
                self.__init__(values["model_path"])  # type: ignore[misc]

        return Session


def test_calls_as_insightface_makes_them(ort: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 3, height, width] image) => (float[1, 3] score, float[1, 3, height, width] box) {
        mean = Constant<value = float {127.5}>()
        box = Sub(image, mean)
        score = ReduceMax<axes = [2, 3], keepdims = 0>(box)
    }"""
    ort.set_default_logger_severity(3)
    kind = PickableSession.of(ort)
    monkeypatch.setattr(sys.modules[__name__], "Session", kind, raising=False)
    kind.__qualname__ = "Session"
    session = kind(saved(text, tmp_path / "scrfd.onnx"), providers=["CPUExecutionProvider"])
    session.set_providers(["CPUExecutionProvider"])
    config = session.get_inputs()[0]
    assert config.shape == [1, 3, "height", "width"] and isinstance(config.shape[2], str)
    names = [o.name for o in session.get_outputs()]
    blob = np.random.default_rng(0).uniform(0, 255, (1, 3, 32, 48)).astype(np.float32)
    for own in (session, pickle.loads(pickle.dumps(session))):
        score, box = own.run(names, {config.name: blob})
        np.testing.assert_allclose(box, blob - 127.5, atol=1e-4)
        np.testing.assert_allclose(score, (blob - 127.5).max((2, 3)), atol=1e-4)
    ort.set_default_logger_severity(2)


def test_calls_as_rembg_makes_them(ort: Any, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 3, 320, 320] input) => (float[1, 1, 320, 320] mask) {
        axes = Constant<value_ints = [1]>()
        sum = ReduceSum(input, axes)
        mask = Sigmoid(sum)
    }"""
    options = ort.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"] if ort.get_device()[:3] != "GPU" else ["CUDAExecutionProvider", "CPUExecutionProvider"]
    session = ort.InferenceSession(saved(text, tmp_path / "u2net.onnx"), sess_options=options, providers=providers)
    image = np.random.default_rng(1).normal(size=(1, 3, 320, 320)).astype(np.float32)
    mask = session.run(None, {session.get_inputs()[0].name: image})[0][:, 0, :, :]
    np.testing.assert_allclose(mask, 1 / (1 + np.exp(-image.sum(1))), atol=1e-5)


def test_calls_as_fastembed_makes_them(ort: Any, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[batch, length] input_ids, int64[batch, length] attention_mask) => (float[batch, length] last_hidden_state) {
        ids = Cast<to = 1>(input_ids)
        mask = Cast<to = 1>(attention_mask)
        last_hidden_state = Mul(ids, mask)
    }"""
    available = ort.get_available_providers()
    assert [p for p in ("CPUExecutionProvider",) if p in available]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 2
    options.enable_cpu_mem_arena = False
    model = ort.InferenceSession(saved(text, tmp_path / "model.onnx"), providers=["CPUExecutionProvider"], sess_options=options)
    assert {node.name for node in model.get_inputs()} == {"input_ids", "attention_mask"} and model.get_providers() == [
        "CPUExecutionProvider"
    ]
    ids = np.arange(12).reshape(2, 6)
    mask = (ids % 3 > 0).astype(np.int64)
    (hidden,) = model.run(["last_hidden_state"], {"input_ids": np.array(ids, np.int64), "attention_mask": mask})
    assert hidden.tolist() == (ids * mask).tolist()


# Each part of the API.


def test_lists_take_the_type_of_the_model(ort: Any, data: bytes) -> None:
    y, kk = ort.InferenceSession(data).run(None, {"x": X.tolist(), "k": [1, 2]})
    assert y.dtype == np.float32 and kk.dtype == np.int32 and kk.tolist() == [2, 4]
    assert y.tolist() == np.maximum(X * 2, 0).tolist()


def test_what_a_model_says_of_itself(ort: Any, data: bytes) -> None:
    session = ort.InferenceSession(data)
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.version, meta.description, meta.graph_name) == ("tests", 7, "doubles", "g")
    assert meta.custom_metadata_map == {"names": "a,b"} and meta.domain == meta.graph_description == ""
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [("x", "tensor(float)", ["n", 4]), ("k", "tensor(int32)", ["m"])]
    assert [(o.name, o.type, o.shape) for o in session.get_outputs()] == [("y", "tensor(float)", ["n", 4]), ("kk", "tensor(int32)", ["m"])]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}} and session.get_overridable_initializers() == []


def test_a_dim_that_is_not_known_has_no_name(ort: Any) -> None:
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1  # as some exporters write it
    proto.graph.input[1].type.tensor_type.shape.dim[0].Clear()
    session = ort.InferenceSession(proto.SerializeToString())
    assert [i.shape for i in session.get_inputs()] == [[None, 4], [None]]
    assert session.run(["y"], {"x": X, "k": K})[0].shape == (2, 4)


@pytest.mark.parametrize(
    ("feed", "names", "error", "text"),
    [
        ({"x": X}, None, "ValueError", r"Required inputs \(\['k'\]\) are missing from input feed \(\['x'\]\)"),
        ({"x": X, "k": K, "q": K}, None, "InvalidArgument", "INVALID_ARGUMENT : Invalid input name: q"),
        ({"x": X, "k": K}, ["zz"], "InvalidArgument", "INVALID_ARGUMENT : Invalid output name:zz"),
        ({"x": X.astype(np.float64), "k": K}, None, "InvalidArgument", r"Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)"),
        ({"x": X[:, :3].copy(), "k": K}, None, "InvalidArgument", r"(?s)invalid dimensions for input: x.*index: 1 Got: 3 Expected: 4"),
        ({"x": X[0], "k": K}, None, "InvalidArgument", "Invalid rank for input: x Got: 1 Expected: 2"),
        ({"x": X, "k": K}, "y", "TypeError", r"run\(\)"),
    ],
)
def test_wrong_calls_raise_the_same_errors(ort: Any, data: bytes, feed: Any, names: Any, error: str, text: str) -> None:
    kinds = {"ValueError": ValueError, "TypeError": TypeError, "InvalidArgument": ort.capi.onnxruntime_pybind11_state.InvalidArgument}
    with pytest.raises(kinds[error], match=text):
        ort.InferenceSession(data).run(names, feed)


@pytest.mark.parametrize(
    ("source", "error"),
    [("nowhere.onnx", "NoSuchFile"), (b"no model at all", "InvalidProtobuf"), (3, "TypeError")],
)
def test_wrong_models_raise_the_same_errors(ort: Any, source: Any, error: str) -> None:
    native = ort.capi.onnxruntime_pybind11_state
    with pytest.raises(TypeError if error == "TypeError" else getattr(native, error)):
        ort.InferenceSession(source)


def test_its_errors_are_ours() -> None:
    native = drop_in.capi.onnxruntime_pybind11_state
    assert issubclass(native.InvalidArgument, pliant.ShapeError) and issubclass(native.NoSuchFile, pliant.ModelFileError)
    assert issubclass(native.NotImplemented, pliant.UnsupportedError) and issubclass(native.Fail, pliant.Error)
    odd = onnx.parser.parse_model(TEXT.replace('"" : 17', '"" : 17, "mine" : 1').replace("Relu(a)", "mine.Odd(a)"))
    with pytest.raises(native.NotImplemented, match=r"(?s)NOT_IMPLEMENTED.*mine.Odd"):
        drop_in.InferenceSession(odd.SerializeToString())
    with pytest.raises(native.NotImplemented, match=r"\.ort"):
        drop_in.InferenceSession(b"\x20\x00\x00\x00ORTM rest")


def test_values_and_bindings(ort: Any, data: bytes) -> None:
    session = ort.InferenceSession(data)
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert (value.shape(), value.element_type(), value.data_type(), value.device_name()) == ([2, 4], 1, "tensor(float)", "cpu")
    assert value.is_tensor() and value.has_value() and value.tensor_size_in_bytes() == 32 and np.from_dlpack(value).tolist() == X.tolist()
    results = session.run_with_ort_values(["kk"], {"x": value, "k": ort.OrtValue.ortvalue_from_numpy(K)})
    assert results[0].numpy().tolist() == [2, 4, 6]
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_input("k", "cpu", 0, np.int32, [3], K.ctypes.data)
    target, room = ort.OrtValue.ortvalue_from_shape_and_type([3], np.int32), np.zeros((2, 4), np.float32)
    binding.bind_output("y", "cpu", 0, np.float32, [2, 4], room.ctypes.data)
    binding.bind_ortvalue_output("kk", target)
    session.run_with_iobinding(binding)
    assert room.tolist() == np.maximum(X * 2, 0).tolist() and target.numpy().tolist() == [2, 4, 6]
    assert [a.tolist() for a in binding.copy_outputs_to_cpu()] == [room.tolist(), [2, 4, 6]]
    assert [v.shape() for v in binding.get_outputs()] == [[2, 4], [3]]
    target.update_inplace(np.array([7, 8, 9], np.int32))
    assert target.numpy().tolist() == [7, 8, 9]
    with pytest.raises(RuntimeError, match="nope"):
        binding.bind_cpu_input("nope", X)
    with pytest.raises(ValueError, match="IOBinding"):
        ort.InferenceSession(data).run_with_iobinding(binding)


def test_memory_that_does_not_fit_is_refused(data: bytes) -> None:
    binding = drop_in.InferenceSession(data).io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("k", K)
    binding.bind_ortvalue_output("kk", drop_in.OrtValue.ortvalue_from_shape_and_type([2], np.int32))
    with pytest.raises(pliant.ShapeError, match='output "kk" does not fit'):
        binding.run(None)


def test_a_run_in_another_thread(ort: Any, data: bytes) -> None:
    session, answers, done = ort.InferenceSession(data), [], threading.Event()

    def callback(results: Any, user_data: Any, error: str) -> None:
        answers.append((results, user_data, error))
        done.set()

    for x in (X, X[:, :3].copy()):
        done.clear()
        session.run_async(["kk"], {"x": x, "k": K}, callback, "mine")
        assert done.wait(30)
    assert answers[0][0][0].tolist() == [2, 4, 6] and answers[0][1:] == ("mine", "")
    assert len(answers[1][0]) == 0 and "invalid dimensions for input: x" in answers[1][2]


def test_a_run_that_is_told_to_terminate(ort: Any, data: bytes) -> None:
    options = ort.RunOptions()
    options.terminate = True
    session = ort.InferenceSession(data)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="terminate flag"):
        session.run(None, {"x": X, "k": K}, options)
    options.terminate = False
    assert session.run(["kk"], {"x": X, "k": K}, options)[0].tolist() == [2, 4, 6]


def test_a_running_call_terminates() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, n] x) => (float[n, n] y) { a = MatMul(x, x) y = MatMul(a, x) }"""
    session, options = drop_in.InferenceSession(onnx.parser.parse_model(text).SerializeToString()), drop_in.RunOptions()
    x = np.zeros((1000, 1000), np.float32)
    stopper = threading.Timer(0.1, lambda: setattr(options, "terminate", True))
    stopper.start()
    with pytest.raises(drop_in.capi.onnxruntime_pybind11_state.Fail, match="terminate"):
        while True:
            session.run(None, {"x": x}, options)
    stopper.join()


def test_a_trace_of_the_runs(ort: Any, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.chdir(tmp_path)
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, "mine"
    session = ort.InferenceSession(data, options)
    for _ in range(2):
        session.run(None, {"x": X, "k": K})
    name = session.end_profiling()
    assert name.startswith("mine_") and name.endswith(".json")
    events = json.loads((tmp_path / name).read_text())
    names = [e["name"] for e in (events["traceEvents"] if isinstance(events, dict) else events) if e.get("ph") == "X"]
    assert sum("add" in n.lower() and ("kernel" in n or n == "add") for n in names) == 2
    assert ort.InferenceSession(data).end_profiling() == ""


def test_a_model_with_external_data(ort: Any, tmp_path: Path) -> None:
    weight = np.arange(4096, dtype=np.float32)
    text = "g (float[n, 4096] x) => (float[n, 4096] y) { y = Add(x, w) }"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin")
    x = np.ones((2, 4096), np.float32)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    for session in (ort.InferenceSession(path), ort.InferenceSession(path.read_bytes(), options)):
        assert np.array_equal(session.run(None, {"x": x})[0], x + weight)


def test_dims_and_initializers_of_the_options(ort: Any) -> None:
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2), "two"))
    del proto.graph.node[0]
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("n", 2)
    if ort is drop_in:  # the real one replaces initializers with external data only
        options.add_external_initializers(["two"], [ort.OrtValue.ortvalue_from_numpy(np.array(3, np.float32))])
    session = ort.InferenceSession(proto.SerializeToString(), options)
    assert session.get_inputs()[0].shape == [2, 4] and session.get_session_options().get_session_config_entry is not None
    y = session.run(["y"], {"x": X, "k": K})[0]
    assert y.tolist() == np.maximum(X * (3 if ort is drop_in else 2), 0).tolist()
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
        session.run(["y"], {"x": X[:1], "k": K})


def test_one_line_of_the_log_sums_up_a_session(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pliant.onnxruntime")
    options = drop_in.SessionOptions()
    options.enable_mem_pattern, options.execution_mode = False, drop_in.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    drop_in.InferenceSession(data, options, ["CUDAExecutionProvider", "CPUExecutionProvider"])
    (record,) = caplog.records
    ignored = "CUDAExecutionProvider, enable_mem_pattern, execution_mode, session.intra_op.allow_spinning"
    assert record.levelname == "WARNING" and record.getMessage().endswith(f"no effect here: {ignored}")
    caplog.clear()
    drop_in.InferenceSession(data)
    assert [r.levelname for r in caplog.records] == ["INFO"] and "no effect" not in caplog.text
    caplog.clear()
    options.log_severity_level = 3
    drop_in.InferenceSession(data, options, ["CUDAExecutionProvider"])
    assert caplog.records == []


def test_a_branch_that_is_not_taken_may_have_no_meaning_for_the_dims(ort: Any) -> None:
    """As in a model for two sampling rates: for a length, a Squeeze leaves two dims only in the branch of its rate."""

    def arm(name: str, step: int) -> str:
        nodes = f"e = Constant<value_ints = [{step}]>() s = Slice(x, from, to, ax, e) q = Squeeze(s) t = Transpose<perm = [1, 0]>(q)"
        total = "z = Constant<value_ints = [0]>() o = ReduceSum<keepdims = 0>(t, z)"
        return f"{name}_branch = {name} () => (float[3] {name}_o) {{ {nodes} {total} }}".replace(" o = ", f" {name}_o = ")

    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[3, m] x, int64 rate) => (float[3] y) {{
        from = Constant<value_ints = [0]>() to = Constant<value_ints = [1000]>() ax = Constant<value_ints = [1]>()
        high = Constant<value = int64 {{16}}>()
        is_high = Equal(rate, high)
        y = If(is_high) <{arm("then", 4)}, {arm("else", 2)}>
    }}"""
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    for rate, length in ((8, 4), (16, 8), (16, 5), (8, 3)):
        x = np.arange(3 * length, dtype=np.float32).reshape(3, length)
        assert session.run(None, {"x": x, "rate": np.array(rate)})[0].tolist() == x[:, :: rate // 4].sum(1).tolist()


# The real package, where it is installed.

# Of GPUs and other accelerators, of onnxruntime's own model format, and what only its internals use.
NOT_HERE = {
    "get_input_epdevices", "get_input_memory_infos", "get_output_memory_infos", "get_provider_graph_assignment_info",
    "get_tuning_results", "release_captured_graph", "set_ep_dynamic_options", "set_tuning_results",
    "add_external_initializers_from_files_in_memory", "add_provider_for_devices", "clear_ep_context_data_read_func",
    "set_ep_context_data_read_func", "set_load_cancellation_flag", "set_provider_selection_policy",
    "set_provider_selection_policy_delegate", "add_active_adapter", "as_sparse_tensor", "ort_value_from_sparse_tensor",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["SessionOptions", "RunOptions", "InferenceSession", "OrtValue", "IOBinding", "ModelMetadata", "OrtDevice"]
)
def test_every_public_name_is_there(name: str, data: bytes) -> None:
    theirs = getattr(pytest.importorskip("onnxruntime", reason="onnxruntime is not installed"), name)
    ours = drop_in.InferenceSession(data).get_modelmeta() if name == "ModelMetadata" else getattr(drop_in, name)
    ours = ours() if name.endswith("Options") else ours
    assert {n for n in dir(theirs) if not n.startswith("_")} - NOT_HERE <= set(dir(ours))


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_defaults_are_those_of_the_real_package(name: str) -> None:
    real = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    theirs, ours = getattr(real, name)(), getattr(drop_in, name)()
    fields = [n for n in dir(theirs) if not n.startswith("_") and not callable(getattr(theirs, n))]
    assert len(fields) >= 5
    assert {n: str(getattr(ours, n)) for n in fields} == {n: str(getattr(theirs, n)) for n in fields}


def test_the_exceptions_of_the_real_package_are_there() -> None:
    real = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed").capi.onnxruntime_pybind11_state
    names = {n for n in dir(real) if isinstance(getattr(real, n), type) and issubclass(getattr(real, n), Exception)}
    ours = drop_in.capi.onnxruntime_pybind11_state
    assert len(names) > 10 and all(issubclass(getattr(ours, n), pliant.Error) for n in names)


def test_options_check_what_is_set(ort: Any) -> None:
    options = ort.SessionOptions()
    for name, value in (("intra_op_num_threads", "3"), ("graph_optimization_level", 99)):
        with pytest.raises(TypeError):
            setattr(options, name, value)
    with pytest.raises(AttributeError, match="no attribute 'intra_op_threads'"):
        options.intra_op_threads = 3
    with pytest.raises(RuntimeError, match=r"a\.key"):
        options.get_session_config_entry("a.key")
    options.add_session_config_entry("a.key", "1")
    assert options.get_session_config_entry("a.key") == "1"
    level = ort.GraphOptimizationLevel
    assert level.ORT_ENABLE_ALL == 99 and int(level.ORT_ENABLE_BASIC) == 1 and str(level(2)) == "GraphOptimizationLevel.ORT_ENABLE_EXTENDED"


# The swap.

APPLICATION = """
import sys
import onnxruntime as rt
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
rt.disable_telemetry_events()
assert tuple(map(int, rt.__version__.split("."))) >= (1, 16)
try:
    rt.InferenceSession("nowhere.onnx")
except NoSuchFile:
    print(rt.get_build_info().split()[0], C.get_available_providers(), sys.argv[1:], __name__)
try:
    rt.InferenceSession(sys.argv[1]).run(None, {"q": 1, "x": [[1] * 4], "k": [1]})
except InvalidArgument as error:
    print("refused", "q" in str(error))
"""


def ran(*command: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_application_runs_with_the_swap(tmp_path: Path) -> None:
    path = saved(TEXT, tmp_path / "m.onnx")
    (tmp_path / "app.py").write_text(APPLICATION)
    expected = f"Pliant ['CPUExecutionProvider'] [{path!r}] __main__\nrefused True\n"
    assert ran("-m", "pliant.onnxruntime", "app.py", path, cwd=tmp_path) == expected
    assert ran("-m", "pliant.onnxruntime", "-m", "app", path, cwd=tmp_path) == expected
    by_hand = "import sys, pliant.onnxruntime; sys.modules['onnxruntime'] = pliant.onnxruntime; __name__ = '__main__'\n" + APPLICATION
    assert ran("-c", by_hand, path, cwd=tmp_path) == expected


def test_the_command_says_what_it_takes(tmp_path: Path) -> None:
    for wrong in ([], ["--help-me"], ["nowhere.py"]):
        done = subprocess.run([sys.executable, "-m", "pliant.onnxruntime", *wrong], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2 and "usage: python -m pliant.onnxruntime" in done.stderr
