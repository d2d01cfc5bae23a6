"""Builds the host program: the loop program `run` that calls the kernels of a lowered graph function in order.

`run` binds the symbolic dims, puts shaped views over the raw argument and output pointers, slices the workspace by the memory plan, and
calls the kernels. A graph `if` on a value that a kernel computed becomes an `if` statement. Arithmetic on host scalars becomes
expressions. The first buffer of `run` is the `dims` array of the ABI; the others are raw bytes: arguments, outputs, constants.

Copy elision (`lower.host.copy_elision`) removes calls that only copy contiguous ranges. If it removes more of them when a dim is 1, `run`
has two variants, each with its own memory plan, and chooses between them at run time.

Poison mode finds memory-plan bugs: it fills every temporary with bytes 0xFF (NaN for floats) before its first write and after its last
use. So a plan that reuses memory too early, or a kernel that reads uninitialized memory, gives visibly wrong results.

    @kernel
    def run(dims: InOut[i64, 9], x_raw: Tensor[u8, 2147483647], y_raw: Out[u8, 2147483647]) -> None:
        n = dims[4]
        x = view(x_raw[0], (n, 64), dtype=f32)
        y = view(y_raw[0], (n, 64), dtype=f32)
        workspace = alloc((n * 256,), u8, scope="workspace")
        t = view(workspace[0], (n, 64), dtype=f32)
        silu(x, t, dims=(n,))
        neg(t, y, dims=(n,))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...dtype import u8
from ...graph import node as g
from ...graph.node import annotation_exprs
from ...graph.operators import tensor_of
from ...loop.buffer import Buffer
from ...loop.stmt import Alloc, Call, Func, If, Param, Seq, Stmt, Store, View, walk_stmts
from ...support.record import dataclass
from ...sym.conditions import all_of
from ...sym.expr import Eq, Expr, Select, Var, free_vars, substitute
from ...sym.simplify import simplify
from .argument_checks import Layout, const, entry, layout_of, prepare_func, size_func
from .capacity import at_capacity, run_time_dims
from .copy_elision import NO_ELISION, CopyElision, Places, Ranges, choose_places
from .host_memory import CopyKernel, Output, bytes_of, is_view
from .host_nodes import NodeEmitter
from .memory_plan import Plan, Temporary, plan_memory
from .runtime_dims import RunTimeDims, counted_by
from .state_versions import aliases_of, versions


@dataclass(frozen=True, slots=True)
class HostProgram:
    """The host program of a compiled function: its entry functions `prepare`, `size` and `run`, and the facts that its package records."""

    prepare: Func
    size: Func
    run: Func
    layout: Layout
    outputs: tuple[Output, ...]
    constants: tuple[g.Const, ...]
    plan: Plan  # offsets of the first variant; the size covers all variants
    temporaries: tuple[Temporary, ...]
    launches: tuple[tuple[g.CallLoop | None, ...], ...]  # the graph node of each kernel call, per variant; None for an inserted copy


def build_host(
    function: g.Function,
    copy_kernel: CopyKernel,
    poison: bool = False,
    share: bool = True,
    checked: bool = False,
    moves: CopyElision = NO_ELISION,
) -> HostProgram:
    """Returns the host program of a lowered function.

    `copy_kernel` makes a kernel that copies a tensor. With `share`, temporaries that are not alive together share memory; with `poison`,
    they are filled with NaN outside of their lifetime; with `checked`, host scalars are checked for overflow. `moves` are the copies to
    elide.
    """
    limits = run_time_dims(function)
    results = [tensor_of(g.made(r.annotation)) for r in function.results]
    counts = tuple(dict.fromkeys(e for t in results for e in t.shape if not free_vars(e).isdisjoint(limits)))
    layout = layout_of(function, [at_capacity(t, limits) for t in results], counts)
    aliases = aliases_of(function)
    names = [name if a is None else function.params[a].name for name, a in zip(layout.names, aliases, strict=True)]
    outputs = tuple(Output(name, t, a, counted_by(t, counts)) for name, t, a in zip(names, results, aliases, strict=True))
    run = Run(function, outputs, layout, copy_kernel, RunTimeDims(limits), checked=checked)
    run.outside()
    ways = run.ways(moves, share, poison)
    size = ways[0].plan.size if len(ways) == 1 else Select(_all_1(moves.ones), *(w.plan.size for w in ways))
    requires = [r for n in function.nodes for r in n.requires if free_vars(r.cond).isdisjoint(limits)]
    shapes = [(f"output `{name}`", t.shape) for name, t in zip(names, layout.outputs, strict=True)]
    shapes += [(f"the temporary `{t.buffer.name}`", t.buffer.shape) for w in ways for t in w.run.temps]
    shapes += _views(function)
    return HostProgram(
        prepare_func(layout, requires, shapes, size),
        size_func(layout, shapes, size),
        run.finish(ways, _all_1(moves.ones), size),
        layout,
        outputs,
        tuple(run.constants),
        Plan(ways[0].plan.offsets, size),
        ways[0].temporaries,
        tuple(w.launches() for w in ways),
    )


def _views(function: g.Function) -> list[tuple[str, tuple[Expr, ...]]]:
    """Returns the shapes of reshaped values, to be checked for overflow: a wrapped product could match the true size by accident."""
    known = {v for p in function.params for e in annotation_exprs(p.annotation) for v in free_vars(e)}
    views = [n.outs[0] for n in g.walk_nodes(function.nodes) if is_view(n) and isinstance(n.outs[0].annotation, g.Tensor)]
    return [(f"`{v.name}`", v.tensor.shape) for v in views if all(free_vars(e) <= known for e in v.tensor.shape)]


def _all_1(dims: Iterable[Var]) -> Expr:
    return all_of(*(Eq(d, const(1)) for d in dims))


@dataclass(slots=True)
class Run(NodeEmitter):
    """Builds `run`: walks the nodes once and numbers the steps, which gives the lifetime of each temporary for the memory plan."""

    def outside(self) -> None:
        """Creates the buffers of arguments, results and constants, which all variants share."""
        self.dims = self.layout.buffer()
        for p, at in self.layout.arguments():
            self.argument(p, at)
        self.targets = [self.output(i, o) for i, o in enumerate(self.outputs)]
        self.find_constants(self.function.nodes)
        self.consumed = {old for n in g.walk_nodes(self.function.nodes) for old, _ in versions(n)}

    def ways(self, moves: CopyElision, share: bool, poison: bool) -> list[Way]:
        """Returns the general variant, preceded by one for dims of 1 if that one elides more copies.

        `share` and `poison` are those of `variant`.
        """
        first = self.fresh_way()
        general = first.variant(moves.always, frozenset(), share, poison)
        if not moves.case:
            return [general]
        second = self.fresh_way()
        special = second.variant(moves.case, moves.ones, share, poison)
        return [special, general] if len(second.places.joined) > len(first.places.joined) else [general]

    def fresh_way(self) -> Run:
        """Returns a new walk over the nodes that has only the buffers of arguments, results and constants."""
        clean: dict[str, Any] = {"home": {}, "temps": [], "placed": {}, "wanted": [], "flat": {}, "step": 0}
        return replace(self, values=dict(self.values), sizes=RunTimeDims(self.sizes.limits), places=Places(), **clean)

    def variant(self, moved: Ranges, ones: frozenset[Var], share: bool, poison: bool) -> Way:
        """Returns one variant: copies in `moved` are elided, under the assumption that the dims `ones` are 1, and its memory is planned.

        With `share`, temporaries that are not alive together share memory; with `poison`, they are filled with NaN around their lifetimes.
        """
        again = self.fresh_way() if poison else None
        body = self.body(moved, ones)
        known: dict[Var, Expr] = {d: const(1) for d in ones}
        temporaries = tuple(Temporary(simplify(substitute(bytes_of(t.buffer), known)), t.first, t.last) for t in self.temps)
        relations = [substitute(r.cond, known) for r in g.relations(self.function)]
        plan = plan_memory(temporaries, share, relations)
        if again is not None:  # poison needs the last use of each temporary, which only the first walk has found
            again.ends = [t.last for t in temporaries]
            return Way(again, again.body(moved, ones), plan, temporaries)
        return Way(self, body, plan, temporaries)

    def body(self, moved: Ranges, ones: frozenset[Var]) -> list[Stmt]:
        """Returns the statements of all nodes, copies of results that were not written in place, and stores of the run-time counts."""
        defined = {out: n for n in self.function.nodes for out in n.outs}
        for target, result in zip(self.targets, self.function.results, strict=True):
            if target is not None:
                self.place(result, target, defined)
        self.places = choose_places(self.function, moved, ones, self.placed)
        body = self.nodes(self.function.nodes)
        for target, result in zip(self.targets, self.function.results, strict=True):
            if target is not None:
                body += self.copy(result, target)
        at = self.layout.at_counts
        body += [Store(self.dims, (const(at + i),), e) for i, e in enumerate(self.layout.counts)]
        return [self.sizes.with_views(Seq(tuple(body)))] if self.sizes.bound else body

    def finish(self, ways: Sequence[Way], first: Expr, size: Expr) -> Func:
        """Returns the function `run`: the only variant, or both under the condition `first`."""
        workspace = Buffer("workspace", u8, (size,), scope="workspace")
        bodies = [Seq(w.statements(workspace)) for w in ways]
        body = bodies[0].body if len(ways) == 1 else (If(first, bodies[0], bodies[1]),)
        memory = [Alloc(workspace)] if any(w.temporaries for w in ways) else []
        dims = Param(self.dims, "inout" if self.layout.counts else "in")
        return entry("run", (dims, *self.raw), (*self.layout.load_symbols(self.dims), *self.prologue, *memory, *body), host=True)


@dataclass(frozen=True, slots=True)
class Way:
    """A record of one variant of the entry function `run`: the builder that made it, its statements, and its memory plan."""

    run: Run
    body: list[Stmt]
    plan: Plan
    temporaries: tuple[Temporary, ...]

    def statements(self, workspace: Buffer) -> tuple[Stmt, ...]:
        """Returns all statements of the variant; views that slice the workspace come first."""
        placed = list(zip(self.run.temps, self.plan.offsets, strict=True))
        raw = [View(t.raw, workspace, (at,)) for t, at in placed] if self.run.ends is not None else []
        return (*(View(t.buffer, workspace, (at,)) for t, at in placed), *raw, *self.run.wanted, *self.body)

    def launches(self) -> tuple[g.CallLoop | None, ...]:
        """Returns the graph node of each kernel call, in order; None for a copy that no node stands for."""
        return tuple(self.run.launched.get(s) for s in walk_stmts(Seq(tuple(self.body))) if isinstance(s, Call))
