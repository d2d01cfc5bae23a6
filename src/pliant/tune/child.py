"""The child process of `measure`: reads a request from its input, runs the program, writes the times as JSON, and ends.

It knows the runtime only: no compiler, no LLVM. What the program writes to the standard output goes nowhere; the answer has a
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
    """One request, one answer."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _no_core_file()
    try:
        found: dict[str, Any] = {"times": _run(sys.stdin.buffer.read())}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    json.dump(found, answer)
    answer.close()
    return 0


def _no_core_file() -> None:
    try:
        import resource
    except ImportError:  # a system without limits
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run(request: bytes) -> list[float]:
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
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        from ..dtype import dtype

        return dtype(name).array_dtype()


if __name__ == "__main__":
    sys.exit(main())
