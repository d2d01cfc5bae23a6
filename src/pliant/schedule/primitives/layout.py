"""Primitives that change how tensors lie in memory: transform_layout.

The layout of a buffer is an index map (`sym/index_map.py`). What a parameter became is written down in the program's attribute
`layouts`, `{"b": ("lambda k, n: (n // 16, k, n % 16)", 0.0)}`: the map from the caller's tensor to what the program takes, and what
stands in the padding (None: anything, nobody reads it). `layouts_of` reads it for those who pack the operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...dtype import DType, bool_
from ...loop.analysis.nests import accesses, allocation, base_facts, block_names, facts_at, index
from ...loop.buffer import Buffer, Load, loaded_dtype
from ...loop.passes.simplify_indices import Simplifier
from ...loop.stmt import Alloc, Block, Call, For, Func, Iter, Param, Seq, Stmt, Store, View, seq, walk_stmts, zero
from ...support.record import dataclass
from ...support.refusal import Refusal as NoMap
from ...sym.expr import Const, Expr, Not, Var
from ...sym.facts import Facts
from ...sym.index_map import IndexMap, Layout, index_map
from ...sym.prove import prove_equal
from ..cursor import Edit, Forward, Mover, fresh_name
from ..errors import Refusal, refuse
from ..invariants import legal

Number = int | float


@dataclass(frozen=True, slots=True)
class Packing:
    """How a parameter's memory comes from the tensor that the caller has: by a map, with `pad` (None: anything) in between."""

    map: IndexMap
    pad: Number | None


def layouts_of(func: Func) -> dict[str, Packing]:
    """The parameters of a program whose layout was transformed."""
    return {name: Packing(index_map(text), pad) for name, (text, pad) in func.attrs.layouts.items()}


@legal
def transform_layout(
    func: Func, buffer: str, index_map: IndexMap, pad_value: Number | None = None, block: Block | None = None
) -> tuple[Func, Forward]:
    """Let a buffer lie in memory by an index map; every access goes through it. A parameter is then expected in that layout.

    Where an extent is no multiple of what it is divided by, it is rounded up. `pad_value` is what stands in the padding: of a
    buffer of the program, and of an output, it is stored there; of an input, it is expected. Without it nobody writes
    or reads the padding. `block` says which buffer is meant where several have that name: the one that it uses.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.transform_layout("b", lambda k, n: (n // 4, k, n % 4))`

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vj // 4, vk, vj % 4]
    """
    what = f"cannot transform the layout of `{buffer}`"
    old = buffer_named(func, buffer, block, what)
    alloc = allocation(func, old)
    facts = base_facts(func) if alloc is None else facts_at(func, alloc)
    if alloc is None and index_map.sizes:  # who packs an operand knows the map, and not yet the sizes of a call
        shown = ", ".join(sorted(f"`{v.name}`" for v in index_map.sizes))
        raise _refused(f"{what} by {index_map}: the layout of a parameter names numbers alone, not {shown}", func, old)
    layout = index_map.layout(old.shape, facts)
    if isinstance(layout, NoMap):
        raise _refused(
            f"{what} by {index_map}: {layout.reason}", func, old, help="several transformations, one after the other, can do more"
        )
    _check_uses(func, old, layout, facts, what)
    before = layouts_of(func).get(old.name) if alloc is None else None
    pad = (
        (pad_value if before is None or before.pad is None or pad_value is not None else before.pad) if layout.has_padding(facts) else None
    )
    if before is not None and before.pad is not None and pad not in (None, before.pad):
        raise _refused(f"{what}: what stands in its padding is {before.pad} already, it cannot be {pad} as well", func, old)
    if pad_value is not None:
        check_number(func, old, pad_value, what)
        if alloc is None and not math.isfinite(pad_value):
            raise _refused(f"{what}: {pad_value!r} cannot be written down as what a caller puts there", func, old)
    new = Buffer(old.name, old.dtype, layout.shape, None, old.scope)
    edit = Edit(func)
    body = Relayout(edit.moved, old, new, layout.map.apply).stmt(func.body)
    simplifier = Simplifier((new,))
    body = simplifier.stmt(body, base_facts(func))
    edit.moved.update(simplifier.moved)
    made: tuple[Block, ...] = ()
    role = "" if alloc is not None else func.role(old)
    if pad is not None and role != "in":
        body, fill = _filled(func, body, new, layout, pad, edit)
        made = (fill,)
    edit.replace(func.body, body)
    result, forward = edit.done(made=made)
    if alloc is None:
        result = _noted(
            result, old, new, layout.map if before is None else before.map.then(layout.map), pad if before is None else before.pad
        )
    return result, forward


def buffer_named(func: Func, name: str, block: Block | None, what: str) -> Buffer:
    """The one buffer of that name (that a block uses); refused where there is none, or more than one."""
    known = [*func.buffers, *index(func.body).allocations]
    if block is not None:
        used = {a.buffer for a in accesses(block)}
        known = [b for b in known if b in used]
    found = [b for b in known if b.name == name]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"`{b.name}`" for b in known) or "none"
    if found:
        places = [(s, f"{s.buffer!r}") for s in walk_stmts(func.body) if isinstance(s, Alloc) and s.buffer in found]
        raise refuse(f"{what}: {len(found)} buffers have that name", func, *places, help="say which one by a block that uses it: block=…")
    by = f"block `{block.name}` uses" if block is not None else "the program has"
    at = [] if block is None else [(block, "this block")]
    raise refuse(f"{what}: there is no such buffer", func, *at, facts=[f"{by} {listed}"])


def _refused(text: str, func: Func, buffer: Buffer, facts: tuple[str, ...] = (), help: str = "") -> Refusal:
    """A refusal that shows the blocks that use a buffer."""
    users = [b for b in index(func.body).blocks.values() if any(a.buffer is buffer for a in accesses(b))]
    return refuse(text, func, *((b, f"uses {buffer!r}") for b in users), facts=[f"it is {buffer!r}", *facts], help=help)


def _check_uses(func: Func, buffer: Buffer, layout: Layout, facts: Facts, what: str) -> None:
    if buffer.strides is not None:
        raise _refused(f"{what}: it has strides of its own", func, buffer)
    for s in walk_stmts(func.body):
        if isinstance(s, View) and buffer in (s.buffer, s.source):
            raise _refused(f"{what}: the program makes a view of it", func, buffer)
        if isinstance(s, Call) and buffer in s.args:
            raise _refused(f"{what}: it is passed to `{s.func.name}`, which expects the layout it has", func, buffer)
    per_byte = max(1, 8 // buffer.dtype.bits)
    if per_byte > 1 and buffer in func.buffers and (not layout.shape or not prove_equal(layout.shape[-1] % per_byte, zero(), facts)):
        raise _refused(f"{what}: rows of {buffer.dtype} would end within a byte", func, buffer, (f"the last extent is {layout.shape[-1]}",))


def check_number(func: Func, buffer: Buffer, pad: Number, what: str) -> None:
    """Refuse what is no value of a buffer's dtype."""
    d: DType = loaded_dtype(buffer.dtype)
    fits = isinstance(pad, (int, float)) and (d.is_float or (type(pad) is int and buffer.dtype.min <= pad <= buffer.dtype.max))
    if d is bool_:  # 3 would be stored as True, and be written down as 3
        fits = type(pad) in (bool, int) and pad in (0, 1)
    if not fits:
        raise _refused(f"{what}: {pad!r} is no value of {buffer.dtype}", func, buffer)


class Relayout(Mover):
    """Every access to `old` becomes one to `new`; `place` maps the indices of an element in one to those in the other."""

    __slots__ = ("indices", "new", "old")

    def __init__(self, moved: dict[Stmt, Stmt], old: Buffer, new: Buffer, place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]) -> None:
        super().__init__(moved)
        self.old, self.new, self.indices = old, new, place
        self.loads = self.place

    def place(self, e: Load) -> Load:
        """Where the element of a load is now."""
        return Load(self.new, self.indices(e.indices)) if e.buffer is self.old else e

    def target(self, e: Load) -> Load:
        """Where the element of a write is now."""
        return self.place(Mover.target(self, e))

    def stmt(self, s: Stmt) -> Stmt:
        """`s` over the new buffer; regions that were written down are derived again."""
        if isinstance(s, Alloc):
            return s.with_(buffer=self.new) if s.buffer is self.old else s
        new = Mover.stmt(self, s)
        if isinstance(new, Block) and any(r.buffer is self.old for r in (*(new.reads or ()), *(new.writes or ()))):
            new = new.with_(reads=None, writes=None)
            self.moved[s] = new
        return new


def _filled(func: Func, body: Stmt, buffer: Buffer, layout: Layout, pad: Number, edit: Edit) -> tuple[Stmt, Block]:
    """The body with a block before all others that stores the padding: where a buffer begins to live, or first of all."""
    loops = [For(Var(f"{buffer.name}_{d}"), zero(), e, "serial", Seq(())) for d, e in enumerate(buffer.shape)]
    iters = tuple(Iter(Var(f"v{x.var.name}"), "S", x.var) for x in loops)
    facts = base_facts(func)
    for i, x in zip(iters, loops, strict=True):
        facts = facts.with_range(i.var, x.start, x.stop - 1)
    place: tuple[Expr, ...] = tuple(i.var for i in iters)
    block = Block(
        fresh_name(f"{buffer.name}_pad", block_names(func)),
        iters,
        Store(buffer, place, Const(pad, loaded_dtype(buffer.dtype))),
        predicate=Not(layout.is_element(place, facts)),
    )
    nest: Stmt = block
    for x in reversed(loops):
        nest = x.with_(body=nest)
    alloc = next((s for s in walk_stmts(body) if isinstance(s, Alloc) and s.buffer is buffer), None)
    if alloc is None:
        return seq(nest, body), block
    inner = Edit(Func("", (), body))
    inner.replace(alloc, seq(alloc, nest))
    done = inner.done()[0].body
    edit.moved.update(inner.moved)
    return done, block


def _noted(func: Func, old: Buffer, new: Buffer, map: IndexMap, pad: Number | None) -> Func:
    """The program that takes the parameter in its new layout, and says so."""
    params = tuple(Param(new, p.role) if p.value is old else p for p in func.params)
    notes = {**func.attrs.layouts, old.name: (str(map), pad)}
    return func.with_(params=params, attrs=func.attrs.with_(layouts=notes))
