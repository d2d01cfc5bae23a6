"""Names that are each given once.

>>> taken = {"x"}; unused_name("x", taken), unused_name("x", taken)
('x_1', 'x_2')
"""

from __future__ import annotations


def unused_name(wanted: str, taken: set[str], between: str = "_") -> str:
    """`wanted`, with a number behind it where it is taken; what is returned is taken from now on."""
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}{between}{number}"
    taken.add(name)
    return name
