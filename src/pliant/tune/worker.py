"""The persistent child of `runner.py`: it gets arguments once, then programs, and answers with times and with hashes of results.

A message is its length, a JSON header, and the bytes that the header announces. An answer is a length and JSON. Nothing is unpickled. The
child imports the runtime only: no compiler, no LLVM. What programs print goes to stderr, so that the answers have a channel of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from .child import _dtype, _no_core_file

WARM = 0.002  # seconds of calls before any is timed
HOPELESS = 1.5  # a program this many times slower than the first one is not timed any further
MORE = 2.0  # times the error of the default that a program with another order of sums may have
UNITS = 4  # or so many units in the last place of the largest result
LEAST = 3  # timed calls of a program, unless it is hopeless


def main(cpu: str, memory: str) -> int:
    """Serves requests until stdin ends; runs on one CPU ("-1": on any), with at most so many bytes of memory ("0": any)."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _no_core_file()
    _limit(int(memory))
    if int(cpu) >= 0 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(cpu)})
    sets: list[list[Any]] = []
    while (message := _read(sys.stdin.buffer)) is not None:
        head, parts = message
        try:
            if head["do"] == "arguments":
                sets = [[_value(v, parts) for v in one] for one in head["sets"]]
                answer: dict[str, Any] = {"sets": len(sets)}
            else:
                answer = _measured(head, parts, sets)
        except Exception as error:  # whatever a candidate raises is an answer
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        data = json.dumps(answer).encode()
        answers.write(struct.pack("<Q", len(data)) + data)
        answers.flush()
    return 0


def _limit(memory: int) -> None:
    """Limits the address space, so that a candidate that wants too much gets an error and not the machine."""
    if memory <= 0:
        return
    try:
        import resource
    except ImportError:  # a system without resource limits (Windows)
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _read(stream: BinaryIO) -> tuple[dict[str, Any], list[bytes]] | None:
    """Reads a message; None at the end of the stream."""
    size = stream.read(8)
    if len(size) < 8:
        return None
    head = json.loads(stream.read(*struct.unpack("<Q", size)))
    return head, [stream.read(n) for n in head["sizes"]]


def _value(described: dict[str, Any], parts: Sequence[bytes]) -> Any:
    """An argument: a number, or an array with memory of its own."""
    import numpy as np

    if "number" in described:
        return described["number"]
    return np.frombuffer(bytearray(parts[described["part"]]), _dtype(described["dtype"])).reshape(described["shape"])


def _measured(head: dict[str, Any], parts: Sequence[bytes], sets: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Times programs against each other on each set of arguments; returns for each set and program the hash of the results and times."""
    from ..runtime.executable import Executable
    from ..runtime.package import Package

    programs = [Executable(Package.from_bytes(p), head["threads"]) for p in parts]
    if head.get("reference"):
        *programs, reference = programs
        wrong = [text for arguments in sets if (text := _inexact(programs, reference, arguments))]
        return {"wrong": wrong[0]} if wrong else {"bits": [], "times": [_times(programs, a, head["seconds"]) for a in sets]}
    bits = [[_hash(p(*arguments)) for p in programs] for arguments in sets]
    if any(b != of_set[0] for of_set in bits for b in of_set):
        return {"bits": bits, "times": []}  # the time of a wrong program is worth nothing
    return {"bits": bits, "times": [_times(programs, arguments, head["seconds"]) for arguments in sets]}


def _inexact(programs: Sequence[Any], reference: Any, arguments: Sequence[Any]) -> str:
    """Returns why the last program is not as exact as the first one, measured against a reference; "" if it is."""
    import numpy as np

    exact, usual, own = (_arrays(p(*arguments)) for p in (reference, programs[0], programs[-1]))
    for r, a, b in zip(exact, usual, own, strict=True):
        if r.dtype.kind != "f" or r.size == 0:
            if not np.array_equal(a, b):
                return "its result is not that of the default"
            continue
        finite = np.isfinite(r)
        if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True):
            return "it has other infinities and NaNs than the default"
        errors = [float(np.abs(np.where(finite, x.astype(np.float64) - r, 0)).max()) for x in (a, b)]
        unit = float(np.finfo(r.dtype).eps) * float(np.abs(np.where(finite, r, 0)).max())
        if not errors[1] <= max(MORE * errors[0], UNITS * unit):
            return f"its error is {errors[1]:.2g}, that of the default {errors[0]:.2g}"
    return ""


def _arrays(results: Any) -> list[Any]:
    import numpy as np

    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def _hash(results: Any) -> str:
    """A hash of the bytes, types and shapes of results."""
    import numpy as np

    digest = hashlib.sha256()
    for r in results if isinstance(results, tuple) else (results,):
        array = np.ascontiguousarray(r)
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _times(programs: Sequence[Any], arguments: Sequence[Any], seconds: float) -> list[list[float]]:
    """Calls the programs in turn, for about so many seconds of each; returns the seconds of each call."""
    for p in programs:
        end = time.perf_counter() + WARM
        while time.perf_counter() < end:
            p(*arguments)
    times: list[list[float]] = [[] for _ in programs]
    end = time.perf_counter() + seconds * len(programs)
    while len(times[0]) < LEAST or time.perf_counter() < end:
        for p, of_program in zip(programs, times, strict=True):
            start = time.perf_counter()
            p(*arguments)
            of_program.append(time.perf_counter() - start)
        if len(times[0]) >= 2 and all(min(t) > HOPELESS * min(times[0]) for t in times[1:]) and len(times) > 1:
            break
    return times


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
