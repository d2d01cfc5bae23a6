"""Debugging of a compilation: verifies every step, and prints those that `PLIANT_SHOW` names."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .compilation import State, Step
from .graph.node import CallLoop, walk_nodes
from .support.errors import Error, InternalError
from .support.settings import read as read_settings

if TYPE_CHECKING:
    from .loop.lowering import Named, Watch
    from .loop.stmt import Func


@functools.cache
def warn_of_unknown(names: frozenset[str], steps: tuple[str, ...]) -> None:
    """Warns, once for each value of `PLIANT_SHOW`, of names that are not steps."""
    if not names:
        return
    known = [*steps, *(p.name for p in kernel_passes()), "all"]
    for name in sorted(names - set(known)):
        from difflib import get_close_matches

        near = get_close_matches(name, known, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"steps are: {', '.join(known)}"
        print(f"PLIANT_SHOW: there is no step `{name}`; {hint}", file=sys.stderr)


def kernel_passes() -> Sequence[Named]:
    """Returns the passes that each kernel goes through, in order, those of all renderers included."""
    from .loop.lowering import all_passes
    from .lower.schedule_kernels import KERNEL_PASSES

    return (*KERNEL_PASSES, *all_passes())


def watch_loop_passes() -> Watch | None:
    """Returns an observer that prints and verifies passes over loop programs; None if the settings ask for neither."""
    settings = read_settings()
    if not settings.verify and not (settings.show and any(settings.shows(p.name) for p in kernel_passes())):
        return None
    from .loop.passes.outline_parallel import chunks
    from .loop.verify import verify

    def watch(step: Named, before: Func, after: Func) -> None:
        if settings.shows(step.name) and after is not before:
            print(f"# {step.name} of `{after.name}`: {step.holds}\n{after}", file=sys.stderr)
        if not settings.verify:
            return
        try:
            for func in (*chunks(after), after):
                verify(func, claims=False)
        except Error as error:
            what = f"the pass `{step.name}` made a wrong program of `{before.name}`: {error.what}"
            raise InternalError(what, where=error.where, facts=error.facts) from error

    return watch


def verify_step(step: Step, before: State, after: State) -> None:
    """Verifies what a step has changed: the graph, the scheduled loop programs, the host program; raises InternalError."""
    from .graph.verify import verify as verify_graph
    from .loop.verify import verify as verify_loops
    from .loop.verify_blocks import check_claims
    from .lower.callee import func_of, given_by

    try:
        if after.function is not before.function:
            verify_graph(after.function)
        if after.kernels is not None and after.kernels is not before.kernels:
            calls = [n for n in walk_nodes(after.function.nodes) if isinstance(n, CallLoop)]
            kernels = [k for k in after.kernels.scheduled.values() if not k.loaded]  # others were verified before they were kept
            scheduled = {k.func for k in kernels}
            for func, facts in dict.fromkeys((func_of(n.callee), given_by(n)) for n in calls):
                if func in scheduled:
                    verify_loops(func, facts, claims=False)
            for kernel in kernels:
                check_claims(kernel.before, certain=True)
        if after.host is not None and after.host is not before.host:
            for func in (after.host.prepare, after.host.size, after.host.run):
                verify_loops(func)
    except Error as error:
        raise InternalError(f"the step `{step.name}` made a wrong program: {error.what}", where=error.where, facts=error.facts) from error


def show_step(step: Step, before: State, after: State, elapsed: float) -> None:
    """Prints the invariant of a pipeline step, its time, and the program after it, to stderr."""
    changed = before.function is not after.function or before.host is not after.host or before.package is not after.package
    print(f"# {step.name}: {step.holds} ({elapsed * 1e3:.1f} ms){'' if changed else ' (unchanged)'}", file=sys.stderr)
    if before.function is not after.function:
        print(after.program, file=sys.stderr)
    if before.host is not after.host and after.host is not None:
        for f in (after.host.prepare, after.host.size, after.host.run):
            print(f, file=sys.stderr)
