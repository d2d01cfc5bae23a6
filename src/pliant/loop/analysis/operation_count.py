"""Static operation count of a loop program, as formulas of its dims: operations, bytes read and bytes written (for rooflines).

Operations are those on element values: an FMA counts 2, a function of `sym/functions/` as many as its definition has; index
arithmetic is free. Bytes are those of the boxes that are touched (`regions.py`), each once: the compulsory memory traffic of a
perfect cache. Where the accesses are known to be fewer than the elements of the box (a gather), the accesses count. A loop whose
bounds depend on outer loops counts with its greatest extent, a branch with both arms, a while loop as one round.

    cost(matmul)  ->  Cost(operations=n * m * k * 2, read=(n * k + k * m + n * m) * 4, written=n * m * 4)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import field
from functools import cache, reduce

from ...dtype import DType, i64
from ...support.record import dataclass
from ...sym import expr as E
from ...sym.expr import Add, Const, Expr, Fma, Max, Min, Sub, Var, product, substitute
from ...sym.expr import Call as Function
from ...sym.facts import EMPTY, Facts
from ...sym.function_names import PRIMITIVE_FUNCTIONS
from ...sym.prove import prove
from ...sym.region import upper
from ...sym.simplify import simplify
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Block, Call, For, Func, Let, Reduce, Region, Stmt, Store, children, exprs
from .regions import regions, symbol_facts

_HUGE = 1 << 58
_FREE = (E.Const, E.Var, E.Bitcast)  # they need no instruction


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a program or statement as formulas of the dims: operations, bytes read and bytes written."""

    operations: Expr
    read: Expr  # bytes
    written: Expr  # bytes
    exact: bool = True  # False if a literal in the formulas may have overflowed

    @property
    def counts(self) -> tuple[Expr, Expr, Expr]:
        """The three formulas: operations, bytes read, bytes written."""
        return self.operations, self.read, self.written

    @property
    def bytes(self) -> Expr:
        """The total of bytes read and written, as a formula."""
        return simplify(self.read + self.written)


def cost(func: Func) -> Cost:
    """Returns the cost of one call of a program: operations and bytes as formulas over its symbols."""
    return stmt_cost(func.body, symbol_facts(func))


def stmt_cost(s: Stmt, facts: Facts = EMPTY) -> Cost:
    """Returns the cost of running a statement once: operations and bytes as formulas over its free variables."""
    counter = _Counter()
    counter.stmt(s, (), facts)
    touched = regions(s, facts)
    small = all(_fits(box.extents, box.buffer.dtype.bits) for box in (*touched.reads, *touched.writes))
    return Cost(
        simplify(counter.operations, facts),
        simplify(_bytes(touched.reads, counter.loads, facts), facts),
        simplify(_bytes(touched.writes, counter.stores, facts), facts),
        counter.exact and small,
    )


def _fits(factors: Iterable[Expr], times: int) -> bool:
    """True if the literals of a product are small enough that sums of such products stay in 64 bits."""
    # 2**58 leaves 5 bits below the sign bit for the sum.
    return times * math.prod(int(f.value) for f in factors if isinstance(f, Const)) < _HUGE


def _bytes(boxes: Iterable[Region], accesses: dict[Buffer, Expr], facts: Facts) -> Expr:
    """The bytes of all boxes, each limited by the number of accesses to its buffer."""
    total: Expr = Const(0, i64)
    for box in boxes:
        elements = simplify(product(tuple(simplify(Max(n, Const(0, i64)), facts) for n in box.extents)), facts)
        count = accesses.get(box.buffer)
        if count is not None:
            count = simplify(count, facts)
            elements = elements if prove(elements <= count, facts) else count if prove(count <= elements, facts) else Min(elements, count)
        total = total + _size(elements, box.buffer.dtype)
    return total


def _size(elements: Expr, dtype: DType) -> Expr:
    """Returns the number of bytes that this number of elements takes in memory; sub-byte elements are packed."""
    return elements * dtype.itemsize if dtype.bits >= 8 else (elements * dtype.bits + 7) // 8


@dataclass(slots=True)
class _Counter:
    """Walks a statement and adds up its operations and memory accesses; `times` are the extents of the surrounding loops."""

    operations: Expr = field(default_factory=lambda: Const(0, i64))
    loads: dict[Buffer, Expr] = field(default_factory=dict)
    stores: dict[Buffer, Expr] = field(default_factory=dict)
    inner: tuple[Var, ...] = ()
    called: set[Buffer] = field(default_factory=set)
    values: dict[Var, Expr] = field(default_factory=dict)  # lets, because loop bounds may use them
    exact: bool = True

    def stmt(self, s: Stmt, times: tuple[Expr, ...], facts: Facts) -> None:
        """Adds the operations and accesses of a statement inside of loops with the extents `times`."""
        match s:
            case For():
                extent = simplify(substitute(s.stop - s.start, self.values), facts)
                most = self.most(s, extent, facts)
                self.inner = (*self.inner, s.var)
                self.stmt(s.body, (*times, most), facts.with_loop(s.var, extent, s.start))
                return
            case Block():
                self.block(s, times, facts)
                return
            case Let() if not any(isinstance(n, Load) for n in walk(s.value)):
                self.values[s.var] = substitute(s.value, self.values)
            case Store():
                self.access(self.stores, s.buffer, times)
            case Reduce():
                for t in s.targets:
                    self.access(self.loads, t.buffer, times)
                    self.access(self.stores, t.buffer, times)
                self.add(max(1, sum(operations_of(e) for e in s.combiner.result)) * (2 if s.combiner.name == "fma" else 1), times)
            case Call():
                inside = cost(s.func)
                self.exact &= inside.exact and _fits((*times, *s.dims), 1)
                self.operations += substitute(inside.operations, dict(zip(s.func.symbols, s.dims, strict=True))) * product(times)
                for a in s.args:
                    if isinstance(a, Buffer):  # accesses in the callee are not counted, so the whole box is
                        self.called.add(a)
                        self.loads.pop(a, None)
                        self.stores.pop(a, None)
        for e in exprs(s):
            self.expr(e, times)
        for child in children(s):
            self.stmt(child, times, facts)

    def most(self, loop: For, extent: Expr, facts: Facts) -> Expr:
        """Returns the greatest extent of a loop over all iterations of those around it.

        The bound of a difference does not see what both sides have in common. So unless it is a number, and the loop goes from a
        maximum to a minimum, the differences of their terms are bounds too: `min(n, 4 * t + 4) - max(4 * t, 0)` is at most 4.
        """
        bound = upper(extent, facts, self.inner)
        if isinstance(bound, Const) and not _is_unknown(bound):
            return simplify(Max(bound, Const(0, i64)), facts)
        stops, starts = (_terms(substitute(e, self.values), kind) for e, kind in ((loop.stop, Min), (loop.start, Max)))
        bounds = [upper(a - b, facts, self.inner) for a in stops for b in starts]
        known = list(dict.fromkeys(b for b in (bound, *bounds) if not _is_unknown(b))) or [bound]
        return simplify(Max(reduce(Min, known), Const(0, i64)), facts)

    def block(self, s: Block, times: tuple[Expr, ...], facts: Facts) -> None:
        """Counts a block: its body once per iteration of the loops, its init once per iteration of those that feed S iterators only."""
        self.stmt(s.body, times, facts)
        if s.init is not None:
            reduced = {v for i in s.iters if i.kind != "S" for v in E.free_vars(i.value)}
            loops = self.inner[len(self.inner) - len(times) :]
            self.stmt(s.init, tuple(n for n, v in zip(times, loops, strict=True) if v not in reduced), facts)

    def expr(self, e: Expr, times: tuple[Expr, ...]) -> None:
        """Adds the operations and loads of an expression inside of loops with the extents `times`."""
        self.add(operations_of(e), times)
        for n in walk(e):
            if isinstance(n, Load):
                self.access(self.loads, n.buffer, times)

    def access(self, into: dict[Buffer, Expr], buffer: Buffer, times: tuple[Expr, ...]) -> None:
        """Adds the accesses to one buffer inside of loops with the extents `times`."""
        if buffer not in self.called:
            self.exact &= _fits(times, buffer.dtype.bits)
            into[buffer] = into.get(buffer, Const(0, i64)) + product(times)

    def add(self, operations: int, times: tuple[Expr, ...]) -> None:
        """Adds a number of operations that run in each iteration of loops with the extents `times`."""
        if operations:
            self.exact &= _fits(times, operations)
            self.operations += product(times) * operations


def _is_unknown(bound: Expr) -> bool:
    """True for a bound that no loop reaches: that of the integer type, or near it."""
    return isinstance(bound, Const) and int(bound.value) >= _HUGE


def _terms(e: Expr, kind: type[Min] | type[Max]) -> list[Expr]:
    """Returns the terms of a minimum or maximum, also under sums and differences; of another expression, only itself."""
    if isinstance(e, kind):
        return [term for a in e.args for term in _terms(a, kind)]
    if isinstance(e, Add):
        return [a + b for a, b in itertools.product(*(_terms(a, kind) for a in e.args))]
    if isinstance(e, Sub):
        return [a - b for a, b in itertools.product(_terms(e.args[0], kind), _terms(e.args[1], Max if kind is Min else Min))]
    return [e]


def operations_of(e: Expr) -> int:
    """The number of operations on values in an expression, a shared one counted once; index arithmetic does not count, an fma is two."""
    seen: set[Expr] = set()
    stack = [e]
    total = 0
    while stack:
        n = stack.pop()
        if n in seen or (n.dtype is i64 and not any(isinstance(x, Load) for x in walk(n))):
            continue
        seen.add(n)
        if isinstance(n, Load):
            continue
        stack.extend(n.args)
        if isinstance(n, Function) and n.fn not in PRIMITIVE_FUNCTIONS:
            total += _operations_in(n.fn, n.dtype)
        elif not isinstance(n, _FREE):
            total += 2 if isinstance(n, Fma) else 1
    return total


@cache
def _operations_in(fn: str, dtype: DType) -> int:
    """The number of operations in the definition of a math function."""
    from ...sym.functions import definition

    return operations_of(definition(fn, dtype)[1])
