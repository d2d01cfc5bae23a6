"""Programs as C source: from a program to `NAME.c` and `NAME.h` (docs/c.md).

files = c_source(program_of(mlp), target("c"))         # {"mlp.h": …, "mlp.c": …}
"""

from __future__ import annotations

from .lower.c_files import c_files
from .pipeline import compile_as_far_as
from .program import Program
from .runtime.loading import all_literals
from .support.errors import UnsupportedError
from .support.source import caller_span
from .target import Target


def c_source(program: Program, machine: Target, name: str = "", inside: bool | None = None) -> dict[str, bytes]:
    """The files of a program by name; its weights are `inside` of the source unless they are large."""
    state = compile_as_far_as("emit", program, machine, load_here=True)
    assert state.host is not None and state.package is not None
    if state.package.interface.calls:
        raise UnsupportedError(
            f"the program calls `{state.package.interface.calls[0].name}`, a function outside of it, which C source cannot hold",
            where=caller_span(),
            help="write it with operators or as a @kernel",
        )
    weights = state.package.interface.memory(all_literals(state.package, state.constants))
    return c_files(name or state.function.name, state.host, state.package.interface, weights, inside)
