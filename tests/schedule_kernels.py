"""The kernels that schedules are tested on: text of loop programs, and arguments for them.

func = kernel("matmul"); arguments = make_arguments(func, {"n": 7}, seed=0)
packed = pack(scheduled, arguments, dims); run_loop(scheduled, packed); unpack(scheduled, packed, arguments)
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from generate_loops import clone
from pliant.dtype import bool_
from pliant.loop.parse import parse_module
from pliant.loop.stmt import Func, Param
from pliant.sym.semantics import evaluate

HEAD = """from pliant import InOut, Out, Tensor, alloc, annotate, block, cast, dim, exp, f32, fma, grid, i4, i8, i32, init, kernel, u8
from pliant import max, min, parallel, rsqrt, select, serial, view, where
"""

KERNELS: dict[str, str] = {
    "matmul": """
n = dim("n")
@kernel
def matmul(a: Tensor[f32, n, 12], b: Tensor[f32, 12, 40], c: Out[f32, n, 40]) -> None:
    for i, j, k in grid(n, 40, 12):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
""",
    "matmul_i32": """
n = dim("n")
m = dim("m")
p = dim("p")
@kernel
def matmul_i32(a: Tensor[i32, n, p], b: Tensor[i32, p, m], c: Out[i32, n, m]) -> None:
    for i, j, k in grid(n, m, p):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
""",
    "panels": """
n = dim("n")
@kernel
def panels(a: Tensor[f32, n, 5], b: Tensor[f32, 5, 96], c: Out[f32, n, 96]) -> None:
    for i, j, k in grid(n, 96, 5):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
""",
    "batched": """
h = dim("h")
n = dim("n")
@kernel
def batched(a: Tensor[f32, h, n, 7], b: Tensor[f32, h, 7, 24], c: Out[f32, n, h, 24]) -> None:
    for i, g, j, k in grid(n, h, 24, 7):
        with block("c", "SSSR", i, g, j, k) as (vi, vg, vj, vk):
            with init():
                c[vi, vg, vj] = 0.0
            c[vi, vg, vj] += a[vg, vi, vk] * b[vg, vk, vj]
""",
    "transposed": """
n = dim("n")
m = dim("m")
p = dim("p")
@kernel
def transposed(a: Tensor[f32, n, p], b: Tensor[f32, m, p], c: Out[f32, n, m]) -> None:
    for i, j, k in grid(n, m, p):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.5
            c[vi, vj] += a[vi, vk] * b[vj, vk]
""",
    "columns": """
n = dim("n")
m = dim("m")
@kernel
def columns(x: Tensor[i32, n, m], out: Out[i32, m]) -> None:
    for j, k in grid(m, n):
        with block("out", "SR", j, k) as (vj, vk):
            with init():
                out[vj] = -100
            out[vj] = max(out[vj], x[vk, vj])
""",
    "chain": """
n = dim("n")
m = dim("m")
@kernel
def chain(x: Tensor[f32, n, m], y: Tensor[f32, m], out: Out[f32, n, m]) -> None:
    t = alloc((n, m), f32)
    for i, j in grid(n, m):
        with block("t", "SS", i, j) as (vi, vj):
            t[vi, vj] = x[vi, vj] * 2.0
    u = alloc((n, m), f32)
    for i, j in grid(n, m):
        with block("u", "SS", i, j) as (vi, vj):
            u[vi, vj] = t[vi, vj] + y[vj]
    for i, j in grid(n, m):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = max(u[vi, vj], 0.0)
""",
    "epilogue": """
n = dim("n")
@kernel
def epilogue(a: Tensor[f32, n, 12], b: Tensor[f32, 12, 40], bias: Tensor[f32, 40], r: Tensor[f32, n, 40], out: Out[f32, n, 40]) -> None:
    c = alloc((n, 40), f32)
    for i, j, k in grid(n, 40, 12):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
    d = alloc((n, 40), f32)
    for i, j in grid(n, 40):
        with block("d", "SS", i, j) as (vi, vj):
            d[vi, vj] = c[vi, vj] + bias[vj]
    for i, j in grid(n, 40):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = max(d[vi, vj], 0.0) + r[vi, vj]
""",
    "softmax": """
n = dim("n")
m = dim("m")
@kernel
def softmax(x: Tensor[f32, n, m], out: Out[f32, n, m]) -> None:
    top = alloc((n,), f32)
    for i, k in grid(n, m):
        with block("top", "SR", i, k) as (vi, vk):
            with init():
                top[vi] = -3.0e38
            top[vi] = max(top[vi], x[vi, vk])
    e = alloc((n, m), f32)
    for i, j in grid(n, m):
        with block("e", "SS", i, j) as (vi, vj):
            e[vi, vj] = exp(x[vi, vj] - top[vi])
    total = alloc((n,), f32)
    for i, k in grid(n, m):
        with block("total", "SR", i, k) as (vi, vk):
            with init():
                total[vi] = 0.0
            total[vi] += e[vi, vk]
    for i, j in grid(n, m):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = e[vi, vj] / total[vi]
""",
    "rms_norm": """
n = dim("n")
@kernel
def rms_norm(x: Tensor[f32, n, 72], w: Tensor[f32, 72], out: Out[f32, n, 72]) -> None:
    ss = alloc((n,), f32)
    for i, k in grid(n, 72):
        with block("ss", "SR", i, k) as (vi, vk):
            with init():
                ss[vi] = 0.0
            ss[vi] += x[vi, vk] * x[vi, vk]
    for i, j in grid(n, 72):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = x[vi, vj] * rsqrt(ss[vi] * 0.013888889 + 0.00001) * w[vj]
""",
    "transpose": """
n = dim("n")
m = dim("m")
@kernel
def transpose(x: Tensor[i32, n, m], out: Out[i32, m, n]) -> None:
    for i, j in grid(m, n):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = x[vj, vi]
""",
    "stencil": """
n = dim("n")
@kernel
def stencil(x: Tensor[i32, n + 4], w: Tensor[i32, 3], out: Out[i32, n]) -> None:
    t = alloc((n + 2,), i32)
    for i, k in grid(n + 2, 3):
        with block("t", "SR", i, k) as (vi, vk):
            with init():
                t[vi] = 1
            t[vi] += x[vi + vk] * w[vk]
    for i in serial(n):
        with block("out", "S", i) as vi:
            out[vi] = t[vi] + t[vi + 2]
""",
    "conv": """
n = dim("n")
@kernel
def conv(x: Tensor[i32, n + 2, 3], w: Tensor[i32, 3, 3, 5], out: Out[i32, n, 5]) -> None:
    p = alloc((n + 4, 3), i32)
    for i, j in grid(n + 4, 3):
        with block("p", "SS", i, j) as (vi, vj):
            p[vi, vj] = select(1 <= vi and vi < n + 3, x[vi - 1, vj], 7)
    for i, o, r, k in grid(n, 5, 3, 3):
        with block("out", "SSRR", i, o, r, k) as (vi, vo, vr, vk):
            with init():
                out[vi, vo] = 0
            out[vi, vo] += p[vi + vr, vk] * w[vr, vk, vo]
""",
    "scan": """
n = dim("n")
m = dim("m")
@kernel
def scan(x: Tensor[i32, n, m], out: Out[i32, n, m]) -> None:
    for i, j in grid(n, m):
        with block("out", "SO", i, j) as (vi, vj):
            out[vi, vj] = x[vi, vj] + select(vj > 0, out[vi, vj - 1], 0)
""",
    "recurrence": """
n = dim("n")
m = dim("m")
@kernel
def recurrence(x: Tensor[f32, m, n, 30], a: Tensor[f32, 30], out: Out[f32, m, n, 30]) -> None:
    for i, j, t in grid(m, 30, n):
        with block("out", "SSO", i, j, t) as (vi, vj, vt):
            out[vi, vt, vj] = select(vt > 0, out[vi, vt - 1, vj], 0.0) * a[vj] + x[vi, vt, vj]
""",
    "scatter_rows": """
n = dim("n")
m = dim("m")
@kernel
def scatter_rows(x: Tensor[i32, n, m], out: InOut[i32, 5, m]) -> None:
    for i, j in grid(n, m):
        with block("out", "OS", i, j) as (vi, vj):
            out[vi % 5, vj] = out[vi % 5, vj] + x[vi, vj]
""",
}


@functools.cache
def kernel(name: str) -> Func:
    """The program of that name."""
    return parse(KERNELS[name])


def parse(text: str) -> Func:
    """The only program of a text."""
    return list(parse_module(HEAD + text).values())[-1]


def make_arguments(func: Func, dims: Mapping[str, int], seed: int = 0, *, whole: bool = False, special: bool = False) -> list[np.ndarray]:
    """Arrays for the parameters: random ones to read, poison to write.

    `whole` makes floats small whole numbers, whose sums are exact in any order; `special` puts infinities, NaN and -0.0 among them.
    """
    rng = np.random.default_rng(seed)
    values = {v: dims[v.name] for v in func.symbols}
    return [argument(rng, p, tuple(int(evaluate(e, values)) for e in p.value.shape), whole, special) for p in func.params]


def argument(rng: np.random.Generator, p: Param, shape: tuple[int, ...], whole: bool, special: bool) -> np.ndarray:
    """An array for a parameter."""
    dtype = p.value.dtype
    if p.role == "out":
        return np.full(shape, np.nan if dtype.is_float else 77, dtype.numpy())
    if dtype is bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.is_float and not whole:
        made = rng.standard_normal(shape)
        if special:
            made = np.where(rng.random(shape) < 0.04, rng.choice([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e30], shape), made)
        return np.asarray(made).astype(dtype.numpy())
    low, high = (-3, 4) if dtype.is_float else (0, 10) if dtype.kind == "u" else (-9, 10)
    return np.asarray(rng.integers(low, high, shape)).astype(dtype.numpy())


def pack(scheduled: Func, arguments: list[np.ndarray], dims: list[int]) -> list[np.ndarray]:
    """The arguments in the layouts that a scheduled program expects; poison where the padding may be anything."""
    values = dict(zip(scheduled.symbols, dims, strict=True))
    made = []
    for p, a in zip(scheduled.params, arguments, strict=True):
        b = p.value
        note = scheduled.attrs.layouts.get(b.name)
        if note is None:
            made.append(clone(a))
            continue
        text, pad = note
        shape = tuple(int(evaluate(e, values)) for e in b.shape)
        new = np.full(shape, 99 if pad is None or p.role == "out" else pad, a.dtype)
        new[eval(text)(*np.indices(a.shape))] = a
        made.append(new)
    return made


def unpack(scheduled: Func, packed: list[np.ndarray], like: list[np.ndarray]) -> list[np.ndarray]:
    """What `pack` made in the layouts it came from; the padding holds what the program says it does."""
    made = []
    for p, a, old in zip(scheduled.params, packed, like, strict=True):
        note = scheduled.attrs.layouts.get(p.value.name)
        if note is None:
            made.append(a)
            continue
        text, pad = note
        places = eval(text)(*np.indices(old.shape))
        made.append(a[places])
        if pad is not None:
            padding = np.ones(a.shape, bool)
            padding[places] = False
            assert (a[padding] == pad).all()
    return made


__all__ = ["KERNELS", "kernel", "make_arguments", "pack", "parse", "unpack"]
