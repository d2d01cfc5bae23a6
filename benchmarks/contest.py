"""How benchmarks are run: each contestant in a child process of its own, in alternating rounds; best and median are shown.

A benchmark file has a table of contestants, functions that measure something once and return a number, and calls `contest`:

    CONTESTANTS = {"pliant": measure_ours, "numpy": measure_numpy}
    if __name__ == "__main__":
        contest(__file__, __doc__, CONTESTANTS, unit="ms", report=ratios)
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACES = [str(ROOT / "src"), str(ROOT / "examples")]
sys.path[:0] = PLACES  # benchmarks measure this checkout, installed or not
Measure = Callable[[], float]
Times = dict[str, list[float]]


def in_child(file: str, name: str) -> float | None:
    """Measures a contestant in a process of its own; None where it is not installed."""
    path = os.pathsep.join([*PLACES, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, file, "--contestant", name]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}", file=sys.stderr)
        return None
    return float(json.loads(done.stdout.splitlines()[-1]))


def contest(file: str, doc: str | None, contestants: dict[str, Measure], unit: str, report: Callable[[Times], None] | None = None) -> None:
    """The benchmark's command line: prints the table, and what `report` makes of the times."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        print(json.dumps(contestants[options.contestant]()))
        return
    times: Times = {name: [] for name in contestants}
    for _ in range(options.rounds):
        for name, rounds in times.items():
            measured = in_child(file, name)
            if measured is not None:
                rounds.append(measured)
    times = {name: rounds for name, rounds in times.items() if rounds}
    print(f"{unit:54} {'best':>9} {'median':>9}")
    for name, rounds in times.items():
        print(f"{name:54} {min(rounds):9.2f} {statistics.median(rounds):9.2f}")
    if report is not None:
        report(times)


def ratio(times: Times, ours: str, theirs: str, what: str) -> None:
    """Prints how many times faster `ours` is than `theirs`, by best and by median."""
    if ours in times and theirs in times:
        a, b = times[ours], times[theirs]
        print(f"{what:54} {min(b) / min(a):8.2f}x {statistics.median(b) / statistics.median(a):8.2f}x")
