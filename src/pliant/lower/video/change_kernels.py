"""Loop programs that video programs need around the loop programs of the net: compare, count and list pixels, and put listed pixels back.

Each serves images of any size, so one kernel serves all images of a rank. An image has rows and columns as dims `rows` and `rows + 1`.

    compare(x, kept)          kept = x where something moved; changed = of which pixels
    count(changed)            how many pixels changed
    list_pixels(changed)      rows and columns of the changed pixels, in groups of `GROUP`; the place in the list of each pixel
    put_back(listed, kept)    kept = listed where a pixel moved; changed = which ones

**A pixel moved** if an element differs in its bits and not by at most `limits[k]`. A limit of -1 keeps every bit, also the sign of a zero.
"""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def,no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...dtype import DType
from ...dtype import dtype as to_dtype
from ...loop.attributes import NO_ATTRS, FuncAttrs
from ...loop.buffer import Buffer
from ...loop.inline import compile_time, inline
from ...loop.script import alloc, block, grid, init, parallel, vector, view
from ...loop.stmt import Func, Param, Role
from ...sym.expr import And, Bitcast, Call, Cast, Dim, Expr, Le, Ne, Not, Var, const
from ...sym.script import cast, select
from ...sym.spec import f32, i32, i64, u8
from .padding import Halo

GROUP = 12  # pixels of a group of a list: whole register tiles of 6, 4, 3 or 2 pixels, which rules choose for convolutions
NOWHERE = -1  # the place of a pixel that is not listed


@dataclass(frozen=True, slots=True)
class Image:
    """The form of the kept images that one kernel serves: which dim is the rows, the halo, and the last dim if its size is a constant."""

    dtype: DType
    rank: int
    rows: int
    halo: Halo
    minor: int = 0  # elements of the last dim, behind the columns; 0: the last dim is the columns, or any size
    last: bool = False  # listed pixels have the last dim before the rows behind them

    def shapes(self) -> tuple[Any, Any, Any]:
        """Returns the shapes of an image: of its pixels, of the dims before its rows, and of the dims behind its columns."""
        others: list[Expr] = [Dim(f"c{k}") for k in range(self.rank - 2)]
        if self.minor:
            others[-1] = const(self.minor)
        return (Dim("h"), Dim("w")), tuple(others[: self.rows]), tuple(others[self.rows :])


def _buffer(name: str, dtype: DType | type, shape: Sequence[Any]) -> Any:
    """Returns a parameter; untyped, because the loop language is."""
    return Buffer(name, to_dtype(dtype), tuple(shape))


def _dim(name: str) -> Any:
    return Dim(name)


def _index() -> Any:
    """Returns a parameter that is the number of an image."""
    return Var("k", to_dtype("i64"))


def _func(name: str, inputs: Sequence[Any], outs: Sequence[tuple[Buffer, Role]], body: Any, attrs: FuncAttrs = NO_ATTRS) -> Func:
    """Returns the loop program of an inline function over the buffers of its parameters."""
    return Func(name, (*map(Param, inputs), *(Param(b, role) for b, role in outs)), body.statements(), attrs)


@compile_time
def moved(new: Expr, old: Expr, limit: Expr) -> Expr:
    """Returns the condition that an element moved by more than a limit; a NaN moved unless all of its bits are equal."""
    if not new.dtype.is_float:
        distance = Call("abs", Cast(to_dtype("f32"), new) - Cast(to_dtype("f32"), old))
        return And(Ne(new, old), Not(Le(distance, limit)))
    bits, float32 = to_dtype(f"u{new.dtype.bits}"), to_dtype("f32")
    a, b = (e if e.dtype.bits > 16 else Cast(float32, e) for e in (new, old))
    near = Le(Call("abs", a - b), limit if a.dtype is float32 else Cast(a.dtype, limit))
    return And(Ne(Bitcast(bits, new), Bitcast(bits, old)), Not(near))


def compare(image: Image) -> Func:
    """Returns the program that compares an image with the kept one, and keeps the pixels that moved."""
    (h, w), before, behind = image.shapes()
    x = _buffer("x", image.dtype, (*before, h, w, *behind))
    kept, limits = _buffer("kept", image.dtype, image.halo.around(x.shape, image.rows)), _buffer("limits", f32, (_dim("maps"),))
    k, changed = _index(), _buffer("changed", u8, (h, w))
    ROWS, OTHERS, LANES, MINOR, FIRST = image.rows, before, behind, image.minor, (const(0),)

    @compile_time
    def element(i: Any, j: Any, *others: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the indices of an element of a pixel."""
        rest = tuple(e for part in others for e in part)
        return (*rest[:ROWS], i, j, *rest[ROWS:])

    @compile_time
    def inside(indices: tuple[Any, ...]) -> tuple[Any, ...]:
        return image.halo.inside(indices, ROWS)

    @inline
    def planes():
        """Of channels in planes: pixels of a row are the lanes of vectors."""
        for i in parallel(h):
            for j in range(w):
                changed[i, j] = cast(u8, 0)
            for c in grid(*OTHERS):
                for q in grid(*LANES):
                    for j in vector(w):
                        is_moved = moved(x[*element(i, j, c, q)], kept[*inside(element(i, j, c, q))], limits[k])
                        changed[i, j] = select(is_moved, cast(u8, 1), changed[i, j])
            for c in grid(*OTHERS):
                for q in grid(*LANES):
                    for j in vector(w):
                        new = x[*element(i, j, c, q)]
                        kept[*inside(element(i, j, c, q))] = select(changed[i, j] != 0, new, kept[*inside(element(i, j, c, q))])

    @inline
    def pixels():
        """Of channels side by side: elements of a row are the lanes, whatever pixel they are of; each is kept by itself."""
        differs = alloc((h, w * MINOR), u8)
        for i in parallel(h):
            for j in range(w):
                changed[i, j] = cast(u8, 0)
            for c in grid(*OTHERS):
                row = view(x[*element(i, 0, c, FIRST)], (w * MINOR,))
                old = view(kept[*inside(element(i, 0, c, FIRST))], (w * MINOR,))
                for e in vector(w * MINOR):
                    is_moved = moved(row[e], old[e], limits[k])
                    differs[i, e] = select(is_moved, cast(u8, 1), cast(u8, 0))
                    old[e] = select(is_moved, row[e], old[e])
                for j in range(w):
                    for q in range(MINOR):
                        changed[i, j] = max(changed[i, j], differs[i, j * MINOR + q])

    body = pixels if image.minor and len(behind) == 1 else planes
    return _func("compare", (x, limits, k), [(kept, "inout"), (changed, "out")], body, FuncAttrs(scheduled=True))


def count() -> Func:
    """Returns the program that counts changed pixels, and notes their number as that of map `k`."""
    h, w, k = _dim("h"), _dim("w"), _index()
    changed, total, counts = _buffer("changed", u8, (h, w)), _buffer("total", i64, ()), _buffer("counts", i64, (_dim("maps"),))

    @inline
    def body():
        for i, j in grid(h, w):
            with block("total", "RR", i, j) as (vi, vj):
                with init():
                    total[()] = 0
                total[()] += cast(i64, changed[vi, vj])
        with block("noted", ""):
            counts[k] = total[()]

    return _func("count", (changed, k), [(counts, "inout"), (total, "out")], body)


def list_pixels() -> Func:
    """Returns the program that lists the changed pixels in ascending order; the last pixel fills the last group."""
    h, w = _dim("h"), _dim("w")
    groups = (h * w + (GROUP - 1)) // GROUP
    changed, place, number = _buffer("changed", u8, (h, w)), _buffer("place", i32, (h, w)), _buffer("number", i64, ())
    rows, columns = _buffer("at_row", i32, (groups, const(GROUP))), _buffer("at_column", i32, (groups, const(GROUP)))

    @inline
    def body():
        count = alloc((1,), i64, scope="stack")
        count[0] = 0
        for i in range(h):
            for j in range(w):
                place[i, j] = NOWHERE
                if changed[i, j] != 0:
                    at = count[0]
                    if 0 <= at < groups * GROUP:
                        rows[at // GROUP, at % GROUP] = cast(i32, i)
                        columns[at // GROUP, at % GROUP] = cast(i32, j)
                        place[i, j] = cast(i32, at)
                        count[0] = at + 1
        last = count[0] - 1
        filled = (last + GROUP) // GROUP
        number[()] = filled
        if 0 <= last < groups * GROUP:
            for p in range(1, GROUP):
                at = last + p
                if at < filled * GROUP and at < groups * GROUP:
                    rows[at // GROUP, at % GROUP] = rows[last // GROUP, last % GROUP]
                    columns[at // GROUP, at % GROUP] = columns[last // GROUP, last % GROUP]

    counted = {b.name: number.name for b in (rows, columns)}
    outs: list[tuple[Buffer, Role]] = [(b, "out") for b in (rows, columns, place, number)]
    return _func("list_pixels", (changed,), outs, body, FuncAttrs(counted=counted))


def put_back(image: Image) -> Func:
    """Returns the program that puts listed pixels into the kept image if they moved, and says which did."""
    (h, w), before, behind = image.shapes()
    groups, k = _dim("groups"), _index()
    new = _buffer("new", image.dtype, _listed(image, (*before, groups, const(GROUP), *behind)))
    kept = _buffer("kept", image.dtype, image.halo.around((*before, h, w, *behind), image.rows))
    limits, place, changed = _buffer("limits", f32, (_dim("maps"),)), _buffer("place", i32, (h, w)), _buffer("changed", u8, (h, w))
    LANES: Any = behind[-1:] if image.minor else ()
    OTHERS: Any = (*before, *behind[: len(behind) - len(LANES)])
    ROWS = image.rows

    @compile_time
    def element(i: Any, j: Any, *others: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the indices of an element of a pixel; in `new`, a pixel is a group and a number in it."""
        rest = tuple(e for part in others for e in part)
        return (*rest[:ROWS], i, j, *rest[ROWS:])

    @compile_time
    def listed(at: Any, *others: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the indices of an element of the listed pixel number `at`."""
        rest = tuple(e for part in others for e in part)
        return _listed(image, (*rest[:ROWS], at // GROUP, at % GROUP, *rest[ROWS:]))

    @compile_time
    def inside(indices: tuple[Any, ...]) -> tuple[Any, ...]:
        return image.halo.inside(indices, ROWS)

    @inline
    def body():
        for i in parallel(h):
            differs = alloc((*LANES, 1), i32, scope="stack")
            for j in range(w):
                changed[i, j] = cast(u8, 0)
                at = cast(i64, place[i, j])
                if at >= 0 and at < groups * GROUP:
                    for q in grid(*LANES, innermost="vector"):
                        differs[*q, 0] = 0
                    for c in grid(*OTHERS):
                        for q in grid(*LANES, innermost="vector"):
                            if_moved = moved(new[*listed(at, c, q)], kept[*inside(element(i, j, c, q))], limits[k])
                            differs[*q, 0] = select(if_moved, 1, differs[*q, 0])
                    for q in grid(*LANES):
                        if differs[*q, 0] != 0:
                            changed[i, j] = cast(u8, 1)
                    if changed[i, j] != 0:
                        for c in grid(*OTHERS):
                            for q in grid(*LANES, innermost="vector"):
                                kept[*inside(element(i, j, c, q))] = new[*listed(at, c, q)]

    return _func("put_back", (new, place, limits, k), [(kept, "inout"), (changed, "out")], body, FuncAttrs(scheduled=True))


def _listed(image: Image, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the dims of listed pixels in the order of their memory."""
    r = image.rows
    return (*items[: r - 1], *items[r:], items[r - 1]) if image.last else items


def everywhere() -> Func:
    """Returns the program of a mask in which every pixel changed."""
    h, w = _dim("h"), _dim("w")
    changed = _buffer("changed", u8, (h, w))

    @inline
    def body():
        for i, j in grid(h, w):
            with block("changed", "SS", i, j) as (vi, vj):
                changed[vi, vj] = cast(u8, 1)

    return _func("everywhere", (), [(changed, "out")], body)


def keep(dtype: DType, rank: int) -> Func:
    """Returns the program that copies a tensor into the kept one."""
    shape: Any = tuple(Dim(f"n{k}") for k in range(rank))
    x, kept, KINDS = _buffer("x", dtype, shape), _buffer("kept", dtype, shape), "S" * rank

    @inline
    def body():
        for p in grid(*shape):
            with block("kept", KINDS, *p) as v:
                kept[*v] = x[*v]

    return _func("keep", (x,), [(kept, "inout")], body)
