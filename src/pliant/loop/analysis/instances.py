"""Two instances of a block, compared by the prover: which iterators may differ where both touch one element.

One instance is written over the block's variables, the other over their twins. Loops outside of the buffer's lifetime have the same value
for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtype import i64
from ...sym.expr import DIM_MAX, TRUE, Const, Dim, Expr, Le, Var, free_vars, product, substitute
from ...sym.walk import rewrite, walk
from ..buffer import Buffer, Load
from ..stmt import Block, For, Func, Iter, walk_stmts, writes, zero
from .block_accesses import Access, Around, Collector

if TYPE_CHECKING:
    from ...sym.facts import Facts


class Instances:
    """Two symbolic instances of a block, one over its variables and one over their twins, for proofs that instances do not conflict."""

    def __init__(self, func: Func, b: Block, around: Around, own: tuple[For, ...], found: Collector) -> None:
        self.func = func
        self.block = b
        self.found = found
        self.around = around
        self.own = own
        moved = {x.var for x in own}
        self.mixed: dict[Var, Expr] = {}  # iterators that depend on loops outside of the lifetime too: replaced by their values
        self.twins: dict[Var, Expr] = {x.var: Var(x.var.name) for x in own}
        self.iters: list[tuple[Var, Expr]] = []
        for i in b.iters:
            value = around.see(i.value)
            used = free_vars(value)
            if used.isdisjoint(moved):
                self.mixed[i.var] = value
            elif used & {x.var for x in around.loops} <= moved:
                self.iters.append((i.var, value))
                self.twins[i.var] = Var(i.var.name)
            else:
                self.mixed[i.var] = value
        self.names: dict[Load, Var] = {}
        self.bits: dict[Var, int] = {}  # variable for a bit inside of an element -> its number of bits, where element sizes differ
        self.changing: set[Buffer] | None = None

    def see(self, e: Expr) -> Expr:
        """`e` with mixed iterators replaced by their values, and loads by variables."""
        return rewrite(substitute(e, self.mixed), self._name)

    def _name(self, e: Expr) -> Expr | None:
        """The variable that stands for a load; it has a twin if the two instances may load different values. None for other expressions."""
        if not isinstance(e, Load):
            return None
        if e not in self.names:
            self.names[e] = var = Var(f"{e.buffer.name}[{len(self.names)}]", e.dtype)
            if not self._stable(e):
                self.twins[var] = Var(var.name, var.dtype)
        return self.names[e]

    def _stable(self, load: Load) -> bool:
        """True if both instances load the same value."""
        if self.changing is None:
            self.changing = {self.found.memory(b) for s in walk_stmts(self.own[0]) for b in writes(s)}
        return self.found.memory(load.buffer) not in self.changing and all(
            free_vars(i).isdisjoint(self.twins)
            and not any(n in self.names and self.names[n] in self.twins for n in walk(i) if isinstance(n, Load))
            for i in load.indices
        )

    def left(self, w: Access, a: Access, unknown: list[Iter], *, flat: bool) -> set[Var]:
        """Returns the variables that may differ between two instances, where one of them writes `w` and the other touches `a`.

        With `flat`, flat indices are compared.
        """
        from .separate import apart  # imported here: most blocks do not need the prover

        for x in (*w.inner, *a.inner):
            self.twins.setdefault(x.var, Var(x.var.name))
        first, second = self.places(w, a, flat)
        needed: set[Var] = set()
        for i in unknown:
            needed |= free_vars(self.mixed[i.var]) & {x.var for x in self.own} if i.var in self.mixed else {i.var}
        facts = self.facts(w, a)
        twin = [substitute(e, self.twins) for e in second]
        return apart(first, twin, needed, self.twins, facts)

    def places(self, w: Access, a: Access, flat: bool) -> tuple[list[Expr], list[Expr]]:
        """The two accesses as lists of expressions to compare: the indices, or flat positions."""
        if not flat:
            return [self.see(e) for e in w.indices], [self.see(e) for e in a.indices]
        bits = w.buffer.dtype is not a.buffer.dtype or self.found.memory(w.buffer).dtype is not w.buffer.dtype
        return [self.see(self.position(w, bits))], [self.see(self.position(a, bits))]

    def position(self, a: Access, bits: bool) -> Expr:
        """The position in memory, in elements or bits from the start of the memory's owner."""
        unit = a.buffer.dtype.bits if bits else 1
        total = a.buffer.flat_index(a.indices) * unit
        if bits and unit > 1:
            inside = Var("bit")
            self.twins[inside] = Var("bit")
            self.bits[inside] = unit
            total = total + inside
        b = a.buffer
        while b in self.found.views:
            b, start = self.found.views[b]
            total = total + b.flat_index(start) * (b.dtype.bits if bits else 1)
        return total

    def facts(self, w: Access, a: Access) -> Facts:
        """Returns the facts about the variables of both instances: ranges of loops, predicates, and conditions around the two accesses."""
        from ...sym.bounds import int_range
        from ...sym.facts import EMPTY
        from ...sym.region import lower, upper

        facts = EMPTY
        for v in self.func.symbols:
            if not isinstance(v, Dim):
                facts = facts.with_range(v, 0, DIM_MAX)
        for e in w.buffer.shape:  # a buffer that is accessed is not empty
            facts = facts.with_condition(Le(Const(1, i64), self.see(e))) if e.args or isinstance(e, Var) else facts
        b, own = self.block, {x.var for x in self.own}
        for x in self.around.loops:
            facts = self.ranged(facts, x, twin=x.var in own)
        for v, unit in self.bits.items():
            facts = self.both(facts, v, zero(), Const(unit - 1, i64))
        for v, value in self.iters:
            named = self.see(value)
            low = lower(named, facts, own)
            least = int_range(named, facts)[0]
            facts = self.both(facts, v, low, upper(named, facts, own))
            if not isinstance(low, Const):  # a bound with selects may be weaker than the constant
                facts = facts.with_condition(least <= v).with_condition(least <= self.twins[v])
        for x in dict.fromkeys((*w.inner, *a.inner)):
            facts = self.ranged(facts, x, twin=True)
        predicate = self.see(b.predicate)
        for condition in (predicate, *map(self.see, w.guards)):
            facts = facts.with_condition(condition) if condition is not TRUE else facts
        for condition in (predicate, *map(self.see, a.guards)):
            facts = facts.with_condition(substitute(condition, self.twins)) if condition is not TRUE else facts
        for buffer in {w.buffer, a.buffer}:
            facts = facts.with_no_wrap(self.see(product(buffer.shape))) if self.bits or len({w.buffer, a.buffer}) > 1 else facts
        return facts

    def ranged(self, facts: Facts, x: For, *, twin: bool) -> Facts:
        """Returns the facts with the range of a loop's variable added, and with `twin` that of its twin."""
        low, high = self.see(self.around.see(x.start)), self.see(self.around.see(x.stop)) - 1
        known = self.both(facts, x.var, low, high) if twin else facts.with_range(x.var, low, high)
        if isinstance(low, Const):
            return known
        from ...sym.prove import prove

        if not prove(zero() <= low, facts):  # the start of a partitioned loop is a select
            return known
        known = known.with_condition(zero() <= x.var)
        return known.with_condition(zero() <= self.twins[x.var]) if twin else known

    def both(self, facts: Facts, v: Var, low: Expr, high: Expr) -> Facts:
        """Returns the facts with the same range for a variable and, over the twins, for its twin."""
        facts = facts.with_range(v, low, high)
        return facts.with_range(self.twins[v], substitute(low, self.twins), substitute(high, self.twins))
