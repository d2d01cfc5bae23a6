"""Small models of each kind with arguments, and what their programs compute, scheduled for a target and run by the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import decoder_layer as example
import pliant
from compiled_graphs import interpret_host
from pliant import InOut, State, Tensor, dim, f32, function, kernel, ops
from pliant.api import program_of
from pliant.lower.host.host import HostProgram
from pliant.pipeline import CODE, compile_as_far_as, run_steps
from pliant.runtime.loading import open_package
from pliant.target import target

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Model:
    """A program, and what it is called with."""

    program: pliant.Program
    arguments: Mapping[str, Any]

    def fresh(self) -> dict[str, Any]:
        """Arguments whose state nobody has changed."""
        return {name: np.array(a) if isinstance(a, np.ndarray) else a for name, a in self.arguments.items()}


def decoder_layer() -> Model:
    """The example's layer with its cache in pages, two sequences."""
    cache = example.Cache(pages=4, slots=2, sequences=2)
    x = np.random.default_rng(5).standard_normal((7, example.WIDTH)).astype(np.float32)
    arguments = {"x": x, **cache.step({0: 6, 1: 1}), **example.random_weights(), "keys": cache.keys, "values": cache.values}
    return Model(pliant.Program(example.decoder_layer.graph), arguments)


def sentence_embedder() -> Model:
    """MiniLM's architecture with small numbers, and weights inside."""
    from pliant.llm.models.bert import Bert, Settings

    model = Bert(Settings(width=48, heads=3, ffn=96, layers=2, vocab_size=101, positions=40))
    rng = np.random.default_rng(3)
    weights = {name: (0.2 * rng.standard_normal(p.shape)).astype(np.float32) for name, p in model.named_parameters()}
    model.load_state_dict(weights)
    ids, mask = rng.integers(0, 101, (2, 11)), np.ones((2, 11), np.int64)
    mask[1, 8:] = 0
    return Model(program_of(model), {"ids": ids, "mask": mask})


def onnx_cnn() -> Model:
    """Convolutions of all kinds, pooling and a classifier, from an ONNX file of any height and width."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(4)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 1, 3, 3), "w3": (16, 8, 1, 1), "b3": (16,), "w4": (16, 10)}
    tensors = [numpy_helper.from_array((0.3 * rng.standard_normal(s)).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], group=8),
        helper.make_node("Sigmoid", ["c"], ["d"]),
        helper.make_node("Mul", ["c", "d"], ["e"]),
        helper.make_node("Conv", ["e", "w3", "b3"], ["f"]),
        helper.make_node("MaxPool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["g"], ["h"]),
        helper.make_node("Flatten", ["h"], ["i"]),
        helper.make_node("MatMul", ["i", "w4"], ["j"]),
        helper.make_node("Softmax", ["j"], ["y"], axis=1),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "height", "width"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])]
    graph = helper.make_graph(nodes, "cnn", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    onnx.checker.check_model(model)
    program = pliant.from_onnx(model.SerializeToString())
    return Model(program, {"x": rng.standard_normal((1, 3, 21, 18)).astype(np.float32)})


n = dim("n", max=64)


@kernel
def follow(mean: Tensor[f32, 12], past: InOut[f32, 12]) -> None:
    for i in range(12):
        past[i] = past[i] * 0.75 + mean[i] * 0.25


@function
def smooth(x: Tensor[f32, n, 12], past: State[f32, 12]) -> tuple[Tensor[f32, n, 12], State[f32, 12]]:
    """Each block of a stream is centered by the mean of what came before it."""
    y = ops.tanh(x - past)
    past = follow(ops.mean(x, axis=0), past)
    return y, past


def stream() -> Model:
    """A program whose state goes from call to call."""
    x = np.random.default_rng(6).standard_normal((9, 12)).astype(np.float32)
    return Model(program_of(smooth), {"x": x, "past": np.linspace(-1, 1, 12, dtype=np.float32)})


MODELS: dict[str, Callable[[], Model]] = {
    "decoder_layer": decoder_layer, "sentence_embedder": sentence_embedder, "onnx_cnn": onnx_cnn, "stream": stream,
}  # fmt: skip


class Interpreted:
    """A program scheduled for a target and run by the interpreter, with what it computes once from its weights."""

    def __init__(self, program: pliant.Program, name: str) -> None:
        state = compile_as_far_as("host", program, target(name))
        assert state.host is not None
        self.host: HostProgram = state.host
        if state.load is not None:
            start = replace(state, function=state.load, load=None, derived=(), copy_elision=None, kernels=None, host=None)
            load = run_steps(start, CODE[:-1]).host
            assert load is not None
            computed = {id(array): value for array, value in zip(state.derived, interpret_host(load, []), strict=True)}
            constants = tuple(replace(c, array=computed.get(id(c.array), c.array)) for c in self.host.constants)
            self.host = replace(self.host, constants=constants)

    def run(self, arguments: Mapping[str, Any]) -> list[Array]:
        """The results; state is updated in place."""
        return list(interpret_host(self.host, [arguments[p.name] for p in self.host.layout.params]))


def run_scheduled_for(program: pliant.Program, name: str, arguments: Mapping[str, Any]) -> list[Array]:
    """What the programs that are scheduled for a target compute, as native code of this machine, whatever it has itself."""
    start = compile_as_far_as("host", program, target(name), load_here=True)
    package = CODE[-1].run(replace(start, target=target("native"))).package
    assert package is not None
    results = open_package(package, start.constants)(**arguments)
    return list(results) if isinstance(results, tuple) else [results]
