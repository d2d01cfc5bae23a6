"""What a process keeps of programs that it has compiled and dropped: nothing that grows with their number.

In children, so that nothing of other tests is measured. `PLIANT_RECOMPILATIONS` asks for more of them than a test run has time for.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MOST = 10_000  # bytes kept for each recompilation
COUNT = int(os.environ.get("PLIANT_RECOMPILATIONS", "200"))
PROGRAM = '''
import ctypes, gc, sys, tracemalloc
import numpy as np
import pliant
from pliant.sym import hash_consing

if sys.platform.startswith("linux"):  # PR_SET_THP_DISABLE: with huge pages the heap grows by 2 MB at once, as much as 200 such leaks
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
warm_up = 50  # allocators and tables grow to their working size in the first compilations, by 1 to 2 MB, whatever comes after
TEXT = """
n = dim("n")


@function
def f(x: Tensor[f32, n, 8]) -> Tensor[f32, n]:
    y = ops.exp(x * {factor})
    z = ops.sum(y, axis=1)
    return z
"""


def compile_one(number):
    f = pliant.compile(pliant.parse(TEXT.format(factor=0.5 + number)), cache=False)
    f(np.zeros((3, 8), np.float32))


def settle():
    gc.collect()
    hash_consing._sweep()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # what was freed is not counted because it lies between things in use
        trim(0)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def grown(measure, count, distinct):
    for k in range(warm_up):
        compile_one(k)
    settle()
    before = measure()
    for k in range(count):
        compile_one(100 + k if distinct else 1)
    settle()
    return (measure() - before) / count
'''


def grown(script: str) -> float:
    """What a child prints."""
    done = subprocess.run([sys.executable, "-c", PROGRAM + script], capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("distinct", [True, False], ids=["distinct", "equal"])
def test_resident_memory_does_not_grow_with_recompilations(distinct: bool) -> None:
    """Blobs, LLVM's modules, contexts and passes, and all that Python holds."""
    assert grown(f"print(grown(resident, {COUNT}, {distinct}))") < MOST


def test_python_holds_nothing_of_programs_that_are_gone() -> None:
    """Interned expressions, memos, provenances, functions."""
    script = "warm_up = 8; tracemalloc.start(); print(grown(lambda: tracemalloc.get_traced_memory()[0], 12, True))"
    assert grown(script) < MOST


def test_memos_are_empty_after_a_compilation() -> None:
    script = """
from pliant.loop.analysis.nests import _blocks, index
from pliant.sym.facts import EMPTY
compile_one(1)
assert index.cache_info().currsize == _blocks.cache_info().currsize == 0
assert not EMPTY.children and not EMPTY.caches
print(0)
"""
    assert grown(script) == 0
