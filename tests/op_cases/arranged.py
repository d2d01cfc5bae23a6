"""Cases of tensors made of places, of elements repeated and moved, and of functions made of such operators."""

from __future__ import annotations

from pliant import ops
from pliant.dtype import bool_, f16, f32, i32, i64, u8

from .case import Case

MATRIX = ("n", "m")
CUBE = ("n", "m", "k")


def dim(x: object, axis: int = 0) -> object:
    """A dim of a value."""
    return x.tensor.shape[axis]  # type: ignore[attr-defined]


CASES: dict[str, Case] = {
    "arange": Case(lambda x: ops.arange(dim(x)), (("n",),)),
    "arange_ends": Case(lambda x: ops.arange(1, dim(x), 2), (("m",),)),
    "arange_down": Case(lambda x: ops.arange(dim(x), -1, -2, dtype=i32), (("m",),)),
    "arange_float": Case(lambda x: ops.add(x, ops.arange(0.0, 1.0, 0.25)), ((4,),)),
    "arange_f16": Case(lambda x: ops.arange(dim(x), dtype=f16), (("m",),)),
    "arange_empty": Case(lambda x: ops.arange(3, dim(x)), (("zero",),)),
    "linspace": Case(lambda x: ops.linspace(-1, 2, dim(x)), (("m",),)),
    "linspace_one": Case(lambda x: ops.linspace(5, 2, dim(x), dtype="f64"), (("one",),)),
    "linspace_two": Case(lambda x: ops.mul(x, ops.linspace(0.1, 0.7, 2)), ((2,),)),
    "eye": Case(lambda x: ops.matmul(x, ops.eye(dim(x, 1))), (MATRIX,)),
    "eye_above": Case(lambda x: ops.eye(dim(x), dim(x, 1), 1, dtype=i32), (MATRIX,)),
    "eye_dim": Case(lambda x: ops.eye(4, 6, dim(x), dtype=bool_), (("n",),)),
    "tril": Case(ops.tril, (CUBE,)),
    "tril_above": Case(lambda x: ops.tril(x, 1), (MATRIX,), (i32,), -9, 9),
    "triu": Case(lambda x: ops.triu(x, -1), (MATRIX,), (f16,)),
    "triu_dim": Case(lambda x: ops.triu(x, dim(x, 1) - dim(x)), (MATRIX,)),
    "one_hot": Case(lambda x: ops.one_hot(x, 5), (MATRIX,), (i64,), -7, 9),
    "one_hot_first": Case(lambda x: ops.one_hot(x, 4, axis=0, on=3, off=-1, dtype=i32), (MATRIX,), (u8,), 0, 6),
    "one_hot_dim": Case(lambda x, y: ops.one_hot(x, dim(y), axis=1, on=2.5), (MATRIX, ("k",)), (i32, f32), 0, 5),
    "full_like": Case(lambda x: ops.full_like(x, 3), (MATRIX,), (u8,), 0, 9),
    "zeros": Case(lambda x: ops.add(x, ops.zeros(x.tensor.shape)), (MATRIX,)),
    "ones": Case(lambda x: ops.ones([dim(x), 2], dtype="f64"), (MATRIX,)),
    "expand": Case(lambda x, y: ops.expand(x, [dim(y), -1, dim(y, 1)]), (("n", 1), ("k", "m"))),
    "expand_symbol": Case(lambda x, y: ops.expand(x, y.tensor.shape), (("one", "m"), MATRIX)),
    "expand_number": Case(lambda x: ops.expand(x, [2, 3]), ((),), (i32,), -9, 9),
    "tile": Case(lambda x: ops.tile(x, [2, 3]), (MATRIX,)),
    "tile_new_axis": Case(lambda x: ops.tile(x, [2, 1, 2]), (MATRIX,), (u8,), 0, 9),
    "tile_fewer": Case(lambda x: ops.tile(x, 3), (MATRIX,)),
    "tile_dim": Case(lambda x, y: ops.tile(x, [1, dim(y)]), (MATRIX, ("k",))),
    "tile_never": Case(lambda x: ops.tile(x, [1, 0]), (MATRIX,)),
    "repeat_interleave": Case(lambda x: ops.repeat_interleave(x, 3, axis=1), (CUBE,)),
    "repeat_never": Case(lambda x: ops.repeat_interleave(x, 0), (MATRIX,)),
    "flip": Case(lambda x: ops.flip(x, 1), (CUBE,)),
    "flip_all": Case(ops.flip, (MATRIX,), (i32,), -9, 9),
    "roll": Case(lambda x: ops.roll(x, 2), (MATRIX,)),
    "roll_axes": Case(lambda x: ops.roll(x, (-1, 7), (0, 2)), (CUBE,)),
    "roll_dim": Case(lambda x, y: ops.roll(x, dim(y), 0), (MATRIX, ("k",))),
    "roll_empty": Case(lambda x: ops.roll(x, 1, 0), (("zero", "m"),)),
    "unsqueeze": Case(lambda x: ops.unsqueeze(x, (0, -1)), (MATRIX,)),
    "squeeze": Case(ops.squeeze, (("n", 1, "m", 1),)),
    "squeeze_symbol": Case(lambda x: ops.squeeze(x, 0), (("one", "m"),)),
    "flatten": Case(lambda x: ops.flatten(x, 1), (CUBE,)),
    "flatten_number": Case(ops.flatten, ((),)),
    "stack": Case(lambda x, y: ops.stack([x, y, x], axis=1), (MATRIX, MATRIX)),
    "split": Case(lambda x: ops.split(x, 3, axis=1), (("n", 6),)),
    "split_symbol": Case(lambda x: ops.split(x, 2, axis=0), (("k", "m"),)),
    "split_sizes": Case(lambda x: ops.split(x, [1, 0, 3], axis=-1), (("n", 4),), (i32,), -9, 9),
    "chunk": Case(lambda x: ops.chunk(x, 3, axis=1), (("n", 7),)),
    "unbind": Case(lambda x: ops.unbind(x, axis=1), (("n", 2, "m"),)),
    "depth_to_space": Case(lambda x: ops.depth_to_space(x, 2), (("b", 8, "n", "m"),)),
    "pixel_shuffle": Case(lambda x: ops.pixel_shuffle(x, 2), (("b", "c", "n", "m"),)),
    "space_to_depth": Case(lambda x: ops.space_to_depth(x, 2), (("b", 3, "k", 6),)),
}
