"""Which local buffers of a loop program are images with a border of zeros, so that the image may be kept with that border (a halo).

padded[c, i, j] = select(0 <= i - 1 < h and 0 <= j - 1 < w, x[c, i - 1, j - 1], 0.0)
    ->  x has a halo of 1 on all sides, and padded[c, i, j] is x[c, i - 1 + 1, j - 1 + 1]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...loop.analysis.nests import base_facts
from ...loop.analysis.scope_facts import block_facts
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Func
from ...sym.conditions import all_of
from ...sym.expr import Const, Expr, Le, Lt, Select, Var, const, free_vars, substitute
from ...sym.prove import prove
from ...sym.simplify import simplify
from .pixels import Rows, Stage


@dataclass(frozen=True, slots=True)
class Halo:
    """How many rows and columns of zeros surround an image in memory."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    def joined(self, other: Halo) -> Halo:
        """Returns the smallest halo that contains both."""
        return Halo(max(self.top, other.top), max(self.left, other.left), max(self.bottom, other.bottom), max(self.right, other.right))

    def contains(self, other: Halo) -> bool:
        """True if this halo has all rows and columns of the other one."""
        return self.joined(other) == self

    def around(self, shape: Sequence[Expr], rows: int) -> tuple[Expr, ...]:
        """Returns the shape of an image whose rows are dim `rows`, with the halo."""
        added = {rows: self.top + self.bottom, rows + 1: self.left + self.right}
        return tuple(simplify(e + const(added[k])) if added.get(k) else e for k, e in enumerate(shape))

    def inside(self, indices: Sequence[Expr], rows: int) -> tuple[Expr, ...]:
        """Returns the indices of an element in memory, from its indices in the image."""
        added = {rows: self.top, rows + 1: self.left}
        return tuple(simplify(e + const(added[k])) if added.get(k) else e for k, e in enumerate(indices))


NO_HALO = Halo()


@dataclass(frozen=True, slots=True)
class Padded:
    """A local buffer that holds an image with a border: the stage that fills it, and what the image needs to take its place."""

    stage: Stage
    source: Load  # the element of the image, over the iterators of the stage
    halo: Halo | None  # None: the border holds something else than zeros, or its width is not known

    def without_halo(self) -> Padded:
        """Returns the same for an image that is kept without the halo."""
        return Padded(self.stage, self.source, None)

    def element(self, indices: Sequence[Expr], exact: bool) -> Expr:
        """Returns what the buffer holds at `indices`: an element of the image or of its halo; with `exact`, the select that filled it."""
        iterators = {v: e for v, e in zip(self.stage.target.indices, indices, strict=True) if isinstance(v, Var)}
        return substitute(self.stage.values[0] if exact else self.source, iterators)


def padded_images(func: Func, stages: Sequence[Stage], inputs: Rows) -> Mapping[Buffer, Padded]:
    """Returns the local buffers of a program that only hold an input image with a border."""
    found: dict[Buffer, Padded] = {}
    written = [s.target.buffer for s in stages]
    for stage in stages:
        value, target = stage.values[0], stage.target
        if target.buffer in func.buffers or written.count(target.buffer) > 1 or not all(isinstance(v, Var) for v in target.indices):
            continue
        if not isinstance(value, Select) or not isinstance(value.args[1], Load) or not isinstance(value.args[2], Const):
            continue
        condition, source, border = value.args
        if isinstance(source, Load) and source.buffer in inputs and not any(isinstance(x, Load) for x in condition.args):
            zero = isinstance(border, Const) and border.value == 0 and str(border.value) != "-0.0"
            found[target.buffer] = Padded(stage, source, _halo(func, stage, condition, source, inputs[source.buffer]) if zero else None)
    return found


def _halo(func: Func, stage: Stage, condition: Expr, source: Load, rows: int) -> Halo | None:
    """Returns the halo that holds all elements of a border; None if it is not known.

    The border begins where the element is outside of the image: wherever it is inside, the condition must hold.
    """
    within = [c for e, n in zip(source.indices, source.buffer.shape, strict=True) for c in (Le(const(0), e), Lt(e, n))]
    if not prove(condition, block_facts(stage.block, base_facts(func)).with_condition(all_of(*within))):
        return None
    sides: list[int] = []
    for k in (rows, rows + 1):
        e, size = source.indices[k], source.buffer.shape[k]
        moving = [v for v in stage.target.indices if isinstance(v, Var) and v in free_vars(e)]
        if len(moving) != 1:
            return None
        (v,) = moving
        start: Expr = const(0)
        last = stage.loops[v].stop - const(1)
        step = simplify(substitute(e, {v: v + const(1)}) - e)
        before, after = simplify(substitute(e, {v: start})), simplify(substitute(e, {v: last}) - (size - const(1)))
        if not (isinstance(step, Const) and step.value > 0 and isinstance(before, Const) and isinstance(after, Const)):
            return None
        sides += [max(0, -int(before.value)), max(0, int(after.value))]
    top, bottom, left, right = sides
    return Halo(top, left, bottom, right)
