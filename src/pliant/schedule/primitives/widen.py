"""widen: computes a block in a wider float dtype.

Rules use it where few operations determine the error of many: the last additions of a long sum, and what is computed from its total.
"""

from __future__ import annotations

from ...dtype import DType
from ...dtype import dtype as to_dtype
from ...loop.analysis.nests import allocation, unseen_use
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, Func, Reduce, Stmt, Store
from ...support.errors import Error
from ...sym.expr import Add, Call, Cast, Const, Div, Expr, Fma, Mul, Neg, Sub
from ..cursor import Edit, Forward, Mover
from ..errors import refuse
from ..invariants import legal
from .loops import reassociation

_COMBINERS = ("add", "fma", "mul", "min", "max")  # reductions that have a meaning in a wider dtype
_CLOSER = (Add, Sub, Mul, Div, Neg, Fma)  # operations whose result is closer to the exact one if their operands are wider


@legal
def widen(func: Func, block: Block, dtype: str = "f64", buffer: bool = True) -> tuple[Func, Forward]:
    """Compute a block in a wider float dtype, and keep its result in it; other blocks read the result rounded.

    The buffer that the block writes gets the dtype, so it must not be a parameter. Blocks that are widened too read it without rounding.
    With `buffer=False`, for a block that is one store, the buffer keeps its dtype and the stored value is rounded. Raises a ScheduleError
    if these conditions do not hold.

        t = alloc((n,), f32)
        for i, k in grid(n, 8):
            with block("t", "SR", i, k) as (vi, vk):
                with init():
                    t[vi] = 0.0
                t[vi] += a[vi, vk]
        for i_1 in range(n):
            with block("w", "S", i_1) as vi:
                w[vi] = t[vi] / 8.0

    -> `s.widen("t", "f64")`

        t = alloc((n,), f64)
        for i, k in grid(n, 8):
            with block("t", "SR", i, k) as (vi, vk):
                with init():
                    t[vi] = 0.0
                t[vi] += cast(f64, a[vi, vk])
        for i_1 in range(n):
            with block("w", "S", i_1) as vi:
                w[vi] = cast(f32, t[vi]) / 8.0
    """
    what = f"cannot widen block `{block.name}`"
    body = block.body
    if isinstance(body, Store) and block.init is None:
        target = body.buffer
    elif isinstance(body, Reduce) and len(body.targets) == 1 and body.combiner.name in _COMBINERS:
        target = body.targets[0].buffer
        reassociation(func, block)  # raises if the block is annotated reassociate=False
    else:
        raise refuse(f"{what}: it is neither one store nor a sum, product, minimum or maximum", func, (block, "this block"))
    wide = _wider(func, block, target, dtype, what)
    edit = Edit(func)
    if not buffer:
        if not isinstance(body, Store):
            raise refuse(f"{what} and round each time: it is a reduction, which holds its sum in its buffer", func, (block, "this block"))
        new: Stmt = block.with_(body=body.with_(value=Cast(target.dtype, widened(body.value, wide))))
        edit.replace(block, new)
        edit.move(block, new)
    else:
        held = allocation(func, target) is not None
        unseen = unseen_use(func, func.body, target) if held else f"its result `{target.name}` is a parameter of the program"
        if unseen:
            help = "" if held else "buffer=False rounds what a block stores" if isinstance(body, Store) else "cache_write gives it a buffer"
            raise refuse(f"{what}: {unseen}", func, (block, f"writes {target!r}"), help=help)
        held_wide = Buffer(target.name, wide, target.shape, target.strides, target.scope)
        edit.replaced[func.body] = _Wide(edit, block, target, held_wide).stmt(func.body)
    return edit.done(rounding=f"block `{block.name}` computes in {wide}")


def _wider(func: Func, block: Block, target: Buffer, dtype: str, what: str) -> DType:
    """Return `dtype` as a DType; raise if it is not a float that is wider than the buffer's."""
    try:
        wide = to_dtype(dtype)
    except Error as error:
        raise refuse(f"{what}: {error.what}", func, (block, f"writes {target!r}"), facts=error.facts) from None
    narrow = target.dtype
    if not (wide.is_float and narrow.is_float and wide.bits > narrow.bits) or wide.storage or narrow.storage:
        raise refuse(f"{what}: {wide} is no wider float than {narrow}", func, (block, f"writes {target!r}"))
    return wide


def widened(e: Expr, wide: DType) -> Expr:
    """Return a float expression computed in a wider dtype, without rounding values that were wide before.

    Functions other than the square root stay in their own dtype: each is defined for one dtype, and its error exceeds a rounding.
    """
    if e.dtype is wide:
        return e
    if isinstance(e, Const):
        return Const(e.value, wide)
    if isinstance(e, Cast) and (e.args[0].dtype is wide or not e.args[0].dtype.is_float):
        return e.args[0] if e.args[0].dtype is wide else Cast(wide, e.args[0])
    if isinstance(e, Call) and e.fn in ("sqrt", "abs"):
        return Call(e.fn, widened(e.args[0], wide))
    if isinstance(e, Div) and isinstance(e.args[1], Cast) and e.args[1].args[0].dtype.is_int:
        # A mean: the reciprocal of the size is hoisted and computed once for all sums. Its extra rounding in the wider dtype is far below
        # the final rounding to the narrow one.
        return Mul(widened(e.args[0], wide), Div(Const(1.0, wide), widened(e.args[1], wide)))
    return type(e)(*(widened(a, wide) for a in e.args)) if isinstance(e, _CLOSER) else Cast(wide, e)


def _held(e: Expr, wide: DType) -> Expr:
    """Return a value, computed in its own dtype, as a wide one; undo a rounding just before."""
    if isinstance(e, Const):
        return Const(e.value, wide)
    return e.args[0] if isinstance(e, Cast) and e.args[0].dtype is wide else Cast(wide, e)


class _Wide(Mover):
    """Rewrites a program to keep a buffer in a wider dtype: `block` computes in it, other blocks store casts and load rounded values."""

    __slots__ = ("block", "buffer")

    def __init__(self, edit: Edit, block: Block, target: Buffer, buffer: Buffer) -> None:
        super().__init__(edit.moved, buffers={target: buffer})
        self.loads = lambda e: Cast(target.dtype, e) if e.buffer is buffer else None
        self.block, self.buffer = block, buffer

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, Cast) and e.dtype is self.buffer.dtype and isinstance(e.args[0], Load):
            return _held(self.expr(e.args[0]), e.dtype)  # the cast of a block widened earlier: it now reads without rounding
        return super()._leaf(e)

    def stmt(self, s: Stmt) -> Stmt:
        """Return `s` with the buffer in the wider dtype: stores compute in that dtype or cast to it, loads round."""
        new = super().stmt(s)
        in_wide = widened if s is self.block.body else _held
        wide = self.buffer.dtype
        if isinstance(new, Store) and new.buffer is self.buffer:
            new = new.with_(value=in_wide(new.value, wide))
        elif isinstance(new, Reduce) and new.targets[0].buffer is self.buffer:
            new = new.with_(values=tuple(in_wide(v, wide) for v in new.values))
        self.moved[s] = new
        return new
