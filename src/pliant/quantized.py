"""`pliant.quantize`: weight quantization of a float program, and `pliant.quantization_errors`: the error that it causes.

q = pliant.quantize(program, weights="int8")                    # or "int4"
for line in pliant.quantization_errors(program, q, {"x": x}):
    print(line)                                                 # logits: at most 0.031 off, 0.4 % of its size
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .program import Program
from .support.errors import Error
from .support.record import dataclass


@dataclass(frozen=True, slots=True)
class OutputError:
    """The error of an output: the largest absolute difference, and the RMS of the differences relative to the RMS of the output."""

    name: str
    largest: float
    relative: float

    def __str__(self) -> str:
        return f"{self.name}: at most {self.largest:.3g} off, {100 * self.relative:.3g} % of its size"


def quantize(program: Any, weights: str = "int8", least: int = 4096) -> Program:
    """Returns `program` with literal weights of at least `least` elements quantized to 8 or 4 bits in blocks of 32.

    `weights` is "int8" or "int4". Raises Error for a negative `least`, and for weights other than "int8" and "int4".
    """
    from .api import program_of
    from .graph.passes.dead_code import dead_code
    from .graph.passes.quantize_weights import quantize_weights
    from .graph.verify import verify

    if least < 0:
        raise Error(f"least={least}: a number of elements is not negative")
    source = program_of(program)
    function = dead_code(quantize_weights(source.entry, weights, least))  # otherwise the unused float weights would be saved too
    verify(function)
    return Program.of(function)


def quantization_errors(program: Any, quantized: Any, feeds: Mapping[str, Any], threads: int | None = None) -> list[OutputError]:
    """Runs both programs on the same arrays; returns the error of each output of `quantized` against `program`."""
    from copy import deepcopy

    import numpy as np

    from .api import compile, program_of
    from .graph.node import is_state

    state = {p.name for p in program_of(program).entry.params if is_state(p)}  # a run updates it in place
    fresh = ({n: deepcopy(a) if n in state else a for n, a in feeds.items()} for _ in range(2))
    exact, near = (compile(p, threads=threads).run(f) for p, f in zip((program, quantized), fresh, strict=True))
    errors = []
    for name, a in exact.items():
        x, y = (np.asarray(v, np.float64) for v in (a, near[name]))
        size = float(np.sqrt(np.mean(x * x))) if x.size else 0.0
        off = float(np.sqrt(np.mean((x - y) ** 2))) if x.size else 0.0
        errors.append(OutputError(name, float(np.abs(x - y).max(initial=0.0)), off / size if size else off))
    return errors
