"""Calls that only move ranges of memory: which range of which operand each range of their result is.

    y = concat(a, b)        # along channels, of one image          y[0 : 4096] is a[0 : 4096], y[4096 : 6144] is b[0 : 2048]
    z = slice(y)            # its last channels                     z[0 : 1024] is y[5120 : 6144]

Such a call need not run: what makes `a` can write it where `y` has it, and `z` is a part of `y` as it lies there
(`lower.host.copy_elision`). What an operator is called does not matter, nor how images lie: indices are compared as they count elements.
Where an outer dim has more than one element a result is no row of ranges; so ranges are also looked for under the assumption that some dims
are 1 (`ones`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...graph import node as g
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Alloc, Func, Replacer, Seq, Stmt, Store
from ...support.record import dataclass
from ...sym.affine import linear
from ...sym.bounds import multiple
from ...sym.expr import Const, Eq, Expr, Le, Lt, Select, Var, conjuncts, const, product, substitute
from ...sym.facts import EMPTY
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..callee import func_of
from ..fusion.fold_data_movement import one_store


@dataclass(frozen=True, slots=True)
class Range:
    """`count` elements of a result from `at` on, which are those of `source` from `start` on."""

    source: g.Value
    start: Expr
    at: Expr
    count: Expr
    whole: bool  # they are all that `source` has


class _NoRanges(Exception):
    """Says nothing: the caller gives None."""


def ranges_of(n: g.CallLoop, ones: frozenset[Var] = frozenset()) -> tuple[Range, ...] | None:
    """The ranges that a call's only result consists of, in order, where all of the dims `ones` are 1; None where it is something else."""
    values = [*n.outs, *(a for a in n.args if isinstance(a, g.Value))]
    plain = all(isinstance(v.annotation, g.Tensor) and not v.tensor.state and v.tensor.strides is None for v in values)
    if len(n.outs) != 1 or not plain or n.outs[0].tensor.dtype.bits < 8 or func_of(n.callee).attrs.scheduled:
        return None
    try:
        return tuple(_Reading(n, ones).ranges())
    except _NoRanges:
        return None


class _Reading:
    """One call: its program with `ones` put in, and what symbols stand for."""

    def __init__(self, n: g.CallLoop, ones: frozenset[Var]) -> None:
        func = func_of(n.callee)
        given = [p.value for p in func.params if p.role != "out"]
        self.sources = {b: v for b, v in zip(given, n.args, strict=True) if isinstance(b, Buffer) and isinstance(v, g.Value)}
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
        """An expression where the dims that are assumed to be 1 are."""
        return simplify(substitute(e, self.known))

    def shape(self, b: Buffer) -> tuple[Expr, ...]:
        """The extents of a buffer; of those that are checked to be the same, one."""
        return tuple(self.see(self.same.get(e, e)) for e in b.shape)

    def number(self, b: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Which element of a buffer stands at some indices."""
        shape = self.shape(b)
        total: Expr = const(0)
        for k, e in enumerate(indices):
            total = total + self.see(e) * product(shape[k + 1 :])
        return total

    def ranges(self) -> Iterator[Range]:
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
        """What a value is, and between which bounds of which iterator it is that."""
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
        """The iterator and the number that it has to be below for a condition to hold."""
        parts = linear(self.see(cond.args[0]), list(self.iters)) if isinstance(cond, Lt) else None
        if parts is None or not parts[0] or not all(isinstance(c, Const) and c.value > 0 for c in parts[0].values()):
            raise _NoRanges
        (var, step), *inner = sorted(((v, _number(c)) for v, c in parts[0].items()), key=lambda x: -x[1])
        bound = simplify(self.see(cond.args[1]) - parts[1])
        inside = sum(step * (_number(self.iters[v]) - 1) for v, step in inner)  # digits below the iterator
        if inside >= step or multiple(bound, EMPTY) % step:
            raise _NoRanges
        return var, simplify(bound // step)

    def range(self, load: Load, cut: _Cut | None, at: Expr, count: Expr) -> Range:
        """The elements that a load reads, which must be as far apart as those that they are stored to."""
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
    """Where an iterator is between two bounds."""

    var: Var
    lo: Expr
    hi: Expr


def _same(n: g.CallLoop, buffers: Mapping[Buffer, g.Value]) -> dict[Expr, Expr]:
    """For extents of buffers those that the call is checked to have the same value for."""
    here = {there: e for b, v in buffers.items() for e, there in zip(b.shape, v.tensor.shape, strict=True)}
    equal = [e.args for r in n.requires for e in conjuncts(r.cond) if isinstance(e, Eq)]
    return {here[a]: here[b] for a, b in equal if a in here and b in here}


def _inlined(func: Func, out: Buffer) -> tuple[dict[Var, Expr], Store]:
    """The iterators, with their extents, and the store of a program that stores each element of its result once, without temporaries."""
    stored: dict[Buffer, Store] = {}
    iters: dict[Var, Expr] = {}
    for s in _statements(func.body):
        found = one_store(s)
        if found is None or found[1].buffer in stored:
            raise _NoRanges
        iters, stored[found[1].buffer] = found

    def read(load: Load) -> Expr | None:
        made = stored.get(load.buffer)
        if made is None:
            return None
        at = {i: e for i, e in zip(made.indices, load.indices, strict=True) if isinstance(i, Var)}
        return replacer.expr(substitute(made.value, at))

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
