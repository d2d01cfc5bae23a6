"""Non-maximum suppression (NMS): each class sorts its candidates and keeps them greedily, in parallel; then kept boxes are collected."""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from ....loop.inline import inline
from ....loop.script import alloc, check, grid
from ....sym.spec import bool_, f32, i64
from .build import Site
from .sort import merge_sort, order_of


def _overlap_test(boxes: Any, overlap: Any, CENTER: bool) -> Any:
    """Returns the inline function that compares two boxes of an image: True if their intersection over union is above the threshold.

    With `CENTER`, a box is its center and size, else two corners.
    """

    @inline
    def corners(b, which):
        """The lower and upper corners of a box, from either ONNX format."""
        (x := boxes[b, which, 0])
        (y := boxes[b, which, 1])
        (z := boxes[b, which, 2])
        (w := boxes[b, which, 3])
        return (
            x - z / 2.0 if CENTER else min(x, z),
            y - w / 2.0 if CENTER else min(y, w),
            x + z / 2.0 if CENTER else max(x, z),
            y + w / 2.0 if CENTER else max(y, w),
        )

    @inline
    def overlaps(p, q):
        """True if the intersection over union (IoU) is above the threshold; boxes without area overlap nothing."""
        (width := min(p[2], q[2]) - max(p[0], q[0]))
        (height := min(p[3], q[3]) - max(p[1], q[1]))
        (first := (p[2] - p[0]) * (p[3] - p[1]))
        (second := (q[2] - q[0]) * (q[3] - q[1]))
        (union := first + second - width * height)
        return not width <= 0.0 and not height <= 0.0 and not first <= 0.0 and not second <= 0.0 and overlap[()] < width * height / union

    @inline
    def overlap_test(b, which, other):
        return overlaps(corners(b, which), corners(b, other))

    return overlap_test


def suppress(site: Site) -> Any:
    """Builds `non_max_suppression` as ONNX defines it: keeps the best boxes of each class in parallel, then lists them in order."""
    boxes, scores, limit, overlap, least = site.args
    out, total, most, CENTER = site.outs[0], site.counts[0], site.attrs.most, site.attrs.center_point_box
    (batch, classes, n), capacity, descending = scores.shape, out.shape[0], order_of(f32, descending=True)

    overlap_test = _overlap_test(boxes, overlap, CENTER)

    @inline
    def keep_best(b, c, kept, sizes):
        """Selects the boxes of one class: writes them to `kept` and their number to `sizes`."""
        keys = alloc((n,), f32)
        places = alloc((n,), i64)
        next_keys = alloc((n,), f32)
        next_places = alloc((n,), i64)
        have = alloc((1,), i64, scope="stack")
        have[0] = 0
        for j in range(n):
            score = scores[b, c, j]
            a = have[0]
            if least[()] < score:
                if 0 <= a < n:
                    keys[a] = score
                    places[a] = j
                    have[0] = a + 1
        m = have[0]
        check(0 <= m <= n, "non_max_suppression: {0} candidates of {1} boxes", m, n)
        merge_sort(keys, places, next_keys, next_places, m, descending)
        left = alloc((1,), i64, scope="stack")
        left[0] = 0
        free = alloc((1,), bool_, scope="stack")
        free[0] = True
        for t in range(m):
            box = places[t]
            size = left[0]
            if 0 <= box < n and size < min(limit[()], most) and (0 <= size < n):
                free[0] = True
                for s in range(size):
                    other = kept[b, c, s]
                    if 0 <= other < n:
                        if overlap_test(b, box, other):
                            free[0] = False
                if free[0]:
                    kept[b, c, size] = box
                    left[0] = size + 1
        sizes[b, c] = left[0]

    @inline
    def selected():
        kept = alloc((batch, classes, n), i64)
        sizes = alloc((batch, classes), i64)
        for b, c in grid(batch, classes, outermost="parallel"):
            keep_best(b, c, kept, sizes)
        count = alloc((1,), i64, scope="stack")
        count[0] = 0
        for b, c in grid(batch, classes):
            size = sizes[b, c]
            if 0 <= size <= n:
                for s in range(size):
                    at = count[0]
                    if 0 <= at < capacity:
                        out[at, 0] = b
                        out[at, 1] = c
                        out[at, 2] = kept[b, c, s]
                        count[0] = at + 1
        total[()] = count[0]

    return selected
