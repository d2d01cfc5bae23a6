"""Loop programs of operators that no stage can say: scatters, scans, sorts, what counts while it runs.

An operator names its template as `module.function` (docs/design/0007-operator-templates.md); the function gets the operator's
arguments, results and attributes as a `Site` and returns the body of a loop program over them. A function `…_dims` beside it promotes
sizes that the program does not need to know to symbols, so that one program serves many shapes. A function `…_moved` tells which
operands the program touches in its own loads and stores, once each element: moves of them can be done there
(`lower.fusion.fold_data_movement`).

    build("scatter.elements", Site("scatter", args, outs, counts, attrs))
"""

from __future__ import annotations

from importlib import import_module

from ....loop.buffer import Buffer
from ....loop.stmt import Stmt
from ....sym.expr import Expr, Var
from .build import Site


def build(template: str, site: Site) -> Stmt:
    """The body of the loop program that a template makes for an operator."""
    module, function = template.split(".")
    made: Stmt = getattr(import_module(f".{module}", __name__), function)(site)
    return made


def promoted(template: str, site: Site) -> tuple[Site, dict[Var, Expr]]:
    """The site over symbols in place of sizes that the template promotes, and their values."""
    module, function = template.split(".")
    change = getattr(import_module(f".{module}", __name__), f"{function}_dims", None)
    return change(site) if change is not None else (site, {})


def moved(template: str, site: Site) -> tuple[Buffer, ...]:
    """The operands of a template that may lie in any order."""
    module, function = template.split(".")
    tell = getattr(import_module(f".{module}", __name__), f"{function}_moved", None)
    return tell(site) if tell is not None else ()


__all__ = ["Site", "build", "moved", "promoted"]
