"""Names of the loops that a split makes: short, however often a loop is split.

    k      split     k_0, k_1            the first split numbers from 0
    k_1    split     k_2, k_3            later ones take the next numbers that no loop of the nest has
    k_1    cut       k_r                 the tail of a part is a tail of `k`

Names depend on the nest alone, so replaying a trace gives the same names.
"""

from __future__ import annotations

import re

from ..loop.analysis.nests import loops_above, loops_in
from ..loop.stmt import For, Func
from .cursor import marked_name

_PART = re.compile(r"(.+?)_(\d+)")  # a loop that a split made


def part_names(func: Func, loop: For, count: int) -> list[str]:
    """Return the names of the `count` loops that a split of `loop` makes, outermost first."""
    part = _PART.fullmatch(loop.var.name)
    if part is None:
        return [f"{loop.var.name}_{n}" for n in range(count)]
    stem = part[1]
    others = (_PART.fullmatch(name) for name in _names_in_nest(func, loop))
    first = 1 + max(int(x[2]) for x in (part, *others) if x is not None and x[1] == stem)
    return [f"{stem}_{n}" for n in range(first, first + count)]


def tail_name(func: Func, loop: For, kind: str) -> str:
    """Return the name of the loop over what a split of `loop` leaves: `k_r` (kind "r") for a loop `k`, `k_1` or `k_r`."""
    part = _PART.fullmatch(loop.var.name)
    return marked_name(part[1] if part else loop.var.name, f"_{kind}", _names_in_nest(func, loop) | {loop.var.name})


def _names_in_nest(func: Func, loop: For) -> set[str]:
    """Return the names of the loops around and inside `loop`."""
    return {x.var.name for x in (*loops_above(func, loop), *loops_in(loop.body))}
