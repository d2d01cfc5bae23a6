"""What it costs to start: importing, compiling a kernel of three loops, and the memory of a fresh process that runs the cached example.

python benchmarks/start.py [--rounds 5]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from contest import ROOT, contest
from small_kernels import ELEMENTWISE, HEAD, MATMUL

IMPORT = "import time; b = time.perf_counter(); import pliant; print((time.perf_counter() - b) * 1e3)"
IMPORT_ALL = """
import sys, time; b = time.perf_counter()
import pliant
for name in pliant.__all__:
    getattr(pliant, name)
print((time.perf_counter() - b) * 1e3)
assert "llvmlite" not in sys.modules
"""
BEGIN = "import sys, time\nimport pliant\n" + HEAD + "begin = time.perf_counter()\n"
END = """
pliant.compile(source)
print((time.perf_counter() - begin) * 1e3)
if "warm" in sys.argv:
    assert "llvmlite" not in sys.modules
"""
RSS = """
import numpy as np
np.ones((128, 576), np.float32) @ np.ones((576, 1536), np.float32)
{work}
print([line for line in open("/proc/self/status") if line.startswith("VmRSS")][0].split()[1])
"""
EXAMPLE = """
import pliant
from decoder_layer import decoder_layer, prefill_arguments, random_weights
w = random_weights()
layer = pliant.compile(decoder_layer)
layer(**prefill_arguments(w, 128))
"""
ARRAYS = """
shapes = [(576, 576), (576, 192), (576, 192), (576, 576), (576, 1536), (576, 1536), (1536, 576), (128, 576)]
shapes += [(64, 3, 64, 64), (64, 3, 64, 64)]
arrays = [np.ones(shape, np.float32) for shape in shapes]  # as many bytes as the example's arguments
"""


def run(code: str, cache: str, *args: str) -> float:
    """The number that a program prints in a fresh process; it is a file, because kernels are read from their source."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(code)
        env = {**os.environ, "PLIANT_CACHE": cache, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "examples")])}
        done = subprocess.run([sys.executable, str(file), *args], env=env, capture_output=True, text=True, check=True)
        return float(done.stdout)


def best(code: str, *args: str, warm: bool = False) -> float:
    """The best of three; with `warm` all share a cache that a first run has filled."""
    with tempfile.TemporaryDirectory() as shared:
        if warm:
            run(code, shared)
        times = []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as own:
                times.append(run(code, shared if warm else own, *args))
        return min(times)


def memory() -> float:
    """MB that a warm run of the example has above the same arrays in numpy."""
    with_us = best(RSS.format(work=EXAMPLE), warm=True)
    without = best(RSS.format(work=ARRAYS))
    return (with_us - without) / 1024


CONTESTANTS = {
    "import pliant, ms": lambda: best(IMPORT),
    "import pliant and use every name, ms": lambda: best(IMPORT_ALL),
    "compile 3 elementwise loops, cold, ms": lambda: best(BEGIN + ELEMENTWISE + END),
    "compile a matmul (3 loops, tiled), cold, ms": lambda: best(BEGIN + MATMUL + END),
    "compile a matmul, fresh process, warm cache, ms": lambda: best(BEGIN + MATMUL + END, "warm", warm=True),
    "memory of the cached example above numpy's, MB": memory,
}


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, "")
