"""NCHWc layout `[n, c // 16, h, w, c % 16]` for activations between convolutions: the vectorized dim is constant for any image size.

    y = conv(x, w); z = relu(y); u = conv(concat(z, v), w2)        ->        the same calls, with y, z, v in NCHWc

A layout belongs to a value, and `transform_layout` rewrites every loop program that accesses the value, so operators know nothing about
it. Values whose channels are indexed by the same iterator of some program (sums, activations, pools, concat, slices, resizes) form an
equivalence class with one layout. A convolution separates the class of its operand from that of its result. A class is blocked if a
convolution produces one of its values and the block size divides every number of channels and every channel offset of a concat or slice.
Arguments and results of the function keep their layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import gcd

from ...dtype import f32
from ...graph import node as g
from ...loop.analysis.nests import accesses, bare_uses, blocks, index, loops_above
from ...loop.buffer import Buffer
from ...loop.stmt import Block, Call, Func, View, walk_stmts
from ...schedule.decisions import Decisions, OfKernel
from ...schedule.dependence import linear
from ...schedule.library import block_sizes, makes_image, transforms_tiles
from ...schedule.schedule import Schedule
from ...support.errors import ScheduleError
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, FloorMod, Var, free_vars, substitute
from ...sym.index_map import IndexMap
from ...target import Target
from ..callee import callee_of, func_of
from .lift_constants import known_values

Key = g.Value | tuple[g.CallLoop, Buffer]  # a value of the function, or a temporary of one loop program
_Made = dict[tuple[Func, tuple[tuple[Buffer, str], ...]], Func | None]  # cache: (program, layouts of its buffers) -> rewritten program


def layout_nchwc(function: g.Function, target: Target, decisions: Decisions | None = None) -> g.Function:
    """Returns the function with activations between convolutions in NCHWc layout; each channel block size is a decision.

    If a loop program cannot be rewritten, its values are fixed and the classes are computed again.
    """
    known, layouts = known_values(function), (decisions or Decisions()).of_kernel(function.name)
    left_out: set[g.CallLoop] = set()
    programs: _Made = {}
    while True:
        maps = _Classes(function, known, left_out).maps(target, layouts)
        if not maps:
            return function
        changed = _Change(maps, programs)
        nodes = tuple(changed.node(n) for n in function.nodes)
        if not changed.refused:
            return function.with_(nodes=nodes)
        left_out |= changed.refused


def _stays(n: g.CallLoop) -> bool:
    """True if a program must not be rewritten: it has a schedule of its own, or updates state, whose layout the caller owns."""
    func = func_of(n.callee)
    return func.attrs.scheduled or any(p.role == "inout" for p in func.params)


def _buffers(n: g.CallLoop) -> dict[Buffer, Key]:
    """Maps the buffers of the called loop program to graph values; temporaries map to (call, buffer)."""
    func = func_of(n.callee)
    inputs = [p.value for p in func.params if p.role != "out"]
    outputs = zip((p for p in func.params if p.role != "in"), n.outs, strict=True)
    written = [(p.value, v) for p, v in outputs if p.role == "out"]
    keys: dict[Buffer, Key] = {b: (n, b) for b in index(func.body).allocations}
    pairs = [*zip(inputs, n.args, strict=True), *written]
    keys.update((b, v) for b, v in pairs if isinstance(b, Buffer) and isinstance(v, g.Value))
    return keys


class _Classes:
    """Union-find over values and temporaries of a function: those in one equivalence class must have the same layout."""

    def __init__(self, function: g.Function, known: set[g.Value], left_out: set[g.CallLoop]) -> None:
        self.parents: dict[Key, Key] = {}
        self.steps: dict[Key, int] = {}  # the gcd of channel counts and offsets: a block size must divide it
        self.wanted: set[Key] = set()  # results of convolutions
        self.inside: set[Key] = set()  # operands and results of products of tiles: wanted even if they are temporaries
        self.shapes: dict[Key, tuple[Expr, ...]] = {}
        self.calls = [n for n in function.nodes if isinstance(n, g.CallLoop)]
        self.fixed: set[Key] = {*function.params, *function.results, *known}  # these keep their layout
        for n in function.nodes:
            if not isinstance(n, g.CallLoop) or n in left_out or _stays(n):
                self.fixed.update(g.all_uses(n), n.outs)
        for n in self.calls:
            if n not in left_out and not _stays(n):
                self.look(n)

    def root(self, key: Key) -> Key:
        while self.parents.get(key, key) is not key:
            key = self.parents[key]
        return key

    def join(self, keys: Sequence[Key]) -> None:
        for a, b in pairwise(keys):
            self.parents[self.root(a)] = self.root(b)

    def look(self, n: g.CallLoop) -> None:
        """Joins the buffers of one called program whose channels share an iterator.

        Those that views, calls or bare statements use stay fixed.
        """
        func = func_of(n.callee)
        keys = {b: k for b, k in _buffers(n).items() if _is_image(b)}
        bare = bare_uses(func)
        for s in walk_stmts(func.body):
            if isinstance(s, View):
                self.fixed.update(keys[b] for b in (s.buffer, s.source) if b in keys)
            elif isinstance(s, Call):
                self.fixed.update(keys[b] for b in s.args if isinstance(b, Buffer) and b in keys)
        self.fixed.update(k for b, k in keys.items() if b in bare.reads or b in bare.writes)
        for b, k in keys.items():
            self.parents.setdefault(k, k)
            self.shapes[k] = b.shape
            self.steps[k] = gcd(self.steps.get(k, 0), _extent(b.shape[1]))
        for block in blocks(func.body):
            self.channels(block, keys, _single(func, block))

    def channels(self, block: Block, keys: dict[Buffer, Key], single: set[Var]) -> None:
        """Joins the buffers of one block whose channels share an iterator; notes results of convolutions and buffers of products of tiles.

        A buffer whose channels no single iterator indexes stays fixed.
        """
        together: dict[Var, list[Key]] = {}
        iters = {i.var for i in block.iters} - single
        for a in accesses(block):
            if a.buffer not in keys:
                continue
            channel = _channel(a.indices, iters, single)
            if channel is None:
                self.fixed.add(keys[a.buffer])
                continue
            together.setdefault(channel[0], []).append(keys[a.buffer])
            self.steps[keys[a.buffer]] = gcd(self.steps[keys[a.buffer]], channel[1])
        for same in together.values():
            self.join([k for k in same if k not in self.fixed])
        if makes_image(block):
            self.wanted.update(keys[a.buffer] for a in accesses(block) if a.write and a.buffer in keys)
        if transforms_tiles(block):
            self.inside.update(keys[a.buffer] for a in accesses(block) if a.buffer in keys)

    def maps(self, target: Target, layouts: OfKernel) -> dict[Key, IndexMap]:
        """Returns the index map to NCHWc for each value and temporary whose equivalence class becomes blocked.

        These are the classes that have a result of a convolution or a buffer of a product of tiles, and a block size that divides their
        channel counts. The block size is a decision; 0 leaves a class as it is.
        """
        members: dict[Key, list[Key]] = {}
        for k in self.parents:
            if k not in self.fixed:
                members.setdefault(self.root(k), []).append(k)
        maps: dict[Key, IndexMap] = {}
        for same in members.values():
            sizes = block_sizes(target, gcd(*(self.steps[k] for k in same)))
            first = next((k.name for k in same if isinstance(k, g.Value)), None) or next((_name(k) for k in same if k in self.inside), None)
            if not sizes or first is None or (self.wanted | self.inside).isdisjoint(same):
                continue
            why = "channels of a block: as many lanes of its vectors as possible are used; 0 means no blocks"
            decide = layouts.about(first, target)
            size = decide("channels", (0, *sizes), sizes[0], reorders=True, kind="layout", why=why)  # it changes where partial sums begin
            if size:
                maps.update((k, _map(self.shapes[k], size)) for k in same)
        return maps


def _name(key: Key) -> str:
    """Returns the name of a value; of a temporary, the name of the value that its program makes, and its own."""
    return key.name if isinstance(key, g.Value) else f"{key[0].outs[0].name}_{key[1].name}"


def _is_image(b: Buffer) -> bool:
    """True if a buffer may be an activation (n, channels, …): contiguous f32 with a constant number of channels above 1."""
    return b.dtype is f32 and b.ndim >= 3 and b.strides is None and _extent(b.shape[1]) > 1


def _single(func: Func, block: Block) -> set[Var]:
    """Returns the iterators of a block with extent 1, which are always 0."""
    loops = {x.var: x for x in loops_above(func, block)}
    return {i.var for i in block.iters if isinstance(i.value, Var) and i.value in loops and _extent(loops[i.value].extent) == 1}


def _extent(e: Expr) -> int:
    """Returns the value of a constant; 0 for any other expression."""
    return int(e.value) if isinstance(e, Const) else 0


def _channel(indices: tuple[Expr, ...], iters: set[Var], single: set[Var]) -> tuple[Var, int] | None:
    """Returns the iterator that indexes the channels of an access with stride 1, and its constant offset; None if there is no such one.

    The iterators in `single` are taken as 0.
    """
    used = free_vars(indices[1]) & iters
    if len(used) != 1:
        return None
    (v,) = used
    parts = linear(substitute(indices[1], {x: Const(0, x.dtype) for x in single}), v)
    if parts is None or parts[0] != {(): 1} or set(parts[1]) - {()} or any(v in free_vars(e) for k, e in enumerate(indices) if k != 1):
        return None
    return v, abs(int(parts[1].get((), 0)))


def _map(shape: tuple[Expr, ...], size: int) -> IndexMap:
    """Returns the index map from NCHW to NCHWc blocks of `size` channels; dims of one element are dropped."""
    inputs = tuple(Var(f"d{k}") for k in range(len(shape)))
    n, c, *places = inputs
    one = _extent(shape[1]) == size
    front = [v for v, e in ((n, shape[0]),) if _extent(e) != 1]
    rest = [v for v, e in zip(places, shape[2:], strict=True) if _extent(e) != 1]
    return IndexMap(inputs, (*front, *([] if one else [c // size]), *rest, c if one else c % size))


class _Change:
    """Rewrites calls to values in NCHWc layout; `refused` collects the values whose programs cannot be rewritten."""

    def __init__(self, maps: dict[Key, IndexMap], made: _Made) -> None:
        self.maps = maps
        self.made = made
        self.values: dict[g.Value, g.Value] = {}
        self.refused: set[g.CallLoop] = set()

    def node(self, n: g.Node) -> g.Node:
        """Returns the call over values in their new layouts; the node itself if nothing changes.

        A call that cannot be rewritten is returned as it is, and added to `refused`.
        """
        if not isinstance(n, g.CallLoop):
            return n
        mapped = {b: self.maps[k] for b, k in _buffers(n).items() if k in self.maps}
        if not mapped:
            return n
        func = self.program(func_of(n.callee), mapped)
        if func is None:
            self.refused.add(n)
            return n
        dims = dict(zip(n.callee.symbols, n.dims, strict=True))
        return n.with_(
            callee=callee_of(func),
            args=tuple(self.value(a) if isinstance(a, g.Value) else a for a in n.args),
            outs=tuple(map(self.value, n.outs)),
            dims=tuple(dims[v] for v in func.symbols),
        )

    def program(self, func: Func, maps: dict[Buffer, IndexMap]) -> Func | None:
        """Returns the program rewritten for blocked buffers (cached); None if a schedule primitive refuses."""
        key = func, tuple((b, str(m)) for b, m in maps.items())
        if key not in self.made:
            try:
                self.made[key] = _with_blocks(func, maps)
            except ScheduleError:
                self.made[key] = None
        return self.made[key]

    def value(self, v: g.Value) -> g.Value:
        """Returns the value that replaces `v`, with the shape of its new layout."""
        if v not in self.maps:
            return v
        if v not in self.values:
            layout = self.maps[v].layout(v.tensor.shape)
            assert not isinstance(layout, Refusal), layout
            self.values[v] = g.Value(v.name, g.Tensor(v.tensor.dtype, layout.shape))
        return self.values[v]


def _with_blocks(func: Func, maps: dict[Buffer, IndexMap]) -> Func:
    """Rewrites a program for blocked buffers, and splits its channel iterators into block and lane iterators."""
    s = Schedule(func)
    users = {a.buffer: b.name for b in blocks(func.body) for a in accesses(b)}
    for buffer, map_ in maps.items():
        if buffer in users:
            s.transform_layout(buffer.name, map_, block=users[buffer])
    blocked = {_extent(m.results[-1].args[1]) for m in maps.values() if isinstance(m.results[-1], FloorMod)}
    for b in blocks(s.program.body):
        iterators = _iterators(b, blocked, _single(s.program, b))
        if iterators is not None:
            s.transform_block_layout(b.name, iterators)
    return s.program


def _iterators(block: Block, sizes: set[int], single: set[Var]) -> IndexMap | None:
    """Returns the index map that splits a block's channel iterators and reorders its iterators, or None if nothing changes.

    Lane iterators (inside a block of channels) come last, before reductions. Iterators that are always 0 and index no result are dropped.
    """
    named = {v for a in accesses(block) if a.write for e in a.indices for v in free_vars(e)}
    inputs = tuple(Var(f"d{k}") for k in range(len(block.iters)))
    lasts = [a.indices[-1] for a in accesses(block) if a.indices]
    front: list[Expr] = []
    inner: list[Expr] = []
    reduced: list[Expr] = []
    for i, d in zip(block.iters, inputs, strict=True):
        size = next((n for n in sorted(sizes, reverse=True) if any(e is FloorMod(i.var, Const(n, i.var.dtype)) for e in lasts)), 0)
        parts = [d // size, d % size] if size else [d]
        if i.kind == "S" and i.var in single and i.var not in named:
            continue
        if i.kind == "S":
            whole = not size and any(a.write and a.indices[-1] is i.var for a in accesses(block))
            inner += parts[1:] if size else parts if whole else []
            front += parts[:1] if size or not whole else []
        else:
            reduced += parts
    results = (*front, *inner, *reduced)
    return None if results == inputs else IndexMap(inputs, results)
