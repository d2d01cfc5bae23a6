"""A compilation in progress: its state, and what a step of `pipeline.py` is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .graph.node import Function
from .program import Program
from .runtime.package import Package
from .target import Target

if TYPE_CHECKING:
    from .backend.base import Assembly
    from .lower.host.copy_elision import CopyElision
    from .lower.host.host import HostProgram
    from .lower.ops.foreign_calls import ForeignCalls
    from .lower.schedule_kernels import Kernels
    from .schedule.decisions import Decisions


@dataclass(frozen=True, slots=True)
class State:
    """What is being compiled, as far as it has come."""

    function: Function
    target: Target
    constants: tuple[Any, ...] = ()  # the program's literal tensors, which code refers to by number
    level: int = 2  # of LLVM's optimization
    checked: bool = False  # accesses, index arithmetic and divisions are checked while the program runs
    poison: bool = False  # fill temporaries before and after their use, to find who reads what nobody wrote
    plan: bool = True  # temporaries share memory
    fused: bool = True  # functions have their forms with fma
    load: Function | None = None  # what is computed once, from literals alone, when the program is loaded
    load_here: bool = False  # `load` becomes code for this machine, though its kernels are scheduled for the target
    derived: tuple[Any, ...] = ()  # arrays that stand in `function` for the results of `load`
    functions: tuple[Any, ...] = ()  # the program's Python functions, which code refers to by number
    leaving: ForeignCalls | None = None  # calls of functions outside of compiled code
    moves: CopyElision | None = None  # calls that need not run where what they move lies in place
    assembly: Assembly | None = None  # code at work, of what is scheduled so far
    decisions: Decisions | None = None  # what somebody asks the rules to choose, and all that they have chosen
    kernels: Kernels | None = None
    host: HostProgram | None = None
    package: Package | None = None

    @property
    def program(self) -> Program:
        """The program as it stands, whole: what is computed when it is loaded and what is called outside are in it again.

        Its text, with `named_constants`, is all that a compilation needs to begin anew from here.
        """
        function = self.function
        if self.leaving is not None:
            from .lower.ops.foreign_calls import with_calls

            function = with_calls(function, self.leaving)
        if self.load is not None:
            from .lower.layout.lift_constants import whole

            function = whole(function, self.load, self.derived)
        return Program(function)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the pipeline: its name, what it does, what holds afterwards."""

    name: str
    run: Callable[[State], State]
    holds: str
    optional: bool = False  # programs are right without it
    part_of: str = ""  # the step that this one prepares: whoever leaves that out leaves this out too
