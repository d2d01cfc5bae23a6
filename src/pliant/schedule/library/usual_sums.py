"""Sums as the default rules add them, for schedules that no rule makes: other loops around a sum, and the same bits.

    prepare_sums(s, target)                                  # products become FMAs, short variances are in f64
    loops = cut_sum(s, "c", reduced, target)                 # the loops of the sum, split where its parts begin
    end_sum(s, "c", loops, written, inner, target)           # partial sums of a tile in registers, inits before the loops
    finish_sum(s, "d", target)                               # a sum that stays in its loops
    finish_sums(s, target, before)                           # all that are left; means round once

All of it declares to change rounding, compared with the program; compared with the rules it does not. So `s.rounding` stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from ...loop.analysis.nest_shape import alone
from ...loop.analysis.nests import blocks, fed_by, find_block, loops_above
from ...loop.buffer import Scope
from ...loop.stmt import Func, Reduce
from ...target import Target
from ..schedule import BlockHandle, LoopHandle, Schedule
from .accumulate import Loops, begin, cut, cuts_for, lanes, over_tile, parts_in_order, sizes_of, with_parts
from .record import tried
from .rounding import round_once
from .squares import widen_squares


@contextmanager
def usual_order(s: Schedule) -> Iterator[None]:
    """Context manager: what the body declares to round otherwise is what the rules do, too, so it is not noted in `s.rounding`."""
    before = list(s.rounding)
    yield
    s.rounding[:] = before


def prepare_sums(s: Schedule, target: Target) -> None:
    """Contract sums of products to FMAs if the machine has them, and mark variances that are computed in f64.

    A long sum that the last rule cannot sum in parts (it shares its loops with another block, or has a predicate) is marked to stay whole.
    """
    with usual_order(s):
        widen_squares(s, target)
        for b in blocks(s.program.body):
            _contract(s, b.name, target)
            if _is_long(s, b.name, target) and not tried(partial(parts_in_order, s.copy(), b.name, target)):
                s.annotate(b.name, "parts", ())


def _is_long(s: Schedule, block: str, target: Target) -> bool:
    b = find_block(s.program, block)
    if not isinstance(b.body, Reduce) or b.init is None:
        return False
    reduced = [x for x in loops_above(s.program, b) if fed_by(b, x) == {"R"}]
    return bool(reduced) and bool(cuts_for(s.program, b, reduced, how=sizes_of(b, target)))


def _contract(s: Schedule, block: str, target: Target) -> None:
    if target.has_fma and isinstance(find_block(s.program, block).body, Reduce):
        tried(partial(s.contract, block))


def cut_sum(s: Schedule, block: str, reduced: Sequence[LoopHandle], target: Target) -> Loops:
    """Split the loops of a sum, outermost first, where its parts begin if it is long; return all loops of the sum, old and new."""
    with usual_order(s):
        _contract(s, block, target)  # an inlined operand may have made it a sum of products
    return cut(s, block, reduced, how=sizes_of(find_block(s.program, block), target))


def end_sum(
    s: Schedule, block: str, loops: Loops, written: BlockHandle, inner: Sequence[LoopHandle], target: Target, scope: Scope = "register"
) -> None:
    """Sum a tile in the parts that `cut_sum` made, and take the inits out of the loops; `written` copies the tile to the result.

    `inner` are the loops over the tile inside of those of the sum. The last one becomes a vector; in registers the others are unrolled.
    """
    with usual_order(s):
        wide = sizes_of(find_block(s.program, block), target).wide
        parts = with_parts(s, block, loops, scope)
        _over(s, inner, scope)
        for b in (written, *(p.total for p in parts)):
            _over(s, [h for h in s.loops(b) if h.loop in alone(s.program, b.block) and fed_by(b.block, h.loop) <= {"S"}], scope)
        begin(s, block, loops.loops[0], parts)
        if parts and wide:
            s.widen(parts[-1].total)


def _over(s: Schedule, loops: Sequence[LoopHandle], scope: Scope) -> None:
    if scope == "register":
        over_tile(s, loops)
    else:
        lanes(s, loops[-1])


def finish_sum(s: Schedule, block: str, target: Target) -> None:
    """Sum a block in parts if it is a long sum that was not cut, without moving loops."""
    b = find_block(s.program, block)
    if isinstance(b.body, Reduce) and b.init is not None:
        with usual_order(s):
            _contract(s, block, target)
            tried(partial(parts_in_order, s, block, target))


def finish_sums(s: Schedule, target: Target, before: Func) -> None:
    """Finish all sums, and round means once; `before` is the program without a schedule."""
    for b in blocks(s.program.body):
        finish_sum(s, b.name, target)
    with usual_order(s):
        round_once(s, before)
