"""Example sizes: what dims are taken to be where a number is needed and no run has given any (reports, warnings).

typical([Dim("n"), Dim("m", max=64, multiple_of=8)])        # {n: 128, m: 64}
"""

from __future__ import annotations

from collections.abc import Iterable

from .expr import Dim, Var

SIZE = 128


def typical(symbols: Iterable[Var]) -> dict[Var, int]:
    """Returns example values of the dims: SIZE each, or the nearest value that the contract allows."""
    values = {}
    for v in symbols:
        low, high, step = (v.min, v.max, v.multiple_of) if isinstance(v, Dim) else (0, SIZE, 1)
        values[v] = max(-(-low // step) * step, min(SIZE, high) // step * step)
    return values
