"""The key of a compiled program in the code cache: everything that its code depends on."""

from __future__ import annotations

from typing import Any

from .graph.node import CallFunction, Function, output_names, walk_nodes
from .loop.stmt import Check, walk_stmts
from .program import Program
from .support.compiler_version import compiler_version
from .target import Target


def cache_key(program: Program, machine: Target, checked: bool = False) -> bytes:
    """Returns the key of a package: the whole program, the target, and the version of the compiler.

    Code depends only on the structure of the program. But a package also contains the messages and source positions of its checks, so these
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
    if checked:  # every access may fail, with a message that contains names and source positions
        from .lower.schedule_kernels import named_hash

        spans = [n.span for n in walk_nodes(program.entry.nodes)]
        return b"\n".join([b"checked", key, str(program).encode(), repr(spans).encode(), *map(named_hash, program.kernels)])
    return key


def _places(function: Function) -> list[Any]:
    nodes = list(walk_nodes(function.nodes))
    inner = [place for n in nodes if isinstance(n, CallFunction) for place in _places(n.function)]
    return [*((r.message, r.help, r.span) for n in nodes for r in n.requires), *inner]
