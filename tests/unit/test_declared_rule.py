"""The default rule of declared instructions: unchanged ONNX models use them, whatever their sizes, with the bits of the interpreter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from c_programs import Model
from compiled_graphs import without
from declared_instructions import BYTES, OUTER, Declaration, declared
from exported_programs import Exported
from levels import assembly_for, rules_for
from pliant import Program
from pliant.compilation import State
from pliant.interp.graph import run_graph
from pliant.pipeline import compile_as_far_as, run_steps
from pliant.target import target
from wasm_programs import run_host

onnx = pytest.importorskip("onnx", reason="builds ONNX models")

Array = np.ndarray[Any, Any]
TARGETS = {"x86_64": "llvm:x86-64-v2", "aarch64": "llvm:neoverse-n2", "wasm32": "wasm+simd128"}
PATTERNS = {"x86_64": r"pmaddwd\s", "aarch64": r"usmmla\s", "wasm32": r"i32x4\.dot_i16x8_s"}


def model(folder: Path, nodes: list[Any], x: tuple[int, list[Any]], y: tuple[int, list[Any]], weights: Mapping[str, Array]) -> Path:
    """The file of an ONNX model of one input and one output."""
    make, path = onnx.helper, folder / "model.onnx"
    inputs, outputs = ([make.make_tensor_value_info(name, *kind)] for name, kind in (("x", x), ("y", y)))
    literals = [onnx.numpy_helper.from_array(a, name) for name, a in weights.items()]
    graph = make.make_graph(nodes, "g", inputs, outputs, literals)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)]), path)
    return path


def product_of_bytes(folder: Path, depth: int, columns: int) -> Program:
    weights = np.random.default_rng([depth, columns]).integers(-128, 127, (depth, columns), np.int8, endpoint=True)
    make, kinds = onnx.helper.make_node, onnx.TensorProto
    nodes = [make("MatMulInteger", ["x", "w"], ["p"]), make("Cast", ["p"], ["f"], to=kinds.FLOAT), make("Relu", ["f"], ["y"])]
    return pliant.from_onnx(model(folder, nodes, (kinds.UINT8, ["n", depth]), (kinds.FLOAT, ["n", columns]), {"w": weights}))


def convolution(folder: Path, channels: int, out: int, **attributes: Any) -> Program:
    rng = np.random.default_rng([channels, out])
    weights = {"w": rng.standard_normal((out, channels, 3, 3), np.float32), "b": rng.standard_normal(out, np.float32)}
    make, kinds = onnx.helper.make_node, onnx.TensorProto
    nodes = [make("Conv", ["x", "w", "b"], ["p"], **attributes), make("Relu", ["p"], ["y"])]
    return pliant.from_onnx(model(folder, nodes, (kinds.FLOAT, [1, channels, "h", "w"]), (kinds.FLOAT, [1, out, None, None]), weights))


def images(shapes: list[tuple[int, ...]]) -> list[Array]:
    return [np.random.default_rng(shape).standard_normal(shape, np.float32) for shape in shapes]


def host_for(program: Program, to: str) -> Any:
    """The host program for a machine, which packs its weights in the call."""
    state = State(program.entry, target(to), program.constants)
    return run_steps(state, without("lift_constants", "emit")).host


def meaning(program: Program, x: Array) -> Array:
    """What the loop programs of a program compute before they are scheduled, by the interpreter."""
    (result,) = run_graph(compile_as_far_as("fuse", program, target("native")).function, [x])
    return result


def check(program: Program, inputs: list[Array]) -> pliant.Executable:
    """The program compiled for this machine: its results are those of the interpreter, bit for bit."""
    f = pliant.compile(program)
    for x in inputs:
        expected, got = meaning(program, x), f(x)
        assert got.dtype == expected.dtype and got.tobytes() == expected.tobytes()
    return f


def on_this_machine(kind: Mapping[str, Declaration]) -> Any:
    machine = target("native")
    if machine.arch not in kind or not set(kind[machine.arch].options.get("features", ())) <= set(machine.features):
        pytest.skip("this machine has none of the instructions")
    return declared(machine.arch, kind=kind)


@pytest.mark.parametrize(("depth", "columns"), [(64, 32), (13, 21), (3, 2)])
def test_a_model_of_bytes(tmp_path: Path, depth: int, columns: int) -> None:
    program = product_of_bytes(tmp_path, depth, columns)
    inputs = [np.random.default_rng(n).integers(0, 255, (n, depth), np.uint8, endpoint=True) for n in (0, 1, 7)]
    plain = rules_for(program, "native")
    assert "mine" not in plain
    with on_this_machine(BYTES):
        check(program, inputs)
        assert "by `mine`" in rules_for(program, "native")
    assert rules_for(program, "native") == plain  # code that was compiled with the instruction is not taken for code without
    check(program, inputs)


@pytest.mark.parametrize(("arch", "kind"), [("x86_64", BYTES), ("aarch64", BYTES), ("wasm32", BYTES), ("x86_64", OUTER)])
def test_weights_are_packed_before_the_program_runs(tmp_path: Path, arch: str, kind: Mapping[str, Declaration]) -> None:
    """No kernel copies them, in products and in convolutions whose sizes are multiples of the instruction's."""
    program = convolution(tmp_path, 8, 8, pads=[1, 1, 1, 1]) if kind is OUTER else product_of_bytes(tmp_path, 64, 32)
    with declared(arch, kind=kind):
        said = rules_for(program, TARGETS[arch])
        assert "by `mine`" in said and not re.search(r"`(w|x1)_", said), said


@pytest.mark.parametrize("arch", TARGETS)
def test_the_instruction_is_in_the_code_of_each_machine(tmp_path: Path, arch: str) -> None:
    program, to = product_of_bytes(tmp_path, 64, 32), TARGETS[arch]
    with declared(arch, kind=BYTES):
        code = "\n".join(assembly_for(program, to).values())
        assert re.search(PATTERNS[arch], code) and "by `mine`" in rules_for(program, to)
    others = [declared(other, kind=BYTES) for other in TARGETS if other != arch]
    with others[0], others[1]:
        assert "mine" not in rules_for(program, to)


def test_a_model_of_bytes_in_wasm(tmp_path: Path) -> None:
    program = product_of_bytes(tmp_path, 13, 21)
    with declared("wasm32", kind=BYTES):
        host = host_for(program, "wasm+simd128")
        for n in (0, 1, 7):
            x = np.random.default_rng(n).integers(0, 255, (n, 13), np.uint8, endpoint=True)
            (got,) = run_host(host, [x])
            assert got.tobytes() == meaning(program, x).tobytes()


@pytest.mark.parametrize(("depth", "columns"), [(64, 32), (13, 21)])
def test_a_model_of_bytes_on_aarch64(tmp_path: Path, depth: int, columns: int) -> None:
    """In qemu-user, where that is installed, on a CPU that has `usmmla`."""
    program = product_of_bytes(tmp_path, depth, columns)
    with declared("aarch64", kind=BYTES):
        pliant.export(program, "neoverse-n2@linux", tmp_path, name="f")
        exported = Exported(tmp_path, "f", "max")
        for n in (1, 7):
            x = np.random.default_rng(n).integers(0, 255, (n, depth), np.uint8, endpoint=True)
            (got,) = exported.run({"x": x})
            assert got.tobytes() == meaning(program, x).tobytes()


CONVOLUTIONS = [(5, 6, {"pads": [1, 1, 1, 1]}), (8, 8, {}), (3, 8, {"pads": [1, 1, 1, 1], "strides": [2, 2]})]


@pytest.mark.parametrize(("channels", "out", "attributes"), CONVOLUTIONS)
def test_convolutions_of_images_of_any_size_are_matrix_products(tmp_path: Path, channels: int, out: int, attributes: Any) -> None:
    """Sums of products stay in the order of the program, so results are those of the interpreter, bit for bit."""
    program = convolution(tmp_path, channels, out, **attributes)
    inputs = images([(1, channels, *size) for size in ((3, 3), (4, 9), (8, 5))])
    with on_this_machine(OUTER):
        check(program, inputs)
        assert "instruction: `sum` by `mine`" in rules_for(program, "native")


def test_convolutions_of_images_of_any_size_in_wasm(tmp_path: Path) -> None:
    program = convolution(tmp_path, 5, 6, pads=[1, 1, 1, 1])
    with declared("wasm32", kind=OUTER):
        assert "instruction: `sum` by `mine`" in rules_for(program, "wasm+simd128")
        host = host_for(program, "wasm+simd128")
        for x in images([(1, 5, 3, 3), (1, 5, 4, 9)]):
            (got,) = run_host(host, [x])
            assert got.tobytes() == meaning(program, x).tobytes()


@pytest.mark.parametrize("flags", [(), ("-U__SSE2__",)], ids=["with", "without"])
def test_a_model_of_bytes_in_c(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """The form stands in the C code beside the loop, and the C compiler takes what it has."""
    program = product_of_bytes(tmp_path, 13, 21)
    with declared("x86_64", kind=BYTES):
        model = Model(program, flags=flags)
        text = model.files["model.c"].decode()
        assert text.count("_mm_madd_epi16(") == 1 and "#if defined(__SSE2__)\n#include <emmintrin.h>\n#endif" in text
        for n in (1, 7):
            x = np.random.default_rng(n).integers(0, 255, (n, 13), np.uint8, endpoint=True)
            got = np.full((n, 21), 77, np.float32)
            assert model.run({"x": x}, [got], {"n": n}) == 0
            assert got.tobytes() == meaning(program, x).tobytes()


def test_the_instruction_that_does_more_is_taken(tmp_path: Path) -> None:
    program, to = product_of_bytes(tmp_path, 64, 32), "llvm:neoverse-n2"
    smaller = Declaration(BYTES["x86_64"].description, {"features": ("neon",)})
    with declared("aarch64", "larger", BYTES), declared("aarch64", "smaller", {"aarch64": smaller}):
        assert "by `larger`" in rules_for(program, to)
    with declared("aarch64", "smaller", {"aarch64": smaller}):
        assert "by `smaller`" in rules_for(program, to)


def test_decisions(tmp_path: Path) -> None:
    """How many tiles are in registers is a decision, which changes no result."""
    from pliant.schedule.decisions import Decisions
    from pliant.schedule.library import default_schedule
    from schedule_kernels import parse

    func = parse("""
n = dim("n")
@kernel
def mm(a: Tensor[u8, n, 8], b: Tensor[i8, 8, 32], c: Out[i32, n, 32]) -> None:
    for i, j, k in grid(n, 32, 8):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vk, vj])
""")
    texts = set()
    with declared("x86_64", kind=BYTES):
        for tiles in (1, 2, 8):
            decisions = Decisions({"c.tiles": tiles}).of_kernel("mm")
            texts.add(str(default_schedule(func, target("llvm:x86-64-v2"), decisions)[0]))
    assert len(texts) == 3
