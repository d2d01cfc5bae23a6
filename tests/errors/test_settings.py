"""Mistakes around programs: settings that name nothing, text that is none, names no dim can have, a cache that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, kernel, match_cast, ops
from pliant.loop.stmt import Func

n = dim("n")


@function
def add(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return x + 1.0


@function
def cast(x: Tensor[f32, n]) -> Tensor[f32, 3]:
    return ops.abs(match_cast(x, Tensor[f32, 3]))


def test_a_step_that_there_is_not_is_named_once(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PLIANT_SHOW", "fuze,zzz")
    for _ in range(2):
        pliant.compile(add, cache=False)
    shown = capfd.readouterr().err
    assert shown.count("PLIANT_SHOW: there is no step `fuze`; did you mean fuse?") == 1
    assert shown.count("PLIANT_SHOW: there is no step `zzz`; steps are: ") == 1


@pytest.mark.parametrize(("given", "help"), [(3, "str(program)"), (b"x", "text.decode()"), (None, "str(program)")])
def test_parse_takes_text(given: object, help: str) -> None:
    with pytest.raises(pliant.Error, match=f"a program is parsed from text, not from an object of type `{type(given).__name__}`") as error:
        pliant.parse(given)  # type: ignore[arg-type]
    assert error.value.where is not None and Path(error.value.where.file).name == "test_settings.py"
    assert help in error.value.help


@pytest.mark.parametrize("name", ["for", "lambda", "None", "two words", "", "1st"])
def test_names_that_no_dim_can_have(name: str) -> None:
    with pytest.raises(pliant.Error, match="a dim is named like a Python variable"):
        dim(name)


def test_dims_that_break_a_cast_are_told_in_the_words_of_the_program() -> None:
    with pytest.raises(pliant.ShapeError) as error:
        pliant.compile(cast, dims={"n": 4})
    assert error.value.what == "`cast` cannot have these dims: match_cast: dim 0 of `x` is 4, 3 is expected"
    assert "deduction" not in str(error.value)


def test_what_only_looks_like_a_schedule_is_no_program() -> None:
    @kernel
    def f(x: Tensor[f32, n], y: pliant.Out[f32, n]) -> None:
        for i in range(n):
            y[i] = x[i]

    class Other:
        func: Func = f.func

    with pytest.raises(pliant.Error, match="cannot compile an object of type `Other`"):
        pliant.compile(Other())
    x = np.ones(2, np.float32)
    assert pliant.compile(pliant.Schedule(f))(x).tolist() == [1, 1]


@pytest.mark.skipif(os.name != "posix", reason="folders of others are files here")
def test_a_cache_that_cannot_be_written_is_warned_of_at_the_users_line(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import numpy as np, pliant\n"
        "from pliant import Tensor, dim, f32, function\n"
        "n = dim('n')\n"
        "@function\n"
        "def f(x: Tensor[f32, n]) -> Tensor[f32, n]:\n"
        "    return x + 1.0\n"
        "pliant.compile(f)\n"
    )
    (tmp_path / "file").write_text("")  # a folder below a file cannot be made, whoever asks
    environment = {**os.environ, "PLIANT_CACHE": str(tmp_path / "file" / "below")}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=True)
    assert f"{script}:7: RuntimeWarning: compiled code is not kept for the next run" in done.stderr
