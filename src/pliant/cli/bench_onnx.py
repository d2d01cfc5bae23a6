"""`pliant bench MODEL.onnx [--vs onnxruntime,openvino] --dim n=17,128`: measures the latency of an ONNX model for each set of dims.

Each runtime runs in its own process, in alternating rounds. The table shows the best and the median call, and the speedup of the best call
over each peer. Nothing else should run at the same time.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

from . import Usage, choose, progress

PEERS = ("onnxruntime", "openvino")
OURS = "pliant"


def dim_sets(options: list[str]) -> list[dict[str, int]]:
    """Parses `n=17,128` to sets of dims: the first values of all dims, then the second ones, …; a single value is in every set.

    Raises Usage for other texts, and if two dims have different numbers of values.
    """
    lists: dict[str, list[int]] = {}
    for text in options:
        name, equals, values = (part.strip() for part in text.partition("="))
        parts = values.split(",")
        if not equals or not name.isidentifier() or not all(p.strip().isdigit() for p in parts):
            raise Usage(f"`--dim {text}` is not understood", "write --dim n=128, or --dim n=17,128 for several sizes")
        lists[name] = [int(p) for p in parts]
    count = max((len(v) for v in lists.values()), default=1)
    for name, values_ in lists.items():
        if len(values_) not in (1, count):
            raise Usage(
                f"`--dim {name}` has {len(values_)} values, and another dim {count}", "give one value, or as many as the others have"
            )
    return [{name: v[k if len(v) > 1 else 0] for name, v in lists.items()} for k in range(count)]


def run(options: argparse.Namespace) -> int:
    """Runs `pliant bench` for an ONNX model: measures it and prints the table; returns the exit code."""
    from .bench import _module, _usual_threads, child, numbers

    peers = [choose(name.strip(), PEERS, "peer") for name in options.vs.split(",")] if options.vs else []
    sets = dim_sets(options.dim)
    _check(options.model_file, sets)
    threads = (numbers(options.threads, "--threads", low=1) if options.threads else _usual_threads())[-1]
    settings = {"model": options.model_file, "dims": sets, "seconds": options.seconds, "threads": threads}
    times: dict[str, list[list[dict[str, float]]]] = {name: [] for name in (OURS, *peers)}
    for number in range(options.rounds):
        for name, measured in times.items():
            progress(f"round {number + 1} of {options.rounds}: {name}")
            measured.append(child(name, _module("onnx_model"), {**settings, "contestant": name})["times"])
    progress("")
    rows = [_row(dims, {name: [r[k] for r in rounds] for name, rounds in times.items()}) for k, dims in enumerate(sets)]
    print(json.dumps({"threads": threads, "rows": rows}) if options.json else table(rows, peers, threads))
    return 0


def _check(path: str, sets: list[dict[str, int]]) -> None:
    """Raises before anything is measured if the model cannot be imported or a dim has no value."""
    from ..frontends.onnx import from_onnx
    from ..graph.node import Tensor
    from .model_options import feeds

    params = from_onnx(path).entry.params
    inputs = {p.name: p.annotation for p in params if isinstance(p.annotation, Tensor)}
    for dims in sets:
        feeds(inputs, dict.fromkeys(inputs, "zeros"), dims)


def _row(dims: dict[str, int], rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    best = {name: min(r["best"] for r in measured) for name, measured in rounds.items()}
    median = {name: statistics.median(r["median"] for r in measured) for name, measured in rounds.items()}
    return {"dims": dims, "best": best, "median": median, "times": {n: best[n] / best[OURS] for n in best if n != OURS}}


def table(rows: list[dict[str, Any]], peers: list[str], threads: int) -> str:
    """Returns the times of all sets of dims as a text table in milliseconds: best and median, and the speedup over each peer."""
    labels = [", ".join(f"{name} = {n}" for name, n in row["dims"].items()) or "as it is" for row in rows]
    width = max(map(len, (*labels, "milliseconds")))
    lines = [f"{'milliseconds':{width}} {OURS:>10} {'median':>9}" + "".join(f" {p:>12} {'median':>9} {'times':>7}" for p in peers)]
    for label, row in zip(labels, rows, strict=True):
        line = f"{label:{width}} {1e3 * row['best'][OURS]:10.3f} {1e3 * row['median'][OURS]:9.3f}"
        for p in peers:
            line += f" {1e3 * row['best'][p]:12.3f} {1e3 * row['median'][p]:9.3f} {row['times'][p]:6.2f}x"
        lines.append(line)
    for p in peers if len(rows) > 1 else []:
        lines.append(f"{p}: on the geometric mean {statistics.geometric_mean(r['times'][p] for r in rows):.2f}x")
    return "\n".join([*lines, f"the best call, with {threads} thread{'s' * (threads > 1)}; times: how many times faster than the peer"])
