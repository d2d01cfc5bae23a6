"""Squeezes a program: removes loops of one iteration, the iterators they feed, and dims of extent 1.

    for b, i, j, k in grid(1, n, 96, 64):                              for i, j, k in grid(n, 96, 64):
        c[b, i, j] += a[b, i, k] * w[b, k, j]          ->                  c[i, j] += a[i, k] * w[k, j]

The rules see programs in this form, so that a batch of one, a 1x1 filter or a single head needs no special case in any rule. A tensor has
the same memory with and without such dims; `restored` puts them back into the parameters at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from ...dtype import i64
from ...loop.buffer import Buffer, Load
from ...loop.passes.settle_unit_loops import is_unit
from ...loop.stmt import Alloc, Block, Call, For, Func, Param, Reduce, Region, Replacer, Stmt, Store, View, exprs, walk_stmts
from ...support.record import dataclass
from ...sym.expr import Add, And, Const, Expr, Max, Min, Mul, Or, Select, Var, free_vars, substitute
from ...sym.index_map import IndexMap
from ...sym.simplify import simplify
from ...sym.walk import walk

ZERO = Const(0, i64)
Dims = dict[Buffer, frozenset[int]]
# Reductions whose single step is the expression `init op value`, so that one element needs no reduction
STEPS: dict[str, Callable[..., Expr]] = {"add": Add, "mul": Mul, "min": Min, "max": Max, "and": And, "or": Or}


@dataclass(frozen=True, slots=True)
class Squeezed:
    """A program without dims and loops of extent 1, with the original program whose parameters `restored` puts back."""

    func: Func
    original: Func
    dims: Dims  # for each original parameter: its dims of extent 1 that were removed

    def restored(self, func: Func) -> Func:
        """Return the scheduled program `func` with the parameters of the original: removed dims of extent 1 are indexed by 0 again."""
        if func.params == self.original.params:
            return func
        pairs = list(zip(self.func.params, self.original.params, strict=True))
        back = {new.value: old.value for new, old in pairs if isinstance(new.value, Buffer) and isinstance(old.value, Buffer)}
        body = _Unsqueezed(back, self.dims).stmt(func.body)
        return func.with_(params=self.original.params, body=body)

    def layouts(self, chosen: Mapping[Buffer, IndexMap]) -> dict[Buffer, IndexMap]:
        """Convert layouts of squeezed parameters to layouts of the original parameters; removed dims appear in no result of a map."""
        layouts: dict[Buffer, IndexMap] = {}
        for new, old in zip(self.func.params, self.original.params, strict=True):
            if isinstance(new.value, Buffer) and isinstance(old.value, Buffer) and new.value in chosen:
                layouts[old.value] = _over_all(chosen[new.value], old.value, self.dims.get(old.value, frozenset()))
        return layouts


def _over_all(map_: IndexMap, whole: Buffer, gone: frozenset[int]) -> IndexMap:
    """Return the index map of a squeezed tensor as one of the tensor with its dims of extent 1, which the results do not use."""
    if not gone:
        return map_
    inputs = tuple(Var(f"d{n}") for n in range(whole.ndim))
    there: dict[Var, Expr] = dict(zip(map_.inputs, (v for n, v in enumerate(inputs) if n not in gone), strict=True))
    return IndexMap(inputs, tuple(substitute(e, there) for e in map_.results))


def without_units(func: Func) -> Squeezed:
    """Remove serial loops of one iteration and dims of extent 1, where that is legal.

    Return the squeezed program together with the original. Loops with annotations stay, and so do the dims of the buffers of
    `_unsqueezable`.
    """
    whole = _unsqueezable(func)
    loops = [s for s in walk_stmts(func.body) if isinstance(s, For) and s.kind == "serial" and not s.annotations]
    starts: dict[Var, Expr] = {x.var: x.start for x in loops if isinstance(x.start, Const) and is_unit(x)}
    values = _values(func, whole, starts)
    dims = _dims(func, whole, values)
    if not values and not dims:
        return Squeezed(func, func, {})
    squeezed = {b: _without(b, gone) for b, gone in dims.items()}
    body = _Squeezer(values, squeezed, dims=dims).stmt(func.body)
    params = tuple(Param(squeezed.get(p.value, p.value), p.role) if isinstance(p.value, Buffer) else p for p in func.params)
    return Squeezed(func.with_(params=params, body=body), func, dims)


def _without(b: Buffer, gone: frozenset[int]) -> Buffer:
    return Buffer(b.name, b.dtype, tuple(e for d, e in enumerate(b.shape) if d not in gone), None, b.scope)


def _unsqueezable(func: Func) -> set[Buffer]:
    """Return the buffers whose dims must stay.

    Views and calls depend on their rank; explicit strides belong to dims; elements below 8 bits are packed per row.
    """
    fixed: set[Buffer] = set()
    for s in walk_stmts(func.body):
        if isinstance(s, View):
            fixed |= {s.buffer, s.source}
        elif isinstance(s, Call):
            fixed.update(a for a in s.args if isinstance(a, Buffer))
    used = [*func.buffers, *(s.buffer for s in walk_stmts(func.body) if isinstance(s, Alloc))]
    return fixed | {b for b in used if b.strides is not None or b.dtype.bits < 8}


def _places(s: Stmt) -> Iterator[Load]:
    """Yield the elements that a statement itself reads and writes."""
    if isinstance(s, Store):
        yield Load(s.buffer, s.indices)
    if isinstance(s, Reduce):
        yield from s.targets
    yield from (e for own in exprs(s) for e in walk(own) if isinstance(e, Load))


def _values(func: Func, whole: set[Buffer], starts: dict[Var, Expr]) -> dict[Var, Expr]:
    """Return the variables with a constant value: those of loops of one iteration, and the iterators that only such loops feed.

    An iterator stays, with its loops, if it indexes a buffer that keeps its dims, or if a reduction would have no iterator left.
    """
    fixed = {v for s in walk_stmts(func.body) for e in _places(s) if e.buffer in whole for i in e.indices for v in free_vars(i)}
    all_blocks = [s for s in walk_stmts(func.body) if isinstance(s, Block)]
    # An init also runs where the predicate on a reduction iterator is false. Without the iterator, the predicate would guard the init too.
    fixed |= {i.var for b in all_blocks if b.init is not None for i in b.iters if i.kind != "S" and i.var in free_vars(b.predicate)}
    while True:
        values = {v: e for v, e in starts.items() if v not in fixed}
        for b in all_blocks:  # an inner block comes after the one around it
            own = {i.var: simplify(substitute(i.value, values)) for i in b.iters if i.var not in fixed}
            values.update((v, e) for v, e in own.items() if isinstance(e, Const))
        stay = {b.iters[n].var for b in all_blocks if (n := _last_of_reduction(b, values)) is not None}
        loops = {v for b in all_blocks for i in b.iters if i.var in fixed | stay for v in free_vars(i.value)}
        if stay | loops <= fixed:
            return values
        fixed |= stay | loops


def _last_of_reduction(b: Block, values: dict[Var, Expr]) -> int | None:
    """Return the position of the iterator that a reduction must keep: its last reduction iterator, if all of them would go.

    None if some stay, or if the reduction's single step can be written without a reduction.
    """
    reduced = [n for n, i in enumerate(b.iters) if i.kind != "S"]
    gone = reduced and all(b.iters[n].var in values for n in reduced)
    return reduced[-1] if gone and not isinstance(b.body, Store) and _one_step(b) is None else None


def _one_step(b: Block) -> Store | None:
    """Return the store that equals a reduction of one element, `init op value`; None if it cannot be written so."""
    s, init = b.body, b.init
    if not isinstance(s, Reduce) or not isinstance(init, Store) or s.combiner.name not in STEPS or len(s.targets) != 1:
        return None
    target = s.targets[0]
    same = init.buffer is target.buffer and init.indices == target.indices and target.dtype is target.buffer.dtype
    return Store(target.buffer, target.indices, STEPS[s.combiner.name](init.value, *s.values), s.span) if same else None


def _dims(func: Func, whole: set[Buffer], values: dict[Var, Expr]) -> Dims:
    """Return, for each buffer, the dims of extent 1 that every access indexes with 0, so that they can be removed."""
    gone: dict[Buffer, set[int]] = {}
    settled = _Squeezer(values, {})
    for s in walk_stmts(func.body):
        for e in _places(s):
            if e.buffer in whole:
                continue
            ones = {d for d, n in enumerate(e.buffer.shape) if isinstance(n, Const) and n.value == 1 and settled.expr(e.indices[d]) is ZERO}
            gone[e.buffer] = gone.get(e.buffer, ones) & ones
    return {b: frozenset(dims) for b, dims in gone.items() if dims}


@dataclass(slots=True)
class _Squeezer(Replacer):
    """Rewrites a program without unit loops: replaces their variables by constants, and drops the given dims of buffers."""

    dims: Dims = field(default_factory=dict)

    def stmt(self, s: Stmt) -> Stmt:
        """Return `s` without loops of one iteration, iterators bound to constants, and removed dims."""
        if isinstance(s, For) and s.var in self.vars:
            return self.stmt(s.body)
        if isinstance(s, Block) and s.init is not None and all(i.var in self.vars for i in s.iters if i.kind != "S"):
            s = s.with_(body=_one_step(s) or s.body, init=None)
        squeezed = Replacer.stmt(self, s)
        return squeezed.with_(iters=tuple(i for i in squeezed.iters if i.var not in self.vars)) if isinstance(squeezed, Block) else squeezed

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, Load):
            return self.target(e)
        if isinstance(e, Select) and isinstance(taken := self.expr(e.args[0]), Const):
            return self.expr(e.args[1 if taken.value else 2])  # the arm not taken may load out of bounds
        if isinstance(e, Var) or e.dtype.is_float or free_vars(e).isdisjoint(self.vars):
            return Replacer._leaf(self, e)
        return simplify(e.with_args(tuple(self.expr(a) for a in e.args)))

    def target(self, e: Load) -> Load:
        """Return an element access without the removed dims."""
        gone = self.dims.get(e.buffer, frozenset())
        return Load(self.buffers.get(e.buffer, e.buffer), tuple(self.expr(i) for d, i in enumerate(e.indices) if d not in gone))

    def region(self, r: Region) -> Region:
        """Return a region of the squeezed buffer, without the removed dims; in all regions, variables of unit loops become constants."""
        gone = self.dims.get(r.buffer, frozenset())
        parts = ([self.expr(e) for d, e in enumerate(side) if d not in gone] for side in (r.starts, r.extents))
        return Region(self.buffers.get(r.buffer, r.buffer), *map(tuple, parts))


class _Unsqueezed(Replacer):
    """Rewrites a squeezed program to the original parameters, which have more dims: those are indexed by 0."""

    __slots__ = ("dims",)

    def __init__(self, back: dict[Buffer, Buffer], dims: Dims) -> None:
        super().__init__(buffers=back)
        self.dims = dims

    def _leaf(self, e: Expr) -> Expr | None:
        return self.target(e) if isinstance(e, Load) else Replacer._leaf(self, e)

    def target(self, e: Load) -> Load:
        """Return an element access with the removed dims back, at index 0."""
        old = self.buffers.get(e.buffer, e.buffer)
        return Load(old, self._whole(old, tuple(self.expr(i) for i in e.indices), ZERO))

    def region(self, r: Region) -> Region:
        """Return a region with the removed dims back, of extent 1."""
        old = self.buffers.get(r.buffer, r.buffer)
        starts, extents = (tuple(map(self.expr, side)) for side in (r.starts, r.extents))
        return Region(old, self._whole(old, starts, ZERO), self._whole(old, extents, Const(1, i64)))

    def _whole(self, old: Buffer, indices: tuple[Expr, ...], other: Expr) -> tuple[Expr, ...]:
        rest, gone = iter(indices), self.dims.get(old, frozenset())
        return tuple(other if d in gone else next(rest) for d in range(old.ndim))
