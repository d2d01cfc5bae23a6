"""Worker that measures an ONNX model with Pliant: seconds of the best and the median call, for each file of inputs."""

from __future__ import annotations

import json
import sys
from typing import Any

from .peer_onnx import measure


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Compiles the model once, and returns the times of its calls for each file of inputs."""
    from ...api import compile
    from ...frontends.onnx import from_onnx

    executable = compile(from_onnx(given["model"]), threads=given["threads"])
    return measure(lambda arrays: executable(*arrays), given)


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
