"""`pliant.explain(f)`: which rule and which variant each kernel of a compiled program got, for which dims, and why.

>>> print(pliant.explain(pliant.compile(matmul)))
matmul(a: f32[n, 2048], b: f32[2048, 2048], c: f32[n, 2048])
  if n >= 64: matmul: `c` in tiles of 6x64 in registers, right-hand side copied by panels
  else: matmul: `c` in tiles of 6x64 in registers, right-hand side in place
"""

from __future__ import annotations

from typing import Any

from .runtime.executable import Executable
from .runtime.interface import Interface


def explain(src: Any) -> str:
    """How the kernels of a compiled program (or of what can be compiled) were scheduled, and why."""
    if not isinstance(src, Executable):
        from .api import compile

        src = compile(src)
    package = src.package
    parts = [_kernels(package.interface)]
    if package.load is not None:
        parts += ["when the program is loaded:", _kernels(package.load.interface)]
    return "\n".join(parts)


def _kernels(interface: Interface) -> str:
    lines = []
    for rule in interface.rules:
        lines += [rule.program, *(f"  {reason}" for reason in rule.why.split("; "))]
    return "\n".join(lines) or f"{interface.name} has no kernels"
