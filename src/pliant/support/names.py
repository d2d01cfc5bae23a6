"""Names that are each given once.

>>> taken = {"x"}; unused_name("x", taken), unused_name("x", taken)
('x_1', 'x_2')
"""

from __future__ import annotations


def unused_name(wanted: str, taken: set[str], between: str = "_") -> str:
    """`wanted`, with a number behind it where it is taken; what is returned is taken from now on.

    The number is searched for by doubling and halving: names that differ in their number alone are many in large programs.
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
