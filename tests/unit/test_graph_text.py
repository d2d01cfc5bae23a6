"""Graph functions as text: every construct survives printing and reading, and golden files show how functions look.

`PLIANT_UPDATE=1` writes the golden files anew.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant import InOut, Out, State, Tensor, bf16, bool_, dim, f16, f32, function, grid, i32, i64, kernel, match_cast, ops
from pliant.graph.builder import Builder
from pliant.graph.node import Callee, CallLoop, Function, Node, walk_nodes
from pliant.graph.node import Tensor as TensorAnnotation
from pliant.graph.parse import parse_function, parse_module
from pliant.graph.printer import constants_of, print_function
from pliant.graph.structural import assert_same, same, structural_hash
from pliant.graph.verify import verify
from pliant.sym.expr import Dim, const

GOLDEN = Path(__file__).parent.parent / "golden"
GOLDENS = sorted(p.stem for p in GOLDEN.glob("graph_*.py"))

n = dim("n", max=4096, multiple_of=8)
m = dim("m")
t = dim("t", min=1)
pages, rows = dim("pages"), dim("rows")
INFINITE = np.full((4, 5), np.inf, np.float32)
MANY = np.arange(40, dtype=np.float32)


@kernel
def append(cache: InOut[f32, pages, 8], x: Tensor[f32, rows, 8], place: i64) -> None:
    for i, j in grid(rows, 8):
        cache[place + i, j] = x[i, j]


@kernel
def double(x: Tensor[f32, m], by: f32, y: Out[f32, m], z: Out[f32, m * 2]) -> None:
    for i in range(m):
        y[i] = x[i] * by
        z[i] = x[i]
        z[m + i] = x[i]


@function
def shift(x: Tensor[f32, m], by: f32) -> Tensor[f32, m]:
    return x + by


def on_host(x: Any) -> Any:
    """A Python callback."""
    return x


CALLEES: dict[str, Callee] = {"append": append.callee, "double": double.callee}


def read(text: str, constants: dict[str, Any] | None = None) -> dict[str, Function]:
    """The functions of printed text."""
    return parse_module(text, CALLEES, "printed.py", constants=constants, hosts={"on_host": on_host})


def round_trip(f: Function) -> Function:
    """The function printed and read; it has to be the same, and to print the same."""
    verify(f)
    text = print_function(f)
    again = list(read(text, constants_of(f)).values())[-1]
    verify(again)
    assert_same(f, again)
    assert structural_hash(f) == structural_hash(again)
    assert print_function(again) == text
    return again


# Golden files.


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_prints_as_it_stands(name: str) -> None:
    file = GOLDEN / f"{name}.py"
    source = file.read_text(encoding="utf-8")
    text = print_function(round_trip(list(read(source).values())[-1]))
    if os.environ.get("PLIANT_UPDATE") == "1":
        file.write_text(text, encoding="utf-8")
    assert text == source


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_is_an_importable_file(name: str) -> None:
    file = GOLDEN / f"{name}.py"
    found = read(file.read_text(encoding="utf-8"))
    imported = runpy.run_path(str(file), init_globals={"append": append})
    for key, f in found.items():
        assert_same(f, imported[key].graph)


def kinds(f: Function) -> set[str]:
    """The kinds of nodes in a function."""
    return {type(node).__name__ for node in walk_nodes(f.nodes)}


# Every construct.


def operators(x: Tensor[f32, n, 8], y: Tensor[f32, n, 8], c: Tensor[bool_, n, 8]) -> Tensor[f32, n, 8]:
    a = (x + y - 1.0) * 2 / y
    b = ((a < x) and c) or not (x >= y)
    k = ops.where(b, -a, +x)
    k *= 0.5
    return k


def integers(x: Tensor[i32, n]) -> tuple[Tensor[i32, n], Tensor[bool_, n], i64]:
    return x // 3 % 2, (x == 1) or (x != 2), n // 8


def attributes(x: Tensor[f32, n, 4, 8], ids: Tensor[i32, t]) -> Tensor[f16, 8, t, 4]:
    a = ops.reshape(x, [n, -1])
    b = ops.take(ops.gelu(a, approximate="tanh"), ids, axis=0)
    c = ops.permute(ops.reshape(b, [ids.shape[0], 4, 8]), [2, 0, 1])
    return ops.cast(ops.softmax(c, axis=-2) + ops.mean(c, axis=(0, 1), keepdims=True), f16)


def literals(x: Tensor[f32, 3]) -> tuple[Tensor[f32, 3], Tensor[i64, 2, 2], Tensor[bf16, 2], Tensor[f32, 4, 5], Tensor[bool_, 1]]:
    a = ops.constant([1.5, -0.0, 1e-30]) + x
    b = ops.constant([[1, 2], [-3, 4]])
    c = ops.constant([0.1, 3.0], dtype=bf16)
    return a, b, c, ops.constant(INFINITE), ops.constant([True])


def infinite(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return ops.maximum(x, ops.constant([-np.inf])) + ops.full([1], np.nan)


def calls(x: Tensor[f32, t], w: Tensor[f32, n]) -> tuple[Tensor[f32, t], Tensor[f32, n * 2], Tensor[f32, t]]:
    a = shift(shift(x, 2.0), 1.0)
    b, c = double(w, 3)
    d = ops.call_library("sym", [a, b], out=(Tensor[f32, t], Tensor[i32, 4]))
    e = ops.call_host(on_host, [d[0]], out=Tensor[f32, t])
    return e, c, d[0]


def matching(x: Tensor[f32, t, 8], y: Tensor[f32, m]) -> Tensor[f32, t, 8]:
    z = match_cast(y, Tensor[f32, n])
    w = match_cast(z, Tensor[f32, 8])
    return x + w


def branches(x: Tensor[f32, t, 8], flag: bool_, level: f32) -> tuple[Tensor[f32, t, 8], i64]:
    k = 1
    if flag:
        y = x * level
        k = 2
    else:
        if level > 0.0:
            y = -x
        else:
            y = x
    if t > 4 and t < 100:
        y = y + 1.0
    return y, k


def loops(c: State[f32, pages, 8], x: Tensor[f32, t, 8], steps: i64) -> tuple[State[f32, pages, 8], Tensor[f32, t, 8]]:
    i = 0
    while i < steps:
        j = 0
        while j < i:
            c = append(c, x, i + j)
            j += 1
        x = ops.relu(x)
        i += 1
    return c, x


def long_loop(x: Tensor[f32, 4]) -> Tensor[f32, 4]:
    while True:
        total = ops.sum(x)
        if total > 10.0:
            break
        x = x + 1.0
    return x


def names(ops_: Tensor[f32, t], min: Tensor[f32, m]) -> tuple[Tensor[f32, t], Tensor[f32, m]]:
    n = ops_ + 1.0
    f32_ = ops.neg(n)
    return f32_, ops.exp(min)


SCRIPTS = [operators, integers, attributes, literals, infinite, calls, matching, branches, loops, long_loop, names]


@pytest.mark.parametrize("fn", SCRIPTS, ids=lambda f: f.__name__)
def test_round_trip(fn: Any) -> None:
    round_trip(parse_function(fn))


def test_scripts_cover_the_nodes() -> None:
    assert set().union(*(kinds(parse_function(f)) for f in SCRIPTS)) == {c.__name__ for c in Node.__subclasses__()}


def test_slices() -> None:
    def f(x: Tensor[f32, t, 8, 9], y: Tensor[f32, n]) -> Tensor[f32, t - 1, 8, 4]:
        return x[1:, :, 1:9:2]

    found = round_trip(parse_function(f))
    assert str(found.results[0].annotation) == "Tensor[f32, t - 1, 8, 4]"


def test_python_flags_choose_a_branch() -> None:
    flag = False

    def f(x: Tensor[f32, t]) -> Tensor[f32, t]:
        if flag:
            x = ops.exp(x)
        return x

    assert parse_function(f).nodes == ()


def test_arrays_and_numbers_from_around() -> None:
    table, factor = np.arange(8, dtype=np.float32), 2.5

    def f(x: Tensor[f32, t, 8]) -> Tensor[f32, t, 8]:
        return x * factor + table

    found = parse_function(f)
    table[:] = 0  # the program has its own copy
    constants = [node.array for node in found.nodes if hasattr(node, "array")]
    assert [c.tolist() for c in constants] == [2.5, list(range(8))]
    round_trip(found)


def test_large_constants_are_named() -> None:
    def f(x: Tensor[f32, 40]) -> Tensor[f32, 40]:
        return x + MANY

    found = parse_function(f)
    text = print_function(found)
    assert 'ops.constant(constants["f.const"])  # Tensor[f32, 40], crc32 ' in text
    assert list(constants_of(found)) == ["f.const"]
    round_trip(found)


def test_dims_and_values_of_one_name_are_kept_apart() -> None:
    first, second = Dim("n"), Dim("n", 1, 9)
    b = Builder("f")
    x = b.param("n", TensorAnnotation(f32, (first, second)))
    with b:
        y = ops.exp(x)
    f = b.finish([y])
    text = print_function(f)
    assert 'n_1 = dim("n")' in text and 'n_2 = dim("n", min=1, max=9)' in text
    round_trip(f)


def test_expressions_in_shapes() -> None:
    k = Dim("k")
    b = Builder("f")
    x = b.param("x", TensorAnnotation(f32, (k, k * 2 + 1, (k + 3) // 4)))
    y = b.param("y", TensorAnnotation(f32, (t,)))
    with b:
        z = ops.add(ops.reshape(x, (-1,)), y)
    round_trip(b.finish([z]))


# What linters and type checkers say of it.

SAMPLE = """\
from pliant import State, Tensor, bool_, dim, f16, f32, function, i64, match_cast, ops

n = dim("n")
m = dim("m")


@function
def mlp(x: Tensor[f32, n, 64], w: Tensor[f32, 64, 128], k: Tensor[i64, n]) -> Tensor[f32, n, 128]:
    h = ops.silu(x @ w) * 2.0 + 1.0
    if n > 4:
        h = ops.where(h > 0.0, h, 0.0)
    r = ops.reshape(h, [n, 8, x.shape[1]])
    c = ops.cast(ops.concat([r, r], axis=0), f16)
    y = match_cast(x, Tensor[f32, m, 64])
    t = ops.take(x, k) + ops.softmax(y) - ops.sum(ops.cast(c, f32))
    return ops.linear(ops.rms_norm(t, w), w)


@function
def two(c: State[f32, m, 4], x: Tensor[f32, n]) -> tuple[State[f32, m, 4], Tensor[bool_, n]]:
    return c, ops.less(x, 1.0)
"""

ROOT = GOLDEN.parent.parent
COMPLETE = [str(GOLDEN / f"graph_{name}.py") for name in ("calls", "mlp", "shapes")]  # those that need no kernel


@pytest.mark.skipif(shutil.which("ruff") is None, reason="ruff is not installed")
def test_ruff_is_silent(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE)
    command = ["ruff", "check", "--isolated", "--line-length=140", str(tmp_path / "sample.py"), *COMPLETE]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_is_silent_on_functions_and_finds_mixed_dtypes(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE)
    mistake = SAMPLE.replace("ops.take(x, k) +", "c +")  # f16 and f32
    (tmp_path / "mistake.py").write_text(mistake)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache'}"]
    env = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run([*command, str(tmp_path / "sample.py"), *COMPLETE], capture_output=True, text=True, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([*command, str(tmp_path / "mistake.py")], capture_output=True, text=True, env=env, cwd=ROOT)
    assert "mistake.py:15: error:" in done.stdout, done.stdout


def test_the_sample_is_a_program(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE.replace("ops.rms_norm(t, w), w", "t, ops.permute(w, [1, 0])"))
    found = runpy.run_path(str(tmp_path / "sample.py"))
    for name in ("mlp", "two"):
        round_trip(found[name].graph)


# Structure.


def test_names_of_values_do_not_count_and_others_do() -> None:
    def make(value: str, name: str = "f", param: str = "x", size: Any = t, number: float = 1.0) -> Function:
        b = Builder(name)
        x = b.param(param, TensorAnnotation(f32, (size, const(4))))
        with b:
            b.hint = value
            y = ops.mul(x, number)
        return b.finish([y])

    plain = make("y")
    assert same(plain, make("other"))
    for different in (make("y", name="g"), make("y", param="z"), make("y", size=n), make("y", size=const(4)), make("y", number=2.0)):
        assert not same(plain, different)
        assert structural_hash(plain) != structural_hash(different)


def test_difference_is_named() -> None:
    def f(x: Tensor[f32, t]) -> Tensor[f32, t]:
        return ops.softmax(ops.exp(x), axis=0)

    found = parse_function(f)
    other = found.with_(nodes=(found.nodes[0].with_(op="silu"), found.nodes[1]))
    with pytest.raises(AssertionError, match=r"f\.nodes\[0\]\.op: 'silu' is not 'exp'"):
        assert_same(found, other)


def test_callees_are_found_by_name() -> None:
    found = parse_function(calls)
    call = next(node for node in found.nodes if isinstance(node, CallLoop))
    assert call.callee is double.callee and list(map(str, call.dims)) == ["n"]
