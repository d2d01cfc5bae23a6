"""A float program with small weights, and what that costs in accuracy.

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
    """How far an output is off: the largest difference, and the root of the mean square of differences over that of the output."""

    name: str
    largest: float
    relative: float

    def __str__(self) -> str:
        return f"{self.name}: at most {self.largest:.3g} off, {100 * self.relative:.3g} % of its size"


def quantize(program: Any, weights: str = "int8", least: int = 4096) -> Program:
    """The program with its literal weights of at least so many elements as 8-bit or 4-bit codes in blocks of 32."""
    from .api import program_of
    from .graph.passes.dead_code import dead_code
    from .graph.passes.quantize_weights import quantize_weights
    from .graph.verify import verify

    if least < 0:
        raise Error(f"least={least}: a number of elements is not negative")
    source = program_of(program)
    function = dead_code(quantize_weights(source.entry, weights, least))  # floats that nobody reads would be saved with it
    verify(function)
    return Program.of(function)


def quantization_errors(program: Any, quantized: Any, feeds: Mapping[str, Any], threads: int | None = None) -> list[OutputError]:
    """How far each output of one program is from that of another, on the same arrays."""
    import numpy as np

    from .api import compile

    exact, near = (compile(p, threads=threads).run(dict(feeds)) for p in (program, quantized))
    found = []
    for name, a in exact.items():
        x, y = (np.asarray(v, np.float64) for v in (a, near[name]))
        size = float(np.sqrt(np.mean(x * x))) if x.size else 0.0
        off = float(np.sqrt(np.mean((x - y) ** 2))) if x.size else 0.0
        found.append(OutputError(name, float(np.abs(x - y).max(initial=0.0)), off / size if size else off))
    return found
