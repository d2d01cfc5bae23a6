"""All loops run serially: for renderers that have neither lanes nor threads.

    for i in parallel(n, grain=4):                for i in range(n):
        for j in vector(8):               ->          for j in range(8):
            y[i, j] = x[i, j] + 1.0                       y[i, j] = x[i, j] + 1.0

A vector or parallel loop is legal only if running its iterations in order gives the same results (`loop/stmt.py`), so this changes nothing.
Loops that a tensor instruction performs stay as they are: renderers recognize them by their form.
"""

from __future__ import annotations

from ..stmt import For, Func, Stmt, is_instruction, map_children


def serial_loops(func: Func) -> Func:
    """The function with every loop that no instruction performs of kind `serial`."""
    body = _serial(func.body)
    return func if body is func.body else func.with_(body=body)


def _serial(s: Stmt) -> Stmt:
    if is_instruction(s):
        return s
    s = map_children(s, _serial)
    if not isinstance(s, For) or s.kind == "serial":
        return s
    return s.with_(kind="serial", annotations={k: v for k, v in s.annotations.items() if k != "grain"})
