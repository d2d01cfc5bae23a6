"""How benchmarks are run: each contestant in a child process of its own, in alternating rounds; best and median are shown.

A benchmark file has a table of contestants, functions that measure something once and return a number (or several, by name: one process
measures many points then), and calls `contest`:

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
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACES = [str(ROOT / "src"), str(ROOT / "examples")]
sys.path[:0] = PLACES  # benchmarks measure this checkout, installed or not
Figures = dict[str, float]
Measure = Callable[[], float | Figures]
Times = dict[str, list[float]]


def in_child(file: str, name: str, env: dict[str, str]) -> Figures:
    """Measures a contestant in a process of its own: its figures by name, none where it is not installed."""
    path = os.pathsep.join([*PLACES, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, file, "--contestant", name]
    done = subprocess.run(command, env={**os.environ, **env, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}", file=sys.stderr)
        return {}
    found = json.loads(done.stdout.splitlines()[-1])
    return {f"{name}, {what}": float(x) for what, x in found.items()} if isinstance(found, dict) else {name: float(found)}


def contest(
    file: str,
    doc: str | None,
    contestants: dict[str, Measure],
    unit: str,
    report: Callable[[Times], None] | None = None,
    listed: Callable[[str], bool] = lambda name: True,
    env: dict[str, str] | None = None,
    parts: Sequence[str] = (),
) -> None:
    """The benchmark's command line: prints the table of the figures that are listed, and what `report` makes of all of them.

    `env` is what the children find in their environment, for what a library reads only when it is loaded. A benchmark that takes long
    has parts, which can be run one at a time: the contestants whose names begin with that word.
    """
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="only the contestants whose names contain this")
    parser.add_argument("--part", default="", choices=parts, help="only this part of the benchmark")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        print(json.dumps(contestants[options.contestant]()))
        return
    times: Times = {}
    for _ in range(options.rounds):
        for name in contestants:
            if options.only in name and name.startswith(options.part):
                for what, measured in in_child(file, name, env or {}).items():
                    times.setdefault(what, []).append(measured)
    print(f"{unit:54} {'best':>9} {'median':>9}")
    for name, rounds in times.items():
        if listed(name):
            print(f"{name:54} {min(rounds):9.2f} {statistics.median(rounds):9.2f}")
    if report is not None:
        report(times)


def ratio(times: Times, ours: str, theirs: str, what: str) -> None:
    """Prints how many times faster `ours` is than `theirs`, by best and by median."""
    if ours in times and theirs in times:
        a, b = times[ours], times[theirs]
        print(f"{what:54} {min(b) / min(a):8.2f}x {statistics.median(b) / statistics.median(a):8.2f}x")
