"""Generates unique names.

>>> taken = {"x"}; unused_name("x", taken), unused_name("x", taken)
('x_1', 'x_2')
"""

from __future__ import annotations


def unused_name(wanted: str, taken: set[str], between: str = "_") -> str:
    """`wanted`, with a number appended if it is taken; adds the result to `taken`.

    The number is found by doubling and bisection, because large programs have many names that differ only in their number.
    """
    if wanted not in taken:
        taken.add(wanted)
        return wanted
    high = 1
    while f"{wanted}{between}{high}" in taken:
        high *= 2
    low = high // 2  # taken, or 0; `high` is free
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if f"{wanted}{between}{middle}" in taken else (low, middle)
    name = f"{wanted}{between}{high}"
    taken.add(name)
    return name
