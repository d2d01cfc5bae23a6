"""Matrix products: large ones, one program for any number of rows, small integers, matrix times vector; the machine's limits, numpy, torch.

python benchmarks/gemm.py [--part large|family|static|integers|vector|types] [--rounds 5] [--only pliant]

Right-hand sides are literals, packed when the program is loaded, unless they are called plain. Peers get what they are best at: torch and
numpy (OpenBLAS) multiply the same matrices, on two threads. Ratios are of the best and of the median of the rounds. A part takes about
a minute once all programs are in the code cache.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import pliant
from contest import Figures, Times, contest
from pliant.machine_peak import best_time, fma_rate, read_bandwidth
from products import INTEGERS, LARGE, PRODUCTS, SMALL_INTEGERS, VECTOR, normal, packed, plain, rows_times_vector

THREADS = 2
WEIGHTS = [(384, 384), (384, 1536), (1536, 384), (576, 576), (576, 1536), (2048, 2048)]
ROWS = [1, 2, 3, 5, 8, 13, 17, 33, 64, 100, 128, 311, 512]
NO_VNNI = "llvm:x86-64-v3"
SECONDS = 0.04  # of a point of the family
LONG = 0.3  # of a point of its own
PARTS = ("large", "family", "static", "integers", "vector", "types")
Peer = Callable[[Callable[[Any, Any], object], Callable[[Any], Any]], Figures]


def point(k: int, columns: int, rows: int) -> str:
    """The name of a point of the family of products."""
    return f"{rows} x {k} x {columns}"


def milliseconds(run: Callable[[], object], seconds: float = SECONDS) -> float:
    """The shortest run, after two that warm everything up."""
    run(), run()
    return best_time(run, seconds) * 1e3


def ours_large(threads: int) -> Figures:
    """Products of large matrices."""
    x, w, out = normal(LARGE, LARGE), normal(LARGE, LARGE), np.empty((LARGE, LARGE), np.float32)
    f, g = pliant.compile(packed(LARGE, LARGE), threads=threads), pliant.compile(plain, threads=threads)
    return {"packed": milliseconds(lambda: f(x, out=out), LONG), "plain": milliseconds(lambda: g(x, w, out=out), LONG)}


def peers_large(multiply: Callable[[Any, Any], object], of: Callable[[Any], Any]) -> Figures:
    """The same by a peer."""
    x, w = of(normal(LARGE, LARGE)), of(normal(LARGE, LARGE))
    return {"plain": milliseconds(lambda: multiply(x, w), LONG)}


def ours_integers(target: str) -> Figures:
    """Products of small integers on one thread."""
    found: Figures = {}
    for name, case in INTEGERS.items():
        f = pliant.compile(case.program(), target=target, threads=1)
        a, out = case.operand(), np.empty((SMALL_INTEGERS, SMALL_INTEGERS), np.int32)
        found[name] = milliseconds(lambda f=f, a=a, out=out: f(a, out=out), LONG)
    return found


def ours_vector() -> Figures:
    """A matrix times a vector: one row with packed columns, and the rows of a plain matrix."""
    x, w = normal(1, VECTOR), normal(VECTOR, VECTOR)
    f, g = pliant.compile(packed(VECTOR, VECTOR), threads=THREADS), pliant.compile(rows_times_vector, threads=THREADS)
    row, column = np.empty((1, VECTOR), np.float32), np.empty(VECTOR, np.float32)
    return {"packed": milliseconds(lambda: f(x, out=row), LONG), "rows": milliseconds(lambda: g(w, x[0], out=column), LONG)}


def peers_vector(multiply: Callable[[Any, Any], object], of: Callable[[Any], Any]) -> Figures:
    """The same by a peer."""
    w, x = of(normal(VECTOR, VECTOR)), of(normal(VECTOR))
    return {"rows": milliseconds(lambda: multiply(w, x), LONG)}


def ours_any_rows() -> Figures:
    """One program for each weight."""
    found: Figures = {}
    for k, columns in WEIGHTS:
        f = pliant.compile(packed(k, columns), threads=THREADS)
        for rows in ROWS:
            x, out = normal(rows, k), np.empty((rows, columns), np.float32)
            found[point(k, columns, rows)] = milliseconds(lambda f=f, x=x, out=out: f(x, out=out))
    return found


def ours_these_rows() -> Figures:
    """A program for each weight and number of rows."""
    found: Figures = {}
    for k, columns in WEIGHTS:
        for rows in ROWS:
            f = pliant.compile(packed(k, columns, rows), threads=THREADS)
            x, out = normal(rows, k), np.empty((rows, columns), np.float32)
            found[point(k, columns, rows)] = milliseconds(lambda f=f, x=x, out=out: f(x, out=out))
    return found


def peer_any_rows(multiply: Callable[[Any, Any], object], of: Callable[[Any], Any]) -> Figures:
    """The same products by a peer."""
    found: Figures = {}
    for k, columns in WEIGHTS:
        w = of(normal(k, columns))
        for rows in ROWS:
            x = of(normal(rows, k))
            found[point(k, columns, rows)] = milliseconds(lambda x=x, w=w: multiply(x, w))
    return found


def ours_types() -> Figures:
    """Products of other dtypes, operands that lie the other way round, and batches."""
    found: Figures = {}
    for case in PRODUCTS:
        f, (a, b, out) = pliant.compile(case.program(), threads=THREADS), case.operands()
        found[str(case)] = milliseconds(lambda f=f, a=a, b=b, out=out: f(a, b, out=out))
    return found


def peers_types(multiply: Callable[[Any, Any], object], of: Callable[[Any], Any]) -> Figures:
    """The same by a peer, which is told what lies the other way round by strides. 16-bit floats are torch's only."""
    found: Figures = {}
    for case in PRODUCTS:
        if case.of in ("f16", "bf16") and multiply is np.matmul:
            continue
        a, b, _ = case.operands()
        x, y = _turned(of(a), case.transpose_a), _turned(of(b), case.transpose_b)
        found[str(case)] = milliseconds(lambda x=x, y=y: multiply(x, y))
    return found


def _turned(x: Any, turn: bool) -> Any:
    return x.swapaxes(-1, -2) if turn else x


def in_numpy(measure: Peer) -> Figures:
    """What numpy takes."""
    return measure(np.matmul, lambda a: a)


def in_torch(measure: Peer) -> Figures:
    """What torch takes."""
    import torch

    def of(a: Any) -> Any:
        return torch.from_numpy(a) if a.dtype.kind == "f" else torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)

    torch.set_num_threads(THREADS)
    with torch.inference_mode():
        return measure(torch.matmul, of)


def most_products(size: int, threads: int) -> float:
    """What a product of square matrices would take at the FMA rate."""
    return 2e3 * size**3 / fma_rate(threads, LONG)


CONTESTANTS: dict[str, Callable[[], float | Figures]] = {
    "large, pliant 1": lambda: ours_large(1),
    "large, pliant 2": lambda: ours_large(THREADS),
    "large, numpy 2": lambda: in_numpy(peers_large),
    "large, torch 2": lambda: in_torch(peers_large),
    "large, limit 1": lambda: most_products(LARGE, 1),
    "large, limit 2": lambda: most_products(LARGE, THREADS),
    "family, pliant": ours_any_rows,
    "family, numpy": lambda: in_numpy(peer_any_rows),
    "family, torch": lambda: in_torch(peer_any_rows),
    "static, any rows": ours_any_rows,
    "static, these rows": ours_these_rows,
    "integers, native": lambda: ours_integers("native"),
    "integers, no VNNI": lambda: ours_integers(NO_VNNI),
    "integers, limit": lambda: most_products(SMALL_INTEGERS, 1),
    "vector, pliant": ours_vector,
    "vector, numpy": lambda: in_numpy(peers_vector),
    "vector, torch": lambda: in_torch(peers_vector),
    "vector, limit": lambda: 4e3 * VECTOR * VECTOR / read_bandwidth(THREADS, LONG),
    "types, pliant": ours_types,
    "types, numpy": lambda: in_numpy(peers_types),
    "types, torch": lambda: in_torch(peers_types),
}


def best_and_median(times: Times, names: list[str]) -> tuple[float, float] | None:
    """Of the contestants that there are the better one, by the best and by the median of the rounds."""
    found = [times[name] for name in names if name in times]
    return (min(map(min, found)), min(map(statistics.median, found))) if found else None


def compare(times: Times, ours: str, *theirs: str) -> tuple[float, float] | None:
    """How many times faster `ours` is than the better of `theirs`."""
    a, b = best_and_median(times, [ours]), best_and_median(times, list(theirs))
    return None if a is None or b is None else (b[0] / a[0], b[1] / a[1])


def show(what: str, found: tuple[float, float] | None, floor: str) -> None:
    """One line of the report, where it was measured."""
    if found is not None:
        print(f"{what:54} {found[0]:8.3f}x {found[1]:8.3f}x   floor {floor}")


def summary(found: list[tuple[float, float]], floor: str, worst: str) -> None:
    """The geometric mean and the worst of many ratios."""
    if found:
        best, median = (math.exp(statistics.fmean(math.log(r[which]) for r in found)) for which in (0, 1))
        show("geometric mean", (best, median), floor)
        show("worst point", (min(r[0] for r in found), min(r[1] for r in found)), worst)


def table(times: Times, ours: str, theirs: list[str], floor: str, worst: str) -> None:
    """The ratios over weights and rows, by the best, and what they are in all."""
    points = [(k, columns, rows) for k, columns in WEIGHTS for rows in ROWS]
    found = {p: r for p in points if (r := compare(times, f"{ours}, {point(*p)}", *(f"{t}, {point(*p)}" for t in theirs)))}
    if not found:
        return
    print(f"\n{ours} against {' and '.join(theirs)}\n{'K x N':>12} M " + " ".join(f"{rows:5}" for rows in ROWS))
    for k, columns in WEIGHTS:
        print(f"{k:5} x {columns:5}  " + " ".join(f"{found[k, columns, rows][0]:5.2f}" for rows in ROWS if (k, columns, rows) in found))
    summary(list(found.values()), floor, worst)


def report(times: Times) -> None:
    """The ratios."""
    for threads in (1, 2):
        for side in ("packed", "plain"):
            floor = "0.86" if threads == 2 or side == "plain" else "0.90"
            found = compare(times, f"large, pliant {threads}, {side}", f"large, limit {threads}")
            show(f"of the FMA rate, {LARGE}^3, {threads} threads, {side}", found, floor)
    peers = ("large, numpy 2, plain", "large, torch 2, plain")
    show("2 threads against numpy and torch, packed", compare(times, "large, pliant 2, packed", *peers), "-")
    for machine in ("native", "no VNNI"):
        for kind in INTEGERS:
            floor = "1.6" if kind == "7 bits" else "1.4"
            show(f"times the f32 FMA rate, {kind}, {machine}", compare(times, f"integers, {machine}, {kind}", "integers, limit"), floor)
    for side in ("packed", "rows"):
        show(f"of the read bandwidth, {VECTOR}^2 {side}", compare(times, f"vector, pliant, {side}", "vector, limit"), "0.92")
    show("against numpy and torch, rows", compare(times, "vector, pliant, rows", "vector, numpy, rows", "vector, torch, rows"), "-")
    table(times, "family, pliant", ["family, numpy", "family, torch"], "1.05", "0.8")
    table(times, "static, any rows", ["static, these rows"], "0.95", "0.95")
    ratios = {str(p): compare(times, f"types, pliant, {p}", f"types, numpy, {p}", f"types, torch, {p}") for p in PRODUCTS}
    for name, found in ratios.items():
        show(name, found, "0.8")
    summary([r for r in ratios.values() if r is not None], "-", "0.8")


def _listed(name: str) -> bool:
    return not name.startswith(("family", "static"))


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, "ms", report, _listed, {"OPENBLAS_NUM_THREADS": str(THREADS)}, PARTS)
