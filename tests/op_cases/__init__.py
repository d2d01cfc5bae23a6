"""Calls of every operator on small odd shapes: a table in each file beside this one, all of them together in CASES.

A test that is about all operators walks CASES: stages against references, native code, proofs of bounds, printed text.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from .case import SIZES, Case, arrays_of, build, by_stages

CASES: dict[str, Case] = {}
for _module in sorted(m.name for m in iter_modules(__path__)):
    _table: dict[str, Case] = getattr(import_module(f"{__name__}.{_module}"), "CASES", {})
    assert not CASES.keys() & _table.keys(), CASES.keys() & _table.keys()
    CASES |= _table

__all__ = ["CASES", "SIZES", "Case", "arrays_of", "build", "by_stages"]
