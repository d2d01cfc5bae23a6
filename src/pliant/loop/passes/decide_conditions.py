"""Removes integer comparisons that range analysis decides, and the arms, branches and loops that can therefore never run.

    for i in range(1, 8):                          for i in range(1, 8):
        y[i] = select(i > 0, x[i - 1], 0.0)  ->        y[i] = x[i - 1]
        if i > 9: ...

C compilers warn about comparisons that are always true, and a dead arm may index outside of its buffer. Loops that a tensor instruction
performs are left alone.
"""

from __future__ import annotations

from ...dtype import bool_
from ...sym import expr as E
from ...sym.bounds import Range, int_range
from ...sym.expr import FALSE, TRUE, Const, Expr, Var
from ...sym.facts import Facts
from ..analysis.scope_facts import base_facts
from ..buffer import Buffer
from ..stmt import Alloc, For, Func, If, Let, Replacer, Seq, Stmt, View, is_instruction


def decide_conditions(func: Func) -> Func:
    """Returns the function with every condition replaced by its value that the ranges of variables decide."""
    return func.with_body(_Decider(base_facts(func)).stmt(func.body))


def loop_range(loop: For, facts: Facts) -> Range:
    """The least and the greatest value of a loop's variable; the greatest is below the least if the loop has no iterations."""
    return int_range(loop.start, facts)[0], int_range(loop.stop, facts)[1] - 1


class _Decider(Replacer):
    """Replaces conditions by their values; tracks the ranges of variables on the way down."""

    __slots__ = ("facts",)

    def __init__(self, facts: Facts) -> None:
        super().__init__()
        self.facts = facts

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For() if is_instruction(s):
                return s
            case For():
                low, high = loop_range(s, self.facts)
                return self.inside(s, self.facts.with_range(s.var, low, high)) if low <= high else Seq(())
            case Seq():
                return self.inside(s, self.facts)
            case If():
                condition = self.expr(s.cond)
                if isinstance(condition, Const):
                    taken = s.then if condition is TRUE else s.orelse
                    return Seq(()) if taken is None else self.stmt(_Rebound().stmt(taken))
        s = Replacer.stmt(self, s)
        if isinstance(s, Let) and s.var.dtype.is_int:
            self.facts = self.facts.with_range(s.var, *int_range(s.value, self.facts))
        return s

    def inside(self, s: Stmt, facts: Facts) -> Stmt:
        """Rewrites a scope in which `facts` hold; the facts from before hold again after it.

        Ranges of its variables are dropped at its end, since another copy of the scope may bind the same variables.
        """
        outside, memo = self.facts, self._memo
        self.facts, self._memo = facts, {}
        s = Replacer.stmt(self, s)
        self.facts, self._memo = outside, memo
        return s

    def _leaf(self, e: Expr) -> Expr | None:
        """Returns a comparison, a cast to bool, or a select or logical operator after its condition was decided; None for other nodes.

        Variables and loads are replaced as in the base class.
        """
        if isinstance(e, E.Compare) and e.args[0].dtype.is_int:
            return compared(type(e), self.expr(e.args[0]), self.expr(e.args[1]), self.facts)
        if isinstance(e, E.Cast) and e.dtype is bool_ and e.args[0].dtype.is_int:
            a = self.expr(e.args[0])
            test = compared(E.Ne, a, Const(0, a.dtype), self.facts)
            return test if isinstance(test, Const) else E.Cast(bool_, a)
        if isinstance(e, (E.Select, E.And, E.Or, E.Not)):
            first = self.expr(e.args[0])
            return self.chosen(e, first is TRUE) if isinstance(first, Const) else None
        return Replacer._leaf(self, e)

    def chosen(self, e: Expr, first: bool) -> Expr:
        """The remainder of a select, `and`, `or` or `not` whose first operand is known."""
        match e:
            case E.Select():
                return self.expr(e.args[1] if first else e.args[2])
            case E.Not():
                return FALSE if first else TRUE
            case _:
                return self.expr(e.args[1]) if isinstance(e, E.And) is first else Const(first, bool_)


class _Rebound(Replacer):
    """Renames the variables and buffers that a branch binds.

    Without its condition, the branch becomes part of the surrounding scope, which may bind the same names.
    """

    vars: dict[Var, Expr]
    buffers: dict[Buffer, Buffer]

    def __init__(self) -> None:
        super().__init__({}, {})

    def stmt(self, s: Stmt) -> Stmt:
        if not isinstance(s, (Let, Alloc, View)):
            return Replacer.stmt(self, s)
        if isinstance(s, Let):
            value, var = self.expr(s.value), Var(s.var.name, s.var.dtype)
            self.vars[s.var], self._memo = var, {}
            return s.with_(var=var, value=value)
        b = s.buffer
        strides = None if b.strides is None else tuple(map(self.expr, b.strides))
        start = {"start": tuple(map(self.expr, s.start)), "source": self.buffers.get(s.source, s.source)} if isinstance(s, View) else {}
        self.buffers[b] = Buffer(b.name, b.dtype, tuple(map(self.expr, b.shape)), strides, b.scope)
        self._memo = {}
        return s.with_(buffer=self.buffers[b], **start)


def compared(kind: type[E.Compare], a: Expr, b: Expr, facts: Facts) -> Expr:
    """Returns the constant if ranges decide a comparison of integers, else the comparison itself."""
    if kind is E.Ne:
        inner = compared(E.Eq, a, b, facts)
        return Const(not inner.value, bool_) if isinstance(inner, Const) else E.Ne(a, b)
    (al, ah), (bl, bh) = int_range(a, facts), int_range(b, facts)
    always = {E.Lt: ah < bl, E.Le: ah <= bl or a is b, E.Eq: al == ah == bl == bh or a is b}[kind]
    never = {E.Lt: al >= bh or a is b, E.Le: al > bh, E.Eq: ah < bl or bh < al or _differ_in_a_bit(a, b) or _differ_in_a_bit(b, a)}[kind]
    return Const(always, bool_) if always or never else kind(a, b)


def _differ_in_a_bit(a: Expr, b: Expr) -> bool:
    """True if `a` forces a bit (by a constant mask in `and` or `or`) that has the other value in the constant `b`."""
    masks = [x.value for x in a.args if isinstance(x, Const)]
    if not isinstance(b, Const) or not masks:
        return False
    return bool((isinstance(a, E.BitAnd) and b.value & ~masks[0]) or (isinstance(a, E.BitOr) and masks[0] & ~b.value))
