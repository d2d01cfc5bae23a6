"""The programs that `compare_kernels.py` compiles: name, program, and arguments to run it on.

    for item in corpus(["schedule", "sizes"]): item.program, item.arguments

schedule    the loop programs that schedules are tested on
loops       random loop programs
ops         the cases of operators, over static and over symbolic dims
graphs      random graphs
sizes       operators at the sizes of real models, at which the rules cut tiles
models      a decoder layer, a small embedder, a small decoder and a small convolutional net

What a program is made of comes from the tests that lie beside this file, whichever compiler they are given to; a program that
cannot be made says why (`Broken`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

LOOPS, GRAPHS = 60, 60  # random programs


class Item(NamedTuple):
    """A program by its name; both parts are made when they are asked for, with the compiler that is loaded."""

    name: str
    program: Callable[[], Any]  # what `pliant.compile` takes
    arguments: Callable[[], Sequence[Any] | None]  # to call it with; None where it is not run


def corpus(groups: Sequence[str]) -> Iterator[Item]:
    """The programs of some groups, in an order that is always the same."""
    for group in groups:
        for name, program, arguments in GROUPS[group]():
            yield Item(f"{group}/{name}", program, arguments)


Made = Iterator[tuple[str, Callable[[], Any], Callable[[], Sequence[Any] | None]]]


def _schedule() -> Made:
    from schedule_kernels import KERNELS, kernel

    for name in KERNELS:
        yield name, functools.partial(kernel, name), lambda: None


def _loops() -> Made:
    import generate_loops

    for seed in range(LOOPS):
        yield str(seed), functools.partial(generate_loops.make_program, seed), lambda: None


def _ops() -> Made:
    from op_cases import CASES, arrays_of, build

    for name, case in CASES.items():
        for kind in ("static", "symbolic"):
            yield (
                f"{name}/{kind}",
                lambda case=case, kind=kind: build(case, kind == "symbolic")[0],
                lambda case=case: arrays_of(case, build(case, False)[2]),
            )


def _graphs() -> Made:
    import random_graphs

    for seed in range(GRAPHS):

        def arguments(seed: int = seed) -> Any:
            return random_graphs.make_arguments(*random_graphs.make_function(seed), seed)

        yield str(seed), lambda seed=seed: random_graphs.make_function(seed)[0], arguments


def _sizes() -> Made:
    for name, (call, shapes) in SIZES.items():
        yield name, functools.partial(_function, call, shapes), functools.partial(_arrays, shapes)


Shape = tuple[int | str, ...]
SIZES: dict[str, tuple[str, tuple[Shape, ...]]] = {
    "matmul": ("matmul(x0, x1)", (("n", 576), (576, 1536))),
    "matmul_square": ("matmul(x0, x1)", ((512, 1024), (1024, 1024))),
    "matmul_row": ("matmul(x0, x1)", ((1, 576), (576, 1536))),
    "matmul_batch": ("matmul(x0, x1)", ((12, "n", 64), (12, 64, "n"))),
    "matmul_batch_1": ("matmul(x0, x1)", ((1, "n", 384), (1, 384, 100))),
    "matmul_static": ("matmul(x0, x1)", ((4, 17, 96), (4, 96, 50))),
    "linear_relu": ("relu(linear(x0, x1, x2))", (("n", 384), (1536, 384), (1536,))),
    "conv": ("conv(x0, x1, padding=1)", ((1, 64, 28, 28), (64, 64, 3, 3))),
    "conv_batch": ("conv(x0, x1, padding=1)", ((4, 16, "n", 30), (24, 16, 3, 3))),
    "conv_stride": ("conv(x0, x1, stride=2, padding=3)", ((1, 3, 64, 64), (32, 3, 7, 7))),
    "conv_1x1": ("conv(x0, x1)", ((1, 64, 20, 20), (96, 64, 1, 1))),
    "depthwise": ("conv(x0, x1, padding=1, groups=32)", ((1, 32, 28, 28), (32, 1, 3, 3))),
    "max_pool": ("max_pool(x0, 3, stride=2)", ((1, 64, 56, 56),)),
    "mean_rows": ("mean(x0, axis=(-1,))", (("n", 384),)),
    "mean_map": ("mean(x0, axis=(2, 3))", ((1, 64, 40, 40),)),
    "sum_all": ("sum(x0)", (("n", 384),)),
    "sum_columns": ("sum(x0, axis=(0,))", (("n", 384),)),
    "softmax": ("softmax(x0)", ((12, "n", "n"),)),
    "rms_norm": ("rms_norm(x0, x1)", (("n", 576), (576,))),
    "layer_norm": ("layer_norm(x0, x1, x2)", ((1, "n", 384), (384,), (384,))),
    "gelu": ("gelu(x0)", (("n", 1536),)),
    "add_broadcast": ("add(x0, x1)", ((1, 64, 28, 28), (64, 1, 1))),
    "transpose": ("permute(x0, (0, 2, 1))", ((1, "n", 384),)),
    "concat": ("concat((x0, x1), axis=1)", ((1, 32, 14, 14), (1, 16, 14, 14))),
}
SIZE_OF = {"n": 45}


def _function(call: str, shapes: tuple[Shape, ...]) -> Any:
    """An expression over operators, as a graph function."""
    from pliant import ops
    from pliant.dtype import f32
    from pliant.graph.builder import Builder
    from pliant.graph.node import Tensor
    from pliant.sym.expr import Dim, const

    builder, dims = Builder("sized"), {name: Dim(name) for name in SIZE_OF}
    given = {
        f"x{k}": builder.param(f"x{k}", Tensor(f32, tuple(dims[s] if isinstance(s, str) else const(s) for s in shape)))
        for k, shape in enumerate(shapes)
    }
    with builder:
        result = eval(call, {name: getattr(ops, name) for name in dir(ops)} | given)
    return builder.finish([result])


def _arrays(shapes: tuple[Shape, ...]) -> list[Any]:
    rng = np.random.default_rng(3)
    sizes = (tuple(SIZE_OF[s] if isinstance(s, str) else s for s in shape) for shape in shapes)
    return [rng.standard_normal(size).astype(np.float32) for size in sizes]


def _models() -> Made:
    yield "decoder_layer", _decoder_layer, _decoder_layer_arguments
    yield "embedder", _embedder, _embedder_arguments
    yield "decoder", _decoder, lambda: None
    yield "convolutions", _convolutions, lambda: [np.random.default_rng(1).standard_normal((2, 3, 40, 36)).astype(np.float32)]


def _decoder_layer() -> Any:
    import decoder_layer

    return decoder_layer.decoder_layer


def _decoder_layer_arguments() -> Any:
    import decoder_layer
    import pliant

    named = decoder_layer.prefill_arguments(decoder_layer.random_weights(), 20)
    return [named[p.name] for p in pliant.api.program_of(decoder_layer.decoder_layer).entry.params]


def _embedder() -> Any:
    from pliant.llm.models.bert import Bert, Settings

    model = Bert(Settings(64, 4, 128, 2, 300, 64))
    rng = np.random.default_rng(2)
    shapes = {name: tuple(map(int, parameter.shape)) for name, parameter in model.named_parameters()}
    return model.load_state_dict({name: (rng.standard_normal(shape) * 0.1).astype(np.float32) for name, shape in shapes.items()})


def _embedder_arguments() -> list[Any]:
    rng = np.random.default_rng(4)
    return [rng.integers(1, 300, (2, 17)), np.ones((2, 17), np.int64)]


def _decoder() -> Any:
    from decoder_models import decoder
    from pliant.frontends.onnx import from_onnx

    return from_onnx(decoder(layers=2, width=64, heads=4, kv=2, inner=128, words=100).SerializeToString())


def _convolutions() -> Any:
    sys.path.insert(0, str(ROOT / "tests" / "models"))
    from test_onnx_sizes import model

    from pliant.frontends.onnx import from_onnx

    return from_onnx(model())


GROUPS: dict[str, Callable[[], Made]] = {
    "schedule": _schedule,
    "loops": _loops,
    "ops": _ops,
    "graphs": _graphs,
    "sizes": _sizes,
    "models": _models,
}
