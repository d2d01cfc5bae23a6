"""Prints the assembly of a kernel of a compiled program, without directives.

kernel_assembly(func, provenance)        # the functions that the kernel was compiled to, one after the other

A kernel is compiled for this on its own, as the pipeline compiles it: its parallel loops are functions too, with names like `matmul_i_0`.
"""

from __future__ import annotations

import re

from ..codegen.emit import emit_assembly
from ..codegen.llvm import generate
from ..loop.stmt import Call, Func, walk_stmts
from ..provenance import Provenance

# The label of a function: at the start of a line, and not a local label, which begins with a dot.
_LABEL = re.compile(r'^"?(?P<name>[^\s".][^\s":]*)"?:')
_FAIL = "pliant.fail"  # a function of every module: it sets the error record


def kernel_assembly(func: Func, provenance: Provenance) -> str:
    """Returns the assembly of a kernel and of its parallel loops."""
    state = provenance.lowered
    module = generate((func,), state.target)
    functions = split_functions(emit_assembly(module.text, state.target, state.level))
    return "\n".join(text for name, text in functions if name != _FAIL)


def kernels_of(provenance: Provenance) -> list[Func]:
    """Returns the kernels that the host program launches, each once, in all its shape variants."""
    host = provenance.lowered.host
    assert host is not None
    return list(dict.fromkeys(s.func for s in walk_stmts(host.run.body) if isinstance(s, Call)))


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
