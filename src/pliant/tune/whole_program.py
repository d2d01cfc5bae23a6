"""Times a whole program with its records against the same program without: kernels that win alone may lose together.

compare(program, machine, [{"n": 17}])      # 0.93: the median time with records to that without
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import exp, log
from typing import TYPE_CHECKING, Any

from ..graph.annotation import annotation_vars
from ..graph.node import Tensor
from ..pipeline import compile_program
from ..runtime.loading import open_package
from ..support.errors import Error
from ..sym.exact import exact

if TYPE_CHECKING:
    from ..program import Program
    from ..target import Target

ROUNDS = 9  # calls of each, in turn
SECONDS = 10.0  # after which no further round begins
WORSE = 1.01  # a program that takes longer by more than this has become slower


def compare(program: Program, machine: Target, samples: Sequence[Mapping[str, int]]) -> float | None:
    """Returns the time of a program with the user's records to that without, the mean over the samples; None if it cannot be called."""
    try:
        inputs = [_inputs(program, sample) for sample in samples]
        packages = (compile_program(program, machine, records=None), compile_program(program, machine))
        before, after = (open_package(p, program.constants, program.functions) for p in packages)
        logs = [_log_ratio(before, after, arguments) for arguments in inputs]
    except Error:  # random arguments are not what the program takes
        return None
    return exp(sum(logs) / len(logs))


def _log_ratio(before: Any, after: Any, arguments: Sequence[Any]) -> float:
    """Returns the log of the median time of one executable to that of another."""
    times: tuple[list[float], list[float]] = ([], [])
    for f in (before, after):
        f(*arguments)
    end = time.perf_counter() + SECONDS
    while len(times[0]) < ROUNDS and (len(times[0]) < 1 or time.perf_counter() < end):
        for f, of_program in zip((before, after), times, strict=True):
            start = time.perf_counter()
            f(*arguments)
            of_program.append(time.perf_counter() - start)
    without, with_records = (sorted(t)[len(t) // 2] for t in times)
    return log(with_records / without)


def _inputs(program: Program, sample: Mapping[str, int]) -> list[Any]:
    """Returns random arguments of a program; numbers that may be indices are 0. Raises an Error if it has inputs of other kinds."""
    import numpy as np

    random = np.random.default_rng(0)
    arguments = []
    for p in program.entry.params:
        t = p.annotation
        if not isinstance(t, Tensor) or t.dtype.bits < 8 or t.strides is not None or t.state:
            raise Error(f"no values can be made up for `{p.name}`")
        values = {v: sample[v.name] for v in annotation_vars(t) if v.name in sample}
        shape = [int(exact(e, values)) for e in t.shape]
        array = random.random(shape, np.float32) - 0.5 if t.dtype.is_float else np.zeros(shape)
        arguments.append(array.astype(t.dtype.array_dtype()))
    return arguments
