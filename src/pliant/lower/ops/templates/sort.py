"""Sorting operators: stable bottom-up merge sort of rows (keys with their indices), top-k, and binary search.

    while width < n:                                    # runs of `width` are sorted
        while start < n:                                # merge the run at start with the next one
            for t in range(start, end): next[t] = the smaller of the two heads, the left one where they are equal
        keys = next; width = 2 * width

Rows run in parallel. Each index that comes from a cell is under a condition that bounds it, because range analysis knows nothing about
loaded values.
"""

from __future__ import annotations

from collections.abc import Callable

from ....dtype import DType, bool_, i8, i64
from ....loop.buffer import Buffer
from ....loop.stmt import Alloc, For, If, Let, Stmt, Store, While, seq
from ....support.record import dataclass
from ....sym.conditions import all_of
from ....sym.expr import And, Cast, Const, Eq, Expr, FloorDiv, Le, Lt, Min, Ne, Not, Or, Select, Var
from .build import ONE, ZERO, Cell, Indices, Site, nest
from .heap import Before, best_of_row

SMALL = 64  # up to this k, topk keeps a sorted list on the stack instead of a heap: insertions are rare, and shift at most k elements


def before(dtype: DType, descending: bool) -> Before:
    """Returns the comparison "a comes before b" of a sort; NaN is the largest value."""

    def less(a: Expr, b: Expr) -> Expr:
        if dtype is bool_:
            return Lt(Cast(i8, a), Cast(i8, b))
        return Or(Lt(a, b), And(Ne(b, b), Eq(a, a))) if dtype.is_float else Lt(a, b)

    return (lambda a, b: less(b, a)) if descending else less


@dataclass(frozen=True, slots=True)
class Rows:
    """Workspace of a merge sort: keys, their original indices (`places`), and a second copy of both to merge into."""

    keys: Buffer
    places: Buffer
    next_keys: Buffer
    next_places: Buffer

    @staticmethod
    def of(dtype: DType, n: Expr) -> Rows:
        """Returns workspace for `n` keys."""
        keys, following = (Buffer(name, dtype, (n,), scope="workspace") for name in ("keys", "next_keys"))
        places, then = (Buffer(name, i64, (n,), scope="workspace") for name in ("places", "next_places"))
        return Rows(keys, places, following, then)

    def alloc(self) -> Stmt:
        """Returns the allocations."""
        return seq(*(Alloc(b) for b in (self.keys, self.places, self.next_keys, self.next_places)))


def merge_sort(rows: Rows, n: Expr, is_before: Before) -> Stmt:
    """Sorts the first `n` keys; `n` must be provably at most the size of the workspace."""
    width, start, left, right = (Cell(name) for name in ("width", "start", "left", "right"))
    w, lo, middle, end = (Var(name, i64) for name in ("w", "lo", "middle", "end"))
    t, j = Var("t", i64), Var("j", i64)
    keys, places, next_keys, next_places = rows.keys, rows.places, rows.next_keys, rows.next_places
    a, b = Var("a", i64), Var("b", i64)
    has_a, has_b = all_of(Le(ZERO, a), Lt(a, middle), Lt(a, n)), all_of(Le(ZERO, b), Lt(b, end), Lt(b, n))

    def move(source: Expr, cell: Cell) -> Stmt:
        return seq(Store(next_keys, (t,), keys.load(source)), Store(next_places, (t,), places.load(source)), cell.set(source + 1))

    one = seq(
        Let(a, left.get),
        Let(b, right.get),
        If(And(has_a, has_b), _smaller(rows, t, a, b, left, right, is_before), If(has_a, move(a, left), If(has_b, move(b, right)))),
    )
    merge = seq(
        Let(lo, start.get),
        Let(middle, Min(lo + w, n)),
        Let(end, Min(lo + w + w, n)),
        left.set(lo),
        right.set(middle),
        For(t, lo, end, "serial", one if isinstance(n, Var | Const) else If(Lt(t, n), one)),  # range analysis cannot bound `t` by a product
        start.set(end),
    )
    back = seq(Store(keys, (j,), next_keys.load(j)), Store(places, (j,), next_places.load(j)))
    level = seq(
        Let(w, width.get),
        start.set(ZERO),
        While(And(Le(ZERO, start.get), Lt(start.get, n)), merge),
        For(j, ZERO, n, "vector", back),
        width.set(w + w),
    )
    cells = seq(width.new(ONE), start.new(ZERO), left.new(ZERO), right.new(ZERO))
    return seq(cells, While(And(Lt(ZERO, width.get), Lt(width.get, n)), level))


def _smaller(rows: Rows, t: Expr, a: Expr, b: Expr, left: Cell, right: Cell, is_before: Before) -> Stmt:
    """Moves the smaller of two heads, with selects instead of a branch, which would be mispredicted half of the time."""
    dtype = rows.keys.dtype
    key_a, key_b, place_a, place_b = Var("key_a", dtype), Var("key_b", dtype), Var("place_a", i64), Var("place_b", i64)
    second = Var("second", bool_)
    return seq(
        Let(key_a, rows.keys.load(a)),
        Let(key_b, rows.keys.load(b)),
        Let(place_a, rows.places.load(a)),
        Let(place_b, rows.places.load(b)),
        Let(second, is_before(key_b, key_a)),
        Store(rows.next_keys, (t,), Select(second, key_b, key_a)),
        Store(rows.next_places, (t,), Select(second, place_b, place_a)),
        left.set(Select(second, a, a + 1)),
        right.set(Select(second, b + 1, b)),
    )


def sort(site: Site) -> Stmt:
    """Builds `sort`: the sorted values and their original indices."""
    values, indices = site.outs
    return _sorted_rows(site, values, indices)


def argsort(site: Site) -> Stmt:
    """Builds `argsort`: the original indices of the sorted values."""
    return _sorted_rows(site, None, site.outs[0])


def topk(site: Site) -> Stmt:
    """Builds `topk`: keeps the best elements in a sorted list if `k` is a small constant, else in a heap."""
    k, (values, indices), x = site.attrs.k, site.outs, site.buffer(0)
    if isinstance(k, Const) and 0 < k.value <= SMALL:
        return _over_rows(site, lambda at: _best(site, k, at, values, indices))
    n, is_before = x.shape[site.attrs.axis], before(x.dtype, site.attrs.largest)
    return _over_rows(site, lambda at: best_of_row(x, at, n, k, is_before, values, indices))


At = Callable[[Expr], Indices]  # index within a row -> indices into the tensor


def _over_rows(site: Site, row: Callable[[At], Stmt]) -> Stmt:
    """Runs `row` for every row along the axis, in parallel."""
    shape, axis = site.buffer(0).shape, site.attrs.axis
    others = (*shape[:axis], *shape[axis + 1 :])
    return nest(others, lambda o: row(lambda j: (*o[:axis], j, *o[axis:])), outer="parallel")


def _sorted_rows(site: Site, values: Buffer | None, indices: Buffer) -> Stmt:
    """Sorts every row; stores the values (if wanted) and the original indices."""
    x, j = site.buffer(0), Var("j", i64)
    n = x.shape[site.attrs.axis]
    rows = Rows.of(x.dtype, n)

    def row(at: At) -> Stmt:
        fill = seq(Store(rows.keys, (j,), x.load(*at(j))), Store(rows.places, (j,), j))
        i = Var("i", i64)
        write: Stmt = Store(indices, at(i), rows.places.load(i))
        if values is not None:
            write = seq(Store(values, at(i), rows.keys.load(i)), write)
        sorting = merge_sort(rows, n, before(x.dtype, site.attrs.descending))
        return seq(rows.alloc(), For(j, ZERO, n, "serial", fill), sorting, For(i, ZERO, n, "serial", write))

    return _over_rows(site, row)


def _best(site: Site, k: Const, at: At, values: Buffer, indices: Buffer) -> Stmt:
    """Insertion into a sorted list: the best `k` of a row; each element better than the last one is inserted in order."""
    x = site.buffer(0)
    n, is_before = x.shape[site.attrs.axis], before(x.dtype, site.attrs.largest)
    best, where = Buffer("best", x.dtype, (k,), scope="stack"), Buffer("where", i64, (k,), scope="stack")
    have, place = Cell("have"), Cell("place")
    j, i, h, new, p = Var("j", i64), Var("i", i64), Var("h", i64), Var("new", x.dtype), Var("p", i64)
    q = Var("q", i64)
    better = all_of(Lt(ZERO, place.get), Lt(place.get, k))
    shift = seq(
        Let(p, place.get),
        Store(best, (p,), best.load(p - 1)),
        Store(where, (p,), where.load(p - 1)),
        place.set(p - 1),
    )
    put = seq(
        place.set(Min(h, k - 1)),
        If(Lt(h, k), have.set(h + 1)),
        While(And(better, is_before(new, best.load(place.get - 1))), shift),
        Let(q, place.get),
        If(And(Le(ZERO, q), Lt(q, k)), seq(Store(best, (q,), new), Store(where, (q,), j))),
    )
    one = seq(
        Let(new, x.load(*at(j))),
        Let(h, have.get),
        If(Or(Lt(h, k), is_before(new, best.load(k - 1))), put),
    )
    start = For(i, ZERO, k, "serial", seq(Store(best, (i,), Const(0, x.dtype)), Store(where, (i,), ZERO)))
    r = Var("r", i64)
    write = seq(Store(values, at(r), best.load(r)), Store(indices, at(r), where.load(r)))
    return seq(
        Alloc(best),
        Alloc(where),
        have.new(ZERO),
        place.new(ZERO),
        start,
        For(j, ZERO, n, "serial", one),
        For(r, ZERO, k, "serial", write),
    )


def search(site: Site) -> Stmt:
    """Builds `searchsorted`: binary search for each value."""
    order, out = site.buffer(0), site.outs[0]
    n, less = order.shape[-1], before(order.dtype, descending=False)
    low, high = Cell("low"), Cell("high")
    a, b, middle, value = Var("a", i64), Var("b", i64), Var("middle", i64), Var("value", order.dtype)

    def one(v: Indices) -> Stmt:
        row = v[:-1] if order.ndim > 1 else ()
        pivot = order.load(*row, middle)
        behind = Not(less(value, pivot)) if site.attrs.right else less(pivot, value)
        step = seq(
            Let(a, low.get),
            Let(b, high.get),
            Let(middle, FloorDiv(a + b, Const(2, i64))),
            If(all_of(Le(ZERO, middle), Lt(middle, n)), If(behind, low.set(middle + 1), high.set(middle)), high.set(a)),
        )
        looking = While(Lt(low.get, high.get), step)
        return seq(low.new(ZERO), high.new(n), Let(value, site.read(1, *v)), looking, Store(out, v, low.get))

    return nest(out.shape, one, outer="parallel")
