"""Tensor creation: Constant, ConstantOfShape, Range, EyeLike, OneHot, window functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtype import dtype, f32, i64
from ....sym.expr import Cast, Const, Expr
from ..emit import ops
from ..inputs import dense
from ..items import Known, numbers
from ..node_context import NodeContext
from ..registry import rule


@rule("Constant")
def constant(site: NodeContext) -> Any:
    """Imports Constant: a literal tensor, from the one attribute that holds its value; raises UnsupportedError for strings."""
    attributes = [name for name in site.attributes if name != "name"]
    site.require(len(attributes) == 1, f"it has {len(attributes)} values")
    name = attributes[0]
    if name == "value":
        array = site.array("value")
        assert array is not None
        return numbers(array, site.label)
    if name == "sparse_value":
        return numbers(dense(site.attributes[name].sparse_tensor, f"{site}", site.importer.model.folder))
    if name in ("value_int", "value_ints"):
        return numbers(np.asarray(site.integer(name, 0) if name == "value_int" else site.ints(name, []), np.int64))
    if name in ("value_float", "value_floats"):
        return numbers(np.asarray(site.real(name, 0.0) if name == "value_float" else site.floats(name, []), np.float32))
    raise site.unsupported("texts are not supported")


@rule("ConstantOfShape")
def constant_of_shape(site: NodeContext) -> Any:
    """Imports ConstantOfShape: a tensor filled with one number; a literal if the shape is constant."""
    value = site.array("value")
    of = f32 if value is None else dtype(value.dtype)
    site.require(value is None or value.size == 1, 'attribute "value" has one element')
    number = 0 if value is None else value.reshape(-1)[0].item()
    shape = site.dims(0)
    site.require(all(isinstance(n, Expr) or n >= 0 for n in shape), f"the shape {shape}")
    fixed = all(isinstance(n, int) for n in shape)
    if fixed and int(np.prod(shape, dtype=np.float64)) <= 1024:
        return Known(np.full(shape, number, of.numpy()), of)
    if fixed and of.is_float:  # may be a weight, which layout passes need as a literal; the broadcast view takes no memory
        return numbers(np.broadcast_to(of.numpy().type(number), shape), site.label)
    return ops.full(shape, number, of)


@rule("Range")
def range_(site: NodeContext) -> Any:
    """Imports Range: start, start + delta, … up to the limit (exclusive)."""
    of = site.dtype(0)
    ends = [_end(site, k) for k in range(3)]
    site.require(isinstance(ends[2], Expr) or ends[2] != 0, "delta is 0")
    if all(not isinstance(e, Expr) for e in ends) and abs((ends[1] - ends[0]) / ends[2]) <= 1024:
        count = max(int(np.ceil((ends[1] - ends[0]) / ends[2])), 0)
        return numbers((ends[0] + np.arange(count) * ends[2]).astype(of.numpy()))
    whole = [int(e) if isinstance(e, float) and e == int(e) else e for e in ends]
    return ops.arange(*(whole if any(isinstance(e, Expr) for e in ends) else ends), dtype=of)


def _end(site: NodeContext, k: int) -> Any:
    """Returns input `k` of Range as a number or an i64 expression, without casts of it.

    Raises NeededError if it is a value known only at run time, ModelFileError if it has not one element, UnsupportedError for an expression
    of another dtype.
    """
    item = site.item(k)
    if not isinstance(item, Known):
        raise site.importer.needed(site, k)
    site.require(item.array.size == 1, f"input {k} has {item.array.size} elements, one is expected")
    e = item.array.reshape(-1)[0]
    if isinstance(e, Expr):
        while isinstance(e, Cast) and e.args[0].dtype.is_int:  # a dim that was cast, for instance to f32
            e = e.args[0]
        if e.dtype is not i64:
            raise site.unsupported(f"a bound that is {e.dtype} and known only at run time is not supported")
        return e
    return e.item() if isinstance(e, np.generic) else e


@rule("EyeLike")
def eye_like(site: NodeContext) -> Any:
    """Imports EyeLike: a matrix with ones on a diagonal."""
    shape = site.shape(0)
    site.require(len(shape) == 2, f"the operand has {len(shape)} dims, 2 are expected")
    return ops.eye(shape[0], shape[1], site.integer("k", 0), site.dtype_attribute("dtype", site.dtype(0)))


@rule("OneHot")
def one_hot(site: NodeContext) -> Any:
    """Imports OneHot: one-hot encoding along a new axis, with given on and off values."""
    depth = site.dims(1)[0] if isinstance(site.item(1), Known) and site.dtype(1).is_int else int(site.number(1))
    off, on = site.known(2).reshape(-1)
    of = site.dtype(2)
    x: Any = site.x(0)
    x = x if site.dtype(0).is_int else ops.cast(x, i64)
    axis = site.normal(site.integer("axis", -1), site.rank(0) + 1)
    return ops.one_hot(x, depth, axis, on=Const(on.item(), of), off=Const(off.item(), of))


@rule("HannWindow", "HammingWindow", "BlackmanWindow")
def window(site: NodeContext) -> Any:
    """Imports HannWindow, HammingWindow and BlackmanWindow as literals."""
    of = site.dtype_attribute("output_datatype", f32)
    size = int(site.number(0))
    steps = size if site.integer("periodic", 1) else size - 1
    site.require(0 <= size <= 1 << 24, f"a window of {size} elements")
    turn = 2 * np.pi * np.arange(size) / max(steps, 1)
    parts = {
        "HannWindow": lambda: 0.5 - 0.5 * np.cos(turn),
        "HammingWindow": lambda: 25 / 46 - 21 / 46 * np.cos(turn),
        "BlackmanWindow": lambda: 0.42 - 0.5 * np.cos(turn) + 0.08 * np.cos(2 * turn),
    }
    return Known(parts[site.op]().astype(of.numpy()), of)


@rule("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
def random(site: NodeContext) -> Any:
    """Raises UnsupportedError: random operators have no defined results, so they are not supported."""
    raise site.unsupported("random numbers, whose values the standard leaves open, are not supported")
