"""Sequences and optionals. Lengths are known at import time, so programs contain only the elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..emit import ops
from ..items import Item, Known, Maybe, Sequence, numbers
from ..node_context import NodeContext
from ..registry import rule


def sequence(site: NodeContext, k: int) -> Sequence:
    """Returns input `k`, which must be a sequence; raises ModelFileError if it is none."""
    item = site.item(k)
    item = item.item if isinstance(item, Maybe) else item
    if not isinstance(item, Sequence):
        raise site.wrong(f"input {k} is no sequence")
    return item


def _place(site: NodeContext, k: int, length: int, extra: int = 0) -> int:
    """Returns input `k` as an index into a sequence, counted from the start; raises ModelFileError if it is out of range."""
    at = int(site.number(k))
    if not -length <= at < length + extra:
        raise site.wrong(f"place {at} of a sequence of {length}")
    return at + length if at < 0 else at


@rule("SequenceConstruct")
def construct(site: NodeContext) -> Any:
    """Imports SequenceConstruct: a sequence of the inputs."""
    return Sequence(tuple(site.items))


@rule("SequenceEmpty")
def empty(site: NodeContext) -> Any:
    """Imports SequenceEmpty: a sequence without tensors."""
    return Sequence(())


@rule("SequenceLength")
def length(site: NodeContext) -> Any:
    """Imports SequenceLength: the number of tensors in a sequence, a literal."""
    return numbers(np.asarray(len(sequence(site, 0).items), np.int64))


@rule("SequenceAt")
def at(site: NodeContext) -> Any:
    """Imports SequenceAt: the tensor at an index."""
    items = sequence(site, 0).items
    return items[_place(site, 1, len(items))]


@rule("SequenceInsert")
def insert(site: NodeContext) -> Any:
    """Imports SequenceInsert: inserts a tensor at an index, by default at the end."""
    items = list(sequence(site, 0).items)
    items.insert(_place(site, 2, len(items), 1) if site.has(2) else len(items), site.item(1))
    return Sequence(tuple(items))


@rule("SequenceErase")
def erase(site: NodeContext) -> Any:
    """Imports SequenceErase: removes the tensor at an index, by default the last one."""
    items = list(sequence(site, 0).items)
    site.require(bool(items), "the sequence is empty")
    del items[_place(site, 1, len(items)) if site.has(1) else -1]
    return Sequence(tuple(items))


@rule("SplitToSequence")
def split_to_sequence(site: NodeContext) -> Any:
    """Imports SplitToSequence: splits a tensor along an axis into a sequence; raises NeededError if the dim is not constant."""
    axis = site.axis("axis", site.rank(0), 0)
    n, x = site.shape(0)[axis], site.x(0)
    if not isinstance(n, int):
        raise site.needed_dim("a split into a sequence needs a dim that is known")
    if n > 4096:
        raise site.unsupported(f"a split of {n} elements into a sequence is not supported")
    if not site.has(1):
        parts = list(ops.split(x, [1] * n, axis)) if n > 1 else [x] * n
        return Sequence(tuple(parts if site.integer("keepdims", 1) else [ops.squeeze(p, axis) for p in parts]))
    split = site.known(1)
    sizes = [int(s) for s in split.reshape(-1)]
    if split.ndim == 0:
        site.require(sizes[0] > 0, f"parts of {sizes[0]} elements")
        sizes = [min(sizes[0], n - k) for k in range(0, n, sizes[0])]
    site.require(sum(sizes) == n and min(sizes, default=0) >= 0, f"parts of {sizes} of {n} elements")
    return Sequence(tuple(ops.split(x, sizes, axis)) if len(sizes) > 1 else (x,))


@rule("ConcatFromSequence")
def concat_from_sequence(site: NodeContext) -> Any:
    """Imports ConcatFromSequence: concatenates the tensors, or stacks them along a new axis."""
    values = [site.value_of(i) for i in sequence(site, 0).items]
    site.require(bool(values), "the sequence is empty")
    axis = site.integer("axis", 0)
    return ops.stack(values, axis) if site.integer("new_axis", 0) else ops.concat(values, axis)


@rule("SequenceMap")
def sequence_map(site: NodeContext) -> Any:
    """Imports SequenceMap: applies a subgraph to each element of a sequence, unrolled."""
    body, first = site.graph("body"), sequence(site, 0).items
    site.require(len(body.input) == len(site.items), f"the body has {len(body.input)} inputs, {len(site.items)} are given")
    rounds = []
    for k in range(len(first)):
        inputs = [i.items[k] if isinstance(i, Sequence) and k < len(i.items) else i for i in site.items]
        rounds.append(site.importer.body(body, site.scope, dict(zip([i.name for i in body.input], inputs, strict=True))))
    return [Sequence(tuple(r[k] for r in rounds)) for k in range(len(body.output))]


@rule("Optional")
def optional(site: NodeContext) -> Any:
    """Imports Optional: an optional of the input, or an empty one."""
    return Maybe(site.item(0) if site.has(0) else None)


@rule("OptionalHasElement")
def has_element(site: NodeContext) -> Any:
    """Imports OptionalHasElement: a known bool, true if an optional has a value."""
    item: Item | None = site.items[0] if site.items else None
    filled = item is not None and not (isinstance(item, Maybe) and item.item is None)
    return Known(np.asarray(filled), numbers(np.asarray(True)).dtype)


@rule("OptionalGetElement")
def get_element(site: NodeContext) -> Any:
    """Imports OptionalGetElement: the value of an optional; raises ModelFileError if it is empty."""
    item = site.item(0)
    if isinstance(item, Maybe):
        site.require(item.item is not None, "the optional is empty")
        return item.item
    return item
