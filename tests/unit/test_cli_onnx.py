"""`pliant inspect`, `run`, `compile` and `check` of an ONNX model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pliant
from pliant.cli import main

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x) => (float[n, 4] y) {
    two = Constant<value = float {2.0}>()
    a = Mul(x, two)
    y = Relu(a)
}"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return str(path)


def test_inspect(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", model]) == 0
    shown = capsys.readouterr().out
    assert "x: Tensor[f32, n, 4]" in shown and "-> y: Tensor[f32, n, 4]" in shown and "1 Relu" in shown
    assert main(["inspect", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators"] == {"Constant": 1, "Mul": 1, "Relu": 1}


def test_inspect_counts_the_weights_of_branches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[n, 2] x) => (float[n, 2] y) {
        y = If (c) <
            then_branch = a () => (float[n, 2] p) { w = Constant<value = float[2] {1.0, 2.0}>() p = Mul(x, w) },
            else_branch = b () => (float[n, 2] q) { v = Constant<value = float[2] {3.0, 4.0}>() q = Add(x, v) }
        >
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "branches.onnx")
    assert main(["inspect", str(tmp_path / "branches.onnx"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == {"tensors": 2, "bytes": 16}


def test_inspect_lists_everything_that_is_not_supported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.onnx"
    text = TEXT.replace("Relu(a)", "StringSplit(b)").replace("a = Mul(x, two)", "b = StringNormalizer(x)")
    onnx.save(onnx.parser.parse_model(text), path)
    assert main(["inspect", str(path)]) == 2
    shown = capsys.readouterr().out
    assert "2 operators of the model are not supported" in shown and "StringNormalizer: 1 node" in shown and "StringSplit" in shown


def test_run_with_arrays_and_compile(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.array([[-1, 2, 3, -4]], np.float32)
    np.save(tmp_path / "x.npy", x)
    assert main(["run", model, "-i", f"x={tmp_path / 'x.npy'}", "-o", str(tmp_path / "out.npz"), "--repeat", "1"]) == 0
    assert "y: float32 (1, 4), 0 to 6" in capsys.readouterr().out
    assert np.load(tmp_path / "out.npz")["y"].tolist() == [[0, 4, 6, 0]]
    assert main(["compile", model, "-o", str(tmp_path / "m.pliant"), "--dim", "n=1..8"]) == 0
    assert "n in 1..8" in capsys.readouterr().out
    assert pliant.load(tmp_path / "m.pliant")(x).tolist() == [[0, 4, 6, 0]]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--dim", "n=2..5"], "`pliant run` needs one value of dim `n`, not the range 2..5"),
        (["-o", "results"], "`results` is no .npz file"),
        (["-o", "no/such/folder/out.npz"], "there is no folder `no/such/folder`"),
        (["--report", "page.txt"], "`page.txt` is no .html file"),
        (["--dim", "n"], "`--dim n` is not understood"),
        (["--dim", "n=a b"], "`a b` is no value of dim `n`"),
        (["--dim", "n=2", "-i", "z=zeros"], "the model has no input `z`"),
        (["--dim", "n=2", "-i", "x=nowhere.npy"], "there is no file `nowhere.npy`"),
    ],
)
def test_run_says_what_is_missing(model: str, options: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, *options]) == 2
    assert what in capsys.readouterr().err


def test_check_finds_the_first_node_that_differs(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ["check", model, "--dim", "n=3", "--against", "reference", "--interpret"]
    assert main(ask) == 0
    shown = capsys.readouterr().out
    assert "no value differs" in shown and "the error grows at" not in shown, "doubling and ReLU are exact"
    from pliant.frontends.onnx.registry import RULES

    right = RULES["", "Relu"]
    monkeypatch.setitem(RULES, ("", "Relu"), lambda site: pliant.ops.mul(right(site), 3.0))
    saved = tmp_path / "one.onnx"
    assert main([*ask, "--save", str(saved)]) == 1
    assert 'node "y" (Relu)' in capsys.readouterr().out
    assert [n.op_type for n in onnx.load(saved).graph.node] == ["Relu"]


def test_a_profile_is_part_of_the_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "--dim", "n=3", "--profile", "--json"]) == 0
    assert [k["calls"] for k in json.loads(capsys.readouterr().out)["kernels"]] == [1]


def test_help_does_not_propose_what_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEXT.replace('"" : 17', '"" : 17, "mine" : 1').replace("Relu(a)", "mine.Foo(a)")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "mine.onnx")
    assert main(["run", str(tmp_path / "mine.onnx"), "--dim", "n=3", "--fallback"]) == 2
    shown = capsys.readouterr().err
    assert 'mine.Foo: 1 node, "y"' in shown and "fallback" not in shown


def test_check_compiles_the_model_as_it_is(model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ask = ["check", model, "--dim", "n=3", "--against", "reference"]
    assert main(ask) == 0
    assert 'compiled, output "y" is off by 0.00e+00' in capsys.readouterr().out
    assert main([*ask, "--compiled", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [r["value"] for r in shown["nodes"]] == ["two", "a", "y"] and shown["compiled"] == []
    monkeypatch.setattr("pliant.onnx_backend.compiled", lambda program, **options: lambda arrays: [arrays[0] + 5])
    assert main(ask) == 1
    assert "compiled code is not" in capsys.readouterr().out


def test_check_tells_the_error_of_fast_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 32, 16, 16]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([node], "net", infos[:1], infos[1:], [onnx.numpy_helper.from_array(weight, "w")])
    file = tmp_path / "conv.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), file)
    errors = []
    for accuracy in ("full", "fast"):
        assert main(["check", str(file), "--against", "reference", "--accuracy", accuracy, "--json"]) == 0
        errors += [r["error"] for r in json.loads(capsys.readouterr().out)["compiled"]]
    assert 0 < errors[0] < errors[1] < 1e-5
    assert main(["check", str(file), "--against", "reference", "--accuracy", "low"]) == 2
    assert "there is no accuracy `low`" in capsys.readouterr().err


def test_an_operator_runs_in_python_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from pliant.frontends.onnx.registry import RULES
    from pliant.frontends.onnx.rules import rule_of

    assert rule_of("", "Det") is not None
    monkeypatch.delitem(RULES, ("", "Det"))
    text = TEXT.replace("float[n, 4] x", "float[2, 2] x").replace("float[n, 4] y", "float y").replace("y = Relu(a)", "y = Det(a)")
    model = onnx.parser.parse_model(text)
    with pytest.raises(pliant.UnsupportedError, match="an operator of the model is not supported"):
        pliant.from_onnx(model)
    y = pliant.compile(pliant.from_onnx(model, fallback=True))(np.array([[1, 2], [3, 4]], np.float32))
    assert abs(float(y) + 8) < 1e-5


def test_sizes_of_a_benchmark() -> None:
    from pliant.cli import Usage
    from pliant.cli.bench_onnx import dim_sets, table

    assert dim_sets(["n=17,128", "b=1"]) == [{"n": 17, "b": 1}, {"n": 128, "b": 1}]
    assert dim_sets([]) == [{}]
    for wrong in (["n"], ["n=x"], ["n=1,2", "m=1,2,3"]):
        with pytest.raises(Usage):
            dim_sets(wrong)
    row = {"dims": {"n": 17}, "best": {"pliant": 0.002, "onnxruntime": 0.004}, "median": {"pliant": 0.003, "onnxruntime": 0.005}}
    text = table([row | {"times": {"onnxruntime": 2.0}}], ["onnxruntime"], 2)
    assert text.splitlines()[1].split() == ["n", "=", "17", "2.000", "3.000", "4.000", "5.000", "2.00x"]


def test_a_benchmark_says_what_is_missing_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    assert main(["bench", str(tmp_path / "m.onnx"), "--vs", "onnxruntim"]) == 2
    assert "onnxruntime" in capsys.readouterr().err
    onnx.save(onnx.parser.parse_model(TEXT.replace("float[n, 4]", "float[n]")), tmp_path / "v.onnx")
    assert main(["bench", str(tmp_path / "v.onnx")]) == 2
    assert "the value of dim `n` is missing" in capsys.readouterr().err
    import venv

    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    short = ["--rounds", "1", "--seconds", "0.01", "--vs", "openvino", "--peer-python", str(python)]
    assert main(["bench", str(tmp_path / "m.onnx"), *short]) == 2
    shown = capsys.readouterr().err
    assert f"openvino is not installed for `{python}`" in shown and f"{python} -m pip install openvino" in shown


def test_a_benchmark_of_several_numbers_of_threads(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["bench", model, "--dim", "n=2,3", "--threads", "1,2", "--rounds", "1", "--seconds", "0.01"]
    assert main([*ask, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(r["threads"], r["dims"]["n"]) for r in shown["rows"]] == [(1, 2), (1, 3), (2, 2), (2, 3)]
    assert all(0 < r["best"]["pliant"] <= r["median"]["pliant"] for r in shown["rows"])


def test_inspect_counts_products() -> None:
    from pliant.frontends.onnx.importer import Importer
    from pliant.frontends.onnx.reader import read_model
    from pliant.frontends.onnx.summary import multiply_adds

    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4, 8, 8] x, float[6, 2, 3, 3] w, float[36, 5] v) => (float[n, 6, 5] y) {
    a = Conv <group = 2> (x, w)
    shape = Constant <value_ints = [0, 6, 36]> ()
    b = Reshape(a, shape)
    y = MatMul(b, v)
}""")
    total = multiply_adds(Importer(read_model(model)).run())
    assert str(total) == f"n * {6 * 36 * 2 * 9 + 6 * 5 * 36}"


def test_layers_are_a_table_by_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 3, height, width] x) => (float[n, 4, h, w] y) {
        a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w0)
        b = Relu(a)
        c = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(b, w1)
        y = Relu(c)
    }"""
    proto = onnx.parser.parse_model(text)
    for node, name in zip(proto.graph.node, ("stem/conv/Conv", "stem/act/Relu", "body/conv/Conv", "body/act/Relu"), strict=True):
        node.name = f"/{name}"
    for name, channels in (("w0", 3), ("w1", 4)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, channels, 3, 3), np.float32), name))
    onnx.save(proto, tmp_path / "m.onnx")
    assert main(["inspect", str(tmp_path / "m.onnx"), "--show", "layers", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [r["module"] for r in shown["modules"]] == ["stem/conv", "stem/act", "body/conv", "body/act"]
    first, _, third, last = shown["modules"]
    size = shown["dims"]["height"] // 2
    assert first["multiply_adds"] == 4 * 3 * 9 * size**2 and third["multiply_adds"] == 4 * 4 * 9 * (size // 2) ** 2
    assert (first["weights"], third["weights"]) == (4 * 3 * 9, 4 * 4 * 9)
    assert last["output"] == "[n, 4, (height + 3) // 4, (width + 3) // 4]"
    assert main(["inspect", str(tmp_path / "m.onnx"), "--show", "layers"]) == 0
    assert capsys.readouterr().out.splitlines()[-2].split() == ["all", "4", "252", "9.44", "million"]
    assert main(["inspect", str(tmp_path / "m.onnx")]) == 0
    assert "-> y: Tensor[f32, n, 4, (height + 3) // 4, (width + 3) // 4]" in capsys.readouterr().out


def test_modules_are_shown_as_deep_as_the_table_stays_readable() -> None:
    from types import SimpleNamespace as Thing

    from pliant.frontends.onnx.modules import MOST_ROWS, _path, module_rows

    assert _path(Thing(origin=("/model.0/conv/Conv",))) == ("model.0", "conv")
    assert _path(Thing(origin=("p2o.Conv.12",))) == ("p2o.Conv",) and _path(Thing(origin=())) == ("(no name)",)
    lines = "\n".join(f"a{k + 1} = Relu(a{k})" for k in range(60))
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\ng (float[n] a0) => (float[n] a60) {{ {lines} }}')
    for k, node in enumerate(proto.graph.node):
        node.name = f"/block.{k // 20}/part.{k}/Relu"
    from pliant.frontends.onnx.importer import Importer
    from pliant.frontends.onnx.reader import read_model

    rows = module_rows(Importer(read_model(proto)).run(), {})
    assert len(rows) <= MOST_ROWS and [(r["module"], r["operators"]) for r in rows] == [(f"block.{k}", 20) for k in range(3)]


def test_inputs_that_are_no_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "--dim", "n=2", "-i", "x=1.5", "-o", str(tmp_path / "out.npz"), "--repeat", "1"]) == 0
    assert np.load(tmp_path / "out.npz")["y"].tolist() == [[3.0] * 4] * 2
    assert main(["run", str(tmp_path / "m.onnx"), "--dim", "n=2", "-i", "x=nothing.npy"]) == 2
    assert "there is no file `nothing.npy`" in capsys.readouterr().err


def test_compile_for_further_targets(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pliant.runtime import container

    out = tmp_path / "m.pliant"
    assert main(["compile", model, "--target", "wasm,aarch64@linux", "-o", str(out)]) == 0
    assert [s.name for s in container.read(out).find("code")] == ["native", "wasm", "aarch64@linux"]
    capsys.readouterr()
    assert main(["compile", model, "--target", "wasm,aarch46", "-o", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "unknown target `aarch46`" in captured.err and "`aarch64`" in captured.err


def test_export(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    assert main(["export", model, "--target", "aarch64@android", "-o", str(folder)]) == 0
    names = ["libmodel.so", "model.h", "model.json", "model.o"]
    assert sorted(p.name for p in folder.iterdir()) == names
    captured = capsys.readouterr()
    assert sorted(Path(line.split(":")[0]).name for line in captured.out.splitlines()) == names and captured.err == ""
    assert main(["export", model, "--target", "wasm+simd128", "-o", str(folder), "--name", "net", "--dim", "n=1..8", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["target"] == "wasm+simd128" and {Path(f).name for f in answer["files"]} == {"net.wasm", "net.json"}
    assert json.loads((folder / "net.json").read_text())["symbols"] == [{"name": "n", "min": 1, "max": 8, "multiple_of": 1}]


@pytest.mark.parametrize(
    ("name", "what"), [("webgpu", "is not there yet"), ("web+simd128", "takes no features"), ("wasm+simd", "near: `simd128`")]
)
def test_export_refuses_a_target_in_one_sentence(
    model: str, tmp_path: Path, name: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", model, "--target", name, "-o", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert what in captured.err and captured.out == "" and "Traceback" not in captured.err and not (tmp_path / "out").exists()


def test_export_needs_a_target_and_a_folder(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", model]) == 2
    assert "--target" in capsys.readouterr().err
    assert main(["export", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "riscv64+v@linux" in shown and "@OS" in shown
