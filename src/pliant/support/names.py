"""Generates unique names, and identifiers from any names.

>>> taken = {"x"}; unused_name("x", taken), unused_name("x", taken)
('x_1', 'x_2')
"""

from __future__ import annotations

import keyword


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


def identifier(name: str) -> str:
    """Returns a name of a model as a Python identifier: `input.1` becomes `input_1`."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name) or "value"
    text = f"_{text}" if text[0].isdigit() else text
    return f"{text}_" if keyword.iskeyword(text) else text[:200]
