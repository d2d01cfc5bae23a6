"""`pliant bench MODEL.onnx [--vs onnxruntime,openvino] --dim n=17,128`: measures the latency of an ONNX model for each set of dims.

Each runtime runs in its own process, in alternating rounds, on the same inputs; `--peer-python` names the Python of the peers. The table
shows the best and the median call, and the speedup of the best call over each peer, for each number of threads. Nothing else should run at
the same time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from . import Usage, choose, progress
from .model_options import batch_dims, feeds

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
    from .bench import _FOLDER, _module, _python, _usual_threads, numbers

    peers = [choose(name.strip(), PEERS, "peer") for name in options.vs.split(",")] if options.vs else []
    sets = dim_sets(options.dim)
    arrays = _inputs(options.model_file, sets)
    counts = numbers(options.threads, "--threads", low=1) if options.threads else _usual_threads()[-1:]
    workers = {OURS: _module("onnx_model"), **{peer: [_python(options), str(_FOLDER / "peer_onnx.py")] for peer in peers}}
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        files = [_saved(Path(folder) / f"{k}.npz", named) for k, named in enumerate(arrays)]
        given = {"model": options.model_file, "inputs": files, "seconds": options.seconds}
        times = _measured(workers, given, counts, options.rounds)
    rows = [
        {"threads": count, **_row(dims, {name: [r[k] for r in rounds] for name, rounds in by_name.items()})}
        for count, by_name in times.items()
        for k, dims in enumerate(sets)
    ]
    tables = [table([row for row in rows if row["threads"] == count], peers, count) for count in times]
    print(json.dumps({"threads": counts, "rows": rows}) if options.json else "\n\n".join(tables))
    return 0


def _measured(workers: dict[str, list[str]], given: dict[str, Any], counts: list[int], rounds: int) -> dict[int, dict[str, list[Any]]]:
    """Runs the workers in alternating rounds; returns the times of each round, by number of threads and runtime."""
    from .bench import child

    times: dict[int, dict[str, list[Any]]] = {count: {name: [] for name in workers} for count in counts}
    for number in range(rounds):
        for count in counts:
            for name, command in workers.items():
                progress(f"round {number + 1} of {rounds}: {name}, {count} thread{'s' * (count > 1)}")
                times[count][name].append(child(name, command, {**given, "threads": count, "contestant": name})["times"])
    progress("")
    return times


def _inputs(path: str, sets: list[dict[str, int]]) -> list[dict[str, Any]]:
    """Returns random inputs for each set of dims, before anything is measured; raises Usage if a dim has no value."""
    from ..frontends.onnx import from_onnx
    from ..graph.node import Tensor

    params = from_onnx(path).entry.params
    inputs = {p.name: p.annotation for p in params if isinstance(p.annotation, Tensor)}
    return [feeds(inputs, dict.fromkeys(inputs, "random"), dims, batch_dims(inputs)) for dims in sets]


def _saved(path: Path, arrays: dict[str, Any]) -> str:
    """Writes arrays to a file, named by their positions, because runtimes may name inputs otherwise; returns its path."""
    import numpy as np

    np.savez(path, **{str(k): a for k, a in enumerate(arrays.values())})
    return str(path)


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
