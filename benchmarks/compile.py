"""What compiling takes: without a cache (cold), and in a fresh process that finds the code in the cache (warm); one child process each.

python benchmarks/compile.py [--rounds 3] [--only YOLO]

Warm is the whole start from `import pliant` to a program that can be called. Models whose files are not there are left out; the files are
those of the tests (`~/.cache/pliant/test-assets`, or the folder that PLIANT_TEST_ASSETS names).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from contest import PLACES, contest
from small_kernels import ELEMENTWISE, HEAD, MATMUL

ASSETS = Path(os.environ.get("PLIANT_TEST_ASSETS", Path.home() / ".cache" / "pliant" / "test-assets"))
DECODER = "from decoder_layer import decoder_layer as source\n"
MINILM = "import minilm\nsource = minilm.load()\n"
START = "import time\nbegin = time.perf_counter()\nimport pliant\n"
END = "pliant.compile(source)\nprint((time.perf_counter() - begin) * 1e3)\n"


def onnx(name: str) -> str:
    """A program that imports the file of that name; empty where there is none."""
    found = next(iter(ASSETS.glob(f"*.files/**/{name}")), None)
    return "" if found is None else f"source = pliant.from_onnx({str(found)!r})\n"


def run(program: str, cache: str) -> float:
    """Milliseconds that a program takes in a fresh process; it is a file, because kernels are read from their source."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(START + program + END)
        env = {**os.environ, "PLIANT_CACHE": cache, "PYTHONPATH": os.pathsep.join([*PLACES, os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True, check=True)
        return float(done.stdout)


def cold_and_warm(program: str) -> dict[str, float]:
    """The first start with an empty cache, and the best of three after it."""
    with tempfile.TemporaryDirectory() as cache:
        cold = run(program, cache)
        return {"cold": cold, "warm": min(run(program, cache) for _ in range(3))}


PROGRAMS = {
    "elementwise kernel (3 loops)": HEAD + ELEMENTWISE,
    "matmul kernel (tiled)": HEAD + MATMUL,
    "decoder layer": DECODER,
    "MiniLM-L6": MINILM,
    "YOLOv8n (ONNX, dynamic)": onnx("320n.onnx"),
    "PP-OCRv4 det (ONNX, dynamic)": onnx("ch_PP-OCRv4_det_infer.onnx"),
}
CONTESTANTS = {name: (lambda program=program: cold_and_warm(program)) for name, program in PROGRAMS.items() if program}

if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, "ms")
