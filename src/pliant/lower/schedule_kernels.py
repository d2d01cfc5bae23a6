"""Prepares the loop programs of a function for code generation: schedules them, lifts their workspace, and shares equal ones.

In checked mode the scheduled programs get their checks here. This comes before workspace is lifted, because the checks need workspace too.

A kernel that another program has compiled comes from the cache (`kernel_store.py`) with its code, and without a body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..backend import backend_of
from ..graph import node as g
from ..graph.stage import Stage
from ..loop.analysis.nests import blocks
from ..loop.attributes import FuncAttrs
from ..loop.buffer import Buffer
from ..loop.lowering import Named, Watch
from ..loop.passes.add_checks import add_checks
from ..loop.printer import print_func
from ..loop.stmt import Call, Func, Param, Seq, walk_stmts
from ..loop.structural import canonical_text, structural_hash
from ..runtime.interface import Choice, Rule
from ..schedule.decisions import Decision, Decisions, OfKernel, shown
from ..schedule.domains import Value
from ..schedule.records import Found, Record, kernel_key
from ..support.cancellation import stop_if_asked
from ..support.errors import Error, ScheduleError, UnsupportedError
from ..support.progress import kernel_begins
from ..support.record import dataclass
from ..sym.expr import Expr, Var, free_vars, substitute
from ..target import Target
from .callee import callee_of, func_of, map_calls
from .host.lift_workspace import lift_workspace
from .host.reuse_outputs import reuse_outputs
from .kernel_store import KernelFacts, KernelStore, Scratch
from .ops.lower_ops import func_of_stages

if TYPE_CHECKING:
    from ..backend.base import Assembly


@dataclass(frozen=True, slots=True)
class ScheduledKernel:
    """A scheduled loop program, its scratch parameters, and the scalar arguments that became symbols because scratch shapes use them."""

    func: Func
    before: Func  # still with its workspace allocations: analyses of blocks need their lifetimes
    scratch: tuple[Buffer, ...]
    sizes: tuple[tuple[int, Var], ...]  # (position among the arguments, symbol)
    rule: Rule
    source: Func | None = None  # the program before it was scheduled, if the kernel may be kept for other programs
    loaded: bool = False  # from the cache, so the programs above have no body


# The passes that each kernel goes through between its schedule and the passes of `loop/lowering.py`.
KERNEL_PASSES: tuple[Named, ...] = (
    Named("reuse_outputs", "replaces workspace by the output that the last block computes from it elementwise"),
    Named("add_checks", "in checked mode, adds checks that fail where the program would do something undefined"),
    Named("lift_workspace", "turns workspace of a kernel into parameters, which the memory plan of the host program places"),
)


class Kernels:
    """All kernels of one compilation, by structural hash: structurally equal loop programs are scheduled and compiled once."""

    def __init__(
        self,
        target: Target,
        checked: bool = False,
        assembly: Assembly | None = None,
        decisions: Decisions | None = None,
        watch: Watch | None = None,
        store: KernelStore | None = None,
    ) -> None:
        self.target = target
        self.store = store  # kernels that other programs have compiled
        self.watch = watch  # called after each of KERNEL_PASSES
        self.decisions = decisions or Decisions()
        self.backend = backend_of(target)
        self.checked = checked
        self.assembly = assembly  # if set, code generation of each kernel starts as soon as it is scheduled
        self.calls = self.begun = 0  # the calls of the function that is scheduled, and how many of them were begun
        self.scheduled: dict[bytes, ScheduledKernel] = {}
        self.known: dict[tuple[Func, bool], bytes] = {}  # cache of hashes

    def function(self, f: g.Function) -> g.Function:
        """Returns the function with each of its loop programs replaced by the scheduled kernel."""
        self.calls = sum(isinstance(n, g.CallLoop) for n in g.walk_nodes(f.nodes))
        return f.with_(nodes=map_calls(f.nodes, self.call))

    def call(self, n: g.CallLoop) -> g.Node:
        """Returns the call of the scheduled kernel, with scratch memory as additional results."""
        called = func_of(n.callee)
        if self.checked and called.span is None:  # the program of an operator: messages point at the call
            called = called.with_(span=n.span)
        kernel_begins(self.begun, self.calls)
        self.begun += 1
        kernel = self.schedule_kernel(called, self.checked)
        values = dict(zip(kernel.func.symbols, n.dims, strict=False)) | {v: _size(n, i) for i, v in kernel.sizes}
        scalars = {i for i, _ in kernel.sizes}
        extra = tuple(g.Value(b.name, g.Tensor(b.dtype, tuple(substitute(e, values) for e in b.shape))) for b in kernel.scratch)
        return n.with_(
            callee=callee_of(kernel.func),
            args=tuple(a for i, a in enumerate(n.args) if i not in scalars),
            dims=tuple(values[v] for v in kernel.func.symbols),
            outs=(*n.outs, *extra),
        )

    def schedule_kernel(self, func: Func, checked: bool) -> ScheduledKernel:
        """Returns the scheduled kernel for `func`; schedules it if no structurally equal program was scheduled before.

        With `checked`, run-time checks are added, and names must be equal too.
        """
        key = self.known.get((func, checked))
        if key is None:
            key = self.known[func, checked] = named_hash(func) if checked else structural_hash(func)
        if key not in self.scheduled:
            stop_if_asked()
            record = self._record(func)
            known = None if record is not None else self._found(func, key, checked)
            self.scheduled[key] = known or self._scheduled(func, key, checked, record)
        return self.scheduled[key]

    def _record(self, func: Func) -> Found | None:
        """Returns the record of tuning that serves a program; None if there is none, or the program was scheduled by hand."""
        records = self.decisions.records
        return None if records is None or func.attrs.scheduled else records.find(kernel_key(func, self.target))

    def _by_rules(self, func: Func, content: str, found: Found | None) -> tuple[Func, str, OfKernel, str]:
        """Returns the program scheduled by the rules, why, its decisions, and the record of tuning that it took ("": none).

        A record of modules schedules without the rules, unless the user asks for decisions, which are those of rules.
        """
        if found is not None and found.record.modules:
            made, problem = self._by_modules(func, found)
            if made is not None:
                return made, tuned(found), self.decisions.of_kernel(func.name, content), found.record.line()
            scheduled, why, decisions, _ = self._by_rules(func, content, None)
            return scheduled, f"{why}; a record of tuning does not fit: {problem}", decisions, ""
        decisions = self.decisions.of_kernel(func.name, content, recorded_values(found, func))
        try:
            scheduled, why = self.backend.schedule(func, self.target, decisions)
            problem = reordering(decisions)
        except ScheduleError as error:
            if found is None:
                raise
            problem = error.what
        if found is None:
            return scheduled, why, decisions, ""
        if not problem:
            return scheduled, f"{why}; {tuned(found)}", decisions, found.record.line()
        decisions = self.decisions.instead_of(decisions, content)
        scheduled, why = self.backend.schedule(func, self.target, decisions)
        return scheduled, f"{why}; a record of tuning does not fit: {problem}", decisions, ""

    def _by_modules(self, func: Func, found: Found) -> tuple[Func | None, str]:
        """Returns the program that the modules of a record make, or None and why the record does not apply."""
        if self.decisions.values:
            return None, "decisions are asked for"
        try:
            return replayed_record(found.record, func, self.target), ""
        except Error as error:
            return None, error.what

    def _scheduled(self, func: Func, key: bytes, checked: bool, found: Found | None) -> ScheduledKernel:
        """Returns the kernel after its schedule and `KERNEL_PASSES`; starts its code generation.

        A kernel with a record of tuning is not kept for other programs: its code depends on more than its content.
        """
        scheduled, why, decisions, record = self._by_rules(func, key.hex(), found)
        if not func.attrs.scheduled:
            scheduled = self._told("reuse_outputs", scheduled, reuse_outputs(scheduled))
        before = self._told("add_checks", scheduled, add_checks(scheduled)) if checked else scheduled
        lifted, scratch = lift_workspace(before)
        self._told("lift_workspace", before, lifted)
        rule = Rule(_signature(func), why, key.hex()[:8], choices(decisions.made.values()), record)
        params, sizes = _parameters(scheduled.params, lifted.params, scratch)
        same = [(p.value, p.role) for p in func.params] == [
            (p.value, p.role) for p in scheduled.params
        ] and lifted.attrs == _scheduled_attrs(func)
        plain = same and found is None and all(d.kind != "layout" for d in decisions.made.values())
        kernel = ScheduledKernel(lifted.with_(params=params), before, scratch, sizes, rule, func if plain and not checked else None)
        if self.assembly is not None:
            self.assembly.kernel(kernel.func, "" if checked else key.hex()[:32])
        return kernel

    def _found(self, func: Func, key: bytes, checked: bool) -> ScheduledKernel | None:
        """Returns a kernel that another program has compiled, without its body; None if there is none."""
        machine = self._machine()
        if checked or self.store is None or self.assembly is None or machine is None:
            return None
        found = self.store.find(func, canonical_text(func), machine)
        if found is None:
            return None
        facts, code = found
        scratch = tuple(Buffer(s.name, s.dtype, s.shape) for s in facts.scratch)
        params, sizes = _parameters(func.params, (*func.params, *(Param(b, "out") for b in scratch)), scratch)
        called = func.with_(params=params, body=Seq(()), attrs=_scheduled_attrs(func))
        self.assembly.add(called, code)
        rule = Rule(_signature(func), facts.why, key.hex()[:8], facts.choices)
        return ScheduledKernel(called, called, scratch, sizes, rule, loaded=True)

    def keep(self) -> None:
        """Puts the kernels that were compiled into the cache of kernels; called when the whole program has been compiled."""
        machine = self._machine()
        if self.store is None or self.assembly is None or machine is None:
            return
        for kernel in self.scheduled.values():
            code = self.assembly.code_of(kernel.func)
            if kernel.source is not None and code is not None:
                scratch = tuple(Scratch(b.name, b.dtype, b.shape) for b in kernel.scratch)
                facts = KernelFacts(scratch, kernel.rule.why, kernel.rule.choices)
                self.store.put(kernel.source, canonical_text(kernel.source), machine, facts, code)

    def _machine(self) -> str | None:
        """Returns the text of the target that kernels are scheduled for, and of what their code depends on."""
        code = None if self.assembly is None else self.assembly.cache_key
        return None if code is None else f"{self.target!r} {code}"

    def _told(self, name: str, before: Func, after: Func) -> Func:
        """Reports the result of a kernel pass to the `watch` callback, if there is one; returns `after`."""
        if self.watch is not None:
            self.watch(next(p for p in KERNEL_PASSES if p.name == name), before, after)
        return after

    def rules(self) -> tuple[Rule, ...]:
        """Returns which schedule rule took each kernel, with the reason, without repetitions."""
        return tuple(dict.fromkeys(r.rule for r in self.scheduled.values()))

    def layouts(self) -> tuple[Choice, ...]:
        """Returns the layout decisions that were made before scheduling, those with a choice, as records of text."""
        layouts = {d.name: d for part in self.decisions.kernels for d in part.made.values() if d.kind == "layout"}
        return choices(layouts.values())

    def copy(self, t: g.Tensor) -> tuple[Func, tuple[Expr, ...]]:
        """Returns a scheduled kernel that copies a tensor, and the values of its symbols: the variables of the shape."""
        stage = Stage("copy", t.dtype, t.shape, lambda i, r, read: read(0, *i))
        func, _ = func_of_stages("copy", (Buffer("x0", t.dtype, t.shape, t.strides),), (stage,), 1)
        return self.schedule_kernel(func, checked=False).func, func.symbols  # an equal kernel over other variables may be reused


def _parameters(
    given: Sequence[Param], lifted: Sequence[Param], scratch: Sequence[Buffer]
) -> tuple[tuple[Param, ...], tuple[tuple[int, Var], ...]]:
    """Returns the parameters of a kernel with scratch memory, and which scalar arguments become symbols because its shapes use them."""
    used = {v for b in scratch for e in b.shape for v in free_vars(e)}
    inputs = [p.value for p in given if p.role != "out"]
    sizes = tuple((i, v) for i, v in enumerate(inputs) if isinstance(v, Var) and v in used)
    return tuple(p for p in lifted if p.value not in used), sizes


def _scheduled_attrs(func: Func) -> FuncAttrs:
    return replace(func.attrs, scheduled=True)


def _signature(func: Func) -> str:
    return f"{func.name}({', '.join(repr(b) for b in func.buffers)})"


def choices(decisions: Iterable[Decision]) -> tuple[Choice, ...]:
    """Returns the decisions that had more than one possible value, as records of text for reports."""
    return tuple(Choice(d.name, shown(d.value), d.values(), d.reason, d.reorders) for d in decisions if d.domain.size > 1)


def recorded_values(found: Found | None, func: Func) -> dict[str, Value]:
    """Returns the decisions of a record under the names of the blocks of a program; those about other blocks are dropped."""
    names = {str(n): b.name for n, b in enumerate(blocks(func.body))}
    values = {} if found is None else found.record.decisions
    parts = ((name.partition("."), v) for name, v in values.items())
    return {f"{names[number]}.{what}": v for (number, _, what), v in parts if number in names}


def reordering(decisions: OfKernel) -> str:
    """Returns why a record may not be used: a value that it gave has turned out to reorder a sum; "" if none has."""
    wrong = (d for d in decisions.made.values() if d.reorders and d.name in decisions.recorded and d.value != d.default)
    return next((f"`{d.name}` reorders a sum" for d in wrong), "")


def replayed_record(record: Record, func: Func, target: Target) -> Func:
    """Returns the program that the modules of a record make, verified; raises an Error if the record does not apply."""
    from ..loop.verify import verify
    from ..schedule.spaces.replay import scheduled

    made = scheduled(record.modules, record.decisions, func, target)
    verify(made, claims=False)
    return made


def tuned(found: Found) -> str:
    """Returns for `pliant.explain` which record was taken."""
    by = f", scheduled by {', '.join(f'`{m}`' for m in found.record.modules)}" if found.record.modules else ""
    return f"tuned: {found.record.described()}{by}" + (f" ({found.remark})" if found.remark else "")


def _size(n: g.CallLoop, position: int) -> Expr:
    """Returns the value of a scalar argument that a scratch size depends on; raises if it is not known from dims."""
    value = n.args[position]
    if isinstance(value, g.Value) and isinstance(value.annotation, g.Scalar) and value.annotation.value is not None:
        value = value.annotation.value
    if isinstance(value, Expr):
        return value
    raise UnsupportedError(
        f"`{n.callee.name}` needs memory of a size that is known only while the program runs: it depends on `{value.name}`",
        where=n.span,
        help="let the size depend on dims alone",
    )


def named_hash(func: Func) -> bytes:
    """Returns a hash for checked mode: it also covers names and source positions, because error messages contain them."""
    places = [func.span, *(s.span for s in walk_stmts(func.body))]
    callees = [named_hash(s.func) for s in walk_stmts(func.body) if isinstance(s, Call)]
    return structural_hash(func) + hashlib.sha256(repr((print_func(func), places, callees)).encode()).digest()
