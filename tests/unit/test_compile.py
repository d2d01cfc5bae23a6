"""`pliant.compile` from end to end: the code cache, bound dims, outputs, threads, kernels, and programs as text."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import InOut, Out, State, Tensor, block, dim, f32, function, grid, i32, init, kernel, match_cast, ops, pipeline
from pliant.compilation import State as Compilation
from pliant.compilation import Step
from pliant.runtime import code_cache
from pliant.support import compiler_version
from pliant.support.errors import ShapeError
from pliant.target import target

n = dim("n", min=1, max=512, multiple_of=2)
m = dim("m", max=1024)
h = dim("h")
w = dim("w")

Array = np.ndarray[Any, Any]


@kernel
def matmul(a: Tensor[f32, n, 8], b: Tensor[f32, 8, m], c: Out[f32, n, m]) -> None:
    for i, j, k in grid(n, m, 8):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@kernel
def shift(by: i32, x: InOut[i32, m]) -> None:
    for i in range(m):
        x[i] += by


@function
def layer(x: Tensor[f32, n, 8], weight: Tensor[f32, 8, m]) -> tuple[Tensor[f32, n, m], Tensor[f32, n]]:
    y = matmul(ops.gelu(x), weight)
    return ops.softmax(y) + 1.0, ops.sum(y, axis=1)


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A code cache of its own."""
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))
    return tmp_path


# The cache.

CHILD = """
import sys
import numpy as np
import pliant
from pliant import Tensor, cache_key, dim, f32, function, ops

cache_key.compiler_version = lambda: "{version}"
n = dim("n")

@function
def f(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
    return ops.softmax(x * {factor}) + 1.0

y = pliant.compile(f)(np.arange(8, dtype=np.float32).reshape(2, 4))
print(y.tobytes().hex(), "llvmlite" in sys.modules)
"""


def child(folder: Path, factor: float = 2.0, version: str = "one") -> tuple[str, bool]:
    """Compiles and runs in a process of its own; the bytes of the result, and whether LLVM was loaded.

    The version is given: the real one changes whenever a source file does, which is no business of these tests.
    """
    script = folder.parent / "child.py"
    script.write_text(CHILD.format(factor=factor, version=version))
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PLIANT_CACHE": str(folder), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    found, loaded = done.stdout.split()
    return found, loaded == "True"


def stored(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.code"))


def programs(folder: Path) -> list[Path]:
    """The entries that are no kernels; a file is a head of 56 bytes, then the key."""
    return [file for file in stored(folder) if not file.read_bytes()[56:].startswith(b"kernel\n")]


def test_a_second_process_does_not_load_llvm(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    first, loaded = child(folder)
    assert loaded
    assert child(folder) == (first, False)
    other, loaded = child(folder, factor=3.0)  # another program is another entry
    assert loaded and other != first
    assert child(folder, version="two") == (first, True)  # and so is another compiler
    assert child(folder) == (first, False)


def test_a_changed_source_file_is_another_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_version, "ROOT", str(tmp_path))
    version = compiler_version.compiler_version.__wrapped__
    source = tmp_path / "lower" / "host" / "memory_plan.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1")
    first = version()
    (tmp_path / "notes.txt").write_text("no source")
    assert version() == first
    os.utime(source, ns=(0, 1))
    assert version() != first


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied"])
def test_a_damaged_entry_is_compiled_anew(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "cache"
    first, _ = child(folder)
    for path in stored(folder):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes({"cut": data[: len(data) // 2], "changed": data, "emptied": b""}[damage])
    assert child(folder) == (first, True)
    assert child(folder) == (first, False)


def test_the_key_tells_programs_apart(folder: Path) -> None:
    """Programs that differ in one number, a constant, a kernel's body or the binding of a dim are different entries."""

    def with_constant(values: list[float]) -> Any:
        array = np.array(values, np.float32)

        @function
        def f(x: Tensor[f32, m, 2]) -> Tensor[f32, m, 2]:
            return x + ops.constant(array)

        return f

    def with_kernel(double: bool) -> Any:
        @kernel
        def one(x: Tensor[f32, m], y: Out[f32, m]) -> None:
            for i in range(m):
                y[i] = x[i] + 1.0

        first = one

        @kernel
        def one(x: Tensor[f32, m], y: Out[f32, m]) -> None:
            for i in range(m):
                y[i] = x[i] + 2.0

        step = one if double else first

        @function
        def f(x: Tensor[f32, m]) -> Tensor[f32, m]:
            return step(x)

        return f

    x = np.zeros((2, 2), np.float32)
    pliant.compile(with_constant([1.0, 2.0]))
    before = len(programs(folder))  # the runtime's own code may be there too
    for values in ([1.0, 2.0], [1.0, 3.0]):
        np.testing.assert_array_equal(pliant.compile(with_constant(values))(x), [values, values])
    for double in (False, True, False):
        np.testing.assert_array_equal(pliant.compile(with_kernel(double))(x[0]), np.full(2, 2.0 if double else 1.0))
    assert len(programs(folder)) == before + 3
    f = pliant.compile(with_kernel(True), dims={"m": 2})
    with pytest.raises(ShapeError):
        f(np.zeros(3, np.float32))
    assert len(programs(folder)) == before + 4


def test_equal_constants_are_found_whether_or_not_they_are_one_array(folder: Path) -> None:
    table = np.arange(4, dtype=np.float32)

    @function
    def inner(x: Tensor[f32, m, 4]) -> Tensor[f32, m, 4]:
        return x * ops.constant(table)

    @function
    def f(x: Tensor[f32, m, 4]) -> Tensor[f32, m, 4]:
        return inner(inner(x))

    x = random(3, 4)
    first = pliant.compile(f)(x)
    again = pliant.compile(pliant.parse(str(pliant.Program.of(f.graph))))(x)
    np.testing.assert_array_equal(first, x * table * table)
    np.testing.assert_array_equal(again, first)


def test_without_the_cache_nothing_is_stored(folder: Path) -> None:
    pliant.compile(layer, cache=False)
    before = len(programs(folder))
    pliant.compile(layer, cache=False)
    assert len(programs(folder)) == before
    pliant.compile(layer)
    assert len(programs(folder)) == before + 1
    assert code_cache.get(b"something else") is None


# Dims.


def test_a_dim_is_set(folder: Path) -> None:
    f = pliant.compile(layer, dims={"n": 4})
    assert [d.name for d in f.dims] == ["m"]
    assert "n" not in [d.name for d in f.dims]
    x, weight = random(4, 8), random(8, 3, seed=1)
    for a, b in zip(f(x, weight), pliant.compile(layer)(x, weight), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    with pytest.raises(ShapeError, match="argument `x`: dim 0 is 6, expected 4"):
        f(random(6, 8), weight)


def test_a_dim_is_narrowed(folder: Path) -> None:
    f = pliant.compile(layer, dims={"n": (2, 16), "m": (0, 8)})
    assert [str(d) for d in f.dims] == ["n in 2..16 step 2", "m in 0..8"]
    assert f.workspace.max is not None
    assert f.workspace.max == f.workspace(n=16, m=8)
    f(random(16, 8), random(8, 8))
    with pytest.raises(ShapeError, match=r"`n` = 18 is outside its contract: n in 2\.\.16 step 2"):
        f(random(18, 8), random(8, 8))


def test_two_dims_are_joined(folder: Path) -> None:
    @function
    def trace(x: Tensor[f32, h, w], y: Tensor[f32, w]) -> Tensor[f32, h, w]:
        return x + y

    f = pliant.compile(trace, dims={"w": "h"})
    assert [d.name for d in f.dims] == ["h"]
    x = random(3, 3)
    np.testing.assert_array_equal(f(x, x[0]), x + x[0])
    with pytest.raises(ShapeError, match="argument `x`: dim 1 is 4, expected 3"):
        f(random(3, 4), random(4))


# Calls.


def test_outputs_that_the_caller_gives(folder: Path) -> None:
    f = pliant.compile(layer)
    x, weight = random(6, 8), random(8, 5, seed=1)
    y, total = f(x, weight)
    mine, sums = np.empty_like(y), np.empty_like(total)
    found = f(x, weight, out=(mine, sums))
    assert found[0] is mine and found[1] is sums
    np.testing.assert_array_equal(mine, y)
    np.testing.assert_array_equal(sums, total)
    names = [o.name for o in f.outputs]
    partly = np.empty_like(total)
    answer = f.run({"weight": weight, "x": x}, out={names[1]: partly})
    assert list(answer) == names and answer[names[1]] is partly
    np.testing.assert_array_equal(partly, total)
    np.testing.assert_array_equal(answer[names[0]], y)


def test_one_thread_and_two_give_the_same_bits(folder: Path) -> None:
    x, weight = random(512, 8), random(8, 700, seed=1)
    one, two = pliant.compile(layer, threads=1), pliant.compile(layer, threads=2)
    for a, b in zip(one(x, weight), two(x, weight), strict=True):
        assert a.tobytes() == b.tobytes()


def test_several_python_threads_call_one_executable(folder: Path) -> None:
    f = pliant.compile(layer)
    weight = random(8, 64, seed=1)
    inputs = [random(2 * (k + 1), 8, seed=k) for k in range(8)]
    expected = [f(x, weight)[0].tobytes() for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            if f(inputs[k], weight)[0].tobytes() != expected[k]:
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert not wrong


def test_a_kernel_is_called_with_arrays(folder: Path) -> None:
    a, b = random(4, 8), random(8, 3, seed=1)
    c = matmul(a, b)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-6)
    mine = np.empty((4, 3), np.float32)
    assert matmul(a, b, out=mine) is mine
    assert mine.tobytes() == c.tobytes()
    assert matmul(b=b, a=a).tobytes() == c.tobytes()
    with pytest.raises(ShapeError, match="argument `a`: dim 1 is 7, expected 8"):
        matmul(random(4, 7), b)


def test_a_kernel_updates_its_argument(folder: Path) -> None:
    x = np.arange(5, dtype=np.int32)
    assert shift(3, x) is x
    assert x.tolist() == [3, 4, 5, 6, 7]


def test_a_function_is_called_with_arrays(folder: Path) -> None:
    x, weight = random(2, 8), random(8, 3, seed=1)
    y, total = layer(x, weight)
    assert y.tobytes() == pliant.compile(layer)(x, weight)[0].tobytes()
    np.testing.assert_allclose(y.sum(axis=1), [4.0, 4.0], rtol=1e-6)  # a softmax, plus 1 for each of 3 columns
    assert total.shape == (2,)


def test_checked_code_gives_the_same_bits(folder: Path) -> None:
    x, weight = random(6, 8), random(8, 5, seed=1)
    plain, checked = pliant.compile(layer), pliant.compile(layer, checked=True)
    for a, b in zip(plain(x, weight), checked(x, weight), strict=True):
        assert a.tobytes() == b.tobytes()
    assert plain.package.blob.code != checked.package.blob.code


def test_checked_code_copies(folder: Path) -> None:
    @function
    def f(x: Tensor[f32, m, 2], b: bool) -> tuple[Tensor[f32, m, 2], Tensor[f32, m, 2]]:
        y = x
        if b:
            y = -x
        return x, y

    x = random(3, 2)
    for b in (True, False):
        for found, expected in zip(pliant.compile(f, checked=True)(x, b), (x, -x if b else x), strict=True):
            np.testing.assert_array_equal(found, expected)


# Programs as text.

q = dim("q")
halved = dim("halved")


@function
def norm(x: Tensor[f32, q, 4]) -> Tensor[f32, q, 4]:
    return x / (ops.sqrt(ops.mean(x * x, axis=-1, keepdims=True)) + 0.5)


@kernel
def add_to(x: Tensor[f32, q, 4], total: InOut[f32, q, 4]) -> None:
    for i in range(q):
        for j in range(4):
            total[i, j] += x[i, j]


@function
def everything(
    x: Tensor[f32, m, 4], y: Tensor[f32, h, 4], total: State[f32, m, 4], flag: bool, scale: f32
) -> tuple[Tensor[f32, m, 4], State[f32, m, 4], Tensor[f32, halved * 2, 2]]:
    z = match_cast(ops.slice(y, 0, 0, h // 2), Tensor[f32, halved, 4])
    if flag:
        u = norm(x) * scale
    else:
        u = ops.reshape(ops.reshape(x, (m * 4,)) + 1.0, (m, 4))
    total = add_to(u, total)
    return u + ops.constant([1.0, 2.0, 3.0, 4.0]), total, ops.reshape(z, (halved * 2, 2))


def test_a_program_as_text_is_the_same_program(folder: Path) -> None:
    program = pliant.Program.of(everything.graph)
    again = pliant.parse(str(program))
    assert str(again) == str(program)
    f, g = pliant.compile(program, cache=False), pliant.compile(again, cache=False)
    x, y = random(3, 4), random(6, 4, seed=1)
    for flag in (True, False):
        a, b = random(3, 4, seed=2), random(3, 4, seed=2)
        for one, other in zip(f(x, y, a, flag, 0.5), g(x, y, b, flag, 0.5), strict=True):
            assert one.tobytes() == other.tobytes()
        assert a.tobytes() == b.tobytes()


def test_the_text_of_a_kernel_is_a_program(folder: Path) -> None:
    program = pliant.Program.of_kernel(matmul.func)
    again = pliant.parse(str(matmul))
    a, b = random(4, 8), random(8, 3, seed=1)
    assert pliant.compile(again)(a, b).tobytes() == pliant.compile(program)(a, b).tobytes()


def test_steps_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PLIANT_SHOW", "fuse,host")
    pliant.compile(everything, cache=False)
    shown = capsys.readouterr().err
    assert "# fuse: elementwise loop programs have joined" in shown
    assert "# host: memory is planned" in shown
    assert "def run(" in shown and "def prepare(" in shown
    assert "# schedule" not in shown


def test_a_step_that_makes_a_wrong_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    def forgetful(s: Compilation) -> Compilation:
        return replace(s, function=s.function.with_(nodes=s.function.nodes[1:]))

    steps = (Step("forget", forgetful, "the first node is lost"),)
    state = Compilation(layer.graph, target("native"))
    with pytest.raises(pliant.InternalError, match="the step `forget` made a wrong program"):
        pipeline.run_steps(state, steps)


fours, sixes = dim("h", multiple_of=4), dim("w", min=2, max=64, multiple_of=6)
any_rows = dim("n")


def test_joined_dims_are_one_under_both_contracts() -> None:
    @function
    def f(x: Tensor[f32, fours, sixes]) -> Tensor[f32, fours, sixes]:
        return x + 1.0

    joined = pliant.compile(f, dims={"w": "h"})
    assert [str(d) for d in joined.dims] == ["h in 2..64 step 12"]
    assert joined(np.zeros((12, 12), np.float32)).sum() == 144
    with pytest.raises(pliant.ShapeError, match="dim 1 is 24, expected 12"):
        joined(np.zeros((12, 24), np.float32))
    narrowed = pliant.compile(f, dims={"w": "h", "h": (12, 36)})
    assert [str(d) for d in narrowed.dims] == ["h in 12..36 step 12"]
    assert list(pliant.compile(f, dims={"h": "w", "w": "h"}).contract.check({"x": (24, 24)}).values()) == [24]
    assert pliant.compile(f, dims={"w": "h", "h": 24}).dims == ()
    with pytest.raises(pliant.ShapeError, match="dim `h` cannot be 4"):
        pliant.compile(f, dims={"w": "h", "h": 4})


def test_dims_that_contradict_the_program() -> None:
    @function
    def f(x: Tensor[f32, any_rows, 3]) -> Tensor[f32, 5, 3]:
        return x + ops.full((5, 3), 1.0, dtype=f32)

    with pytest.raises(pliant.ShapeError, match=r"`f` cannot have these dims: .*dims 4 and 5"):
        pliant.compile(f, dims={"n": 4})


def test_a_program_whose_checks_contradict_each_other_fails_at_its_call() -> None:
    """The slice asks for n > 0, the cast for n == n // 2: to narrow n for the one would make the other wrong before any run."""

    @function
    def f(x: Tensor[f32, any_rows]) -> Tensor[f32, any_rows // 2]:
        odd = ops.slice(x, axis=0, start=1, stop=any_rows, step=2)
        return odd + ops.match_cast(x, Tensor[f32, any_rows // 2])

    never = pliant.compile(f)
    for n, why in ((0, "slice"), (3, "match_cast")):
        with pytest.raises(pliant.ShapeError, match=why):
            never(np.zeros(n, np.float32))


def test_code_for_another_machine_is_not_called() -> None:
    for name, why in (("llvm:cortex-a76", "not aarch64"), ("wasm+simd128", "not wasm32")):
        with pytest.raises(pliant.UnsupportedError, match="cannot run on this machine") as error:
            pliant.compile(matmul, target=name)
        assert why in str(error.value)


def test_every_public_name_is_what_it_says_after_everything_is_imported() -> None:
    import importlib
    import pkgutil
    import types

    for module in pkgutil.walk_packages(pliant.__path__, "pliant."):
        if module.name != "pliant.__main__":
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as missing:  # an extra of PyTorch's users
                assert missing.name == "torch", module.name
    for name in pliant.__all__:
        found = getattr(pliant, name)
        assert name in ("nn", "ops", "tune", "video") or not isinstance(found, types.ModuleType), name


def test_the_table_of_lazy_names_has_the_words_that_the_type_checker_sees() -> None:
    import importlib

    assert {*pliant.__all__} == {*pliant._HOME}
    for module in (".loop.script", ".sym.script", ".sym.spec"):  # type checkers see them by a star import
        assert {*pliant._PLACES[module].split()} == {*importlib.import_module(module, "pliant").__all__}, module
