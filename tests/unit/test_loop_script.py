"""The script as Python: names from every scope, postponed annotations, odd layouts; and silence of linters and type checkers."""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
import pliant as pl
from pliant import Out, Tensor, block, dim, f32, grid, init, kernel
from pliant.dtype import ALL
from pliant.loop.parse import parse_kernel, parse_module
from pliant.loop.printer import print_func
from pliant.loop.stmt import Store
from pliant.loop.structural import assert_same
from pliant.support.resolve import source_of
from pliant.sym import script
from pliant.sym.expr import Call
from pliant.sym.function_names import FUNCTIONS, UNFUSED

ROOT = Path(__file__).parent.parent.parent
n = dim("n")
WIDTH = 64
SCALE = 0.5
Row = Tensor[f32, n, WIDTH]

DOUBLE = """
n = dim("n")
@kernel
def f(x: Tensor[f32, n, 64], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i, 63] * 0.5
"""


def expect(fn: Callable[..., Any], text: str = DOUBLE) -> None:
    """The function means what the text means."""
    assert_same(parse_kernel(fn), parse_module(text)["f"])


def test_globals_and_an_annotation_with_a_name() -> None:
    def f(x: Row, y: Out[f32, n]) -> None:
        for i in range(n):
            y[i] = x[i, WIDTH - 1] * SCALE

    expect(f)


def test_closure_and_names_that_only_annotations_use() -> None:
    local, width = dim("local"), 64

    def f(x: Tensor[f32, local, width], y: Out[f32, local]) -> None:
        for i in range(local):
            y[i] = x[i, 2**6 - 1] * (1 / 2)

    expect(f)


def test_dotted_names_and_other_spellings() -> None:
    class config:
        width = 64

    def f(x: pl.Tensor[pl.f32, n, config.width], y: pl.Out[pl.f32, n]) -> None:
        """A comment in a string."""
        for i in pl.grid(n):
            y[i] = x[i, config.width - 1] * pl.f32(0.5)

    expect(f)


def test_odd_layout() -> None:
    # fmt: off
    def f(
        x: Tensor[f32, n, 64],  # a comment
        y: Out[
f32, n],
    ) -> None:
        """Text
at the margin."""
        for i in range(
n
        ):
            y[i] = (
x[i, 63]  # and here
                * 0.5)
    # fmt: on

    expect(f)


def test_decorated_method_like_place() -> None:
    class Holder:
        @kernel
        def f(x: Tensor[f32, n, 64], y: Out[f32, n]) -> None:
            for i in range(n):
                y[i] = x[i, 63] * 0.5

    assert_same(Holder.f.func, parse_module(DOUBLE)["f"])


def test_kernels_call_kernels() -> None:
    @kernel
    def inner(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        for i in range(n):
            y[i] = x[i]

    @kernel
    def outer(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        inner(x, y)

    assert_same(outer.func, parse_module(print_func(outer.func))["outer"])


def test_lines_of_statements() -> None:
    def f(x: Out[f32, n]) -> None:
        for i in range(n):
            x[i] = 0.0

    func = parse_kernel(f)
    first = f.__code__.co_firstlineno
    assert func.span is not None and (func.span.file, func.span.line) == (__file__, first)
    body: Any = func.body
    assert (body.span.line, body.span.column, body.span.text.strip()) == (first + 1, 8, "for i in range(n):")
    assert (body.body.span.line, body.body.span.column) == (first + 2, 12)


def test_source_of_a_changed_file(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    file.write_text("def f(x):\n    pass\n")
    spec = importlib.util.spec_from_file_location("changing", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file.write_text("# another line, and no such function there\nx = 1\n")
    os.utime(file, (1, 1))
    with pytest.raises(pliant.Error, match="the source of function `f` is not where it was"):
        source_of(module.f)


def test_reading_text_executes_nothing() -> None:
    text = "import not_there\nfrom nowhere import everything\n" + DOUBLE.replace("@kernel", "@nothing_at_all")
    assert list(parse_module(text)) == ["f"]
    for bad in ("print('no')", "n = open('x')", "class A: pass"):
        with pytest.raises(pliant.Error):
            parse_module(bad)


def test_text_that_is_no_python() -> None:
    with pytest.raises(pliant.Error) as caught:
        parse_module("def f(:\n    pass\n", "model.py")
    where = caught.value.where
    assert caught.value.what.startswith("not Python:")
    assert where is not None and (where.file, where.line) == ("model.py", 1)


def test_every_function_has_a_name() -> None:
    for name, count in FUNCTIONS.items():
        assert callable(getattr(script, name)), name
        args = ", ".join(["x[0]"] * count)
        func = parse_module(f"@kernel\ndef f(x: InOut[f32, 1]) -> None:\n    x[0] = {name}({args})")["f"]
        assert name in print_func(func)


def test_every_function_with_fma_has_a_form_without() -> None:
    for name, form in UNFUSED.items():
        call = f"{name}({', '.join(['x[0]'] * FUNCTIONS[name])}, fused=False)"
        func = parse_module(f"@kernel\ndef f(x: InOut[f32, 1]) -> None:\n    x[0] = {call}")["f"]
        assert isinstance(func.body, Store) and isinstance(func.body.value, Call) and func.body.value.fn == form
        assert call in print_func(func)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("exp(x[0], fused=x[0] > 0.0)", "`fused` is True or False, not `x[0] > 0.0`"),
        ("exp(x[0], fused=0)", "`fused` is True or False, not `0`"),
        ("exp(x[0], fuse=False)", "`exp` has no keyword `fuse`"),
        ("rsqrt(x[0], fused=False)", "`rsqrt` has no keyword `fused`"),
        ("muladd(x[0], 2.0)", "`muladd` takes 3 arguments, not 2"),
    ],
)
def test_forms_that_there_are_not(call: str, what: str) -> None:
    with pytest.raises(pliant.Error) as caught:
        parse_module(f"@kernel\ndef f(x: InOut[f32, 1]) -> None:\n    x[0] = {call}")
    assert caught.value.what == what and caught.value.where is not None


@pytest.mark.parametrize("name", ALL)
def test_every_dtype_is_printed_as_a_name_that_can_be_imported(name: str, tmp_path: Path) -> None:
    func = parse_module(f"@kernel\ndef f(x: Tensor[{name}, 1]) -> None:\n    pass")["f"]
    file = tmp_path / "printed.py"
    file.write_text(print_func(func))
    assert_same(runpy.run_path(str(file))["f"].func, func)


def test_numbers_of_other_libraries() -> None:
    width, scale = np.int32(64), np.float32(0.5)

    def f(x: Tensor[f32, n, width], y: Out[f32, n]) -> None:
        for i in range(n):
            y[i] = x[i, width - 1] * scale

    expect(f)


def test_a_dim_is_neither_true_nor_false_in_python() -> None:
    with pytest.raises(pliant.Error) as caught:
        min(n, 4)  # the builtin one, which compares
    assert caught.value.what == "`n > 4` is known only at run time: it is neither true nor false here"
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_matmul_of_the_design() -> None:
    m = dim("m", max=4096, multiple_of=8)

    @kernel
    def matmul(a: Tensor[f32, m, 128], b: Tensor[f32, 128, 256], c: Out[f32, m, 256]) -> None:
        for i, j, k in grid(m, 256, 128):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    golden = (ROOT / "tests" / "golden" / "loop_matmul.py").read_text()
    assert_same(matmul.func, parse_module(golden)["matmul"])


# Linters and type checkers.

DESIGN = """\
from pliant import Out, Tensor, block, dim, f32, function, grid, init, kernel, ops

n = dim("n", max=4096, multiple_of=8)


@kernel
def matmul(a: Tensor[f32, n, 128], b: Tensor[f32, 128, 256], c: Out[f32, n, 256]) -> None:
    for i, j, k in grid(n, 256, 128):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@function
def mlp(x: Tensor[f32, n, 64], w1: Tensor[f32, 64, 128], w2: Tensor[f32, 128, 256]) -> Tensor[f32, n, 256]:
    return matmul(ops.gelu(x @ w1), w2)
"""
MISTAKES = """\
from pliant import Out, Tensor, dim, f32, i32, kernel

n = dim("n")


@kernel
def f(x: Tensor[f32, n], k: Tensor[i32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] * k[i]
"""


def files(tmp_path: Path) -> list[str]:
    (tmp_path / "design.py").write_text(DESIGN)
    return [str(tmp_path / "design.py"), *(str(p) for p in sorted((ROOT / "tests" / "golden").glob("loop_*.py")))]


def mypy(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache'}", *args]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(ROOT / "src")}, cwd=ROOT)


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff is not installed")
def test_ruff_is_silent(tmp_path: Path) -> None:
    done = subprocess.run(["ruff", "check", "--isolated", "--line-length=140", *files(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_is_silent_on_programs_and_finds_mixed_dtypes(tmp_path: Path) -> None:
    done = mypy(*files(tmp_path))
    assert done.returncode == 0, done.stdout
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    done = mypy(str(tmp_path / "mistakes.py"))
    assert 'mistakes.py:9: error: Unsupported operand types for * ("f32" and "i32")' in done.stdout, done.stdout
