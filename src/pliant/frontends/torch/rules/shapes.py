"""Reshapes, permutations, slices, concatenation, padding and repetition."""

from __future__ import annotations

from typing import Any

from ....sym.expr import Expr, Lt, Max, Min, Select, const
from ..emit import ops
from ..registry import rule
from ..site import Site, dtype_in, normal, rank, shape
from ..symbols import plain, wide

LARGEST = (1 << 62) - 1  # ends of slices from here on stand for the end of the axis


@rule("aten.view", "aten.reshape", "aten._unsafe_view", "aten._reshape_copy")
def view(site: Site, self: Any, size: Any = None, shape: Any = None, dtype: Any = None) -> Any:
    """Imports reshapes to a size, and `view` as another dtype, which keeps the bits."""
    if dtype is not None:
        return ops.bit_cast(self, site.dtype())
    wanted = size if size is not None else shape
    return ops.reshape(self, tuple(wanted))


@rule("aten.flatten")
def flatten(site: Site, self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Imports flatten: the dims from `start_dim` to `end_dim`, by default all, become one."""
    return ops.flatten(self, start_dim, end_dim)


@rule("aten.permute", "aten.transpose", "aten.t", "aten.movedim", "aten.swapaxes")
def permute(site: Site, self: Any, dims: Any = None, dim0: Any = None, dim1: Any = None) -> Any:
    """Imports permutations of axes: permute by a list, transpose and swapaxes of two axes, and t, which swaps the only two."""
    n = rank(self)
    if dims is not None:
        return ops.permute(self, [normal(a, n) for a in dims]) if n else self
    if n < 2:
        return self
    order = list(range(n))
    a, b = (0, 1) if dim0 is None else (normal(dim0, n), normal(dim1, n))
    order[a], order[b] = order[b], order[a]
    return ops.permute(self, order)


@rule("aten.unsqueeze")
def unsqueeze(site: Site, self: Any, dim: int) -> Any:
    """Imports unsqueeze: a new dim of 1; a negative axis counts from the end of the result."""
    return ops.unsqueeze(self, dim + rank(self) + 1 if dim < 0 else dim)


@rule("aten.squeeze")
def squeeze(site: Site, self: Any, dim: Any = None) -> Any:
    """Imports squeeze of all axes or of some: dims that are known to be 1 go.

    One that may be 1 at run time stays, and the program then checks that it is more. Raises UnsupportedError for a dim that is 1 for torch,
    but not known to be here.
    """
    n = rank(self)
    wanted = range(n) if dim is None else [normal(a, n) for a in (dim if isinstance(dim, list | tuple) else [dim])]
    gone = [a for a in wanted if a < n and not isinstance(shape(self)[a], Expr) and shape(self)[a] == 1]
    fake = site.fakes["self"].shape
    if any(type(fake[a]) is int and fake[a] == 1 and a not in gone for a in wanted if a < n):
        raise site.unsupported("a dim that torch knows to be 1 is not known to be 1 here")
    open_ = [shape(self)[a] for a in wanted if a < n and isinstance(shape(self)[a], Expr)]
    for size in open_:
        site.importer.builder.require(Lt(const(1), wide(size)), "a squeezed dim is more than 1, as it was at the export", (), "")
    if open_:
        self = site.importer.builder.match_cast(self, self.annotation)
    return ops.squeeze(self, gone) if gone else self


@rule("aten.expand", "aten.broadcast_to")
def expand(site: Site, self: Any, size: Any) -> Any:
    """Imports expand; -1 keeps a dim."""
    return ops.expand(self, tuple(size))


@rule("aten.cat", "aten.concat")
def cat(site: Site, tensors: Any, dim: int = 0) -> Any:
    """Imports cat along an axis, in the promoted dtype; legacy operands of one dim without elements do not count."""
    of = site.dtype()
    dims = max(rank(t) for t in tensors)
    counted = [site.cast(t, of) for t in tensors if rank(t) == dims and not (dims > 1 and shape(t) == (0,))]
    return counted[0] if len(counted) == 1 else ops.concat(counted, axis=normal(dim, dims))


@rule("aten.stack")
def stack(site: Site, tensors: Any, dim: int = 0) -> Any:
    """Imports stack: tensors of one shape joined along a new axis, in the promoted dtype."""
    of = site.dtype()
    return ops.stack([site.cast(t, of) for t in tensors], normal(dim, rank(tensors[0]) + 1))


def bound(value: Any, extent: Any, default: Any) -> Any:
    """Returns a bound of a slice counted from the start and clamped to 0..extent, as Python does.

    The default stands for None and for very large integers. A bound that is an expression may turn out to be negative.
    """
    if value is None or (isinstance(value, int) and value >= LARGEST):
        return default
    if isinstance(value, int) and isinstance(extent, int):
        return min(max(value + extent if value < 0 else value, 0), extent)
    if isinstance(value, int) and value < 0:
        return plain(Max(wide(0), wide(extent) + value))
    if isinstance(value, int) and value == 0:
        return 0
    at, n = wide(value), wide(extent)
    if isinstance(value, Expr):  # a size computed by the model: its sign may be known only when the program runs
        at = Select(Lt(at, wide(0)), at + n, at)
    return plain(Max(wide(0), Min(at, n)))


@rule("aten.slice")
def slice_(site: Site, self: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Imports slices along an axis; bounds are clamped to it, and an end before the start gives an empty slice."""
    axis = normal(dim, rank(self))
    n = shape(self)[axis]
    first, last = bound(start, n, 0), bound(end, n, n)
    if first == 0 and last is n and step == 1:
        return self
    if isinstance(first, int) and isinstance(last, int):
        last = max(first, last)
    elif first != 0:
        last = plain(Max(wide(first), wide(last)))
    return ops.slice(self, axis, first, last, step)


@rule("aten.narrow")
def narrow(site: Site, self: Any, dim: int, start: Any, length: Any) -> Any:
    """Imports narrow: `length` elements along an axis from `start`, which counts from the end if it is negative."""
    axis = normal(dim, rank(self))
    first = start + shape(self)[axis] if isinstance(start, int) and start < 0 else start
    return ops.slice(self, axis, first, first + length)


@rule("aten.select")
def select(site: Site, self: Any, dim: int, index: Any) -> Any:
    """Imports select: the elements at one index along an axis, which goes; a negative index counts from the end."""
    axis = normal(dim, rank(self))
    n = shape(self)[axis]
    at = plain(wide(n) + index) if isinstance(index, int) and index < 0 else index
    return ops.squeeze(ops.slice(self, axis, at, at + 1), axis)


@rule("aten.split", "aten.split_with_sizes")
def split(site: Site, self: Any, split_size: Any = None, split_sizes: Any = None, dim: int = 0) -> Any:
    """Imports split into parts of one size, the last possibly smaller, or of listed sizes; returns a list.

    If an extent is known only at run time, there are as many parts as torch counted at the example.
    """
    axis = normal(dim, rank(self))
    n = shape(self)[axis]
    sizes = split_sizes if split_sizes is not None else split_size
    if not isinstance(sizes, list | tuple):
        if not isinstance(n, int) or not isinstance(sizes, int):
            sizes = _equal_parts(site, n, sizes)
        else:
            sizes = [sizes] * (n // sizes) + ([n % sizes] if n % sizes else []) if sizes else [0]
    parts, at = [], 0
    for size in sizes:
        parts.append(ops.slice(self, axis, at, at + size))
        at = plain(at + size)
    return parts


def _equal_parts(site: Site, n: Any, size: Any) -> list[Any]:
    """Returns the sizes of the parts that torch counted at the example: all of one size but the last."""
    count = len(site.val)
    rest = plain(wide(n) - wide(size) * (count - 1))
    return [size] * (count - 1) + [rest]


@rule("aten.chunk")
def chunk(site: Site, self: Any, chunks: int, dim: int = 0) -> Any:
    """Imports chunk: a list of at most `chunks` parts of one size, the last possibly smaller."""
    axis = normal(dim, rank(self))
    n = shape(self)[axis]
    size = -(-n // chunks) if isinstance(n, int) else plain((n + (chunks - 1)) // chunks)
    return split(site, self, size, None, dim)


@rule("aten.unbind")
def unbind(site: Site, self: Any, dim: int = 0) -> Any:
    """Imports unbind: a list of the tensors at each index of an axis, which goes."""
    return list(ops.unbind(self, axis=normal(dim, rank(self))))


@rule("aten.flip")
def flip(site: Site, self: Any, dims: Any) -> Any:
    """Imports flip: the elements in reverse order along the given axes."""
    return ops.flip(self, [normal(a, rank(self)) for a in dims]) if dims and rank(self) else self


@rule("aten.roll")
def roll(site: Site, self: Any, shifts: Any, dims: Any = ()) -> Any:
    """Imports roll along axes, or, without axes, of all elements as one row."""
    moves = list(shifts) if isinstance(shifts, list | tuple) else [shifts]
    if dims:
        return ops.roll(self, moves, [normal(a, rank(self)) for a in dims])
    return ops.reshape(ops.roll(ops.reshape(self, (-1,)), moves[0], 0), self.tensor.shape)


@rule("aten.repeat", "aten.tile")
def repeat(site: Site, self: Any, repeats: Any = None, dims: Any = None) -> Any:
    """Imports repeat and tile: so many copies along each axis; missing counts at the front are 1, and missing axes are added."""
    counts = list(repeats if repeats is not None else dims)
    x = self
    counts = [1] * (rank(x) - len(counts)) + counts
    if all(isinstance(c, int) for c in counts):
        return ops.tile(x, counts) if counts else x
    if rank(x) < len(counts):
        x = ops.reshape(x, (*[1] * (len(counts) - rank(x)), *x.tensor.shape))
    both = [n for c, e in zip(counts, x.tensor.shape, strict=True) for n in (wide(c), e)]
    ones = [n for e in x.tensor.shape for n in (1, e)]
    whole = ops.expand(ops.reshape(x, tuple(ones)), tuple(both))
    return ops.reshape(whole, tuple(plain(wide(c) * e) for c, e in zip(counts, x.tensor.shape, strict=True)))


@rule("aten.repeat_interleave")
def repeat_interleave(site: Site, self: Any = None, repeats: Any = None, dim: Any = None, output_size: Any = None) -> Any:
    """Imports repeat_interleave with one count for all elements, along an axis or, without one, of all elements as one row.

    Raises UnsupportedError for a count that is no constant integer.
    """
    if not isinstance(repeats, int):
        raise site.unsupported("a number of repetitions that is computed is not supported")
    x = ops.reshape(self, (-1,)) if dim is None else self
    return ops.repeat_interleave(x, repeats, axis=0 if dim is None else normal(dim, rank(x)))


@rule("aten.constant_pad_nd", "aten.pad")
def constant_pad(site: Site, self: Any, pad: Any, value: Any = 0, mode: str = "constant") -> Any:
    """Imports padding with a constant (by default 0), by reflection, by the border or circular; negative amounts cut."""
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "circular"}
    number = 0 if value is None else value
    return padded(self, pad, names[mode], bool(number) if dtype_in(self).name == "bool" else number)


@rule("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d", "aten.replication_pad1d", "aten.replication_pad2d",
      "aten.replication_pad3d")  # fmt: skip
def border_pad(site: Site, self: Any, padding: Any) -> Any:
    """Imports reflection padding, and replication padding, which repeats the border; negative amounts cut."""
    return padded(self, padding, "reflect" if "reflection" in site.op else "edge")


def padded(x: Any, amounts: Any, mode: str, value: Any = 0) -> Any:
    """Returns `x` padded by torch's list of amounts, pairs (before, after) from the last dim on; negative amounts cut.

    `mode` is that of our operator `pad`, `value` the constant.
    """
    n = rank(x)
    pairs = [(0, 0)] * (n - len(amounts) // 2) + [(amounts[k], amounts[k + 1]) for k in range(len(amounts) - 2, -1, -2)]
    for axis, (a, b) in enumerate(pairs):
        cut = [p if isinstance(p, int) and p < 0 else 0 for p in (a, b)]
        if any(cut):
            extent = shape(x)[axis]
            x = ops.slice(x, axis, -cut[0], extent + cut[1])
            pairs[axis] = (a if not cut[0] else 0, b if not cut[1] else 0)
    if all(p == (0, 0) for p in pairs):
        return x
    return ops.pad(x, pairs, mode=mode, value=value)


@rule("aten.pixel_shuffle", "aten.pixel_unshuffle")
def pixel_shuffle(site: Site, self: Any, upscale_factor: int = 1, downscale_factor: int = 1) -> Any:
    """Imports pixel_shuffle, (…, c * r * r, h, w) to (…, c, h * r, w * r), and its inverse pixel_unshuffle."""
    *lead, c, h, w = self.tensor.shape
    axes = list(range(len(lead)))
    k = len(lead)
    if site.op == "aten.pixel_shuffle":
        r = upscale_factor
        out = plain(c // (r * r))
        split_ = ops.reshape(self, (*lead, out, r, r, h, w))
        return ops.reshape(ops.permute(split_, [*axes, k, k + 3, k + 1, k + 4, k + 2]), (*lead, out, plain(h * r), plain(w * r)))
    r = downscale_factor
    rows, columns = plain(h // r), plain(w // r)
    split_ = ops.reshape(self, (*lead, c, rows, r, columns, r))
    return ops.reshape(ops.permute(split_, [*axes, k, k + 2, k + 4, k + 1, k + 3]), (*lead, plain(c * (r * r)), rows, columns))


@rule("aten.channel_shuffle")
def channel_shuffle(site: Site, self: Any, groups: int) -> Any:
    """Imports channel_shuffle: channels in `groups` groups are interleaved, so that the first ones of all groups come first."""
    n, c, *spatial = self.tensor.shape
    split_ = ops.reshape(self, (n, groups, plain(c // groups), *spatial))
    return ops.reshape(ops.permute(split_, [0, 2, 1, *range(3, 3 + len(spatial))]), (n, c, *spatial))


@rule("aten.tril", "aten.triu")
def triangle(site: Site, self: Any, diagonal: Any = 0) -> Any:
    """Imports tril and triu: the elements on one side of a diagonal, that included, and 0 elsewhere."""
    return (ops.tril if site.op == "aten.tril" else ops.triu)(self, diagonal)


@rule("aten.unfold")
def unfold(site: Site, self: Any, dimension: int, size: int, step: int) -> Any:
    """Imports unfold: windows of `size` elements, `step` apart, along an axis; their elements become the last dim."""
    axis = normal(dimension, rank(self))
    n = wide(shape(self)[axis])
    count = plain((n - size) // step + 1)
    starts = ops.mul(ops.arange(count), step)
    places = ops.add(ops.unsqueeze(starts, 1), ops.arange(size))
    windows = ops.take(self, places, axis=axis)  # [..., count, size, ...]
    order = [k for k in range(rank(self) + 1) if k != axis + 1]
    return ops.permute(windows, [*order, axis + 1])


@rule("aten.diagonal")
def diagonal(site: Site, self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Imports diagonal of two axes, `offset` above the main one: it becomes the last dim."""
    n = rank(self)
    a, b = normal(dim1, n), normal(dim2, n)
    rows, columns = wide(shape(self)[a]), wide(shape(self)[b])
    low, right = max(-offset, 0), max(offset, 0)
    count = plain(Max(wide(0), Min(rows - low, columns - right)))
    front = ops.permute(self, [*(k for k in range(n) if k not in (a, b)), a, b])
    lead = front.tensor.shape[:-2]
    flat = ops.reshape(front, (*lead, plain(rows * columns)))
    places = ops.add(ops.mul(ops.arange(count), plain(columns + 1)), plain(columns * low + right))
    return ops.take(flat, places, axis=len(lead))


@rule("aten.as_strided")
def as_strided(site: Site, self: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """Imports as_strided of a contiguous tensor, as a gather of its elements.

    Raises UnsupportedError for an operand that torch has strided or with an offset.
    """
    fake = site.fakes["self"]
    if not fake.is_contiguous() or fake.storage_offset() != 0:  # strides count elements of the storage, which is not here
        raise site.unsupported("as_strided of a tensor that is itself strided is not supported")
    flat = ops.reshape(self, (-1,))
    places: Any = ops.full((1,) * max(len(size), 1), int(storage_offset or 0), "i64")
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        along = ops.mul(ops.arange(n), step)
        places = ops.add(places, ops.reshape(along, tuple(n if k == axis else 1 for k in range(len(size)))))
    return ops.take(flat, places if size else ops.reshape(places, ()), axis=0)
