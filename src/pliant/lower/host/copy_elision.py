"""Values that lie in the memory of others: parts of a result where it has them, instead of copies.

    a = conv(x); b = conv(a); y = concat(a, b)       ->      both convolutions write into y; the concat does not run
    z = slice(y); u = conv(z)                        ->      the convolution reads a part of y; the slice does not run

A value that is one range of another one is a *view* of it. Values that a later call puts side by side lie *within* its result from the
beginning, if they are fresh, wanted nowhere else and there as a whole; others are copied there, range by range. Concat, split, slice
and what fusion has made of several of them are the same: rows of ranges (`lower.host.contiguous_copies`).

A batch of one image is the common case in which channels are ranges. So a host program may have two ways, one for when a dim is 1
(`Case`), with a memory plan of its own; kernels are the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from ...graph import node as g
from ...graph.node import is_state
from ...graph.operators import TABLE
from ...support.record import dataclass
from ...sym.expr import Const, Dim, Expr, Var, const, free_vars, product, substitute
from ...sym.simplify import simplify
from .capacity import run_time_dims
from .contiguous_copies import Range, ranges_of

Ranges = Mapping[g.Value, tuple[Range, ...]]


@dataclass(frozen=True, slots=True)
class CopyElision:
    """The results of a function that are rows of ranges: always, and where some dims are 1."""

    always: Ranges
    ones: frozenset[Var] = frozenset()
    case: Ranges = field(default_factory=dict)


NO_ELISION = CopyElision({})


def copy_elision(function: g.Function) -> CopyElision:
    """What the calls of a function move; the dim that is assumed to be 1 is the one that most calls ask for, if any does."""
    calls = [n for n in function.nodes if isinstance(n, g.CallLoop)]
    unknown = run_time_dims(function)
    calls = [n for n in calls if all(free_vars(e).isdisjoint(unknown) for v in _tensors(n) for e in v.tensor.shape)]
    always = {n.outs[0]: r for n in calls if (r := ranges_of(n)) is not None}
    rest = {n: d for n in calls if n.outs and n.outs[0] not in always and (d := _leading(n.outs[0])) is not None}
    found = {n: r for n, d in rest.items() if (r := ranges_of(n, frozenset([d]))) is not None}
    if not any(len(r) > 1 for r in found.values()):  # what is only taken apart is mostly read where it lies
        return CopyElision(always)
    dim, _ = Counter(rest[n] for n in found).most_common(1)[0]
    return CopyElision(always, frozenset([dim]), {**always, **{n.outs[0]: r for n, r in found.items() if rest[n] is dim}})


def ranges_at_1(n: g.CallLoop) -> int:
    """How many ranges the result of a call consists of where its leading dim is 1; 0 where it is no row of ranges."""
    dim = _leading(n.outs[0]) if n.outs else None
    return len(ranges_of(n, frozenset([dim] if dim is not None else [])) or ())


def _tensors(n: g.CallLoop) -> list[g.Value]:
    values = [*n.outs, *(a for a in n.args if isinstance(a, g.Value))]
    return [v for v in values if isinstance(v.annotation, g.Tensor)]


def _leading(v: g.Value) -> Dim | None:
    """The first dim of a value, if it is one of a contract that allows 1."""
    first = v.tensor.shape[0] if isinstance(v.annotation, g.Tensor) and v.tensor.shape else None
    return first if isinstance(first, Dim) and first.min <= 1 and first.multiple_of == 1 else None


@dataclass(frozen=True, slots=True)
class Places:
    """Which values lie in others: as views, within results that are not made yet; and the ranges of results that are copied."""

    views: Mapping[g.Value, Range] = field(default_factory=dict)
    within: Mapping[g.Value, tuple[g.Value, Expr]] = field(default_factory=dict)
    joined: Mapping[g.Value, tuple[Range, ...]] = field(default_factory=dict)


def choose_places(function: g.Function, moved: Ranges, ones: frozenset[Var], placed: Collection[g.Value]) -> Places:
    """Where values lie; those that are `placed` have a place already, into which others may still come."""
    choice = _Choice(function, ones, placed)
    views = {v: r[0] for v, r in moved.items() if len(r) == 1 and v not in choice.fixed and not choice.is_updated(r[0].source)}
    choice.views = views
    joined: dict[g.Value, tuple[Range, ...]] = {}
    for n in reversed(function.nodes):
        if n.outs and len(moved.get(n.outs[0], ())) > 1 and (copied := choice.join(n.outs[0], moved[n.outs[0]])) is not None:
            joined[n.outs[0]] = copied
    return Places(views, choice.within, joined)


class _Choice:
    """What is known of the values of a function, and which of them have a place."""

    def __init__(self, function: g.Function, ones: frozenset[Var], placed: Collection[g.Value]) -> None:
        self.maker = {v: n for n in function.nodes for v in n.outs}
        self.fixed = {*function.params, *function.results, *placed}
        self.ones: dict[Var, Expr] = {v: const(1) for v in ones}
        self.views: Mapping[g.Value, Range] = {}
        self.within: dict[g.Value, tuple[g.Value, Expr]] = {}

    def is_updated(self, v: g.Value) -> bool:
        """Whether a value is state, or may lie in the memory of some."""
        while not is_state(v) and (made := self.maker.get(v)) is not None and _renames(made):
            v = g.node_args(made)[0]
        return is_state(v)

    def join(self, whole: g.Value, ranges: Sequence[Range]) -> tuple[Range, ...] | None:
        """Has what a result consists of lie within it; the ranges that are copied, or None where too much would be."""
        merged = self.merged([self.rooted(r) for r in ranges])
        own = [r for k, r in enumerate(merged) if self.may_lie_within(r) and all(r.source is not x.source for x in merged[:k])]
        copied = tuple(r for r in merged if r not in own)
        if len(copied) > len(own):
            return None
        self.within.update((r.source, (whole, r.at)) for r in own)
        return copied

    def rooted(self, r: Range) -> Range:
        """A range of what is not itself a part of something else."""
        while True:
            made = self.maker.get(r.source)
            if r.source in self.views:
                view = self.views[r.source]
                whole = view.whole and r.whole
                r = Range(view.source, simplify(view.start + r.start), r.at, r.count, whole)
            elif made is not None and _renames(made) and not is_state(source := g.node_args(made)[0]):
                r = Range(source, r.start, r.at, r.count, r.whole)
            else:
                return r

    def merged(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges, with those as one that are neighbors here and where they come from."""
        found: list[Range] = []
        for r in ranges:
            last = found[-1] if found else None
            if last is not None and last.source is r.source and r.start is simplify(last.start + last.count):
                count = simplify(last.count + r.count)
                size = simplify(substitute(product(r.source.tensor.shape), self.ones))
                found[-1] = Range(r.source, last.start, last.at, count, _is_0(last.start) and count is size)
            else:
                found.append(r)
        return found

    def may_lie_within(self, r: Range) -> bool:
        """Whether all of a value that a loop program makes is wanted in this range, and it has no place yet."""
        free = r.source not in self.fixed and r.source not in self.within and r.source not in self.views
        return r.whole and free and isinstance(self.maker.get(r.source), g.CallLoop)


def _renames(n: g.Node) -> bool:
    """Whether a node's result is its operand's memory, all of it, under another shape."""
    return isinstance(n, g.Op) and n.op == "reshape" and TABLE[n.op].view and isinstance(n.args[0].annotation, g.Tensor)


def _is_0(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0
