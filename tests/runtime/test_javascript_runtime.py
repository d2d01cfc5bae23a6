"""`pliant.js` runs exported modules in node: bits of the interpreter, messages of Python, state, dims known only at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pliant
from counts import count
from exported_models import MODELS, Interpreted
from node_programs import in_node, node, run_in_node
from pliant import Tensor, dim, f32, function, i32, i64, ops
from pliant.support.errors import ShapeError

n = dim("n", max=64)
k = dim("k")
W = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)


@function
def layer(x: Tensor[f32, n, 8], scale: f32, times: i32) -> Tensor[f32, n, 5]:
    return ops.relu(x @ W) * scale * ops.cast(times, "f32")


@pytest.fixture(autouse=True)
def _node() -> None:
    node()


def bits(results: list[np.ndarray]) -> list[bytes]:
    assert isinstance(results, list), results
    return [a.tobytes() for a in results]


@pytest.mark.parametrize("name", MODELS)
def test_models_equal_the_interpreter(name: str, tmp_path: Path) -> None:
    """Two calls in one instance, whose memory has grown by then; the state that they leave is the interpreter's."""
    if name == "decoder_layer" and count(0, 1) == 0:
        pytest.skip("takes long to compile: with PLIANT_LONG=1")
    if name == "onnx_cnn":
        pytest.importorskip("onnx", reason="makes ONNX files")
    model = MODELS[name]()
    pliant.export(model.program, "wasm+simd128", tmp_path, name=name)
    calls, theirs = [model.fresh(), model.fresh()], model.fresh()
    answers = run_in_node(tmp_path, name, calls)
    expected = bits(Interpreted(model.program, "wasm+simd128").run(theirs))
    assert [bits(a) for a in answers] == [expected, expected]
    assert all(np.array_equal(call[k], theirs[k]) for call in calls for k in call)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layer")
    pliant.export(layer, "wasm+simd128", folder)
    return folder


def test_sizes_and_scalars(exported: Path) -> None:
    rng = np.random.default_rng(1)
    calls = [{"x": rng.standard_normal((size, 8)).astype(np.float32), "scale": 1.5, "times": -3} for size in (0, 1, 7, 64)]
    for call, (y,) in zip(calls, run_in_node(exported, "layer", calls), strict=True):
        exact = np.maximum(call["x"].astype(np.float64) @ W, 0) * -4.5
        assert y.shape == (len(call["x"]), 5) and np.allclose(y, exact, rtol=1e-5, atol=1e-6)


def test_checks_have_the_words_of_python(exported: Path) -> None:
    compiled = pliant.compile(layer)
    for shape in ((3, 7), (65, 8), (24,)):
        x = np.zeros(shape, np.float32)
        with pytest.raises(ShapeError) as refused:
            compiled(x, 1.0, 1)
        (said,) = run_in_node(exported, "layer", [{"x": x, "scale": 1.0, "times": 1}])
        assert said.startswith(f"PliantError: {refused.value.what.replace(',)', ')')}"), said


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"x": np.zeros((3, 8))}, "argument `x`: its data is Float64Array, expected Float32Array (f32)"),
        ({"times": 0.5}, "argument `times`: 0.5 is no whole number"),
        ({"times": 2**31}, "argument `times`: 2147483648 is outside of i32"),
        ({"x": None}, "argument `x` is missing"),
        ({"z": 1}, "`layer` has no argument `z`"),
    ],
)
def test_wrong_arguments_are_refused_and_the_next_call_works(exported: Path, change: dict[str, object], what: str) -> None:
    good = {"x": np.ones((3, 8), np.float32), "scale": 1.0, "times": 1}
    refused, answer = run_in_node(exported, "layer", [{**good, **change}, good])
    assert refused == f"PliantError: {what}" and answer[0].shape == (3, 5)


@function
def places(x: Tensor[i64, n, 13]) -> Tensor[i64, k, 2]:
    return ops.nonzero(x, count=k)


def test_sizes_that_only_the_run_knows(tmp_path: Path) -> None:
    pliant.export(places, "wasm+simd128", tmp_path)
    x = (np.random.default_rng(2).random((9, 13)) < 0.3).astype(np.int64)
    ((found,),) = run_in_node(tmp_path, "places", [{"x": x}])
    assert np.array_equal(found, np.argwhere(x))


def test_a_damaged_export_is_refused(exported: Path, tmp_path: Path) -> None:
    for file in exported.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "layer.bin").write_bytes(b"1234")
    with pytest.raises(AssertionError, match=r"PliantError: layer\.bin has 4 bytes, expected 256"):
        run_in_node(tmp_path, "layer", [])


def test_a_call_that_waits_has_the_inputs_of_when_it_was_made(exported: Path) -> None:
    said = in_node(
        """
        const m = await load(url);
        const x = new Float32Array(8), calls = [], again = [];
        for (const v of [1, 2, 3]) { x.fill(v); calls.push(m.run({ x, scale: 1, times: 1 })); }
        const values = (all) => all.map((r) => Array.from(Object.values(r)[0].data));
        for (const v of [1, 2, 3]) again.push(await m.run({ x: new Float32Array(8).fill(v), scale: 1, times: 1 }));
        say([values(await Promise.all(calls)), values(again)]);
        m.close();
        """,
        url=(exported / "layer.json").as_uri(),
    )
    assert isinstance(said, list)
    for n, row in enumerate(said[0]):
        assert np.allclose(row, np.maximum(np.full(8, n + 1, np.float32) @ W, 0), rtol=1e-5, atol=1e-6)
    assert said[0] == said[1]


def test_lists_of_numbers_are_checked() -> None:
    said = in_node(
        """
        const { list } = await import(web);
        const take = (dtype, value) => {
          try { return Array.from(list({ dtype }, value, "x"), String); } catch (e) { return `${e.name}: ${e.message}`; }
        };
        say(cases.map(([dtype, value]) => take(dtype, value)));
        """,
        web=(Path(pliant.__file__).parent / "codegen/web/arrays.js").as_uri(),
        cases=[
            ["i8", [300]],
            ["i8", [1.5]],
            ["f16", [1]],
            ["f32", [[1], [2]]],
            ["i64", [1.5]],
            ["f32", ["1"]],
            ["u8", [255, 0]],
            ["i64", [-5]],
            ["f32", [0.5]],
        ],
    )
    assert said == [
        "PliantError: x: 300 is outside of i8",
        "PliantError: x: 1.5 is no whole number",
        "PliantError: x: f16 is passed as its bits: a Uint16Array",
        "PliantError: x: its list holds Array, expected numbers",
        "PliantError: x: 1.5 is no whole number",
        "PliantError: x: its list holds String, expected numbers",
        ["255", "0"],
        ["-5"],
        ["0.5"],
    ]
