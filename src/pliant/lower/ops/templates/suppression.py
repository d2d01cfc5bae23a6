"""Non-maximum suppression (NMS): each class sorts its candidates and keeps them greedily, in parallel; then the kept boxes are collected.

for b, c in parallel: sort the boxes with score > least; keep each that overlaps none kept before, up to the limit
for b, c in order:    append (b, c, box) for each kept box
"""

from __future__ import annotations

from ....dtype import bool_, f32, i64
from ....loop.buffer import Buffer
from ....loop.stmt import Alloc, Check, For, If, Let, Stmt, Store, seq
from ....sym.conditions import all_of
from ....sym.expr import Add, Const, Div, Expr, Le, Lt, Max, Min, Mul, Not, Sub, Var
from .build import ZERO, Cell, Indices, Site, nest
from .sort import Rows, before, merge_sort

Corners = tuple[Expr, Expr, Expr, Expr]


def suppress(site: Site) -> Stmt:
    """Builds `non_max_suppression` as ONNX defines it."""
    scores, out = site.buffer(1), site.outs[0]
    batch, classes, n = scores.shape
    kept = Buffer("kept", i64, (batch, classes, n), scope="workspace")
    sizes = Buffer("sizes", i64, (batch, classes), scope="workspace")
    count, at, s, size = Cell("count"), Var("at", i64), Var("s", i64), Var("size", i64)

    def collect(i: Indices) -> Stmt:
        row = seq(*(Store(out, (at, Const(d, i64)), e) for d, e in enumerate((*i, kept.load(*i, s)))), count.set(at + 1))
        one = seq(Let(at, count.get), If(_within(at, out.shape[0]), row))
        return seq(Let(size, sizes.load(*i)), If(all_of(Le(ZERO, size), Le(size, n)), For(s, ZERO, size, "serial", one)))

    return seq(
        Alloc(kept),
        Alloc(sizes),
        nest((batch, classes), lambda i: _class(site, i, kept, sizes), outer="parallel"),
        count.new(ZERO),
        nest((batch, classes), collect),
        Store(site.counts[0], (), count.get),
    )


def _class(site: Site, i: Indices, kept: Buffer, sizes: Buffer) -> Stmt:
    """Selects the boxes of one class: writes them to `kept` and their number to `sizes`."""
    boxes, scores = site.buffer(0), site.buffer(1)
    n, most = scores.shape[2], Min(site.read(2), site.attrs.most)
    rows = Rows.of(f32, n)
    have, left, free = Cell("have"), Cell("left"), Cell("free", bool_)
    j, a, score, m, t, box, size, s, other = (
        Var(name, f32 if name == "score" else i64) for name in ("j", "a", "score", "m", "t", "box", "size", "s", "other")
    )
    candidate = seq(Store(rows.keys, (a,), score), Store(rows.places, (a,), j), have.set(a + 1))
    find = seq(
        Let(score, scores.load(*i, j)),
        Let(a, have.get),
        If(Lt(site.read(4), score), If(_within(a, n), candidate)),
    )
    corners = [_corners(boxes, i[0], which, site.attrs.center_point_box) for which in (box, other)]
    against = seq(
        Let(other, kept.load(*i, s)),
        If(_within(other, n), If(_overlaps(corners[0], corners[1], site.read(3)), free.set(Const(False, bool_)))),
    )
    keep = seq(Store(kept, (*i, size), box), left.set(size + 1))
    judge = seq(
        free.set(Const(True, bool_)),
        For(s, ZERO, size, "serial", against),
        If(free.get, keep),
    )
    one = seq(
        Let(box, rows.places.load(t)),
        Let(size, left.get),
        If(all_of(_within(box, n), Lt(size, most), _within(size, n)), judge),
    )
    return seq(
        rows.alloc(),
        have.new(ZERO),
        For(j, ZERO, n, "serial", find),
        Let(m, have.get),
        Check(all_of(Le(ZERO, m), Le(m, n)), "non_max_suppression: {0} candidates of {1} boxes", (m, n)),
        merge_sort(rows, m, before(f32, descending=True)),
        left.new(ZERO),
        free.new(Const(True, bool_)),
        For(t, ZERO, m, "serial", one),
        Store(sizes, i, left.get),
    )


def _corners(boxes: Buffer, batch: Expr, which: Expr, center: bool) -> Corners:
    """Returns the lower and upper corners of a box, from either ONNX format."""
    a, b, c, d = (boxes.load(batch, which, Const(k, i64)) for k in range(4))
    if center:
        half_width, half_height = Div(c, Const(2.0, f32)), Div(d, Const(2.0, f32))
        return Sub(a, half_width), Sub(b, half_height), Add(a, half_width), Add(b, half_height)
    return Min(a, c), Min(b, d), Max(a, c), Max(b, d)


def _overlaps(p: Corners, q: Corners, threshold: Expr) -> Expr:
    """True if the intersection over union (IoU) is above the threshold; boxes without area overlap nothing."""
    zero = Const(0.0, f32)
    width, height = Sub(Min(p[2], q[2]), Max(p[0], q[0])), Sub(Min(p[3], q[3]), Max(p[1], q[1]))
    first, second = (Mul(Sub(c[2], c[0]), Sub(c[3], c[1])) for c in (p, q))
    both = Mul(width, height)
    part = Div(both, Sub(Add(first, second), both))
    return all_of(*(Not(Le(e, zero)) for e in (width, height, first, second)), Lt(threshold, part))


def _within(index: Expr, extent: Expr) -> Expr:
    return all_of(Le(ZERO, index), Lt(index, extent))
