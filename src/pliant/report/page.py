"""The report of a compiled program: one self-contained HTML page.

    f.profile(x)                    # optional: the page then has times
    f.report("model.html")

It shows the graph as a tree of the user's layers, the launches (a launch runs one group of fused operators), the kernels with their
loop programs and assembly, the memory plan over time, and the text of the program. This module collects the data; the markup is in
`templates/report.html`. The size of a page is bounded (`bounds.py`).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from typing import Any

from ..loop.buffer import Buffer
from ..loop.printer import print_func
from ..loop.stmt import Func
from ..lower.callee import func_of
from ..provenance import Provenance
from ..runtime.contract import workspace_text
from ..runtime.executable import Executable
from ..support.output_file import check_place, write_text
from ..support.units import in_bytes, per_second
from .assembly import kernel_assembly
from .bounds import MOST_ROWS, Texts
from .compiler_steps import CompilerStep, compiler_steps
from .facts import Facts, facts_of
from .graph_picture import graph_picture
from .layers import Tree, depth_within, tree_of
from .markup import render
from .memory import memory_chart, places_of
from .profile import Profile
from .roofline import roofline
from .sources import Source, sources_of
from .tables import kernel_table, launch_table, layers_text
from .timeline import timeline

_MOST_LINKS = 12  # from a kernel to its launches and sources


def write_report(f: Executable, provenance: Provenance, path: str | os.PathLike[str]) -> None:
    """Writes the HTML report of an executable to `path`, with the times of the last profile if there is one.

    Raises OutputFileError if the file cannot be written, before the report is made if that can be seen.
    """
    check_place(path)
    write_text(path, _page(facts_of(f, provenance)))


def _page(x: Facts) -> str:
    """Returns the whole report as HTML."""
    tree = tree_of([(s.layers[0] if s.layers else "", i) for i, s in enumerate(x.steps)])
    dims = x.dims()
    return render(
        "report.html",
        name=x.f.interface.name,
        facts=_header(x),
        is_timed=x.total > 0,
        roofline=roofline(x),
        timeline=timeline(x),
        layers=_layer(x, tree, x.f.interface.name, 0, depth_within(tree, MOST_ROWS)),
        graph=graph_picture(x),
        hot=kernel_table(x),
        launches=launch_table(x),
        kernels=_kernels(x, sources := sources_of(x)),
        sources=[{"place": s.place, "text": s.text, "kernels": [_kernel(x, func) for func in s.kernels]} for s in sources],
        dims=", ".join(f"{v.name} = {n}" for v, n in dims.items()),
        memory=memory_chart(places_of(x.provenance), dims),
        program=Texts().take(str(x.provenance.program)),
        compiler_steps=_compiler_steps(x),
    )


def _header(x: Facts) -> list[tuple[str, str]]:
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
        ("workspace", _workspace(x)),
    ]
    if p is not None:
        facts.append(("profiled run", _run_text(p)))
    slow = [f"{r.program.partition('(')[0]}: {warning}" for r in f.interface.rules for warning in r.warnings]
    facts.append(("warnings", "\n".join(slow)))
    if x.machine is not None:
        facts.append(("machine", f"measured: {per_second(x.machine.operations, 'FLOP')}, reads {per_second(x.machine.bytes, 'B')}"))
    return facts


def _workspace(x: Facts) -> str:
    """Returns the size of the workspace at the dims of the profiled run, if there was one, and its formula."""
    formula, p = workspace_text(x.f.interface), x.profile
    if p is None or not p.dims:
        return formula
    size = x.f.workspace_of([p.dims[s.name] for s in x.f.dims])
    return f"{in_bytes(size)} at {', '.join(f'{k} = {v}' for k, v in p.dims.items())}\n{formula}"


def _run_text(p: Profile) -> str:
    """Returns the fastest run as text, with the median and the slowest of all runs if there were several."""
    dims = ", ".join(f"{k} = {v}" for k, v in p.dims.items()) or "no dims"
    slowest = f", median {statistics.median(p.walls) / 1e6:.3f} ms, slowest {max(p.walls) / 1e6:.3f} ms" if len(p.walls) > 1 else ""
    runs = f"fastest of {p.runs} runs{slowest}, " if slowest else ""
    threads = f"{p.threads} thread{'s' * (p.threads != 1)}"
    return f"{p.wall / 1e6:.3f} ms, {runs}{threads}, {dims}; {p.in_kernels / max(1, p.wall):.1%} in kernels"


# Layers.


def _layer(x: Facts, tree: Tree, name: str, depth: int, deepest: int) -> dict[str, Any]:
    """Returns a layer with its sublayers and launches as a dict for the template; the first three levels are open.

    A layer at the depth `deepest` has only the number of its launches and their time.
    """
    every = tree.every()
    is_whole = depth < deepest
    is_leaf = is_whole and len(every) == 1 and not tree.children
    own = [{"number": i, "kernel": _kernel(x, x.steps[i].func), "share": _share(x, [i])} for i in tree.own]
    return {
        "name": name,
        "is_leaf": is_leaf,
        "is_open": depth < 3,
        "count": _count(every),
        "share": _share(x, every),
        "children": [_layer(x, child, label, depth + 1, deepest) for label, child in tree.children.items()] if is_whole else [],
        "launches": own if is_whole else [],
    }


def _count(which: Sequence[int]) -> str:
    return f"{len(which)} launch{'es' * (len(which) != 1)}"


def _share(x: Facts, which: Sequence[int]) -> dict[str, str] | None:
    """Returns the time of launches and its share of all kernel time, as texts; None without a profile."""
    times = x.measured(which)
    if not times or not x.total:
        return None
    spent = sum(t.duration for t in times)
    return {"time": f"{spent / 1e6:.3f}", "percent": f"{spent / x.total:.1%}"}


def _kernel(x: Facts, func: Func) -> dict[str, Any]:
    return {"number": x.numbers[func], "name": x.name(func)}


# Kernels.


def _kernels(x: Facts, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Returns the kernels as dicts for the template; those that take the most time come first."""
    texts = Texts()
    shown = list(x.launched().items())[:MOST_ROWS]
    entries = [_kernel_entry(x, func, which, texts) for func, which in shown]
    for entry, (func, _) in zip(entries, shown, strict=True):
        entry["sources"] = [{"number": k, "place": s.place} for k, s in enumerate(sources) if func in s.kernels][:_MOST_LINKS]
    return entries


def _kernel_entry(x: Facts, func: Func, which: Sequence[int], texts: Texts) -> dict[str, Any]:
    """Returns a kernel with its logical program, scheduled program and assembly, as a dict for the template."""
    logical = next((s.logical for i in which if (s := x.steps[i]).logical is not None), None)
    programs = [("what it computes", print_func(func_of(logical.callee)))] if logical is not None else []
    programs += [("as it is scheduled", print_func(func)), ("assembly", "" if texts.is_full else kernel_assembly(func, x.provenance))]
    return {
        "kernel": _kernel(x, func),
        "count": _count(which),
        "launches": which[:_MOST_LINKS],
        "shapes": _shapes(func),
        "share": _share(x, which),
        "layers": layers_text([layer for i in which for layer in x.steps[i].layers]),
        "programs": [(title, texts.take(text)) for title, text in programs],
    }


def _shapes(func: Func) -> str:
    """The shapes of a kernel's inputs and outputs, which tell apart kernels of the same name."""
    buffers = [(p.role, p.value) for p in func.params if isinstance(p.value, Buffer)]
    sides = [", ".join(_shape(b) for role, b in buffers if role in roles) for roles in (("in", "inout"), ("out", "inout"))]
    return " \u2192 ".join(sides)


def _shape(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(str(e) for e in buffer.shape)}]"


# Steps of the compiler.


def _compiler_steps(x: Facts) -> list[dict[str, Any]]:
    """Returns the steps of the compiler as dicts for the template; what changed has room before whole programs have."""
    found, texts = list(compiler_steps(x.provenance)), Texts()
    diffs = [texts.take_diff(step.diff) for step in found]
    return [_compiler_step(step, diff, texts) for step, diff in zip(found, diffs, strict=True)]


def _compiler_step(step: CompilerStep, diff: str, texts: Texts) -> dict[str, Any]:
    """Returns a step; the program after it only if the step changed it."""
    text = texts.take(step.text) if step.diff else ""
    return {"name": step.name, "holds": step.holds, "added": step.added, "removed": step.removed, "diff": diff, "text": text}
