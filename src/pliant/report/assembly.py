"""Prints the assembly of a compiled program, kernel by kernel, without directives.

assembly(provenance)["matmul_silu"]        # the functions that the kernel was compiled to, one after the other
"""

from __future__ import annotations

import re

from ..codegen.emit import emit_assembly
from ..codegen.llvm import generate
from ..provenance import Provenance

# The label of a function: at the start of a line, and not a local label, which begins with a dot.
_LABEL = re.compile(r'^"?(?P<name>[^\s".][^\s":]*)"?:')


def assembly(provenance: Provenance) -> dict[str, str]:
    """Returns the assembly of each kernel by name; code of no kernel (argument checks, launches) is under the key ""."""
    state = provenance.lowered
    assert state.host is not None
    module = generate((state.host.prepare, state.host.size, state.host.run), state.target)
    functions = split_functions(emit_assembly(module.text, state.target, state.level))
    names = sorted(module.kernels, key=len, reverse=True)
    by_kernel: dict[str, list[str]] = {}
    for label, text in functions:
        owner = next((n for n in names if label == n or label.startswith(f"{n}.")), "")
        by_kernel.setdefault(owner, []).append(text)
    return {name: "\n".join(texts) for name, texts in by_kernel.items()}


def split_functions(text: str) -> list[tuple[str, str]]:
    """Splits an assembly text into (label, code) of its functions, without directives."""
    parts: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label is not None:
            parts.append((label["name"], [line]))
        elif parts and _is_code(line):
            parts[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in parts if len(lines) > 1]


def _is_code(line: str) -> bool:
    """True for an instruction or a jump target; False for directives and empty lines."""
    stripped = line.strip()
    return bool(stripped) and (not stripped.startswith(".") or (stripped.startswith(".LBB") and not line.startswith("\t")))
