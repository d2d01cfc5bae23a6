"""Operations on annotations: subsumption, substitution, and iteration over their dims and variables.

subsumes(Tensor(f32, (n,)), Tensor(f32, (m,))).fit      # Fit.CHECK: whether n == m is known only at run time
substitute_annotation(Tensor(f32, (n, n * 2)), {n: const(3)})   # Tensor[f32, 3, 6]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from ..support.errors import counted, is_are
from ..support.record import dataclass
from ..sym.expr import FALSE, TRUE, Eq, Expr, Not, Var, const, free_vars, substitute
from ..sym.facts import EMPTY, Facts
from ..sym.prove import prove
from ..sym.simplify import simplify
from .node import Annotation, Scalar, Shape, Tensor, Tuple, annotation_exprs, stride_exprs

ONE = const(1)


class Fit(Enum):
    """Whether a value with one annotation can be passed where another is expected. Ordered from worst to best."""

    IMPOSSIBLE = "impossible"  # different kind, dtype or rank
    IMPOSSIBLE_DIMS = "impossible for known dims"
    CHECK = "needs a run-time check"
    HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class Match:
    """The result of `subsumes`: the fit, the reason if it is impossible, and the conditions to check at run time."""

    fit: Fit
    reason: str = ""
    conditions: tuple[tuple[Expr, Expr, str], ...] = ()  # (found, expected, which dim), each pair to be equal at run time


def decide(condition: Expr, facts: Facts = EMPTY) -> bool | None:
    """Returns True or False if the facts prove or refute the condition, else None."""
    simple = simplify(condition, facts)
    if simple is TRUE or prove(simple, facts):
        return True
    return False if simple is FALSE or prove(Not(simple), facts) else None


def shape_text(shape: Sequence[Expr]) -> str:
    """Returns a shape as text for messages: `(n, 64)`."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def kind_text(a: Annotation) -> str:
    """Returns the kind of value that an annotation describes as text for messages: "a tensor", "a shape", …."""
    return {Tensor: "a tensor", Shape: "a shape", Scalar: "a scalar", Tuple: "a tuple"}[type(a)]


def subsumes(expected: Annotation, found: Annotation, facts: Facts = EMPTY) -> Match:
    """Compares the annotation `found` of a value with the one `expected` by its user.

    Returns the fit, the reason if it is impossible, and checks. A tensor that is only read may have any strides.
    """
    if type(expected) is not type(found):
        return Match(Fit.IMPOSSIBLE, f"{kind_text(found)} where {kind_text(expected)} is expected")
    if isinstance(expected, Tuple):
        assert isinstance(found, Tuple)
        if len(expected.items) != len(found.items):
            return Match(
                Fit.IMPOSSIBLE, f"{counted(len(found.items), 'item')} where {len(expected.items)} {is_are(len(expected.items))} expected"
            )
        return _worst(subsumes(e, f, facts) for e, f in zip(expected.items, found.items, strict=True))
    if isinstance(expected, Tensor | Scalar):
        assert isinstance(found, Tensor | Scalar)
        if expected.dtype is not found.dtype:
            return Match(Fit.IMPOSSIBLE, f"its dtype is {found.dtype}, {expected.dtype} is expected")
    if isinstance(expected, Scalar):
        assert isinstance(found, Scalar)
        if expected.value is None or expected.value is found.value:
            return Match(Fit.HOLDS)
        if found.value is None:
            return Match(Fit.IMPOSSIBLE, "its value is not known in terms of dims")
        return _dims((expected.value,), (found.value,), facts, "the value")
    if isinstance(expected, Tensor):
        assert isinstance(found, Tensor)
        if expected.state != found.state:
            return Match(Fit.IMPOSSIBLE, "it is not state" if expected.state else "it is state")
        shapes = _dims(expected.shape, found.shape, facts, "dim {}")
        if (expected.strides is None and (found.strides is None or not expected.state)) or shapes.fit is Fit.IMPOSSIBLE:
            return shapes  # a tensor that is only read may have any strides: the callee reads through them
        return _worst([shapes, _dims(expected.element_strides(), found.element_strides(), facts, "stride {}")])
    assert isinstance(found, Shape)
    return _dims(expected.values, found.values, facts, "value {}")


def _dims(expected: Sequence[Expr], found: Sequence[Expr], facts: Facts, which: str) -> Match:
    """Compares two lists of dims; `which` is the format of a dim's name in messages."""
    if len(expected) != len(found):
        return Match(Fit.IMPOSSIBLE, f"it has {counted(len(found), 'dim')}, {len(expected)} {is_are(len(expected))} expected")
    checks = []
    for i, (e, f) in enumerate(zip(expected, found, strict=True)):
        answer = e is f or decide(Eq(f, e), facts)
        if answer is False:
            return Match(Fit.IMPOSSIBLE_DIMS, f"{which.format(i)} is {f}, {e} is expected")
        if answer is None:
            checks.append((f, e, which.format(i)))
    return Match(Fit.CHECK if checks else Fit.HOLDS, "", tuple(checks))


def _worst(matches: Iterable[Match]) -> Match:
    """The worst of several matches; the conditions of all if checks are needed."""
    every = list(matches)
    order = list(Fit)
    least = min(every, key=lambda m: order.index(m.fit), default=Match(Fit.HOLDS))
    if least.fit is Fit.CHECK:
        return Match(Fit.CHECK, "", tuple(c for m in every for c in m.conditions))
    return least


def substitute_annotation(a: Annotation, values: Mapping[Var, Expr], facts: Facts = EMPTY) -> Annotation:
    """`a` with variables replaced; dims in which a variable was replaced are simplified."""

    def swap(e: Expr) -> Expr:
        return simplify(substitute(e, dict(values)), facts) if not free_vars(e).isdisjoint(values) else e

    return map_dims(a, swap)


def map_dims(a: Annotation, swap: Callable[[Expr], Expr]) -> Annotation:
    """Returns the annotation with each expression in its shape, strides and values replaced by `swap` of it."""
    match a:
        case Tensor():
            return Tensor(a.dtype, tuple(map(swap, a.shape)), a.state, None if a.strides is None else tuple(map(swap, a.strides)))
        case Shape():
            return Shape(tuple(map(swap, a.values)))
        case Scalar():
            return Scalar(a.dtype, None if a.value is None else swap(a.value))
        case Tuple():
            return Tuple(tuple(map_dims(i, swap) for i in a.items))


def annotation_vars(a: Annotation) -> frozenset[Var]:
    """Returns the variables in the shape, values and strides of an annotation."""
    return frozenset().union(*(free_vars(e) for e in (*annotation_exprs(a), *stride_exprs(a))))


def defined_vars(annotations: Iterable[Annotation]) -> tuple[Var, ...]:
    """The variables that parameters or match_casts with these annotations define, in order: whole dims first, then whole strides.

    Scalars define none.
    """
    every = [a for a in annotations if not isinstance(a, Scalar)]
    variables = (e for part in (annotation_exprs, stride_exprs) for a in every for e in part(a) if isinstance(e, Var))
    return tuple(dict.fromkeys(variables))


def blank(a: Annotation) -> Annotation:
    """`a` with every dim replaced by 1, to compare only kind, dtype, rank and state."""
    return Scalar(a.dtype) if isinstance(a, Scalar) else map_dims(a, lambda e: ONE)
