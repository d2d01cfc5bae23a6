"""`pliant tune`: searches a model, and handles the records as a whole."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_cli import SRC, run

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.schedule.records import FILE, Record, kernel_key
from pliant.target import target
from pliant.tune.database import Database
from tuning_kernels import matmul

n = dim("n")
W = np.random.default_rng(0).random((16, 32), np.float32)


@function
def layer(x: Tensor[f32, n, 16]) -> Tensor[f32, n, 32]:
    return ops.relu(x @ ops.constant(W))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_model_is_tuned(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "layer.pliant"
    pliant.compile(layer).save(file)
    args = ["tune", str(file), "--dim", "n=1..64", "--sizes", "n=1,8", "--minutes", "0.0001", "--report", str(tmp_path / "t.html")]
    done = run(*args, "--json", PLIANT_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["measurements"] > 0 and 0 < facts["ratio"] <= 1 and [k["calls"] for k in facts["kernels"]] == [1]
    assert "candidates a minute" in done.stderr and "\r" not in done.stderr, "plain lines where there is no terminal"
    assert (tmp_path / "t.html").read_text().startswith("<!doctype html>")
    shown = run("tune", "--show", str(file), PLIANT_CACHE=str(cache))
    assert shown.returncode == 0 and ".tile = " in shown.stdout


def test_records_are_shown_exported_merged_and_cleared(tmp_path: Path, cache: Path) -> None:
    def tune(*args: str, code: int = 0) -> str:
        done = run("tune", *args, PLIANT_CACHE=str(cache))
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    with Database(cache / FILE) as database:
        database.add_record(Record(kernel_key(matmul.func, target("native")), {"0.tile": (2, 1)}, 0.75, ({"n": 7},), 1e-5, "matmul"))
    assert tune("--show") == "matmul of sizes 16, 32: 75 % of the default's time, measured at n = 7: 0.tile = 2x1\n1 record\n"
    a, b = tmp_path / "a.tune", tmp_path / "b.tune"
    tune("--export", str(a))
    b.write_text(a.read_text().replace("0.75", "0.5") + "this is none\n")
    assert tune("--clear") == "1 record removed\n" and tune("--show") == "0 records\n"
    own = Record(kernel_key(matmul.func, target("native")), {"0.lane": 1}, 0.1, (), 1e-5, "matmul", modules=("inline",))
    a.write_text(a.read_text() + own.line() + "\n")
    told = tune("--merge", str(a), str(b), code=1)
    assert "b.tune, line 2" in told and "not taken: 1 of modules" in told
    assert "50 %" in tune("--show"), "of two records of one kernel the faster one stays"
    assert [r["ratio"] for r in json.loads(tune("--show", "--json"))] == [0.5]


def test_wrong_usage_is_told(tmp_path: Path, cache: Path) -> None:
    for args in (
        [],
        ["m.onnx", "--clear"],
        ["--show", "--clear"],
        ["m.onnx", "--sizes", "n=a"],
        ["m.onnx", "--minutes", "-1"],
        ["--merge", str(tmp_path / "absent")],
    ):
        done = run("tune", *args, PLIANT_CACHE=str(cache))
        assert done.returncode == 2 and done.stderr.startswith("pliant: "), args


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
def test_an_interrupt_keeps_what_was_measured(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "layer.pliant"
    pliant.compile(layer).save(file)
    command = [sys.executable, "-m", "pliant", "tune", str(file), "--sizes", "n=8"]
    around = {**os.environ, "PLIANT_CACHE": str(cache), "PYTHONPATH": os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(command, env=around, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert "kernels done" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
    assert child.returncode == 130 and "everything that was measured is kept" in rest
    with sqlite3.connect(cache / FILE) as connection:
        assert connection.execute("SELECT count(*) FROM trials").fetchone()[0] >= 8
