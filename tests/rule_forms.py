"""Random programs in the forms that default rules are for: each has to be taken by its rule, and to mean what it meant.

    check_all([Form(seed) for seed in range(20)])

Which rule is for which form stands in the rules' own modules; sizes, dtypes, combiners and what comes before and after are random.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from schedule_checks import Ruled, Wrong
from schedule_kernels import parse

TARGETS = ["llvm:x86-64-v3", "llvm:x86-64-v4", "llvm:x86-64-v2"]
DIMS = 'n = dim("n")\nm = dim("m")\n'


class Form(Ruled):
    """A program, and what the rules have to say of it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"form {seed}")
        form = FORMS[seed % len(FORMS)]
        text, self.said = form(self)
        super().__init__(parse(DIMS + text), seed, self.pick(*TARGETS))

    def pick(self, *choices: str) -> str:
        return self.dice.choice(choices)

    def make(self) -> None:
        """Schedule it; another rule is a failure."""
        super().make()
        missing = [text for text in self.said if text not in self.why]
        if missing or "fallback" in self.why:
            raise self.wrong("another rule", f"{missing} not said")

    def wrong(self, kind: str, detail: object) -> Wrong:
        return Wrong(kind, self.seed, f"{detail}\n{self.story()}\n{self.func}")

    def zero(self, dtype: str) -> str:
        return "0" if dtype[0] == "i" else "0.0"


def product(f: Form) -> tuple[str, list[str]]:
    """A product, which may have a batch, and something element by element before and behind."""
    dtype, rows = f.pick("f32", "f32", "i32", "f64"), f.pick("n", "7", "12")
    columns, depth = f.pick("24", "40", "96", "33"), f.pick("5", "12")
    before, behind = f.dice.random() < 0.4, f.dice.random() < 0.5
    left = "t[vi, vk]" if before else "a[vi, vk]"
    params = f"a: Tensor[{dtype}, {rows}, {depth}], b: Tensor[{dtype}, {depth}, {columns}], out: Out[{dtype}, {rows}, {columns}]"
    lines = ["@kernel", f"def f({params}) -> None:"]
    if before:
        lines += [
            f"    t = alloc(({rows}, {depth}), {dtype})", f"    for i, k in grid({rows}, {depth}):",
            '        with block("t", "SS", i, k) as (vi, vk):', "            t[vi, vk] = a[vi, vk] + a[vi, vk]",
        ]  # fmt: skip
    target = "c" if behind else "out"
    lines += [f"    c = alloc(({rows}, {columns}), {dtype})"] if behind else []
    lines += [
        f"    for i, j, k in grid({rows}, {columns}, {depth}):", f'        with block("{target}", "SSR", i, j, k) as (vi, vj, vk):',
        "            with init():", f"                {target}[vi, vj] = {f.zero(dtype)}",
        f"            {target}[vi, vj] += {left} * b[vk, vj]",
    ]  # fmt: skip
    if behind:
        lines += [
            f"    for i, j in grid({rows}, {columns}):", '        with block("out", "SS", i, j) as (vi, vj):',
            f"            out[vi, vj] = max(c[vi, vj], {f.zero(dtype)})",
        ]  # fmt: skip
    return "\n".join(lines) + "\n", [f"matmul: `{target}`", *(["with `out` in its write-back"] if behind else [])]


def rows(f: Form) -> tuple[str, list[str]]:
    """What is reduced of each row, and what is computed from that."""
    size, combiner = f.pick("m", "72", "50"), f.pick("add", "max")
    step = "+= x[vi, vk] * x[vi, vk]" if combiner == "add" else "= max(s[vi], x[vi, vk])"
    text = f"""@kernel
def f(x: Tensor[f32, n, {size}], out: Out[f32, n, {size}]) -> None:
    s = alloc((n,), f32)
    for i, k in grid(n, {size}):
        with block("s", "SR", i, k) as (vi, vk):
            with init():
                s[vi] = {"0.0" if combiner == "add" else "-3.0e38"}
            s[vi] {step}
    for i, j in grid(n, {size}):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = x[vi, vj] * 0.5 - s[vi]
"""
    return text, ["rows: `s`, `out` together"]


def transpose(f: Form) -> tuple[str, list[str]]:
    """Elements that change places."""
    a, b, dtype = f.pick("n", "40"), f.pick("m", "24"), f.pick("f32", "i32")
    text = f"""@kernel
def f(x: Tensor[{dtype}, {a}, {b}], out: Out[{dtype}, {b}, {a}]) -> None:
    for i, j in grid({b}, {a}):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = x[vj, vi]
"""
    return text, ["transpose: `out`"]


def maps(f: Form) -> tuple[str, list[str]]:
    """Maps one after the other."""
    a, b, dtype = f.pick("n", "9"), f.pick("m", "40", "7"), f.pick("f32", "f64", "i32")
    text = f"""@kernel
def f(x: Tensor[{dtype}, {a}, {b}], y: Tensor[{dtype}, {b}], out: Out[{dtype}, {a}, {b}]) -> None:
    t = alloc(({a}, {b}), {dtype})
    for i, j in grid({a}, {b}):
        with block("t", "SS", i, j) as (vi, vj):
            t[vi, vj] = x[vi, vj] + {f.pick("y[vj]", "x[vi, vj]")}
    for i, j in grid({a}, {b}):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = max(t[vi, vj], {f.zero(dtype)})
"""
    return text, ["inlined `t`", "elementwise: `out`"]


def recurrence(f: Form) -> tuple[str, list[str]]:
    """Steps that need the one before, side by side."""
    width = f.pick("30", "16", "m")
    text = f"""@kernel
def f(x: Tensor[f32, n, {width}], a: Tensor[f32, {width}], out: Out[f32, n, {width}]) -> None:
    for j, t in grid({width}, n):
        with block("out", "SO", j, t) as (vj, vt):
            out[vt, vj] = select(vt > 0, out[vt - 1, vj], 0.0) * a[vj] + x[vt, vj]
"""
    return text, ["recurrence: `out`"]


FORMS: tuple[Callable[[Form], tuple[str, list[str]]], ...] = (product, product, rows, transpose, maps, recurrence)
