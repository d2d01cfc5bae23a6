"""What a compiled program is found by in the code cache: everything that its code depends on."""

from __future__ import annotations

from typing import Any

from .graph.node import CallFunction, Function, output_names, walk_nodes
from .loop.stmt import Check, walk_stmts
from .program import Program
from .support.compiler_version import compiler_version
from .target import Target


def cache_key(program: Program, machine: Target, checked: bool = False) -> bytes:
    """The key of a package: the whole program, the machine, and the compiler's own version.

    Code depends on the structure alone. But a package also names the lines of the user's source that its checks come from, so these lines
    are part of the key.
    """
    from .graph.structural import canonical
    from .loop.structural import canonical_text

    parts = [compiler_version(), repr(machine), repr(canonical(program.entry)), *output_names(program.entry)]
    parts += map(repr, _places(program.entry))
    for func in program.kernels:
        checks = [s for s in walk_stmts(func.body) if isinstance(s, Check)]
        parts += [func.name, canonical_text(func), *(repr((s.message, s.help, s.span)) for s in checks)]
    key = "\n".join(parts).encode()
    if checked:  # what may fail is every access: its names and places are told
        from .lower.schedule_kernels import named_hash

        spans = [n.span for n in walk_nodes(program.entry.nodes)]
        return b"\n".join([b"checked", key, str(program).encode(), repr(spans).encode(), *map(named_hash, program.kernels)])
    return key


def _places(function: Function) -> list[Any]:
    nodes = list(walk_nodes(function.nodes))
    inner = [place for n in nodes if isinstance(n, CallFunction) for place in _places(n.function)]
    return [*((r.message, r.help, r.span) for n in nodes for r in n.requires), *inner]
