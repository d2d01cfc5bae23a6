"""The same kernel in float64, against which schedules are measured that add in another order than the default.

    c[i, j] += a[i, k] * b[k, j]        ->        c_tile[i, j] += f64(a[i, k]) * f64(b[k, j]);  c[i, j] = f32(c_tile[i, j])

All blocks compute in f64, and results are rounded once. A candidate is right if its largest error is at most twice the default's, or a few
units of the last place of the largest result (`worker.py`).
"""

from __future__ import annotations

from functools import partial

from ..loop.analysis.nests import accesses, blocks
from ..loop.stmt import Func
from ..schedule.library import tried
from ..schedule.schedule import Schedule


def in_f64(func: Func) -> Func:
    """Returns a program that computes the floats of `func` in f64; raises a ScheduleError if a block cannot be computed so."""
    s = Schedule(func)
    for b in blocks(func.body):
        written = {a.buffer for a in accesses(b) if a.write}
        if not any(x.dtype.is_float and x.dtype.bits < 64 for x in written):
            continue
        if any(p.value in written for p in func.params):
            places = (None, *s.loops(b.name))  # outermost first: a tile needs a constant size
            next((at for at in places if tried(partial(s.cache_write, b.name, at))), None)
        s.widen(b.name)
    return s.program
