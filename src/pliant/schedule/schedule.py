"""`Schedule`: a program with the primitives as methods, handles that survive edits, and the trace of all calls.

    s = Schedule(func)
    i, j, k = s.loops("c")
    i_0, i_1 = s.split(i, 6, tail="balance")
    s.reorder(i_0, k, i_1)
    print(s.program); print(s.trace)

Every method is a pure primitive behind one decorator. The decorator resolves handles to statements, updates the handles with the edit's
forward, records the call, and returns handles for what the edit created.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ..loop.analysis.nests import blocks, index, loops_above
from ..loop.stmt import Block, For, Func, Iter, Stmt
from ..support.errors import ScheduleError, counted
from ..support.source import caller_span
from ..sym.expr import free_vars
from ..sym.index_map import IndexMap, index_map
from . import queries
from .choices import ChoiceLog, SampledInt, SampledText, plain
from .cursor import Forward, fresh_name
from .decisions import OfKernel
from .errors import refuse
from .primitives import (
    block_layout,
    blockize,
    cache_stages,
    compact,
    inline,
    join,
    layout,
    move,
    padding,
    parts,
    reduction,
    rfactor,
    rolling,
    tensorize,
    widen,
)
from .primitives import loops as loop_primitives
from .primitives import partition as partitioning
from .primitives import split as splitting
from .sampling import Sampling
from .trace import Entry, HandleId, Position, Trace, traced

R = TypeVar("R")


class Handle:
    """A loop or a block of a schedule's program; it stays valid through all edits until its statement is gone."""

    __slots__ = ("id", "schedule")

    def __init__(self, schedule: Schedule, id: HandleId) -> None:
        self.schedule = schedule
        self.id = id

    @property
    def stmt(self) -> Stmt:
        """The statement that the handle refers to, in the schedule's current program; raises if it is gone."""
        return self.schedule._statement(self)

    @property
    def alive(self) -> bool:
        """True if the statement still exists."""
        return not isinstance(self.schedule._places[self.id.number], str)

    def __repr__(self) -> str:
        place = self.schedule._places[self.id.number]
        kind = "gone" if isinstance(place, str) else "loop" if isinstance(place, For) else "block"
        return f"<{kind} {self.id.name}>"


class LoopHandle(Handle):
    """A handle of a loop in a schedule's program."""

    __slots__ = ()

    @property
    def loop(self) -> For:
        """The `For` statement that the handle refers to, in the schedule's current program."""
        s = self.stmt
        assert isinstance(s, For)
        return s


class BlockHandle(Handle):
    """A handle of a block in a schedule's program."""

    __slots__ = ()

    @property
    def block(self) -> Block:
        """The `Block` that the handle refers to, in the schedule's current program."""
        s = self.stmt
        assert isinstance(s, Block)
        return s


class SplitLoops(tuple[LoopHandle, ...]):
    """The loops that a split made, outermost first, and the names of the blocks in its tails (remainder loops).

    i_0, i_1 = loops = s.split(i, None, 6, tail="balance")
    for name in loops.tails:                # "c_tail5", "c_tail4", …, in the order in which they run
        *_, i_r = s.loops(name, "vi")
    """

    tails: tuple[str, ...]

    def __new__(cls, loops: Iterable[LoopHandle], tails: Iterable[str]) -> SplitLoops:
        """Make the tuple of loop handles, with the names of the blocks in the tails as an attribute."""
        split = super().__new__(cls, loops)
        split.tails = tuple(tails)
        return split


def primitive(fn: Callable[..., tuple[Func, Forward]], gives: type[R] | None = None) -> Callable[..., Any]:
    """Return the method of `Schedule` for a pure primitive: it resolves handles, applies the edit, updates handles, and records the call.

    `gives` is the type of handle that the method returns; None if it returns nothing.
    """
    signature = inspect.signature(fn)
    first = next(iter(signature.parameters))

    @traced
    @functools.wraps(fn)
    def method(self: Schedule, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(self.program, *args, **kwargs)
        except TypeError as error:
            raise ScheduleError(f"{fn.__name__}: {error}", where=caller_span()) from None
        try:
            arguments: dict[str, Any] = {}
            for name, value in bound.arguments.items():
                p = signature.parameters[name]
                if name != first:
                    several = p.kind is p.VAR_POSITIONAL
                    resolved = [self._resolve(v, str(p.annotation)) for v in (value if several else (value,))]
                    arguments[name] = tuple(resolved) if several else resolved[0]
            for name, p in signature.parameters.items():
                if name != first and name not in arguments and p.kind is p.VAR_POSITIONAL:
                    arguments[name] = ()
            bound.arguments.update(arguments)
            func, forward = fn(*bound.args, **bound.kwargs)
        except ScheduleError as error:
            raise error.at(caller_span()) from None
        coded = [self._coded(a) for a in args], {k: self._coded(v) for k, v in kwargs.items()}
        self._choices.note((*coded[0], *coded[1].values()), arguments.values(), bool(forward.rounding))
        self._advance(func, forward)
        handles = tuple(self._handle(s) for s in forward.made) if gives is not None else ()
        self._entries.append(Entry(fn.__name__, tuple(coded[0]), coded[1], tuple(h.id for h in handles)))
        if gives is SplitLoops:
            return SplitLoops(handles, [b.name for tail in forward.tails for b in blocks(tail)])  # type: ignore[arg-type]
        if gives is tuple:
            return handles
        return handles[0] if handles else None

    return method


class Schedule(Sampling):
    """A loop program under transformation by primitives, which are its methods; handles survive edits, and a trace records all calls."""

    def __init__(self, source: Any, decisions: Mapping[str, Any] | Sequence[Position] | OfKernel = (), seed: int = 0) -> None:
        """Start a schedule of a loop program: a `Func`, or an object with `func` (a kernel, another schedule).

        Sampled choices take their values from `decisions`, by name or in order (the default rules pass an `OfKernel`); all others are drawn
        from the seed's stream. Raises a ScheduleError for another object.
        """
        func = source if isinstance(source, Func) else getattr(source, "func", None)
        if not isinstance(func, Func):
            what = f"only loop programs can be scheduled, not {type(source).__name__}"
            raise ScheduleError(what, where=caller_span(), help="pass a function made by @kernel")
        self.program = func
        self.rounding: list[str] = []  # how edits declared to change the last bits of results
        self._places: list[Stmt | str] = []
        self._handles: list[Handle] = []
        self._entries: list[Entry] = []
        self._names: set[str] = {"s"}
        self._choices = ChoiceLog(func.name, decisions, seed)
        self._shared: list[tuple[Schedule, int]] = []  # the schedules that this is a copy of, and how many handles each had then

    @property
    def func(self) -> Func:
        """The program marked as scheduled, so that it is compiled exactly as it is; raises if a decision by name was never made."""
        self._choices.check_used()
        return self.program.with_(attrs=self.program.attrs.with_(scheduled=True))

    @property
    def trace(self) -> Trace:
        """The primitive calls and sampled choices so far, as a `Trace`."""
        return Trace(tuple(self._entries), tuple(self._choices.positions))

    @traced
    def loops(self, block: str | BlockHandle, iterator: str | None = None) -> tuple[LoopHandle, ...]:
        """Return the loops around a block, outermost first; with `iterator`, only those in the iterator's binding."""
        of_block = self._resolve(block, "Block")
        around = loops_above(self.program, of_block)
        if iterator is not None:
            used = free_vars(self._iterator(of_block, iterator).value)
            around = [x for x in around if x.var in used]
        handles = tuple(self._handle(x) for x in around)
        args = (self._coded(block),) if iterator is None else (self._coded(block), iterator)
        self._entries.append(Entry("loops", args, {}, tuple(h.id for h in handles)))
        return handles  # type: ignore[return-value]

    @traced
    def loop(self, block: str | BlockHandle, iterator: str) -> LoopHandle:
        """Return the only loop in an iterator's binding; raise if there are several or none."""
        of_block = self._resolve(block, "Block")
        value = self._iterator(of_block, iterator).value
        used = [x for x in loops_above(self.program, of_block) if x.var in free_vars(value)]
        if len(used) != 1:
            what = f"iterator `{iterator}` of block `{of_block.name}` goes through {counted(len(used), 'loop')}"
            more = "s.loops(block, iterator) gives all of them"
            raise refuse(what, self.program, (of_block, f"{iterator} = {value}"), help=more).at(caller_span())
        handle = self._handle(used[0])
        self._entries.append(Entry("loop", (self._coded(block), iterator), {}, (handle.id,)))
        return handle  # type: ignore[return-value]

    def _iterator(self, block: Block, name: str) -> Iter:
        iterator = next((i for i in block.iters if i.var.name == name), None)
        if iterator is None:
            names = ", ".join(f"`{i.var.name}`" for i in block.iters)
            what = f"block `{block.name}` has no iterator {name!r}"
            raise refuse(what, self.program, (block, f"its iterators are {names or 'none'}")).at(caller_span())
        return iterator

    @traced
    def block(self, name: str) -> BlockHandle:
        """Return a handle of the block of that name; raise if there is none."""
        handle = self._handle(self._find(name))
        self._entries.append(Entry("block", (name,), {}, (handle.id,)))
        return handle  # type: ignore[return-value]

    @traced
    def child_blocks(self, at: LoopHandle | BlockHandle | str | None = None) -> tuple[BlockHandle, ...]:
        """Return the outermost blocks inside a loop or a block, in order; those of the whole program if `at` is None."""
        inside = None if at is None else self._resolve(at, "For | Block")
        return self._answer("child_blocks", () if at is None else (at,), queries.child_blocks(self.program, inside))

    @traced
    def producers(self, block: str | BlockHandle) -> tuple[BlockHandle, ...]:
        """Return the blocks that write what a block reads, in order."""
        return self._answer("producers", (block,), queries.producers(self.program, self._resolve(block, "Block")))

    @traced
    def consumers(self, block: str | BlockHandle) -> tuple[BlockHandle, ...]:
        """Return the blocks that read what a block writes, in order."""
        return self._answer("consumers", (block,), queries.consumers(self.program, self._resolve(block, "Block")))

    @traced
    def output_blocks(self) -> tuple[BlockHandle, ...]:
        """Return the blocks that write parameters of the program, in order."""
        return self._answer("output_blocks", (), queries.output_blocks(self.program))

    def _answer(self, op: str, args: tuple[Any, ...], blocks: Sequence[Block]) -> tuple[BlockHandle, ...]:
        handles = tuple(self._handle(b) for b in blocks)
        self._entries.append(Entry(op, tuple(map(self._coded, args)), {}, tuple(h.id for h in handles)))
        return handles  # type: ignore[return-value]

    def copy(self) -> Schedule:
        """Return an independent schedule that continues from here: edits of one are not seen by the other.

        Handles that exist now are valid in both. In each schedule they point to where that schedule moved their statement.
        """
        other = Schedule(self.program)
        other._choices = self._choices.copy()
        other.rounding = list(self.rounding)
        other._places, other._entries, other._names = list(self._places), list(self._entries), set(self._names)
        other._handles = [type(h)(other, h.id) for h in self._handles]
        other._shared = [*self._shared, (self, len(self._places))]
        return other

    split = primitive(splitting.split, SplitLoops)
    partition = primitive(partitioning.partition, tuple)
    loop_partition = primitive(partitioning.loop_partition, tuple)
    fuse = primitive(loop_primitives.fuse, LoopHandle)
    fission = primitive(join.fission, tuple)
    join = primitive(join.join, LoopHandle)
    reorder = primitive(loop_primitives.reorder)
    unroll = primitive(loop_primitives.unroll)
    vectorize = primitive(loop_primitives.vectorize)
    parallel = primitive(loop_primitives.parallel)
    annotate = primitive(loop_primitives.annotate)
    unannotate = primitive(loop_primitives.unannotate)
    add_unit_loop = primitive(loop_primitives.add_unit_loop, LoopHandle)
    compute_inline = primitive(inline.compute_inline)
    reverse_compute_inline = primitive(inline.reverse_compute_inline)
    decompose_reduction = primitive(reduction.decompose_reduction, BlockHandle)
    begin_reduction = primitive(reduction.begin_reduction, BlockHandle)
    contract = primitive(reduction.contract)
    rfactor = primitive(rfactor.rfactor, BlockHandle)
    sum_in_parts = primitive(parts.sum_in_parts, BlockHandle)
    cache_write = primitive(cache_stages.cache_write, BlockHandle)
    cache_read = primitive(cache_stages.cache_read, BlockHandle)
    set_scope = primitive(cache_stages.set_scope)
    widen = primitive(widen.widen)
    compute_at = primitive(move.compute_at)
    reverse_compute_at = primitive(move.reverse_compute_at)
    compact = primitive(compact.compact)
    rolling_buffer = primitive(rolling.rolling_buffer)
    transform_layout = primitive(layout.transform_layout, BlockHandle)
    transform_block_layout = primitive(block_layout.transform_block_layout, tuple)
    reindex = primitive(block_layout.reindex, BlockHandle)
    reindex_cache_read = primitive(block_layout.reindex_cache_read, BlockHandle)
    reindex_cache_write = primitive(block_layout.reindex_cache_write, BlockHandle)
    blockize = primitive(blockize.blockize, BlockHandle)
    tensorize = primitive(tensorize.tensorize, BlockHandle)
    pad = primitive(padding.pad, tuple)
    decompose_padding = primitive(padding.decompose_padding, BlockHandle)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Context manager: undo everything done inside if the body raises; handles made inside are then dead."""
        state = self.program, list(self.rounding), list(self._places), list(self._entries), set(self._names)
        choices = self._choices.state()
        try:
            yield
        except BaseException:
            self.program, self.rounding, places, self._entries, self._names = state
            self._choices.restore(choices)
            new_handles = len(self._places) - len(places)
            self._places = [*places, *["what made it was undone"] * new_handles]
            raise

    def _statement(self, handle: Handle) -> Stmt:
        place = self._places[handle.id.number]
        if isinstance(place, str):
            raise ScheduleError(f"`{handle.id.name}` is no longer part of the program: {place}", where=caller_span())
        return place

    def _resolve(self, value: Any, annotation: str) -> Any:
        """Return the statement, block or index map that an argument of a primitive refers to; an argument of another kind itself.

        `annotation` is that of the primitive's parameter. Raises ScheduleError if it wants a loop or block and the argument is none, or is
        gone, or belongs to another schedule.
        """
        wanted = [word for word, part in (("loop", "For"), ("block", "Block")) if part in annotation]
        value = plain(value)
        if "IndexMap" in annotation:
            return index_map(value, self.program.symbols)
        if isinstance(value, str) and "Block" in annotation:
            return self._find(value)
        if isinstance(value, Handle):
            if value.schedule is not self and not any(value.schedule is s and value.id.number < n for s, n in self._shared):
                raise ScheduleError(f"`{value.id.name}` belongs to another schedule")
            s = self._statement(value)
            if "For" not in annotation and isinstance(s, For):
                raise refuse(f"`{value.id.name}` is a loop where a block is expected", self.program, (s, "this loop"))
            if "Block" not in annotation and isinstance(s, Block):
                raise refuse(f"`{value.id.name}` is a block where a loop is expected", self.program, (s, "this block"))
            return s
        if isinstance(value, str) and "For" in annotation:
            raise ScheduleError(f"a loop is expected, not {value!r}", help='loops come from s.loops("block") and from primitives')
        if wanted and not (value is None and "None" in annotation):
            raise ScheduleError(f"a {' or a '.join(wanted)} is expected, not {value!r}")
        return value

    def _find(self, name: str) -> Block:
        by_name = index(self.program.body).blocks
        match = by_name.get(name)
        if match is None:
            listed = ", ".join(f"`{n}`" for n in by_name) or "none"
            raise ScheduleError(f"there is no block `{name}`", where=caller_span(), facts=[f"the blocks are {listed}"])
        return match

    def _handle(self, s: Stmt) -> Handle:
        known = next((h for h, place in zip(self._handles, self._places, strict=True) if place is s), None)
        if known is not None:
            return known
        name = s.var.name if isinstance(s, For) else s.name if isinstance(s, Block) else "s"
        id = HandleId(len(self._places), fresh_name(name, self._names))
        handle = LoopHandle(self, id) if isinstance(s, For) else BlockHandle(self, id)
        self._places.append(s)
        self._handles.append(handle)
        return handle

    def _coded(self, value: Any) -> Any:
        if isinstance(value, (SampledInt, SampledText)) and any(v is value.origin for v, _ in self._choices.values):
            return value.origin
        if isinstance(value, IndexMap) or callable(value):
            return str(index_map(value, self.program.symbols))
        return value.id if isinstance(value, Handle) else plain(value)

    def _advance(self, func: Func, forward: Forward) -> None:
        """Install the program after an edit, move every handle to what its statement became, and note how the edit may change rounding."""
        self.program = func
        for n, place in enumerate(self._places):
            if isinstance(place, str):
                continue
            reason = forward.dead.get(place)
            self._places[n] = reason if reason is not None else forward.moved.get(place, place)
        if forward.rounding:
            self.rounding.append(forward.rounding)
