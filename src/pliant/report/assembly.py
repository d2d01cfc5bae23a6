"""The assembly of a compiled program, kernel by kernel, for people to read.

assembly(lineage)["matmul_silu"]        # the functions that the kernel became, one after the other
"""

from __future__ import annotations

import re

from ..codegen.emit import emit_assembly
from ..codegen.llvm import generate
from ..provenance import Lineage

_LABEL = re.compile(r'^"?(?P<name>[^\s".][^\s":]*)"?:')


def assembly(lineage: Lineage) -> dict[str, str]:
    """The assembly of each kernel by its name; what is of none of them (argument checks, launches) stands under ""."""
    state = lineage.lowered
    assert state.host is not None
    module = generate((state.host.prepare, state.host.size, state.host.run), state.target)
    functions = split_functions(emit_assembly(module.text, state.target, state.level))
    names = sorted(module.kernels, key=len, reverse=True)
    found: dict[str, list[str]] = {}
    for label, text in functions:
        owner = next((n for n in names if label == n or label.startswith(f"{n}.")), "")
        found.setdefault(owner, []).append(text)
    return {name: "\n".join(texts) for name, texts in found.items()}


def split_functions(text: str) -> list[tuple[str, str]]:
    """The functions of an assembly text by their labels, without directives."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        label = _LABEL.match(line)
        if label is not None:
            found.append((label["name"], [line]))
        elif found and _is_code(line):
            found[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in found if len(lines) > 1]


def _is_code(line: str) -> bool:
    """An instruction, or the label of a place that is jumped to."""
    stripped = line.strip()
    return bool(stripped) and (not stripped.startswith(".") or (stripped.startswith(".LBB") and not line.startswith("\t")))
