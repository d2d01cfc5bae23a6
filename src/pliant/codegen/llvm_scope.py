"""Scopes of the LLVM code generator: values of variables, memoized expressions, known ranges, index polynomials.

A *scope* is a region of code that its first block dominates, one iteration of a loop that is unrolled here, or a lane group. Values
computed in a scope may be reused until it ends. Iterations and lane groups are *open*: they are not basic blocks of
their own, so values that do not depend on their variable belong to the scope around them.

Index arithmetic uses polynomials (`sym/poly.py`). Variables with known numbers are constants in them, lets are substituted,
and sums are emitted outermost variables first, so that LLVM can hoist loop invariants.
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
from ..sym.expr import Binary, Const, Expr, Var, binary, free_vars
from ..sym.facts import Facts
from ..sym.flat import flat_poly
from ..sym.poly import Poly, poly_of
from ..sym.prove import prove
from ..sym.walk import rewrite
from .llvm_build import Declarations
from .llvm_float import Floats
from .llvm_types import Val


@dataclass(slots=True)
class Scope:
    """The values computed in a region of code; an open scope passes those that are independent of its variables to the scope around it."""

    open: bool
    vars: set[Var] = field(default_factory=set)
    values: dict[Any, Any] = field(default_factory=dict)


class Scopes(Floats):
    """A builder with variables in nested scopes, which reuses values that it has computed."""

    def __init__(self, declarations: Declarations) -> None:
        super().__init__(declarations)
        self.scopes: list[Scope] = [Scope(False)]
        self.loads: dict[Expr, Val] = {}  # loaded values, valid until the next store
        self.bound: dict[Var, Val] = {}
        self.numbers: dict[Var, int] = {}  # variables with a constant value: of iterations emitted one by one, or first lanes
        self.definitions: dict[Var, Expr] = {}  # integer lets, to see through in indices
        self.depth: dict[Var, int] = {}  # number of loops around the variable's definition
        self.loop_depth = 0
        self.varying: set[Var] = set()  # variables that differ from lane to lane
        self._known: list[Callable[[Facts], Facts]] = []
        self._facts: list[Facts] = [Facts()]

    # Scopes.

    @contextmanager
    def scope(self, *variables: Var, open: bool = False) -> Iterator[None]:
        """Context manager: code inside may reuse earlier values; values and facts of its own are dropped at the end.

        An open scope keeps those that do not depend on its variables. Loaded values are forgotten at the end, and at the begin unless it is
        open.
        """
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
        """Return the value remembered under `key` in an enclosing scope, or None."""
        for scope in reversed(self.scopes):
            value = scope.values.get(key)
            if value is not None:
                return value
        return None

    def remember(self, key: Any, value: Any, variables: Iterable[Var]) -> None:
        """Store `value` in the outermost scope in which it is valid; `variables` are those that it depends on."""
        at = len(self.scopes) - 1
        while self.scopes[at].open and self.scopes[at].vars.isdisjoint(variables):
            at -= 1
        self.scopes[at].values[key] = value

    def bind(self, var: Var, value: Val) -> None:
        """Set the LLVM value of a variable in the innermost scope."""
        self.bound[var] = value
        self.scopes[-1].vars.add(var)

    def value_of(self, var: Var) -> Val:
        """Return the value of a variable: a constant, a bound register, or a captured parameter."""
        number = self.numbers.get(var)
        if number is not None:
            return Val(str(number), var.dtype)
        value = self.bound.get(var)
        return value if value is not None else self.capture(var)

    def capture(self, var: Var) -> Val:
        """Return the value of a variable at its first use; the body of a parallel loop makes it a parameter, others raise an error."""
        raise InternalError(f"variable `{var.name}` has no value where it is used")

    def is_varying(self, e: Expr) -> bool:
        """True if `e` may differ between lanes."""
        return bool(self.varying) and not self.varying.isdisjoint(free_vars(e))

    # Facts, computed lazily.

    def know_range(self, var: Var, start: Expr, stop: Expr) -> None:
        """Note start <= var < stop for this scope; ignores bounds that are loaded from memory, which may change."""
        if not has_load(start) and not has_load(stop):
            self._known.append(lambda facts: facts.with_range(var, start, stop - 1))

    def know(self, condition: Expr) -> None:
        """Note for this scope that the condition holds; ignores conditions that load from memory."""
        if not has_load(condition):
            self._known.append(lambda facts: facts.with_condition(condition))

    @contextmanager
    def supposing(self, condition: Expr) -> Iterator[None]:
        """Context manager: the condition is assumed to hold in analyses; no code may be emitted inside of it."""
        known = len(self._known)
        self.know(condition)
        try:
            yield
        finally:
            del self._known[known:]
            del self._facts[known + 1 :]

    def facts(self) -> Facts:
        """Return the facts that hold at this point: ranges of variables and conditions."""
        for step in self._known[len(self._facts) - 1 :]:
            self._facts.append(step(self._facts[-1]))
        return self._facts[-1]

    def range_of(self, e: Expr) -> tuple[int, int]:
        """Return the constant range (lowest, highest) of an integer expression by all facts known here."""
        return int_range(self.resolve(e), self.facts())

    def settled_range_of(self, e: Expr) -> tuple[int, int]:
        """Return the constant range (lowest, highest) by the facts computed so far: adding further conditions to them is expensive."""
        return int_range(self.resolve(e), self._facts[-1])

    def proves(self, condition: Expr) -> bool:
        """True if the facts known here prove the condition."""
        return prove(self.resolve(condition), self.facts())

    # Index polynomials.

    def resolve(self, e: Expr) -> Expr:
        """Substitute constants and definitions for variables in `e`, and fold it."""
        if isinstance(e, Const) or (self.numbers.keys().isdisjoint(fv := free_vars(e)) and self.definitions.keys().isdisjoint(fv)):
            return e
        resolved: Expr | None = self.recall(("resolve", e))
        if resolved is None:
            resolved = rewrite(e, self._resolved)
            self.remember(("resolve", e), resolved, fv)
        return resolved

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
        """Return an index expression as a polynomial, with constants and definitions substituted."""
        return poly_of(self.resolve(e))

    def number_of(self, e: Expr) -> int | None:
        """Return the value of an index that is a constant here, else None."""
        p = self.poly(e)
        return p.get((), 0) if not p or (len(p) == 1 and () in p) else None

    def flat(self, indices: Iterable[Expr], strides: Iterable[Expr]) -> Poly:
        """Return the polynomial of an element's offset from the start of its buffer."""
        return flat_poly(indices, strides, self.poly)

    def depth_of(self, e: Expr) -> int:
        """Return the loop depth of the innermost variable that `e` contains; 0 if it contains none."""
        return max((self.depth.get(v, 0) for v in free_vars(e)), default=0)

    def emit_poly(self, p: Poly) -> Val:
        """Emit a polynomial (a scalar unless its atoms are vectors): outer variables first, the constant last."""
        terms = [(max((self.depth_of(a) for a in m), default=0), m, c) for m, c in p.items() if m]
        uniform = [t for t in terms if not any(self.is_varying(a) or has_load(a) for a in t[1])]
        total: Val | None = None
        prefix: tuple[Any, ...] = ()
        for _, m, c in sorted(uniform, key=lambda t: t[0]):
            prefix = (*prefix, (m, c))
            partial = self.recall(prefix)
            if partial is None:
                term = self._term(m, c)
                partial = term if total is None else self.binary("add", total, term)
                self.remember(prefix, partial, {v for mono, _ in prefix for a in mono for v in free_vars(a)})
            total = partial
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
        """Emit an expression; a subclass implements it (`llvm_expr.py`), here it raises NotImplementedError."""
        raise NotImplementedError
