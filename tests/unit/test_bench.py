"""`pliant bench`: its numbers from records, and a whole run on a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pliant
from pliant.cli import Usage, bench
from pliant.cli.bench import as_json, child, means, numbers, share, table
from pliant.cli.bench_workers.peer_llama_cpp import best
from tiny_models import tiny_file

SRC = Path(pliant.__file__).parent.parent
NEEDS = {"bytes": 100e6, "bytes_per_context": 50e3, "operations": 0.2e9}
LIMITS = {2: {"operations": 200e9, "bytes": 28e9}}
RATES = {
    "pliant": {(2, "prefill", "512"): [400.0, 500.0, 450.0], (2, "decode", "2000"): [70.0, 60.0, 65.0]},
    "llama.cpp": {(2, "prefill", "512"): [250.0, 200.0, 225.0], (2, "decode", "2000"): [35.0, 30.0, 32.5]},
}


def test_shares_of_the_limits() -> None:
    assert share((2, "prefill", "512"), 500.0, NEEDS, LIMITS) == pytest.approx(0.5)  # 500 * 0.2e9 / 200e9
    assert share((2, "decode", "2000"), 70.0, NEEDS, LIMITS) == pytest.approx(0.5)  # 70 * (100e6 + 2000 * 50e3) / 28e9


def test_the_table() -> None:
    head, read, write, mean, limits, note = table(RATES, NEEDS, LIMITS).splitlines()
    assert head.split() == ["tokens/s", "pliant", "median", "of", "limit", "llama.cpp", "median", "times"]
    assert read.split() == ["prefill", "512,", "2", "threads", "500.0", "450.0", "50%", "250.0", "225.0", "2.00x"]
    assert write.split() == ["decode", "after", "2000,", "2", "threads", "70.0", "65.0", "50%", "35.0", "32.5", "2.00x"]
    assert mean == "llama.cpp: on the geometric mean prefill 2.00x with 2 threads, decode 2.00x with 2 threads"
    assert limits == "limits, 2 threads: 200 GFLOP/s (f32), 28.0 GB/s" and note.startswith("first the best round; ")


def test_means_are_geometric() -> None:
    ours = {(1, "decode", "0"): [80.0, 90.0], (1, "decode", "512"): [20.0]}
    theirs = {(1, "decode", "0"): [10.0], (1, "decode", "512"): [20.0, 15.0]}
    assert means({"pliant": ours, "peer": theirs}, "peer") == "on the geometric mean decode 3.00x with 1 thread"  # of 9 and 1


@pytest.mark.parametrize(("times", "expected"), [([5.0], 5.0), ([0.9, 0.4, 0.3, 0.5], 0.3), ([0.1, 0.7, 0.8], 0.7)])
def test_a_long_run_is_not_repeated(times: list[float], expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, left = [0.0], list(times)

    def run() -> None:
        clock[0] += left.pop(0)

    monkeypatch.setattr("pliant.cli.bench_workers.peer_llama_cpp.time.perf_counter", lambda: clock[0])
    assert best(run, 1.0) == pytest.approx(expected) and not left


def test_the_same_as_data() -> None:
    found = as_json(RATES, NEEDS, LIMITS)
    assert len(found["measurements"]) == 4
    assert found["measurements"][1] == {
        "contestant": "pliant",
        "threads": 2,
        "what": "decode",
        "tokens": 2000,
        "tokens_per_second": [70.0, 60.0, 65.0],
        "share_of_limit": pytest.approx(0.5),
    }


def test_lists_of_numbers() -> None:
    assert numbers("16,128", "--prompt", 1) == [16, 128]
    for wrong in ("", "1,", "a", "0"):
        with pytest.raises(Usage, match="--prompt"):
            numbers(wrong, "--prompt", 1)


def test_a_contestant_that_is_missing_or_fails() -> None:
    without = [
        sys.executable,
        "-c",
        "import sys; sys.modules['llama_cpp'] = None; raise ModuleNotFoundError(\"No module named 'llama_cpp'\")",
    ]
    with pytest.raises(Usage, match=r"llama\.cpp is not installed"):
        child("llama.cpp", without, {})
    with pytest.raises(pliant.Error, match="pliant failed: ValueError: bad luck"):
        child("pliant", [sys.executable, "-c", "raise ValueError('bad luck')"], {})
    with pytest.raises(Usage, match="cannot be run"):
        child("llama.cpp", ["/no/such/python"], {})


def test_the_worker_of_a_peer_is_run_by_its_path() -> None:
    """A peer may need another Python, which cannot import Pliant: so its worker is a file, not a module."""
    done = subprocess.run([sys.executable, str(bench._FOLDER / "peer_llama_cpp.py")], capture_output=True, text=True)
    assert "IndexError" in done.stderr  # it was found and ran: there is no record among its arguments


def test_a_whole_run() -> None:
    sizes = ["--prompt", "8", "--context", "0,70", "--threads", "1", "--rounds", "1", "--seconds", "0.01"]
    command = [sys.executable, "-m", "pliant", "bench", "-m", str(tiny_file()), "--json", *sizes]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [(m["what"], m["tokens"]) for m in found["measurements"]] == [("prefill", 8), ("decode", 0), ("decode", 70)]
    # Two layers: queries 64x64, keys and values 32x64 each, output 64x64, the network 3 x 96x64; Q8_0 is 34 bytes for 32.
    weights = 2 * (64 * 64 * 2 + 2 * 32 * 64 + 3 * 96 * 64)
    assert found["needs"]["operations"] == 2 * weights
    assert found["needs"]["bytes"] == (weights + 261 * 64) * 34 / 32
    assert found["needs"]["bytes_per_context"] == 2 * 2 * 2 * 16 * 2  # layers, heads, elements, keys and values, f16
