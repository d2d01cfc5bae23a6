"""Worker that measures an ONNX model with a peer: seconds of the best and the median call, for each file of inputs.

It runs in the peer's own Python, which needs numpy and the peer, not Pliant. A peer runs with its public API and default optimizations.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Measures an ONNX model with the peer that `contestant` names, `onnxruntime` or `openvino`; returns what `measure` returns."""
    return measure({"onnxruntime": _onnxruntime, "openvino": _openvino}[given["contestant"]](given), given)


def measure(run: Callable[[list[Any]], Any], given: dict[str, Any]) -> dict[str, Any]:
    """Returns `{"times": [...]}`: for each file of inputs the `best` and `median` seconds of calls of `run`, made for `seconds` seconds.

    `run` gets the arrays of a .npz file, in order of their names "0", "1", and so on.
    """
    import numpy as np

    times = []
    for path in given["inputs"]:
        with np.load(path, allow_pickle=False) as file:
            arrays = [file[str(k)] for k in range(len(file.files))]
        times.append(_measured(lambda arrays=arrays: run(arrays), given["seconds"]))  # type: ignore[misc]
    return {"times": times}


def _measured(call: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Calls a function twice without measuring, then for `seconds` seconds and at least three times; returns the best and median time."""
    for _ in range(2):
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return {"best": min(times), "median": statistics.median(times)}


def _onnxruntime(given: dict[str, Any]) -> Callable[[list[Any]], Any]:
    """Returns a function that runs the model with onnxruntime, on `threads` threads, on arrays in the order of its inputs."""
    onnxruntime: Any = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given["threads"]
    session = onnxruntime.InferenceSession(given["model"], options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def _openvino(given: dict[str, Any]) -> Callable[[list[Any]], Any]:
    """Returns a function that runs the model with OpenVINO, in f32 and on `threads` threads, on arrays in the order of its inputs."""
    openvino: Any = import_module("openvino")
    settings = {"INFERENCE_NUM_THREADS": given["threads"], "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(given["model"], "CPU", settings).create_infer_request()
    return lambda arrays: request.infer(arrays)


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
