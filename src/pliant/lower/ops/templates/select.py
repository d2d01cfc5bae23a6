"""Operators with data-dependent result sizes: nonzero and unique. Results have room for the largest size; the true size is counted."""

from __future__ import annotations

from ....dtype import bool_, i64
from ....loop.buffer import Buffer
from ....loop.stmt import Alloc, For, If, Let, Stmt, Store, View, seq
from ....sym.expr import And, Const, Eq, Expr, Le, Lt, Ne, Or, Var
from .build import ONE, ZERO, Cell, Indices, Site, nest
from .sort import Rows, before, merge_sort


def nonzero(site: Site) -> Stmt:
    """Builds `nonzero`: the indices of the elements that are not zero, in row-major order."""
    x, places, count = site.buffer(0), site.outs[0], Cell("count")
    at = Var("at", i64)

    def one(i: Indices) -> Stmt:
        value = x.load(*i)
        rows = [Store(places, (at, Const(d, i64)), e) for d, e in enumerate(i)]
        append = seq(Let(at, count.get), If(_within(at, places.shape[0]), seq(*rows, count.set(at + 1))))
        return If(value if x.dtype is bool_ else Ne(value, Const(0, x.dtype)), append)

    return seq(count.new(ZERO), nest(x.shape, one), Store(site.counts[0], (), count.get))


def unique(site: Site) -> Stmt:
    """Builds `unique`: sorts the elements and numbers runs of equal ones; without `sorted`, renumbers them by first occurrence."""
    x, (values, firsts, inverse, counts) = site.buffer(0), site.outs
    total = inverse.shape[0]
    flat = Buffer("flat", x.dtype, (total,))
    rows = Rows.of(x.dtype, total)
    j = Var("j", i64)
    fill = seq(Store(rows.keys, (j,), flat.load(j)), Store(rows.places, (j,), j))
    body = [View(flat, x, (ZERO,) * x.ndim), rows.alloc(), For(j, ZERO, total, "vector", fill)]
    body.append(merge_sort(rows, total, before(x.dtype, descending=False)))
    if site.attrs.sorted:
        return seq(*body, _groups(site, rows, total, values, firsts, counts))
    groups = [Buffer(name, b.dtype, b.shape, scope="workspace") for name, b in (("value", values), ("first", firsts), ("size", counts))]
    rank = Buffer("rank", i64, (total,), scope="workspace")
    body += [Alloc(b) for b in (*groups, rank)]
    body += [_groups(site, rows, total, *groups), _renumbered(site, total, groups, rank)]
    return seq(*body)


def _groups(site: Site, rows: Rows, total: Expr, values: Buffer, firsts: Buffer, counts: Buffer) -> Stmt:
    """Numbers the runs of equal sorted keys, and stores the value, the first position and the size of each run."""
    inverse, count = site.outs[2], Cell("count")
    t, at, group, place = (Var(name, i64) for name in ("t", "at", "group", "place"))
    different = Or(Eq(t, ZERO), before(values.dtype, descending=False)(rows.keys.load(t - ONE), rows.keys.load(t)))
    begin = seq(
        Let(at, count.get),
        If(
            _within(at, total),
            seq(
                Store(values, (at,), rows.keys.load(t)),
                Store(firsts, (at,), rows.places.load(t)),
                Store(counts, (at,), ZERO),
                count.set(at + 1),
            ),
        ),
    )
    join = seq(
        Let(group, count.get - 1),
        Let(place, rows.places.load(t)),
        If(
            And(_within(group, total), _within(place, total)),
            seq(Store(counts, (group,), counts.load(group) + 1), Store(inverse, (place,), group)),
        ),
    )
    return seq(count.new(ZERO), For(t, ZERO, total, "serial", seq(If(different, begin), join)), Store(site.counts[0], (), count.get))


def _renumbered(site: Site, total: Expr, kept: list[Buffer], rank: Buffer) -> Stmt:
    """Reorders the groups by the position of their first element."""
    values, firsts, inverse, counts = site.outs
    met = Cell("met")
    j, group, at, new = (Var(name, i64) for name in ("j", "group", "at", "new"))
    move = seq(*(Store(to, (at,), b.load(group)) for to, b in ((values, kept[0]), (firsts, kept[1]), (counts, kept[2]))))
    number = seq(Let(at, met.get), If(_within(at, total), seq(move, Store(rank, (group,), at), met.set(at + 1))))
    first = If(Eq(kept[1].load(group), j), number)
    again = seq(Let(new, rank.load(group)), Store(inverse, (j,), new))
    one = seq(Let(group, inverse.load(j)), If(_within(group, total), seq(first, again)))
    return seq(met.new(ZERO), For(j, ZERO, total, "serial", one))


def _within(index: Expr, extent: Expr) -> Expr:
    return And(Le(ZERO, index), Lt(index, extent))
