"""Loop programs of operators that no stage can say: scatters, scans, sorts, what counts while it runs.

An operator names its template as `module.function` (docs/design/0007-operator-templates.md); the function gets the operator's
arguments, results and attributes as a `Site` and returns the body of a loop program over them.

    build("scatter.elements", Site("scatter", args, outs, counts, attrs))
"""

from __future__ import annotations

from importlib import import_module

from ...loop.stmt import Stmt
from .build import Site


def build(template: str, site: Site) -> Stmt:
    """The body of the loop program that a template makes for an operator."""
    module, function = template.split(".")
    made: Stmt = getattr(import_module(f".{module}", __name__), function)(site)
    return made


__all__ = ["Site", "build"]
