"""transform_layout: changes the memory layout of a tensor by an index map (packing, NCHWc, blocked layouts).

The layout of a buffer is an index map (`sym/index_map.py`). For a parameter, the program's attribute `layouts` records the map from the
caller's tensor to what the program takes, and the value in the padding (None: anything, nobody reads it):
`{"b": ("lambda k, n: (n // 16, k, n % 16)", 0.0)}`. `layouts_of` reads it for the code that packs the operand.
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
    """How a parameter's memory is made from the caller's tensor: by an index map, with `pad` in the padding (None: anything)."""

    map: IndexMap
    pad: Number | None


def layouts_of(func: Func) -> dict[str, Packing]:
    """Return, by name, the parameters whose layout `transform_layout` changed, with their index maps and padding values."""
    return {name: Packing(index_map(text), pad) for name, (text, pad) in func.attrs.layouts.items()}


@legal
def transform_layout(
    func: Func, buffer: str, index_map: IndexMap, pad_value: Number | None = None, block: Block | None = None
) -> tuple[Func, Forward]:
    """Change the memory layout of a buffer by an index map, and rewrite every access. A parameter is then expected in that layout.

    An extent that is no multiple of what it is divided by is rounded up. `pad_value` is the value in the padding: for an allocated buffer
    or an output it is stored there; for an input it is expected. Without it nobody writes or reads the padding. `block` selects the buffer
    that it uses if several have that name. Raises a ScheduleError if the map cannot be inverted, or if a parameter's layout would depend on
    symbols.

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
    if alloc is None and index_map.sizes:  # an operand is packed before a call, when dynamic sizes are not known yet
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
        raise _refused(f"{what}: its padding holds {before.pad} already, it cannot hold {pad} as well", func, old)
    if pad_value is not None:
        check_number(func, old, pad_value, what)
        if alloc is None and not math.isfinite(pad_value):
            raise _refused(f"{what}: {pad_value!r} cannot be recorded as the padding that a caller provides", func, old)
    new = Buffer(old.name, old.dtype, layout.shape, None, old.scope)
    edit = Edit(func)
    body = Relayout(edit.moved, old, new, layout.map.apply).stmt(func.body)
    simplifier = Simplifier((new,))
    body = simplifier.stmt(body, base_facts(func))
    edit.moved.update(simplifier.moved)
    fills: tuple[Block, ...] = ()
    role = "" if alloc is not None else func.role(old)
    if pad is not None and role != "in":
        body, fill = _filled(func, body, new, layout, pad, edit)
        fills = (fill,)
    edit.replace(func.body, body)
    result, forward = edit.done(made=fills)
    if alloc is None:
        result = _noted(
            result, old, new, layout.map if before is None else before.map.then(layout.map), pad if before is None else before.pad
        )
    return result, forward


def buffer_named(func: Func, name: str, block: Block | None, what: str) -> Buffer:
    """Return the only buffer of that name (that a block uses); raise if there is none, or more than one."""
    known = [*func.buffers, *index(func.body).allocations]
    if block is not None:
        used = {a.buffer for a in accesses(block)}
        known = [b for b in known if b in used]
    named = [b for b in known if b.name == name]
    if len(named) == 1:
        return named[0]
    listed = ", ".join(f"`{b.name}`" for b in known) or "none"
    if named:
        places = [(s, f"{s.buffer!r}") for s in walk_stmts(func.body) if isinstance(s, Alloc) and s.buffer in named]
        raise refuse(
            f"{what}: {len(named)} buffers have that name", func, *places, help='say which one by a block that uses it: block="name"'
        )
    by = f"block `{block.name}` uses" if block is not None else "the program has"
    at = [] if block is None else [(block, "this block")]
    raise refuse(f"{what}: there is no such buffer", func, *at, facts=[f"{by} {listed}"])


def _refused(text: str, func: Func, buffer: Buffer, facts: tuple[str, ...] = (), help: str = "") -> Refusal:
    """Return an error about a buffer that shows the blocks that use it."""
    users = [b for b in index(func.body).blocks.values() if any(a.buffer is buffer for a in accesses(b))]
    return refuse(text, func, *((b, f"uses {buffer!r}") for b in users), facts=[f"it is {buffer!r}", *facts], help=help)


def _check_uses(func: Func, buffer: Buffer, layout: Layout, facts: Facts, what: str) -> None:
    """Raise if a view, a call or explicit strides depend on the present layout, or if rows of sub-byte elements would share a byte."""
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
    """Raise if `pad` is no value of a buffer's dtype."""
    d: DType = loaded_dtype(buffer.dtype)
    fits = isinstance(pad, (int, float)) and (d.is_float or (type(pad) is int and buffer.dtype.min <= pad <= buffer.dtype.max))
    if d is bool_:  # 3 would be stored as True, but recorded in the layout as 3
        fits = type(pad) in (bool, int) and pad in (0, 1)
    if not fits:
        raise _refused(f"{what}: {pad!r} is no value of {buffer.dtype}", func, buffer)


class Relayout(Mover):
    """Redirects every access to `old` to `new`; `place` maps the indices of an element in one to those in the other."""

    __slots__ = ("indices", "new", "old")

    def __init__(self, moved: dict[Stmt, Stmt], old: Buffer, new: Buffer, place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]) -> None:
        super().__init__(moved)
        self.old, self.new, self.indices = old, new, place
        self.loads = self.place

    def place(self, e: Load) -> Load:
        """Return the load of the same element in the new buffer; loads of other buffers are returned unchanged."""
        return Load(self.new, self.indices(e.indices)) if e.buffer is self.old else e

    def target(self, e: Load) -> Load:
        """Return the element that a store writes: one of the old buffer in the new buffer, others in their own."""
        return self.place(Mover.target(self, e))

    def stmt(self, s: Stmt) -> Stmt:
        """Return `s` over the new buffer; declared regions of the old one are dropped and derived again."""
        if isinstance(s, Alloc):
            return s.with_(buffer=self.new) if s.buffer is self.old else s
        new = Mover.stmt(self, s)
        if isinstance(new, Block) and any(r.buffer is self.old for r in (*(new.reads or ()), *(new.writes or ()))):
            new = new.with_(reads=None, writes=None)
            self.moved[s] = new
        return new


def _filled(func: Func, body: Stmt, buffer: Buffer, layout: Layout, pad: Number, edit: Edit) -> tuple[Stmt, Block]:
    """Return the body with a block that stores the padding, and that block.

    It is after the buffer's allocation, or at the beginning of the program if the buffer is a parameter.
    """
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
    """Return the program that takes the parameter in its new layout, with the attribute that records it."""
    params = tuple(Param(new, p.role) if p.value is old else p for p in func.params)
    notes = {**func.attrs.layouts, old.name: (str(map), pad)}
    return func.with_(params=params, attrs=func.attrs.with_(layouts=notes))
