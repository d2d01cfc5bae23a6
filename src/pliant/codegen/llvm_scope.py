"""What the code generator knows at a point of a function: values of variables, memoized expressions, ranges, index polynomials.

A *scope* is a stretch of straight-line code, one of several lanes done one by one, or a lane group. What is computed in a
scope may be used again until it is left. Lanes and lane groups are *open*: they are no blocks of
their own, so what does not depend on their variable belongs to the scope around them.

Index arithmetic is done on polynomials (`sym/poly.py`): variables with numbers are numbers in them, lets are looked
through, and sums are emitted outermost variables first, so that LLVM can hoist what an inner loop does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from ..dtype import i64
from ..loop.buffer import has_load
from ..support.errors import InternalError
from ..support.record import dataclass
from ..sym.bounds import int_range
from ..sym.expr import Binary, Const, Expr, Var, binary, free_vars, rewrite
from ..sym.facts import Facts
from ..sym.flat import flat_poly
from ..sym.poly import Poly, poly_of
from ..sym.prove import prove
from .llvm_build import Declarations
from .llvm_float import Floats
from .llvm_types import Val


@dataclass(slots=True)
class Scope:
    """Values known in a stretch of code; an open scope leaves what its variables do not enter to the scope around it."""

    open: bool
    vars: set[Var] = field(default_factory=set)
    values: dict[Any, Any] = field(default_factory=dict)


class Scopes(Floats):
    """A builder that knows variables, and remembers what it computed."""

    def __init__(self, declarations: Declarations) -> None:
        super().__init__(declarations)
        self.scopes: list[Scope] = [Scope(False)]
        self.loads: dict[Expr, Val] = {}  # values read from memory, until something is written
        self.bound: dict[Var, Val] = {}
        self.numbers: dict[Var, int] = {}  # variables of lanes that are done one by one, or from a number on
        self.definitions: dict[Var, Expr] = {}  # lets over indices
        self.depth: dict[Var, int] = {}  # loops around the variable
        self.loop_depth = 0
        self.varying: set[Var] = set()  # variables that differ from lane to lane
        self._known: list[Callable[[Facts], Facts]] = []
        self._facts: list[Facts] = [Facts()]

    # Scopes.

    @contextmanager
    def scope(self, *variables: Var, open: bool = False) -> Iterator[None]:
        """Code inside may use what was computed before; what it computes is forgotten after (an open scope gives away what it can)."""
        self.scopes.append(Scope(open, set(variables)))
        known = len(self._known)
        if not open:
            self.loads = {}
        try:
            yield
        finally:
            self.scopes.pop()
            del self._known[known:]
            del self._facts[known + 1 :]
            self.loads = {}

    def recall(self, key: Any) -> Any:
        """What was remembered under `key` in a scope that is still open, or None."""
        for scope in reversed(self.scopes):
            found = scope.values.get(key)
            if found is not None:
                return found
        return None

    def remember(self, key: Any, value: Any, variables: Iterable[Var]) -> None:
        """Keep `value` for the widest scope in which it is right."""
        at = len(self.scopes) - 1
        while self.scopes[at].open and self.scopes[at].vars.isdisjoint(variables):
            at -= 1
        self.scopes[at].values[key] = value

    def bind(self, var: Var, value: Val) -> None:
        """Give a variable its value for the innermost scope."""
        self.bound[var] = value
        self.scopes[-1].vars.add(var)

    def value_of(self, var: Var) -> Val:
        """The value of a variable."""
        number = self.numbers.get(var)
        if number is not None:
            return Val(str(number), var.dtype)
        found = self.bound.get(var)
        return found if found is not None else self.capture(var)

    def capture(self, var: Var) -> Val:
        """The value of a variable that was not met yet: a parameter of a chunk."""
        raise InternalError(f"variable `{var.name}` has no value where it is used")

    def is_varying(self, e: Expr) -> bool:
        """Whether `e` may differ between the lanes at work."""
        return bool(self.varying) and not self.varying.isdisjoint(free_vars(e))

    # Facts, made only when somebody asks.

    def know_range(self, var: Var, start: Expr, stop: Expr) -> None:
        """Within this scope, start <= var < stop (of bounds that are read from memory nothing is kept: it may change)."""
        if not has_load(start) and not has_load(stop):
            self._known.append(lambda facts: facts.with_range(var, start, stop - 1))

    def know(self, condition: Expr) -> None:
        """Within this scope the condition holds."""
        if not has_load(condition):
            self._known.append(lambda facts: facts.with_condition(condition))

    @contextmanager
    def supposing(self, condition: Expr) -> Iterator[None]:
        """Inside, the condition counts as known; nothing may be emitted there."""
        known = len(self._known)
        self.know(condition)
        try:
            yield
        finally:
            del self._known[known:]
            del self._facts[known + 1 :]

    def facts(self) -> Facts:
        """Everything known here."""
        for step in self._known[len(self._facts) - 1 :]:
            self._facts.append(step(self._facts[-1]))
        return self._facts[-1]

    def range_of(self, e: Expr) -> tuple[int, int]:
        """The constant range of an integer expression."""
        return int_range(self.resolve(e), self.facts())

    def settled_range_of(self, e: Expr) -> tuple[int, int]:
        """The constant range by what is known without thinking further: conditions that nobody asked about yet cost a lot."""
        return int_range(self.resolve(e), self._facts[-1])

    def proves(self, condition: Expr) -> bool:
        """Whether the condition certainly holds."""
        return prove(self.resolve(condition), self.facts())

    # Index polynomials.

    def resolve(self, e: Expr) -> Expr:
        """`e` with numbers and definitions for variables, folded."""
        if isinstance(e, Const) or (self.numbers.keys().isdisjoint(fv := free_vars(e)) and self.definitions.keys().isdisjoint(fv)):
            return e
        found: Expr | None = self.recall(("resolve", e))
        if found is None:
            found = rewrite(e, self._resolved)
            self.remember(("resolve", e), found, fv)
        return found

    def _resolved(self, e: Expr) -> Expr | None:
        if isinstance(e, Var):
            if e in self.numbers:
                return Const(self.numbers[e], e.dtype)
            return self.resolve(self.definitions[e]) if e in self.definitions else e
        if isinstance(e, Binary):
            a, b = (self.resolve(x) for x in e.args)
            return binary(type(e), a, b) if a is not e.args[0] or b is not e.args[1] else e
        return None

    def poly(self, e: Expr) -> Poly:
        """The polynomial of an index."""
        return poly_of(self.resolve(e))

    def number_of(self, e: Expr) -> int | None:
        """The value of an index that is a constant here, else None."""
        p = self.poly(e)
        return p.get((), 0) if not p or (len(p) == 1 and () in p) else None

    def flat(self, indices: Iterable[Expr], strides: Iterable[Expr]) -> Poly:
        """The polynomial of an element's number from the start of its buffer."""
        return flat_poly(indices, strides, self.poly)

    def depth_of(self, e: Expr) -> int:
        """How many loops are around the innermost variable of `e`."""
        return max((self.depth.get(v, 0) for v in free_vars(e)), default=0)

    def emit_poly(self, p: Poly) -> Val:
        """The value of a polynomial (without lanes unless its atoms have them): outer variables first, the constant last."""
        terms = [(max((self.depth_of(a) for a in m), default=0), m, c) for m, c in p.items() if m]
        uniform = [t for t in terms if not any(self.is_varying(a) or has_load(a) for a in t[1])]
        total: Val | None = None
        prefix: tuple[Any, ...] = ()
        for _, m, c in sorted(uniform, key=lambda t: t[0]):
            prefix = (*prefix, (m, c))
            found = self.recall(prefix)
            if found is None:
                term = self._term(m, c)
                found = term if total is None else self.binary("add", total, term)
                self.remember(prefix, found, {v for mono, _ in prefix for a in mono for v in free_vars(a)})
            total = found
        for _, m, c in (t for t in terms if t not in uniform):
            term = self._term(m, c)
            total = term if total is None else self.binary("add", total, term)
        rest = p.get((), 0)
        if total is None:
            return Val(str(rest), i64)
        return self.binary("add", total, Val(str(rest), i64)) if rest else total

    def _term(self, m: tuple[Expr, ...], c: int) -> Val:
        ordered = sorted(m, key=lambda a: (self.is_varying(a), self.depth_of(a)))
        result = Val(str(c), i64) if c != 1 else None
        for atom in ordered:
            value = self.expr(atom)
            result = value if result is None else self.binary("mul", result, value)
        assert result is not None
        return result

    def expr(self, e: Expr) -> Val:
        """The value of an expression; see `llvm_expr.py`."""
        raise NotImplementedError
