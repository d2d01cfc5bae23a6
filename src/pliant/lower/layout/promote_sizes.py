"""Merges loop programs that differ only in sizes that their schedule does not depend on; these sizes become symbolic dims.

    conv(x: f32[b, 4, h, w, 16], w: f32[8, 64, 3, 3, 16], …)        ->    conv(x: f32[b, s, h, w, 16], w: f32[t, s * 16, 3, 3, 16], …)
    conv(x: f32[b, 8, h, w, 16], w: f32[16, 128, 3, 3, 16], …)            # called with s = 4, t = 8 and with s = 8, t = 16

This makes fewer kernels to compile. `promotable_sizes.py` finds the sizes. All other sizes, and those in which no two programs differ, stay
constants. Each replaced program is the new program called with its own sizes.

    promote_sizes(function, target)      # before programs are scheduled
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import gcd, lcm

from ...dtype import i64
from ...graph import node as g
from ...loop.buffer import Buffer
from ...loop.stmt import Block, For, Func, Stmt, map_children
from ...loop.structural import structural_hash
from ...schedule.decisions import Decisions, OfKernel
from ...schedule.library import Parts, Tile
from ...support.record import dataclass
from ...sym.expr import Add, Const, Dim, Eq, Expr, Le, Lt, Ne, Sub, Var, free_vars
from ...target import Target
from ..callee import callee_of, func_of, map_calls
from .name_sizes import WithSymbols, with_symbols
from .promotable_sizes import FreeSizes, free_sizes

_BESIDE = (Add, Sub, Lt, Le, Eq, Ne)  # a constant that is added to or compared with a free iterator is a size, too
_Sizes = tuple[int, ...]  # the constants that the programs of a group have at one place


def promote_sizes(function: g.Function, target: Target, decisions: Decisions | None = None) -> g.Function:
    """Returns the function with one program for all that differ only in sizes that schedules do not depend on; sizes become arguments."""
    decisions = decisions or Decisions()
    opened: dict[Func, _Opened] = {}

    def look(n: g.CallLoop) -> g.Node:
        func = func_of(n.callee)
        if func not in opened and not func.attrs.scheduled:
            opened[func] = _open(func, target, decisions.of_kernel(func.name))
        return n

    map_calls(function.nodes, look)
    promoted = {p.func: p for p in _promoted(opened.values())}

    def call(n: g.CallLoop) -> g.Node:
        replacement = promoted.get(func_of(n.callee))
        return n if replacement is None else replacement.call(n)

    return function.with_(nodes=map_calls(function.nodes, call)) if promoted else function


@dataclass(frozen=True, slots=True)
class _Opened:
    """A program with a variable in the place of each constant size that its schedule does not depend on."""

    func: Func
    open: Func
    places: tuple[Var, ...]
    sizes: _Sizes  # the constants at these places
    steps: tuple[int, ...]  # required divisors of loop extents
    tiles: dict[str, Tile]  # register tile of each block
    parts: dict[str, Parts]  # how each block splits its sum

    def own_symbols(self) -> list[Var]:
        """Returns the symbols that the program had before, in an order that all structurally equal programs share."""
        return [v for v in self.open.symbols if v not in self.places]


@dataclass(frozen=True, slots=True)
class _Promoted:
    """A record of a replacement: `func` is the program `by`, called with `values` (over the symbols of `func`) for its symbols."""

    func: Func
    by: Func
    values: tuple[Expr, ...]

    def call(self, n: g.CallLoop) -> g.Node:
        """Returns the graph call `n` with its program replaced."""
        dims = dict(zip(self.func.symbols, n.dims, strict=True))
        return n.with_(callee=callee_of(self.by), dims=tuple(dims[e] if isinstance(e, Var) else e for e in self.values))


def _open(func: Func, target: Target, decisions: OfKernel) -> _Opened:
    """Returns a program with the constant sizes that its schedule does not depend on replaced by variables."""
    free = free_sizes(func, target, decisions)
    opener = _Opener(free)
    opened = opener.func(func)
    return _Opened(func, opened, tuple(opener.places), tuple(opener.places.values()), tuple(opener.steps), free.tiles, free.parts)


class _Opener(WithSymbols):
    """Replaces constant sizes that a schedule does not depend on by new variables, and records their values."""

    def __init__(self, free: FreeSizes) -> None:
        super().__init__({})
        self.free = free
        self.places: dict[Var, int] = {}
        self.steps: list[int] = []

    def place(self, size: Expr) -> Expr:
        if not isinstance(size, Const):
            return size
        variable = Var(f"size_{len(self.places)}", i64)
        self.places[variable] = int(size.value)
        return variable

    def shape(self, b: Buffer) -> tuple[Expr, ...]:
        return tuple(self.place(e) if (b, k) in self.free.axes else self.expr(e) for k, e in enumerate(b.shape))

    def stmt(self, s: Stmt) -> Stmt:
        result = super().stmt(s)
        if not isinstance(result, For) or result.var not in self.free.loops:
            return result
        self.steps.append(self.free.steps.get(result.var, 1))
        return result.with_(stop=self.place(result.stop))

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, _BESIDE) and e.args[0].dtype is i64 and not free_vars(e).isdisjoint(self.free.iterators):
            return e.with_args(tuple(self.place(a) if isinstance(a, Const) else self.expr(a) for a in e.args))
        return super()._leaf(e)


def _promoted(opened: Iterable[_Opened]) -> Iterator[_Promoted]:
    """Groups structurally equal opened programs, and yields their replacements."""
    alike: dict[tuple[object, ...], list[_Opened]] = {}
    for o in opened:
        if o.places:
            alike.setdefault((structural_hash(o.open), o.steps, *o.tiles.items(), *o.parts.items()), []).append(o)
    for group in alike.values():
        yield from _one_for(group)


def _one_for(group: Sequence[_Opened]) -> Iterator[_Promoted]:
    """Yields replacements of the group's programs by one program; none if all have the same sizes.

    If the sizes are not linear combinations of common symbols, the group is split by a size that is none.
    """
    first = group[0]
    if all(o.sizes == first.sizes for o in group):
        return
    places = list(zip(*(o.sizes for o in group), strict=True))
    symbols = _symbols([sizes for v, sizes in zip(first.places, places, strict=True) if v in first.open.symbols], lcm(*first.steps))
    exprs: dict[Expr, Expr] = {}
    for v, sizes in zip(first.places, places, strict=True):
        e = _over(sizes, symbols)
        if e is None:
            for one in dict.fromkeys(sizes):
                yield from _one_for([o for o, size in zip(group, sizes, strict=True) if size == one])
            return
        exprs[v] = e
    by = with_symbols(first.open, exprs)
    by = by.with_(body=_with_choices(by.body, first))
    for k, o in enumerate(group):
        values: dict[Var, Expr] = dict(zip(first.own_symbols(), o.own_symbols(), strict=True))
        values.update((v, Const(sizes[k], i64)) for sizes, v in symbols.items())
        yield _Promoted(o.func, by, tuple(values[v] for v in by.symbols))


def _with_choices(s: Stmt, chosen: _Opened) -> Stmt:
    """Annotates blocks with their tile and parts: the rules can no longer derive them, because the sizes became symbols."""
    s = map_children(s, lambda inner: _with_choices(inner, chosen))
    if not isinstance(s, Block):
        return s
    annotations = {what: of[s.name] for what, of in (("tile", chosen.tiles), ("parts", chosen.parts)) if s.name in of}
    return s.with_(annotations={**s.annotations, **annotations}) if annotations else s


def _symbols(shapes: Iterable[_Sizes], step: int) -> dict[_Sizes, Dim]:
    """Returns a dim for each buffer extent in which the programs differ, except multiples and sums of other such extents."""
    symbols: dict[_Sizes, Dim] = {}
    for sizes in sorted(dict.fromkeys(shapes), key=sum):
        if _over(sizes, symbols) is None:
            multiple = gcd(step, *sizes)
            symbols[sizes] = Dim(f"size{len(symbols)}", multiple, multiple_of=multiple)
    return symbols


def _over(sizes: _Sizes, symbols: dict[_Sizes, Dim]) -> Expr | None:
    """Returns an expression over `symbols` that equals the size at one place in all programs of a group; None if there is none.

    It is a constant, a multiple of one symbol, or a sum of multiples of two.
    """
    if len(set(sizes)) == 1:
        return Const(sizes[0], i64)
    for unit, v in symbols.items():
        factor = sizes[0] // unit[0]
        if factor > 0 and all(size == factor * u for size, u in zip(sizes, unit, strict=True)):
            return v if factor == 1 else v * factor
    for (first, v), (second, w) in combinations(symbols.items(), 2):
        for a in range(1, sizes[0] // first[0] + 1):
            b = (sizes[0] - a * first[0]) // second[0]
            if b > 0 and all(size == a * x + b * y for size, x, y in zip(sizes, first, second, strict=True)):
                return v * a + w * b
    return None
