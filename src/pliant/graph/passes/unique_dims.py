"""Renames dims so that each has a unique name, which keeps contracts, formulas and messages readable: a second `n` becomes `n_1`.

    def f(x: Tensor[f32, n], y: Tensor[f32, n])     ->     def f(x: Tensor[f32, n], y: Tensor[f32, n_1])

The names equal those in the printed function.
"""

from __future__ import annotations

from ...sym.expr import Dim, Expr, Var
from ..node import Function
from ..printer import function_vars
from ..rewrite import Renamer


def unique_dims(function: Function) -> Function:
    """Returns the function with a unique name for each dim; the same object if the names are unique already."""
    every = function_vars(function)
    taken = {v.name for v in every}
    known: set[str] = set()
    values: dict[Var, Expr] = {}
    for v in every:
        if v.name not in known:
            known.add(v.name)
            continue
        name = next(n for n in (f"{v.name}_{k}" for k in range(1, len(every) + 1)) if n not in taken)
        taken.add(name)
        values[v] = Dim(name, v.min, v.max, v.multiple_of) if isinstance(v, Dim) else Var(name, v.dtype)
    return Renamer(dims=values).function(function) if values else function
