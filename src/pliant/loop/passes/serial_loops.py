"""Turns every vector and parallel loop into a serial one, for renderers that have neither SIMD lanes nor threads.

    for i in parallel(n, grain=4):                for i in range(n):
        for j in vector(8):               ->          for j in range(8):
            y[i, j] = x[i, j] + 1.0                       y[i, j] = x[i, j] + 1.0

This is legal because a vector or parallel loop must give the same results when its iterations run in order (`loop/stmt.py`). Loops that a
tensor instruction performs are left alone: renderers recognize them by their form.
"""

from __future__ import annotations

from ..stmt import For, Func, Stmt, is_instruction, map_children


def serial_loops(func: Func) -> Func:
    """Returns the function with all vector and parallel loops made serial, except those that a tensor instruction performs."""
    return func.with_body(_serial(func.body))


def _serial(s: Stmt) -> Stmt:
    """Returns the statement with all its loops made serial, except those that a tensor instruction performs."""
    if is_instruction(s):
        return s
    s = map_children(s, _serial)
    if not isinstance(s, For) or s.kind == "serial":
        return s
    return s.with_(kind="serial", annotations={k: v for k, v in s.annotations.items() if k != "grain"})
