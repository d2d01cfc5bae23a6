"""Layers whose schedules have choices, and vectors of decisions for them: random ones, and all of them where they are few.

vector = random_vector("matmul", target("native"), Stream(7))      # {"matmul.dot.tile": (3, 2), "matmul.dot.unroll": 4, …}
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count as numbers
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import conv
import gemm
import products
from declared_instructions import declared
from pliant import ops
from pliant.api import program_of
from pliant.dtype import DType, f16, f32, i8, i16, u8
from pliant.graph.builder import Builder
from pliant.graph.node import CallLoop, Tensor
from pliant.lower.callee import func_of
from pliant.pipeline import compile_as_far_as
from pliant.schedule.decisions import Decision, Decisions, Drawn, Value
from pliant.schedule.library import default_family, driver
from pliant.schedule.library.record import Rule
from pliant.support.random import Stream
from pliant.sym.expr import Dim, const
from pliant.target import Target, target
from schedule_kernels import parse

Shape = tuple[int | str, ...]
SIZES = {"n": 45, "m": 7}


@dataclass(frozen=True)
class Layer:
    """An expression over operators, or a loop program; the phase of the rule that it is for, and its tensors. `n` and `m` are dims."""

    text: str
    shapes: tuple[Shape, ...]
    phase: str
    dtypes: tuple[DType, ...] = ()  # f32 where there are none
    weights: tuple[int, ...] = ()  # which tensors are constants


# The sizes are those of layers of benchmarks, or smaller where these would take long.
LAYERS: dict[str, Layer] = {
    "matmul": Layer("matmul(x0, x1)", (("n", 300), (300, 200)), "products"),
    "matmul_crowded": Layer("matmul(x0, x1)", (("n", 512), (512, 512)), "products"),
    "matmul_static": Layer("matmul(x0, x1)", ((70, 96), (96, 130)), "products"),
    "matmul_relu": Layer("relu(matmul(x0, x1))", ((33, 280), (280, 72)), "products"),
    "matmul_batch": Layer("matmul(x0, x1)", ((3, "n", 40), (3, 40, "n")), "products"),
    "matmul_batch_cut": Layer("matmul(x0, x1)", ((4, 17, 96), (4, 96, 150)), "products"),
    "matmul_packed": Layer("matmul(x0, x1)", (("n", 96), (96, 80)), "products", weights=(1,)),
    "matmul_half": Layer("matmul(x0, cast(x1, f32))", (("n", 64), (64, 96)), "decoding", (f32, f16)),
    "sum_columns": Layer("sum(x0, axis=(0,))", (("n", 384),), "products"),
    "one_row": Layer("matmul(x0, x1)", ((1, 576), (576, 1536)), "one row"),
    "one_row_long": Layer("matmul(x0, x1)", ((1, 2000), (2000, 640)), "one row"),
    "one_row_odd": Layer("relu(matmul(x0, x1))", ((1, 130), (130, 1001)), "one row"),
    "integers": Layer("matmul_integer(x0, x1)", (("n", 64), (64, 96)), "integer products", (u8, i8), (1,)),
    "integers_odd": Layer("matmul_integer(x0, x1)", ((19, 70), (70, 50)), "integer products", (u8, i8), (1,)),
    "conv": Layer("conv(x0, x1, padding=1)", ((1, 32, 14, 14), (48, 32, 3, 3)), "convolutions"),
    "conv_stem": Layer("conv(x0, x1, stride=2, padding=1)", ((1, 3, 40, 40), (20, 3, 3, 3)), "convolutions"),
    "conv_dynamic": Layer("conv(x0, x1, padding=1)", ((2, 16, "n", 30), (24, 16, 3, 3)), "convolutions"),
    "conv_long": Layer("conv(x0, x1, padding=1)", ((1, 64, 10, 12), (40, 64, 3, 3)), "convolutions"),
    "conv_blocked": Layer(
        "relu(conv(conv(x0, x1, padding=1), x2))", ((1, 16, 14, 14), (32, 16, 3, 3), (48, 32, 1, 1)), "convolutions of blocks", (), (1, 2)
    ),
    "conv_stride_blocked": Layer(
        "relu(conv(conv(x0, x1, padding=1), x2, stride=2))",
        ((1, 16, 20, 20), (32, 16, 3, 3), (16, 32, 3, 3)),
        "convolutions of blocks",
        (),
        (1, 2),
    ),
    "conv_winograd": Layer(
        "relu(conv(conv(x0, x1), x2, padding=1))",
        ((1, 16, 14, 14), (32, 16, 1, 1), (32, 32, 3, 3)),
        "convolutions by winograd",
        (),
        (1, 2),
    ),
    "conv_winograd_dynamic": Layer(
        "conv(conv(x0, x1), x2, padding=1)", ((1, 8, "n", 17), (24, 8, 1, 1), (40, 24, 3, 3)), "convolutions by winograd", (), (1, 2)
    ),
    "depthwise": Layer("conv(x0, x1, padding=1, groups=12)", ((1, 12, 28, 28), (12, 1, 3, 3)), "windows"),
    "depthwise_stride": Layer("conv(x0, x1, stride=2, padding=2, groups=8)", ((1, 8, 30, 26), (8, 1, 5, 5)), "windows"),
    "max_pool": Layer("max_pool(x0, 3, stride=2)", ((1, 16, 41, 70),), "windows"),
    "stencil": Layer(
        """
@kernel
def stencil(x: Tensor[f32, 502], w: Tensor[f32, 3], y: Out[f32, 500]) -> None:
    for i, k in grid(500, 3):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                y[vi] = 0.0
            y[vi] += x[vi + vk] * w[vk]
""",
        ((502,), (3,)),
        "windows",
    ),
    "gelu": Layer("gelu(x0)", (("n", 130),), "elementwise"),
    "tanh_any": Layer("tanh(x0)", (("m", "n"),), "elementwise"),
    "add_broadcast": Layer("add(x0, x1)", ((3, 6, 9, 14), (6, 1, 1)), "elementwise"),
    "add_rows": Layer("add(x0, x1)", ((5, 4, 3, 8, 7), (5, 1, 3, 1, 1)), "elementwise"),
    "inlined": Layer("add(exp(x0), mul(x0, x1))", (("n", 130), (130,)), "inlining"),
    "inlined_chain": Layer("mul(sub(tanh(x0), x1), add(exp(x0), mul(x0, x1)))", ((9, 40), (9, 1)), "inlining"),
    "inlined_sum": Layer("sum(mul(x0, exp(x1)), axis=(-1,))", ((9, 70), (9, 70)), "inlining"),
    "transpose": Layer("permute(x0, (0, 2, 1))", ((2, "n", 70),), "transposes"),
    "transpose_bytes": Layer("permute(x0, (1, 0))", ((70, 130),), "transposes", (u8,)),
    "transpose_channels": Layer("permute(x0, (0, 2, 3, 1))", ((2, 32, 20, 30),), "transposes"),
    "softmax": Layer("softmax(x0)", (("n", 300),), "rows"),
    "layer_norm": Layer("layer_norm(x0, x1, x2)", (("n", 384), (384,), (384,)), "rows"),
    "sum_rows": Layer("sum(x0, axis=(-1,))", (("n", 5000),), "rows"),
    "sum_all": Layer("sum(x0)", (("n", 384),), "rows"),
    "linear": Layer("linear(x0, x1)", (("n", 64), (96, 64)), "rows"),
    "sum_apart": Layer(
        """
n = dim("n")
@kernel
def sum_apart(x: Tensor[f32, n, 300], y: Tensor[f32, 9, 11], total: Out[f32, n], z: Out[f32, 11, 9]) -> None:
    for i, k in grid(n, 300):
        with block("total", "SR", i, k) as (vi, vk):
            with init():
                total[vi] = 0.0
            total[vi] += x[vi, vk]
    for i, j in grid(11, 9):
        with block("z", "SS", i, j) as (vi, vj):
            z[vi, vj] = y[vj, vi] + 1.0
""",
        (("n", 300), (9, 11)),
        "single reductions",
    ),
    "recurrence": Layer(
        """
n = dim("n")
@kernel
def recurrence(x: Tensor[f32, 20, n], y: Out[f32, 20, n]) -> None:
    for i, j in grid(20, n):
        with block("y", "OS", i, j) as (vi, vj):
            y[vi, vj] = select(vi == 0, x[vi, vj], y[max(vi - 1, 0), vj] * 0.5 + x[vi, vj])
""",
        ((20, "n"),),
        "recurrences",
    ),
    "one_after_the_other": Layer(
        """
@kernel
def one_after_the_other(x: Tensor[f32, 9, 30], y: Out[f32, 9, 30]) -> None:
    for i, j in grid(9, 30):
        with block("y", "SS", i, j) as (vi, vj):
            for k in range(3):
                y[vi, vj] = x[vi, vj] * 2.0
""",
        ((9, 30),),
        "fallback",
    ),
    "declared": Layer(
        """
n = dim("n")
@kernel
def declared(a: Tensor[i16, n, 24], b: Tensor[i16, 24, 32], c: Out[i32, n, 32]) -> None:
    for i, j, k in grid(n, 32, 24):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vk, vj])
""",
        (("n", 24), (24, 32)),
        "instructions",
        (i16, i16),
    ),
}


def _convolution(s: Any) -> Layer:
    call = f"conv(x0, x1, stride={s.stride}, padding={s.window // 2}, groups={s.groups})"
    return Layer(call, ((1, s.channels, s.side, s.side), (s.out, s.channels // s.groups, s.window, s.window)), "", (), (1,))


# The convolutions and products that `benchmarks/` measures, by the shapes that stand there.
BENCHMARKED: dict[str, Layer] = {
    **{f"conv {name}": _convolution(s) for name, s in conv.SHAPES.items()},
    **{f"product {k} x {columns}": Layer("matmul(x0, x1)", (("n", k), (k, columns)), "", (), (1,)) for k, columns in gemm.WEIGHTS},
    "product plain": Layer("matmul(x0, x1)", (("n", products.LARGE), (products.LARGE, products.LARGE)), ""),
}


def around(name: str) -> AbstractContextManager[Any]:
    """What has to be declared while a layer is compiled."""
    return declared("x86_64") if name == "declared" else nullcontext()


def layer(name: str) -> Any:
    """A layer as a program."""
    of = _layer(name)
    if "@kernel" in of.text:
        return parse(of.text)
    builder, dims = Builder("layer"), {name: Dim(name) for name in SIZES}
    tensors: dict[str, Any] = {
        f"x{k}": builder.param(f"x{k}", Tensor(_dtype(of, k), tuple(dims[s] if isinstance(s, str) else const(s) for s in shape)))
        for k, shape in enumerate(of.shapes)
        if k not in of.weights
    }
    with builder:
        tensors.update((f"x{k}", ops.constant(_array(name, k))) for k in of.weights)
        names = {name: getattr(ops, name) for name in dir(ops)} | {"f32": f32}
        result = eval(of.text, names | tensors)
    return builder.finish([result])


def arrays(name: str) -> list[np.ndarray[Any, Any]]:
    """Arguments of a layer."""
    of = _layer(name)
    return [_array(name, k) for k in range(len(of.shapes)) if k not in of.weights]


def _layer(name: str) -> Layer:
    return LAYERS[name] if name in LAYERS else BENCHMARKED[name]


def _dtype(of: Layer, k: int) -> DType:
    return of.dtypes[k] if of.dtypes else f32


def _array(name: str, k: int) -> np.ndarray[Any, Any]:
    of = _layer(name)
    size = tuple(SIZES[s] if isinstance(s, str) else s for s in of.shapes[k])
    rng, kind = np.random.default_rng([3, k]), np.dtype(_dtype(of, k).numpy())
    if kind.kind in "iu":
        return rng.integers(0 if kind.kind == "u" else -100, 100, size).astype(kind)
    return rng.standard_normal(size).astype(kind)


def random_vector(name: str, machine: Target, stream: Stream, may_reorder: bool = False) -> dict[str, Value]:
    """Legal decisions for all kernels of a layer; those that change the order of sums only where they may."""
    return {key: d.value for key, d in drawn(name, machine, stream, may_reorder).items()}


def drawn(name: str, machine: Target, stream: Stream, may_reorder: bool = False) -> dict[str, Decision]:
    """The same as records."""
    records: dict[str, Decision] = _layouts(name, machine, stream, may_reorder)
    chosen = Decisions({key: d.value for key, d in records.items()})
    nodes = compile_as_far_as("promote_sizes", program_of(layer(name)), machine, decisions=chosen).function.nodes
    for kernel in [func_of(n.callee) for n in nodes if isinstance(n, CallLoop)]:
        of_kernel = Drawn(kernel.name, stream, may_reorder)
        default_family(kernel, machine, of_kernel)
        records.update((f"{kernel.name}.{d.name}", d) for d in of_kernel.made.values())
    return records


def _layouts(name: str, machine: Target, stream: Stream, may_reorder: bool) -> dict[str, Decision]:
    """How weights lie: decided before any kernel is scheduled."""
    if not _layer(name).weights:
        return {}
    state = compile_as_far_as("choose_layouts", program_of(layer(name)), machine)
    assert state.decisions is not None
    records = [d for k in state.decisions.kernels for d in k.made.values() if d.kind == "layout"]
    return {d.name: replace(d, value=d.default if d.reorders and not may_reorder else d.domain.draw(stream)) for d in records}


class Digits(Stream):
    """No random numbers, but given ones, then zeros: the numbers of the values that are taken, one decision after the other."""

    __slots__ = ("digits", "limits")

    def __init__(self, digits: list[int]) -> None:
        super().__init__(0)
        self.digits, self.limits = digits, list[int]()

    def below(self, limit: int) -> int:
        """The next digit."""
        self.limits.append(limit)
        at = len(self.limits) - 1
        if at == len(self.digits):
            self.digits.append(0)
        return self.digits[at]


def every(name: str, machine: Target, may_reorder: bool) -> Iterator[dict[str, Decision]]:
    """All vectors of a layer, in order: counts with one digit for each decision."""
    digits: list[int] = []
    while True:
        stream = Digits(digits)
        yield drawn(name, machine, stream, may_reorder)
        while digits and digits[-1] + 1 == stream.limits[len(digits) - 1]:
            digits.pop()
        if not digits:
            return
        digits[-1] += 1


def vectors(name: str, machine: Target, may_reorder: bool, few: int = 200) -> Iterator[dict[str, Decision]]:
    """Vectors of a layer, none twice: all of them where they are few, else random ones without end."""
    first = Digits([])
    drawn(name, machine, first, may_reorder)
    if np.prod([float(n) for n in first.limits]) <= few:
        yield from every(name, machine, may_reorder)
        return
    seen = set()
    for seed in numbers():
        records = drawn(name, machine, Stream(f"{name}/{seed}"), may_reorder)
        values = str(sorted((key, d.value) for key, d in records.items()))
        if values not in seen:
            seen.add(values)
            yield records


@contextmanager
def phases_seen() -> Iterator[set[str]]:
    """The phases whose rules know a block meanwhile; a decision may give it to another one then."""
    seen: set[str] = set()

    def recorded(rule: Rule) -> Rule:
        def apply(s: Any, roles: Any, decide: Any) -> str:
            seen.add("one row" if rule.name == "one row" else rule.phase)
            return rule.apply(s, roles, decide)

        return replace(rule, apply=apply)

    before = driver.rules_for
    driver.rules_for = lambda machine: tuple(map(recorded, before(machine)))
    try:
        yield seen
    finally:
        driver.rules_for = before


def phases() -> list[str]:
    """The phases of the table; that of products has two rules."""
    return list(dict.fromkeys("one row" if r.name == "one row" else r.phase for r in driver.rules_for(target("llvm:x86-64-v3"))))
