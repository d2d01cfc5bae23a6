"""The report of a compiled program: one self-contained HTML page.

    f.profile(x)                    # optional: the page then has times
    f.report("model.html")

It shows the graph as a tree of the user's layers, the launches (a launch runs one group of fused operators), the kernels with their
loop programs and assembly, the memory plan over time, and the text of the program.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ..loop.buffer import Buffer
from ..loop.printer import print_func
from ..loop.stmt import Func
from ..lower.callee import func_of
from ..provenance import Provenance
from ..runtime.contract import workspace_text
from ..runtime.executable import Executable
from ..support.units import in_bytes, per_second
from .assembly import assembly
from .launches import Step, steps
from .layers import Tree, tree_of
from .memory import memory_chart, places_of, typical
from .profile import Launch, Limits, Profile, limits
from .style import CSS, SCRIPT

_LINES = 3000  # longer assembly is truncated: browsers render huge pages slowly
_LONG, _SHORT = 600, 80  # a header entry longer than _LONG characters is folded, with its first _SHORT as the summary
_SECTIONS = (("layers", "Layers"), ("launches", "Launches"), ("kernels", "Kernels"), ("memory", "Memory"), ("program", "Program"))


class _Facts(NamedTuple):
    """The data that the sections of the page are rendered from."""

    f: Executable
    provenance: Provenance
    steps: Sequence[Step]
    numbers: dict[Func, int]  # kernel -> its number, in order of first use
    profile: Profile | None
    times: Sequence[Launch | None]  # the measured launch of each step; None without a profile
    machine: Limits | None


def write_report(f: Executable, provenance: Provenance, path: str | os.PathLike[str]) -> None:
    """Writes the page to `path`."""
    profile = provenance.profiled
    launched = steps(provenance, [x.kernel for x in profile.launches] if profile is not None else None)
    numbers = {func: i for i, func in enumerate(dict.fromkeys(s.func for s in launched))}
    fits = profile is not None and [x.kernel for x in profile.launches] == [s.name for s in launched]
    times: Sequence[Launch | None] = profile.launches if profile is not None and fits else [None] * len(launched)
    machine = limits(profile.threads) if profile is not None else None
    page = _page(_Facts(f, provenance, launched, numbers, profile, times, machine))
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)


def _page(x: _Facts) -> str:
    """The whole page as HTML."""
    name = escape(x.f.interface.name)
    parts = {"layers": _layers(x), "launches": _launches(x), "kernels": _kernels(x), "memory": _memory(x), "program": _program(x)}
    nav = "".join(f'<a href="#{key}">{title}</a>' for key, title in _SECTIONS)
    body = "".join(f'<section id="{key}"><h2>{title}</h2>{parts[key]}</section>' for key, title in _SECTIONS)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{CSS}</style></head><body><main>{_header(x)}<nav>{nav}</nav>{body}</main>"
        f"<script>{SCRIPT}</script></body></html>"
    )


def _header(x: _Facts) -> str:
    """The header: interface, target, sizes, and the profiled run if there is one."""
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
    if x.machine is not None:
        facts.append(("machine", f"{per_second(x.machine.operations, 'FLOP')}, reads {per_second(x.machine.bytes, 'B')}"))
    items = "".join(f'<dt>{k}</dt><dd class="mono">{_fact(v)}</dd>' for k, v in facts if v)
    return f"<header><h1>{escape(f.interface.name)}</h1><p>compiled by Pliant</p><dl>{items}</dl></header>"


def _fact(text: str) -> str:
    """An entry of the header as HTML; a very long one, such as a workspace formula, is folded."""
    shown = escape(text).replace("\n", "<br>")
    if len(text) <= _LONG:
        return shown
    return f"<details><summary>{escape(text[:_SHORT])} … ({len(text)} characters)</summary>{shown}</details>"


# Layers.


def _layers(x: _Facts) -> str:
    """The section with the tree of layers."""
    tree = tree_of([(s.layers[0] if s.layers else "", i) for i, s in enumerate(x.steps)])
    total = sum(t.duration for t in x.times if t is not None)
    note = "<p>Shares are of the time in kernels.</p>" if total else ""
    return f'{note}<div class="tree">{_branch(x, tree, x.f.interface.name, total, depth=0)}</div>'


def _branch(x: _Facts, tree: Tree, name: str, total: int, depth: int) -> str:
    """A layer of the tree with its sublayers and launches; the first three levels are open."""
    every = tree.every()
    if len(every) == 1 and not tree.children:
        return f'<div class="row">{escape(name)}{_launch(x, every[0], total)}</div>'
    shown = f'<span class="soft">{_count(every)}</span>{_share(x, every, total)}'
    inner = "".join(_branch(x, child, label, total, depth + 1) for label, child in tree.children.items())
    own = "".join(f'<div class="row">{_launch(x, i, total)}</div>' for i in tree.own)
    opened = " open" if depth < 3 else ""
    return f'<details{opened}><summary class="row">{escape(name)} {shown}</summary>{inner}{own}</details>'


def _launch(x: _Facts, i: int, total: int) -> str:
    """A launch in the tree: its kernel and its share of the time."""
    return f'{_kernel_link(x, i)}<span class="soft">launch {i}</span>{_share(x, [i], total)}'


def _count(which: Sequence[int]) -> str:
    return f"{len(which)} launch{'es' * (len(which) != 1)}"


def _share(x: _Facts, which: Sequence[int], total: int) -> str:
    """The time of launches with a bar; empty without a profile."""
    times = [t for i in which if (t := x.times[i]) is not None]
    if not times or not total:
        return ""
    spent = sum(t.duration for t in times)
    share = spent / total
    return f'<span class="time">{spent / 1e6:.3f} ms <span class="bar"><i style="width:{share:.1%}"></i></span><b>{share:.1%}</b></span>'


def _kernel_link(x: _Facts, step: int) -> str:
    func = x.steps[step].func
    return f'<a href="#kernel-{x.numbers[func]}">{escape(func.name)}</a>'


# Launches.


def _launches(x: _Facts) -> str:
    """The section with the table of launches."""
    timed = any(t is not None for t in x.times)
    head = ["", "kernel", "layers", *(["ms", "share", "operations", "memory", "of limit"] if timed else [])]
    cells = "".join(f'<th class="n">{h}</th>' if i > 2 or i == 0 else f"<th>{h}</th>" for i, h in enumerate(head))
    rows = "".join(_launch_row(x, i, timed) for i in range(len(x.steps)))
    return (
        "<p>A launch computes a group of operators that were fused; its name tells which. Shares are of the whole run. "
        "Limits are those of arithmetic and of memory, whichever binds; what comes from a cache can exceed the latter.</p>"
        f'<input id="filter" placeholder="filter by kernel or layer" aria-label="filter"><div class="scroll"><table>'
        f"<thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _launch_row(x: _Facts, i: int, timed: bool) -> str:
    """A row of the table of launches."""
    step, t = x.steps[i], x.times[i]
    cells = [f'<td class="n">{i}</td>', f"<td>{_kernel_link(x, i)}</td>", f"<td>{escape(', '.join(step.layers))}</td>"]
    if timed:
        cells += [f'<td class="n">{c}</td>' for c in (_timed(t, x) if t is not None else [""] * 5)]
    return f"<tr>{''.join(cells)}</tr>"


def _timed(t: Launch, x: _Facts) -> list[str]:
    """The cells with times and rates of a profiled launch."""
    assert x.profile is not None and x.machine is not None
    shown = [f"{t.duration / 1e6:.3f}", f"{t.duration / max(1, x.profile.wall):.1%}"]
    limit = t.of_limit(x.machine)
    if limit is None or t.operations is None or t.bytes is None:
        return [*shown, "", "", ""]
    seconds = t.duration * 1e-9
    operations = per_second(t.operations / seconds, "FLOP") if t.operations else ""
    return [*shown, operations, per_second(t.bytes / seconds, "B"), f"{limit:.0%}"]


# Kernels.


def _kernels(x: _Facts) -> str:
    """The section with the kernels, those that take the most time first."""
    code = assembly(x.provenance)
    spent = dict.fromkeys(x.numbers, 0)
    for step, t in zip(x.steps, x.times, strict=True):
        spent[step.func] += t.duration if t is not None else 0
    order = sorted(x.numbers, key=lambda func: -spent[func])
    return "".join(_kernel(x, func, x.numbers[func], code.get(func.name, "")) for func in order)


def _kernel(x: _Facts, func: Func, number: int, code: str) -> str:
    """A kernel with its logical program, its scheduled program and its assembly."""
    which = [i for i, s in enumerate(x.steps) if s.func is func]
    total = sum(t.duration for t in x.times if t is not None)
    logical = next((s.logical for i in which if (s := x.steps[i]).logical is not None), None)
    parts = [("what it computes", print_func(func_of(logical.callee)))] if logical is not None else []
    parts += [("as it is scheduled", print_func(func)), ("assembly", _shortened(code))]
    blocks = "".join(f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>" for title, text in parts if text)
    head = f'<strong>{escape(func.name)}</strong><span class="soft">{_count(which)}</span>{_shapes(func)}{_share(x, which, total)}'
    return f'<details class="kernel" id="kernel-{number}"><summary class="row">{head}</summary>{blocks}</details>'


def _shapes(func: Func) -> str:
    """The shapes of a kernel's inputs and outputs, which tell apart kernels of the same name."""
    buffers = [(p.role, p.value) for p in func.params if isinstance(p.value, Buffer)]
    sides = [", ".join(_shape(b) for role, b in buffers if role in roles) for roles in (("in", "inout"), ("out", "inout"))]
    text = escape(" \u2192 ".join(sides))
    return f'<span class="mono soft shapes" title="{text}">{text}</span>'


def _shape(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(str(e) for e in buffer.shape)}]"


def _shortened(text: str) -> str:
    """The first lines of a text, with the number of omitted lines."""
    lines = text.splitlines()
    more = len(lines) - _LINES
    return text if more <= 0 else "\n".join([*lines[:_LINES], f"… {more} further lines"])


# Memory and text.


def _memory(x: _Facts) -> str:
    """The section with the memory plan, for the profiled dims or example values."""
    host = x.provenance.lowered.host
    assert host is not None
    symbols = host.layout.symbols
    dims = typical(symbols)
    if x.profile is not None:
        dims |= {v: x.profile.dims[v.name] for v in symbols if v.name in x.profile.dims}
    shown = ", ".join(f"{v.name} = {n}" for v, n in dims.items())
    note = (
        f"<p>For {escape(shown)}. Each box is a temporary: from its first to its last step, at its place in the workspace.</p>"
        if dims
        else ""
    )
    return note + memory_chart(places_of(x.provenance), dims)


def _program(x: _Facts) -> str:
    """The section with the text of the graph program."""
    return f"<details><summary>the graph program as text</summary><pre>{escape(str(x.provenance.program))}</pre></details>"
