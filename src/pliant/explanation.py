"""`pliant.explain(f)`: shows the schedule rule and the variants of each kernel of a compiled program, for which dims, and why.

>>> print(pliant.explain(pliant.compile(matmul)))
matmul(a: f32[n, 2048], b: f32[2048, 2048], c: f32[n, 2048])
  if n >= 64: matmul: `c` in tiles of 6x64 in registers, right-hand side copied by panels
  else: matmul: `c` in tiles of 6x64 in registers, right-hand side in place
  c.tile = 6x4, of 1x1, 1x2, 1x3, … and 23 more: by the model the best of 35 tiles: 29 of 32 registers, …
  c.share = panels, of panels, rows: 32 panels; fewer than 4 do not keep threads busy

The last lines are decisions: `pliant.compile(matmul, decisions={"c.tile": (4, 4), "c.share": "rows"})` overrides them.
"""

from __future__ import annotations

from typing import Any

from .runtime.executable import Executable
from .runtime.interface import Choice, Interface


def explain(src: Any) -> str:
    """Returns a text that says how the kernels of a compiled program were scheduled, and why; compiles `src` if needed."""
    if not isinstance(src, Executable):
        from .api import compile

        src = compile(src)
    package = src.package
    parts = [_kernels(package.interface)]
    if package.load is not None:
        # Both packages have the same layouts, which are shown once.
        parts += ["when the program is loaded:", _kernels(package.load.interface._replace(layouts=()))]
    return "\n".join(parts)


def _kernels(interface: Interface) -> str:
    """Returns the rules and decisions of all kernels of an interface as text."""
    names = [rule.program.partition("(")[0] for rule in interface.rules]
    lines = []
    for name, rule in zip(names, interface.rules, strict=True):
        head = f"{name}@{rule.content}{rule.program[len(name) :]}" if names.count(name) > 1 else rule.program
        lines += [head, *(f"  {reason}" for reason in rule.reasons), *map(_choice, rule.choices)]
    if interface.layouts:
        lines += ["layouts:", *map(_choice, interface.layouts)]
    return "\n".join(lines) or f"{interface.name} has no kernels"


def _choice(c: Choice) -> str:
    """Formats a decision: its value, its domain, and the terms of the cost model."""
    why = f": {c.why}" if c.why else ""
    return f"  {c.name} = {c.value}, of {c.domain}{' (another value changes last bits)' if c.reorders else ''}{why}"
