"""Top-k of a row with a binary heap: the root is the worst of the k best so far, and most elements are rejected by one comparison with it.

    heap = the first k elements, each worse than the two below it
    for j in range(k, n): if x[j] is better than the root: it takes the root's place and sinks
    for t in k-1, …, 0: result[t] = root; the last element takes its place and sinks

Of equal elements the earlier one is better. Each index that comes from a cell is under a condition that bounds it, because range analysis
knows nothing about loaded values.
"""

from __future__ import annotations

from collections.abc import Callable

from ....dtype import bool_, i64
from ....loop.buffer import Buffer
from ....loop.stmt import Alloc, For, If, Let, Stmt, Store, While, seq
from ....support.record import dataclass
from ....sym.conditions import all_of
from ....sym.expr import And, Const, Expr, FloorDiv, Le, Lt, Min, Not, Or, Var
from .build import ONE, ZERO, Cell, Indices

Before = Callable[[Expr, Expr], Expr]
TWO = Const(2, i64)


@dataclass(frozen=True, slots=True)
class Heap:
    """A heap of `k` keys with their original indices (`places`), and the order of keys."""

    keys: Buffer
    places: Buffer
    k: Expr
    is_before: Before

    def worse(self, key: Expr, place: Expr, than_key: Expr, than_place: Expr) -> Expr:
        """True if an element comes after another one in the result."""
        return Or(self.is_before(than_key, key), And(Not(self.is_before(key, than_key)), Lt(than_place, place)))

    def within(self, index: Expr) -> Expr:
        """True if an index is inside the heap's memory."""
        return And(Le(ZERO, index), Lt(index, self.k))

    def put(self, index: Expr, key: Expr, place: Expr) -> Stmt:
        """Stores an element at an index."""
        return seq(Store(self.keys, (index,), key), Store(self.places, (index,), place))

    def sink(self, top: Expr, key: Expr, place: Expr, size: Expr) -> Stmt:
        """Sift-down: inserts an element at `top` and moves worse children up, within the first `size` elements."""
        hole, going = Cell("hole"), Cell("going", bool_)
        h, left, right, child = (Var(name, i64) for name in ("h", "left", "right", "child"))
        chosen = Cell("chosen")

        def at(index: Expr) -> tuple[Expr, Expr]:
            return self.keys.load(index), self.places.load(index)

        rise = seq(self.put(h, *at(child)), hole.set(child))
        step = seq(
            Let(h, hole.get),
            Let(left, h * 2 + 1),
            Let(right, h * 2 + 2),
            chosen.set(left),
            going.set(Const(False, bool_)),
            If(all_of(self.within(left), self.within(right), Lt(right, size)), If(self.worse(*at(right), *at(left)), chosen.set(right))),
            Let(child, chosen.get),
            If(
                all_of(self.within(h), self.within(child), Lt(child, size)),
                If(self.worse(*at(child), key, place), seq(rise, going.set(Const(True, bool_)))),
            ),
        )
        end = Var("end", i64)
        return seq(
            hole.new(top),
            chosen.new(ZERO),
            going.new(Const(True, bool_)),
            While(going.get, step),
            Let(end, hole.get),
            If(self.within(end), self.put(end, key, place)),
        )


def best_of_row(x: Buffer, at: Callable[[Expr], Indices], n: Expr, k: Expr, is_before: Before, values: Buffer, indices: Buffer) -> Stmt:
    """Writes the best `k` of the `n` elements of a row, best first, and their indices."""
    heap = Heap(Buffer("best", x.dtype, (k,), scope="workspace"), Buffer("where", i64, (k,), scope="workspace"), k, is_before)
    i, t, j, r = (Var(name, i64) for name in "itjr")
    new, key, place, top, last = Var("new", x.dtype), Var("key", x.dtype), Var("place", i64), Var("top", i64), Var("last", i64)
    fill = For(i, ZERO, Min(k, n), "serial", heap.put(i, x.load(*at(i)), i))
    half = Let(top, FloorDiv(k, TWO) - ONE - t)
    order = seq(half, If(heap.within(top), seq(*_read(heap, top, key, place), heap.sink(top, key, place, k))))
    better = If(is_before(new, heap.keys.load(ZERO)), heap.sink(ZERO, new, j, k))
    result = seq(Store(values, at(last), heap.keys.load(ZERO)), Store(indices, at(last), heap.places.load(ZERO)))
    pop = seq(Let(last, k - ONE - r), result, *_read(heap, last, key, place), heap.sink(ZERO, key, place, last))
    return seq(
        Alloc(heap.keys),
        Alloc(heap.places),
        fill,
        For(t, ZERO, FloorDiv(k, TWO), "serial", order),
        If(Lt(ZERO, k), For(j, k, n, "serial", seq(Let(new, x.load(*at(j))), better))),
        For(r, ZERO, k, "serial", pop),
    )


def _read(heap: Heap, index: Expr, key: Var, place: Var) -> tuple[Stmt, Stmt]:
    return Let(key, heap.keys.load(index)), Let(place, heap.places.load(index))
