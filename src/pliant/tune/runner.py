"""Measures candidates in a persistent child process, which may crash, hang or run out of memory without harm.

    with Runner() as runner:
        runner.arguments([[x, w]])                        # sets of arguments, sent once
        found = runner.measure([default, candidate])      # both, call by call in turn, on each set
        found.status, found.ratios                        # "ok", [0.93]: the candidate's time to the default's, for each set

The result of each candidate is compared with that of the default, the first program, bit for bit, before any time is taken. Both are timed
in the same milliseconds, so load of the machine slows both. The child runs on one CPU, while this process compiles the next candidate.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from .measure import START, _environment, _kind

if TYPE_CHECKING:
    from ..runtime.package import Package

Status = Literal["ok", "wrong", "failed", "crashed", "timeout"]
MEMORY = 4 << 30  # bytes that a candidate may use besides the arguments
LONGEST = 1 << 24  # bytes of an answer


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a measurement: for each set of arguments the times of each program, or why there are none."""

    status: Status
    times: tuple[tuple[tuple[float, ...], ...], ...] = ()  # [set][program][call], seconds
    message: str = ""

    @property
    def ratios(self) -> list[float]:
        """The shortest time of the last program to that of the first one, for each set of arguments."""
        return [min(of_set[-1]) / min(of_set[0]) for of_set in self.times]

    @property
    def medians(self) -> list[float]:
        """The median time of the last program to that of the first one, for each set of arguments."""
        return [_median(of_set[-1]) / _median(of_set[0]) for of_set in self.times]

    @property
    def seconds(self) -> list[float]:
        """The shortest time of the first program, for each set of arguments."""
        return [min(of_set[0]) for of_set in self.times]


class Runner:
    """A child process that measures, started when it is needed and again after it broke; a context manager."""

    def __init__(self, threads: int = 1, timeout: float = 10.0) -> None:
        self.threads, self.timeout = threads, timeout
        self.count = 0  # measurements so far
        self._child: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._sets = b""
        self._size = 0
        self._wait = 0.0
        self._failed: Trial | None = None  # why the measurement that was asked for did not begin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def arguments(self, sets: Sequence[Sequence[Any]]) -> None:
        """Sets the arguments with which programs are measured: sets of numpy arrays and numbers."""
        import numpy as np

        parts: list[bytes] = []
        described: list[list[dict[str, Any]]] = []
        for one in sets:
            described.append([])
            for a in one:
                if isinstance(a, (int, float)):
                    described[-1].append({"number": a})
                else:
                    described[-1].append({**_kind(a), "part": len(parts)})
                    parts.append(np.ascontiguousarray(a).tobytes())
        self.stop()  # a new child: its memory is that of these arguments
        self._sets, self._size = _message({"do": "arguments", "sets": described}, parts), sum(map(len, parts))

    def measure(self, programs: Sequence[Package], seconds: float = 0.02, reference: Package | None = None) -> Trial:
        """Measures programs against the first of them, each for about so many seconds on each set of arguments.

        With a `reference` the last program need not have the bits of the first, but be as exact, compared with the reference.
        """
        self.start(programs, seconds, reference)
        return self.finish()

    def start(self, programs: Sequence[Package], seconds: float = 0.02, reference: Package | None = None) -> None:
        """Begins a measurement; `finish` returns its outcome."""
        self.count += 1
        self._failed = None
        if self._child is None or self._child.poll() is not None:
            self._failed = self._begin()
            if self._failed is not None:
                return
        self._wait = self.timeout + seconds * len(programs)
        head = {"do": "measure", "threads": self.threads, "seconds": seconds, "reference": reference is not None}
        self._send(_message(head, [p.to_bytes() for p in (*programs, *([reference] if reference is not None else []))]))

    def finish(self) -> Trial:
        """Waits for the outcome of the measurement that `start` began."""
        if self._failed is not None:
            return self._failed
        answer = self._answer(self._wait)
        if isinstance(answer, Trial):
            return answer
        try:
            if "error" in answer:
                return Trial("failed", message=str(answer["error"]))
            if "wrong" in answer:
                return Trial("wrong", message=str(answer["wrong"]))
            if any(b != of_set[0] for of_set in answer["bits"] for b in of_set):
                return Trial("wrong", message="its result has other bits than that of the default")
            return Trial("ok", tuple(tuple(tuple(map(float, t)) for t in of_set) for of_set in answer["times"]))
        except (KeyError, TypeError, ValueError):
            return self._broken("crashed", "its answer was destroyed")

    def stop(self) -> None:
        """Ends the child process."""
        if self._child is None:
            return
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with suppress(OSError):  # what was not sent yet cannot be sent to a child that has ended
                    stream.close()
        self._child = None

    def _begin(self) -> Trial | None:
        """Starts a child and sends it the arguments; returns a Trial that says why, if it did not take them."""
        self.stop()
        cpu = max(os.sched_getaffinity(0)) if self.threads == 1 and hasattr(os, "sched_getaffinity") else -1
        self._child = subprocess.Popen(
            [sys.executable, "-m", "pliant.tune.worker", str(cpu), str(MEMORY + 3 * self._size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )
        self._answers = queue.Queue()
        threading.Thread(target=_receive, args=(self._child.stdout, self._answers), daemon=True).start()
        self._send(self._sets)
        answer = self._answer(START)
        if isinstance(answer, Trial):
            return answer
        return self._broken("failed", str(answer["error"])) if isinstance(answer, dict) and "error" in answer else None

    def _send(self, message: bytes) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(message)
            self._child.stdin.flush()
        except OSError:  # it has died; `_answer` tells how
            return

    def _answer(self, seconds: float) -> Any:
        """Returns the next answer of the child, or a Trial that says why there is none; then the child has been stopped."""
        try:
            data = self._answers.get(timeout=seconds)
        except queue.Empty:
            return self._broken("timeout", f"it did not end within {seconds:g} s")
        try:
            return json.loads(data)
        except ValueError:
            return self._broken("crashed", "the process that ran it has ended")

    def _broken(self, status: Status, message: str) -> Trial:
        self.stop()
        return Trial(status, message=message)


def _message(head: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    text = json.dumps({**head, "sizes": [len(p) for p in parts]}).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def _receive(stream: Any, answers: queue.Queue[bytes]) -> None:
    """Puts each answer of a child into a queue, and an empty one at the end of its output."""
    try:
        while len(size := stream.read(8)) == 8 and (length := struct.unpack("<Q", size)[0]) <= LONGEST:
            answers.put(stream.read(length))
    except (OSError, ValueError):  # it was stopped
        pass
    answers.put(b"")


def _median(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2]
