"""The child process of `measure`: reads a request from stdin, runs the program, writes the times as JSON, and exits.

It imports the runtime only: no compiler, no LLVM. The program's own standard output is redirected to stderr, so that the answer has a
channel of its own.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from typing import Any


def main() -> int:
    """Reads a request from stdin, runs it, and writes the times, or the error, as JSON to the original stdout; returns 0."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _no_core_file()
    try:
        record: dict[str, Any] = {"times": _run(sys.stdin.buffer.read())}
    except Exception as error:
        record = {"error": f"{type(error).__name__}: {error}"}
    json.dump(record, answer)
    answer.close()
    return 0


def _no_core_file() -> None:
    """Disables core dumps, since candidates may crash often."""
    try:
        import resource
    except ImportError:  # a system without resource limits (Windows)
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run(request: bytes) -> list[float]:
    """Returns the seconds of repeated calls of the program, after a first one to warm up."""
    import numpy as np

    from ..runtime.executable import Executable
    from ..runtime.package import Package

    (length,) = struct.unpack_from("<Q", request)
    head = json.loads(request[8 : 8 + length])
    parts, at = [], 8 + length
    for size in head["sizes"]:
        parts.append(request[at : at + size])
        at += size
    kinds = [*head["constants"], *head["arrays"]]
    arrays = [np.frombuffer(bytearray(p), _dtype(k["dtype"])).reshape(k["shape"]) for p, k in zip(parts[1:], kinds, strict=True)]
    count = len(head["constants"])
    program = Executable(Package.from_bytes(parts[0]), head["threads"], arrays[:count])
    arguments = [v["number"] if "number" in v else arrays[count + v["array"]] for v in head["values"]]
    program(*arguments)
    times: list[float] = []
    end = time.perf_counter() + head["seconds"]
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        program(*arguments)
        times.append(time.perf_counter() - start)
    return times


def _dtype(name: str) -> Any:
    """The numpy dtype of a name, also of types that numpy itself does not have."""
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        from ..dtype import dtype

        return dtype(name).array_dtype()


if __name__ == "__main__":
    sys.exit(main())
