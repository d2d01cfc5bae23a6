"""Default rules on random convolutions and pools: any sizes, strides, paddings, dilations and groups, fixed or symbolic.

A program scheduled for a machine without FMA has the bits of the program as it was; with FMA, native code has the bits of the interpreter,
and integers never change. What convolutions mean is numpy's word, by way of the interpreter of graphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counts import seeds
from native_loops import Lifted
from pliant import ops
from pliant.dtype import DType, f32, f64, i32
from pliant.graph.builder import Builder
from pliant.graph.node import CallLoop, Tensor
from pliant.interp.graph import run_graph
from pliant.interp.loop import run_loop
from pliant.loop.stmt import Func
from pliant.lower.callee import func_of
from pliant.lower.ops.lower_ops import lower_ops
from pliant.schedule import default_schedule
from pliant.sym.expr import Dim, const
from pliant.sym.semantics import evaluate
from pliant.target import target

CASES = seeds(40, 4000)
NO_FMA = target("llvm:x86-64-v2")
SIZES = (0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31)
CHANNELS = (1, 2, 3, 4, 8, 15, 16, 17, 24, 33, 48)


class Made:
    """A random operator as a loop program, with the sizes of its dims and arrays to run it on."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dims: dict[Dim, int] = {}
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.builder = Builder("case")
        dtype = self.pick((f32, f32, f32, f64, i32))
        with self.builder:
            result = self.pool(dtype) if self.rng.random() < 0.3 else self.conv(dtype)
        self.graph = self.builder.finish([result])
        (call,) = (n for n in lower_ops(self.graph).nodes if isinstance(n, CallLoop))
        self.func = func_of(call.callee)
        shape = [int(evaluate(e, self.dims)) for e in self.func.buffers[-1].shape]
        self.result = np.full(shape, 77, dtype.numpy())

    def pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def param(self, name: str, dtype: DType, shape: list[int], symbolic: bool) -> Any:
        self.arrays.append(self.rng.integers(-4, 5, shape).astype(dtype.numpy()))
        if dtype is not i32:
            self.arrays[-1] += self.rng.standard_normal(shape).astype(dtype.numpy())
        exprs = []
        for d, size in enumerate(shape):
            made = Dim(f"{name}{d}") if symbolic and d in (0, 2, 3) else None
            if made is not None:
                self.dims[made] = size
            exprs.append(const(size) if made is None else made)
        return self.builder.param(name, Tensor(dtype, tuple(exprs)))

    def geometry(self) -> dict[str, Any]:
        rank = self.pick((1, 2, 2, 2))
        kernel = [self.pick((1, 2, 3, 5)) for _ in range(rank)]
        dilation = [self.pick((1, 1, 1, 2)) for _ in range(rank)]
        padding = [(self.pick((0, 1, 2)), self.pick((0, 1, 2))) for _ in range(rank)] if self.rng.random() < 0.7 else [(0, 0)] * rank
        least = [max((k - 1) * d + 1 - lo - hi, 0) for k, d, (lo, hi) in zip(kernel, dilation, padding, strict=True)]
        extents = [low + self.pick(SIZES) for low in least]
        return {
            "kernel": kernel,
            "dilation": dilation,
            "padding": padding,
            "extents": extents,
            "stride": [self.pick((1, 1, 2, 3)) for _ in kernel],
        }

    def conv(self, dtype: DType) -> Any:
        g = self.geometry()
        groups = self.pick((1, 1, 1, 2, 4))
        channels = groups * self.pick(CHANNELS if groups == 1 else (1, 1, 3))
        out = groups * self.pick(CHANNELS)
        symbolic = bool(self.rng.random() < 0.4)
        x = self.param("x", dtype, [self.pick((0, 1, 2)), channels, *g["extents"]], symbolic)
        w = self.param("w", dtype, [out, channels // groups, *g["kernel"]], False)
        bias = [self.param("b", dtype, [out], False)] if self.rng.random() < 0.5 else []
        return ops.conv(x, w, *bias, stride=g["stride"], padding=g["padding"], dilation=g["dilation"], groups=groups)

    def pool(self, dtype: DType) -> Any:
        g = self.geometry()
        least = [min(lo, k // 2) for (lo, _), k in zip(g["padding"], g["kernel"], strict=True)]
        padding = [(lo, lo) for lo in least]
        spans = [(k - 1) * d + 1 - 2 * lo for k, d, lo in zip(g["kernel"], g["dilation"], least, strict=True)]
        extents = [max(n, s) for n, s in zip(g["extents"], spans, strict=True)]
        x = self.param("x", dtype, [self.pick((0, 1, 2)), self.pick((1, 3, 16)), *extents], bool(self.rng.random() < 0.4))
        make = ops.max_pool if dtype is i32 or self.rng.random() < 0.6 else ops.avg_pool
        return make(x, g["kernel"], stride=g["stride"], padding=padding, dilation=g["dilation"])

    def values(self, func: Func) -> list[int]:
        named = {v.name: n for v, n in self.dims.items()}
        return [named[v.name] for v in func.symbols]

    def interpreted(self, func: Func) -> np.ndarray[Any, Any]:
        result = self.result.copy()
        run_loop(func, [*self.arrays, result], self.values(func))
        return result


@pytest.mark.parametrize("group", CASES[::8])
def test_random_operators(group: int) -> None:
    cases = [Made(seed) for seed in range(group, min(group + 8, CASES.stop))]
    funcs = [default_schedule(c.func, target("native"))[0].with_(name=f"case{n}") for n, c in enumerate(cases)]
    native = Lifted(funcs, level=0)
    for case, func in zip(cases, funcs, strict=True):
        plain = case.interpreted(case.func)
        without, why = default_schedule(case.func, NO_FMA)
        if " lanes" not in why and " in parts" not in why:  # which add up in another order
            assert case.interpreted(without).tobytes() == plain.tobytes(), why
        expected = case.interpreted(func)
        found = case.result.copy()
        assert native.call(func, [*case.arrays, found], case.values(func), threads=2) == 0
        assert found.tobytes() == expected.tobytes()
        (reference,) = run_graph(case.graph, case.arrays)
        if plain.dtype == np.int32:
            np.testing.assert_array_equal(found, plain)
        np.testing.assert_allclose(found, reference, rtol=1e-4, atol=1e-4)
