"""How far sums, means, norms, pools, products and functions are from float64, beside numpy, torch and onnxruntime.

    python benchmarks/precision.py [--seeds 20] [--only "mean"] [--sizes 1000,6400] [--static] [--all]

A line for each case (`tests/error_cases.py`) and size: the error over eps times the sum of what is added, of the worst element, as the
median and the maximum over the seeds; and how many times those of the better peer ours are. Errors below half a unit are no worse than
rounding the exact result, and count as half a unit. Programs are for any size, or with --static for each size alone; --all shows lines that
are good, too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np

import pliant
from error_cases import CASES, FUNCTIONS, SIZES, Case, of_onnxruntime

FLOOR = 0.5  # a half of the last place
GOOD = 1.5  # times the better peer's


def peers(case: Case, arrays: list[Any]) -> dict[str, Callable[..., Any]]:
    """The peers that are installed and can do a case."""
    found: dict[str, Callable[..., Any]] = {}
    if case.numpy is not None:
        found["numpy"] = case.numpy
    try:
        import torch

        if case.torch is not None:
            found["torch"] = lambda *xs: case.torch(torch, *(torch.from_numpy(x) for x in xs)).numpy()  # type: ignore[misc]
    except ImportError:
        pass
    try:
        if case.onnx:
            found["onnxruntime"] = of_onnxruntime(case, arrays)
    except ImportError:
        pass
    return found


def measured(case: Case, n: int, seeds: int, compiled: Any) -> dict[str, tuple[float, float]]:
    """The median and the maximum of the errors, of ours and of the peers."""
    runs = {"ours": compiled, **peers(case, case.arrays(n, 0))}
    errors: dict[str, list[float]] = {who: [] for who in runs}
    for seed in range(seeds):
        arrays = case.arrays(n, seed)
        for who, run in runs.items():
            errors[who].append(case.error(np.asarray(run(*arrays)), arrays))
    return {who: (statistics.median(found), max(found)) for who, found in errors.items()}


def ratios(found: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """Ours over the better peer's, of the medians and of the maxima."""
    ours = found["ours"]
    best = [min((f[k] for who, f in found.items() if who != "ours"), default=FLOOR) for k in range(2)]
    return ours[0] / max(best[0], FLOOR), ours[1] / max(best[1], FLOOR)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--static", action="store_true")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    bad = count = 0
    print(f"{'what':46}{'n':>8} {'ours':>13} {'numpy':>13} {'torch':>13} {'onnxruntime':>13}   times the better")
    for name, case in (CASES | FUNCTIONS).items():
        if given.only not in name:
            continue
        compiled = None if given.static else pliant.compile(case.program(None))
        for n in map(int, given.sizes.split(",")):
            n = case.least if case.least == case.most else n
            if n > case.most:
                continue
            found = measured(case, n, given.seeds, compiled or pliant.compile(case.program(n)))
            worse = ratios(found)
            count += 1
            bad += max(worse) > GOOD
            cells = (
                f"{found[who][0]:6.2f} {found[who][1]:6.2f}" if who in found else " " * 13
                for who in ("ours", "numpy", "torch", "onnxruntime")
            )
            if given.all or max(worse) > GOOD:
                mark = "  <--" if max(worse) > GOOD else ""
                print(f"{name:46}{n:8} {' '.join(cells)}   {worse[0]:.2f} {worse[1]:.2f}{mark}", flush=True)
            if case.least == case.most:
                break
    print(f"{count - bad} of {count} are at most {GOOD} times as far off as the better peer")


if __name__ == "__main__":
    main()
