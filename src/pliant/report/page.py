"""The report of a compiled program: one self-contained HTML page.

    f.profile(x)                    # optional: the page then has times
    f.report("model.html")

It shows the graph as a tree of the user's layers, the launches (a launch runs one group of fused operators), the kernels with their
loop programs and assembly, the memory plan over time, and the text of the program. This module collects the data; the markup is in
`templates/report.html`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..loop.buffer import Buffer
from ..loop.printer import print_func
from ..loop.stmt import Func
from ..lower.callee import func_of
from ..provenance import Provenance
from ..runtime.contract import workspace_text
from ..runtime.executable import Executable
from ..support.output_file import check_place, write_text
from ..support.units import in_bytes, per_second
from ..sym.expr import Var
from ..sym.typical import typical
from .assembly import assembly
from .launches import Step, steps
from .layers import Tree, tree_of
from .markup import render
from .memory import memory_chart, places_of
from .profile import Launch, Limits, Profile, limits

_LINES = 3000  # longer assembly is truncated: browsers render huge pages slowly
_COLUMNS = ("ms", "share", "operations", "memory", "of limit")  # of the table of launches, after a profile


class _Facts(NamedTuple):
    """The data that the sections of the HTML report are rendered from."""

    f: Executable
    provenance: Provenance
    steps: Sequence[Step]
    numbers: dict[Func, int]  # kernel -> its number, in order of first use
    profile: Profile | None
    times: Sequence[Launch | None]  # the measured launch of each step; None without a profile
    total: int  # the time in all kernels, in nanoseconds; 0 without a profile
    machine: Limits | None


def write_report(f: Executable, provenance: Provenance, path: str | os.PathLike[str]) -> None:
    """Writes the HTML report of an executable to `path`, with the times of the last profile if there is one.

    Raises OutputFileError if the file cannot be written, before the report is made if that can be seen.
    """
    check_place(path)
    profile = provenance.profiled
    launched = steps(provenance, [x.kernel for x in profile.launches] if profile is not None else None)
    numbers = {func: i for i, func in enumerate(dict.fromkeys(s.func for s in launched))}
    fits = profile is not None and [x.kernel for x in profile.launches] == [s.name for s in launched]
    times: Sequence[Launch | None] = profile.launches if profile is not None and fits else [None] * len(launched)
    machine = limits(profile.threads) if profile is not None else None
    total = sum(t.duration for t in times if t is not None)
    page = _page(_Facts(f, provenance, launched, numbers, profile, times, total, machine))
    write_text(path, page)


def _page(x: _Facts) -> str:
    """Returns the whole report as HTML."""
    tree = tree_of([(s.layers[0] if s.layers else "", i) for i, s in enumerate(x.steps)])
    is_timed = any(t is not None for t in x.times)
    dims = _dims(x)
    return render(
        "report.html",
        name=x.f.interface.name,
        facts=_header(x),
        is_timed=x.total > 0,
        layers=_layer(x, tree, x.f.interface.name, depth=0),
        columns=_COLUMNS if is_timed else (),
        launches=[_launch_row(x, i, is_timed) for i in range(len(x.steps))],
        kernels=_kernels(x),
        dims=", ".join(f"{v.name} = {n}" for v, n in dims.items()),
        memory=memory_chart(places_of(x.provenance), dims),
        program=str(x.provenance.program),
    )


def _header(x: _Facts) -> list[tuple[str, str]]:
    """Returns the entries of the report's header: interface, target, sizes, and the profiled run if there is one."""
    f, p = x.f, x.profile
    constants = sum(c.size for c in f.interface.constants)
    facts = [
        ("inputs", "\n".join(map(str, f.inputs))),
        ("outputs", "\n".join(map(str, f.outputs))),
        ("dims", "\n".join(map(str, f.dims))),
        ("target", f"{x.provenance.target.name}: {x.provenance.target.cpu}, vectors of {x.provenance.target.vector_bits} bits"),
        ("code", f"{in_bytes(len(f.package.blob.code))}, {len(x.numbers)} kernels, {len(x.steps)} launches"),
        ("constants", in_bytes(constants)),
        ("workspace", workspace_text(f.interface)),
    ]
    if p is not None:
        dims = ", ".join(f"{k} = {v}" for k, v in p.dims.items()) or "no dims"
        facts.append(("profiled run", f"{p.wall / 1e6:.3f} ms with {p.threads} threads, {dims}; {p.in_kernels / p.wall:.1%} in kernels"))
    slow = [f"{r.program.partition('(')[0]}: {warning}" for r in f.interface.rules for warning in r.warnings]
    facts.append(("warnings", "\n".join(slow)))
    if x.machine is not None:
        facts.append(("machine", f"{per_second(x.machine.operations, 'FLOP')}, reads {per_second(x.machine.bytes, 'B')}"))
    return facts


# Layers.


def _layer(x: _Facts, tree: Tree, name: str, depth: int) -> dict[str, Any]:
    """Returns a layer with its sublayers and launches as a dict for the template; the first three levels are open."""
    every = tree.every()
    is_leaf = len(every) == 1 and not tree.children
    return {
        "name": name,
        "is_leaf": is_leaf,
        "is_open": depth < 3,
        "count": _count(every),
        "share": _share(x, every),
        "children": [_layer(x, child, label, depth + 1) for label, child in tree.children.items()],
        "launches": [{"number": i, "kernel": _kernel(x, x.steps[i].func), "share": _share(x, [i])} for i in tree.own],
    }


def _count(which: Sequence[int]) -> str:
    return f"{len(which)} launch{'es' * (len(which) != 1)}"


def _share(x: _Facts, which: Sequence[int]) -> dict[str, str] | None:
    """Returns the time of launches and its share of all kernel time, as texts; None without a profile."""
    times = [t for i in which if (t := x.times[i]) is not None]
    if not times or not x.total:
        return None
    spent = sum(t.duration for t in times)
    return {"time": f"{spent / 1e6:.3f}", "percent": f"{spent / x.total:.1%}"}


def _kernel(x: _Facts, func: Func) -> dict[str, Any]:
    return {"number": x.numbers[func], "name": func.name}


# Launches.


def _launch_row(x: _Facts, i: int, is_timed: bool) -> dict[str, Any]:
    """Returns a row of the table of launches as a dict for the template. With `is_timed`, it has the cells of times and rates."""
    step, t = x.steps[i], x.times[i]
    cells = (_timed(t, x) if t is not None else [""] * len(_COLUMNS)) if is_timed else []
    return {"number": i, "kernel": _kernel(x, step.func), "layers": ", ".join(step.layers), "cells": cells}


def _timed(t: Launch, x: _Facts) -> list[str]:
    """Returns the cells with times and rates of a profiled launch, as texts."""
    assert x.profile is not None and x.machine is not None
    shown = [f"{t.duration / 1e6:.3f}", f"{t.duration / max(1, x.profile.wall):.1%}"]
    limit = t.of_limit(x.machine)
    if limit is None or t.operations is None or t.bytes is None:
        return [*shown, "", "", ""]
    seconds = t.duration * 1e-9
    operations = per_second(t.operations / seconds, "FLOP") if t.operations else ""
    return [*shown, operations, per_second(t.bytes / seconds, "B"), f"{limit:.0%}"]


# Kernels.


def _kernels(x: _Facts) -> list[dict[str, Any]]:
    """Returns the kernels as dicts for the template; those that take the most time come first."""
    code = assembly(x.provenance)
    spent = dict.fromkeys(x.numbers, 0)
    for step, t in zip(x.steps, x.times, strict=True):
        spent[step.func] += t.duration if t is not None else 0
    order = sorted(x.numbers, key=lambda func: -spent[func])
    return [_kernel_entry(x, func, code.get(func.name, "")) for func in order]


def _kernel_entry(x: _Facts, func: Func, code: str) -> dict[str, Any]:
    """Returns a kernel with its logical program, scheduled program and assembly, as a dict for the template."""
    which = [i for i, s in enumerate(x.steps) if s.func is func]
    logical = next((s.logical for i in which if (s := x.steps[i]).logical is not None), None)
    programs = [("what it computes", print_func(func_of(logical.callee)))] if logical is not None else []
    programs += [("as it is scheduled", print_func(func)), ("assembly", _shortened(code))]
    return {"kernel": _kernel(x, func), "count": _count(which), "shapes": _shapes(func), "share": _share(x, which), "programs": programs}


def _shapes(func: Func) -> str:
    """The shapes of a kernel's inputs and outputs, which tell apart kernels of the same name."""
    buffers = [(p.role, p.value) for p in func.params if isinstance(p.value, Buffer)]
    sides = [", ".join(_shape(b) for role, b in buffers if role in roles) for roles in (("in", "inout"), ("out", "inout"))]
    return " \u2192 ".join(sides)


def _shape(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(str(e) for e in buffer.shape)}]"


def _shortened(text: str) -> str:
    """The first lines of a text, with the number of omitted lines."""
    lines = text.splitlines()
    more = len(lines) - _LINES
    return text if more <= 0 else "\n".join([*lines[:_LINES], f"… {more} further lines"])


# Memory.


def _dims(x: _Facts) -> dict[Var, int]:
    """The values of the dims that the memory plan is drawn for: those of the profiled run, or examples."""
    host = x.provenance.lowered.host
    assert host is not None
    symbols = host.layout.symbols
    dims = typical(symbols)
    if x.profile is not None:
        dims |= {v: x.profile.dims[v.name] for v in symbols if v.name in x.profile.dims}
    return dims
