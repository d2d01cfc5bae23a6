"""Simplifies floor divisions and remainders in indices, using the ranges of the surrounding loops.

    for j_0 in range(4):                              for j_0 in range(4):
        for j_1 in vector(16):                            for j_1 in vector(16):
            x[(j_0 * 16 + j_1) // 16,                         x[j_0, j_1] = 1.0
              (j_0 * 16 + j_1) % 16] = 1.0    ->

Layout changes introduce them (`transform_layout`), and loop splits make them redundant. Without them an access has unit stride where the
memory does. Indices without divisions, or with divisions of dims alone, are not changed.
"""

from __future__ import annotations

from collections.abc import Collection

from ...sym.expr import Const, Dim, Expr, FloorDiv, FloorMod, Not, free_vars
from ...sym.facts import Facts
from ...sym.simplify import simplify
from ...sym.walk import walk
from ..analysis.scope_facts import base_facts, block_facts, fixed, given
from ..buffer import Buffer, Load
from ..stmt import Block, For, Func, If, Let, Reduce, Replacer, Seq, Stmt, Store, children, exprs, map_children


def simplify_indices(func: Func) -> Func:
    """Returns the function with those indices simplified that contain a floor division or remainder of a variable.

    The same object if none does.
    """
    simplifier = Simplifier(None)
    if not simplifier.any_inside(func.body):  # the common case: no facts have to be collected
        return func
    return func.with_body(simplifier.stmt(func.body, base_facts(func)))


class Simplifier:
    """Simplifies indices with the facts around them; `moved` maps each changed statement to its new version, for handles of a schedule."""

    def __init__(self, only: Collection[Buffer] | None) -> None:
        self.only = only  # the buffers whose indices are simplified, None for all
        self.moved: dict[Stmt, Stmt] = {}
        self.seen: dict[Stmt, bool] = {}

    def stmt(self, s: Stmt, facts: Facts) -> Stmt:
        """Returns `s` with its indices simplified under `facts`."""
        if not self.any_inside(s):
            return s
        match s:
            case Seq():
                new: Stmt = self.sequence(s, facts)
            case For():
                new = self.inside(s, facts.with_range(s.var, fixed(s.start), fixed(s.stop - 1)))
            case If():
                then = self.stmt(s.then, given(s.cond, facts))
                orelse = None if s.orelse is None else self.stmt(s.orelse, given(Not(s.cond), facts))
                new = s if then is s.then and orelse is s.orelse else s.with_(then=then, orelse=orelse)
            case Block():
                new = self.block(s, facts)
            case _ if children(s):
                new = self.inside(s, facts)
            case _:
                new = _Leaf(self, facts).stmt(s)
        if new is not s:
            self.moved[s] = new
        return new

    def inside(self, s: Stmt, facts: Facts) -> Stmt:
        return map_children(s, lambda x: self.stmt(x, facts))

    def block(self, s: Block, facts: Facts) -> Stmt:
        """Returns a block with the indices in its body and init simplified; the same object if nothing changes.

        Its iterators and its predicate stay as they are. The init does not know the conjuncts of the predicate with reduction iterators.
        """
        body = self.stmt(s.body, block_facts(s, facts))
        init = None if s.init is None else self.stmt(s.init, block_facts(s, facts, init=True))
        return s if body is s.body and init is s.init else s.with_(body=body, init=init)

    def sequence(self, s: Seq, facts: Facts) -> Stmt:
        """Returns a sequence with its indices simplified; an integer let is a fact for the statements after it."""
        body: list[Stmt] = []
        for x in s.body:
            body.append(self.stmt(x, facts))
            if isinstance(x, Let) and x.var.dtype.is_int and fixed(x.value) is not None:
                facts = facts.with_equal(x.var, x.value)
        return s if all(a is b for a, b in zip(body, s.body, strict=True)) else s.with_(body=tuple(body))

    def any_inside(self, s: Stmt) -> bool:
        """True if a statement contains an index to simplify (memoized); asked first, because collecting facts is expensive."""
        answer = self.seen.get(s)
        if answer is None:
            inner = children(s)
            answer = self.seen[s] = any(map(self.any_inside, inner)) if inner else self.concerned(s)
        return answer

    def concerned(self, s: Stmt) -> bool:
        """True if a statement has an index with a division."""
        places = [Load(s.buffer, s.indices)] if isinstance(s, Store) else list(s.targets) if isinstance(s, Reduce) else []
        loads = [e for own in exprs(s) for e in walk(own) if isinstance(e, Load)]
        return any(self.looked_at(e.buffer) and any(map(has_quotient, e.indices)) for e in (*places, *loads))

    def looked_at(self, buffer: Buffer) -> bool:
        """True if the indices of a buffer are to be simplified."""
        return self.only is None or buffer in self.only


class _Leaf(Replacer):
    """Simplifies the indices in a statement that contains no other statements."""

    __slots__ = ("facts", "owner")

    def __init__(self, owner: Simplifier, facts: Facts) -> None:
        super().__init__(loads=self.place)
        self.owner = owner
        self.facts = facts

    def place(self, e: Load) -> Load:
        """Returns a load of the same element with simpler indices."""
        if not self.owner.looked_at(e.buffer):
            return e
        places = zip(e.indices, e.buffer.shape, strict=True)
        return Load(e.buffer, tuple(self.index(i, extent) if has_quotient(i) else i for i, extent in places))

    def index(self, i: Expr, extent: Expr) -> Expr:
        """The simplified index, unless that is a constant outside of the buffer.

        Such a constant means that the statement is unreachable, with contradicting facts. The verifier rejects constant indices out of
        bounds.
        """
        simple = simplify(i, self.facts)
        if isinstance(simple, Const) and (simple.value < 0 or (isinstance(extent, Const) and simple.value >= extent.value)):
            return i
        return simple

    def target(self, e: Load) -> Load:
        """Returns the element that a store writes, with simpler indices."""
        return self.place(Replacer.target(self, e))


def has_quotient(e: Expr) -> bool:
    """True if some floor division or modulo in `e` has a variable that is not a dim, or no variable at all."""
    divisions = [free_vars(x) for x in walk(e) if isinstance(x, (FloorDiv, FloorMod))]
    return any(not used or any(not isinstance(v, Dim) for v in used) for used in divisions)
