"""Sets the grain of every parallel loop: the number of iterations in a chunk.

A chunk should take about 5 µs: the smallest piece of work that is worth handing to another thread. The thread pool joins chunks to tickets
of up to 20 µs where there are enough of them for all threads (`runtime/native/thread_pool.ll`). The time of an iteration is estimated from
the operations in the body, as an expression of the sizes (`analysis/iteration_cost.py`). A grain that the program states stays, but is at
least 1.

    for i in parallel(n):                            for i in parallel(n, grain=i64(5000.0 / (1.0 + 0.7 * f64(max(m, 1)))) + 1):
        for k in range(m):                  ->           for k in range(m):
            c[i] += a[i, k]                                  c[i] += a[i, k]

The grain depends on sizes alone, never on the number of threads, so results do not depend on the number of threads either. The pass runs
before math functions are expanded and storage types decoded, because the estimate prices a call of a function as one operation.
"""

from __future__ import annotations

from ...dtype import f64, i64
from ...sym.expr import Add, Cast, Const, Div, Expr, Max, Mul, wrap
from ..analysis.iteration_cost import Term, iteration_cost
from ..stmt import For, Func, Stmt, map_children, walk_stmts

# 25 times the cost of a launch (0.2 µs). In the simulation of benchmarks/threads.py a ResNet of 25 ms runs 6.5 times as fast on 8 threads
# with chunks of 5 µs, and 5.9 times with chunks of 20 µs.
CHUNK_NS = 5_000.0


def choose_grain(func: Func, lanes: int) -> Func:
    """The function with a grain at each parallel loop; a vector register of the machine has `lanes` floats."""
    if not any(isinstance(s, For) and s.kind == "parallel" for s in walk_stmts(func.body)):
        return func

    def visit(s: Stmt) -> Stmt:
        changed = map_children(s, visit)
        if not isinstance(s, For) or s.kind != "parallel":
            return changed
        # From `s` rather than `changed`: the grain expressions of inner loops must not add to the estimate.
        return changed.with_(annotations={**s.annotations, "grain": _grain(s, lanes)})

    return func.with_(body=visit(func.body))


def _grain(s: For, lanes: int) -> Expr | int:
    """Returns the iterations of a parallel loop per chunk: what the program states, else as many as take about CHUNK_NS."""
    stated = s.annotations.get("grain")
    if stated is None:
        nanoseconds = _in_floats(iteration_cost(s, lanes))
        return Add(Cast(i64, Div(Const(CHUNK_NS, f64), nanoseconds)), Const(1, i64))
    return Max(wrap(stated, i64), Const(1, i64)) if isinstance(stated, Expr) else max(int(stated), 1)


def _in_floats(terms: list[Term]) -> Expr:
    """The cost in nanoseconds as an f64 expression, which cannot overflow; each extent counts as at least 1."""
    total: Expr = Const(1.0, f64)
    for factor, extents in terms:
        term: Expr = Const(factor, f64)
        for e in extents:
            term = Mul(term, Cast(f64, Max(e, Const(1, i64))))
        total = Add(total, term)
    return total
