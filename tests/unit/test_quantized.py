"""Weights as codes: which become some, how far results are off, and the bytes against the reader of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import ops as _ops
from pliant.dtype import f32
from pliant.dtype import i64 as i64_
from pliant.graph.builder import Builder
from pliant.graph.node import Const, Op, Tensor
from pliant.program import Program
from pliant.quantization.dequantize import dequantize
from pliant.quantization.encode import encode
from pliant.quantization.formats import BY_NAME
from pliant.support.errors import Error
from pliant.sym.expr import Dim, const

ops: Any = _ops
RNG = np.random.default_rng(2)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("format", "bits", "levels"), [("Q8_0", 34, 127), ("Q4_1", 20, 15)])
def test_bytes_mean_what_was_encoded(format: str, bits: int, levels: int) -> None:
    weight = floats(5, 96)
    weight[0, :32] = 0.0
    raw = encode(format, weight)
    assert raw.shape == (5, 3, bits)
    back = dequantize(BY_NAME[format], raw.reshape(-1)).reshape(5, 96)
    blocks = weight.reshape(5, 3, 32)
    step = (np.ptp(blocks, axis=-1) if format == "Q4_1" else np.abs(blocks).max(axis=-1)) / levels
    assert (np.abs(back.reshape(5, 3, 32) - blocks) <= step[..., None] * 0.52 + 2e-3).all()
    assert not back[0, :32].any()


def network() -> Program:
    builder, n = Builder("net"), Dim("n")
    ids = builder.param("ids", Tensor(i64_, (n, const(4))))
    image = builder.param("image", Tensor(f32, (const(1), const(8), const(6), const(6))))
    with builder:
        h = ops.take(ops.constant(floats(100, 64)), ids, 0)
        h = ops.gelu(ops.matmul(h, ops.constant(floats(64, 128) / 8)))
        y = ops.matmul(h, ops.constant(floats(70, 128) / 11), transpose_b=True)
        z = ops.conv(image, ops.constant(floats(64, 8, 3, 3)), padding=1)
        small = ops.matmul(ops.reshape(ops.slice(y, 2, 0, 8), (-1, 8)), ops.constant(floats(8, 8)))
    return Program.of(builder.finish([y, z, small], {"outputs": ("y", "z", "small")}))


@pytest.mark.parametrize(("weights", "part", "off"), [("int8", 0.35, 0.02), ("int4", 0.3, 0.2)])  # a step over root 12, in three places
def test_a_network(weights: str, part: float, off: float) -> None:
    program = network()
    quantized = pliant.quantize(program, weights)
    used = [n.op for n in quantized.entry.nodes if isinstance(n, Op)]
    assert used.count("block_matmul") == 2
    assert used.count("matmul") == 1  # of few elements
    assert "block_take" in used
    literals = [sum(n.array.nbytes for n in p.entry.nodes if isinstance(n, Const)) for p in (program, quantized)]
    assert literals[1] < part * literals[0]
    feeds = {"ids": RNG.integers(0, 100, (3, 4)), "image": floats(1, 8, 6, 6)}
    errors = {e.name: e for e in pliant.quantization_errors(program, quantized, feeds)}
    assert list(errors) == ["y", "z", "small"]
    assert 0 < errors["y"].relative < off
    assert 0 < errors["z"].relative < 0.012
    assert "% of its size" in str(errors["y"])


def test_mistakes() -> None:
    with pytest.raises(Error, match='weights="int3" is not known'):
        pliant.quantize(network(), "int3")
    with pytest.raises(Error, match="whole blocks of 32"):
        encode("Q8_0", floats(2, 33))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx", reason="a model is made with the package onnx")
    from pliant.cli import main

    weight = onnx.numpy_helper.from_array(floats(64, 128), "w")
    infos = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", ["n", 64]), ("y", ["n", 128]))]
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", infos[:1], infos[1:], [weight])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "--dim", "n=3", "--quantize", "int4", "--repeat", "1"]) == 0
    assert "off what floats give" in capsys.readouterr().out
    assert main(["compile", str(tmp_path / "m.onnx"), "--quantize", "int8", "-o", str(tmp_path / "m.pliant")]) == 0
    assert "y: at most" in capsys.readouterr().out
    assert pliant.load(tmp_path / "m.pliant")(floats(2, 64)).shape == (2, 128)
