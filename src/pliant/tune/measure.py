"""Measures the time of a compiled program in a child process, which may crash or hang without harm.

    result = measure(f, [x, w], seconds=0.2)
    result.status, result.best, result.median            # "ok", 1.2e-4, 1.3e-4

A search runs programs that have never run before. The parent sends the package and the arguments to a child, waits at most `timeout`, and
always gets a record: times, the error that the program reported, the signal that killed it, or a timeout. Nothing is unpickled on either
side: arrays are sent as bytes with a dtype and a shape.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..runtime.executable import Executable
    from ..runtime.package import Package

Status = Literal["ok", "failed", "crashed", "timeout"]
MAX_MESSAGE = 2000  # characters of an error that are kept
START = 30.0  # seconds that a child may take beyond the measurement, to start on a busy machine


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of timing a program in a child process: seconds of each call, or why there are none."""

    status: Status
    times: tuple[float, ...] = ()
    message: str = ""

    @property
    def best(self) -> float:
        """The shortest time of a call in seconds; infinite if there is none."""
        return min(self.times, default=float("inf"))

    @property
    def median(self) -> float:
        """The median time of the calls in seconds; infinite if there is none."""
        return sorted(self.times)[len(self.times) // 2] if self.times else float("inf")


def measure(
    program: Package | Executable,
    arguments: Sequence[Any],
    *,
    constants: Sequence[Any] = (),
    seconds: float = 0.1,
    threads: int = 1,
    timeout: float | None = None,
) -> Measurement:
    """Runs a compiled program on numpy arrays and numbers in a child process, for about `seconds` after a first call; returns the times.

    `constants` are the program's, in the order of its interface. The child is killed after `timeout` seconds; the status says if it failed,
    crashed or took too long.
    """
    request = encode(program if isinstance(program, tuple) else program.package, arguments, constants, seconds, threads)
    limit = seconds + START if timeout is None else timeout
    child = subprocess.Popen(
        [sys.executable, "-m", "pliant.tune.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
    )
    try:
        answer, _ = child.communicate(request, timeout=limit)
    except subprocess.TimeoutExpired:
        return Measurement("timeout", message=f"it did not end within {limit:g} s")
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    return _read(answer, child.returncode)


def encode(package: Package, arguments: Sequence[Any], constants: Sequence[Any], seconds: float, threads: int) -> bytes:
    """Returns the request to the child process as bytes: the length of a JSON header, the header, and the bytes that it announces."""
    import numpy as np

    fixed = [np.ascontiguousarray(c) for c in constants]
    arrays: list[Any] = []
    values: list[dict[str, Any]] = []
    for a in arguments:
        if isinstance(a, (int, float)):
            values.append({"number": a})
        else:
            values.append({"array": len(arrays)})
            arrays.append(np.ascontiguousarray(a))
    parts = [package.to_bytes(), *(a.tobytes() for a in (*fixed, *arrays))]
    head = {
        "seconds": seconds,
        "threads": threads,
        "values": values,
        "constants": [_kind(c) for c in fixed],
        "arrays": [_kind(a) for a in arrays],
        "sizes": [len(p) for p in parts],
    }
    text = json.dumps(head).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def _kind(a: Any) -> dict[str, Any]:
    """An array's dtype and shape; a type without a numpy code is sent by its name."""
    return {"dtype": a.dtype.name if a.dtype.kind == "V" else a.dtype.str, "shape": list(a.shape)}


def _environment() -> dict[str, str]:
    """Returns the environment for the child process: the parent's, with this package first on the path."""
    home = str(Path(__file__).resolve().parent.parent.parent)
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": home if not before else os.pathsep.join((home, before))}


def _read(answer: bytes, code: int) -> Measurement:
    """Parses the answer of a child: its times, or the error it reports; anything malformed or missing is a crash."""
    try:
        record = json.loads(answer.decode())
        if "error" in record:
            return Measurement("failed", message=str(record["error"])[:MAX_MESSAGE])
        times = tuple(float(t) for t in record["times"])
        if code == 0 and times:
            return Measurement("ok", times)
    except (ValueError, KeyError, TypeError):
        pass
    if code < 0:
        return Measurement("crashed", message=f"it was killed by {signal.Signals(-code).name}")
    return Measurement("crashed", message=f"the process ended with code {code} and no answer")
