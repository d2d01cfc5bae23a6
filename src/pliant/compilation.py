"""The state of a compilation in progress, and the record of a step of `pipeline.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .graph.node import Function, Node, walk_nodes
from .program import Program
from .runtime.package import Package
from .target import Target

if TYPE_CHECKING:
    from .backend.base import Assembly
    from .lower.host.copy_elision import CopyElision
    from .lower.host.host import HostProgram
    from .lower.kernel_store import KernelStore
    from .lower.ops.foreign_calls import ForeignCalls
    from .lower.schedule_kernels import Kernels
    from .schedule.decisions import Decisions


@dataclass(frozen=True, slots=True)
class State:
    """The state of a compilation between two steps: the function, the options, and the results of the steps so far."""

    function: Function
    target: Target
    constants: tuple[Any, ...] = ()  # the program's literal tensors, which code refers to by index
    level: int = 2  # LLVM optimization level
    checked: bool = False  # adds run-time checks of accesses, index arithmetic and divisions
    poison: bool = False  # fills temporaries with NaN before and after their lifetime, to find reads of uninitialized memory
    plan: bool = True  # temporaries share memory by liveness
    fused: bool = True  # math functions use their FMA forms
    video: int | None = None  # the argument is a frame of a video, whose rows are this dim: compute what changed since the last one
    load: Function | None = None  # computations on literals that run once, at load time
    load_here: bool = False  # compiles `load` for this machine, though its kernels are scheduled for the target
    derived: tuple[Any, ...] = ()  # placeholder arrays in `function` for the results of `load`
    computed: tuple[Any, ...] = ()  # literals that graph passes computed, if the package is to name them instead of containing them
    functions: tuple[Any, ...] = ()  # the program's Python functions, which code refers to by index
    foreign_calls: ForeignCalls | None = None  # calls of functions outside of compiled code
    copy_elision: CopyElision | None = None  # copies that may be elided
    assembly: Assembly | None = None  # background code generation of the kernels scheduled so far
    decisions: Decisions | None = None  # the user's overrides of schedule decisions, and all decisions made
    kernel_store: KernelStore | None = None  # kernels that other programs have compiled
    kernels: Kernels | None = None
    host: HostProgram | None = None
    package: Package | None = None

    @property
    def finished(self) -> Package:
        """The package of a compilation that went to its last step."""
        assert self.package is not None
        return self.package

    @property
    def program(self) -> Program:
        """The program at this stage, with the load-time part and the original foreign calls put back.

        Its text, with `named_constants`, is all that a compilation needs to resume from here.
        """
        function = self.function
        if self.foreign_calls is not None:
            from .lower.ops.foreign_calls import with_calls

            function = with_calls(function, self.foreign_calls)
        if self.load is not None:
            from .lower.layout.lift_constants import whole

            function = whole(function, self.load, self.derived)
        return Program(function)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the pipeline: its name, its function from state to state, and the invariant that holds afterwards."""

    name: str
    run: Callable[[State], State]
    holds: str
    optional: bool = False  # programs are correct without it
    part_of: str = ""  # the step that this one prepares; disabling that step disables this one too


def graph_pass(place: str, *kinds: type[Node], least: int = 1) -> Callable[[State], State]:
    """Returns a step function that runs the pass `place`, "module:function", on the graph.

    It leaves the graph as it is if that has too few nodes. These are fewer than `least` nodes of the `kinds` (none: of any kind). Then the
    module is not imported.
    """
    module, name = place.split(":")

    def run(s: State) -> State:
        if sum(isinstance(n, kinds or Node) for n in walk_nodes(s.function.nodes)) < least:
            return s
        change: Callable[[Function], Function] = getattr(import_module(module, __package__), name)
        return replace(s, function=change(s.function))

    return run
