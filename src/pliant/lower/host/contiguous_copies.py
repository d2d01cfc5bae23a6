"""Recognizes loop programs that only copy contiguous ranges (concat, slice, split): which range of which operand goes where.

    y = concat(a, b)        # along channels, of one image          y[0 : 4096] is a[0 : 4096], y[4096 : 6144] is b[0 : 2048]
    z = slice(y)            # its last channels                     z[0 : 1024] is y[5120 : 6144]

Such a call need not run: the producer of `a` can write it straight into `y`, and `z` can be a view of `y` (`lower.host.copy_elision`).
The test compares linearized indices, so operator names and memory layouts do not matter. A result is usually not a sequence of contiguous
ranges if an outer dim (the batch) has more than one element. So ranges are also sought under the assumption that some dims are 1 (`ones`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...graph import node as g
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Alloc, Func, Replacer, Seq, Stmt, Store
from ...support.record import dataclass
from ...sym.affine import linear
from ...sym.bounds import multiple
from ...sym.conditions import conjuncts
from ...sym.expr import Const, Eq, Expr, Le, Lt, Select, Var, const, product, substitute
from ...sym.facts import EMPTY
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..callee import func_of
from ..fusion.fold_data_movement import one_store


@dataclass(frozen=True, slots=True)
class Range:
    """Says that elements `at` to `at + count` of a result are elements `start` to `start + count` of `source`."""

    source: g.Value
    start: Expr
    at: Expr
    count: Expr
    whole: bool  # the range covers all of `source`


class _NoRanges(Exception):
    """Raised inside this module if a call is more than copies of contiguous ranges; `ranges_of` then returns None."""


def ranges_of(n: g.CallLoop, ones: frozenset[Var] = frozenset()) -> tuple[Range, ...] | None:
    """Returns the contiguous ranges that make up the only result of a call, in order, if the dims `ones` are 1.

    None if the call does anything but copy ranges, or has state, strides, sub-byte elements, or a schedule of its own.
    """
    values = [*n.outs, *(a for a in n.args if isinstance(a, g.Value))]
    plain = all(isinstance(v.annotation, g.Tensor) and not v.tensor.state and v.tensor.strides is None for v in values)
    if len(n.outs) != 1 or not plain or n.outs[0].tensor.dtype.bits < 8 or func_of(n.callee).attrs.scheduled:
        return None
    try:
        return tuple(_Reading(n, ones).ranges())
    except _NoRanges:
        return None


class _Reading:
    """The analysis of one call as copies of contiguous ranges, under the assumption that the dims `ones` are 1."""

    def __init__(self, n: g.CallLoop, ones: frozenset[Var]) -> None:
        func = func_of(n.callee)
        inputs = [p.value for p in func.params if p.role != "out"]
        self.sources = {b: v for b, v in zip(inputs, n.args, strict=True) if isinstance(b, Buffer) and isinstance(v, g.Value)}
        (self.out,) = (p.value for p in func.params if p.role == "out" and isinstance(p.value, Buffer))
        self.dims = dict(zip(func.symbols, n.dims, strict=True))
        self.known: dict[Var, Expr] = {v: const(1) for v, e in self.dims.items() if e in ones}
        self.same = _same(n, {**self.sources, self.out: n.outs[0]})
        self.iters, self.store = _inlined(func, self.out)
        self.iters = {v: self.see(self.same.get(e, e)) for v, e in self.iters.items()}
        for v, extent in self.iters.items():
            if _is(extent, 1):
                self.known[v] = const(0)

    def see(self, e: Expr) -> Expr:
        """Returns the expression in terms of the caller's dims, with those that are assumed to be 1 replaced."""
        return simplify(substitute(e, self.known))

    def shape(self, b: Buffer) -> tuple[Expr, ...]:
        """Returns the extents of a buffer; extents that the call checks to be equal get the same expression."""
        return tuple(self.see(self.same.get(e, e)) for e in b.shape)

    def number(self, b: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Returns the row-major linear index of an element of a buffer."""
        shape = self.shape(b)
        total: Expr = const(0)
        for k, e in enumerate(indices):
            total = total + self.see(e) * product(shape[k + 1 :])
        return total

    def ranges(self) -> Iterator[Range]:
        """Yields the ranges of the result in order; raises _NoRanges if it is not a sequence of contiguous copies."""
        shape = self.shape(self.out)
        indices = [self.see(e) for e in self.store.indices]
        for e, extent in zip(indices, shape, strict=True):
            if (self.iters.get(e) is not extent) if isinstance(e, Var) else not (_is(e, 0) and _is(extent, 1)):
                raise _NoRanges
        for load, cut in self.leaves(self.store.value, None):
            axis = 0 if cut is None else indices.index(cut.var)
            if cut is not None and not all(_is(e, 1) for e in shape[:axis]):
                raise _NoRanges
            inner = product(shape[axis + 1 :])
            lo, hi = (const(0), shape[0] if shape else const(1)) if cut is None else (cut.lo, cut.hi)
            yield self.range(load, cut, simplify(lo * inner), simplify((hi - lo) * inner))

    def leaves(self, e: Expr, cut: _Cut | None) -> Iterator[tuple[Load, _Cut | None]]:
        """Yields the loads that a nest of selects chooses from, each with the interval of the iterator in which it is chosen.

        Raises _NoRanges if the value is anything else.
        """
        if isinstance(e, Load) and e.buffer in self.sources and e.buffer.dtype is self.out.dtype:
            yield e, cut
            return
        if not isinstance(e, Select):
            raise _NoRanges
        cond, then, orelse = e.args
        var, bound = self.bound(cond)
        lo, hi = (cut.lo, cut.hi) if cut is not None else (const(0), self.iters[var])
        if (cut is not None and cut.var is not var) or not (prove(Le(lo, bound)) and prove(Le(bound, hi))):
            raise _NoRanges
        yield from self.leaves(then, _Cut(var, lo, bound))
        yield from self.leaves(orelse, _Cut(var, bound, hi))

    def bound(self, cond: Expr) -> tuple[Var, Expr]:
        """Returns the iterator and the bound of a condition `iterator < bound`; raises _NoRanges for another condition.

        The iterator may be the leading digit of a mixed-radix sum (`16 * i + j < 48` with `j < 16` is `i < 3`).
        """
        parts = linear(self.see(cond.args[0]), list(self.iters)) if isinstance(cond, Lt) else None
        if parts is None or not parts[0] or not all(isinstance(c, Const) and c.value > 0 for c in parts[0].values()):
            raise _NoRanges
        (var, step), *inner = sorted(((v, _number(c)) for v, c in parts[0].items()), key=lambda x: -x[1])
        bound = simplify(self.see(cond.args[1]) - parts[1])
        inside = sum(step * (_number(self.iters[v]) - 1) for v, step in inner)  # largest value of the lower digits
        if inside >= step or multiple(bound, EMPTY) % step:
            raise _NoRanges
        return var, simplify(bound // step)

    def range(self, load: Load, cut: _Cut | None, at: Expr, count: Expr) -> Range:
        """Returns the range that a load copies; raises _NoRanges if the distance between source and target index depends on an iterator."""
        apart = self.number(load.buffer, load.indices) - self.number(self.out, self.store.indices)
        if cut is not None and _is(simplify(cut.hi - cut.lo), 1):
            apart = substitute(apart, {cut.var: cut.lo})
        parts = linear(simplify(apart), list(self.iters))
        if parts is None or not all(_is(simplify(c), 0) for c in parts[0].values()):
            raise _NoRanges
        start = simplify(at + parts[1])
        whole = _is(start, 0) and count is simplify(product(self.shape(load.buffer)))
        start, at, count = (simplify(substitute(e, self.dims)) for e in (start, at, count))
        return Range(self.sources[load.buffer], start, at, count, whole)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A record of a part of an iteration space: the iterations with `lo <= var < hi`."""

    var: Var
    lo: Expr
    hi: Expr


def _same(n: g.CallLoop, buffers: Mapping[Buffer, g.Value]) -> dict[Expr, Expr]:
    """Maps extents of buffers to equal extents, by the equalities that the call requires."""
    here = {there: e for b, v in buffers.items() for e, there in zip(b.shape, v.tensor.shape, strict=True)}
    equal = [e.args for r in n.requires for e in conjuncts(r.cond) if isinstance(e, Eq)]
    return {here[a]: here[b] for a, b in equal if a in here and b in here}


def _inlined(func: Func, out: Buffer) -> tuple[dict[Var, Expr], Store]:
    """Returns the iterators with their extents and the final store of a program, with its temporaries inlined into that store.

    Raises _NoRanges if the program is not one store per buffer, the result last.
    """
    stored: dict[Buffer, Store] = {}
    iters: dict[Var, Expr] = {}
    for s in _statements(func.body):
        nest = one_store(s)
        if nest is None or nest[1].buffer in stored:
            raise _NoRanges
        iters, stored[nest[1].buffer] = nest

    def read(load: Load) -> Expr | None:
        store = stored.get(load.buffer)
        if store is None:
            return None
        at = {i: e for i, e in zip(store.indices, load.indices, strict=True) if isinstance(i, Var)}
        return replacer.expr(substitute(store.value, at))

    replacer = Replacer(loads=read)
    if not stored or list(stored)[-1] is not out:
        raise _NoRanges
    return iters, stored[out].with_(value=replacer.expr(stored[out].value))


def _statements(body: Stmt) -> list[Stmt]:
    return [s for s in body.body if not isinstance(s, Alloc)] if isinstance(body, Seq) else [body]


def _is(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.value == value


def _number(e: Expr) -> int:
    if not isinstance(e, Const):
        raise _NoRanges
    return int(e.value)
