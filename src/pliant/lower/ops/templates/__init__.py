"""Templates: functions that build the loop programs of operators that stages cannot express (scatter, scan, sort, data-dependent sizes).

An operator names its template as `module.function` (docs/design/0007-operator-templates.md). The function receives the arguments, results
and attributes of the operator as a `Site` and returns the body of a loop program over them: an inline function without parameters, which
is written in the loop language over the buffers of the site (`loop.inline`). An optional function `…_dims` next to it turns
sizes that the code does not depend on into symbols, so that one program serves many shapes. An optional function `…_moved` returns the
operands whose elements the program touches once each, by its own loads and stores: data movement of them can be folded into these
(`lower.fusion.fold_data_movement`).

    build("scatter.elements", Site("scatter", args, outs, counts, attrs))
"""

from __future__ import annotations

from importlib import import_module

from ....loop.buffer import Buffer
from ....loop.inline import Inline
from ....loop.stmt import Stmt
from ....sym.expr import Expr, Var
from .build import Site


def build(template: str, site: Site) -> Stmt:
    """Returns the body of the loop program that a template builds for an operator."""
    module, function = template.split(".")
    body: Inline = getattr(import_module(f".{module}", __name__), function)(site)
    return body.statements()


def promoted(template: str, site: Site) -> tuple[Site, dict[Var, Expr]]:
    """Returns the site with symbols for the sizes that the template does not depend on, and their values.

    The site itself if it needs all.
    """
    module, function = template.split(".")
    change = getattr(import_module(f".{module}", __name__), f"{function}_dims", None)
    return change(site) if change is not None else (site, {})


def moved(template: str, site: Site) -> tuple[Buffer, ...]:
    """Returns the operands of a template whose memory order is free; none if the template does not say."""
    module, function = template.split(".")
    tell = getattr(import_module(f".{module}", __name__), f"{function}_moved", None)
    return tell(site) if tell is not None else ()


__all__ = ["Site", "build", "moved", "promoted"]
