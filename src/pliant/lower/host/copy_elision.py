"""Copy elision: operands of concat are written straight into its result; slices and splits become views.

    a = conv(x); b = conv(a); y = concat(a, b)       ->      both convolutions write into y; the concat does not run
    z = slice(y); u = conv(z)                        ->      the convolution reads a part of y; the slice does not run

A value that is one contiguous range of another value becomes a *view* of it. An operand of a concat is allocated *within* the result if a
kernel computes it, the concat uses all of it, and it has no other place yet; other operands are copied, range by range. Operator names do
not matter: concat, split, slice and fused combinations of them are all sequences of contiguous ranges (`lower.host.contiguous_copies`).

Channels of an image are contiguous ranges only if the batch has one image, which is the common case. So the host program may have two
variants, one for a dim of 1 (`CopyElision.case`) with a memory plan of its own. Both call the same kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from ...graph import node as g
from ...graph.node import is_state
from ...graph.op_table import TABLE
from ...support.choices import worth
from ...support.record import dataclass
from ...sym.expr import Const, Dim, Expr, Var, const, free_vars, product, substitute
from ...sym.simplify import simplify
from .capacity import run_time_dims
from .contiguous_copies import Range, ranges_of

Ranges = Mapping[g.Value, tuple[Range, ...]]


@dataclass(frozen=True, slots=True)
class CopyElision:
    """A record of the values that are made of contiguous ranges of others: for all shapes, and more of them if the dims `ones` are 1."""

    always: Ranges
    ones: frozenset[Var] = frozenset()
    case: Ranges = field(default_factory=dict)


NO_ELISION = CopyElision({})


def copy_elision(function: g.Function) -> CopyElision:
    """Returns the copies of a function that may be elided: always, or if a certain dim is 1.

    The dim assumed to be 1 is the leading dim that makes the most calls elidable. There is none unless a concat profits.
    """
    calls = [n for n in function.nodes if isinstance(n, g.CallLoop)]
    unknown = run_time_dims(function)
    calls = [n for n in calls if all(free_vars(e).isdisjoint(unknown) for v in _tensors(n) for e in v.tensor.shape)]
    always = {n.outs[0]: r for n in calls if (r := ranges_of(n)) is not None}
    rest = {n: d for n in calls if n.outs and n.outs[0] not in always and (d := _leading(n.outs[0])) is not None}
    at_1 = {n: r for n, d in rest.items() if (r := ranges_of(n, frozenset([d]))) is not None}
    # Slices alone do not pay for a second variant: fusion has mostly folded them.
    if not at_1 or not worth(any(len(r) > 1 for r in at_1.values())):
        return CopyElision(always)
    dim, _ = Counter(rest[n] for n in at_1).most_common(1)[0]
    return CopyElision(always, frozenset([dim]), {**always, **{n.outs[0]: r for n, r in at_1.items() if rest[n] is dim}})


def ranges_at_1(n: g.CallLoop) -> int:
    """Returns the number of contiguous ranges that a call copies if its leading dim is 1; 0 if it does more than copy."""
    dim = _leading(n.outs[0]) if n.outs else None
    return len(ranges_of(n, frozenset([dim] if dim is not None else [])) or ())


def _tensors(n: g.CallLoop) -> list[g.Value]:
    values = [*n.outs, *(a for a in n.args if isinstance(a, g.Value))]
    return [v for v in values if isinstance(v.annotation, g.Tensor)]


def _leading(v: g.Value) -> Dim | None:
    """Returns the first dim of a value if it is symbolic and its contract allows 1, else None."""
    first = v.tensor.shape[0] if isinstance(v.annotation, g.Tensor) and v.tensor.shape else None
    return first if isinstance(first, Dim) and first.min <= 1 and first.multiple_of == 1 else None


@dataclass(frozen=True, slots=True)
class Places:
    """The result of copy elision: `views` of earlier values, values computed `within` later results, ranges that `joined` results copy."""

    views: Mapping[g.Value, Range] = field(default_factory=dict)
    within: Mapping[g.Value, tuple[g.Value, Expr]] = field(default_factory=dict)
    joined: Mapping[g.Value, tuple[Range, ...]] = field(default_factory=dict)


def choose_places(function: g.Function, moved: Ranges, ones: frozenset[Var], placed: Collection[g.Value]) -> Places:
    """Returns the places of values, chosen from the copies in `moved` if the dims `ones` are 1.

    Values in `placed` have theirs already, but other values may be placed within them.
    """
    choice = _Choice(function, ones, placed)
    views = {v: r[0] for v, r in moved.items() if len(r) == 1 and v not in choice.fixed and not choice.is_updated(r[0].source)}
    choice.views = views
    joined: dict[g.Value, tuple[Range, ...]] = {}
    for n in reversed(function.nodes):
        if n.outs and len(moved.get(n.outs[0], ())) > 1 and (copied := choice.join(n.outs[0], moved[n.outs[0]])) is not None:
            joined[n.outs[0]] = copied
    return Places(views, choice.within, joined)


class _Choice:
    """The state of copy elision over one function: the producer of each value, and where values were placed so far."""

    def __init__(self, function: g.Function, ones: frozenset[Var], placed: Collection[g.Value]) -> None:
        self.maker = {v: n for n in function.nodes for v in n.outs}
        self.fixed = {*function.params, *function.results, *placed}
        self.ones: dict[Var, Expr] = {v: const(1) for v in ones}
        self.views: Mapping[g.Value, Range] = {}
        self.within: dict[g.Value, tuple[g.Value, Expr]] = {}

    def is_updated(self, v: g.Value) -> bool:
        """True if a value is state, or a reshape of state: a view of it would show later in-place updates."""
        while not is_state(v) and (producer := self.maker.get(v)) is not None and _renames(producer):
            v = g.node_args(producer)[0]
        return is_state(v)

    def join(self, whole: g.Value, ranges: Sequence[Range]) -> tuple[Range, ...] | None:
        """Places the operands of a concat within its result.

        Returns the ranges that must still be copied, or None if these are the majority: then the kernel of the concat runs instead.
        """
        merged = self.merged([self.rooted(r) for r in ranges])
        own = [r for k, r in enumerate(merged) if self.may_lie_within(r) and all(r.source is not x.source for x in merged[:k])]
        copied = tuple(r for r in merged if r not in own)
        if worth(len(copied) > len(own)):
            return None
        self.within.update((r.source, (whole, r.at)) for r in own)
        return copied

    def rooted(self, r: Range) -> Range:
        """Returns the range with its source traced back through views and reshapes."""
        while True:
            producer = self.maker.get(r.source)
            if r.source in self.views:
                view = self.views[r.source]
                whole = view.whole and r.whole
                r = Range(view.source, simplify(view.start + r.start), r.at, r.count, whole)
            elif producer is not None and _renames(producer) and not is_state(source := g.node_args(producer)[0]):
                r = Range(source, r.start, r.at, r.count, r.whole)
            else:
                return r

    def merged(self, ranges: Sequence[Range]) -> list[Range]:
        """Merges ranges that are adjacent both in the result and in their source."""
        merged: list[Range] = []
        for r in ranges:
            last = merged[-1] if merged else None
            if last is not None and last.source is r.source and r.start is simplify(last.start + last.count):
                count = simplify(last.count + r.count)
                size = simplify(substitute(product(r.source.tensor.shape), self.ones))
                merged[-1] = Range(r.source, last.start, last.at, count, _is_0(last.start) and count is size)
            else:
                merged.append(r)
        return merged

    def may_lie_within(self, r: Range) -> bool:
        """True if the range is all of a value that a loop program computes, and the value has no place yet."""
        free = r.source not in self.fixed and r.source not in self.within and r.source not in self.views
        return r.whole and free and isinstance(self.maker.get(r.source), g.CallLoop)


def _renames(n: g.Node) -> bool:
    """True if the node is a reshape that aliases all of its operand."""
    return isinstance(n, g.Op) and n.op == "reshape" and TABLE[n.op].view and isinstance(n.args[0].annotation, g.Tensor)


def _is_0(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0
