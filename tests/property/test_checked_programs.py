"""Random loop programs, which are right by construction, never fail a check of checked mode and give the same results, bit for bit."""

from __future__ import annotations

import pytest
from test_loop_programs import canonical, compare, run

from counts import seeds
from generate_loops import clone, make_arguments, make_program
from native_loops import Lifted
from pliant.loop.passes.add_checks import add_checks
from pliant.loop.stmt import Call, Combiner, Func, Reduce, Replacer, Stmt
from pliant.loop.verify import verify
from pliant.sym import expr as E
from pliant.sym.expr import Const, Expr

BATCH = 15
ROUNDS = 2


class GuardedDivisions(Replacer):
    """The same program with every division by what may be zero under a condition: unguarded, checked mode refuses it."""

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, E.FloorDiv | E.FloorMod) and not (isinstance(e.args[1], Const) and e.args[1].value):
            a, b = (self.expr(x) for x in e.args)
            zero = Const(0, b.dtype)
            return E.Select(E.Eq(b, zero), zero, type(e)(a, b))
        return super()._leaf(e)

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Call):
            s = s.with_(func=guarded(s.func))
        if isinstance(s, Reduce) and s.combiner.result:
            c = s.combiner
            s = s.with_(combiner=Combiner(c.name, c.left, c.right, tuple(self.expr(e) for e in c.result)))
        return super().stmt(s)


def guarded(func: Func) -> Func:
    """The program with guarded divisions."""
    return func.with_(body=GuardedDivisions().stmt(func.body))


@pytest.mark.parametrize("first", seeds(60, 5000, BATCH))
def test_right_programs_never_fail_a_check(first: int) -> None:
    funcs = [guarded(make_program(seed)) for seed in range(first, first + BATCH)]
    checked = [add_checks(f) for f in funcs]
    native = Lifted(checked, level=1)
    for n, (func, other) in enumerate(zip(funcs, checked, strict=True)):
        verify(other)
        for seed in range((first + n) * ROUNDS, (first + n + 1) * ROUNDS):
            arguments, dims = make_arguments(func, seed)
            expected = run(func, arguments, dims)
            for threads in (1, 2):
                mine = [clone(a) for a in arguments]
                assert native.call(other, mine, dims, threads) == 0, f"a check failed for arguments {seed} of\n{func}"
                compare(func, f"checked, {threads} threads", expected, [canonical(a) for a in mine], seed)
