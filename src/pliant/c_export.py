"""Programs as C source: from a program to `NAME.c` and `NAME.h` (docs/c.md).

files = c_source(program_of(mlp), target("c"))         # {"mlp.h": …, "mlp.c": …}
"""

from __future__ import annotations

from .backend.base import Code
from .lower.c_files import c_files, render_program
from .lower.package import interface_of
from .pipeline import State, compile_as_far_as, literals_here
from .program import Program
from .runtime.blob import Blob
from .support.errors import UnsupportedError
from .target import Target


def c_source(program: Program, machine: Target, name: str = "", inside: bool | None = None) -> dict[str, bytes]:
    """The files of a program by name; its weights are `inside` of the source unless they are large."""
    return source_of(compile_as_far_as("host", program, machine), name, inside)


def source_of(state: State, name: str = "", inside: bool | None = None) -> dict[str, bytes]:
    """The files of a program that has come as far as its host program."""
    if state.leaving is not None and state.leaving.calls:
        raise UnsupportedError("the program calls functions outside of it, which C source cannot hold")
    assert state.host is not None
    module = render_program(state.host)
    code = Code(Blob(b"", {}, "c"), module.sites, (), parallel=False)
    interface = interface_of(state.function, state.host, code, (*state.constants, *state.derived))
    return c_files(name or state.function.name, state.host, module, interface, interface.memory(literals_here(state)), inside)
