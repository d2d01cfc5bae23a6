"""Index maps: layout transformations of tensors as maps from old to new coordinates.

    >>> packed = index_map("lambda k, n: (n // 16, k, n % 16)")
    >>> packed.apply((i, j))                       # where the element [i, j] is
    (j // 16, i, j % 16)
    >>> packed.layout((Const(8, i64), n), Facts()).shape
    ((n + 15) // 16, 8, 16)

A map splits coordinates (`//`, `%`), fuses them (`i * 4 + j`) and permutes them. Besides its inputs it may use integers and sizes of the
program that it is for: `lambda i, j: (i * (w + 2) + j,)` fuses two coordinates for any `w`. It is made from a Python function, which is
called with symbols, or from its printed text, which is parsed without executing anything. An extent that is not a multiple of its divisor
is rounded up: the elements without coordinates are padding.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from math import lcm

from ..dtype import i64
from ..support.errors import ScheduleError
from ..support.record import dataclass
from ..support.refusal import Refusal
from .affine import IterMap, IterSum, Mark, Split, detect_iter_map
from .conditions import all_of
from .expr import Const, Expr, FloorDiv, FloorMod, Var, free_vars, substitute
from .facts import EMPTY, Facts
from .prove import prove, prove_equal
from .simplify import simplify
from .walk import walk

_MAX_TEXT = 4096  # characters; a real map is far shorter, and text may come from a file that is not trusted
# The operators that the text of a map may contain.
_OPERATORS: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A map of indices, such as a layout change: new coordinates as expressions of old ones."""

    inputs: tuple[Var, ...]
    results: tuple[Expr, ...]

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.results))
        return f"lambda {', '.join(v.name for v in self.inputs)}: ({shown}{',' * (len(self.results) == 1)})"

    @property
    def sizes(self) -> frozenset[Var]:
        """The symbolic sizes of a program that the map uses besides its inputs."""
        return frozenset(v for e in self.results for v in free_vars(e)) - frozenset(self.inputs)

    def apply(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Returns the new coordinates of the element with these indices."""
        values = dict(zip(self.inputs, indices, strict=True))
        return tuple(substitute(e, values) for e in self.results)

    def then(self, other: IndexMap, facts: Facts = EMPTY) -> IndexMap:
        """Returns the composition: this map, then `other`."""
        return IndexMap(self.inputs, tuple(simplify(e, facts) for e in other.apply(self.results)))

    def layout(self, extents: Sequence[Expr], facts: Facts = EMPTY) -> Layout | Refusal:
        """The layout of a tensor of these extents, padded to what the map divides by.

        Or a refusal if elements would collide or leave gaps.
        """
        if len(extents) != len(self.inputs):
            return Refusal(f"it takes {len(self.inputs)} coordinates, not {len(extents)}")
        padded = tuple(_rounded(e, self._divisor(v), facts) for v, e in zip(self.inputs, extents, strict=True))
        mapping = detect_iter_map(self.results, dict(zip(self.inputs, padded, strict=True)), facts=facts)
        if isinstance(mapping, Refusal):
            return mapping
        if not mapping.injective:
            return Refusal("different elements would come to the same place")
        if not mapping.surjective or not all(prove_equal(s, Const(0, i64), facts) for s in mapping.starts):
            return Refusal("it leaves gaps between the elements")
        return Layout(self, tuple(extents), padded, mapping.extents, mapping)

    def _divisor(self, v: Var) -> int:
        """The number that the extent of an input must be a multiple of, so that no digit of it is cut off."""
        divisor = 1
        for e in (node for result in self.results for node in walk(result)):
            if isinstance(e, (FloorDiv, FloorMod)) and isinstance(e.args[1], Const):
                unit = _unit(e.args[0], v)
                divisor = divisor if unit is None else lcm(divisor, unit * max(1, int(e.args[1].value)))
        return divisor


@dataclass(frozen=True, slots=True)
class Layout:
    """An index map applied to a tensor of given extents: those extents, the padded ones, and the shape after it."""

    map: IndexMap
    extents: tuple[Expr, ...]
    padded: tuple[Expr, ...]
    shape: tuple[Expr, ...]
    parts: IterMap

    def has_padding(self, facts: Facts = EMPTY) -> bool:
        """True if there may be padding."""
        return not all(prove_equal(a, b, facts) for a, b in zip(self.extents, self.padded, strict=True))

    def inverse(self, place: Sequence[Expr], facts: Facts = EMPTY) -> tuple[Expr, ...]:
        """The coordinates of the element at a place in the new layout; they are beyond the extents if it is padding."""
        values: dict[Mark, Expr] = {}
        for at, s in zip(place, self.parts.sums, strict=True):
            _take_apart(s, at, values)
        while fused := [m for m in values if isinstance(m.source, IterSum) and not _is_part(m, values)]:
            for mark in fused:
                assert isinstance(mark.source, IterSum)
                _take_apart(mark.source, values.pop(mark), values)
        indices = {m.source: e for m, e in values.items()}
        return tuple(simplify(indices.get(v, Const(0, i64)), facts) for v in self.map.inputs)

    def is_element(self, place: Sequence[Expr], facts: Facts = EMPTY) -> Expr:
        """Returns the condition that a position of the new layout is an element and not padding."""
        limits = zip(self.inverse(place, facts), self.extents, strict=True)
        return all_of(*(e < n for e, n in limits if not prove(e < n, facts)))


def index_map(source: IndexMap | str | Callable[..., object], sizes: Sequence[Var] = ()) -> IndexMap:
    """Returns the map that a function `lambda i, j: (j, i)` computes, or that its text describes; it may use the `sizes`.

    An IndexMap is returned as it is. Raises ScheduleError if the source is neither, or a result is no whole number made of the arguments.
    """
    if isinstance(source, IndexMap):
        return source
    if isinstance(source, str):
        return _parsed(source, sizes)
    if not callable(source):
        raise ScheduleError(f"an index map is a function or its text, not {source!r}", help=_HELP)
    inputs = tuple(Var(name) for name in inspect.signature(source).parameters)
    answer = source(*inputs)
    listed = tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)
    results = [Const(e, i64) if type(e) is int else e for e in listed]
    bad = next((e for e in results if not isinstance(e, Expr) or e.dtype is not i64 or not _is_known(e, (*inputs, *sizes))), None)
    if bad is not None:
        raise ScheduleError(f"an index map gives whole numbers made of its arguments, not {bad!r}", help=_HELP)
    map_ = IndexMap(inputs, tuple(e for e in results if isinstance(e, Expr)))
    hidden = {v.name for v in map_.sizes} & {v.name for v in inputs}
    if hidden:  # in its text, the name would mean the argument
        raise ScheduleError(f"an argument of the index map has the name of the size `{min(hidden)}`", help="call the argument otherwise")
    return map_


_HELP = "for example lambda k, n: (n // 16, k, n % 16)"


def _is_known(e: Expr, named: Sequence[Var]) -> bool:
    """True if an expression is index arithmetic over known names."""
    kinds = (Const, Var, FloorDiv, FloorMod)
    return all(isinstance(n, kinds) or type(n).__name__ in ("Add", "Sub", "Mul", "Neg") for n in walk(e)) and all(
        n in named for n in walk(e) if isinstance(n, Var)
    )


def _parsed(text: str, sizes: Sequence[Var]) -> IndexMap:
    """Parses the text of a lambda into an index map; raises ScheduleError if it is none."""
    try:
        if len(text) > _MAX_TEXT:
            raise ValueError("it is too long")
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Lambda):
            raise ValueError("it is no lambda")
        a = tree.args
        if a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg or a.defaults:
            raise ValueError("its arguments are not plain names")
        inputs = {p.arg: Var(p.arg) for p in a.args}
        names = {v.name: v for v in sizes} | inputs
        results = tree.body.elts if isinstance(tree.body, ast.Tuple) else [tree.body]
        return IndexMap(tuple(inputs.values()), tuple(_expression(e, names) for e in results))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ScheduleError(f"this is no index map: {text[:80]!r}", facts=[str(error)], help=_HELP) from None


def _expression(node: ast.expr, names: dict[str, Var]) -> Expr:
    """Parses one expression of a map; raises ValueError for other than names, whole numbers, and + - * // %."""
    match node:
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Constant(value=int(value)) if type(value) is int and i64.min <= value <= i64.max:
            return Const(value, i64)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Const(0, i64) - _expression(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_expression(left, names), _expression(right, names))
    raise ValueError(f"`{ast.unparse(node)}` is not made of its arguments and whole numbers by + - * // %")


def _unit(e: Expr, v: Var) -> int | None:
    """Returns the constant u such that `e` is v // u, or None."""
    if e is v:
        return 1
    if isinstance(e, FloorDiv) and isinstance(e.args[1], Const):
        inner = _unit(e.args[0], v)
        return None if inner is None else inner * max(1, int(e.args[1].value))
    return None


def _rounded(extent: Expr, divisor: int, facts: Facts) -> Expr:
    """Returns an extent rounded up to a multiple of the divisor."""
    if divisor == 1 or prove_equal(extent % divisor, Const(0, i64), facts):
        return extent
    return simplify((extent + (divisor - 1)) // divisor * divisor, facts)


def _take_apart(s: IterSum, value: Expr, values: dict[Mark, Expr]) -> None:
    """Solves a sum of splits for its marks: adds to `values` the part of each mark that `value`, the sum's value, determines."""
    rest = value - s.base
    for n, p in enumerate(s.splits):
        digit = rest // p.scale if n == 0 else rest // p.scale % p.extent
        values[p.mark] = values.get(p.mark, Const(0, i64)) + digit * p.lower


def _is_part(mark: Mark, values: dict[Mark, Expr]) -> bool:
    """True if this mark is part of another fused mark that is not split yet."""
    return any(isinstance(m.source, IterSum) and _contains(m.source.splits, mark) for m in values if m is not mark)


def _contains(splits: tuple[Split, ...], mark: Mark) -> bool:
    """True if a mark occurs in splits, directly or inside of fused marks."""
    return any(p.mark is mark or (isinstance(p.mark.source, IterSum) and _contains(p.mark.source.splits, mark)) for p in splits)
