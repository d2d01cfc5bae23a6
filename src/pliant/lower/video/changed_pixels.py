"""Loop programs about which pixels change: from the masks of the images that a program reads to the mask of the image that it computes.

A mask has a byte for each pixel: 1 if some channel of it has changed. The mask program is the program itself with each element replaced by
the mask of its pixel, and each operation by the maximum of its operands:

    y[c, i, j] += x[k, i * 2 + a, j * 2 + b] * w[c, k, a, b]    ->    changed[i, j] = max(changed[i, j], mask[i * 2 + a, j * 2 + b])

So windows, strides, dilations, borders and resizing are those of the program, whatever operator it came from.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...dtype import i64, u8
from ...loop.buffer import Buffer, Load, has_load
from ...loop.stmt import NAMED_COMBINERS, Alloc, Block, For, Func, Iter, Param, Reduce, Stmt, Store, seq
from ...sym.expr import Const, Expr, Max, Select, Var, free_vars, substitute
from ...sym.prove import prove_equal
from ...sym.simplify import simplify
from .pixels import Rows, Stage

NOTHING = Const(0, u8)


def mask_shape(b: Buffer, rows: int) -> tuple[Expr, Expr]:
    """Returns the extents of an image: those of its mask."""
    return b.shape[rows], b.shape[rows + 1]


def changed_pixels(func: Func, stages: list[Stage], rows: Rows, inputs: Rows) -> Func | Buffer:
    """Returns the program from masks of the inputs, in the order of the parameters, to the mask of the one output.

    If the mask is always that of an input, returns this input.
    """
    given = {b: Buffer(b.name, u8, mask_shape(b, rows[b])) for b in func.buffers if b in inputs}
    masks = dict(given)
    output = next(b for b in func.buffers if func.role(b) == "out")
    body: list[Stmt] = []
    written = [s.target.buffer for s in stages]
    for stage in stages:
        target = stage.target.buffer
        value = _value(stage, masks, rows)
        same = _copied(value, stage, masks, rows)
        if written.count(target) == 1 and same is not None and (target is not output or same in given.values()):
            masks[target] = same
            continue
        if target not in masks:
            shape = mask_shape(target, rows[target])
            masks[target] = Buffer(target.name, u8, shape) if target is output else Buffer(target.name, u8, shape, scope="workspace")
            if target is not output:
                body.append(Alloc(masks[target]))
        body.append(_nest(value, stage, masks, rows))
    for b, mask in given.items():
        if masks[output] is mask:
            return b
    return Func(f"{func.name}_changed", (*map(Param, given.values()), Param(masks[output], "out")), seq(*body))


def _value(stage: Stage, masks: Mapping[Buffer, Buffer], rows: Rows) -> Expr:
    """Returns whether an instance of a stage may write another value than before, as an expression over masks."""
    value: Expr = NOTHING
    for e in stage.values:
        value = _or(value, _mask(e, stage, masks, rows, frozenset(stage.pixel(rows))))
    # The window of a 1x1 convolution has one pixel: it is no loop.
    single: dict[Var, Expr] = {v: x.start for v, x in stage.loops.items() if isinstance(x.stop, Const) and x.stop.value == 1}
    return simplify(substitute(value, {v: e for v, e in single.items() if v not in stage.pixel(rows)}))


def _copied(value: Expr, stage: Stage, masks: Mapping[Buffer, Buffer], rows: Rows) -> Buffer | None:
    """Returns the mask that a value is, pixel by pixel; None if it is something else."""
    if isinstance(value, Load) and value.indices == stage.pixel(rows):
        target = stage.target.buffer
        if all(prove_equal(a, b) for a, b in zip(value.buffer.shape, mask_shape(target, rows[target]), strict=True)):
            return value.buffer
    return None


def _nest(value: Expr, stage: Stage, masks: Mapping[Buffer, Buffer], rows: Rows) -> Stmt:
    """Returns the loop nest that computes the mask of a stage's target: a maximum over the window that a pixel depends on."""
    row, column = stage.pixel(rows)
    used = free_vars(value)
    kinds = {row: "S", column: "S"}
    iterators = [i.var for i in stage.block.iters if i.var in kinds or i.var in used]
    fresh = {v: Var(v.name, i64) for v in iterators}
    names: dict[Var, Expr] = dict(fresh)
    target = Load(masks[stage.target.buffer], (fresh[row], fresh[column]))
    loops = {v: Var(stage.loops[v].var.name, i64) for v in iterators}
    iters = tuple(Iter(fresh[v], "S" if v in kinds else "R", loops[v]) for v in iterators)
    value = substitute(value, names)
    clear = Store(target.buffer, target.indices, NOTHING)
    whole = all(v in kinds for v in iterators)
    body: Stmt = Store(target.buffer, target.indices, value) if whole else Reduce(NAMED_COMBINERS["max"], (target,), (value,))
    nest: Stmt = Block(stage.block.name, iters, body, None if whole else clear)
    for v in reversed([row, column, *(v for v in iterators if v not in kinds)]):
        nest = For(loops[v], Const(0, i64), stage.loops[v].stop, "serial", nest)
    return nest


def _mask(e: Expr, stage: Stage, masks: Mapping[Buffer, Buffer], rows: Rows, pixel: frozenset[Var]) -> Expr:
    """Returns whether the value of an expression may have changed, as an expression over masks."""
    if not has_load(e) or e is stage.target:
        return NOTHING
    if isinstance(e, Load):
        inner: Expr = NOTHING
        for i in e.indices:
            inner = _or(inner, _mask(i, stage, masks, rows, pixel))
        if e.buffer not in masks:
            return inner
        r = rows[e.buffer]
        return _or(inner, Load(masks[e.buffer], e.indices[r : r + 2]))
    if isinstance(e, Select) and not has_load(e.args[0]):
        # A condition over pixels and windows tells which arm is read. One over channels differs inside of a pixel, which may read both.
        channels = {i.var for i in stage.block.iters if i.kind == "S"} - pixel
        if channels.isdisjoint(free_vars(e.args[0])):
            then, orelse = (_mask(a, stage, masks, rows, pixel) for a in e.args[1:])
            return NOTHING if then is orelse is NOTHING else Select(e.args[0], then, orelse)
    total: Expr = NOTHING
    for a in e.args:
        total = _or(total, _mask(a, stage, masks, rows, pixel))
    return total


def _or(a: Expr, b: Expr) -> Expr:
    return b if a is NOTHING or a is b else a if b is NOTHING else Max(a, b)
