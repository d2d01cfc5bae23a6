"""Loop programs that differ only in sizes which no schedule needs to know become one program, with these sizes as dims.

    conv(x: f32[b, 4, h, w, 16], w: f32[8, 64, 3, 3, 16], …)        ->    conv(x: f32[b, s, h, w, 16], w: f32[t, s * 16, 3, 3, 16], …)
    conv(x: f32[b, 8, h, w, 16], w: f32[16, 128, 3, 3, 16], …)            # called with s = 4, t = 8 and with s = 8, t = 16

Which sizes these are the loops tell that go through them (`promotable_sizes.py`). Others, and those in which no two programs differ, stay
constants. Every program that is replaced is the new one at its own sizes.

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

_BESIDE = (Add, Sub, Lt, Le, Eq, Ne)  # a constant next to a free iterator is a size, too
_Sizes = tuple[int, ...]  # what stands in one place of each program


def promote_sizes(function: g.Function, target: Target, decisions: Decisions | None = None) -> g.Function:
    """The function with one program in the place of those that differ only in sizes no schedule needs."""
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
        found = promoted.get(func_of(n.callee))
        return n if found is None else found.call(n)

    return function.with_(nodes=map_calls(function.nodes, call)) if promoted else function


@dataclass(frozen=True, slots=True)
class _Opened:
    """A program with a variable in each place where a size may be an argument."""

    func: Func
    open: Func
    places: tuple[Var, ...]
    sizes: _Sizes  # what stood there
    steps: tuple[int, ...]  # what sizes of loops stay a multiple of
    tiles: dict[str, Tile]  # which its blocks keep in registers
    parts: dict[str, Parts]  # in which they sum

    def own_symbols(self) -> list[Var]:
        """The symbols that the program had before, in an order that all programs of its form share."""
        return [v for v in self.open.symbols if v not in self.places]


@dataclass(frozen=True, slots=True)
class _Promoted:
    """What stands for a program: another one, and a value for each of its symbols, over those of the program."""

    func: Func
    by: Func
    values: tuple[Expr, ...]

    def call(self, n: g.CallLoop) -> g.Node:
        """The call of what stands for the program."""
        given = dict(zip(self.func.symbols, n.dims, strict=True))
        return n.with_(callee=callee_of(self.by), dims=tuple(given[e] if isinstance(e, Var) else e for e in self.values))


def _open(func: Func, target: Target, decisions: OfKernel) -> _Opened:
    free = free_sizes(func, target, decisions)
    opener = _Opener(free)
    made = opener.func(func)
    return _Opened(func, made, tuple(opener.places), tuple(opener.places.values()), tuple(opener.steps), free.tiles, free.parts)


class _Opener(WithSymbols):
    """Puts variables in the place of free sizes."""

    def __init__(self, free: FreeSizes) -> None:
        super().__init__({})
        self.free = free
        self.places: dict[Var, int] = {}
        self.steps: list[int] = []

    def place(self, size: Expr) -> Expr:
        if not isinstance(size, Const):
            return size
        made = Var(f"size_{len(self.places)}", i64)
        self.places[made] = int(size.value)
        return made

    def shape(self, b: Buffer) -> tuple[Expr, ...]:
        return tuple(self.place(e) if (b, k) in self.free.axes else self.expr(e) for k, e in enumerate(b.shape))

    def stmt(self, s: Stmt) -> Stmt:
        made = super().stmt(s)
        if not isinstance(made, For) or made.var not in self.free.loops:
            return made
        self.steps.append(self.free.steps.get(made.var, 1))
        return made.with_(stop=self.place(made.stop))

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, _BESIDE) and e.args[0].dtype is i64 and not free_vars(e).isdisjoint(self.free.iterators):
            return e.with_args(tuple(self.place(a) if isinstance(a, Const) else self.expr(a) for a in e.args))
        return super()._leaf(e)


def _promoted(opened: Iterable[_Opened]) -> Iterator[_Promoted]:
    alike: dict[tuple[object, ...], list[_Opened]] = {}
    for o in opened:
        if o.places:
            alike.setdefault((structural_hash(o.open), o.steps, *o.tiles.items(), *o.parts.items()), []).append(o)
    for group in alike.values():
        yield from _one_for(group)


def _one_for(group: Sequence[_Opened]) -> Iterator[_Promoted]:
    """One program for those of a form, or for each part of them whose sizes hang together alike."""
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
    """The statement with blocks that ask for their tiles and parts: the rules choose them by sizes, which are not there any more."""
    s = map_children(s, lambda inner: _with_choices(inner, chosen))
    if not isinstance(s, Block):
        return s
    asked = {what: of[s.name] for what, of in (("tile", chosen.tiles), ("parts", chosen.parts)) if s.name in of}
    return s.with_(annotations={**s.annotations, **asked}) if asked else s


def _symbols(shapes: Iterable[_Sizes], step: int) -> dict[_Sizes, Dim]:
    """A dim for each extent of buffers that programs differ in, and that is no multiple nor sum of others."""
    found: dict[_Sizes, Dim] = {}
    for sizes in sorted(dict.fromkeys(shapes), key=sum):
        if _over(sizes, found) is None:
            multiple = gcd(step, *sizes)
            found[sizes] = Dim(f"size{len(found)}", multiple, multiple_of=multiple)
    return found


def _over(sizes: _Sizes, symbols: dict[_Sizes, Dim]) -> Expr | None:
    """What stands in one place, as an expression over symbols that is right for all programs."""
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
