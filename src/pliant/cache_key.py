"""The key of a compiled program in the code cache: everything that its code depends on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from .graph.node import CallFunction, Function, output_names, walk_nodes
from .loop.stmt import Check, walk_stmts
from .program import Program
from .support.compiler_version import compiler_version
from .target import Target
from .target import target as find_target
from .target.declared import declared_text


def cache_key(program: Program, machine: Target, checked: bool = False, literal: Callable[[Any], Any] | None = None) -> bytes:
    """Returns the key of a package: the whole program, the target, and the version of the compiler.

    Code depends only on the structure of the program. But a package also contains the messages and source positions of its checks, so these
    are part of the key. With `checked`, names and all source positions are part of it too. `literal` gives what the key says of a literal
    tensor; by default that covers its values.
    """
    from .graph.structural import canonical
    from .loop.structural import canonical_text

    parts = [compiler_version(), repr(machine), repr(canonical(program.entry, literal)), *output_names(program.entry)]
    parts += map(repr, _places(program.entry))
    functions = program.functions  # code has their numbers: two of one name are two
    parts += [str(next(i for i, f in enumerate(functions) if f is fn)) for fn in functions]
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


def options_text(machine: Target, disabled: Iterable[str], decisions: str, load_here: bool) -> str | None:
    """Returns the text of what code depends on besides the program, for keys; None if code cannot be cached.

    These are the steps that are left out, the decisions that were asked for (a text), what users declared, and with `load_here` the machine
    of this process.
    """
    patterns, rules = patterns_text(), _rules_text()
    if patterns is None or rules is None:  # what a condition says today it may not say tomorrow
        return None
    left_out = "".join(f"\nwithout {name}" for name in sorted(disabled))
    here = f"\nload here {find_target('native')!r}" if load_here else ""
    return f"{left_out}{patterns}{rules}{declared_text(machine)}{decisions}{here}"


def patterns_text() -> str | None:
    """Returns the text of the library patterns that users registered.

    Empty if there are none, None if code cannot be cached because of them.
    """
    patterns = sys.modules.get("pliant.graph.patterns")
    return "" if patterns is None else patterns.registered_text()


def _rules_text() -> str | None:
    """Returns the text of the schedule rules that users declared.

    Empty if there are none, None if code cannot be cached because of them.
    """
    rules = sys.modules.get("pliant.schedule.library")
    return "" if rules is None else rules.declared_rules_text()
