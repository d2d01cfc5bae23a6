"""`pliant bench -m MODEL [--vs llama.cpp]`: measures prefill and decode speed of a language model in tokens per second.
(`pliant bench MODEL.onnx`: `bench_onnx.py`.)

Each runtime runs in its own process, in alternating rounds. The table shows the best round, the median, and the share of the machine's
roofline: peak f32 FMA rate for prefill (integer matmuls may exceed it), memory bandwidth for decode. Nothing else should run at the same
time. With default settings it takes two or three minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import Usage, choose, progress

PEERS = ("llama.cpp",)
OURS = "pliant"
PACKAGES = {"llama.cpp": "llama-cpp-python"}  # the package of a peer that has another name
_FOLDER = Path(__file__).parent / "bench_workers"
Cell = tuple[int, str, str]  # (threads, "prefill" or "decode", tokens)
Rates = dict[str, dict[Cell, list[float]]]  # runtime -> measurement -> tokens/s of each round


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `pliant bench` to the parser."""
    parser.add_argument("model_file", nargs="?", metavar="MODEL.onnx", help="an ONNX model, instead of a language model")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N,N", help="value of a dim of an ONNX model, or several values")
    parser.add_argument("-m", "--model", metavar="MODEL", help="a path, a name from `pliant models list`, or hf:org/repo[:quant]")
    parser.add_argument("--vs", metavar="PEER", help=f"also measure this runtime: {', '.join(PEERS)}; for ONNX: onnxruntime, openvino")
    parser.add_argument("--peer-python", metavar="PATH", help="Python that has the peer (default: PLIANT_PEER_PYTHON, or this one)")
    parser.add_argument("--threads", default=None, metavar="N,N", help="numbers of threads (default: one, and all)")
    parser.add_argument("--prompt", default="16,128,512", metavar="N,N", help="prompt lengths of the prefill measurement, in tokens")
    parser.add_argument("--context", default="0,512,2048", metavar="N,N", help="context lengths of the decode measurement, in tokens")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="number of runs of each runtime")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S", help="duration of each measurement in a round")
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Runs `pliant bench`: measures the model and prints the table; returns the exit code. Raises Usage for wrong options."""
    if options.rounds < 1 or not options.seconds > 0:
        raise Usage("--rounds and --seconds are more than 0")
    if options.model_file:
        from . import bench_onnx

        return bench_onnx.run(options)
    peers = [choose(options.vs, PEERS, "peer")] if options.vs else []
    threads = numbers(options.threads, "--threads", low=1) if options.threads else _usual_threads()
    prompts, contexts = numbers(options.prompt, "--prompt", low=1), numbers(options.context, "--context", low=0)
    from ..llm.catalog import DEFAULT
    from ..llm.locate import locate

    path = locate(options.model or DEFAULT, offline=options.offline, progress=progress)
    settings = {"model": str(path), "prompts": prompts, "contexts": contexts, "seconds": options.seconds}
    contestants = {OURS: _module("ours"), **({"llama.cpp": [_python(options), str(_FOLDER / "peer_llama_cpp.py")]} if peers else {})}
    rates, needs, limits = measure(contestants, settings, threads, options.rounds)
    if options.json:
        print(json.dumps(as_json(rates, needs, limits)))
    else:
        print(table(rates, needs, limits))
    return 0


def numbers(text: str, option: str, low: int) -> list[int]:
    """Parses a list like `16,128`; raises Usage if it is none, or if a number is below `low`."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        raise Usage(f"{option} is `{text}`; numbers with commas between them are expected") from None
    if min(values) < low:
        raise Usage(f"{option} is `{text}`; the least is {low}")
    return values


def measure(
    contestants: dict[str, list[str]], given: dict[str, Any], threads: Sequence[int], rounds: int
) -> tuple[Rates, dict[str, float], dict[int, dict[str, float]]]:
    """Benchmarks the contestants: returns the rates of all rounds, bytes and operations of a token, and the machine's limits by threads.

    Each runs in a process of its own. Limits are the best of all rounds.
    """
    rates: Rates = {name: {} for name in contestants}
    needs: dict[str, float] = {}
    limits: dict[int, dict[str, float]] = {}
    for number in range(rounds):
        for count in threads:
            for name, command in contestants.items():
                progress(f"round {number + 1} of {rounds}: {name}, {_threads(count)}")
                result = child(name, command, {**given, "threads": count})
                needs = result.get("needs", needs)
                for what in ("prefill", "decode"):
                    for tokens, rate in result[what].items():
                        rates[name].setdefault((count, what, tokens), []).append(rate)
            here = child("limits", _module("limits"), {"threads": count, "seconds": min(1.0, given["seconds"])})
            limits[count] = {k: max(v, limits.get(count, {}).get(k, 0.0)) for k, v in here.items()}
    progress("")
    return rates, needs, limits


def child(name: str, command: list[str], given: dict[str, Any]) -> dict[str, Any]:
    """Runs a worker in its own process and returns the JSON record that it prints; raises Error if it fails.

    Raises Usage if the command cannot be run, or if the peer is not installed.
    """
    from ..support.errors import Error

    ours = "-m" in command  # a worker of ours imports this package; a peer may have a Python of its own
    places = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]) if ours else None
    env = {**os.environ, "PYTHONPATH": places} if places else {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    try:
        done = subprocess.run([*command, json.dumps(given)], env=env, capture_output=True, text=True)
    except OSError as problem:
        raise Usage(f"`{command[0]}` cannot be run: {problem.strerror}") from None
    lines = done.stderr.strip().splitlines()
    package = PACKAGES.get(name, name)
    if done.returncode and f"No module named '{package.replace('-', '_').removesuffix('_python')}'" in done.stderr:
        help_ = f"{command[0]} -m pip install {package}, or name a Python that has it with --peer-python"
        raise Usage(f"{name} is not installed for `{command[0]}`", help_)
    if done.returncode:
        raise Error(f"{name} failed: {lines[-1] if lines else f'exit code {done.returncode}'}", facts=lines[-6:-1])
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def share(cell: Cell, rate: float, needs: dict[str, float], limits: dict[int, dict[str, float]]) -> float:
    """Returns a rate as a fraction of the machine's limit: of peak arithmetic for prefill, of memory bandwidth for decode."""
    threads, what, tokens = cell
    if what == "prefill":
        return rate * needs["operations"] / limits[threads]["operations"]
    return rate * (needs["bytes"] + int(tokens) * needs["bytes_per_context"]) / limits[threads]["bytes"]


def table(rates: Rates, needs: dict[str, float], limits: dict[int, dict[str, float]]) -> str:
    """Returns the rates as a text table: best and median, fraction of the machine's limit, and the speedup over each peer."""
    peers = [name for name in rates if name != OURS]
    head = f"{'tokens/s':28} {OURS:>9} {'median':>9} {'of limit':>9}" + "".join(f" {p:>10} {'median':>9} {'times':>6}" for p in peers)
    lines = [head]
    for cell, ours in rates[OURS].items():
        threads, what, tokens = cell
        label = f"{'prefill' if what == 'prefill' else 'decode after'} {tokens}, {_threads(threads)}"
        line = f"{label:28} {max(ours):9.1f} {statistics.median(ours):9.1f} {share(cell, max(ours), needs, limits):9.0%}"
        for peer in peers:
            theirs = rates[peer][cell]
            line += f" {max(theirs):10.1f} {statistics.median(theirs):9.1f} {max(ours) / max(theirs):5.2f}x"
        lines.append(line)
    lines += [f"{peer}: {means(rates, peer)}" for peer in peers]
    for threads, rate in limits.items():
        lines.append(f"limits, {_threads(threads)}: {rate['operations'] / 1e9:.0f} GFLOP/s (f32), {rate['bytes'] / 1e9:.1f} GB/s")
    return "\n".join(
        [*lines, "first the best round; the limit of prefill: multiply-adds in f32 (quantized products may pass it), of decode: memory"]
    )


def means(rates: Rates, peer: str) -> str:
    """Formats the speedup over a peer, as geometric means over the lengths."""
    speedups: dict[tuple[str, int], list[float]] = {}
    for cell, ours in rates[OURS].items():
        speedups.setdefault((cell[1], cell[0]), []).append(max(ours) / max(rates[peer][cell]))
    parts = [f"{what} {statistics.geometric_mean(times):.2f}x with {_threads(threads)}" for (what, threads), times in speedups.items()]
    return "on the geometric mean " + ", ".join(parts)


def as_json(rates: Rates, needs: dict[str, float], limits: dict[int, dict[str, float]]) -> dict[str, Any]:
    """Returns the measurements as data, each with all of its rounds."""
    cells = [
        {"contestant": name, "threads": cell[0], "what": cell[1], "tokens": int(cell[2]), "tokens_per_second": rounds}
        | {"share_of_limit": share(cell, max(rounds), needs, limits)}
        for name, by_cell in rates.items()
        for cell, rounds in by_cell.items()
    ]
    return {"measurements": cells, "needs": needs, "limits": {str(k): v for k, v in limits.items()}}


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _usual_threads() -> list[int]:
    from ..runtime.threads import resolve_threads

    return sorted({1, resolve_threads()[0]})


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", f"pliant.cli.bench_workers.{name}"]


def _python(options: argparse.Namespace) -> str:
    path: str = options.peer_python or os.environ.get("PLIANT_PEER_PYTHON") or sys.executable
    return path
